//! Writes a consolidation in one commit: all of it or nothing.

use std::sync::Arc;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::answer::{SUMMARY_CHARS, SummaryAnswer};
use super::extract;
use super::part::ConversationPart;
use crate::memory::{self, InvalidEntry, MemoryKind, MemoryOrigin, MemorySettings, RememberOutcome, word_index};
use crate::postprocess::ModelUse;
use crate::store::memories::{self, NewMemory};
use crate::store::session_memory::{self, SessionMemory};
use crate::store::{Connection, StoreError, notes, now_ms};
use crate::turn::progress::ModelSpending;

/// The maximum number of consecutive failed tries. After them, an extract replaces the summary.
pub(super) const MAX_TRIES: i64 = 3;
/// The waits after the first and the second failed try.
const FIRST_WAIT_MS: i64 = 60_000;
const SECOND_WAIT_MS: i64 = 900_000;

/// The key of the note that holds the tokens used today.
const NOTES: (&str, &str, &str) = ("memory", "spent", "day");

/// The outcome of the commit of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CommitResult {
    /// The summary covers the part.
    Summarised { noticed: usize },
    /// The part has changed since the model read it, so it is read again.
    Changed,
    /// The part is tried again later.
    Postponed,
}

/// The result of a part.
#[derive(Clone, Debug)]
pub(super) enum SummaryOutcome {
    /// A model has written the summary.
    Written(SummaryAnswer),
    /// No model writes the summary; an extract replaces it.
    Extract,
    /// A model failed to write the summary.
    Failed,
}

/// Everything that the commit needs.
#[derive(Clone, Debug)]
pub(super) struct ConsolidationCommit {
    pub part: ConversationPart,
    pub result: SummaryOutcome,
    pub used: Option<ModelUse>,
    pub settings: Arc<MemorySettings>,
}

impl ConsolidationCommit {
    /// Writes the result.
    ///
    /// # Errors
    /// The store cannot be written.
    pub fn write(&self, connection: &Connection) -> Result<CommitResult, StoreError> {
        if let Some(used) = &self.used {
            count(connection, &self.part.task.session, used, &self.settings.zone)?;
        }
        let (session, epoch) = (self.part.task.session.as_str(), self.part.task.epoch);
        let now = session_memory::get(connection, session, epoch)?;
        let read = &self.part.task.state;
        if (now.cursor, now.summary) != (read.cursor, read.summary) || !self.part.is_unchanged(connection)? {
            return Ok(CommitResult::Changed);
        }
        match &self.result {
            SummaryOutcome::Written(answer) => {
                let noticed = self.remember(connection, answer)?;
                self.write_summary(connection, &answer.summary, now)?;
                Ok(CommitResult::Summarised { noticed })
            }
            SummaryOutcome::Failed if now.failures < MAX_TRIES => {
                let wait = if now.failures > 1 { SECOND_WAIT_MS } else { FIRST_WAIT_MS };
                let state = SessionMemory { retry_at: now_ms() + wait, ..now };
                session_memory::put(connection, session, epoch, &state)?;
                Ok(CommitResult::Postponed)
            }
            SummaryOutcome::Failed | SummaryOutcome::Extract => {
                let summary =
                    extract::extend(&self.part.before, &self.part.lines, self.settings.language, SUMMARY_CHARS);
                self.write_summary(connection, &summary, now)?;
                Ok(CommitResult::Summarised { noticed: 0 })
            }
        }
    }

    /// Stores the extracted memories; returns how many are new.
    fn remember(&self, connection: &Connection, answer: &SummaryAnswer) -> Result<usize, StoreError> {
        let mut new = 0;
        for noticed in &answer.entries {
            let (entry, config) = (&noticed.entry, &self.settings.config);
            // A memory without text or name is skipped.
            if let Err(invalid @ (InvalidEntry::Empty | InvalidEntry::NoName(_))) = memory::validate_entry(entry) {
                tracing::debug!(%invalid, "an extracted memory is skipped");
                continue;
            }
            let remembered = match noticed.replaces {
                Some(old) => memory::remember_replacing(connection, entry, old, config)?,
                None => memory::remember(connection, entry, config)?,
            };
            new += usize::from(!matches!(remembered, RememberOutcome::Known(_)));
        }
        Ok(new)
    }

