//! The state of consolidation for each epoch of a session: the position of its summary, and the memory snapshot in its prompt.

use rusqlite::{Connection, Params, Row, params};

use super::sql::{StoredRow, execute, find_row, select, select_optional, select_parsed, select_value, stored_row};
use super::{StoreError, now_ms};

/// The state of one epoch of a session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionMemory {
    /// The summary covers messages below this seq.
    pub cursor: i64,
    /// The number of covered messages that prompts still contain literally.
    pub overlap: i64,
    /// The memory of kind `summary` that covers them.
    pub summary: Option<i64>,
    /// The hash of the snapshot in the prompt; `None` if none was taken yet.
    pub snapshot: Option<String>,
    /// The reason why the remaining messages must be consolidated although they are few.
    pub due_reason: Option<String>,
    /// Consecutive consolidations that failed.
    pub failures: i64,
    /// The time from which on the next attempt is allowed, UTC milliseconds.
    pub retry_at: i64,
}

stored_row! { SessionMemory: cursor, overlap, summary, snapshot, due_reason, failures, retry_at }

/// Returns the state of an epoch; a new epoch has the default state.
pub fn get(connection: &Connection, session: &str, epoch: i64) -> Result<SessionMemory, StoreError> {
    let found = find_row(connection, "session_memory WHERE session = ? AND epoch = ?", params![session, epoch])?;
    Ok(found.unwrap_or_default())
}

/// Writes the state of an epoch.
pub fn put(connection: &Connection, session: &str, epoch: i64, state: &SessionMemory) -> Result<(), StoreError> {
    let sql = "INSERT INTO session_memory
                (session, epoch, cursor, overlap, summary, snapshot, due_reason, failures, retry_at, updated_at)
             VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
             ON CONFLICT (session, epoch) DO UPDATE SET cursor = excluded.cursor, overlap = excluded.overlap,
                summary = excluded.summary, snapshot = excluded.snapshot, due_reason = excluded.due_reason,
                failures = excluded.failures, retry_at = excluded.retry_at, updated_at = excluded.updated_at";
    let SessionMemory { cursor, overlap, summary, snapshot, due_reason, failures, retry_at } = state;
    let now = now_ms();
    let values = params![session, epoch, cursor, overlap, summary, snapshot, due_reason, failures, retry_at, now];
    execute(connection, sql, values).map(drop)
}

/// Marks the remaining messages of an epoch for consolidation. The first reason counts.
pub fn set_due(connection: &Connection, session: &str, epoch: i64, why: &str) -> Result<(), StoreError> {
    let sql = "INSERT INTO session_memory (session, epoch, due_reason, updated_at) VALUES (?1, ?2, ?3, ?4)
             ON CONFLICT (session, epoch) DO UPDATE SET due_reason = excluded.due_reason, updated_at = excluded.updated_at
                WHERE due_reason IS NULL";
    execute(connection, sql, params![session, epoch, why, now_ms()]).map(drop)
}

/// Closes an epoch: its remaining messages become due for consolidation, and it no longer needs a snapshot.
pub fn close(connection: &Connection, session: &str, epoch: i64, first_seq: i64) -> Result<(), StoreError> {
    release_snapshot(connection, session, epoch)?;
    let sql = "INSERT INTO session_memory (session, epoch, cursor, due_reason, updated_at) VALUES (?1, ?2, ?3, 'new', ?4)
             ON CONFLICT (session, epoch) DO UPDATE SET due_reason = 'new', retry_at = 0, updated_at = excluded.updated_at,
                cursor = max(cursor, excluded.cursor)";
    execute(connection, sql, params![session, epoch, first_seq, now_ms()]).map(drop)
}

/// Returns the epochs that are due for consolidation now, the longest waiting first.
pub fn due(connection: &Connection, now: i64, limit: u32) -> Result<Vec<(String, i64, SessionMemory)>, StoreError> {
    find_due(connection, "due_reason IS NOT NULL AND retry_at <= ? ORDER BY retry_at LIMIT ?", params![now, limit])
}

/// Returns the epochs of a session that are due for consolidation now, the oldest epoch first.
pub fn due_of(
    connection: &Connection,
    session: &str,
    now: i64,
) -> Result<Vec<(String, i64, SessionMemory)>, StoreError> {
    let condition = "session = ? AND due_reason IS NOT NULL AND retry_at <= ? ORDER BY epoch";
    find_due(connection, condition, params![session, now])
}

