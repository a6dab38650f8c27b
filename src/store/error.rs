//! Errors of the store.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// A failed read or write, or a store that could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("database: {0}")]
    Sqlite(#[from] rusqlite::Error),
    /// A row's content is invalid.
    #[error("database: {0}")]
    Row(String),
    #[error("the group of writes this belonged to was rolled back: {0}")]
    Group(String),
    #[error(
        "{path} was written by a newer daoyou (format {found}; this one knows up to {known}): update daoyou, or restore a backup"
    )]
    Newer { path: PathBuf, found: i64, known: i64 },
    #[error(
        "{path} is damaged ({reason}): `daoyou gateway` moves it aside and recovers what can be read; `daoyou restore FILE` replaces it by a backup"
    )]
    Damaged { path: PathBuf, reason: String },
    #[error("{path} is a database of another program: move it away, or choose another home with --home")]
    Foreign { path: PathBuf },
    #[error("{path} cannot be opened: {reason}")]
    Open { path: PathBuf, reason: String },
    /// The disk has no room for the files that opening or repairing the database writes.
    #[error("{path} cannot be opened: {reason}")]
    Full { path: PathBuf, reason: String },
    #[error("the store is closed")]
    Closed,
}

impl StoreError {
    /// Returns true if the disk, or the user's quota, is full.
    pub fn is_full(&self) -> bool {
        match self {
            Self::Full { .. } => true,
            Self::Sqlite(error) => error.sqlite_error_code() == Some(rusqlite::ErrorCode::DiskFull),
            _ => false,
        }
    }

    /// Returns the failure to open the database at `path` because of `error`, with the description `reason`.
    pub(super) fn open_error(path: &Path, error: &io::Error, reason: String) -> Self {
        let within = error.get_ref().and_then(|error| error.downcast_ref::<Self>());
        let path = path.to_owned();
        match matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
            || within.is_some_and(Self::is_full)
        {
            true => Self::Full { path, reason },
            false => Self::Open { path, reason },
        }
    }

    /// Returns true if a search index is damaged. It is derived from other tables and can be rebuilt.
    pub fn is_index_fault(&self) -> bool {
        matches!(self, Self::Sqlite(error) if Self::is_index_error(error))
    }

    /// Does the same for an error of SQLite.
    pub(super) fn is_index_error(error: &rusqlite::Error) -> bool {
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
