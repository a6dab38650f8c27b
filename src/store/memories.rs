//! What is known for longer than a conversation: rows only. Rules, and the words that rows are found by, are `memory`'s.

use rusqlite::{Connection, OptionalExtension, Row, params};

use super::{StoreError, now_ms};

/// One memory.
#[derive(Clone, Debug, PartialEq)]
pub struct MemoryRow {
    pub id: i64,
    pub owner: String,
    pub kind: String,
    /// A preference's key, a case's title, a summary's session; else empty.
    pub name: String,
    pub text: String,
    /// JSON.
    pub detail: String,
    pub origin: String,
    pub session: Option<String>,
    pub seq: Option<i64>,
    pub turn: Option<String>,
    /// 0 to 1.
    pub confidence: f64,
    /// UTC milliseconds, as all times.
    pub created_at: i64,
    pub used_at: Option<i64>,
    pub uses: i64,
    pub replaced_by: Option<i64>,
    pub replaced_at: Option<i64>,
}

/// A memory that is to be written.
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
    /// 0 to 1.
    pub confidence: f64,
}

const COLUMNS: &str = "id, owner, kind, name, text, detail, origin, session, seq, turn, confidence, created_at, used_at, uses, \
                       replaced_by, replaced_at";

/// Writes one, and answers its id, which is never used again.
pub fn insert(connection: &Connection, new: &NewMemory<'_>) -> Result<i64, StoreError> {
    connection
        .prepare_cached(
            "INSERT INTO memories (owner, kind, name, text, detail, origin, session, seq, turn, confidence, created_at)
             VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        )?
        .execute(params![
            new.owner,
            new.kind,
            new.name,
            new.text,
            new.detail,
            new.origin,
            new.session,
            new.seq,
            new.turn,
            new.confidence,
            now_ms()
        ])?;
    Ok(connection.last_insert_rowid())
}

/// The one of this id, were it replaced.
pub fn get(connection: &Connection, id: i64) -> Result<Option<MemoryRow>, StoreError> {
    let mut statement = connection.prepare_cached(&format!("SELECT {COLUMNS} FROM memories WHERE id = ?"))?;
    Ok(statement.query_row([id], read).optional()?)
}

/// What is known now of an owner and kind, the newest first.
pub fn current(connection: &Connection, owner: &str, kind: &str, limit: u32) -> Result<Vec<MemoryRow>, StoreError> {
    let mut statement = connection.prepare_cached(&format!(
        "SELECT {COLUMNS} FROM memories WHERE owner = ? AND kind = ? AND replaced_by IS NULL ORDER BY id DESC LIMIT ?"
    ))?;
    let rows = statement.query_map(params![owner, kind, limit], read)?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Shows what is known now of an owner and kind to `visit`, the newest first, until it answers that it wants no more.
pub fn visit_current(
    connection: &Connection,
    owner: &str,
    kind: &str,
    mut visit: impl FnMut(MemoryRow) -> bool,
) -> Result<(), StoreError> {
    let mut statement = connection.prepare_cached(&format!(
        "SELECT {COLUMNS} FROM memories WHERE owner = ? AND kind = ? AND replaced_by IS NULL ORDER BY id DESC"
    ))?;
    for row in statement.query_map([owner, kind], read)? {
        if !visit(row?) {
            break;
        }
    }
    Ok(())
}

/// What is known now by this name.
pub fn named(connection: &Connection, owner: &str, kind: &str, name: &str) -> Result<Option<MemoryRow>, StoreError> {
    let mut statement = connection.prepare_cached(&format!(
        "SELECT {COLUMNS} FROM memories
         WHERE owner = ? AND kind = ? AND name = ? AND name <> '' AND replaced_by IS NULL ORDER BY id DESC LIMIT 1"
    ))?;
    Ok(statement.query_row([owner, kind, name], read).optional()?)
}

/// What was written of an owner behind the id `after`, in order.
pub fn behind(connection: &Connection, after: i64, owner: &str) -> Result<Vec<MemoryRow>, StoreError> {
    let mut statement = connection
        .prepare_cached(&format!("SELECT {COLUMNS} FROM memories WHERE id > ? AND +owner = ? ORDER BY id"))?;
    let rows = statement.query_map(params![after, owner], read)?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// How much is known now of an owner and kind.
pub fn count_current(connection: &Connection, owner: &str, kind: &str) -> Result<i64, StoreError> {
    let sql = "SELECT count(*) FROM memories WHERE owner = ? AND kind = ? AND replaced_by IS NULL";
    Ok(connection.prepare_cached(sql)?.query_row([owner, kind], |row| row.get(0))?)
}

/// The ids of what `id` took the place of.
pub fn replaced_ids(connection: &Connection, id: i64) -> Result<Vec<i64>, StoreError> {
    let mut statement = connection.prepare_cached("SELECT id FROM memories WHERE replaced_by = ?")?;
    let rows = statement.query_map([id], |row| row.get(0))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Returns true if there is such a memory, word for word, also one that something newer has replaced.
pub fn holds(connection: &Connection, owner: &str, kind: &str, name: &str, text: &str) -> Result<bool, StoreError> {
    let sql = "SELECT EXISTS (SELECT 1 FROM memories WHERE owner = ? AND kind = ? AND name = ? AND text = ?)";
    Ok(connection.prepare_cached(sql)?.query_row([owner, kind, name, text], |row| row.get(0))?)
}

/// What `id` took the place of, the newest first.
pub fn replaced_by(connection: &Connection, id: i64) -> Result<Vec<MemoryRow>, StoreError> {
    let mut statement =
        connection.prepare_cached(&format!("SELECT {COLUMNS} FROM memories WHERE replaced_by = ? ORDER BY id DESC"))?;
    let rows = statement.query_map([id], read)?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// From now on `new` is known instead of `old`.
pub fn replace(connection: &Connection, old: i64, new: i64) -> Result<(), StoreError> {
    connection
        .prepare_cached("UPDATE memories SET replaced_by = ?2, replaced_at = ?3 WHERE id = ?1 AND replaced_by IS NULL")?
        .execute(params![old, new, now_ms()])?;
    Ok(())
}

/// It was given to a model now.
pub fn used(connection: &Connection, id: i64) -> Result<(), StoreError> {
    connection
        .prepare_cached("UPDATE memories SET used_at = ?2, uses = uses + 1 WHERE id = ?1")?
        .execute(params![id, now_ms()])?;
    Ok(())
}

/// Removes the row; answers whether there was one.
pub fn delete(connection: &Connection, id: i64) -> Result<bool, StoreError> {
    Ok(connection.prepare_cached("DELETE FROM memories WHERE id = ?")?.execute([id])? > 0)
}

/// How many there are, those that were replaced too.
pub fn count(connection: &Connection) -> Result<i64, StoreError> {
    Ok(connection.prepare_cached("SELECT count(*) FROM memories")?.query_row([], |row| row.get(0))?)
}

fn read(row: &Row<'_>) -> rusqlite::Result<MemoryRow> {
    Ok(MemoryRow {
        id: row.get(0)?,
        owner: row.get(1)?,
        kind: row.get(2)?,
        name: row.get(3)?,
        text: row.get(4)?,
        detail: row.get(5)?,
        origin: row.get(6)?,
        session: row.get(7)?,
        seq: row.get(8)?,
        turn: row.get(9)?,
        confidence: row.get(10)?,
        created_at: row.get(11)?,
        used_at: row.get(12)?,
        uses: row.get(13)?,
        replaced_by: row.get(14)?,
        replaced_at: row.get(15)?,
    })
}
