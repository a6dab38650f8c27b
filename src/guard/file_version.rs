//! Detection of changed files.

use std::path::Path;

use rustix::fs::{Stat, lstat, stat};

/// What tells one version of a file from another: device, inode, size and the time of the last change (ctime), which programs cannot
/// set. A program that maps a file can change it without any of them: for what has to be certain, the content is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FileVersion {
    file: (u64, u64),
    size: i64,
    changed: (i64, i64),
}

impl FileVersion {
    pub fn of(found: &Stat) -> Self {
        Self {
            file: (found.st_dev, found.st_ino),
            size: found.st_size,
            changed: (found.st_ctime, found.st_ctime_nsec.cast_signed()),
        }
    }

    /// Returns the version of what is at `path`, a link itself included; `None` if there is nothing.
    pub fn of_entry(path: &Path) -> Option<Self> {
        lstat(path).ok().map(|found| Self::of(&found))
    }

    /// Returns the version of the file that `path` leads to; `None` if there is none.
    pub fn of_target(path: &Path) -> Option<Self> {
        stat(path).ok().map(|found| Self::of(&found))
    }
}
