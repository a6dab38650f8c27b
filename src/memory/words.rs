//! The words that memories and messages are found by.

use crate::store::{Connection, StoreError};

/// Has a memory found by these words, in the caller's write.
///
/// # Errors
/// The store cannot be written.
pub fn put(_connection: &Connection, _id: i64, _text: &str) -> Result<(), StoreError> {
    Ok(())
}

/// Has a memory found no more, in the caller's write.
///
/// # Errors
/// The store cannot be written.
pub fn remove(_connection: &Connection, _id: i64) -> Result<(), StoreError> {
    Ok(())
}

/// Has the messages of a turn found no more, in the caller's write.
///
/// # Errors
/// The store cannot be written.
pub fn remove_turn(_connection: &Connection, _session: &str, _turn: &str) -> Result<(), StoreError> {
    Ok(())
}
