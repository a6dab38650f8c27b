//! Detection of changed files.

use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{Stat, lstat, stat};

/// The facts that identify one version of a file: device, inode, size and the time of the last change (ctime), which programs
/// cannot set. A program that maps a file into memory can change it without changing these facts, so a check that must be certain
/// reads the content.
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

    /// Returns true if the file changed at this time or later. Times of some file systems are as coarse as the kernel's clock tick.
    pub fn changed_since(&self, time: SystemTime) -> bool {
        let (seconds, nanoseconds) = self.changed;
        let changed = u64::try_from(seconds).ok().zip(u32::try_from(nanoseconds).ok());
        let changed =
            changed.and_then(|(seconds, nanoseconds)| UNIX_EPOCH.checked_add(Duration::new(seconds, nanoseconds)));
        changed.is_none_or(|changed| changed >= time)
    }

    /// Returns the version of the entry at `path`, without following a link; `None` if the entry does not exist.
    pub fn of_entry(path: &Path) -> Option<Self> {
        lstat(path).ok().map(|found| Self::of(&found))
    }

    /// Returns the version of the file that `path` leads to; `None` if the file does not exist.
    pub fn of_target(path: &Path) -> Option<Self> {
        stat(path).ok().map(|found| Self::of(&found))
    }
}
