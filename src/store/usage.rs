//! Tokens, by turn.

use rusqlite::{Connection, params};
use uuid::Uuid;

use super::{StoreError, now_ms};

/// What one turn used, or several together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Tokens {
    pub turns: u64,
    pub input: u64,
    pub output: u64,
    /// Of the input, read from the service's cache.
    pub cached: u64,
}

pub fn add(connection: &Connection, turn: Uuid, session: &str, model: &str, used: Tokens) -> Result<(), StoreError> {
    connection
        .prepare_cached(
            "INSERT OR REPLACE INTO usage (turn, session, model, input_tokens, output_tokens, cached_tokens, at)
             VALUES (?, ?, ?, ?, ?, ?, ?)",
        )?
        .execute(params![turn.to_string(), session, model, used.input, used.output, used.cached, now_ms()])?;
    Ok(())
}

/// What all turns since `from_ms` used.
pub fn since(connection: &Connection, from_ms: i64) -> Result<Tokens, StoreError> {
    sum(
        connection,
        "SELECT count(*), total(input_tokens), total(output_tokens), total(cached_tokens) FROM usage WHERE at >= ?",
        params![from_ms],
    )
}

/// What all turns of a session used.
pub fn of_session(connection: &Connection, session: &str) -> Result<Tokens, StoreError> {
    sum(
        connection,
        "SELECT count(*), total(input_tokens), total(output_tokens), total(cached_tokens) FROM usage WHERE session = ?",
        params![session],
    )
}

fn sum(connection: &Connection, sql: &str, parameters: &[&dyn rusqlite::ToSql]) -> Result<Tokens, StoreError> {
    let whole = |row: &rusqlite::Row<'_>, at: usize| row.get::<_, f64>(at).map(|total| total as u64);
    Ok(connection.prepare_cached(sql)?.query_row(parameters, |row| {
        Ok(Tokens { turns: row.get(0)?, input: whole(row, 1)?, output: whole(row, 2)?, cached: whole(row, 3)? })
    })?)
}
