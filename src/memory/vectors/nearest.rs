//! Finds the nearest embeddings. Their codes select the likeliest candidates; exact dot products rank those that match the
//! query.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use rusqlite::{Row, params};

use super::texts;
use crate::memory::{HitLocation, MemoryKind, Owner, RecallQuery};
use crate::store::search_index::{self, SearchCorpus};
use crate::store::vector_codes::{self, VectorCode};
use crate::store::vectors::SimilarityBaselines;
use crate::store::{Connection, StoreError, vectors};

/// The most hits.
const MAX_HITS: usize = 1_000;

/// The least similarity of a hit; texts with less are similar by chance.
const MIN_SIMILARITY: f32 = 0.15;

/// The most candidates that match the query whose embeddings are read. If there are no more candidates, the result is exact.
const MAX_READ: usize = 150;

/// The number of vector components that are multiplied at once.
const LANES: usize = 8;

/// A memory or message that is near the query.
#[derive(Debug, PartialEq)]
struct Neighbour {
    similarity: f32,
    found: HitLocation,
}

/// A memory or message that may be near the query. The fewer bits of its code differ, the likelier it is near.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct NeighbourCandidate {
    distance: u32,
    is_message: bool,
    read: vector_codes::CodeDistance,
}

/// The nearest memories and messages so far, with the farthest of them on top.
struct NearestHeap<'a> {
    vector: &'a [f32],
    /// The cosine of unrelated texts.
    base: f32,
    limit: usize,
    nearest: BinaryHeap<Reverse<Neighbour>>,
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
    let base = vectors::bases(connection)?.unwrap_or_default().all;
    let mut best = NearestHeap { vector, base, limit: limit.min(MAX_HITS), nearest: BinaryHeap::new() };
    if best.limit == 0 || vector.is_empty() {
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
    let mut read_count = 0;
    // A candidate that does not match the query costs a look-up, but does not count towards the limit.
    while let Some(Reverse(NeighbourCandidate { read, is_message, .. })) =
        candidates.pop().filter(|_| read_count < MAX_READ)
    {
        let statement = if is_message { &mut messages } else { &mut memories };
        let mut rows = statement.query(params![read.id, read.place, session, since, until])?;
        let Some(row) = rows.next()? else { continue };
        let is_fit = is_selected(row.get_ref(2)?.as_str().map_err(rusqlite::Error::from)?)
            && (is_message
                || MemoryKind::parse(&row.get::<_, String>(3)?).is_some_and(|kind| query.kinds.contains(&kind)));
        if is_fit {
            read_count += 1;
            best.add(row, |row| {
                let found = if is_message {
                    HitLocation::Message { session: row.get(1)?, seq: row.get(3)? }
                } else {
                    HitLocation::Memory(row.get(1)?)
                };
                Ok(found)
            })?;
        }
    }
    Ok(best.into_sorted())
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
    let mut owners: Vec<&str> = query.owners.iter().map(Owner::as_str).collect();
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

impl NearestHeap<'_> {
    /// Adds a row whose first column is an embedding, if it is near enough; `found` reads its location.
    fn add(
        &mut self,
        row: &Row<'_>,
        found: impl Fn(&Row<'_>) -> rusqlite::Result<HitLocation>,
    ) -> Result<(), StoreError> {
        let blob = row.get_ref(0)?.as_blob().map_err(rusqlite::Error::from)?;
        // An embedding of another model, or an empty one, cannot be compared.
        if blob.len() != self.vector.len() * 4 {
            return Ok(());
        }
        let similarity = ((dot_product(self.vector, blob) - self.base) / (1.0 - self.base)).min(1.0);
        let is_near = similarity >= MIN_SIMILARITY
            && (self.nearest.len() < self.limit
                || self.nearest.peek().is_some_and(|far| similarity > far.0.similarity));
        if is_near {
            if self.nearest.len() == self.limit {
                self.nearest.pop();
            }
            self.nearest.push(Reverse(Neighbour { similarity, found: found(row)? }));
        }
        Ok(())
    }

    fn into_sorted(self) -> Vec<(HitLocation, f32)> {
        let sorted = self.nearest.into_sorted_vec().into_iter();
        sorted.map(|Reverse(Neighbour { similarity, found })| (found, similarity)).collect()
    }
}

impl Eq for Neighbour {}

impl Ord for Neighbour {
    /// Orders the older of two equal neighbours as nearer, so that the same query has the same answer.
    fn cmp(&self, other: &Self) -> Ordering {
        self.similarity.total_cmp(&other.similarity).then_with(|| other.found.cmp(&self.found))
    }
}

impl PartialOrd for Neighbour {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
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
