//! The gateway's own periodic work, on one scheduler: the store's upkeep, the heartbeat, and a look at the clock. Jobs of the
//! owner are not run here: their times are exact and stand in the store.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use tokio_cron_scheduler::{Job, JobScheduler, JobSchedulerError};
use tokio_util::sync::CancellationToken;

use super::equip::{self, Equipment};
use super::upkeep::Upkeep;
use crate::cron::heartbeat::{Heartbeat, is_fast};

const EACH_MINUTE: &str = "0 * * * * *";
const EACH_SECOND: &str = "* * * * * *";

/// When the scheduler should have called at least once. It goes by the wall clock alone: when that is set back by an hour it
/// calls nobody for an hour, and a new one is made.
const WATCH: Duration = Duration::from_secs(90);

/// What is done from time to time while a gateway runs.
pub(super) struct Periodic {
    work: Arc<Work>,
    upkeep: Arc<Upkeep>,
    /// Looks at the clock up to now.
    looks: Arc<AtomicU64>,
}

/// The heartbeat, one tick at a time.
struct Work {
    heartbeat: Option<Heartbeat>,
    equipment: Equipment,
    ticking: tokio::sync::Mutex<()>,
}

impl Periodic {
    /// Without a heartbeat where the process runs for one conversation.
    pub fn new(upkeep: Upkeep, heartbeat: Option<Heartbeat>, equipment: Equipment) -> Self {
        let work = Work { heartbeat, equipment, ticking: tokio::sync::Mutex::default() };
        Self { work: Arc::new(work), upkeep: Arc::new(upkeep), looks: Arc::default() }
    }

    /// Runs until `shutdown`.
    pub async fn run(self, shutdown: CancellationToken) {
        let upkeep = self.upkeep.clone();
        tokio::select! {
            () = shutdown.cancelled() => {}
            () = async { tokio::join!(upkeep.begin(), self.keep_running()); } => {}
        }
    }

    async fn keep_running(&self) {
        loop {
            let scheduler = match self.start().await {
                Ok(scheduler) => Some(Stopping(scheduler)),
                Err(error) => {
                    tracing::error!(%error, "the periodic work cannot be started; it is tried again");
                    None
                }
            };
            loop {
                let before = self.looks.load(Ordering::Relaxed);
                tokio::time::sleep(WATCH).await;
                if self.looks.load(Ordering::Relaxed) == before {
                    break;
                }
            }
            if scheduler.is_some() {
                tracing::warn!("the clock was set back, or the machine slept; the periodic work begins anew");
            }
        }
    }

    async fn start(&self) -> Result<JobScheduler, JobSchedulerError> {
        let scheduler = JobScheduler::new().await?;
        let (jobs, looks) = (self.work.equipment.jobs.clone(), self.looks.clone());
        scheduler
            .add(Job::new(EACH_MINUTE, move |_, _| {
                looks.fetch_add(1, Ordering::Relaxed);
                // The clock may have been set, or the machine have slept.
                jobs.wake();
            })?)
            .await?;
        let is_often = is_fast(self.work.equipment.config.get().heartbeat.every);
        let work = self.work.clone();
        let tick = move |_, _| -> std::pin::Pin<Box<dyn Future<Output = ()> + Send>> {
            let work = work.clone();
            Box::pin(async move { work.tick().await })
        };
        scheduler.add(Job::new_async(if is_often { EACH_SECOND } else { EACH_MINUTE }, tick)?).await?;
        // An hour after the start, and every hour from then on; one round at a time.
        let each_hour = Timestamp::now().strftime("0 %-M * * * *").to_string();
        let (upkeep, one) = (self.upkeep.clone(), Arc::new(tokio::sync::Mutex::new(())));
        let round = move |_, _| -> std::pin::Pin<Box<dyn Future<Output = ()> + Send>> {
            let (upkeep, one) = (upkeep.clone(), one.clone());
            Box::pin(async move {
                if let Ok(_alone) = one.try_lock() {
                    upkeep.go_round().await;
                }
            })
        };
        scheduler.add(Job::new_async(each_hour, round)?).await?;
        scheduler.start().await?;
        Ok(scheduler)
    }
}

impl Work {
    async fn tick(&self) {
        let (Some(heartbeat), Ok(_alone)) = (&self.heartbeat, self.ticking.try_lock()) else { return };
        heartbeat.tick(&equip::heartbeat(&self.equipment.config.get()), Timestamp::now()).await;
    }
}

/// Ends the scheduler's own tasks when the work ends.
struct Stopping(JobScheduler);

impl Drop for Stopping {
    fn drop(&mut self) {
        let mut scheduler = self.0.clone();
        tokio::spawn(async move {
            if let Err(error) = scheduler.shutdown().await {
                tracing::debug!(%error, "the scheduler of the periodic work did not stop");
            }
        });
    }
}
