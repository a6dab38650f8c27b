//! Scheduled prompts.

use std::time::Duration;

use super::{Counter, Histogram, MetricsPage};

/// Seconds after the due time.
const SECONDS: &[f64] = &[0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0, 60.0, 600.0, 3_600.0, 86_400.0];

/// Metrics of the due times of all jobs.
#[derive(Debug)]
pub struct CronMetrics {
    fired: Counter,
    skipped: Counter,
    missed: Counter,
    failed: Counter,
    lateness: Histogram,
}

impl Default for CronMetrics {
    fn default() -> Self {
        let none = Counter::default;
        Self { fired: none(), skipped: none(), missed: none(), failed: none(), lateness: Histogram::new(SECONDS) }
    }
}

impl CronMetrics {
    /// Records due times: `lateness` has an entry for each run that was started.
    pub fn fired(&self, lateness: &[Duration], skipped: u64, missed: u64, failed: u64) {
        self.fired.add(u64::try_from(lateness.len()).unwrap_or(u64::MAX));
        self.skipped.add(skipped);
        self.missed.add(missed);
        self.failed.add(failed);
        for late in lateness {
            self.lateness.observe_duration(*late);
        }
    }

    /// Records a run whose turn failed.
    pub fn run_failed(&self) {
        self.failed.increment();
    }

    pub(super) fn write(&self, page: &mut MetricsPage) {
        page.counter(
            "daoyou_cron_slots_total",
            "Due times of jobs: run, skipped (the previous run was not done) or missed (the gateway did not run).",
        );
        for (outcome, count) in [("run", &self.fired), ("skipped", &self.skipped), ("missed", &self.missed)] {
            page.sample(&[("outcome", outcome)], count.get());
        }
        page.counter("daoyou_cron_failures_total", "Failed runs of jobs.");
        page.sample(&[], self.failed.get());
        page.histogram("daoyou_cron_lateness_seconds", "Delay between a run's due time and its start.");
        page.buckets(&[], &self.lateness);
    }
}
