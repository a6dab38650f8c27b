//! The messages of sessions: append-only. `/new` begins a new epoch; a seq is never used again.

use rusqlite::{Connection, params};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::sql::{StoredRow, execute, find_row, find_rows, select_optional, select_parsed, stored_row};
use super::{StoreError, now_ms, session_memory};

/// The head of a session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionHead {
    pub epoch: i64,
    /// The first seq of this epoch.
    pub first_seq: i64,
    /// The seq of the next message.
    pub next_seq: i64,
    /// How often messages of the session's log were changed or deleted.
    pub edits: i64,
    /// The model chosen by `/model`.
    pub model: Option<String>,
    /// The agent chosen by `/agent`.
    pub agent: Option<String>,
    pub ownership: Ownership,
}

/// The owner of a session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ownership {
    /// The first writer; absent until a person writes in the session.
    pub owner: Option<String>,
    /// Others have written in the session as well. This stays true unless `[identities]` say that all writers are one person.
    pub is_shared: bool,
}

impl Ownership {
    /// Returns the owner of memories from this session: none if others write in it or the owner is an untrusted sender.
    pub fn private_owner(&self) -> Option<&str> {
        self.owner.as_deref().filter(|owner| !self.is_shared && !owner.starts_with("stranger:"))
    }
}

/// A message of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MessageRow {
    pub epoch: i64,
    pub seq: i64,
    pub role: String,
    /// JSON.
    pub body: String,
    pub turn: String,
    /// UTC milliseconds.
    pub at: i64,
}

stored_row! { MessageRow: epoch, seq, role, body, turn, at }

/// The last use of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastUse {
    /// The time of the last use of the session: a turn that is not a note, a restore or a choice of its model, in UTC milliseconds.
    pub used_at: i64,
    /// The time of the last message up to `used_at`, and its turn.
    pub last_message_at: i64,
    pub turn: String,
}

/// An entry in a list of sessions.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct SessionSummary {
    pub session: String,
    pub epoch: i64,
    /// The number of messages since the last `/new`.
    pub messages: i64,
    pub model: Option<String>,
    /// The title that a person chose.
    pub title: Option<String>,
    pub created_at: i64,
    pub updated_at: i64,
}

stored_row! { SessionSummary: session, epoch, messages, model, title, created_at, updated_at }

/// Returns the first 16 bytes of the SHA-256 of a message's role and body: enough to notice that either was changed.
pub fn digest(role: &str, body: &str) -> [u8; 16] {
    let whole = Sha256::new().chain_update(role).chain_update([0]).chain_update(body).finalize();
    std::array::from_fn(|at| whole[at])
}

/// Returns the head of a session; an unknown session is new.
pub fn session(connection: &Connection, session: &str) -> Result<SessionHead, StoreError> {
    let sql =
        "SELECT epoch, first_seq, next_seq, edits, model, agent, owner, is_shared FROM sessions WHERE session = ?";
    let head = select_optional(connection, sql, [session], |row| {
        let (epoch, first_seq, next_seq, edits) = (row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?);
        let ownership = Ownership { owner: row.get(6)?, is_shared: row.get(7)? };
        Ok(SessionHead { epoch, first_seq, next_seq, edits, model: row.get(4)?, agent: row.get(5)?, ownership })
    })?;
    Ok(head.unwrap_or_default())
}

/// Returns the messages of `from..to` in order.
pub fn range(connection: &Connection, session: &str, from: i64, to: i64) -> Result<Vec<MessageRow>, StoreError> {
    let range = "messages WHERE session = ? AND seq >= ? AND seq < ? ORDER BY seq";
    find_rows(connection, range, params![session, from, to])
}

/// Returns the turn of a message.
pub fn turn_of(connection: &Connection, session: &str, seq: i64) -> Result<Option<String>, StoreError> {
    let sql = "SELECT turn FROM messages WHERE session = ? AND seq = ?";
    select_optional(connection, sql, params![session, seq], |row| row.get(0))
}

/// Returns the last user message before `seq`.
pub fn user_before(connection: &Connection, session: &str, seq: i64) -> Result<Option<MessageRow>, StoreError> {
    let last = "messages WHERE session = ? AND seq < ? AND role = 'user' ORDER BY seq DESC LIMIT 1";
    find_row(connection, last, params![session, seq])
}

/// Returns the last use of a session, or `None` if its epoch has no messages.
pub fn last_use(connection: &Connection, session: &str) -> Result<Option<LastUse>, StoreError> {
    let sql = "SELECT ifnull(s.used_at, s.updated_at), m.at, m.turn
         FROM sessions s JOIN messages m ON m.session = s.session AND m.seq >= s.first_seq
         WHERE s.session = ? AND m.at <= ifnull(s.used_at, s.updated_at) ORDER BY m.seq DESC LIMIT 1";
    select_optional(connection, sql, [session], |row| {
        Ok(LastUse { used_at: row.get(0)?, last_message_at: row.get(1)?, turn: row.get(2)? })
    })
}

/// Returns the seq after the last message of an epoch, or 0 if it has none.
pub fn end_of(connection: &Connection, session: &str, epoch: i64) -> Result<i64, StoreError> {
    let sql = "SELECT seq + 1 FROM messages WHERE session = ? AND epoch = ? ORDER BY seq DESC LIMIT 1";
    Ok(select_optional(connection, sql, params![session, epoch], |row| row.get(0))?.unwrap_or_default())
}

