//! Scheduled prompts: when each is due next, and how it went. What one does stands in its body, which this file does not
//! read.

use rusqlite::{Connection, OptionalExtension, Row, params};

use super::{StoreError, now_ms};

/// A job as it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobRow {
    pub id: String,
    pub name: String,
    /// JSON.
    pub body: String,
    pub enabled: bool,
    /// Its next slot, in UTC milliseconds.
    pub next_at: Option<i64>,
    /// Runs that failed, in a row up to now.
    pub failures: u32,
    /// Why daoyou disabled it.
    pub paused: Option<String>,
    /// What the last run that went well answered, cut.
    pub result: Option<String>,
    pub created_at: i64,
    pub updated_at: i64,
}

const COLUMNS: &str = "id, name, body, enabled, next_at, failures, paused, result, created_at, updated_at";

/// Adds a job; answers whether its id was free.
pub fn insert(
    connection: &Connection,
    id: &str,
    name: &str,
    body: &str,
    enabled: bool,
    next_at: Option<i64>,
) -> Result<bool, StoreError> {
    let now = now_ms();
    let sql = "INSERT INTO jobs (id, name, body, enabled, next_at, created_at, updated_at) VALUES (?, ?, ?, ?, ?, ?, ?)
               ON CONFLICT (id) DO NOTHING";
    let added = connection.prepare_cached(sql)?.execute(params![id, name, body, enabled, next_at, now, now])?;
    Ok(added == 1)
}

pub fn find(connection: &Connection, id: &str) -> Result<Option<JobRow>, StoreError> {
    let sql = format!("SELECT {COLUMNS} FROM jobs WHERE id = ?");
    Ok(connection.prepare_cached(&sql)?.query_row([id], read_row).optional()?)
}

/// All jobs, those due first at the head, those without a slot at the end.
pub fn all(connection: &Connection) -> Result<Vec<JobRow>, StoreError> {
    many(connection, "TRUE ORDER BY next_at IS NULL, next_at, id", params![])
}

pub fn named(connection: &Connection, name: &str) -> Result<Vec<JobRow>, StoreError> {
    many(connection, "name = ?1 ORDER BY id", params![name])
}

pub fn count(connection: &Connection) -> Result<usize, StoreError> {
    Ok(connection.prepare_cached("SELECT count(*) FROM jobs")?.query_row([], |row| row.get(0))?)
}

/// Enabled jobs whose slot is at `now` or before, the earliest first.
pub fn due(connection: &Connection, now: i64, limit: u32) -> Result<Vec<JobRow>, StoreError> {
    let filter = "enabled = 1 AND next_at IS NOT NULL AND next_at <= ?1 ORDER BY next_at LIMIT ?2";
    many(connection, filter, params![now, limit])
}

/// When the next enabled job is due.
pub fn next_due(connection: &Connection) -> Result<Option<i64>, StoreError> {
    let sql = "SELECT min(next_at) FROM jobs WHERE enabled = 1 AND next_at IS NOT NULL";
    Ok(connection.prepare_cached(sql)?.query_row([], |row| row.get(0))?)
}

/// Its next slot, or none.
pub fn set_next(connection: &Connection, id: &str, next_at: Option<i64>) -> Result<(), StoreError> {
    connection.prepare_cached("UPDATE jobs SET next_at = ? WHERE id = ?")?.execute(params![next_at, id])?;
    Ok(())
}

/// Enables it, with its next slot, or disables it; its failures are forgotten. Answers whether there is one.
pub fn set_enabled(
    connection: &Connection,
    id: &str,
    enabled: bool,
    next_at: Option<i64>,
    paused: Option<&str>,
) -> Result<bool, StoreError> {
    let sql = "UPDATE jobs SET enabled = ?, next_at = ?, paused = ?, failures = 0, updated_at = ? WHERE id = ?";
    Ok(connection.prepare_cached(sql)?.execute(params![enabled, next_at, paused, now_ms(), id])? == 1)
}

/// A run went well.
pub fn set_result(connection: &Connection, id: &str, result: &str) -> Result<(), StoreError> {
    let sql = "UPDATE jobs SET result = ?, failures = 0 WHERE id = ?";
    connection.prepare_cached(sql)?.execute([result, id])?;
    Ok(())
}

/// A run failed; answers how many did in a row.
pub fn count_failure(connection: &Connection, id: &str) -> Result<u32, StoreError> {
    connection.prepare_cached("UPDATE jobs SET failures = failures + 1 WHERE id = ?")?.execute([id])?;
    let failures =
        connection.prepare_cached("SELECT failures FROM jobs WHERE id = ?")?.query_row([id], |row| row.get(0));
    Ok(failures.optional()?.unwrap_or(0))
}

/// Answers whether there was one. Its runs stay.
pub fn remove(connection: &Connection, id: &str) -> Result<bool, StoreError> {
    Ok(connection.prepare_cached("DELETE FROM jobs WHERE id = ?")?.execute([id])? == 1)
}

fn many(
    connection: &Connection,
    filter: &str,
    parameters: &[&dyn rusqlite::ToSql],
) -> Result<Vec<JobRow>, StoreError> {
    let mut statement = connection.prepare_cached(&format!("SELECT {COLUMNS} FROM jobs WHERE {filter}"))?;
    let rows = statement.query_map(parameters, read_row)?;
    Ok(rows.collect::<Result<_, _>>()?)
}

fn read_row(row: &Row<'_>) -> rusqlite::Result<JobRow> {
    Ok(JobRow {
        id: row.get(0)?,
        name: row.get(1)?,
        body: row.get(2)?,
        enabled: row.get(3)?,
        next_at: row.get(4)?,
        failures: row.get(5)?,
        paused: row.get(6)?,
        result: row.get(7)?,
        created_at: row.get(8)?,
        updated_at: row.get(9)?,
    })
}
