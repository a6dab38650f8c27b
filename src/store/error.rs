//! Errors of the store.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// The reason why nothing can be written while the disk is full.
pub const DISK_FULL: &str = "the disk that holds the home is full";

/// A failed read or write, or a store that could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("{}", describe(.0))]
    Sqlite(#[from] rusqlite::Error),
    /// A row's content is invalid.
    #[error("database: {0}")]
    Row(String),
    #[error("a write panicked; the log says where")]
    Panicked,
    /// The commit that this write belonged to failed.
    #[error("it could not be stored: {0}")]
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
    #[error("{path} cannot be opened: {DISK_FULL}")]
    Full { path: PathBuf },
    #[error("the disk of the copy is full")]
    CopyFull,
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

    /// Returns true if the same write fails however often it is repeated: it panics, a row's content is invalid, or the content
    /// violates a constraint of the database. A full disk, a lock, and a failed read or write of the file are temporary.
    pub fn is_permanent(&self) -> bool {
        use rusqlite::{Error, ErrorCode};
        match self {
            Self::Row(_) | Self::Panicked => true,
            Self::Sqlite(Error::SqliteFailure(failure, _)) => {
                matches!(failure.code, ErrorCode::ConstraintViolation | ErrorCode::TypeMismatch | ErrorCode::TooBig)
            }
            Self::Sqlite(
                Error::FromSqlConversionFailure(..)
                | Error::IntegralValueOutOfRange(..)
                | Error::InvalidColumnType(..)
                | Error::ToSqlConversionFailure(_)
                | Error::Utf8Error(..)
                | Error::QueryReturnedNoRows,
            ) => true,
            _ => false,
        }
    }

    /// Returns the error for opening the database at `path`, caused by `error`, with the description `reason`.
    pub(super) fn open_error(path: &Path, error: &io::Error, reason: String) -> Self {
        let within = error.get_ref().and_then(|error| error.downcast_ref::<Self>());
        let path = path.to_owned();
        match matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
            || within.is_some_and(Self::is_full)
        {
            true => Self::Full { path },
            false => Self::Open { path, reason },
        }
    }

    /// Returns true if a search index is damaged. It is derived from other tables and can be rebuilt.
    pub fn is_index_fault(&self) -> bool {
        matches!(self, Self::Sqlite(error) if Self::is_index_error(error))
    }

    /// Returns true if an error of SQLite reports a damaged search index.
    pub(super) fn is_index_error(error: &rusqlite::Error) -> bool {
        matches!(error, rusqlite::Error::SqliteFailure(failure, _)
            if failure.extended_code == rusqlite::ffi::SQLITE_CORRUPT_VTAB)
    }
}

/// Describes an error of SQLite.
pub(super) fn describe(error: &rusqlite::Error) -> String {
    match error.sqlite_error_code() {
        Some(rusqlite::ErrorCode::DiskFull) => DISK_FULL.to_owned(),
        _ => format!("database: {error}"),
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

#[cfg(test)]
mod tests {
    use rusqlite::ffi;

    use super::*;

    #[test]
    fn only_failures_of_the_write_itself_are_permanent() {
        let sqlite = |code| StoreError::Sqlite(rusqlite::Error::SqliteFailure(ffi::Error::new(code), None));
        for (error, expected) in [
            (StoreError::Row("expected value at line 1".to_owned()), true),
            (StoreError::Panicked, true),
            (StoreError::Group("disk I/O error".to_owned()), false),
            (StoreError::Closed, false),
            (sqlite(ffi::SQLITE_CONSTRAINT_UNIQUE), true),
            (sqlite(ffi::SQLITE_MISMATCH), true),
            (sqlite(ffi::SQLITE_TOOBIG), true),
            (sqlite(ffi::SQLITE_FULL), false),
            (sqlite(ffi::SQLITE_BUSY), false),
            (sqlite(ffi::SQLITE_IOERR_WRITE), false),
            (sqlite(ffi::SQLITE_READONLY), false),
            (StoreError::Sqlite(rusqlite::Error::QueryReturnedNoRows), true),
        ] {
            assert_eq!(error.is_permanent(), expected, "{error:?}");
        }
        assert_eq!(sqlite(ffi::SQLITE_FULL).to_string(), DISK_FULL);
    }
}
