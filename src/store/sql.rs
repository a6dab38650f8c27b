//! Shorthands for cached statements.

use rusqlite::types::{FromSql, ValueRef};
use rusqlite::{Connection, OptionalExtension, Params, Row};
use uuid::Uuid;

use super::StoreError;

/// A row as a struct; [`stored_row`] implements it.
pub trait StoredRow: Sized {
    /// The names of the fields, which are also the columns of a query for such rows, unless the query computes some of them.
    const COLUMNS: &'static str;

    /// Reads a row that begins with these columns.
    fn read(row: &Row<'_>) -> Result<Self, StoreError>;
}

/// Implements [`StoredRow`] for a type with these fields: `stored_row! { Row: name, id by read_uuid }`. A function after `by` reads a
/// column whose value the field does not hold as it is.
macro_rules! stored_row {
    ($row:ident: $($field:ident $(by $read:ident)?),+) => {
        impl $crate::store::sql::StoredRow for $row {
            const COLUMNS: &'static str = stored_row!(@names $($field)+);

            fn read(row: &rusqlite::Row<'_>) -> Result<Self, $crate::store::StoreError> {
                let mut at = 0_usize;
                let mut next = || {
                    at += 1;
                    at - 1
                };
                Ok(Self { $($field: stored_row!(@read row, next() $(, $read)?)),+ })
            }
        }
    };
    (@names $first:ident $($next:ident)*) => { concat!(stringify!($first) $(, ", ", stringify!($next))*) };
    (@read $row:ident, $at:expr) => { $row.get($at)? };
    (@read $row:ident, $at:expr, $read:ident) => { $read($row, $at)? };
}
pub(super) use stored_row;

/// Returns all rows of a query, which begins after `FROM`.
pub fn find_rows<R: StoredRow>(
    connection: &Connection,
    source: &str,
    parameters: impl Params,
) -> Result<Vec<R>, StoreError> {
    select_parsed(connection, &format!("SELECT {} FROM {source}", R::COLUMNS), parameters, R::read)
}

/// Returns the first row of a query, which begins after `FROM`, if there is one.
pub fn find_row<R: StoredRow>(
    connection: &Connection,
    source: &str,
    parameters: impl Params,
) -> Result<Option<R>, StoreError> {
    select_optional_parsed(connection, &format!("SELECT {} FROM {source}", R::COLUMNS), parameters, R::read)
}

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
    text.parse().map_err(|_| StoreError::Row(format!("{text:?} is not an id")))
}

/// Reads a column with a UUID or nothing.
pub fn read_optional_uuid(row: &Row<'_>, at: usize) -> Result<Option<Uuid>, StoreError> {
    if row.get_ref(at)? == ValueRef::Null { Ok(None) } else { read_uuid(row, at).map(Some) }
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
