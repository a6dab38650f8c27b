//! `[cron]`.

use daoyou_channels::settings::Span;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Scheduled prompts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CronConfig {
    /// Run them. Off: jobs can be made and listed, and wait.
    pub enabled: bool,
    /// Jobs at most; one more is refused.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub max_jobs: u32,
    /// A slot that was missed by more is not made up for, unless the job says otherwise. Jobs of one time (`at`) run however
    /// late.
    pub stale_after: Span,
    /// Missed slots that `misfire = "all"` makes up for, the newest.
    #[schemars(range(min = 1, max = 1_000))]
    pub catch_up: u32,
    /// A job that fails so often in a row pauses, and its owner is told.
    #[schemars(range(min = 1))]
    pub pause_after: u32,
    /// Runs that are kept of each job.
    #[schemars(range(min = 1))]
    pub keep_runs: u32,
    /// A prompt that repeats more often is refused; 0 allows any. Messages need no model and repeat as often as they like.
    pub min_interval: Span,
    /// Tokens that jobs and their sub-agents may use a day (midnight to midnight in `agent.timezone`); then prompts are skipped until
    /// the next, and the owner is told. 0: no limit.
    pub tokens_per_day: u64,
}

impl Default for CronConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            max_jobs: 10_000,
            stale_after: Span::from_secs(86_400),
            catch_up: 10,
            pause_after: 5,
            keep_runs: 200,
            min_interval: Span::from_secs(60),
            tokens_per_day: 0,
        }
    }
}
