//! The gateway's own periodic work: maintenance of the store, the heartbeat, and a wake-up of the cron service. Jobs of the
//! owner do not run here: their times are exact and are kept in the store.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use jiff::Timestamp;
use tokio_util::sync::CancellationToken;

use super::runtime::Runtime;
use super::settings::heartbeat_settings;
use super::upkeep::Upkeep;
use crate::cron::heartbeat::{Heartbeat, is_fast};
use crate::live::Live;

/// How often the wall clock is read: a clock that was set, or a machine that slept, is noticed within this time.
const POLL: Duration = Duration::from_millis(500);
/// Seconds between two rounds of maintenance.
const ROUND: i64 = 3_600;

/// The periodic work of a running gateway.
pub(super) struct PeriodicWork {
    pub upkeep: Upkeep,
    /// A process that serves one conversation has none.
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

    /// Ticks when the wall clock begins a minute; each second if the heartbeat was configured so at the start.
    async fn tick_each_minute(&self) {
        let seconds = if is_fast(self.runtime.get().config.heartbeat.every) { 1 } else { 60 };
        loop {
            next_period(seconds, 0).await;
            isolate(self.tick()).await;
        }
    }

    /// Maintains the store an hour after the start, and every hour from then on.
    async fn maintain_each_hour(&self) {
        let start = Timestamp::now().as_second();
        loop {
            next_period(ROUND, start).await;
            isolate(self.upkeep.maintain()).await;
        }
    }

    async fn tick(&self) {
        // The clock may have been set, or the machine may have slept.
        let runtime = self.runtime.get();
        runtime.jobs.wake();
        self.upkeep.bus.expire_requests().await;
        if let Some(heartbeat) = &self.heartbeat {
            heartbeat.tick(&heartbeat_settings(&runtime.config), Timestamp::now()).await;
        }
    }
}

/// Waits until the wall clock enters another period of `seconds`, counted from `start`; forwards or backwards. tokio's `interval`
/// follows the monotonic clock, which neither sleeps of the machine nor a clock that is set move.
async fn next_period(seconds: i64, start: i64) {
    let period = || (Timestamp::now().as_second() - start).div_euclid(seconds);
    let current = period();
    while period() == current {
        tokio::time::sleep(POLL).await;
    }
}

/// Runs `work`; a panic in it is logged by the panic hook, and ends this run alone.
async fn isolate(work: impl Future<Output = ()>) {
    // The work is tried again in the next period.
    let _ = AssertUnwindSafe(work).catch_unwind().await;
}
