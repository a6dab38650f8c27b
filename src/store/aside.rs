//! Files that belong to a database, and how one is moved aside: nothing that somebody might still read is overwritten.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

/// The write-ahead log of a database.
pub fn log_of(database: &Path) -> PathBuf {
    with_suffix(database, "-wal")
}

/// The index of that log, shared among processes.
pub fn index_of(database: &Path) -> PathBuf {
    with_suffix(database, "-shm")
}

pub fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}

/// A name that nothing has: `PATH.WORD-20261121T063000Z`, with a number where there is one already.
pub fn name_for(path: &Path, word: &str) -> PathBuf {
    let stamp = jiff::Timestamp::now().strftime("%Y%m%dT%H%M%SZ").to_string();
    let first = with_suffix(path, &format!(".{word}-{stamp}"));
    let later = (2..).map(|number| with_suffix(&first, &format!("-{number}")));
    let mut names = std::iter::once(first.clone()).chain(later);
    names.find(|name| fs::symlink_metadata(name).is_err()).unwrap_or(first)
}

/// The last part of a path, for people.
pub fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Removes a file that may be there.
pub fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Renames a file that may be there; answers whether it was.
pub fn rename(from: &Path, to: &Path) -> io::Result<bool> {
    match fs::rename(from, to) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Brings the names in the folder of `path` to the disk itself.
pub fn sync_folder(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(folder) => File::open(folder)?.sync_all(),
        None => Ok(()),
    }
}
