//! Long-term memories: rows only. The `memory` module defines the rules, and the terms by which rows are found.

use rusqlite::{Connection, params};

use super::sql::{StoredRow, execute, find_row, find_rows, select, select_optional, select_value, stored_row};
use super::{StoreError, now_ms};

/// A memory.
#[derive(Clone, Debug, PartialEq)]
pub struct MemoryRow {
    pub id: i64,
    pub owner: String,
    pub kind: String,
    /// The key of a preference, the title of a case, the session of a summary; else empty.
    pub name: String,
    pub text: String,
    /// JSON.
    pub detail: String,
    pub origin: String,
    pub session: Option<String>,
    pub seq: Option<i64>,
    pub turn: Option<String>,
    /// The confidence, from 0 to 1.
    pub confidence: f64,
    /// UTC milliseconds, like all times.
    pub created_at: i64,
    pub used_at: Option<i64>,
    pub uses: i64,
    pub replaced_by: Option<i64>,
}

/// A memory to insert.
#[derive(Clone, Debug, PartialEq)]
pub struct NewMemory<'a> {
    pub owner: &'a str,
    pub kind: &'a str,
    pub name: &'a str,
    pub text: &'a str,
    /// JSON.
    pub detail: &'a str,
    pub origin: &'a str,
    pub session: Option<&'a str>,
    pub seq: Option<i64>,
    pub turn: Option<&'a str>,
    /// The confidence, from 0 to 1.
    pub confidence: f64,
}

stored_row! {
    MemoryRow: id, owner, kind, name, text, detail, origin, session, seq, turn, confidence, created_at, used_at,
        uses, replaced_by
}

/// Inserts a memory and returns its id, which is never used again.
pub fn insert(connection: &Connection, new: &NewMemory<'_>) -> Result<i64, StoreError> {
    insert_as(connection, None, new)
}

/// Inserts a memory and returns its id: `id`, which [`reserve_id`] has reserved, or a new one that is never used again.
pub fn insert_as(connection: &Connection, id: Option<i64>, new: &NewMemory<'_>) -> Result<i64, StoreError> {
    let NewMemory { owner, kind, name, text, detail, origin, session, seq, turn, confidence } = new;
    let sql =
        "INSERT INTO memories (id, owner, kind, name, text, detail, origin, session, seq, turn, confidence, created_at)
             VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";
    let values = params![id, owner, kind, name, text, detail, origin, session, seq, turn, confidence, now_ms()];
    execute(connection, sql, values)?;
    Ok(connection.last_insert_rowid())
}

/// Sets the time of a memory's creation, in UTC milliseconds.
pub fn set_created_at(connection: &Connection, id: i64, at: i64) -> Result<(), StoreError> {
    execute(connection, "UPDATE memories SET created_at = ?2 WHERE id = ?1", params![id, at]).map(drop)
}

/// Returns the memory with this id, even if it was replaced.
pub fn find(connection: &Connection, id: i64) -> Result<Option<MemoryRow>, StoreError> {
    find_row(connection, "memories WHERE id = ?", [id])
}

/// Returns the current memories of an owner and kind, the newest first.
pub fn current(connection: &Connection, owner: &str, kind: &str, limit: u32) -> Result<Vec<MemoryRow>, StoreError> {
    let current = "memories WHERE owner = ? AND kind = ? AND replaced_by IS NULL ORDER BY id DESC LIMIT ?";
    find_rows(connection, current, params![owner, kind, limit])
}

/// Calls `visit` with the current memories of an owner and kind, the newest first, until it returns false.
pub fn visit_current(
    connection: &Connection,
    owner: &str,
    kind: &str,
    mut visit: impl FnMut(MemoryRow) -> bool,
) -> Result<(), StoreError> {
    let mut statement = connection.prepare_cached(&format!(
        "SELECT {} FROM memories WHERE owner = ? AND kind = ? AND replaced_by IS NULL ORDER BY id DESC",
        MemoryRow::COLUMNS
    ))?;
    for row in statement.query_and_then([owner, kind], MemoryRow::read)? {
        if !visit(row?) {
            break;
        }
    }
    Ok(())
}

/// Returns the current memory with this name.
pub fn find_by_name(
    connection: &Connection,
    owner: &str,
    kind: &str,
    name: &str,
) -> Result<Option<MemoryRow>, StoreError> {
    let named = "memories WHERE owner = ? AND kind = ? AND name = ? AND name <> '' AND replaced_by IS NULL
                 ORDER BY id DESC LIMIT 1";
    find_row(connection, named, [owner, kind, name])
}

/// Returns the memories of an owner after the id `after`, in order.
pub fn added_after(connection: &Connection, after: i64, owner: &str) -> Result<Vec<MemoryRow>, StoreError> {
    find_rows(connection, "memories WHERE id > ? AND +owner = ? ORDER BY id", params![after, owner])
}

/// Returns the number of current memories of an owner and kind.
pub fn count_current(connection: &Connection, owner: &str, kind: &str) -> Result<i64, StoreError> {
    let sql = "SELECT count(*) FROM memories WHERE owner = ? AND kind = ? AND replaced_by IS NULL";
    select_value(connection, sql, [owner, kind])
}

/// Returns the ids of the memories that `id` replaced.
pub fn replaced_ids(connection: &Connection, id: i64) -> Result<Vec<i64>, StoreError> {
    select(connection, "SELECT id FROM memories WHERE replaced_by = ?", [id], |row| row.get(0))
}