fn find_due(
    connection: &Connection,
    condition: &str,
    parameters: impl Params,
) -> Result<Vec<(String, i64, SessionMemory)>, StoreError> {
    let sql = format!("SELECT {}, session, epoch FROM session_memory WHERE {condition}", SessionMemory::COLUMNS);
    let read = |row: &Row<'_>| Ok((row.get("session")?, row.get("epoch")?, SessionMemory::read(row)?));
    select_parsed(connection, &sql, parameters, read)
}

/// Returns the time when the first deferred epoch may be tried again.
pub fn next_retry(connection: &Connection, now: i64) -> Result<Option<i64>, StoreError> {
    let sql = "SELECT min(retry_at) FROM session_memory WHERE due_reason IS NOT NULL AND retry_at > ?";
    select_value(connection, sql, [now])
}

/// Returns the sessions that were last used in `from..=to`, in that order, and whose epoch has at least `least` messages that no
/// summary covers: the session, its epoch, and the time of its last use.
pub fn idle_sessions(
    connection: &Connection,
    (from, to): (i64, i64),
    least: i64,
    limit: u32,
) -> Result<Vec<(String, i64, i64)>, StoreError> {
    let sql = "SELECT s.session, s.epoch, s.updated_at FROM sessions s
         LEFT JOIN session_memory m ON m.session = s.session AND m.epoch = s.epoch
         WHERE s.updated_at >= ?1 AND s.updated_at <= ?2 AND m.due_reason IS NULL
           AND s.next_seq - max(s.first_seq, ifnull(m.cursor, 0)) >= ?3
         ORDER BY s.updated_at LIMIT ?4";
    select(connection, sql, params![from, to, least, limit], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
}

/// Returns the earliest last use of a session after `from`.
pub fn next_use_after(connection: &Connection, from: i64) -> Result<Option<i64>, StoreError> {
    let sql = "SELECT min(updated_at) FROM sessions WHERE updated_at > ?";
    select_value(connection, sql, [from])
}

/// Returns the text of a snapshot.
pub fn snapshot(connection: &Connection, hash: &str) -> Result<Option<String>, StoreError> {
    select_optional(connection, "SELECT text FROM snapshots WHERE hash = ?", [hash], |row| row.get(0))
}

/// Stores the text of a snapshot of an owner's memory.
pub fn keep_snapshot(connection: &Connection, hash: &str, owner: &str, text: &str) -> Result<(), StoreError> {
    let sql = "INSERT INTO snapshots (hash, owner, text) VALUES (?, ?, ?) ON CONFLICT (hash) DO NOTHING";
    execute(connection, sql, [hash, owner, text]).map(drop)
}

/// Sets the snapshot in the prompts of an epoch, unless the epoch has one.
pub fn set_snapshot(connection: &Connection, session: &str, epoch: i64, hash: &str) -> Result<(), StoreError> {
    let sql = "INSERT INTO session_memory (session, epoch, snapshot, updated_at) VALUES (?1, ?2, ?3, ?4)
             ON CONFLICT (session, epoch) DO UPDATE SET snapshot = excluded.snapshot, updated_at = excluded.updated_at
                WHERE snapshot IS NULL";
    execute(connection, sql, params![session, epoch, hash, now_ms()]).map(drop)
}

/// Removes the snapshot from the prompts of an epoch, so that its next turn takes a new one. Deletes the text if no other prompt
/// uses it.
pub fn release_snapshot(connection: &Connection, session: &str, epoch: i64) -> Result<(), StoreError> {
    let Some(hash) = get(connection, session, epoch)?.snapshot else { return Ok(()) };
    let sql = "UPDATE session_memory SET snapshot = NULL WHERE session = ? AND epoch = ?";
    execute(connection, sql, params![session, epoch])?;
    let sql = "DELETE FROM snapshots
             WHERE hash = ?1 AND NOT EXISTS (SELECT 1 FROM session_memory WHERE snapshot = ?1)";
    execute(connection, sql, [hash]).map(drop)
}

/// Deletes the snapshots of an owner and removes them from all prompts, so that the next turns take new ones. For `everyone` these
/// are all snapshots, since each contains the memories of `everyone`.
pub fn drop_snapshots(connection: &Connection, owner: &str) -> Result<(), StoreError> {
    let sql = "UPDATE session_memory SET snapshot = NULL
             WHERE snapshot IN (SELECT hash FROM snapshots WHERE owner = ?1 OR ?1 = 'everyone')";
    execute(connection, sql, [owner])?;
    let sql = "DELETE FROM snapshots WHERE owner = ?1 OR ?1 = 'everyone'";
    execute(connection, sql, [owner]).map(drop)
}
