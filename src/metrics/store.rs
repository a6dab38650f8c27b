//! Commits of the store.

use std::time::Duration;

use super::{Counter, Histogram, Kind, Page};

/// Seconds: from a commit in memory to a disk that hangs.
const SECONDS: &[f64] =
    &[0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0];
/// Writes of one commit, up to as many as share one.
const WRITES: &[f64] = &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0];

/// What is known of commits: `synced` ones waited for the disk.
#[derive(Debug, Default)]
pub struct StoreMetrics {
    synced: Commits,
    logged: Commits,
    failures: Counter,
}

#[derive(Debug)]
struct Commits {
    duration: Histogram,
    writes: Histogram,
}

impl Default for Commits {
    fn default() -> Self {
        Self { duration: Histogram::new(SECONDS), writes: Histogram::new(WRITES) }
    }
}

impl StoreMetrics {
    /// A group of `writes` was committed.
    pub fn committed(&self, is_synced: bool, writes: usize, took: Duration) {
        let commits = if is_synced { &self.synced } else { &self.logged };
        commits.duration.time(took);
        commits.writes.observe(writes as f64);
    }

    /// A group of writes could not be committed.
    pub fn failed(&self) {
        self.failures.one();
    }

    pub(super) fn write(&self, page: &mut Page) {
        let kinds = [("synced", &self.synced), ("logged", &self.logged)];
        page.family(
            "daoyou_store_commit_duration_seconds",
            Kind::Histogram,
            "How long commits took: synced ones wait for the disk, logged ones reach it with the next synced one.",
        );
        for (kind, commits) in kinds {
            page.histogram(&[("commit", kind)], &commits.duration);
        }
        page.family("daoyou_store_commit_writes", Kind::Histogram, "Writes that shared one commit.");
        for (kind, commits) in kinds {
            page.histogram(&[("commit", kind)], &commits.writes);
        }
        page.family("daoyou_store_commit_failures_total", Kind::Counter, "Groups of writes that were not committed.");
        page.sample(&[], self.failures.get());
    }
}