/// Returns true if there is a memory with exactly this text, even if it was replaced.
pub fn contains(connection: &Connection, owner: &str, kind: &str, name: &str, text: &str) -> Result<bool, StoreError> {
    let sql = "SELECT EXISTS (SELECT 1 FROM memories WHERE owner = ? AND kind = ? AND name = ? AND text = ?)";
    select_value(connection, sql, [owner, kind, name, text])
}

/// Returns the memories that `id` replaced, the newest first.
pub fn replaced_memories(connection: &Connection, id: i64) -> Result<Vec<MemoryRow>, StoreError> {
    find_rows(connection, "memories WHERE replaced_by = ? ORDER BY id DESC", [id])
}

/// Replaces `old` by `new`.
pub fn replace(connection: &Connection, old: i64, new: i64) -> Result<(), StoreError> {
    let sql = "UPDATE memories SET replaced_by = ?2, replaced_at = ?3 WHERE id = ?1 AND replaced_by IS NULL";
    execute(connection, sql, params![old, new, now_ms()]).map(drop)
}

/// Counts that a model received the memory, in a prompt or as a result of `recall`.
pub fn mark_used(connection: &Connection, id: i64) -> Result<(), StoreError> {
    let sql = "UPDATE memories SET used_at = ?2, uses = uses + 1 WHERE id = ?1";
    execute(connection, sql, params![id, now_ms()]).map(drop)
}

/// Deletes the row; returns whether there was one.
pub fn delete(connection: &Connection, id: i64) -> Result<bool, StoreError> {
    Ok(execute(connection, "DELETE FROM memories WHERE id = ?", [id])? > 0)
}

/// Returns the number of all memories, including replaced ones.
pub fn count(connection: &Connection) -> Result<i64, StoreError> {
    select_value(connection, "SELECT count(*) FROM memories", [])
}

/// Reserves the next id for a memory that is inserted later.
pub fn reserve_id(connection: &Connection) -> Result<i64, StoreError> {
    if let Some(id) = select_optional(
        connection,
        "UPDATE sqlite_sequence SET seq = seq + 1 WHERE name = 'memories' RETURNING seq",
        [],
        |row| row.get(0),
    )? {
        return Ok(id);
    }
    connection.execute("INSERT INTO sqlite_sequence (name, seq) VALUES ('memories', 1)", [])?;
    Ok(1)
}

/// Returns the ids and texts of the current memories of an owner and kind, the newest first.
pub fn current_texts(connection: &Connection, owner: &str, kind: &str) -> Result<Vec<(i64, String)>, StoreError> {
    let sql = "SELECT id, text FROM memories WHERE owner = ? AND kind = ? AND replaced_by IS NULL ORDER BY id DESC";
    select(connection, sql, [owner, kind], |row| Ok((row.get(0)?, row.get(1)?)))
}

/// Updates a memory that was stated again, by a person or by the model.
pub fn confirm(connection: &Connection, id: i64, confidence: f64, detail: &str) -> Result<(), StoreError> {
    let sql = "UPDATE memories SET confidence = ?2, detail = ?3 WHERE id = ?1";
    execute(connection, sql, params![id, confidence, detail]).map(drop)
}

/// Replaces all current memories of this name, except `new`, by `new`; returns their ids.
pub fn replace_named(
    connection: &Connection,
    (owner, kind, name): (&str, &str, &str),
    new: i64,
) -> Result<Vec<i64>, StoreError> {
    let sql = "UPDATE memories SET replaced_by = ?4, replaced_at = ?5
         WHERE owner = ?1 AND kind = ?2 AND name = ?3 AND name <> '' AND replaced_by IS NULL AND id <> ?4 RETURNING id";
    select(connection, sql, params![owner, kind, name, new, now_ms()], |row| row.get(0))
}

/// Returns the number of current memories of an owner, except tasks and summaries.
pub fn count_known(connection: &Connection, owner: &str) -> Result<i64, StoreError> {
    let sql = "SELECT count(*) FROM memories
         WHERE owner = ? AND kind IN ('fact', 'preference', 'case') AND replaced_by IS NULL";
    select_value(connection, sql, [owner])
}

/// Returns the least useful memory of an owner except `spared`. Hand-written memories and preferences are chosen last.
pub fn least_used(connection: &Connection, owner: &str, spared: i64) -> Result<Option<i64>, StoreError> {
    let sql = "SELECT id FROM memories
         WHERE owner = ?1 AND kind IN ('fact', 'preference', 'case') AND replaced_by IS NULL AND id <> ?2
         ORDER BY origin = 'by_hand' OR kind = 'preference', confidence + min(uses, 10) * 0.1,
            coalesce(used_at, created_at), id LIMIT 1";
    select_optional(connection, sql, params![owner, spared], |row| row.get(0))
}

/// Returns the tasks of an owner except the newest `keep`.
pub fn tasks_beyond(connection: &Connection, owner: &str, keep: u32) -> Result<Vec<i64>, StoreError> {
    let sql = "SELECT id FROM memories WHERE owner = ? AND kind = 'task' AND replaced_by IS NULL ORDER BY id DESC LIMIT -1 OFFSET ?";
    select(connection, sql, params![owner, keep], |row| row.get(0))
}

/// Replaces the text of a memory.
pub fn set_text(connection: &Connection, id: i64, text: &str) -> Result<(), StoreError> {
    execute(connection, "UPDATE memories SET text = ?2 WHERE id = ?1", params![id, text]).map(drop)
}

/// Changes the owner of a memory.
pub fn set_owner(connection: &Connection, id: i64, owner: &str) -> Result<(), StoreError> {
    execute(connection, "UPDATE memories SET owner = ?2 WHERE id = ?1", params![id, owner]).map(drop)
}
