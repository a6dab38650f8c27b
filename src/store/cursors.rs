//! The positions up to which channels have read their sources, and the positions that they skipped.

use rusqlite::{Connection, params};

use super::sql::{execute, find_rows, select_optional, select_value, stored_row};
use super::{StoreError, now_ms};

/// A skipped position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkippedPosition {
    pub source: String,
    pub position: String,
    pub reason: String,
    /// UTC milliseconds.
    pub at: i64,
}

stored_row! { SkippedPosition: source, position, reason, at }

pub fn get(connection: &Connection, channel: &str, source: &str) -> Result<Option<String>, StoreError> {
    let sql = "SELECT position FROM cursors WHERE channel = ? AND source = ?";
    select_optional(connection, sql, [channel, source], |row| row.get(0))
}

pub fn set(connection: &Connection, channel: &str, source: &str, position: &str) -> Result<(), StoreError> {
    let sql = "INSERT INTO cursors (channel, source, position, updated_at) VALUES (?, ?, ?, ?)
             ON CONFLICT (channel, source) DO UPDATE SET position = excluded.position, updated_at = excluded.updated_at";
    execute(connection, sql, params![channel, source, position, now_ms()]).map(drop)
}

/// Moves the cursor without a turn, and records the reason.
pub fn skip(
    connection: &Connection,
    channel: &str,
    source: &str,
    position: &str,
    reason: &str,
) -> Result<(), StoreError> {
    set(connection, channel, source, position)?;
    let sql = "INSERT OR REPLACE INTO skipped_messages (channel, source, position, reason, at) VALUES (?, ?, ?, ?, ?)";
    execute(connection, sql, params![channel, source, position, reason, now_ms()]).map(drop)
}

/// Returns the number of positions that `channel` has skipped, and the newest of them, at most `limit`, the newest first.
pub fn skipped(
    connection: &Connection,
    channel: &str,
    limit: u32,
) -> Result<(usize, Vec<SkippedPosition>), StoreError> {
    let count = select_value(connection, "SELECT count(*) FROM skipped_messages WHERE channel = ?", [channel])?;
    let last = "skipped_messages INDEXED BY skipped_messages_at WHERE channel = ? ORDER BY at DESC LIMIT ?";
    Ok((count, find_rows(connection, last, params![channel, limit])?))
}
