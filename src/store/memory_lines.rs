//! The lines of MEMORY.md as they were last read or written, and the summaries of HISTORY.md.

use rusqlite::{Connection, Params, params};

use super::StoreError;
use super::sql::{StoredRow, execute, select, select_parsed, stored_row};

/// A line of the file, with the current state of its memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineRow {
    pub memory: i64,
    /// The owner of the memory. If the memory no longer exists, the owner when the line was written.
    pub owner: String,
    /// The hash of the line.
    pub hash: String,
    /// The text of the memory; `None` if the memory no longer exists.
    pub text: Option<String>,
}

/// Returns all lines in the order of the file.
pub fn all(connection: &Connection) -> Result<Vec<LineRow>, StoreError> {
    let sql = "SELECT l.memory, coalesce(m.owner, l.owner), l.hash, m.text FROM memory_lines l
         LEFT JOIN memories m ON m.id = l.memory AND m.replaced_by IS NULL AND m.kind = 'fact'
         ORDER BY l.place, l.memory";
    select(connection, sql, [], |row| {
        Ok(LineRow { memory: row.get(0)?, owner: row.get(1)?, hash: row.get(2)?, text: row.get(3)? })
    })
}

/// Records that a line of the file contains a memory.
pub fn put(connection: &Connection, memory: i64, owner: &str, hash: &str, place: usize) -> Result<(), StoreError> {
    let sql = "INSERT OR REPLACE INTO memory_lines (memory, owner, hash, place) VALUES (?, ?, ?, ?)";
    execute(connection, sql, params![memory, owner, hash, place]).map(drop)
}

/// Removes the line of a memory.
pub fn remove(connection: &Connection, memory: i64) -> Result<(), StoreError> {
    execute(connection, "DELETE FROM memory_lines WHERE memory = ?", [memory]).map(drop)
}

/// Removes all lines.
pub fn clear(connection: &Connection) -> Result<(), StoreError> {
    execute(connection, "DELETE FROM memory_lines", []).map(drop)
}

/// Returns the ids and texts of an owner's facts that have no line, the oldest first.
pub fn missing(connection: &Connection, owner: &str) -> Result<Vec<(i64, String)>, StoreError> {
    let sql = "SELECT m.id, m.text FROM memories m LEFT JOIN memory_lines l ON l.memory = m.id
         WHERE m.owner = ? AND m.kind = 'fact' AND m.replaced_by IS NULL AND l.memory IS NULL ORDER BY m.id";
    select(connection, sql, [owner], |row| Ok((row.get(0)?, row.get(1)?)))
}

/// Returns the summaries after the id `after`, the oldest first: the summaries that HISTORY.md does not contain yet.
pub fn summaries_after(connection: &Connection, after: i64, limit: u32) -> Result<Vec<SummaryRow>, StoreError> {
    summaries(connection, "id > ? ORDER BY id LIMIT ?", params![after, limit])
}

/// Returns all summaries of an owner, the oldest first.
pub fn summaries_of(connection: &Connection, owner: &str) -> Result<Vec<SummaryRow>, StoreError> {
    summaries(connection, "owner = ? ORDER BY id", [owner])
}

/// Returns the summaries of a session, the oldest first.
pub fn summaries_of_session(connection: &Connection, session: &str) -> Result<Vec<SummaryRow>, StoreError> {
    summaries(connection, "name = ? ORDER BY id", [session])
}

/// A summary as HISTORY.md shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SummaryRow {
    pub id: i64,
    pub session: String,
    pub text: String,
    /// JSON.
    pub detail: String,
    /// UTC milliseconds.
    pub at: i64,
}

stored_row! { SummaryRow: id, session, text, detail, at }

fn summaries(connection: &Connection, filter: &str, parameters: impl Params) -> Result<Vec<SummaryRow>, StoreError> {
    let sql = format!("SELECT id, name, text, detail, created_at FROM memories WHERE kind = 'summary' AND {filter}");
    select_parsed(connection, &sql, parameters, SummaryRow::read)
}
