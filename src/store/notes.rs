//! Notes that channels store for themselves, by kind and key; the last value counts.

use rusqlite::{Connection, params};

use super::sql::{execute, select, select_optional};
use super::{StoreError, now_ms};

/// Returns the value of a note and the time when it was written, in UTC milliseconds.
pub fn get(connection: &Connection, channel: &str, kind: &str, key: &str) -> Result<Option<(String, i64)>, StoreError> {
    let sql = "SELECT value, updated_at FROM notes WHERE channel = ? AND kind = ? AND key = ?";
    select_optional(connection, sql, [channel, kind, key], |row| Ok((row.get(0)?, row.get(1)?)))
}

/// Returns all notes of a kind: key, value, and time of writing.
pub fn all(connection: &Connection, channel: &str, kind: &str) -> Result<Vec<(String, String, i64)>, StoreError> {
    let sql = "SELECT key, value, updated_at FROM notes WHERE channel = ? AND kind = ? ORDER BY key";
    select(connection, sql, [channel, kind], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
}

pub fn set(connection: &Connection, channel: &str, kind: &str, key: &str, value: &str) -> Result<(), StoreError> {
    let sql = "INSERT INTO notes (channel, kind, key, value, updated_at) VALUES (?, ?, ?, ?, ?)
             ON CONFLICT (channel, kind, key) DO UPDATE SET value = excluded.value, updated_at = excluded.updated_at";
    execute(connection, sql, params![channel, kind, key, value, now_ms()]).map(drop)
}
