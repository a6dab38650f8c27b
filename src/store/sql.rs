//! Shorthands for cached statements.

use rusqlite::types::FromSql;
use rusqlite::{Connection, OptionalExtension, Params, Row};

use super::StoreError;

/// Returns all rows of a query, in a collection that the caller chooses.
pub fn select<T, C: FromIterator<T>>(
    connection: &Connection,
    sql: &str,
    parameters: impl Params,
    read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
) -> Result<C, StoreError> {
    let mut statement = connection.prepare_cached(sql)?;
    let rows = statement.query_map(parameters, read)?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Returns all rows of a query; `read` parses their content.
pub fn select_parsed<T>(
    connection: &Connection,
    sql: &str,
    parameters: impl Params,
    read: impl FnMut(&Row<'_>) -> Result<T, StoreError>,
) -> Result<Vec<T>, StoreError> {
    connection.prepare_cached(sql)?.query_and_then(parameters, read)?.collect()
}

/// Returns the first row of a query.
///
/// # Errors
/// The query fails or returns no row.
pub fn select_one<T>(
    connection: &Connection,
    sql: &str,
    parameters: impl Params,
    read: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
) -> Result<T, StoreError> {
    Ok(connection.prepare_cached(sql)?.query_row(parameters, read)?)
}

/// Returns the first row of a query, if there is one.
pub fn select_optional<T>(
    connection: &Connection,
    sql: &str,
    parameters: impl Params,
    read: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
) -> Result<Option<T>, StoreError> {
    Ok(connection.prepare_cached(sql)?.query_row(parameters, read).optional()?)
}

/// Returns the first column of the first row of a query.
///
/// # Errors
/// The query fails or returns no row.
pub fn select_value<T: FromSql>(connection: &Connection, sql: &str, parameters: impl Params) -> Result<T, StoreError> {
    select_one(connection, sql, parameters, |row| row.get(0))
}

/// Executes a statement; returns the number of changed rows.
pub fn execute(connection: &Connection, sql: &str, parameters: impl Params) -> Result<usize, StoreError> {
    Ok(connection.prepare_cached(sql)?.execute(parameters)?)
}
