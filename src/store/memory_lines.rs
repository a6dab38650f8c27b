//! What of the memory stands in MEMORY.md, as it was last read or written.

use rusqlite::{Connection, params};

use super::StoreError;

/// A line there, and what is known of its memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineRow {
    pub memory: i64,
    /// Whose the memory is; of one that is not known any more, whose it was when the line was written.
    pub owner: String,
    /// Of what stands there.
    pub hash: String,
    /// What the memory says; `None` when it is not known any more.
    pub text: Option<String>,
}

/// All lines, in the order of the page.
pub fn all(connection: &Connection) -> Result<Vec<LineRow>, StoreError> {
    let mut statement = connection.prepare_cached(
        "SELECT l.memory, coalesce(m.owner, l.owner), l.hash, m.text FROM memory_lines l
         LEFT JOIN memories m ON m.id = l.memory AND m.replaced_by IS NULL AND m.kind = 'fact'
         ORDER BY l.place, l.memory",
    )?;
    let rows = statement.query_map([], |row| {
        Ok(LineRow { memory: row.get(0)?, owner: row.get(1)?, hash: row.get(2)?, text: row.get(3)? })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// A memory stands there now.
pub fn put(connection: &Connection, memory: i64, owner: &str, hash: &str, place: usize) -> Result<(), StoreError> {
    connection
        .prepare_cached("INSERT OR REPLACE INTO memory_lines (memory, owner, hash, place) VALUES (?, ?, ?, ?)")?
        .execute(params![memory, owner, hash, place])?;
    Ok(())
}

/// It stands there no more.
pub fn remove(connection: &Connection, memory: i64) -> Result<(), StoreError> {
    connection.prepare_cached("DELETE FROM memory_lines WHERE memory = ?")?.execute([memory])?;
    Ok(())
}

/// Nothing stands there.
pub fn clear(connection: &Connection) -> Result<(), StoreError> {
    connection.prepare_cached("DELETE FROM memory_lines")?.execute([])?;
    Ok(())
}

/// Facts of an owner that do not stand there: id, text, the oldest first.
pub fn missing(connection: &Connection, owner: &str) -> Result<Vec<(i64, String)>, StoreError> {
    let mut statement = connection.prepare_cached(
        "SELECT m.id, m.text FROM memories m LEFT JOIN memory_lines l ON l.memory = m.id
         WHERE m.owner = ? AND m.kind = 'fact' AND m.replaced_by IS NULL AND l.memory IS NULL ORDER BY m.id",
    )?;
    let rows = statement.query_map([owner], |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// The summaries behind `after`, the oldest first: those that HISTORY.md does not hold.
pub fn summaries_after(connection: &Connection, after: i64, limit: u32) -> Result<Vec<SummaryRow>, StoreError> {
    let sql = "SELECT id, name, text, detail, created_at FROM memories
        WHERE kind = 'summary' AND id > ? ORDER BY id LIMIT ?";
    summaries(connection, sql, params![after, limit])
}

/// All summaries of an owner, the oldest first.
pub fn summaries_of(connection: &Connection, owner: &str) -> Result<Vec<SummaryRow>, StoreError> {
    let sql = "SELECT id, name, text, detail, created_at FROM memories
        WHERE kind = 'summary' AND owner = ? ORDER BY id";
    summaries(connection, sql, params![owner])
}

/// The summaries of a session, the oldest first.
pub fn summaries_of_session(connection: &Connection, session: &str) -> Result<Vec<SummaryRow>, StoreError> {
    let sql = "SELECT id, name, text, detail, created_at FROM memories WHERE kind = 'summary' AND name = ? ORDER BY id";
    summaries(connection, sql, params![session])
}

/// A summary, as HISTORY.md tells it.
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

fn summaries(
    connection: &Connection,
    sql: &str,
    parameters: &[&dyn rusqlite::ToSql],
) -> Result<Vec<SummaryRow>, StoreError> {
    let mut statement = connection.prepare_cached(sql)?;
    let rows = statement.query_map(parameters, |row| {
        Ok(SummaryRow {
            id: row.get(0)?,
            session: row.get(1)?,
            text: row.get(2)?,
            detail: row.get(3)?,
            at: row.get(4)?,
        })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}
