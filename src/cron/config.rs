//! `[cron]`: the configuration as written, and the settings with which jobs run.

use std::sync::Arc;
use std::time::Duration;

use daoyou_channels::settings::HumanDuration;
use daoyou_channels::trust::TrustLists;
use jiff::tz::TimeZone;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;
use tokio::sync::Notify;

use crate::bus::DeliveryChannels;
use crate::phrases::Phrases;

/// Scheduled prompts.
#[derive(Clone, Debug, SmartDefault, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CronConfig {
    /// Runs the jobs. If false, jobs can be created and listed, and wait.
    #[default = true]
    pub enabled: bool,
    /// The maximum number of jobs; one more is refused.
    #[schemars(range(min = 1, max = 1_000_000))]
    #[default = 10_000]
    pub max_jobs: u32,
    /// A slot missed by more does not run late, unless the job says otherwise. Jobs of one time (`at`) run however late.
    #[default(HumanDuration::from_secs(86_400))]
    pub stale_after: HumanDuration,
    /// The maximum number of missed slots, the newest ones, that `misfire = "all"` runs late.
    #[schemars(range(min = 1, max = 1_000))]
    #[default = 10]
    pub catch_up: u32,
    /// A job that fails so often in a row is paused, and the owner is informed.
    #[schemars(range(min = 1))]
    #[default = 5]
    pub pause_after: u32,
    /// The runs that are kept of each job.
    #[schemars(range(min = 1))]
    #[default = 200]
    pub keep_runs: u32,
    /// A prompt that repeats more often is refused; 0 allows any interval. Messages need no model and may repeat at any
    /// interval.
    #[default(HumanDuration::from_secs(60))]
    pub min_interval: HumanDuration,
    /// The tokens that jobs and their sub-agents may use in a day (midnight to midnight in `agent.timezone`). After that,
    /// prompts are skipped until the next day, one-time prompts are postponed to it, and the owner is informed. Runs that the owner
    /// starts with `cron run` are not held back. 0: no limit.
    pub tokens_per_day: u64,
}

/// The settings with which jobs run. A reload creates new ones.
#[derive(Clone, Debug)]
pub struct CronSettings {
    pub config: CronConfig,
    pub channels: DeliveryChannels,
    /// The longest time of an orderly stop. Slots within it do not count as missed.
    pub drain_timeout: Duration,
    /// The owner's zone.
    pub zone: TimeZone,
    /// The texts of notices in chats.
    pub phrases: &'static Phrases,
    /// Channel and chat of the owner's notices.
    pub owner: (String, String),
    /// The senders of each channel, by which a job loses the trust that its sender loses.
    pub trust: TrustLists,
}

/// Wakes the cron service. Cheap to clone; without a service, it does nothing.
#[derive(Clone, Debug, Default)]
pub struct CronHandle(pub(super) Arc<Notify>);

impl CronHandle {
    /// Wakes the service after a change of jobs or settings.
    pub fn wake(&self) {
        self.0.notify_one();
    }
}
