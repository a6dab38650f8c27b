//! The store: one SQLite file that holds everything accepted. Queues in memory contain only signals to read the store.
//!
//! One writer thread commits the writes of many callers in groups; readers run in parallel. Each table family has its own file,
//! whose functions take a connection and run inside the caller's write or read.

mod database;
mod error;
mod files;
mod handle;
mod health;
mod high_water_mark;
mod migrations;
mod opening;
mod salvage;
mod salvage_rows;
#[cfg(test)]
mod salvage_tests;
mod sql;
mod wal;
mod writer;

#[cfg(any(test, fuzzing))]
pub mod fuzz;

pub mod access;
pub mod approvals;
pub mod backup;
pub mod changes;
pub mod checkpoints;
pub mod cursors;
pub mod disk_usage;
pub mod forgetting;
pub mod inbox;
pub mod inspection;
pub mod job_runs;
pub mod jobs;
pub mod log_purge;
pub mod losses;
pub mod memories;
pub mod memory_lines;
pub mod memory_queries;
pub mod messages;
pub mod meta;
pub mod notes;
pub mod outbox;
pub mod overview;
pub mod ownership;
pub mod processes;
pub mod questions;
pub mod queues;
pub mod retention;
pub mod search_index;
pub mod session_import;
pub mod session_memory;
pub mod session_tools;
pub mod spawns;
pub mod turn_steps;
pub mod usage;
pub mod vector_codes;
pub mod vectors;

pub use error::{DISK_FULL, StoreError};
pub use handle::{DETACHED, Store, USE_COPY};
pub use opening::write_alone;
pub use retention::{RetainConfig, StoreConfig};
pub use rusqlite::Connection;
pub use salvage::repair;
pub use writer::{Durability, GroupCommit, OnCommit};

#[cfg(test)]
impl Store {
    /// Opens a new store in a temporary folder.
    pub fn temporary() -> (tempfile::TempDir, Self) {
        let folder = tempfile::tempdir().expect("temporary files can be made");
        let store = Self::open(&folder.path().join("daoyou.db")).expect("a new store");
        (folder, store)
    }
}

/// Returns the current time in the store's unit, UTC milliseconds.
pub fn now_ms() -> i64 {
    jiff::Timestamp::now().as_millisecond()
}

/// Returns a duration in milliseconds, the store's unit; at most `i64::MAX / 2`, so that a time can be added.
pub fn millis(duration: std::time::Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX / 2)
}
