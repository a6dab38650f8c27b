//! Files and folders that exist only while a backup or a restore runs.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// A path that is removed on drop, unless it was renamed.
pub(super) struct TemporaryPath {
    pub path: PathBuf,
    remove: fn(&Path) -> io::Result<()>,
}

impl TemporaryPath {
    /// Removes the file `path` on drop.
    pub fn file(path: PathBuf) -> Self {
        Self { path, remove: |path| fs::remove_file(path) }
    }

    /// Removes the folder `path` with its contents on drop.
    pub fn folder(path: PathBuf) -> Self {
        Self { path, remove: |path| fs::remove_dir_all(path) }
    }
}

impl Drop for TemporaryPath {
    fn drop(&mut self) {
        if let Err(error) = (self.remove)(&self.path)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(path = %self.path.display(), %error, "a temporary file or folder could not be removed");
        }
    }
}
