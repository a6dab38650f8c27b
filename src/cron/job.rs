//! What a job is.

use daoyou_channels::settings::Span;
use daoyou_channels::{SessionKey, Trust};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::Schedule;
use crate::origin::TurnOrigin;
use crate::store::StoreError;
use crate::store::jobs::JobRow;

/// What a job does when it is due.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", content = "text", rename_all = "snake_case")]
pub enum Task {
    /// The model answers it, a template: `{{ time }}`, `{{ last_run }}`, `{{ last_result }}`, `{{ name }}`.
    Prompt(String),
    /// It is delivered as it stands, without a model.
    Message(String),
}

/// Where what a job answers is delivered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    pub channel: String,
    pub chat_id: String,
    /// The session of that chat, which is told what the job said there.
    pub session: SessionKey,
    /// The metadata of the message by which the job was made there, which the channel needs to answer it: a mail's thread.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub metadata: Map<String, Value>,
    /// Whom the runs act for, and what is set for their turns.
    #[serde(default, skip_serializing_if = "TurnOrigin::is_default")]
    pub origin: TurnOrigin,
}

/// Who made a job: its turns are trusted no further, and he finds it again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Maker {
    pub trust: Trust,
    pub channel: String,
    pub chat_id: String,
}

/// When what a job answers is delivered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Deliver {
    #[default]
    Always,
    /// When it is not what the last run answered.
    OnChange,
    /// When the model does not answer `NO_REPLY`.
    WhenAsked,
}

/// What is done about slots that were missed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Misfire {
    /// One run stands for all of them.
    #[default]
    Once,
    /// Each is made up for, up to `cron.catch_up`.
    All,
    Skip,
}

/// What stands in a job's row, as JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobBody {
    pub schedule: Schedule,
    pub task: Task,
    pub target: Target,
    pub maker: Maker,
    /// The session that its prompts run in, with what was said there; absent: one of its own, where each run begins anew.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionKey>,
    /// `PROVIDER/MODEL`; absent is the agent's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    #[serde(default)]
    pub deliver: Deliver,
    #[serde(default)]
    pub misfire: Misfire,
    /// A slot missed by more is not made up for; absent: `cron.stale_after`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stale_after: Option<Span>,
    /// Each run is put off by up to this much, at random.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jitter: Option<Span>,
    /// The job is removed when it has run.
    #[serde(default)]
    pub delete_after_run: bool,
}

/// A job as it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    pub row: JobRow,
    pub body: JobBody,
}

impl Job {
    /// Reads a row.
    ///
    /// # Errors
    /// Its body is none that this program can read.
    pub fn read(row: JobRow) -> Result<Self, StoreError> {
        let body = serde_json::from_str(&row.body)?;
        Ok(Self { row, body })
    }

    /// The session that its prompts run in.
    pub fn session(&self) -> SessionKey {
        let own = || SessionKey::from(format!("cron:{}", self.row.id));
        self.body.session.clone().unwrap_or_else(own)
    }
}
