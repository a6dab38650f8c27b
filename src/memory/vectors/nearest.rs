//! Finds the nearest embeddings. Their codes select the likeliest candidates; exact dot products rank those that match the
//! query.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use rusqlite::params;

use super::texts;
use crate::memory::{HitLocation, MemoryKind, MemoryOwner, RecallQuery};
use crate::store::search_index::{self, SearchCorpus};
use crate::store::vector_codes::{self, VectorCode};
use crate::store::vectors::SimilarityBaselines;
use crate::store::{Connection, StoreError, vectors};

/// The minimum similarity of a hit; texts with less are similar by chance.
const MIN_SIMILARITY: f32 = 0.15;

/// The maximum number of candidates that match the query whose embeddings are read. If there are no more candidates,
/// the result is exact.
const MAX_READ: usize = 150;

/// The number of vector components that are multiplied at once.
const LANES: usize = 8;

/// A memory or message that may be near the query. The fewer bits of its code differ, the likelier it is near.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct NeighbourCandidate {
    distance: u32,
    is_message: bool,
    read: vector_codes::CodeDistance,
}

/// Returns the memories and messages whose embeddings are nearest to `vector` (of length 1), the nearest first, each with its
/// similarity from 0 to 1: the cosine above that of unrelated texts, which is high for some models. Hits are current entries
/// and match the owners, kinds, session and times of `query`. A text without an embedding is not found. Among very many texts,
/// the search may miss one that is hardly nearer than the others.
///
/// # Errors
/// The store cannot be read.
pub fn nearest(
    connection: &Connection,
    query: &RecallQuery,
    vector: &[f32],
    limit: usize,
) -> Result<Vec<(HitLocation, f32)>, StoreError> {
    // The cosine of unrelated texts.
    let base = vectors::bases(connection)?.unwrap_or_default().all;
    if limit == 0 || vector.is_empty() {
        return Ok(Vec::new());
    }
    let mut candidates = candidates(connection, query, &VectorCode::of(vector))?;
    let (session, since, until) = (&query.session, query.since, query.until);
    let mut memories = connection.prepare_cached(
        "SELECT v.vector, m.id, m.owner, m.kind FROM memory_vectors v CROSS JOIN memories m ON m.id = v.memory
         WHERE v.memory = ?1 AND v.place = ?2 AND m.replaced_by IS NULL AND (?3 IS NULL OR m.session = ?3)
            AND (?4 IS NULL OR m.created_at >= ?4) AND (?5 IS NULL OR m.created_at < ?5)",
    )?;
    let mut messages = connection.prepare_cached(
        "SELECT v.vector, s.session, s.owner, s.seq FROM message_vectors v CROSS JOIN indexed_messages s ON s.id = v.message
         WHERE v.message = ?1 AND v.place = ?2 AND (?3 IS NULL OR s.session = ?3)
            AND ((?4 IS NULL AND ?5 IS NULL) OR EXISTS (
                SELECT 1 FROM messages m WHERE m.session = s.session AND m.seq = s.seq
                    AND (?4 IS NULL OR m.at >= ?4) AND (?5 IS NULL OR m.at < ?5)))",
    )?;
    let is_selected = |owner: &str| query.owners.iter().any(|selected| selected.as_str() == owner);
    let (mut near, mut read_count) = (Vec::new(), 0);
    // A candidate that does not match the query costs a look-up, but does not count towards the limit.
    while let Some(Reverse(NeighbourCandidate { read, is_message, .. })) =
        candidates.pop().filter(|_| read_count < MAX_READ)
    {
        let statement = if is_message { &mut messages } else { &mut memories };
        let mut rows = statement.query(params![read.id, read.place, session, since, until])?;
        let Some(row) = rows.next()? else { continue };
        let is_fit = is_selected(row.get_ref(2)?.as_str().map_err(rusqlite::Error::from)?)
            && (is_message
                || row.get::<_, String>(3)?.parse::<MemoryKind>().is_ok_and(|kind| query.kinds.contains(&kind)));
        if !is_fit {
            continue;
        }
        read_count += 1;
        let blob = row.get_ref(0)?.as_blob().map_err(rusqlite::Error::from)?;
        if let Some(similarity) = similarity(vector, blob, base).filter(|similarity| *similarity >= MIN_SIMILARITY) {
            let found = if is_message {
                HitLocation::Message { session: row.get(1)?, seq: row.get(3)? }
            } else {
                HitLocation::Memory(row.get(1)?)
            };
            near.push((found, similarity));
        }
    }
    // Equal neighbours have a fixed order, so that the same query has the same answer.
    near.sort_by(|(found, similarity), (other, others)| others.total_cmp(similarity).then_with(|| found.cmp(other)));
    near.truncate(limit);
    Ok(near)
}

