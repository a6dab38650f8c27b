//! How far a channel that reads from a cursor has come.

use rusqlite::{Connection, OptionalExtension, params};

use super::{StoreError, now_ms};

/// A place that was passed over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PassedOver {
    pub source: String,
    pub position: String,
    pub reason: String,
    /// UTC milliseconds.
    pub at: i64,
}

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

/// How many places `channel` passed over, and the last of them, at most `limit`, the newest first.
pub fn passed_over(connection: &Connection, channel: &str, limit: u32) -> Result<(usize, Vec<PassedOver>), StoreError> {
    let count = connection
        .prepare_cached("SELECT count(*) FROM skipped WHERE channel = ?")?
        .query_row([channel], |row| row.get(0))?;
    let mut statement = connection.prepare_cached(
        "SELECT source, position, reason, at FROM skipped INDEXED BY skipped_at WHERE channel = ? ORDER BY at DESC LIMIT ?",
    )?;
    let rows = statement.query_map(params![channel, limit], |row| {
        Ok(PassedOver { source: row.get(0)?, position: row.get(1)?, reason: row.get(2)?, at: row.get(3)? })
    })?;
    Ok((count, rows.collect::<Result<_, _>>()?))
}
