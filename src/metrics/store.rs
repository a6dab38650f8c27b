//! Metrics of the store's commits.

use std::time::Duration;

use super::{Counter, Histogram, MetricsPage};

/// The bucket bounds in seconds: from a commit in memory to a disk that hangs.
const SECONDS: &[f64] =
    &[0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0];
/// The bucket bounds for the number of writes that share one commit.
const WRITES: &[f64] = &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0];

/// Metrics of commits. Synced commits wait for the disk.
#[derive(Debug, Default)]
pub struct StoreMetrics {
    synced: CommitMetrics,
    logged: CommitMetrics,
    failures: Counter,
}

#[derive(Debug)]
struct CommitMetrics {
    duration: Histogram,
    writes: Histogram,
}

impl Default for CommitMetrics {
    fn default() -> Self {
        Self { duration: Histogram::new(SECONDS), writes: Histogram::new(WRITES) }
    }
}

impl StoreMetrics {
    /// Records a commit of a group of `writes`.
    pub fn committed(&self, is_synced: bool, writes: usize, took: Duration) {
        let commits = if is_synced { &self.synced } else { &self.logged };
        commits.duration.observe_duration(took);
        commits.writes.observe(writes as f64);
    }

    /// Records a group of writes that could not be committed.
    pub fn failed(&self) {
        self.failures.increment();
    }

    pub(super) fn write(&self, page: &mut MetricsPage) {
        let kinds = [("synced", &self.synced), ("logged", &self.logged)];
        page.histogram(
            "daoyou_store_commit_duration_seconds",
            "Duration of commits: synced ones wait for the disk, logged ones reach it with the next synced one.",
        );
        for (kind, commits) in kinds {
            page.buckets(&[("commit", kind)], &commits.duration);
        }
        page.histogram("daoyou_store_commit_writes", "Writes that shared one commit.");
        for (kind, commits) in kinds {
            page.buckets(&[("commit", kind)], &commits.writes);
        }
        page.counter("daoyou_store_commit_failures_total", "Groups of writes that were not committed.");
        page.sample(&[], self.failures.get());
    }
}
