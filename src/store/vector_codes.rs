//! Short codes of vectors, many in one row. How many bits of two codes differ tells about how far their vectors are apart, so
//! that only of the few best the vectors themselves are read. A code stands and goes with its vector, in the same commit.

use rusqlite::{Connection, params};

use super::StoreError;
use super::vectors::read;
use super::words::Shelf;

/// Bits of a code, whatever the vector's length is.
pub const BITS: usize = 512;
const WORDS: usize = BITS / 64;

/// What one takes in its row: the id, and the code. The migration has these numbers, too.
const SLOT: usize = 8 + BITS / 8;

/// Codes of one row.
const SLOTS: i64 = 256;

/// Vectors that are given codes in one write.
const PIECE: i64 = 256;

/// On which side of so many planes a vector lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Code([u64; WORDS]);

/// A code that was read: whose it is, where it stands, and how many bits are others than in what was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Read {
    pub id: i64,
    pub place: i64,
    pub distance: u32,
}

impl Code {
    /// Turns the vector as if by chance, always the same way, so that each bit says something of all its numbers; then only
    /// the signs count.
    pub fn of(vector: &[f32]) -> Self {
        let mut turned = [0.0_f32; BITS];
        for (at, number) in vector.iter().enumerate() {
            turned[at % BITS] += if is_turned(at) { -number } else { *number };
        }
        mix(&mut turned);
        for (at, number) in turned.iter_mut().enumerate() {
            *number = if is_turned(usize::MAX - at) { -*number } else { *number };
        }
        mix(&mut turned);
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

/// One of two, evenly spread: the last steps of SplitMix64.
fn is_turned(at: usize) -> bool {
    let mut hash = (at as u64).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    hash = (hash ^ hash >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ hash >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    (hash ^ hash >> 31) & 1 == 1
}

/// The transform of Walsh and Hadamard: sums and differences of all numbers.
fn mix(numbers: &mut [f32; BITS]) {
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

/// Writes the code of `id`'s vector among those of `owner`; answers its place.
pub(super) fn put(
    connection: &Connection,
    shelf: Shelf,
    owner: &str,
    id: i64,
    vector: &[f32],
) -> Result<i64, StoreError> {
    if vector.is_empty() {
        return Ok(0);
    }
    let mut slot = Vec::with_capacity(SLOT);
    slot.extend(id.to_le_bytes());
    slot.extend(Code::of(vector).0.iter().flat_map(|word| word.to_le_bytes()));
    let table = table(shelf);
    let last = format!("SELECT id, length(codes) / ?2 FROM {table} WHERE owner = ?1 ORDER BY id DESC LIMIT 1");
    let mut last = connection.prepare_cached(&last)?;
    let mut rows = last.query(params![owner, SLOT])?;
    let last: Option<(i64, i64)> = match rows.next()? {
        Some(row) => Some((row.get(0)?, row.get(1)?)),
        None => None,
    };
    match last.filter(|(_, used)| *used < SLOTS) {
        Some((row, used)) => {
            let append = "SET held = held + 1, codes = CAST(codes || ?2 AS BLOB) WHERE id = ?1";
            connection.prepare_cached(&format!("UPDATE {table} {append}"))?.execute(params![row, slot])?;
            Ok(row * SLOTS + used)
        }
        None => {
            let insert = format!("INSERT INTO {table} (owner, held, codes) VALUES (?, 1, ?)");
            connection.prepare_cached(&insert)?.execute(params![owner, slot])?;
            Ok(connection.last_insert_rowid() * SLOTS)
        }
    }
}

/// Gives codes to vectors that have no place, some of them; answers whether there were any.
pub fn put_missing(connection: &Connection, shelf: Shelf) -> Result<bool, StoreError> {
    let (vectors, id, owners) = match shelf {
        Shelf::Memories => ("memory_vectors", "memory", "memories"),
        Shelf::Said => ("said_vectors", "said", "said"),
    };
    let missing = format!(
        "SELECT v.{id}, v.vector, o.owner FROM {vectors} v CROSS JOIN {owners} o ON o.id = v.{id}
         WHERE v.place IS NULL LIMIT {PIECE}"
    );
    let mut statement = connection.prepare_cached(&missing)?;
    let rows = statement
        .query_map([], |row| Ok((row.get::<_, i64>(0)?, read(row.get_ref(1)?.as_blob()?), row.get::<_, String>(2)?)))?;
    let rows = rows.collect::<Result<Vec<_>, _>>()?;
    let mut update = connection.prepare_cached(&format!("UPDATE {vectors} SET place = ?2 WHERE {id} = ?1"))?;
    for (id, vector, owner) in &rows {
        update.execute(params![id, put(connection, shelf, owner, *id, vector)?])?;
    }
    Ok(!rows.is_empty())
}

/// Whether some vectors have no place yet.
pub fn are_missing(connection: &Connection, shelf: Shelf) -> Result<bool, StoreError> {
    let sql = match shelf {
        Shelf::Memories => "SELECT EXISTS (SELECT 1 FROM memory_vectors WHERE place IS NULL)",
        Shelf::Said => "SELECT EXISTS (SELECT 1 FROM said_vectors WHERE place IS NULL)",
    };
    Ok(connection.prepare_cached(sql)?.query_row([], |row| row.get(0))?)
}

/// Has memories' vectors given codes again whose row of codes is gone, as a mended database may have lost some.
pub(super) fn recheck(connection: &Connection) -> Result<(), StoreError> {
    connection.execute(
        "UPDATE memory_vectors SET place = NULL WHERE place > 0 AND place / ?1 NOT IN (SELECT id FROM memory_codes)",
        [SLOTS],
    )?;
    Ok(())
}

/// Removes all.
pub(super) fn clear(connection: &Connection) -> Result<(), StoreError> {
    connection.execute("DELETE FROM memory_codes", [])?;
    connection.execute("DELETE FROM said_codes", [])?;
    Ok(())
}

/// Calls `take` with all codes of an owner.
pub fn visit(
    connection: &Connection,
    shelf: Shelf,
    owner: &str,
    code: &Code,
    mut take: impl FnMut(Read),
) -> Result<(), StoreError> {
    let mut rows = connection.prepare_cached(&format!("SELECT id, codes FROM {} WHERE owner = ?", table(shelf)))?;
    let mut rows = rows.query([owner])?;
    while let Some(row) = rows.next()? {
        let (first, blob) = (row.get::<_, i64>(0)? * SLOTS, row.get_ref(1)?);
        let (slots, _) = blob.as_blob().map_err(rusqlite::Error::from)?.as_chunks::<SLOT>();
        for (place, slot) in (first..).zip(slots) {
            let Some((id, theirs)) = slot.split_first_chunk() else { continue };
            let id = i64::from_le_bytes(*id);
            if id > 0 {
                take(Read { id, place, distance: code.distance(theirs) });
            }
        }
    }
    Ok(())
}

fn table(shelf: Shelf) -> &'static str {
    match shelf {
        Shelf::Memories => "memory_codes",
        Shelf::Said => "said_codes",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two vectors of so many numbers with this cosine; `at` says where they stand out.
    fn pair(size: usize, cosine: f32, at: usize) -> [Vec<f32>; 2] {
        let mut pair = [vec![0.0; size], vec![0.0; size]];
        pair[0][at % size] = 1.0;
        pair[1][at % size] = cosine;
        pair[1][(at * 7 + 1) % size] += (1.0 - cosine * cosine).sqrt();
        pair
    }

    #[test]
    fn bits_differ_as_vectors_do() {
        for size in [3, 100, 256, 512, 1_536, 8_192] {
            for cosine in [1.0, 0.9, 0.5, 0.0, -0.5] {
                let mut differ = 0;
                for at in 0..20 {
                    let [one, other] = pair(size, cosine, at * 31 + 1).map(|vector| Code::of(&vector));
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
        assert_eq!(Code::of(&[]), Code([0; WORDS]));
    }
}
