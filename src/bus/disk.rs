//! The reserve of free disk space that accepted messages are answered from.

use std::path::PathBuf;

/// Watches the file system that holds the store.
pub struct DiskReserve {
    folder: PathBuf,
}

impl DiskReserve {
    pub fn new(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// Checks that `reserve` bytes are free; the error says how little is left. If the file system does not tell, the write itself
    /// will fail.
    pub fn check(&self, reserve: u64) -> Result<(), String> {
        let Ok(stat) = rustix::fs::statvfs(&self.folder) else { return Ok(()) };
        let free = stat.f_bavail.saturating_mul(stat.f_frsize);
        if free < reserve {
            return Err(format!("only {free} bytes are free on disk, {reserve} are kept in reserve"));
        }
        Ok(())
    }
}
