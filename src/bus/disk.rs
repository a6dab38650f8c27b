//! The reserve of free disk space that accepted messages are answered from.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

/// Watches the file system that holds the store.
pub struct DiskReserve {
    folder: PathBuf,
    reserve: AtomicU64,
}

impl DiskReserve {
    /// Keeps `reserve` bytes free on the file system of `folder`.
    pub fn new(folder: PathBuf, reserve: u64) -> Self {
        Self { folder, reserve: AtomicU64::new(reserve) }
    }

    /// Keeps so many bytes free from now on.
    pub fn set_reserve(&self, reserve: u64) {
        self.reserve.store(reserve, Ordering::Relaxed);
    }

    /// `Err` says in words how little is left. A file system that does not tell is taken to have room: the write
    /// itself will say otherwise.
    pub fn check(&self) -> Result<(), String> {
        let Ok(stat) = rustix::fs::statvfs(&self.folder) else { return Ok(()) };
        let free = stat.f_bavail.saturating_mul(stat.f_frsize);
        let reserve = self.reserve.load(Ordering::Relaxed);
        if free < reserve {
            return Err(format!("only {free} bytes are free on disk, {reserve} are kept in reserve"));
        }
        Ok(())
    }
}
