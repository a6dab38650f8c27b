//! By what jobs are made and shown.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::{JobError, Language, Rules, ScheduleError, Settings, time_zone};

/// What holds for everybody who makes or shows jobs; a reload replaces it.
#[derive(Clone, Debug)]
pub struct Terms {
    pub settings: Settings,
    /// The providers that a model can be of.
    pub providers: BTreeSet<String>,
    pub language: Language,
    /// By what they run.
    pub rules: Arc<Rules>,
}

impl Terms {
    /// The zone of times that name none.
    pub fn zone(&self) -> &TimeZone {
        &self.rules.zone
    }

    /// The zone of this name; without one the usual.
    ///
    /// # Errors
    /// There is none of that name.
    pub fn zone_of(&self, name: Option<&str>) -> Result<TimeZone, JobError> {
        match name {
            None => Ok(self.zone().clone()),
            Some(name) => time_zone(name).map_err(|ScheduleError(words)| JobError::Wrong(words)),
        }
    }

    /// Refuses a channel on which nobody would read what a job sends.
    ///
    /// # Errors
    /// Says why, and names those on which somebody would.
    pub fn check_channel(&self, channel: &str) -> Result<(), JobError> {
        let Some(why) = self.rules.why_unreachable(channel) else { return Ok(()) };
        let known = self.rules.channels.iter().filter(|(_, is_read)| **is_read).map(|(name, _)| name.as_str());
        let known = known.collect::<Vec<_>>().join(", ");
        let callback = match channel.strip_prefix("webhook:").filter(|_| self.rules.channels.contains_key(channel)) {
            Some(hook) => format!("set channels.webhook.{hook}.callback_url, or "),
            None => String::new(),
        };
        Err(JobError::Wrong(format!("channel: {why}; {callback}name another channel and chat: there are {known}")))
    }

    /// Refuses a model of a provider that is not there; what a name without a provider means is known when it is asked.
    ///
    /// # Errors
    /// Names those that are.
    pub fn check_model(&self, model: &str) -> Result<(), JobError> {
        match model.split_once('/') {
            Some((provider, _)) if !self.providers.contains(provider) => {
                let known: Vec<_> = self.providers.iter().map(String::as_str).collect();
                Err(JobError::Wrong(format!(
                    "model: there is no provider {provider:?}; there are {}",
                    known.join(", ")
                )))
            }
            _ => Ok(()),
        }
    }
}

/// A moment by the clock of `zone`, with seconds where there are any.
pub(super) fn clock(at: Timestamp, zone: &TimeZone) -> String {
    let at = at.to_zoned(zone.clone());
    at.strftime(if at.second() == 0 { "%Y-%m-%d %H:%M" } else { "%Y-%m-%d %H:%M:%S" }).to_string()
}
