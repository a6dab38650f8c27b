//! Selects the part of a session to consolidate next: whole turns, and no more than a model reads at once.

use sha2::{Digest, Sha256};

use super::transcript::{LineAuthor, TranscriptLine, lines};
use crate::llm::estimate_tokens;
use crate::memory::{Identities, MemoryEntry, MemoryOwner};
use crate::store::messages::{self, MessageRow, Ownership, SessionHead};
use crate::store::session_memory::SessionMemory;
use crate::store::{Connection, StoreError, approvals, forgetting, memories, ownership};

/// The maximum number of messages of one part.
const ROWS: i64 = 400;
/// The length of a backlog, in messages, above which no model reads it.
const BACKLOG: i64 = 2_000;
/// The messages that an idle conversation keeps verbatim.
const IDLE_KEPT: i64 = 8;

/// The reason why a conversation is consolidated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::EnumString)]
#[strum(serialize_all = "snake_case")]
pub(super) enum ConsolidationReason {
    /// The number of messages without a summary has reached its limit.
    Full,
    /// The messages did not all fit into the model's context.
    // Rows that were written before format 30 of the store have `tight`.
    #[strum(serialize = "context_full", serialize = "tight")]
    ContextFull,
    /// The conversation is idle.
    Idle,
    /// The conversation has ended.
    New,
}

/// An epoch that is due.
#[derive(Clone, Debug)]
pub(super) struct ConsolidationTask {
    pub session: String,
    pub epoch: i64,
    pub state: SessionMemory,
}

/// The limits of a part.
#[derive(Clone, Debug)]
pub(super) struct PartLimits {
    /// Messages that stay verbatim.
    pub keep: i64,
    /// The maximum number of tokens of the messages that stay verbatim, if the context is too small.
    pub kept_tokens: usize,
    /// The maximum number of tokens that a model reads at once.
    pub input_tokens: usize,
}

/// Messages that the summary will cover.
#[derive(Clone, Debug)]
pub(super) struct ConversationPart {
    pub task: ConsolidationTask,
    /// The range of messages, by seq.
    pub from: i64,
    pub to: i64,
    /// No further part is due.
    pub is_last: bool,
    /// The number of messages before `to` that stay verbatim although the summary covers them.
    pub overlap: i64,
    /// The part belongs to a backlog, which no model reads.
    pub is_backlog: bool,
    pub ownership: Ownership,
    /// The epoch has read foreign content (content from anyone but the owner).
    pub is_tainted: bool,
    pub lines: Vec<TranscriptLine>,
    /// The summary so far; empty if there is none.
    pub before: String,
    /// Known facts about the owner, if a model is asked.
    pub known: Vec<MemoryEntry>,
    pub fingerprint: PartFingerprint,
}

/// The state of a part's messages and summary, which detects changes and forgettings while the model writes.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct PartFingerprint {
    rows: [u8; 32],
    before: String,
    /// The count of forgettings.
    forget_count: i64,
}

impl ConversationPart {
    /// Returns the owner of the summary. The owner of a shared conversation's summary is the conversation itself.
    pub fn owner(&self) -> MemoryOwner {
        let owner = self.ownership.private_owner().map(MemoryOwner::from_stored);
        owner.unwrap_or_else(|| MemoryOwner::conversation(&self.task.session))
    }

    /// Returns true if the part has a message by a person.
    pub fn has_person_message(&self) -> bool {
        self.lines.iter().any(|line| matches!(line.author, LineAuthor::Person { .. }))
    }

    /// Returns true if the source messages and the summary are unchanged.
    ///
    /// # Errors
    /// The messages or the summary cannot be read from the store.
    pub fn is_unchanged(&self, connection: &Connection) -> Result<bool, StoreError> {
        let rows = messages::range(connection, &self.task.session, self.from, self.to)?;
        let now = PartFingerprint::of(connection, &rows, self.task.state.summary)?;
        Ok(now == self.fingerprint)
    }
}

impl PartFingerprint {
    fn of(connection: &Connection, rows: &[MessageRow], summary: Option<i64>) -> Result<Self, StoreError> {
        let mut hash = Sha256::new();
        for row in rows {
            hash.update(row.seq.to_le_bytes());
            hash.update(row.body.as_bytes());
        }
        let (before, forget_count) = (summary_text(connection, summary)?, forgetting::count(connection)?);
        Ok(Self { rows: hash.finalize().into(), before, forget_count })
    }
}

