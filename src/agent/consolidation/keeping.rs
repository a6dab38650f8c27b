//! What a consolidation came to, in one commit: old or new, never half.

use daoyou_channels::cli::Language;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::answer::{Answer, SUMMARY_CHARS};
use super::asking::Used;
use super::part::Part;
use super::plain;
use crate::memory::{self, InvalidEntry, MemoryConfig, MemoryKind, MemoryOrigin, RememberOutcome, word_index};
use crate::store::memories::{self, NewMemory};
use crate::store::session_memory::{self, SessionMemory};
use crate::store::{Connection, StoreError, notes, now_ms, usage};

/// Tries that fail in a row, before an extract has to do.
pub(super) const TRIES: i64 = 3;
/// How long after a failed try the next one is, the first and the second time.
const FIRST_WAIT_MS: i64 = 60_000;
const SECOND_WAIT_MS: i64 = 900_000;

/// Where the tokens of the day are noted.
const NOTES: (&str, &str, &str) = ("memory", "spent", "day");

/// What became of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kept {
    /// The summary tells it.
    Told { noticed: usize },
    /// It was no longer what the model had read, and is read again.
    Changed,
    /// It is tried again later.
    PutOff,
}

/// What is to be kept of a part.
#[derive(Clone, Debug)]
pub(super) enum Outcome {
    /// A model has written it.
    Written(Answer),
    /// No model writes it: an extract does.
    Plain,
    /// A model was asked in vain.
    Failed,
}

/// Everything that the commit needs.
#[derive(Clone, Debug)]
pub(super) struct Keeping {
    pub part: Part,
    pub result: Outcome,
    pub used: Option<Used>,
    pub config: MemoryConfig,
    pub language: Language,
    pub zone: TimeZone,
}

impl Keeping {
    /// Writes it.
    ///
    /// # Errors
    /// The store cannot be written.
    pub fn write(self, connection: &Connection) -> Result<Kept, StoreError> {
        if let Some(used) = &self.used {
            count(connection, &self.part.task.session, used, &self.zone)?;
        }
        let (session, epoch) = (self.part.task.session.as_str(), self.part.task.epoch);
        let now = session_memory::get(connection, session, epoch)?;
        let read = &self.part.task.state;
        if (now.cursor, now.summary) != (read.cursor, read.summary) || !self.part.still_holds(connection)? {
            return Ok(Kept::Changed);
        }
        match self.result {
            Outcome::Written(ref answer) => {
                let noticed = self.remember(connection, answer)?;
                self.tell(connection, &answer.summary, now)?;
                Ok(Kept::Told { noticed })
            }
            Outcome::Failed if now.failures < TRIES => {
                let wait = if now.failures > 1 { SECOND_WAIT_MS } else { FIRST_WAIT_MS };
                let state = SessionMemory { retry_at: now_ms() + wait, ..now };
                session_memory::put(connection, session, epoch, &state)?;
                Ok(Kept::PutOff)
            }
            Outcome::Failed | Outcome::Plain => {
                let summary = plain::extend(&self.part.before, &self.part.lines, self.language, SUMMARY_CHARS);
                self.tell(connection, &summary, now)?;
                Ok(Kept::Told { noticed: 0 })
            }
        }
    }

    /// Remembers what was noticed; answers how much of it is new.
    fn remember(&self, connection: &Connection, answer: &Answer) -> Result<usize, StoreError> {
        let mut new = 0;
        for noticed in &answer.entries {
            let (entry, config) = (&noticed.entry, &self.config);
            // One that has no words, or no name, is no reason to tell nothing.
            if let Err(unfit @ (InvalidEntry::Empty | InvalidEntry::NoName(_))) = memory::validate_entry(entry) {
                tracing::debug!(%unfit, "something that was noticed is not remembered");
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

    /// The new summary stands in the place of the old one, and of the messages that it tells.
    fn tell(&self, connection: &Connection, summary: &str, now: SessionMemory) -> Result<(), StoreError> {
        let Part { task, from, to, is_last, overlap, .. } = &self.part;
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
        let due = now.due.filter(|due| !is_last || Some(due) != task.state.due.as_ref());
        let state = SessionMemory {
            cursor: *to,
            overlap: *overlap,
            summary: Some(id),
            snapshot: None,
            due,
            failures: 0,
            retry_at: 0,
        };
        session_memory::put(connection, &task.session, task.epoch, &state)
    }
}

/// A model is going to be asked: a try is counted before it, so that what ends the process each time comes to an end.
pub(super) fn begin(connection: &Connection, session: &str, epoch: i64) -> Result<(), StoreError> {
    let now = session_memory::get(connection, session, epoch)?;
    session_memory::put(connection, session, epoch, &SessionMemory { failures: now.failures + 1, ..now })
}

/// Nothing is left to tell.
pub(super) fn close(
    connection: &Connection,
    session: &str,
    epoch: i64,
    read: &SessionMemory,
) -> Result<(), StoreError> {
    let now = session_memory::get(connection, session, epoch)?;
    if now.due == read.due {
        session_memory::put(connection, session, epoch, &SessionMemory { due: None, retry_at: 0, ..now })?;
    }
    Ok(())
}

/// The tokens that summaries have used today.
///
/// # Errors
/// The store cannot be read.
pub(super) fn tokens_today(connection: &Connection, zone: &TimeZone) -> Result<u64, StoreError> {
    let (channel, kind, key) = NOTES;
    let note = notes::get(connection, channel, kind, key)?;
    let spent = note.and_then(|(spent, _)| serde_json::from_str::<Spent>(&spent).ok()).unwrap_or_default();
    Ok(if spent.day == today(zone) { spent.tokens } else { 0 })
}

#[derive(Default, Serialize, Deserialize)]
struct Spent {
    day: String,
    tokens: u64,
}

/// Counts what was used for the session, and for the day.
fn count(connection: &Connection, session: &str, used: &Used, zone: &TimeZone) -> Result<(), StoreError> {
    let cost = used.cost.as_ref().map(|(currency, micros)| (currency.as_str(), *micros));
    usage::add(connection, daoyou_channels::new_id(), session, &used.model, used.tokens, cost)?;
    let tokens = tokens_today(connection, zone)?.saturating_add(used.tokens.input).saturating_add(used.tokens.output);
    let (channel, kind, key) = NOTES;
    let spent = Spent { day: today(zone), tokens };
    notes::set(connection, channel, kind, key, &serde_json::to_string(&spent)?)
}

fn today(zone: &TimeZone) -> String {
    Timestamp::now().to_zoned(zone.clone()).date().to_string()
}
