//! The rules by which something is remembered, and forgotten.

use super::{Entry, Kind, MemoryConfig, NewEntry, Owner};
use crate::store::{Connection, StoreError};

/// What became of something that was to be remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remembered {
    New(i64),
    /// It was known, and is all the more.
    Known(i64),
    /// It contradicts what was known, which stays as history.
    Replaced {
        id: i64,
        old: i64,
    },
}

/// What was removed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Forgotten {
    /// The entries, and what they had replaced.
    pub entries: Vec<Entry>,
    /// Turns whose words are gone from the log, because the entries came from there.
    pub turns: usize,
}

/// Remembers `new` in the caller's write: its row, and the words that it is found by. What says the same is not written again.
///
/// # Errors
/// The store cannot be written.
pub fn remember(_connection: &Connection, _new: &NewEntry, _config: &MemoryConfig) -> Result<Remembered, StoreError> {
    Err(StoreError::Row("nothing is remembered yet".to_owned()))
}

/// Forgets entries in the caller's write, for good: the rows, what they had replaced, the words and vectors that they were
/// found by, the snapshots and summaries that tell them, and the words of the turns that they came from.
///
/// # Errors
/// The store cannot be written.
pub fn forget(_connection: &Connection, _ids: &[i64]) -> Result<Forgotten, StoreError> {
    Err(StoreError::Row("nothing is forgotten yet".to_owned()))
}

/// What is known now of an owner, the newest first.
///
/// # Errors
/// The store cannot be read.
pub fn list(connection: &Connection, owner: &Owner, kind: Kind, limit: u32) -> Result<Vec<Entry>, StoreError> {
    let rows = crate::store::memories::current(connection, owner.as_str(), kind.as_str(), limit)?;
    Ok(rows.into_iter().filter_map(Entry::of).collect())
}
