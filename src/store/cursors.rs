//! How far a channel that reads from a cursor has come.

use rusqlite::{Connection, OptionalExtension, params};

use super::{StoreError, now_ms};

pub fn get(connection: &Connection, channel: &str, source: &str) -> Result<Option<String>, StoreError> {
    let mut statement = connection.prepare_cached("SELECT position FROM cursors WHERE channel = ? AND source = ?")?;
    Ok(statement.query_row([channel, source], |row| row.get(0)).optional()?)
}

pub fn set(connection: &Connection, channel: &str, source: &str, position: &str) -> Result<(), StoreError> {
    connection
        .prepare_cached(
            "INSERT INTO cursors (channel, source, position, updated_at) VALUES (?, ?, ?, ?)
             ON CONFLICT (channel, source) DO UPDATE SET position = excluded.position, updated_at = excluded.updated_at",
        )?
        .execute(params![channel, source, position, now_ms()])?;
    Ok(())
}

/// Moves on without a turn, and records why.
pub fn skip(
    connection: &Connection,
    channel: &str,
    source: &str,
    position: &str,
    reason: &str,
) -> Result<(), StoreError> {
    set(connection, channel, source, position)?;
    connection
        .prepare_cached(
            "INSERT OR REPLACE INTO skipped (channel, source, position, reason, at) VALUES (?, ?, ?, ?, ?)",
        )?
        .execute(params![channel, source, position, reason, now_ms()])?;
    Ok(())
}
