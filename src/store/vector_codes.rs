//! Short binary codes of vectors, many in one row. The number of different bits of two codes approximates the angle between their
//! vectors, so that only the vectors of the best candidates must be read. A code is written and deleted in the same commit as its
//! vector.

use rusqlite::{Connection, params};

use super::StoreError;
use super::search_index::SearchCorpus;
use super::sql::{execute, select_optional};

/// The bits of a code, for vectors of any length.
pub const BITS: usize = 512;
const WORDS: usize = BITS / 64;

/// The bytes of a code in its row: the id and the bits. The migration contains the same numbers.
const SLOT: usize = 8 + BITS / 8;

/// The codes of one row.
const SLOTS: i64 = 256;

/// A binary code: the sides of a set of planes on which a vector lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VectorCode([u64; WORDS]);

/// A compared code: the id of its vector, its place, and the number of different bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CodeDistance {
    pub id: i64,
    pub place: i64,
    pub distance: u32,
}

impl VectorCode {
    /// Returns the code of a vector. Rotates the vector pseudo-randomly but deterministically, so that each bit depends on all its
    /// numbers, and takes the signs.
    pub fn of(vector: &[f32]) -> Self {
        let mut turned = [0.0_f32; BITS];
        for (at, number) in vector.iter().enumerate() {
            turned[at % BITS] += if is_sign_flipped(at) { -number } else { *number };
        }
        hadamard_transform(&mut turned);
        for (at, number) in turned.iter_mut().enumerate() {
            *number = if is_sign_flipped(usize::MAX - at) { -*number } else { *number };
        }
        hadamard_transform(&mut turned);
        let mut words = [0; WORDS];
        for (at, number) in turned.iter().enumerate() {
            words[at / 64] |= u64::from(*number > 0.0) << (at % 64);
        }
        Self(words)
    }

    fn distance(&self, other: &[u8]) -> u32 {
        let (theirs, _) = other.as_chunks::<8>();
        self.0.iter().zip(theirs).map(|(ours, theirs)| (ours ^ u64::from_le_bytes(*theirs)).count_ones()).sum()
    }
}

/// Returns a uniformly distributed bit: the last steps of SplitMix64.
fn is_sign_flipped(at: usize) -> bool {
    let mut hash = (at as u64).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    hash = (hash ^ hash >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ hash >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    (hash ^ hash >> 31) & 1 == 1
}

/// Applies the Walsh–Hadamard transform: sums and differences of all numbers.
fn hadamard_transform(numbers: &mut [f32; BITS]) {
    let mut half = 1;
    while half < BITS {
        for pair in numbers.chunks_exact_mut(half * 2) {
            let (left, right) = pair.split_at_mut(half);
            for (left, right) in left.iter_mut().zip(right) {
                (*left, *right) = (*left + *right, *left - *right);
            }
        }
        half *= 2;
    }
}

/// Writes the code of `id`'s vector into a row of `owner`; returns its place.
pub(super) fn put(
    connection: &Connection,
    corpus: SearchCorpus,
    owner: &str,
    id: i64,
    vector: &[f32],
) -> Result<i64, StoreError> {
    if vector.is_empty() {
        return Ok(0);
    }
    let mut slot = Vec::with_capacity(SLOT);
    slot.extend(id.to_le_bytes());
    slot.extend(VectorCode::of(vector).0.iter().flat_map(|word| word.to_le_bytes()));
    let table = format!("{}_codes", corpus.name());
    let last = format!("SELECT id, length(codes) / ?2 FROM {table} WHERE owner = ?1 ORDER BY id DESC LIMIT 1");
    let last: Option<(i64, i64)> =
        select_optional(connection, &last, params![owner, SLOT], |row| Ok((row.get(0)?, row.get(1)?)))?;
    match last.filter(|(_, used)| *used < SLOTS) {
        Some((row, used)) => {
            let append = "SET live_count = live_count + 1, codes = CAST(codes || ?2 AS BLOB) WHERE id = ?1";
            execute(connection, &format!("UPDATE {table} {append}"), params![row, slot])?;
            Ok(row * SLOTS + used)
        }
        None => {
            let insert = format!("INSERT INTO {table} (owner, live_count, codes) VALUES (?, 1, ?)");
            execute(connection, &insert, params![owner, slot])?;
            Ok(connection.last_insert_rowid() * SLOTS)
        }
    }
}

/// Marks memories' vectors whose row of codes is missing, as in a repaired database, so that they get new codes.
pub(super) fn mark_missing(connection: &Connection) -> Result<(), StoreError> {
    connection.execute(
        "UPDATE memory_vectors SET place = NULL WHERE place > 0 AND place / ?1 NOT IN (SELECT id FROM memory_codes)",
        [SLOTS],
    )?;
    Ok(())
}

/// Deletes all codes.
pub(super) fn clear(connection: &Connection) -> Result<(), StoreError> {
    connection.execute("DELETE FROM memory_codes", [])?;
    connection.execute("DELETE FROM message_codes", [])?;
    Ok(())
}

/// Calls `take` with all codes of an owner.
pub fn visit(
    connection: &Connection,
    corpus: SearchCorpus,
    owner: &str,
    code: &VectorCode,
    mut take: impl FnMut(CodeDistance),
) -> Result<(), StoreError> {
    let sql = format!("SELECT id, codes FROM {}_codes WHERE owner = ?", corpus.name());
    let mut statement = connection.prepare_cached(&sql)?;
    let mut rows = statement.query([owner])?;
    while let Some(row) = rows.next()? {
        let (first, blob) = (row.get::<_, i64>(0)? * SLOTS, row.get_ref(1)?);
        let (slots, _) = blob.as_blob().map_err(rusqlite::Error::from)?.as_chunks::<SLOT>();
        for (place, slot) in (first..).zip(slots) {
            let Some((id, theirs)) = slot.split_first_chunk() else { continue };
            let id = i64::from_le_bytes(*id);
            if id > 0 {
                take(CodeDistance { id, place, distance: code.distance(theirs) });
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns two vectors of this size with this cosine; `at` selects their largest components.
    fn pair(size: usize, cosine: f32, at: usize) -> [Vec<f32>; 2] {
        let mut pair = [vec![0.0; size], vec![0.0; size]];
        pair[0][at % size] = 1.0;
        pair[1][at % size] = cosine;
        pair[1][(at * 7 + 1) % size] += (1.0 - cosine * cosine).sqrt();
        pair
    }

    #[test]
    fn different_bits_approximate_the_angle_of_vectors() {
        for size in [3, 100, 256, 512, 1_536, 8_192] {
            for cosine in [1.0, 0.9, 0.5, 0.0, -0.5] {
                let mut differ = 0;
                for at in 0..20 {
                    let [one, other] = pair(size, cosine, at * 31 + 1).map(|vector| VectorCode::of(&vector));
                    let other: Vec<u8> = other.0.iter().flat_map(|word| word.to_le_bytes()).collect();
                    differ += one.distance(&other);
                }
                let angle = f64::from(differ) / 20.0 / BITS as f64;
                let expected = f64::from(cosine).acos() / std::f64::consts::PI;
                assert!(
                    (angle - expected).abs() < 0.06,
                    "{size} numbers, cosine {cosine}: {angle:.3}, not {expected:.3}"
                );
            }
        }
        assert_eq!(VectorCode::of(&[]), VectorCode([0; WORDS]));
    }
}
