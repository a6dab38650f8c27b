//! Scheduled prompts: the next due time of each, and the result of its runs. This file does not interpret the bodies.

use std::collections::BTreeSet;

use rusqlite::{Connection, Row, params};

use super::sql::{execute, find_row, find_rows, select_one, select_optional, select_value, stored_row};
use super::{StoreError, now_ms};

/// A job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobRow {
    pub id: String,
    pub name: String,
    /// JSON.
    pub body: String,
    pub enabled: bool,
    /// The next slot, in UTC milliseconds.
    pub next_at: Option<i64>,
    /// Consecutive runs that failed.
    pub failures: u32,
    /// The reason why daoyou disabled the job.
    pub pause_reason: Option<String>,
    /// The shortened answer of the last successful run.
    pub result: Option<String>,
    /// The names of the foreign content that this run had read, as a JSON list; `None` if they are unknown.
    pub result_taint: Option<String>,
    pub created_at: i64,
    pub updated_at: i64,
}

stored_row! {
    JobRow: id, name, body, enabled, next_at, failures, pause_reason, result, result_taint, created_at, updated_at
}

/// Inserts a job; returns whether its id was free.
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
    let added = execute(connection, sql, params![id, name, body, enabled, next_at, now, now])?;
    Ok(added == 1)
}

pub fn find(connection: &Connection, id: &str) -> Result<Option<JobRow>, StoreError> {
    find_row(connection, "jobs WHERE id = ?", [id])
}

/// The numbers of jobs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobCounts {
    pub enabled: u64,
    pub disabled: u64,
    /// The number of these jobs that daoyou disabled or set aside.
    pub paused: u64,
}

pub fn counts(connection: &Connection) -> Result<JobCounts, StoreError> {
    let sql = "SELECT coalesce(sum(enabled), 0), coalesce(sum(NOT enabled), 0), count(pause_reason) FROM jobs";
    let read = |row: &Row<'_>| Ok(JobCounts { enabled: row.get(0)?, disabled: row.get(1)?, paused: row.get(2)? });
    select_one(connection, sql, [], read)
}

/// Returns all jobs, the next due first, those without a slot last.
pub fn all(connection: &Connection) -> Result<Vec<JobRow>, StoreError> {
    find_rows(connection, "jobs ORDER BY next_at IS NULL, next_at, id", [])
}

pub fn find_by_name(connection: &Connection, name: &str) -> Result<Vec<JobRow>, StoreError> {
    find_rows(connection, "jobs WHERE name = ?1 ORDER BY id", [name])
}

pub fn count(connection: &Connection) -> Result<usize, StoreError> {
    select_value(connection, "SELECT count(*) FROM jobs", [])
}

/// Returns enabled jobs whose slot is at `now` or earlier, the earliest first.
pub fn due(connection: &Connection, now: i64, limit: u32) -> Result<Vec<JobRow>, StoreError> {
    let due = "jobs WHERE enabled = 1 AND next_at IS NOT NULL AND next_at <= ?1 ORDER BY next_at LIMIT ?2";
    find_rows(connection, due, params![now, limit])
}

/// Returns when the next enabled job is due.
pub fn next_due(connection: &Connection) -> Result<Option<i64>, StoreError> {
    let sql = "SELECT min(next_at) FROM jobs WHERE enabled = 1 AND next_at IS NOT NULL";
    select_value(connection, sql, [])
}

/// Sets the job's next slot, or none.
pub fn set_next(connection: &Connection, id: &str, next_at: Option<i64>) -> Result<(), StoreError> {
    execute(connection, "UPDATE jobs SET next_at = ? WHERE id = ?", params![next_at, id]).map(drop)
}

/// Moves the job's next slot, unless it differs from `from` or the job is disabled.
pub fn move_next(connection: &Connection, id: &str, from: Option<i64>, to: i64) -> Result<(), StoreError> {
    let sql = "UPDATE jobs SET next_at = ?, pause_reason = NULL WHERE id = ? AND next_at IS ? AND enabled = 1";
    execute(connection, sql, params![to, id, from]).map(drop)
}

/// Removes the job's next slot until the job is enabled or edited, or its row can be read again. The job stays enabled.
pub fn set_aside(connection: &Connection, id: &str, reason: &str) -> Result<(), StoreError> {
    let sql = "UPDATE jobs SET next_at = NULL, pause_reason = ? WHERE id = ?";
    execute(connection, sql, [reason, id]).map(drop)
}

/// Enables the job with its next slot, or disables it; resets its failures. Returns whether there is such a job.
pub fn set_enabled(
    connection: &Connection,
    id: &str,
    enabled: bool,
    next_at: Option<i64>,
    pause_reason: Option<&str>,
) -> Result<bool, StoreError> {
    let sql = "UPDATE jobs SET enabled = ?, next_at = ?, pause_reason = ?, failures = 0, updated_at = ? WHERE id = ?";
    Ok(execute(connection, sql, params![enabled, next_at, pause_reason, now_ms(), id])? == 1)
}

/// Replaces the job's content and schedule; resets its failures.
pub fn update(
    connection: &Connection,
    id: &str,
    name: &str,
    body: &str,
    next_at: Option<i64>,
) -> Result<bool, StoreError> {
    let sql = "UPDATE jobs SET name = ?, body = ?, next_at = ?, pause_reason = NULL, failures = 0, updated_at = ? WHERE id = ?";
    Ok(execute(connection, sql, params![name, body, next_at, now_ms(), id])? == 1)
}

/// Records a successful run, and the names of the foreign content that it had read.
pub fn set_result(connection: &Connection, id: &str, result: &str, taint: &BTreeSet<String>) -> Result<(), StoreError> {
    let sql = "UPDATE jobs SET result = ?, result_taint = ?, failures = 0 WHERE id = ?";
    execute(connection, sql, params![result, serde_json::to_string(taint)?, id]).map(drop)
}

/// Records a successful run without an answer.
pub fn count_success(connection: &Connection, id: &str) -> Result<(), StoreError> {
    let sql = "UPDATE jobs SET failures = 0 WHERE id = ? AND failures > 0";
    execute(connection, sql, [id]).map(drop)
}

/// Records a failed run; returns the number of consecutive failures.
pub fn count_failure(connection: &Connection, id: &str) -> Result<u32, StoreError> {
    execute(connection, "UPDATE jobs SET failures = failures + 1 WHERE id = ?", [id])?;
    let sql = "SELECT failures FROM jobs WHERE id = ?";
    Ok(select_optional(connection, sql, [id], |row| row.get(0))?.unwrap_or(0))
}

/// Deletes a job; returns whether there was one. Its runs stay.
pub fn remove(connection: &Connection, id: &str) -> Result<bool, StoreError> {
    Ok(execute(connection, "DELETE FROM jobs WHERE id = ?", [id])? == 1)
}
