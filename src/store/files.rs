//! The files of a database. Files are moved aside instead of overwritten, since the owner may still need them.

use std::ffi::OsString;
use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::process::geteuid;

/// Returns the path of a database's write-ahead log.
pub fn log_path(database: &Path) -> PathBuf {
    with_suffix(database, "-wal")
}

/// Returns the path of the write-ahead log's index, which processes share.
pub fn log_index_path(database: &Path) -> PathBuf {
    with_suffix(database, "-shm")
}

/// Returns the files that SQLite opens for the database at `path`.
fn all_of(path: &Path) -> [PathBuf; 3] {
    [path.to_owned(), log_path(path), log_index_path(path)]
}

/// Lets this user read and write its own files of the database at `path` again, and logs this. SQLite opens a database without write
/// permission nevertheless, and gives the new log the same mode: a log that nobody can write makes each later start fail, even after
/// the database itself can be written again.
pub fn make_writable(path: &Path) {
    const OF_OWNER: u32 = 0o600;
    for path in all_of(path) {
        let Ok(found) = fs::symlink_metadata(&path) else { continue };
        let mode = found.mode() & 0o7777;
        if !found.is_file() || found.uid() != geteuid().as_raw() || mode & OF_OWNER == OF_OWNER {
            continue;
        }
        let (shown, right) = (path.display(), mode | OF_OWNER);
        match fs::set_permissions(&path, Permissions::from_mode(right)) {
            Ok(()) => tracing::warn!(
                path = %shown,
                "the database could not be written (mode {mode:03o}): repaired, mode {right:03o}"
            ),
            Err(error) => tracing::warn!(
                path = %shown, %error,
                "the database cannot be written (mode {mode:03o}), and the mode could not be repaired"
            ),
        }
    }
}

pub fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}

/// Returns an unused name `PATH.WORD-20261121T063000Z`, with a number appended if that name exists.
pub fn unused_name(path: &Path, word: &str) -> PathBuf {
    let stamp = jiff::Timestamp::now().strftime("%Y%m%dT%H%M%SZ").to_string();
    let first = with_suffix(path, &format!(".{word}-{stamp}"));
    let later = (2..).map(|number| with_suffix(&first, &format!("-{number}")));
    let mut names = std::iter::once(first.clone()).chain(later);
    names.find(|name| fs::symlink_metadata(name).is_err()).unwrap_or(first)
}

/// Returns the last part of a path, for display.
pub fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Moves the write-ahead log of the database at `path` aside, and removes its index. Returns the new name of the log.
///
/// # Errors
/// The log cannot be renamed, or its index cannot be removed. Missing files are not an error.
pub fn set_log_aside(path: &Path) -> io::Result<PathBuf> {
    let log = log_path(path);
    let aside = unused_name(&log, "stale");
    rename(&log, &aside)?;
    remove(&log_index_path(path))?;
    Ok(aside)
}

/// Returns the result of work on a file, or `None` if the file does not exist.
///
/// # Errors
/// The error of `result`, unless it is [`io::ErrorKind::NotFound`].
pub fn if_exists<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(done) => Ok(Some(done)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Removes a file if it exists.
///
/// # Errors
/// The file exists and cannot be removed.
pub fn remove(path: &Path) -> io::Result<()> {
    if_exists(fs::remove_file(path)).map(drop)
}

/// Renames a file if it exists.
///
/// # Errors
/// The file exists and cannot be renamed.
pub fn rename(from: &Path, to: &Path) -> io::Result<()> {
    if_exists(fs::rename(from, to)).map(drop)
}

/// Syncs the folder of `path`, so that its file names are on disk.
///
/// # Errors
/// The folder cannot be opened or synced.
pub fn sync_folder(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(folder) => File::open(folder)?.sync_all(),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Store;

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    #[tokio::test]
    async fn a_database_whose_files_were_closed_is_opened_again() {
        let (folder, store) = Store::temporary();
        let path = folder.path().join("daoyou.db");
        store.close().await;
        set_mode(&path, 0o400);
        Store::open(&path).unwrap().close().await;
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        // A failed start of an earlier version has left these.
        for path in [log_path(&path), log_index_path(&path)] {
            fs::write(&path, "").unwrap();
            set_mode(&path, 0o400);
        }
        let store = Store::open(&path).unwrap();
        for path in all_of(&path) {
            assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600, "{}", path.display());
        }
        store.close().await;
    }
}
