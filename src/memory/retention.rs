//! What is kept of conversations that are gone, and goes with them. In small pieces, between which others write.

use super::book::remove;
use super::words;
use crate::store::{Connection, StoreError, memory_lists, retention};

/// Sessions whose rest goes in one piece.
const SESSIONS: u32 = 20;

/// Messages of sessions that nobody has used since `before_ms`, and what they are found by; answers how many were deleted.
///
/// # Errors
/// The store cannot be written.
pub fn prune_sessions(connection: &Connection, before_ms: i64) -> Result<usize, StoreError> {
    // First what the words are found by, which may need the words.
    for (session, turn) in retention::turns_to_prune(connection, before_ms)? {
        words::remove_turn(connection, &session, &turn)?;
    }
    retention::prune_sessions(connection, before_ms)
}

/// The summaries of sessions whose messages are gone, and what stood in their prompts; answers how many rows were deleted.
///
/// # Errors
/// The store cannot be written.
pub fn prune_gone_sessions(connection: &Connection, before_ms: i64) -> Result<usize, StoreError> {
    let mut rows = 0;
    for session in memory_lists::gone(connection, before_ms, SESSIONS)? {
        for summary in memory_lists::summaries(connection, &session)? {
            remove(connection, summary)?;
            rows += 1;
        }
        rows += memory_lists::drop_session(connection, &session)?;
    }
    Ok(rows)
}

/// Snapshots that are in nobody's prompt any more; answers how many were deleted.
///
/// # Errors
/// The store cannot be written.
pub fn sweep_snapshots(connection: &Connection, _before_ms: i64) -> Result<usize, StoreError> {
    memory_lists::sweep_snapshots(connection, retention::PIECE)
}
