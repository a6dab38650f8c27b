//! All metrics of a gateway, with those of the commits of its store and of its process.

use std::fs;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::process::{Resource, getrlimit};

use super::{
    CacheMetrics, Counter, CronMetrics, Histogram, HttpMetrics, MessageMetrics, MetricsPage, ScrapedState, TurnMetrics,
};

/// The metrics of a gateway, shared by all its parts.
#[derive(Debug, Default)]
pub struct Metrics {
    pub messages: MessageMetrics,
    pub turns: TurnMetrics,
    pub store: StoreMetrics,
    pub http: HttpMetrics,
    pub caches: CacheMetrics,
    pub cron: CronMetrics,
    started: StartTime,
}

/// The time at which the metrics were created, which is that of the start.
#[derive(Debug)]
struct StartTime(SystemTime);

impl Default for StartTime {
    fn default() -> Self {
        Self(SystemTime::now())
    }
}

impl Metrics {
    /// Returns the page, including the state that is read at each scrape.
    pub fn page(&self, scraped: &ScrapedState) -> MetricsPage {
        let mut page = MetricsPage::default();
        page.gauge("daoyou_build_info", "Always 1; the labels identify the build.");
        let build = if cfg!(debug_assertions) { "debug" } else { "release" };
        page.sample(&[("version", env!("CARGO_PKG_VERSION")), ("build", build)], 1_u8);
        self.messages.write(&mut page);
        self.turns.write(&mut page);
        self.caches.write(&mut page);
        self.cron.write(&mut page);
        scraped.write(&mut page);
        self.store.write(&mut page);
        self.http.write(&mut page);
        write_process(&mut page, self.started.0);
        page
    }
}

/// The bucket bounds in seconds: from a commit in memory to a disk that hangs.
const COMMIT_SECONDS: &[f64] =
    &[0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0];
/// The bucket bounds for the number of writes that share one commit.
const COMMIT_WRITES: &[f64] = &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0];

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
        Self { duration: Histogram::new(COMMIT_SECONDS), writes: Histogram::new(COMMIT_WRITES) }
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

    fn write(&self, page: &mut MetricsPage) {
        let kinds = [("synced", &self.synced), ("logged", &self.logged)];
        page.histogram(
            "daoyou_store_commit_duration_seconds",
            "Duration of commits: synced ones wait for the disk, logged ones reach it with the next synced one.",
        );
        page.samples("commit", kinds.map(|(kind, commits)| (kind, &commits.duration)));
        page.histogram("daoyou_store_commit_writes", "Writes that shared one commit.");
        page.samples("commit", kinds.map(|(kind, commits)| (kind, &commits.writes)));
        page.counter("daoyou_store_commit_failures_total", "Groups of writes that were not committed.");
        page.sample(&[], &self.failures);
    }
}

/// Writes the values of the process that the system provides, under the names that Prometheus recommends:
/// <https://prometheus.io/docs/instrumenting/writing_clientlibs/#process-metrics>.
fn write_process(page: &mut MetricsPage, started: SystemTime) {
    let mut gauge = |name, help, value: Option<f64>| {
        if let Some(value) = value {
            page.gauge(name, help);
            page.sample(&[], value);
        }
    };
    let bytes = resident_bytes().map(|bytes| bytes as f64);
    gauge("process_resident_memory_bytes", "Resident memory size in bytes.", bytes);
    // Reading the folder itself opens one descriptor.
    let open = fs::read_dir("/proc/self/fd").ok().map(|entries| entries.count().saturating_sub(1) as f64);
    gauge("process_open_fds", "Number of open file descriptors.", open);
    let most = getrlimit(Resource::Nofile).current.map(|most| most as f64);
    gauge("process_max_fds", "Maximum number of open file descriptors.", most);
    let since = started.duration_since(UNIX_EPOCH).ok().map(|since| since.as_secs_f64());
    gauge("process_start_time_seconds", "Start time of the process since unix epoch in seconds.", since);
}

fn resident_bytes() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes * 1_024)
}
