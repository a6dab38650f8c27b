//! The embedding vectors of memories and messages, of one model: rows only. The `memory` module creates and compares them.

use rusqlite::{Connection, OptionalExtension, params};
use sha2::{Digest, Sha256};

use super::search_index::{self, SearchCorpus};
use super::sql::{execute, select, select_optional, select_value};
use super::{StoreError, meta, vector_codes};

/// The hash of a text.
pub type TextHash = [u8; 16];

/// The number of newest indexed messages, counted by id, whose vectors are kept; only some of them have a vector.
pub const KEPT_MESSAGES: i64 = 20_000;

/// The maximum number of vectors that get codes in one write.
const BATCH: i64 = 256;

/// A text without a vector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnembeddedText {
    pub id: i64,
    /// The kind of a memory, or the role of a message.
    pub kind: String,
    pub name: String,
    /// The text of a memory, or the JSON of a message.
    pub text: String,
}

/// The vector of a text, for all entries with that text.
#[derive(Clone, Debug, PartialEq)]
pub struct NewVector {
    pub hash: TextHash,
    /// The vector, of length 1; empty if the model rejects the text.
    pub vector: Vec<f32>,
    pub ids: Vec<i64>,
}

/// The numbers of stored vectors.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VectorCounts {
    pub memories: i64,
    pub messages: i64,
    /// The model of the vectors; empty if there is none.
    pub model: String,
}

pub fn hash(text: &str) -> TextHash {
    let digest = Sha256::digest(text);
    std::array::from_fn(|at| digest[at])
}

/// Deletes the vectors of models other than `model`; returns whether there were any.
pub fn set_model(connection: &Connection, model: &str) -> Result<bool, StoreError> {
    if meta::get(connection, meta::VECTORS)?.as_deref() == Some(model) {
        // In a repaired database, ids start again.
        let done: i64 = indexed_up_to(connection)?.parse().unwrap_or(0);
        if done > search_index::highest_id(connection, SearchCorpus::Messages)? {
            meta::set(connection, meta::VECTORS_MESSAGES, "")?;
        }
        vector_codes::mark_missing(connection)?;
        return Ok(false);
    }
    vector_codes::clear(connection)?;
    let dropped = connection.execute("DELETE FROM memory_vectors", [])?;
    connection.execute("DELETE FROM message_vectors", [])?;
    meta::set(connection, meta::VECTORS, model)?;
    meta::set(connection, meta::VECTORS_BASE, "")?;
    meta::set(connection, meta::VECTORS_MESSAGES, "0")?;
    Ok(dropped > 0)
}

/// The similarity that a model finds between unrelated texts, as cosines.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SimilarityBaselines {
    /// The mean similarity of all pairs.
    pub all: f32,
    /// For each class of texts, the similarity that hardly any unrelated sentence reaches. The `memory` module defines the classes.
    pub classes: [f32; 4],
}

/// Returns the baselines of the current model if they are known.
pub fn bases(connection: &Connection) -> Result<Option<SimilarityBaselines>, StoreError> {
    let text = meta::get(connection, meta::VECTORS_BASE)?.unwrap_or_default();
    let numbers: Vec<f32> = text.split(' ').map_while(|number| number.parse().ok()).collect();
    let [all, classes @ ..] = numbers.as_slice() else { return Ok(None) };
    Ok(classes.try_into().ok().map(|classes| SimilarityBaselines { all: *all, classes }))
}

/// Records the baselines of `model`.
pub fn set_bases(connection: &Connection, model: &str, bases: &SimilarityBaselines) -> Result<(), StoreError> {
    if is_kept(connection, model)? {
        let numbers: Vec<String> = [bases.all].iter().chain(&bases.classes).map(f32::to_string).collect();
        meta::set(connection, meta::VECTORS_BASE, &numbers.join(" "))?;
    }
    Ok(())
}

/// Returns the id of `indexed_messages` up to which messages have vectors; empty if none have, and after the index was rebuilt.
pub fn indexed_up_to(connection: &Connection) -> Result<String, StoreError> {
    Ok(meta::get(connection, meta::VECTORS_MESSAGES)?.unwrap_or_default())
}

/// Returns entries without a vector after the id `after`, in order: current memories, or messages that people wrote in conversations
/// with an owner.
pub fn unembedded(
    connection: &Connection,
    corpus: SearchCorpus,
    after: i64,
    limit: u32,
) -> Result<Vec<UnembeddedText>, StoreError> {
    let sql = match corpus {
        SearchCorpus::Memories => {
            "SELECT m.id, m.kind, m.name, m.text FROM memories m LEFT JOIN memory_vectors v ON v.memory = m.id
             WHERE m.id > ?1 AND m.replaced_by IS NULL AND v.memory IS NULL ORDER BY m.id LIMIT ?2"
        }
        SearchCorpus::Messages => {
            "SELECT s.id, m.role, '', m.body FROM indexed_messages s CROSS JOIN messages m ON m.session = s.session AND m.seq = s.seq
                LEFT JOIN message_vectors v ON v.message = s.id
             WHERE s.id > ?1 AND s.owner <> '' AND m.role = 'user' AND v.message IS NULL ORDER BY s.id LIMIT ?2"
        }
    };
    select(connection, sql, params![after, limit], |row| {
        Ok(UnembeddedText { id: row.get(0)?, kind: row.get(1)?, name: row.get(2)?, text: row.get(3)? })
    })
}

