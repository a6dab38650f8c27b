//! All metrics of a gateway.

use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::process::{Resource, getrlimit};

use super::{
    CacheMetrics, CronMetrics, HttpMetrics, MessageMetrics, MetricsPage, ScrapedState, StoreMetrics, TurnMetrics,
};

/// The metrics of a gateway, shared by all its parts.
#[derive(Debug)]
pub struct Metrics {
    pub messages: MessageMetrics,
    pub turns: TurnMetrics,
    pub store: StoreMetrics,
    pub http: HttpMetrics,
    pub caches: CacheMetrics,
    pub cron: CronMetrics,
    started: SystemTime,
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            messages: MessageMetrics::default(),
            turns: TurnMetrics::default(),
            store: StoreMetrics::default(),
            http: HttpMetrics::default(),
            caches: CacheMetrics::default(),
            cron: CronMetrics::default(),
            started: SystemTime::now(),
        }
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
        write_process(&mut page, self.started);
        page
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
