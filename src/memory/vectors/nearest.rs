//! What is nearest to a vector: the exact products, of those memories alone that the ask is for.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use rusqlite::{Row, Rows, params};

use crate::memory::{Ask, Found};
use crate::store::{Connection, StoreError, vectors};

/// Hits at most.
const LIMIT: usize = 1_000;

/// What is less alike has nothing in common but chance.
const LEAST: f32 = 0.15;

/// Numbers that are multiplied at once.
const LANES: usize = 8;

/// Something near.
#[derive(Debug, PartialEq)]
struct Near {
    likeness: f32,
    found: Found,
}

/// The nearest so far, the farthest of them on top.
struct Best<'a> {
    vector: &'a [f32],
    /// The cosine of texts that have nothing in common.
    base: f32,
    limit: usize,
    nearest: BinaryHeap<Reverse<Near>>,
}

/// The memories and messages that mean what is nearest to `vector` (of length 1), the nearest first: of the owners and kinds
/// that `ask` is for, known now, within its session and times. Each with how alike they are, 0 to 1: the cosine above that
/// of texts that have nothing in common, which with some models is high. What has no vector yet is not found.
///
/// # Errors
/// The store cannot be read.
pub fn nearest(
    connection: &Connection,
    ask: &Ask,
    vector: &[f32],
    limit: usize,
) -> Result<Vec<(Found, f32)>, StoreError> {
    let base = vectors::base(connection)?.unwrap_or_default();
    let mut best = Best { vector, base, limit: limit.min(LIMIT), nearest: BinaryHeap::new() };
    if best.limit == 0 || vector.is_empty() {
        return Ok(Vec::new());
    }
    let mut owners: Vec<&str> = ask.owners.iter().map(crate::memory::Owner::as_str).collect();
    owners.sort_unstable();
    owners.dedup();
    let mut kinds = ask.kinds.clone();
    kinds.sort_unstable();
    kinds.dedup();
    let (session, since, until) = (&ask.session, ask.since, ask.until);
    // The index alone says whose a memory is; its row is read only where session or time are asked for.
    let mut memories = connection.prepare_cached(
        "SELECT v.vector, m.id FROM memories m INDEXED BY memories_current CROSS JOIN memory_vectors v ON v.memory = m.id
         WHERE m.owner = ?1 AND m.kind = ?2 AND m.replaced_by IS NULL
            AND (?3 IS NULL OR m.session = ?3) AND (?4 IS NULL OR m.created_at >= ?4)
            AND (?5 IS NULL OR m.created_at < ?5)",
    )?;
    let mut said = connection.prepare_cached(
        "SELECT v.vector, s.session, s.seq FROM said_vectors v CROSS JOIN said s ON s.id = v.said
         WHERE s.owner = ?1 AND (?2 IS NULL OR s.session = ?2)
            AND ((?3 IS NULL AND ?4 IS NULL) OR EXISTS (
                SELECT 1 FROM messages m WHERE m.session = s.session AND m.seq = s.seq
                    AND (?3 IS NULL OR m.at >= ?3) AND (?4 IS NULL OR m.at < ?4)))",
    )?;
    for owner in owners {
        for kind in &kinds {
            let rows = memories.query(params![owner, kind.as_str(), session, since, until])?;
            best.take(rows, |row| Ok(Found::Memory(row.get(1)?)))?;
        }
        if ask.messages && !owner.is_empty() {
            let rows = said.query(params![owner, session, since, until])?;
            best.take(rows, |row| Ok(Found::Message { session: row.get(1)?, seq: row.get(2)? }))?;
        }
    }
    Ok(best.into_sorted())
}

impl Best<'_> {
    /// Takes rows whose first column is a vector; `found` reads the others of those that are near enough.
    fn take(
        &mut self,
        mut rows: Rows<'_>,
        found: impl Fn(&Row<'_>) -> rusqlite::Result<Found>,
    ) -> Result<(), StoreError> {
        while let Some(row) = rows.next()? {
            let blob = row.get_ref(0)?.as_blob().map_err(rusqlite::Error::from)?;
            // Made by another model, or none: nothing can be said of it.
            if blob.len() != self.vector.len() * 4 {
                continue;
            }
            let likeness = ((product(self.vector, blob) - self.base) / (1.0 - self.base)).min(1.0);
            let is_near = likeness >= LEAST
                && (self.nearest.len() < self.limit
                    || self.nearest.peek().is_some_and(|far| likeness > far.0.likeness));
            if !is_near {
                continue;
            }
            if self.nearest.len() == self.limit {
                self.nearest.pop();
            }
            self.nearest.push(Reverse(Near { likeness, found: found(row)? }));
        }
        Ok(())
    }

    fn into_sorted(self) -> Vec<(Found, f32)> {
        let sorted = self.nearest.into_sorted_vec().into_iter();
        sorted.map(|Reverse(Near { likeness, found })| (found, likeness)).collect()
    }
}

impl Eq for Near {}

impl Ord for Near {
    /// Of equals the older one is the nearer, so that the same ask has the same answer.
    fn cmp(&self, other: &Self) -> Ordering {
        self.likeness.total_cmp(&other.likeness).then_with(|| other.found.cmp(&self.found))
    }
}

impl PartialOrd for Near {
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
