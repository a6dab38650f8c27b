//! What can go wrong with the store.

use std::path::PathBuf;

/// A failed read or write, or a store that could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("database: {0}")]
    Sqlite(#[from] rusqlite::Error),
    /// What stands in a row cannot be read back.
    #[error("database: {0}")]
    Row(String),
    #[error("the group of writes this belonged to was rolled back: {0}")]
    Group(String),
    #[error(
        "{path} was written by a newer daoyou (format {found}; this one knows up to {known}): update daoyou, or restore a backup"
    )]
    Newer { path: PathBuf, found: i64, known: i64 },
    #[error(
        "{path} is damaged ({reason}): `daoyou gateway` moves it aside and takes over what can be read; `daoyou restore FILE` puts a backup in its place"
    )]
    Damaged { path: PathBuf, reason: String },
    #[error("{path} is a database of another program: move it away, or choose another home with --home")]
    Foreign { path: PathBuf },
    #[error("{path} cannot be opened: {reason}")]
    Open { path: PathBuf, reason: String },
    #[error("the store is closed")]
    Closed,
}

impl StoreError {
    /// Whether an index of words is damaged. It is made from other tables, and can be made anew.
    pub fn is_of_index(&self) -> bool {
        matches!(self, Self::Sqlite(error) if Self::is_of_index_error(error))
    }

    /// The same of an error of SQLite's.
    pub(super) fn is_of_index_error(error: &rusqlite::Error) -> bool {
        matches!(error, rusqlite::Error::SqliteFailure(failure, _)
            if failure.extended_code == rusqlite::ffi::SQLITE_CORRUPT_VTAB)
    }
}

impl From<serde_json::Error> for StoreError {
    fn from(error: serde_json::Error) -> Self {
        Self::Row(error.to_string())
    }
}

impl From<uuid::Error> for StoreError {
    fn from(error: uuid::Error) -> Self {
        Self::Row(error.to_string())
    }
}
