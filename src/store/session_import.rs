//! Imports sessions from other programs.

use rusqlite::{Connection, params};

use super::checkpoints::{CheckpointError, check_new};
use super::messages::{Ownership, digest};
use super::now_ms;
use super::sql::execute;

/// A message to import.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportedMessage {
    pub role: &'static str,
    /// JSON.
    pub body: String,
    /// The messages of one turn are adjacent.
    pub turn: String,
    /// UTC milliseconds.
    pub at: i64,
}

/// Begins `session`, which must be new, with these messages, within the caller's write.
///
/// # Errors
/// The session exists, or the key is invalid; nothing is written then.
pub fn begin(
    connection: &Connection,
    session: &str,
    ownership: &Ownership,
    messages: &[ImportedMessage],
) -> Result<(), CheckpointError> {
    check_new(connection, session)?;
    let sql =
        "INSERT INTO messages (session, epoch, seq, role, body, turn, at, digest) VALUES (?, 0, ?, ?, ?, ?, ?, ?)";
    for (seq, ImportedMessage { role, body, turn, at }) in messages.iter().enumerate() {
        execute(connection, sql, params![session, seq, role, body, turn, at, digest(role, body)])?;
    }
    let now = now_ms();
    let begun = messages.first().map_or(now, |first| first.at.min(now));
    // Marked as used now, so that an old session is not deleted as unused at once.
    let sql = "INSERT INTO sessions (session, epoch, first_seq, next_seq, created_at, updated_at, owner, is_shared)
             VALUES (?, 0, 0, ?, ?, ?, ?, ?)";
    execute(connection, sql, params![session, messages.len(), begun, now, ownership.owner, ownership.is_shared])?;
    Ok(())
}
