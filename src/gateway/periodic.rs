//! The gateway's own periodic work: maintenance of the store, the heartbeat, and a wake-up of the cron service. Jobs of the owner do
//! not run here: they have exact times, which are in the store.

use std::sync::Arc;
use std::time::Duration;

use daoyou_channels::text::catch_panic;
use jiff::Timestamp;
use tokio_util::sync::CancellationToken;

use super::runtime::Runtime;
use super::settings::heartbeat_settings;
use super::upkeep::Upkeep;
use crate::cron::heartbeat::{Heartbeat, is_fast};
use crate::live::Live;

/// The interval at which the wall clock is read. A changed clock, or the end of a machine's sleep, is noticed within this time.
const POLL: Duration = Duration::from_millis(500);
/// Seconds between two rounds of maintenance.
const ROUND: i64 = 3_600;

/// The periodic work of a running gateway.
pub(super) struct PeriodicWork {
    pub upkeep: Upkeep,
    /// `None` for a process that serves a single conversation.
    pub heartbeat: Option<Heartbeat>,
    pub runtime: Arc<Live<Runtime>>,
}

impl PeriodicWork {
    /// Runs until `shutdown`.
    pub async fn run(self, shutdown: CancellationToken) {
        let work = async {
            tokio::join!(
                isolate(self.upkeep.bus.expire_requests()),
                isolate(self.upkeep.check_after_start()),
                self.tick_each_minute(),
                self.maintain_each_hour()
            )
        };
        shutdown.run_until_cancelled(work).await;
    }

    /// Ticks when the wall clock begins a new minute, or each second if the heartbeat is configured so. A reload takes effect at once.
    async fn tick_each_minute(&self) {
        let seconds = || if is_fast(self.runtime.get().config.heartbeat.every) { 1 } else { 60 };
        loop {
            next_period(seconds, 0).await;
            isolate(self.tick()).await;
        }
    }

    /// Maintains the store an hour after the start and every hour thereafter.
    async fn maintain_each_hour(&self) {
        let start = Timestamp::now().as_second();
        loop {
            next_period(|| ROUND, start).await;
            isolate(self.upkeep.maintain()).await;
        }
    }

    async fn tick(&self) {
        // The clock may have been changed, or the machine may have slept.
        let runtime = self.runtime.get();
        runtime.jobs.wake();
        self.upkeep.rescue_database().await;
        self.upkeep.restore_temp_folder().await;
        self.upkeep.bus.expire_requests().await;
        if let Some(heartbeat) = &self.heartbeat {
            heartbeat.tick(&heartbeat_settings(&runtime.config), Timestamp::now()).await;
        }
    }
}

/// Waits until the wall clock enters another period of `seconds`, counted from `start`; the clock may move forwards or backwards, and
/// the length of the period may change.
/// tokio's `interval` follows the monotonic clock, which ignores a machine's sleep and a changed wall clock.
async fn next_period(seconds: impl Fn() -> i64, start: i64) {
    let period = || (Timestamp::now().as_second() - start).div_euclid(seconds());
    let current = period();
    while period() == current {
        tokio::time::sleep(POLL).await;
    }
}

/// Runs `work`. The panic hook logs a panic in it, which ends this run only.
async fn isolate(work: impl Future<Output = ()>) {
    // The next period tries the work again.
    let _ = catch_panic(work).await;
}
