//! What stands before the log in an epoch of a session: how far its summary goes, and the long-term memory in its prompt.

use rusqlite::{Connection, OptionalExtension, params};

use super::{StoreError, now_ms};

/// The state of one epoch of a session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionMemory {
    /// Messages below this seq are told by the summary.
    pub cursor: i64,
    /// The memory of kind `summary` that tells them.
    pub summary: Option<i64>,
    /// The hash of the snapshot in its prompt; none was taken yet without.
    pub snapshot: Option<String>,
    /// Why the rest is to be consolidated though it is short.
    pub due: Option<String>,
    /// Consolidations that failed in a row.
    pub failures: i64,
    /// When the next may be tried, UTC milliseconds.
    pub retry_at: i64,
}

/// The state of an epoch; nothing is known of a new one.
pub fn get(connection: &Connection, session: &str, epoch: i64) -> Result<SessionMemory, StoreError> {
    let mut statement = connection.prepare_cached(
        "SELECT cursor, summary, snapshot, due, failures, retry_at FROM session_memory WHERE session = ? AND epoch = ?",
    )?;
    let found = statement
        .query_row(params![session, epoch], |row| {
            Ok(SessionMemory {
                cursor: row.get(0)?,
                summary: row.get(1)?,
                snapshot: row.get(2)?,
                due: row.get(3)?,
                failures: row.get(4)?,
                retry_at: row.get(5)?,
            })
        })
        .optional()?;
    Ok(found.unwrap_or_default())
}

/// Writes it.
pub fn put(connection: &Connection, session: &str, epoch: i64, state: &SessionMemory) -> Result<(), StoreError> {
    connection
        .prepare_cached(
            "INSERT INTO session_memory (session, epoch, cursor, summary, snapshot, due, failures, retry_at, updated_at)
             VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
             ON CONFLICT (session, epoch) DO UPDATE SET cursor = excluded.cursor, summary = excluded.summary,
                snapshot = excluded.snapshot, due = excluded.due, failures = excluded.failures,
                retry_at = excluded.retry_at, updated_at = excluded.updated_at",
        )?
        .execute(params![
            session,
            epoch,
            state.cursor,
            state.summary,
            state.snapshot,
            state.due,
            state.failures,
            state.retry_at,
            now_ms()
        ])?;
    Ok(())
}

/// The text of a snapshot.
pub fn snapshot(connection: &Connection, hash: &str) -> Result<Option<String>, StoreError> {
    let mut statement = connection.prepare_cached("SELECT text FROM snapshots WHERE hash = ?")?;
    Ok(statement.query_row([hash], |row| row.get(0)).optional()?)
}

/// Keeps the text of a snapshot of an owner's memory.
pub fn keep_snapshot(connection: &Connection, hash: &str, owner: &str, text: &str) -> Result<(), StoreError> {
    connection
        .prepare_cached("INSERT INTO snapshots (hash, owner, text) VALUES (?, ?, ?) ON CONFLICT (hash) DO NOTHING")?
        .execute([hash, owner, text])?;
    Ok(())
}

/// Removes an owner's snapshots from the store and from all prompts: the next turn of each session takes a new one.
pub fn drop_snapshots(connection: &Connection, owner: &str) -> Result<(), StoreError> {
    connection
        .prepare_cached(
            "UPDATE session_memory SET snapshot = NULL
             WHERE snapshot IN (SELECT hash FROM snapshots WHERE owner = ?)",
        )?
        .execute([owner])?;
    connection.prepare_cached("DELETE FROM snapshots WHERE owner = ?")?.execute([owner])?;
    Ok(())
}
