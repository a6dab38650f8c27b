//! Detection of changed files.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The metadata of a file that changes when the file is written or replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileStamp {
    inode: (u64, u64),
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl FileStamp {
    /// Reads the stamp of the file at `path`; `None` if there is no such file.
    pub fn read(path: &Path) -> Option<Self> {
        let meta = path.metadata().ok()?;
        Some(Self {
            inode: (meta.dev(), meta.ino()),
            size: meta.size(),
            modified: (meta.mtime(), meta.mtime_nsec()),
            changed: (meta.ctime(), meta.ctime_nsec()),
        })
    }
}