/// Returns the similarity of a vector and a stored one: the cosine above `base`. An embedding of another model, or an empty one,
/// cannot be compared.
fn similarity(vector: &[f32], blob: &[u8], base: f32) -> Option<f32> {
    let is_comparable = blob.len() == vector.len() * 4;
    is_comparable.then(|| ((dot_product(vector, blob) - base) / (1.0 - base)).min(1.0))
}

/// Returns the [`nearest`] hits that are clearly nearer to `text` than an unrelated sentence of its language. With many models,
/// short texts are near to everything.
///
/// # Errors
/// The store cannot be read.
pub fn clearly_similar(
    connection: &Connection,
    query: &RecallQuery,
    vector: &[f32],
    text: &str,
) -> Result<Vec<(HitLocation, f32)>, StoreError> {
    let SimilarityBaselines { all, classes } = vectors::bases(connection)?.unwrap_or_default();
    let least = (classes[texts::class(text)] - all) / (1.0 - all);
    let mut near = nearest(connection, query, vector, query.limit)?;
    near.retain(|(_, similarity)| *similarity >= least && f64::from(*similarity) >= query.least);
    Ok(near)
}

/// Returns the candidates of a query, the likeliest by their codes on top.
fn candidates(
    connection: &Connection,
    query: &RecallQuery,
    code: &VectorCode,
) -> Result<BinaryHeap<Reverse<NeighbourCandidate>>, StoreError> {
    let mut owners: Vec<&str> = query.owners.iter().map(MemoryOwner::as_str).collect();
    owners.sort_unstable();
    owners.dedup();
    let of_session = match &query.session {
        Some(session) if query.messages => Some(search_index::ids_of_session(connection, session)?),
        _ => None,
    };
    let mut candidates = Vec::new();
    for owner in owners {
        if !query.kinds.is_empty() {
            vector_codes::visit(connection, SearchCorpus::Memories, owner, code, |read| {
                candidates.push(Reverse(NeighbourCandidate { distance: read.distance, is_message: false, read }));
            })?;
        }
        if query.messages && !owner.is_empty() {
            vector_codes::visit(connection, SearchCorpus::Messages, owner, code, |read| {
                if of_session.as_ref().is_none_or(|ids| ids.contains(&read.id)) {
                    candidates.push(Reverse(NeighbourCandidate { distance: read.distance, is_message: true, read }));
                }
            })?;
        }
    }
    Ok(candidates.into())
}

/// Returns the product of a vector and a stored one, summed in lanes: the processor cannot parallelize a single sum.
fn dot_product(vector: &[f32], blob: &[u8]) -> f32 {
    let (numbers, _) = blob.as_chunks::<4>();
    let (ours, rest) = vector.as_chunks::<LANES>();
    let (theirs, theirs_rest) = numbers.as_chunks::<LANES>();
    let mut sums = [0.0_f32; LANES];
    for (ours, theirs) in ours.iter().zip(theirs) {
        for lane in 0..LANES {
            sums[lane] += ours[lane] * f32::from_le_bytes(theirs[lane]);
        }
    }
    let rest: f32 = rest.iter().zip(theirs_rest).map(|(ours, theirs)| ours * f32::from_le_bytes(*theirs)).sum();
    sums.iter().sum::<f32>() + rest
}
