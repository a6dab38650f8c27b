//! What memories mean, as vectors of one model: rows only. When they are made, and what is near to what, is `memory`'s.

use rusqlite::{Connection, OptionalExtension, params};
use sha2::{Digest, Sha256};

use super::{StoreError, meta};

/// Names a text; the same text has the same.
pub type Hash = [u8; 16];

/// A memory that has no vector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unembedded {
    pub id: i64,
    pub kind: String,
    pub name: String,
    pub text: String,
}

/// The vector of a text, for all that say it.
#[derive(Clone, Debug, PartialEq)]
pub struct NewVector {
    pub hash: Hash,
    /// Of length 1; empty where the model takes no such text.
    pub vector: Vec<f32>,
    pub memories: Vec<i64>,
}

pub fn hash(text: &str) -> Hash {
    let mut hash = Hash::default();
    hash.copy_from_slice(&Sha256::digest(text.as_bytes())[..16]);
    hash
}

/// Sees to it that only vectors of `model` are there; those of another one are dropped. Answers whether some were.
pub fn begin(connection: &Connection, model: &str) -> Result<bool, StoreError> {
    if meta::get(connection, meta::VECTORS)?.as_deref() == Some(model) {
        return Ok(false);
    }
    let dropped = connection.execute("DELETE FROM memory_vectors", [])?;
    meta::set(connection, meta::VECTORS, model)?;
    Ok(dropped > 0)
}

/// Memories behind the id `after` that are known now and have no vector, in order, and the newest id of all.
pub fn unembedded(connection: &Connection, after: i64, limit: u32) -> Result<(Vec<Unembedded>, i64), StoreError> {
    let newest = connection
        .prepare_cached("SELECT coalesce(max(id), 0) FROM memories")?
        .query_row([], |row| row.get::<_, i64>(0))?;
    if newest <= after {
        return Ok((Vec::new(), newest));
    }
    let mut statement = connection.prepare_cached(
        "SELECT m.id, m.kind, m.name, m.text FROM memories m LEFT JOIN memory_vectors v ON v.memory = m.id
         WHERE m.id > ?1 AND m.replaced_by IS NULL AND v.memory IS NULL ORDER BY m.id LIMIT ?2",
    )?;
    let rows = statement.query_map(params![after, limit], |row| {
        Ok(Unembedded { id: row.get(0)?, kind: row.get(1)?, name: row.get(2)?, text: row.get(3)? })
    })?;
    Ok((rows.collect::<Result<_, _>>()?, newest))
}

/// The vector of a text, if one is known.
pub fn known(connection: &Connection, hash: &Hash) -> Result<Option<Vec<f32>>, StoreError> {
    let mut statement = connection.prepare_cached("SELECT vector FROM memory_vectors WHERE hash = ? LIMIT 1")?;
    let found = statement.query_row([hash.as_slice()], |row| Ok(read(row.get_ref(0)?.as_blob()?))).optional()?;
    Ok(found)
}

/// Writes a vector for those of its memories that are still known, unless vectors of another model than `model` are kept
/// by now; answers whether they are its.
pub fn put(connection: &Connection, model: &str, new: &NewVector) -> Result<bool, StoreError> {
    if meta::get(connection, meta::VECTORS)?.as_deref() != Some(model) {
        return Ok(false);
    }
    let mut insert = connection.prepare_cached(
        "INSERT OR REPLACE INTO memory_vectors (memory, hash, vector)
         SELECT id, ?2, ?3 FROM memories WHERE id = ?1 AND replaced_by IS NULL",
    )?;
    let blob: Vec<u8> = new.vector.iter().flat_map(|number| number.to_le_bytes()).collect();
    for id in &new.memories {
        insert.execute(params![id, new.hash.as_slice(), blob])?;
    }
    Ok(true)
}

/// Removes the vector of a memory.
pub fn remove(connection: &Connection, memory: i64) -> Result<(), StoreError> {
    connection.prepare_cached("DELETE FROM memory_vectors WHERE memory = ?")?.execute([memory])?;
    Ok(())
}

/// How many memories have a vector, and whose they are; empty is nobody's.
pub fn count(connection: &Connection) -> Result<(i64, String), StoreError> {
    let count = connection.prepare_cached("SELECT count(*) FROM memory_vectors")?.query_row([], |row| row.get(0))?;
    Ok((count, meta::get(connection, meta::VECTORS)?.unwrap_or_default()))
}

/// The numbers of a stored vector.
pub fn read(blob: &[u8]) -> Vec<f32> {
    let (numbers, _) = blob.as_chunks::<4>();
    numbers.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
}