/// Appends the `(role, body)` messages of one turn to the session; returns its new head.
pub fn append<'a>(
    connection: &Connection,
    session: &str,
    turn: Uuid,
    messages: impl Iterator<Item = (&'a str, String)>,
) -> Result<SessionHead, StoreError> {
    let (at, head) = insert(connection, session, turn, messages)?;
    let sql = "INSERT INTO sessions (session, created_at, updated_at, next_seq) VALUES (?1, ?2, ?2, ?3)
             ON CONFLICT (session) DO UPDATE SET updated_at = excluded.updated_at, used_at = NULL,
                next_seq = excluded.next_seq";
    execute(connection, sql, params![session, at, head.next_seq])?;
    Ok(head)
}

/// Appends the `(role, body)` messages of a note to the session; returns its new head. A note does not count as a use,
/// since no person in the session asked for it.
pub fn append_note<'a>(
    connection: &Connection,
    session: &str,
    turn: Uuid,
    messages: impl Iterator<Item = (&'a str, String)>,
) -> Result<SessionHead, StoreError> {
    let (at, head) = insert(connection, session, turn, messages)?;
    let sql = "INSERT INTO sessions (session, created_at, updated_at, used_at, next_seq) VALUES (?1, ?2, ?2, 0, ?3)
             ON CONFLICT (session) DO UPDATE SET updated_at = excluded.updated_at,
                used_at = ifnull(used_at, updated_at), next_seq = excluded.next_seq";
    execute(connection, sql, params![session, at, head.next_seq])?;
    Ok(head)
}

/// Inserts the rows; returns their time and the new head of the session.
fn insert<'a>(
    connection: &Connection,
    session: &str,
    turn: Uuid,
    messages: impl Iterator<Item = (&'a str, String)>,
) -> Result<(i64, SessionHead), StoreError> {
    let mut head = self::session(connection, session)?;
    let (turn, at) = (turn.to_string(), now_ms());
    let mut insert = connection.prepare_cached(
        "INSERT INTO messages (session, epoch, seq, role, body, turn, at, digest) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
    )?;
    for (role, body) in messages {
        insert.execute(params![session, head.epoch, head.next_seq, role, body, turn, at, digest(role, &body)])?;
        head.next_seq += 1;
    }
    Ok((at, head))
}

/// Begins a new epoch: the former messages stay in the log, leave the window, and become due for consolidation.
pub fn new_epoch(connection: &Connection, session: &str) -> Result<(), StoreError> {
    let at = now_ms();
    touch(connection, session, at)?;
    let head = self::session(connection, session)?;
    if head.next_seq > head.first_seq {
        session_memory::close(connection, session, head.epoch, head.first_seq)?;
    }
    let sql = "UPDATE sessions SET epoch = epoch + 1, first_seq = next_seq, epoch_at = ? WHERE session = ?";
    execute(connection, sql, params![at, session]).map(drop)
}

pub fn set_model(connection: &Connection, session: &str, model: Option<&str>) -> Result<(), StoreError> {
    touch(connection, session, now_ms())?;
    execute(connection, "UPDATE sessions SET model = ? WHERE session = ?", params![model, session]).map(drop)
}

pub fn set_agent(connection: &Connection, session: &str, agent: Option<&str>) -> Result<(), StoreError> {
    touch(connection, session, now_ms())?;
    execute(connection, "UPDATE sessions SET agent = ? WHERE session = ?", params![agent, session]).map(drop)
}

/// Returns the title of a session.
pub fn title(connection: &Connection, session: &str) -> Result<Option<String>, StoreError> {
    let sql = "SELECT title FROM sessions WHERE session = ?";
    Ok(select_optional(connection, sql, [session], |row| row.get(0))?.flatten())
}

/// Sets the title of a session, or removes it; returns whether there is such a session.
pub fn set_title(connection: &Connection, session: &str, title: Option<&str>) -> Result<bool, StoreError> {
    Ok(execute(connection, "UPDATE sessions SET title = ? WHERE session = ?", params![title, session])? == 1)
}

/// Returns the time at which this epoch of the session began, in UTC milliseconds; 0 for the first epoch.
pub fn epoch_start(connection: &Connection, session: &str) -> Result<i64, StoreError> {
    let sql = "SELECT epoch_at FROM sessions WHERE session = ?";
    Ok(select_optional(connection, sql, [session], |row| row.get(0))?.unwrap_or_default())
}

/// Returns the most recently used sessions, the latest first.
pub fn list(connection: &Connection, limit: u32) -> Result<Vec<SessionSummary>, StoreError> {
    list_of(connection, "", limit)
}

/// Returns the most recently used sessions whose keys begin with `prefix`, the latest first.
pub fn list_of(connection: &Connection, prefix: &str, limit: u32) -> Result<Vec<SessionSummary>, StoreError> {
    // Retention deletes the oldest messages of a session first.
    let sql = "SELECT session, epoch, next_seq - max(first_seq, ifnull(
                (SELECT min(m.seq) FROM messages m WHERE m.session = s.session), next_seq)),
             model, title, created_at, updated_at
         FROM sessions s WHERE substr(session, 1, length(?1)) = ?1 ORDER BY updated_at DESC, session LIMIT ?2";
    select_parsed(connection, sql, params![prefix, limit], SessionSummary::read)
}

/// Counts a change or deletion of stored messages, so that nobody uses a copy of them any more.
pub(super) fn count_edit(connection: &Connection, session: &str) -> Result<(), StoreError> {
    execute(connection, "UPDATE sessions SET edits = edits + 1 WHERE session = ?", [session]).map(drop)
}

fn touch(connection: &Connection, session: &str, at: i64) -> Result<(), StoreError> {
    let sql = "INSERT INTO sessions (session, created_at, updated_at) VALUES (?1, ?2, ?2)
             ON CONFLICT (session) DO UPDATE SET updated_at = excluded.updated_at, used_at = NULL";
    execute(connection, sql, params![session, at]).map(drop)
}
