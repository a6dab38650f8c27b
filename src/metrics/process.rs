//! The process itself, under the names that Prometheus recommends.
//! <https://prometheus.io/docs/instrumenting/writing_clientlibs/#process-metrics>

use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::process::{Resource, getrlimit};

use super::{MetricKind, MetricsPage};

/// Writes the values that the system provides.
pub fn write(page: &mut MetricsPage, started: SystemTime) {
    let mut gauge = |name, help, value: Option<f64>| {
        if let Some(value) = value {
            page.family(name, MetricKind::Gauge, help);
            page.sample(&[], value);
        }
    };
    let bytes = resident_bytes().map(|bytes| bytes as f64);
    gauge("process_resident_memory_bytes", "Resident memory size in bytes.", bytes);
    // Reading the folder opens one descriptor itself.
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
