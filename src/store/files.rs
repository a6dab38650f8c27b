//! The files of a database. Files are moved aside instead of overwritten, since the owner may still need them.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

/// Returns the path of a database's write-ahead log.
pub fn log_path(database: &Path) -> PathBuf {
    with_suffix(database, "-wal")
}

/// Returns the path of the write-ahead log's index, which processes share.
pub fn log_index_path(database: &Path) -> PathBuf {
    with_suffix(database, "-shm")
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
pub fn set_log_aside(path: &Path) -> io::Result<PathBuf> {
    let log = log_path(path);
    let aside = unused_name(&log, "stale");
    rename(&log, &aside)?;
    remove(&log_index_path(path))?;
    Ok(aside)
}

/// Returns the result of work on a file, or `None` if the file does not exist.
pub fn if_exists<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(done) => Ok(Some(done)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Removes a file if it exists.
pub fn remove(path: &Path) -> io::Result<()> {
    if_exists(fs::remove_file(path)).map(drop)
}

/// Renames a file if it exists.
pub fn rename(from: &Path, to: &Path) -> io::Result<()> {
    if_exists(fs::rename(from, to)).map(drop)
}

/// Syncs the folder of `path`, so that its file names are on disk.
pub fn sync_folder(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(folder) => File::open(folder)?.sync_all(),
        None => Ok(()),
    }
}
