//! What the rules of remembering ask of the table of memories, beyond its rows.

use rusqlite::{Connection, OptionalExtension, params};

use super::StoreError;
use super::memories::NewMemory;

/// Takes the next id for a memory that is written later; it is nobody else's.
pub fn reserve(connection: &Connection) -> Result<i64, StoreError> {
    let mut next =
        connection.prepare_cached("UPDATE sqlite_sequence SET seq = seq + 1 WHERE name = 'memories' RETURNING seq")?;
    if let Some(id) = next.query_row([], |row| row.get(0)).optional()? {
        return Ok(id);
    }
    connection.execute("INSERT INTO sqlite_sequence (name, seq) VALUES ('memories', 1)", [])?;
    Ok(1)
}

/// Writes one under an id of [`reserve`].
pub fn insert_as(connection: &Connection, id: i64, new: &NewMemory<'_>, now: i64) -> Result<(), StoreError> {
    connection
        .prepare_cached(
            "INSERT INTO memories (id, owner, kind, name, text, detail, origin, session, seq, turn, confidence, created_at)
             VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        )?
        .execute(params![
            id,
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
            now
        ])?;
    Ok(())
}

/// The ids and texts of what is known now of an owner and kind, the newest first.
pub fn texts(connection: &Connection, owner: &str, kind: &str) -> Result<Vec<(i64, String)>, StoreError> {
    let mut statement = connection.prepare_cached(
        "SELECT id, text FROM memories WHERE owner = ? AND kind = ? AND replaced_by IS NULL ORDER BY id DESC",
    )?;
    let rows = statement.query_map([owner, kind], |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// It was said again.
pub fn confirm(connection: &Connection, id: i64, confidence: f64, detail: &str) -> Result<(), StoreError> {
    connection
        .prepare_cached("UPDATE memories SET confidence = ?2, detail = ?3 WHERE id = ?1")?
        .execute(params![id, confidence, detail])?;
    Ok(())
}

/// All that is known now by this name but `new` gives way to it; answers what did.
pub fn replace_named(
    connection: &Connection,
    (owner, kind, name): (&str, &str, &str),
    new: i64,
    now: i64,
) -> Result<Vec<i64>, StoreError> {
    let mut statement = connection.prepare_cached(
        "UPDATE memories SET replaced_by = ?4, replaced_at = ?5
         WHERE owner = ?1 AND kind = ?2 AND name = ?3 AND name <> '' AND replaced_by IS NULL AND id <> ?4 RETURNING id",
    )?;
    let ids = statement.query_map(params![owner, kind, name, new, now], |row| row.get(0))?;
    Ok(ids.collect::<Result<_, _>>()?)
}

/// How much is known now of an owner, tasks and summaries aside.
pub fn count_known(connection: &Connection, owner: &str) -> Result<i64, StoreError> {
    let mut statement = connection.prepare_cached(
        "SELECT count(*) FROM memories
         WHERE owner = ? AND kind IN ('fact', 'preference', 'case') AND replaced_by IS NULL",
    )?;
    Ok(statement.query_row([owner], |row| row.get(0))?)
}

/// What was of least use to an owner, but for `spared`: by hand and preferences last.
pub fn least_used(connection: &Connection, owner: &str, spared: i64) -> Result<Option<i64>, StoreError> {
    let mut statement = connection.prepare_cached(
        "SELECT id FROM memories
         WHERE owner = ?1 AND kind IN ('fact', 'preference', 'case') AND replaced_by IS NULL AND id <> ?2
         ORDER BY origin = 'by_hand' OR kind = 'preference', confidence + min(uses, 10) * 0.1,
            coalesce(used_at, created_at), id LIMIT 1",
    )?;
    Ok(statement.query_row(params![owner, spared], |row| row.get(0)).optional()?)
}

/// The tasks of an owner behind the newest `keep`.
pub fn old_tasks(connection: &Connection, owner: &str, keep: u32) -> Result<Vec<i64>, StoreError> {
    let mut statement = connection.prepare_cached(
        "SELECT id FROM memories WHERE owner = ? AND kind = 'task' AND replaced_by IS NULL ORDER BY id DESC LIMIT -1 OFFSET ?",
    )?;
    let rows = statement.query_map(params![owner, keep], |row| row.get(0))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Writes another text in a memory's place.
pub fn retell(connection: &Connection, id: i64, text: &str) -> Result<(), StoreError> {
    connection.prepare_cached("UPDATE memories SET text = ?2 WHERE id = ?1")?.execute(params![id, text])?;
    Ok(())
}

/// Makes a memory another owner's.
pub fn give(connection: &Connection, id: i64, owner: &str) -> Result<(), StoreError> {
    connection.prepare_cached("UPDATE memories SET owner = ?2 WHERE id = ?1")?.execute(params![id, owner])?;
    Ok(())
}

/// The id of the turn in which something was said.
pub fn turn_of(connection: &Connection, session: &str, seq: i64) -> Result<Option<String>, StoreError> {
    let mut statement = connection.prepare_cached("SELECT turn FROM messages WHERE session = ? AND seq = ?")?;
    Ok(statement.query_row(params![session, seq], |row| row.get(0)).optional()?)
}
