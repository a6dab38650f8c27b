//! Finds the nearest embeddings: their codes select the likeliest candidates, and exact products rank those that match the
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
const LIMIT: usize = 1_000;

/// The least similarity of a hit; texts with less are similar by chance.
const LEAST: f32 = 0.15;

/// The most embeddings that are read of candidates that match the query. With no more candidates, the result is exact.
const LOOKED_AT: usize = 150;

/// The numbers that are multiplied at once.
const LANES: usize = 8;

/// A memory or message that is near.
#[derive(Debug, PartialEq)]
struct Neighbour {
    likeness: f32,
    found: HitLocation,
}

/// A memory or message that may be near: the fewer bits of its code differ, the likelier.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct NeighbourCandidate {
    distance: u32,
    is_said: bool,
    read: vector_codes::CodeDistance,
}

/// The nearest ones so far, with the farthest of them on top.
struct NearestHeap<'a> {
    vector: &'a [f32],
    /// The cosine of unrelated texts.
    base: f32,
    limit: usize,
    nearest: BinaryHeap<Reverse<Neighbour>>,
}

/// Returns the memories and messages whose embeddings are nearest to `vector` (of length 1), the nearest first, each with
/// its similarity from 0 to 1: the cosine above that of unrelated texts, which is high for some models. Hits are current and
/// match the owners, kinds, session and times of `query`. A text without an embedding is not found yet. Among very many
/// texts, one that is hardly nearer than the others may be missed.
///
/// # Errors
/// The store cannot be read.
pub fn nearest(
    connection: &Connection,
    ask: &RecallQuery,
    vector: &[f32],
    limit: usize,
) -> Result<Vec<(HitLocation, f32)>, StoreError> {
    let base = vectors::bases(connection)?.unwrap_or_default().all;
    let mut best = NearestHeap { vector, base, limit: limit.min(LIMIT), nearest: BinaryHeap::new() };
    if best.limit == 0 || vector.is_empty() {
        return Ok(Vec::new());
    }
    let mut likely = likely(connection, ask, &VectorCode::of(vector))?;
    let (session, since, until) = (&ask.session, ask.since, ask.until);
    let mut memories = connection.prepare_cached(
        "SELECT v.vector, m.id, m.owner, m.kind FROM memory_vectors v CROSS JOIN memories m ON m.id = v.memory
         WHERE v.memory = ?1 AND v.place = ?2 AND m.replaced_by IS NULL AND (?3 IS NULL OR m.session = ?3)
            AND (?4 IS NULL OR m.created_at >= ?4) AND (?5 IS NULL OR m.created_at < ?5)",
    )?;
    let mut said = connection.prepare_cached(
        "SELECT v.vector, s.session, s.owner, s.seq FROM said_vectors v CROSS JOIN said s ON s.id = v.said
         WHERE v.said = ?1 AND v.place = ?2 AND (?3 IS NULL OR s.session = ?3)
            AND ((?4 IS NULL AND ?5 IS NULL) OR EXISTS (
                SELECT 1 FROM messages m WHERE m.session = s.session AND m.seq = s.seq
                    AND (?4 IS NULL OR m.at >= ?4) AND (?5 IS NULL OR m.at < ?5)))",
    )?;
    let is_asked = |owner: &str| ask.owners.iter().any(|asked| asked.as_str() == owner);
    let mut looked_at = 0;
    // A candidate that does not match the query costs a look-up, but does not count towards the limit.
    while let Some(Reverse(NeighbourCandidate { read, is_said, .. })) = likely.pop().filter(|_| looked_at < LOOKED_AT) {
        let statement = if is_said { &mut said } else { &mut memories };
        let mut rows = statement.query(params![read.id, read.place, session, since, until])?;
        let Some(row) = rows.next()? else { continue };
        let is_fit = is_asked(row.get_ref(2)?.as_str().map_err(rusqlite::Error::from)?)
            && (is_said || MemoryKind::parse(&row.get::<_, String>(3)?).is_some_and(|kind| ask.kinds.contains(&kind)));
        if is_fit {
            looked_at += 1;
            best.take(row, |row| {
                let found = if is_said {
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

/// Returns those of the [`nearest`] that are clearly nearer to `text` than an unrelated sentence of its language. With many
/// models, short texts are near to everything.
///
/// # Errors
/// The store cannot be read.
pub fn standing_out(
    connection: &Connection,
    ask: &RecallQuery,
    vector: &[f32],
    text: &str,
) -> Result<Vec<(HitLocation, f32)>, StoreError> {
    let SimilarityBaselines { all, classes } = vectors::bases(connection)?.unwrap_or_default();
    let least = (classes[texts::class(text)] - all) / (1.0 - all);
    let mut near = nearest(connection, ask, vector, ask.limit)?;
    near.retain(|(_, likeness)| *likeness >= least && f64::from(*likeness) >= ask.least);
    Ok(near)
}

/// Returns the candidates of a query, the likeliest by their codes on top.
fn likely(
    connection: &Connection,
    ask: &RecallQuery,
    code: &VectorCode,
) -> Result<BinaryHeap<Reverse<NeighbourCandidate>>, StoreError> {
    let mut owners: Vec<&str> = ask.owners.iter().map(Owner::as_str).collect();
    owners.sort_unstable();
    owners.dedup();
    let of_session = match &ask.session {
        Some(session) if ask.messages => Some(search_index::ids_of_session(connection, session)?),
        _ => None,
    };
    let mut likely = Vec::new();
    for owner in owners {
        if !ask.kinds.is_empty() {
            vector_codes::visit(connection, SearchCorpus::Memories, owner, code, |read| {
                likely.push(Reverse(NeighbourCandidate { distance: read.distance, is_said: false, read }));
            })?;
        }
        if ask.messages && !owner.is_empty() {
            vector_codes::visit(connection, SearchCorpus::Messages, owner, code, |read| {
                if of_session.as_ref().is_none_or(|ids| ids.contains(&read.id)) {
                    likely.push(Reverse(NeighbourCandidate { distance: read.distance, is_said: true, read }));
                }
            })?;
        }
    }
    Ok(likely.into())
}

impl NearestHeap<'_> {
    /// Adds a row whose first column is an embedding, if it is near enough; `found` reads its location.
    fn take(
        &mut self,
        row: &Row<'_>,
        found: impl Fn(&Row<'_>) -> rusqlite::Result<HitLocation>,
    ) -> Result<(), StoreError> {
        let blob = row.get_ref(0)?.as_blob().map_err(rusqlite::Error::from)?;
        // An embedding of another model, or an empty one, cannot be compared.
        if blob.len() != self.vector.len() * 4 {
            return Ok(());
        }
        let likeness = ((product(self.vector, blob) - self.base) / (1.0 - self.base)).min(1.0);
        let is_near = likeness >= LEAST
            && (self.nearest.len() < self.limit || self.nearest.peek().is_some_and(|far| likeness > far.0.likeness));
        if is_near {
            if self.nearest.len() == self.limit {
                self.nearest.pop();
            }
            self.nearest.push(Reverse(Neighbour { likeness, found: found(row)? }));
        }
        Ok(())
    }

    fn into_sorted(self) -> Vec<(HitLocation, f32)> {
        let sorted = self.nearest.into_sorted_vec().into_iter();
        sorted.map(|Reverse(Neighbour { likeness, found })| (found, likeness)).collect()
    }
}

impl Eq for Neighbour {}

impl Ord for Neighbour {
    /// Orders the older of two equal ones as nearer, so that the same query has the same answer.
    fn cmp(&self, other: &Self) -> Ordering {
        self.likeness.total_cmp(&other.likeness).then_with(|| other.found.cmp(&self.found))
    }
}

impl PartialOrd for Neighbour {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Returns the product of a vector and a stored one, summed in lanes: the processor cannot parallelize a single sum.
fn product(vector: &[f32], blob: &[u8]) -> f32 {
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
