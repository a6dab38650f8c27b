//! The tools that `find_tools` has found in a conversation.

use std::collections::BTreeSet;

use rusqlite::{Connection, params};

use super::messages::SessionHead;
use super::sql::{execute, select};
use super::{StoreError, messages};

/// Returns the head of a session, and the tools that were found in its current conversation.
pub fn head_and_found(connection: &Connection, session: &str) -> Result<(SessionHead, BTreeSet<String>), StoreError> {
    let head = messages::session(connection, session)?;
    let sql = "SELECT tool FROM session_tools WHERE session = ? AND epoch = ?";
    let found = select(connection, sql, params![session, head.epoch], |row| row.get(0))?;
    Ok((head, found))
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
