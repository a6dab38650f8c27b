//! What holds for all jobs while they run: the settings, and the words of the owner's language.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::tz::TimeZone;
use tokio::sync::Notify;

use super::CronConfig;

/// What daoyou itself says of jobs in chats; `{}` stands for what is filled in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Words {
    /// Name, failures in a row, the last one's reason, id.
    pub paused: &'static str,
    /// Name, reason.
    pub failed: &'static str,
    /// Name, why nothing can be sent there, id.
    pub unreachable: &'static str,
    /// Name, the limit.
    pub braked: &'static str,
}

/// How jobs run. A reload makes new ones.
#[derive(Clone, Debug)]
pub struct Rules {
    pub enabled: bool,
    /// How late a missed slot may be that is made up for, unless its job says otherwise.
    pub stale_after: Duration,
    /// Missed slots that are made up for at most.
    pub catch_up: usize,
    /// Failures in a row after which a job pauses.
    pub pause_after: u32,
    /// Runs that are kept of each job.
    pub keep_runs: u32,
    /// The shortest time between two slots of a prompt; a job that would repeat sooner is refused when it is made or imported.
    pub min_interval: Duration,
    /// Tokens that jobs may use a day; 0 is no limit.
    pub tokens_per_day: u64,
    /// The channels that are switched on, and whether each can be sent what it did not ask for.
    pub channels: BTreeMap<String, bool>,
    /// How long an orderly stop may take: what is due meanwhile is not missed.
    pub drain_timeout: Duration,
    /// The owner's.
    pub zone: TimeZone,
    pub words: Words,
    /// Channel and chat where the owner is told.
    pub owner: Option<(String, String)>,
}

impl Rules {
    /// The settings of `config`, with what other areas know.
    pub fn new(config: &CronConfig, zone: TimeZone, words: Words, drain_timeout: Duration) -> Self {
        Self {
            enabled: config.enabled,
            stale_after: config.stale_after.0,
            catch_up: usize::try_from(config.catch_up).unwrap_or(usize::MAX),
            pause_after: config.pause_after,
            keep_runs: config.keep_runs,
            min_interval: config.min_interval.0,
            tokens_per_day: config.tokens_per_day,
            channels: BTreeMap::new(),
            drain_timeout,
            zone,
            words,
            owner: None,
        }
    }
}

impl Rules {
    /// Why nobody would read what a job sends to `channel`; `None` where somebody may.
    pub fn why_unreachable(&self, channel: &str) -> Option<String> {
        match self.channels.get(channel) {
            Some(true) => None,
            Some(false) => Some(format!("{channel} has no callback_url, so nobody reads there what was not asked for")),
            None => Some(format!("there is no channel {channel:?} that is switched on")),
        }
    }
}

/// Makes the service look at once. Cheap to copy; wakes nobody where none runs.
#[derive(Clone, Debug, Default)]
pub struct CronHandle(pub(super) Arc<Notify>);

impl CronHandle {
    /// A job was made, changed or removed, or the settings were.
    pub fn wake(&self) {
        self.0.notify_one();
    }
}

/// Puts `values` where `{}` stands, in order.
pub(super) fn fill(template: &str, values: &[&str]) -> String {
    let mut values = values.iter();
    let mut filled = String::with_capacity(template.len() + 64);
    for (at, piece) in template.split("{}").enumerate() {
        if at > 0 {
            filled.push_str(values.next().copied().unwrap_or_default());
        }
        filled.push_str(piece);
    }
    filled
}
