//! The context in which jobs are created and shown.

use std::collections::BTreeSet;
use std::sync::Arc;

use daoyou_channels::{Trust, email};
use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::jobs::invalid;
use super::{CronSettings, JobError, time_zone};
use crate::text::{Language, one_line, truncate};

/// The context that the tool, the commands and the API share; a reload replaces it.
#[derive(Clone, Debug)]
pub struct JobContext {
    /// The providers of models.
    pub providers: BTreeSet<String>,
    /// The names of the agents.
    pub agents: BTreeSet<String>,
    pub language: Language,
    /// The settings with which jobs run.
    pub settings: Arc<CronSettings>,
}

impl JobContext {
    /// Returns the zone for times without one.
    pub fn zone(&self) -> &TimeZone {
        &self.settings.zone
    }

    /// Returns the zone of this name, or the default zone.
    ///
    /// # Errors
    /// No zone has this name.
    pub fn zone_of(&self, name: Option<&str>) -> Result<TimeZone, JobError> {
        match name {
            None => Ok(self.zone().clone()),
            Some(name) => Ok(time_zone(name)?),
        }
    }

    /// Checks that someone reads the output of a job on `channel`, given the trust of the job's creator.
    ///
    /// # Errors
    /// Those of [`DeliveryChannels::check`](crate::bus::DeliveryChannels::check).
    pub fn check_channel(&self, channel: &str, trust: Trust) -> Result<(), JobError> {
        self.settings.channels.check(channel, trust).or_else(invalid)
    }

    /// Checks that a chat can receive messages: that [`Self::check_channel`] accepts its channel, and that a chat of
    /// the channel `email` is an address or a thread.
    ///
    /// # Errors
    /// The chat cannot receive messages; the text gives the reason.
    pub fn check_chat(&self, channel: &str, chat_id: &str) -> Result<(), JobError> {
        self.check_channel(channel, Trust::Owner)?;
        match email::check_chat(chat_id).err().filter(|_| channel == email::NAME) {
            Some(fault) => invalid(format!("chat: {fault}")),
            None => Ok(()),
        }
    }

    /// Refuses a model of an unknown provider. A name without a provider is resolved when the model is called.
    ///
    /// # Errors
    /// Names the known providers.
    pub fn check_model(&self, model: &str) -> Result<(), JobError> {
        match model.split_once('/') {
            Some((provider, _)) if !self.providers.contains(provider) => {
                let known = joined(&self.providers);
                invalid(format!("model: there is no provider {provider:?}; there are {known}"))
            }
            _ => Ok(()),
        }
    }

    /// Returns the own name of an agent.
    ///
    /// # Errors
    /// There is no such agent; the error names the existing ones.
    pub fn agent(&self, name: &str) -> Result<String, JobError> {
        match self.agents.iter().find(|known| known.eq_ignore_ascii_case(name)) {
            Some(found) => Ok(found.clone()),
            None => {
                let (name, known) = (truncate(&one_line(name), 80), joined(&self.agents));
                invalid(format!("Agent '{name}' not found; agents: {known}"))
            }
        }
    }
}

fn joined(names: &BTreeSet<String>) -> String {
    names.iter().map(String::as_str).collect::<Vec<_>>().join(", ")
}

/// Formats a moment by the clock of `zone`, with seconds unless they are 0.
pub(super) fn format_clock(at: Timestamp, zone: &TimeZone) -> String {
    let at = at.to_zoned(zone.clone());
    at.strftime(if at.second() == 0 { "%Y-%m-%d %H:%M" } else { "%Y-%m-%d %H:%M:%S" }).to_string()
}
