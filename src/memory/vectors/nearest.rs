//! What is nearest to a vector: by their codes the likeliest of all, and the exact products of those that the ask is for.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use rusqlite::{Row, params};

use super::texts;
use crate::memory::{HitLocation, MemoryKind, Owner, RecallQuery};
use crate::store::search_index::{self, SearchCorpus};
use crate::store::vector_codes::{self, VectorCode};
use crate::store::vectors::SimilarityBaselines;
use crate::store::{Connection, StoreError, vectors};

/// Hits at most.
const LIMIT: usize = 1_000;

/// What is less alike has nothing in common but chance.
const LEAST: f32 = 0.15;

/// Vectors that are read, of those that the ask is for: where there are no more, none is missed.
const LOOKED_AT: usize = 150;

/// Numbers that are multiplied at once.
const LANES: usize = 8;

/// Something near.
#[derive(Debug, PartialEq)]
struct Neighbour {
    likeness: f32,
    found: HitLocation,
}

/// Something that may be near: the fewer bits differ, the likelier.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct NeighbourCandidate {
    distance: u32,
    is_said: bool,
    read: vector_codes::CodeDistance,
}

/// The nearest so far, the farthest of them on top.
struct NearestHeap<'a> {
    vector: &'a [f32],
    /// The cosine of texts that have nothing in common.
    base: f32,
    limit: usize,
    nearest: BinaryHeap<Reverse<Neighbour>>,
}

/// The memories and messages that mean what is nearest to `vector` (of length 1), the nearest first: of the owners and kinds
/// that `ask` is for, known now, within its session and times. Each with how alike they are, 0 to 1: the cosine above that
/// of texts that have nothing in common, which with some models is high. What has no vector yet is not found. Among very many
/// something that is hardly nearer than the rest may be missed.
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
    // What does not fit the ask costs a look and no place among those that are read.
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

/// Of what is [`nearest`] to the vector of `text`, what is clearly nearer to it than a sentence of its language is that has nothing to
/// do with it. Short texts are near to everything with many models.
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

/// All that may be near by its code, the likeliest on top.
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
    /// Takes a row whose first column is a vector, if it is near enough; `found` reads the others.
    fn take(
        &mut self,
        row: &Row<'_>,
        found: impl Fn(&Row<'_>) -> rusqlite::Result<HitLocation>,
    ) -> Result<(), StoreError> {
        let blob = row.get_ref(0)?.as_blob().map_err(rusqlite::Error::from)?;
        // Made by another model, or none: nothing can be said of it.
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
    /// Of equals the older one is the nearer, so that the same ask has the same answer.
    fn cmp(&self, other: &Self) -> Ordering {
        self.likeness.total_cmp(&other.likeness).then_with(|| other.found.cmp(&self.found))
    }
}

impl PartialOrd for Neighbour {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The product of a vector and a stored one. In lanes, which the processor takes at once; one sum could not be split.
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