/// Returns the vector of a text, if it is known.
pub fn find_by_hash(connection: &Connection, hash: &TextHash) -> Result<Option<Vec<f32>>, StoreError> {
    let sql = "SELECT vector FROM memory_vectors WHERE hash = ?1 UNION ALL SELECT vector FROM message_vectors WHERE hash = ?1 LIMIT 1";
    select_optional(connection, sql, [hash.as_slice()], |row| Ok(decode(row.get_ref(0)?.as_blob()?)))
}

/// Writes vectors for those of their memories that are still current, unless the stored vectors now belong to a model other than
/// `model`.
pub fn put(connection: &Connection, model: &str, new: &[NewVector]) -> Result<(), StoreError> {
    if is_kept(connection, model)? { put_all(connection, SearchCorpus::Memories, new) } else { Ok(()) }
}

/// Writes vectors for those of their indexed messages that still exist, and records that all messages up to the id
/// `done` have a vector. Removes the vectors of old messages. Writes nothing if the stored vectors now belong to a
/// model other than `model`, or if the progress is no longer `after`, since ids may have changed.
pub fn put_messages(
    connection: &Connection,
    model: &str,
    (after, done): (&str, i64),
    new: &[NewVector],
) -> Result<(), StoreError> {
    if !is_kept(connection, model)? || indexed_up_to(connection)? != after {
        return Ok(());
    }
    put_all(connection, SearchCorpus::Messages, new)?;
    execute(connection, "DELETE FROM message_vectors WHERE message <= ?", [done - KEPT_MESSAGES])?;
    meta::set(connection, meta::VECTORS_MESSAGES, &done.to_string())
}

fn put_all(connection: &Connection, corpus: SearchCorpus, new: &[NewVector]) -> Result<(), StoreError> {
    let mut owner = connection.prepare_cached(match corpus {
        SearchCorpus::Memories => "SELECT owner FROM memories WHERE id = ? AND replaced_by IS NULL",
        SearchCorpus::Messages => "SELECT owner FROM indexed_messages WHERE id = ?",
    })?;
    let name = corpus.name();
    let mut delete = connection.prepare_cached(&format!("DELETE FROM {name}_vectors WHERE {name} = ?"))?;
    let insert = format!("INSERT INTO {name}_vectors ({name}, hash, vector, place) VALUES (?, ?, ?, ?)");
    let mut insert = connection.prepare_cached(&insert)?;
    for NewVector { hash, vector, ids } in new {
        let blob: Vec<u8> = vector.iter().flat_map(|number| number.to_le_bytes()).collect();
        for id in ids {
            let Some(owner) = owner.query_row([id], |row| row.get::<_, String>(0)).optional()? else { continue };
            // Deleted first, because a replacing insert would not delete the code of the old vector.
            delete.execute([id])?;
            let place = vector_codes::put(connection, corpus, &owner, *id, vector)?;
            insert.execute(params![id, hash.as_slice(), blob, place])?;
        }
    }
    Ok(())
}

/// Creates codes for some of the vectors that have none; returns whether there were any.
pub fn put_missing(connection: &Connection, corpus: SearchCorpus) -> Result<bool, StoreError> {
    let (name, entries) = (corpus.name(), corpus.entries());
    let missing = format!(
        "SELECT v.{name}, v.vector, o.owner FROM {name}_vectors v CROSS JOIN {entries} o ON o.id = v.{name}
         WHERE v.place IS NULL LIMIT {BATCH}"
    );
    let rows: Vec<(i64, Vec<f32>, String)> =
        select(connection, &missing, [], |row| Ok((row.get(0)?, decode(row.get_ref(1)?.as_blob()?), row.get(2)?)))?;
    let mut update = connection.prepare_cached(&format!("UPDATE {name}_vectors SET place = ?2 WHERE {name} = ?1"))?;
    for (id, vector, owner) in &rows {
        update.execute(params![id, vector_codes::put(connection, corpus, owner, *id, vector)?])?;
    }
    Ok(!rows.is_empty())
}

/// Returns true if some vectors have no code yet.
pub fn are_missing(connection: &Connection, corpus: SearchCorpus) -> Result<bool, StoreError> {
    let sql = format!("SELECT EXISTS (SELECT 1 FROM {}_vectors WHERE place IS NULL)", corpus.name());
    select_value(connection, &sql, [])
}

/// Removes the vector of a memory.
pub fn remove(connection: &Connection, memory: i64) -> Result<(), StoreError> {
    execute(connection, "DELETE FROM memory_vectors WHERE memory = ?", [memory]).map(drop)
}

/// Returns the numbers of vectors, and their model.
pub fn count(connection: &Connection) -> Result<VectorCounts, StoreError> {
    let count = |sql| select_value(connection, sql, []);
    Ok(VectorCounts {
        memories: count("SELECT count(*) FROM memory_vectors")?,
        messages: count("SELECT count(*) FROM message_vectors")?,
        model: meta::get(connection, meta::VECTORS)?.unwrap_or_default(),
    })
}

/// Decodes a stored vector.
fn decode(blob: &[u8]) -> Vec<f32> {
    let (numbers, _) = blob.as_chunks::<4>();
    numbers.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
}

fn is_kept(connection: &Connection, model: &str) -> Result<bool, StoreError> {
    Ok(meta::get(connection, meta::VECTORS)?.as_deref() == Some(model))
}