/// Returns the next part of a task; `None` if nothing is left.
pub(super) fn next(
    connection: &Connection,
    task: ConsolidationTask,
    limits: &PartLimits,
    identities: &Identities,
) -> Result<Option<ConversationPart>, StoreError> {
    let head = messages::session(connection, &task.session)?;
    let due_reason = task.state.due_reason.as_deref().unwrap_or_default();
    let why = due_reason.parse().unwrap_or(ConsolidationReason::Full);
    let why = if task.epoch == head.epoch { why } else { ConsolidationReason::New };
    let from = if task.epoch == head.epoch { task.state.cursor.max(head.first_seq) } else { task.state.cursor };
    let target = target(connection, &task, &head, (why, from), limits)?;
    if target <= from {
        return Ok(None);
    }
    let is_backlog = target - from > BACKLOG;
    let rows = messages::range(connection, &task.session, from, target.min(from + ROWS))?;
    let rows: Vec<_> = rows.into_iter().filter(|row| row.epoch == task.epoch).collect();
    let ownership = ownership::of_session(connection, &task.session)?;
    let lines = lines(connection, &rows, (identities, &ownership))?;
    let (rows, lines) = if is_backlog { (rows, lines) } else { cut(rows, lines, limits.input_tokens) };
    let Some(to) = rows.last().map(|row| row.seq + 1) else { return Ok(None) };
    let is_last = to >= target;
    // These messages may be covered by an earlier part.
    let overlap = if why == ConsolidationReason::Idle && is_last {
        IDLE_KEPT.min(limits.keep).min(to - head.first_seq)
    } else {
        0
    };
    let fingerprint = PartFingerprint::of(connection, &rows, task.state.summary)?;
    let is_tainted = !approvals::taint_of_epoch(connection, &task.session, task.epoch)?.is_empty();
    let before = fingerprint.before.clone();
    Ok(Some(ConversationPart {
        task,
        from,
        to,
        is_last,
        overlap,
        is_backlog,
        ownership,
        is_tainted,
        lines,
        before,
        known: Vec::new(),
        fingerprint,
    }))
}

/// Returns the seq up to which the summary must cover the session.
fn target(
    connection: &Connection,
    task: &ConsolidationTask,
    head: &SessionHead,
    (why, from): (ConsolidationReason, i64),
    limits: &PartLimits,
) -> Result<i64, StoreError> {
    let kept = || -> Result<i64, StoreError> {
        let row = messages::user_before(connection, &task.session, head.next_seq - limits.keep + 1)?;
        Ok(row.map_or(from, |row| row.seq))
    };
    Ok(match why {
        ConsolidationReason::Full => kept()?,
        ConsolidationReason::ContextFull => {
            kept()?.max(newest_turns(connection, task, head, from, limits.kept_tokens)?)
        }
        ConsolidationReason::Idle => head.next_seq,
        ConsolidationReason::New => messages::end_of(connection, &task.session, task.epoch)?,
    })
}

/// Returns the seq at which the newest whole turns of at most `tokens` begin. The last turn always stays verbatim.
fn newest_turns(
    connection: &Connection,
    task: &ConsolidationTask,
    head: &SessionHead,
    from: i64,
    tokens: usize,
) -> Result<i64, StoreError> {
    let rows = messages::range(connection, &task.session, from.max(head.next_seq - ROWS), head.next_seq)?;
    let (mut cost, mut begins) = (0, from);
    for row in rows.iter().rev() {
        cost += estimate_tokens(&row.body);
        if begins > from && cost > tokens {
            break;
        }
        if row.role == "user" {
            begins = row.seq;
        }
    }
    Ok(begins)
}

/// Returns the first whole turns of at most `tokens`, at least one.
fn cut(
    mut rows: Vec<MessageRow>,
    mut lines: Vec<TranscriptLine>,
    tokens: usize,
) -> (Vec<MessageRow>, Vec<TranscriptLine>) {
    let (mut cost, mut begins) = (0, None);
    for line in &lines {
        let is_first = rows.first().is_some_and(|row| row.seq == line.seq);
        if line.begins_turn && !is_first {
            begins = Some(line.seq);
        }
        cost += estimate_tokens(&line.text);
        if let (true, Some(end)) = (cost > tokens, begins) {
            rows.retain(|row| row.seq < end);
            lines.retain(|line| line.seq < end);
            break;
        }
    }
    (rows, lines)
}