    /// Replaces the old summary, and moves the cursor past the messages that the new one covers.
    fn write_summary(&self, connection: &Connection, summary: &str, now: SessionMemory) -> Result<(), StoreError> {
        let ConversationPart { task, from, to, is_last, overlap, .. } = &self.part;
        let detail = json!({"epoch": task.epoch, "from": from, "to": to}).to_string();
        let owner = self.part.owner();
        let new = NewMemory {
            owner: owner.as_str(),
            kind: MemoryKind::Summary.as_str(),
            name: &task.session,
            text: summary,
            detail: &detail,
            origin: MemoryOrigin::Noticed.as_str(),
            session: Some(&task.session),
            seq: Some(*to - 1),
            turn: None,
            confidence: 1.0,
        };
        let id = memories::insert(connection, &new)?;
        word_index::put(connection, id)?;
        if let Some(old) = now.summary {
            memories::replace(connection, old, id)?;
            word_index::remove(connection, old)?;
        }
        session_memory::release_snapshot(connection, &task.session, task.epoch)?;
        let due_reason = now.due_reason.filter(|reason| !is_last || Some(reason) != task.state.due_reason.as_ref());
        let summary = Some(id);
        let state = SessionMemory { cursor: *to, overlap: *overlap, summary, due_reason, ..SessionMemory::default() };
        session_memory::put(connection, &task.session, task.epoch, &state)
    }
}

/// Counts a try before a model is asked, so that a part which crashes the process each time reaches the limit of tries.
pub(super) fn begin(connection: &Connection, session: &str, epoch: i64) -> Result<(), StoreError> {
    let now = session_memory::get(connection, session, epoch)?;
    session_memory::put(connection, session, epoch, &SessionMemory { failures: now.failures + 1, ..now })
}

/// Marks an epoch as consolidated.
pub(super) fn close(connection: &Connection, session: &str, epoch: i64, old: &SessionMemory) -> Result<(), StoreError> {
    let now = session_memory::get(connection, session, epoch)?;
    if now.due_reason == old.due_reason {
        session_memory::put(connection, session, epoch, &SessionMemory { due_reason: None, retry_at: 0, ..now })?;
    }
    Ok(())
}

/// Returns the tokens that summaries have used today.
///
/// # Errors
/// The store cannot be read.
pub(super) fn tokens_today(connection: &Connection, zone: &TimeZone) -> Result<u64, StoreError> {
    let (channel, kind, key) = NOTES;
    let note = notes::get(connection, channel, kind, key)?;
    let spent = note.and_then(|(spent, _)| serde_json::from_str::<DailyTokens>(&spent).ok()).unwrap_or_default();
    Ok(if spent.day == today(zone) { spent.tokens } else { 0 })
}

#[derive(Default, Serialize, Deserialize)]
struct DailyTokens {
    day: String,
    tokens: u64,
}

/// Counts usage for the session and for the day.
fn count(connection: &Connection, session: &str, used: &ModelUse, zone: &TimeZone) -> Result<(), StoreError> {
    let ModelUse { model, usage, cost } = used;
    let spending = ModelSpending { usage: *usage, cost: cost.clone() };
    spending.write(connection, daoyou_channels::new_id(), session, model)?;
    let tokens = tokens_today(connection, zone)?.saturating_add(usage.input_tokens).saturating_add(usage.output_tokens);
    let (channel, kind, key) = NOTES;
    let spent = DailyTokens { day: today(zone), tokens };
    notes::set(connection, channel, kind, key, &serde_json::to_string(&spent)?)
}

fn today(zone: &TimeZone) -> String {
    Timestamp::now().to_zoned(zone.clone()).date().to_string()
}
