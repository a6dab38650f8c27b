//! The tools that `find_tools` has found in a conversation.

use std::collections::BTreeSet;

use rusqlite::{Connection, params};

use super::sql::{execute, select};
use super::{StoreError, messages};

/// Returns the tools that were found in a conversation of a session.
pub fn found(connection: &Connection, session: &str, epoch: i64) -> Result<BTreeSet<String>, StoreError> {
    let sql = "SELECT tool FROM session_tools WHERE session = ? AND epoch = ?";
    select(connection, sql, params![session, epoch], |row| row.get(0))
}

/// Adds tools that were found in the current conversation of a session, and removes those of its earlier conversations.
pub fn add(connection: &Connection, session: &str, tools: &BTreeSet<String>) -> Result<(), StoreError> {
    let epoch = messages::session(connection, session)?.epoch;
    execute(connection, "DELETE FROM session_tools WHERE session = ? AND epoch <> ?", params![session, epoch])?;
    for tool in tools {
        let sql = "INSERT OR IGNORE INTO session_tools (session, epoch, tool) VALUES (?, ?, ?)";
        execute(connection, sql, params![session, epoch, tool])?;
    }
    Ok(())
}