fn summary_text(connection: &Connection, id: Option<i64>) -> Result<String, StoreError> {
    let row = match id {
        Some(id) => memories::find(connection, id)?,
        None => None,
    };
    Ok(row.map_or_else(String::new, |row| row.text))
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::chat::ChatMessage;
    use crate::store::{Durability, Store, session_memory};

    const LIMITS: PartLimits = PartLimits { keep: 4, kept_tokens: 60, input_tokens: 10_000 };

    /// A turn for each letter: `u` a short one, `l` a long one, `t` one with a tool.
    fn say(connection: &Connection, session: &str, turns: &str) -> Result<(), StoreError> {
        for letter in turns.chars() {
            let user = if letter == 'l' { "long ".repeat(100) } else { "hello".to_owned() };
            let tool = [
                ChatMessage::Assistant { content: "I look".to_owned(), reasoning: None, tool_calls: Vec::new() },
                ChatMessage::Tool {
                    call_id: "1".to_owned(),
                    name: "x".to_owned(),
                    content: "y".to_owned(),
                    images: Vec::new(),
                },
            ];
            let between: &[ChatMessage] = if letter == 't' { &tool } else { &[] };
            let turn = [ChatMessage::user(user)].into_iter().chain(between.iter().cloned());
            let turn = turn.chain([ChatMessage::assistant("hi")]);
            let rows = turn.map(|message| (message.role(), serde_json::to_string(&message).unwrap()));
            messages::append(connection, session, Uuid::now_v7(), rows)?;
        }
        Ok(())
    }

    /// The parts of a task, as `FROM..TO+OVERLAP`; the last one with a point.
    fn parts(connection: &Connection, session: &str, epoch: i64, limits: &PartLimits) -> Result<String, StoreError> {
        let mut found = Vec::new();
        let mut state = session_memory::get(connection, session, epoch)?;
        loop {
            let task = ConsolidationTask { session: session.to_owned(), epoch, state: state.clone() };
            let Some(part) = next(connection, task, limits, &Identities::default())? else { break };
            assert!(part.is_unchanged(connection)?);
            let (overlap, end) = (part.overlap, if part.is_last { "." } else { "" });
            let overlap = if overlap > 0 { format!("+{overlap}") } else { String::new() };
            found.push(format!("{}..{}{overlap}{end}", part.from, part.to));
            state.cursor = part.to;
        }
        Ok(found.join(" "))
    }

    #[tokio::test]
    async fn parts_are_whole_turns_and_the_last_turns_stay() {
        let (_folder, store) = Store::temporary();
        let small = PartLimits { input_tokens: 130, ..LIMITS };
        for (number, (turns, why, limits, expected)) in [
            ("uuuuu", "full", &LIMITS, "0..6."),
            ("uuttt", "full", &LIMITS, "0..12."),
            ("uu", "full", &LIMITS, ""),
            // A long turn leaves no room for others; the last turn always stays.
            ("uuulu", "context_full", &LIMITS, "0..8."),
            ("uuul", "tight", &LIMITS, "0..6."),
            ("l", "context_full", &LIMITS, ""),
            ("uuuu", "idle", &LIMITS, "0..8+4."),
            ("uuuu", "new", &LIMITS, "0..8."),
            // More messages than one part may have.
            ("llll", "new", &small, "0..2 2..4 4..6 6..8."),
            // More messages may stay verbatim than the last part has.
            ("llll", "idle", &small, "0..2 2..4 4..6 6..8+4."),
            ("l", "idle", &small, "0..2+2."),
        ]
        .into_iter()
        .enumerate()
        {
            let (session, limits) = (format!("s{number}"), limits.clone());
            let work = move |connection: &Connection| {
                say(connection, &session, turns)?;
                if why == "new" {
                    messages::new_epoch(connection, &session)?;
                    say(connection, &session, "uu")?;
                } else {
                    session_memory::set_due(connection, &session, 0, why)?;
                }
                parts(connection, &session, 0, &limits)
            };
            assert_eq!(store.write(Durability::Logged, work).await.unwrap(), expected, "{turns} {why}");
        }
    }

    #[tokio::test]
    async fn changes_during_the_summary_are_detected() {
        let (_folder, store) = Store::temporary();
        let work = |connection: &Connection| {
            say(connection, "s", "uuuuu")?;
            session_memory::set_due(connection, "s", 0, "full")?;
            let note = "INSERT INTO memories (owner, kind, text, origin, confidence, created_at)
                        VALUES ('owner', ?, 'x', 'told', 1, 0)";
            connection.execute(note, ["fact"])?;
            let mut held = Vec::new();
            for change in [
                "INSERT INTO memories (owner, kind, text, origin, confidence, created_at) VALUES ('owner', 'fact', 'y', 'told', 1, 0)",
                "UPDATE memories SET uses = 7",
                "UPDATE messages SET body = '{\"role\":\"user\",\"content\":\"[forgotten]\"}' WHERE seq = 8",
                "UPDATE messages SET body = '{\"role\":\"user\",\"content\":\"[forgotten]\"}' WHERE seq = 2",
                // A memory that was deleted because of the limit was not forgotten.
                "DELETE FROM memories WHERE id = 1",
                "",
            ] {
                let state = session_memory::get(connection, "s", 0)?;
                let task = ConsolidationTask { session: "s".to_owned(), epoch: 0, state };
                let part = next(connection, task, &LIMITS, &Identities::default())?;
                connection.execute_batch(change)?;
                if change.is_empty() {
                    forgetting::record(connection)?;
                }
                held.push(part.is_some_and(|part| part.is_unchanged(connection).unwrap()));
            }
            Ok(held)
        };
        assert_eq!(store.write(Durability::Logged, work).await.unwrap(), [true, true, true, false, true, false]);
    }
}
