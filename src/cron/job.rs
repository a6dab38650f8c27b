//! The parts of a job.

use std::collections::BTreeSet;

use daoyou_channels::settings::HumanDuration;
use daoyou_channels::{SessionKey, Trust};
use jiff::tz::TimeZone;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{Schedule, time_zone};
use crate::origin::{OwnerIdentity, TurnOrigin};
use crate::store::StoreError;
use crate::store::jobs::JobRow;

/// The task of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", content = "text", rename_all = "snake_case")]
pub enum JobTask {
    /// A prompt for the model: a template with `{{ time }}`, `{{ last_run }}`, `{{ last_result }}`, `{{ name }}`.
    Prompt(String),
    /// A message that is delivered unchanged, without a model.
    Message(String),
}

/// The chat that receives the output of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeliveryTarget {
    pub channel: String,
    pub chat_id: String,
    /// The session of that chat, whose history records the output.
    pub session: SessionKey,
    /// The metadata of the message that created the job there; the channel needs it to reply, for example in a mail's
    /// thread.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub metadata: Map<String, Value>,
    /// The person for whom the runs act, and the settings of their turns.
    #[serde(default, skip_serializing_if = "TurnOrigin::is_default")]
    pub origin: TurnOrigin,
}

/// The creator of a job: the trust of the job's turns, and the chat that may manage the job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobMaker {
    pub trust: Trust,
    pub channel: String,
    pub chat_id: String,
    /// The sender whose entry in `owner.identities` gave the trust; the runs have it only as long as the entry exists. Absent for the
    /// owner's own terminal and page, and in jobs of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<OwnerIdentity>,
}

impl JobMaker {
    /// Returns true for a job of the owner that an earlier version made in a chat with several possible senders, without a record of
    /// the sender.
    pub fn is_unrecorded(&self) -> bool {
        self.trust == Trust::Owner && self.identity.is_none() && OwnerIdentity::of(&self.channel, "").is_some()
    }
}

/// When the output of a job is delivered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DeliveryMode {
    #[default]
    Always,
    /// When it differs from the output of the last run.
    OnChange,
    /// When the model does not answer `NO_REPLY`.
    WhenAsked,
}

/// What happens to missed slots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MisfirePolicy {
    /// One run replaces all of them.
    #[default]
    Once,
    /// Each of them runs late, up to `cron.catch_up`.
    All,
    Skip,
}

/// The JSON of a job's row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobBody {
    pub schedule: Schedule,
    pub task: JobTask,
    pub target: DeliveryTarget,
    pub maker: JobMaker,
    /// The session in which the prompts run, with its history; absent: a session of its own, without history.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionKey>,
    /// `PROVIDER/MODEL`; absent: the agent's model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The agent that answers, by name; absent: that of the turn that made the job, or of the chat.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    #[serde(default)]
    pub deliver: DeliveryMode,
    #[serde(default)]
    pub misfire: MisfirePolicy,
    /// The age from which a missed slot does not run late; absent: `cron.stale_after`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stale_after: Option<HumanDuration>,
    /// The longest random delay of a run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jitter: Option<HumanDuration>,
    /// The job is removed after its run.
    #[serde(default)]
    pub delete_after_run: bool,
}

/// A job with its row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    pub row: JobRow,
    pub body: JobBody,
}

impl Job {
    /// Returns the zone of the job's schedule, or `default` for a schedule without one.
    pub fn zone(&self, default: &TimeZone) -> TimeZone {
        let own = match &self.body.schedule {
            Schedule::Days { tz, .. } | Schedule::Cron { tz, .. } => time_zone(tz).ok(),
            Schedule::At { .. } | Schedule::Every { .. } => None,
        };
        own.unwrap_or_else(|| default.clone())
    }

    /// Reads a row.
    ///
    /// # Errors
    /// This program cannot read the body.
    pub fn read(row: JobRow) -> Result<Self, StoreError> {
        let body = serde_json::from_str(&row.body)?;
        Ok(Self { row, body })
    }

    /// Returns the names of the foreign content behind the last result; the job itself if they are unknown.
    pub fn result_taint(&self) -> BTreeSet<String> {
        let Some(_) = self.row.result else { return BTreeSet::new() };
        let known = self.row.result_taint.as_deref().and_then(|names| serde_json::from_str(names).ok());
        known.unwrap_or_else(|| [format!("job:{}", self.row.id)].into())
    }

    /// Returns the session in which the prompts run.
    pub fn session(&self) -> SessionKey {
        let own = || SessionKey::from(format!("cron:{}", self.row.id));
        self.body.session.clone().unwrap_or_else(own)
    }
}
