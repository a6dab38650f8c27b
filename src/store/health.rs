//! The health of the database. Once damage is found, nothing more is written, and a file beside the database makes the next start
//! check the database.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use rusqlite::ErrorCode;
use rusqlite::ffi::{SQLITE_CORRUPT_VTAB, SQLITE_IOERR_SHORT_READ};
use tokio_util::sync::CancellationToken;

use super::{StoreError, files};

/// The suspicion that the file beside a database records, as its first line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::Display, strum::EnumString)]
#[strum(serialize_all = "lowercase")]
pub enum DamageSuspicion {
    /// A read or write found damage.
    Damaged,
    /// A complete check found no damage.
    Checked,
    /// A complete check found no damage, and damage was found again later.
    #[strum(serialize = "damaged again")]
    DamagedAgain,
}

/// The health of one open database.
#[derive(Debug)]
pub struct DatabaseHealth {
    path: PathBuf,
    damage: OnceLock<String>,
    noticed: CancellationToken,
}

impl DatabaseHealth {
    pub fn new(database: &Path) -> Self {
        Self { path: database.to_owned(), damage: OnceLock::new(), noticed: CancellationToken::new() }
    }

    /// Records damage, for this process and for the next start, if `error` indicates it.
    pub fn observe(&self, error: &StoreError) {
        if let StoreError::Sqlite(error) = error {
            self.observe_sqlite(error);
        }
    }

    pub fn observe_sqlite(&self, error: &rusqlite::Error) {
        if is_damage(error) {
            self.report(&error.to_string());
        }
    }

    /// Records damage.
    pub fn report(&self, reason: &str) {
        if self.damage.set(reason.to_owned()).is_err() {
            return;
        }
        let path = self.path.display();
        tracing::error!(%path, reason, "the database is damaged; no more writes are accepted");
        let found = match suspicion(&self.path) {
            Some(DamageSuspicion::Checked | DamageSuspicion::DamagedAgain) => DamageSuspicion::DamagedAgain,
            Some(DamageSuspicion::Damaged) | None => DamageSuspicion::Damaged,
        };
        if let Err(error) = write_suspicion(&self.path, &format!("{found}\n{reason}\n")) {
            tracing::error!(%path, %error, "the suspicion of damage could not be recorded for the next start");
        }
        self.noticed.cancel();
    }

    /// Checks that no damage was found.
    ///
    /// # Errors
    /// The database is damaged and must not be written.
    pub fn check(&self) -> Result<(), StoreError> {
        match self.damage.get() {
            Some(reason) => Err(damaged_error(&self.path, reason)),
            None => Ok(()),
        }
    }

    /// Waits for damage and returns its description.
    pub async fn damaged(&self) -> String {
        self.noticed.cancelled().await;
        self.damage.get().cloned().unwrap_or_default()
    }
}

/// Returns the recorded suspicion of a database.
pub fn suspicion(database: &Path) -> Option<DamageSuspicion> {
    let text = fs::read_to_string(suspect_file(database)).ok()?;
    Some(text.lines().next().and_then(|word| word.parse().ok()).unwrap_or(DamageSuspicion::Damaged))
}

/// Records that a complete check found no damage. If damage is found again later, the next such check is not trusted.
///
/// # Errors
/// The file next to the database cannot be written.
pub fn record_sound_check(database: &Path) -> io::Result<()> {
    write_suspicion(database, &format!("{}\n", DamageSuspicion::Checked))
}

fn write_suspicion(database: &Path, text: &str) -> io::Result<()> {
    let mut options = OpenOptions::new();
    let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(suspect_file(database))?;
    file.write_all(text.as_bytes())
}

/// Removes the suspicion: the database was exchanged, or ran without a fault until an orderly end.
pub fn remove_suspicion(database: &Path) {
    if let Err(error) = files::remove(&suspect_file(database)) {
        tracing::warn!(%error, "the record of suspected damage could not be removed");
    }
}

/// Returns true if an error means that the file is damaged. A full-text index is derived from other tables, so its damage does
/// not count.
pub fn is_damage(error: &rusqlite::Error) -> bool {
    match error {
        rusqlite::Error::SqliteFailure(failure, _) => {
            // A short read means that the file was truncated, not that the disk failed.
            failure.extended_code == SQLITE_IOERR_SHORT_READ
                || matches!(failure.code, ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase)
                    && failure.extended_code != SQLITE_CORRUPT_VTAB
        }
        _ => false,
    }
}

pub fn damaged_error(database: &Path, reason: &str) -> StoreError {
    StoreError::Damaged { path: database.to_owned(), reason: reason.to_owned() }
}

fn suspect_file(database: &Path) -> PathBuf {
    database.with_extension("suspect")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn damage_is_recorded_for_the_next_start_and_a_sound_check_is_trusted_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("daoyou.db");
        let fault = |code| rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(code), None);
        let health = DatabaseHealth::new(&path);
        for harmless in [rusqlite::ffi::SQLITE_FULL, rusqlite::ffi::SQLITE_IOERR, SQLITE_CORRUPT_VTAB] {
            health.observe_sqlite(&fault(harmless));
            assert!(health.check().is_ok(), "{harmless}");
        }
        assert_eq!(suspicion(&path), None);
        for expected in [DamageSuspicion::Damaged, DamageSuspicion::DamagedAgain] {
            let health = DatabaseHealth::new(&path);
            health.observe(&StoreError::Sqlite(fault(rusqlite::ffi::SQLITE_CORRUPT)));
            assert!(matches!(health.check(), Err(StoreError::Damaged { .. })));
            assert_eq!(suspicion(&path), Some(expected));
            let mode = fs::metadata(suspect_file(&path)).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
            record_sound_check(&path).unwrap();
            assert_eq!(suspicion(&path), Some(DamageSuspicion::Checked));
        }
        remove_suspicion(&path);
        assert_eq!(suspicion(&path), None);
    }
}
