//! Shorthands for cached statements.

use rusqlite::types::FromSql;
use rusqlite::{Connection, OptionalExtension, Params, Row};
use uuid::Uuid;

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

/// Returns the first row of a query, if there is one; `read` parses its content.
pub fn select_optional_parsed<T>(
    connection: &Connection,
    sql: &str,
    parameters: impl Params,
    read: impl FnMut(&Row<'_>) -> Result<T, StoreError>,
) -> Result<Option<T>, StoreError> {
    connection.prepare_cached(sql)?.query_and_then(parameters, read)?.next().transpose()
}

/// Reads a column with a UUID.
pub fn read_uuid(row: &Row<'_>, at: usize) -> Result<Uuid, StoreError> {
    let text = row.get_ref(at)?.as_str().map_err(rusqlite::Error::from)?;
    text.parse().map_err(|_| StoreError::Row(format!("{text:?} is no id")))
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
