//! Removes deleted text from the write-ahead log. SQLite overwrites deleted content in the database file, but the log keeps earlier
//! versions of the pages until it is used again from its beginning. A write that must leave no trace requests an empty log, and the
//! writer thread empties the log between two groups of writes. It does so at each start as well, since the last process may have been
//! killed before.

use std::cell::Cell;
use std::time::{Duration, Instant};

/// The first and the longest pause between two attempts while readers use the log, for example a backup.
const FIRST_RETRY: Duration = Duration::from_secs(1);
const LONGEST_RETRY: Duration = Duration::from_secs(60);
/// The time after which the next attempt waits for the next write. Such a long reader is a fault, for which no thread waits.
const PATIENCE: Duration = Duration::from_secs(600);

thread_local! {
    /// Set on the writer thread, which runs all writes, until the writer takes it.
    static IS_REQUESTED: Cell<bool> = const { Cell::new(false) };
}

/// Requests, in a write, that the log is emptied after the commit.
pub fn request() {
    IS_REQUESTED.set(true);
}

/// The request for an empty log that the writer thread has to serve.
#[derive(Debug)]
pub struct LogPurge {
    /// The time at which the newest request that is not served was found.
    since: Option<Instant>,
    /// The time of the last attempt, and the pause after it.
    attempt: Option<(Instant, Duration)>,
}

impl LogPurge {
    /// Returns the request that each start makes.
    pub fn at_start() -> Self {
        Self { since: Some(Instant::now()), attempt: None }
    }

    /// Takes a new request, after a commit.
    pub fn take_request(&mut self) {
        if IS_REQUESTED.take() {
            *self = Self::at_start();
        }
    }

    /// Returns true if an attempt is due now. The log must be empty then, however short it is.
    pub fn is_due(&self) -> bool {
        self.since.is_some() && self.attempt.is_none_or(|(at, pause)| at.elapsed() >= pause)
    }

    /// Records an attempt that did not empty the log. Returns the time until the next attempt; `None` if it waits for a write.
    pub fn failed(&mut self) -> Option<Duration> {
        let since = self.since?;
        let pause = self.attempt.map_or(FIRST_RETRY, |(_, pause)| LONGEST_RETRY.min(pause * 2));
        self.attempt = Some((Instant::now(), pause));
        (since.elapsed() < PATIENCE).then_some(pause)
    }

    /// Records that the log is empty.
    pub fn succeeded(&mut self) {
        *self = Self { since: None, attempt: None };
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use rusqlite::Connection;

    use super::*;
    use crate::store::{Durability, Store, database, files, meta};

    async fn is_emptied(log: &Path) -> bool {
        for _ in 0..1_000 {
            if fs::metadata(log).map_or(0, |log| log.len()) == 0 {
                return true;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        false
    }

    #[tokio::test]
    async fn deleted_text_leaves_the_log_as_soon_as_no_reader_uses_it() {
        let (folder, store) = Store::temporary();
        let path = store.path().to_owned();
        let log = files::log_path(&path);
        let holds = |path: &Path| fs::read(path).unwrap().windows(8).any(|bytes| bytes == b"elephant");
        let say = |connection: &Connection| meta::set(connection, "animal", "elephant");
        store.write(Durability::Synced, say).await.unwrap();
        let reader = database::open_reader(&path).unwrap();
        reader.execute_batch("BEGIN").unwrap();
        let _: i64 = reader.query_row("SELECT count(*) FROM meta", [], |row| row.get(0)).unwrap();
        let remove = |connection: &Connection| {
            request();
            meta::set(connection, "animal", "")
        };
        store.write(Durability::Synced, remove).await.unwrap();
        assert!(holds(&log), "the reader still needs it");

        // The files that a killed process leaves.
        let killed = folder.path().join("killed");
        fs::create_dir(&killed).unwrap();
        let copy = killed.join("daoyou.db");
        fs::copy(&path, &copy).unwrap();
        fs::copy(&log, files::log_path(&copy)).unwrap();
        let next = Store::open(&copy).unwrap();
        assert!(is_emptied(&files::log_path(&copy)).await && !holds(&copy));
        next.close().await;

        reader.execute_batch("COMMIT").unwrap();
        assert!(is_emptied(&log).await && !holds(&path), "without a further write");
        store.close().await;
    }
}
