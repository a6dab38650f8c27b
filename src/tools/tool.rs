//! What a tool is.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use daoyou_channels::{Attachment, SessionKey, Trust};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::Executor;
use crate::chat::ToolSpec;
use crate::origin::TurnOrigin;
use crate::store::{Connection, StoreError};

/// What a restart does with a call that was cut off in the middle.
///
/// The order is that of caution: a plan is as careful as the most careful tool in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Replay {
    /// Running it again changes nothing more: it is run again.
    Idempotent,
    /// All it does are [`Effect`]s, which are committed together with its result: cut off, it did nothing.
    Atomic,
    /// Whether it took effect is unknown: the model is told so. `tool_started` is on disk before it runs.
    Once,
}

/// Whether calls may run at the same time as others of the same response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// It only looks: it runs together with the reads beside it.
    Reads,
    /// It may change what others see: it runs alone, after those before it and before those behind it.
    Changes,
}

/// What a call does inside daoyou. Nothing happens when the tool returns it: the journal commits it with the result.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Puts a message into the outbox.
    Message {
        channel: String,
        chat_id: String,
        content: String,
        attachments: Vec<Attachment>,
        /// Where the channel knows such a thing.
        subject: Option<String>,
    },
    /// Writes other rows of daoyou's.
    Rows(Rows),
    /// The call has no result before this turn has ended: what stands there is void, and the call is run again then. Rows
    /// beside it are written at once.
    Await(Uuid),
}

/// Rows that a call writes in the commit of its result.
#[derive(Clone, Debug)]
pub struct Rows(pub Arc<dyn WriteRows>);

impl PartialEq for Rows {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// What [`Rows`] are made of.
pub trait WriteRows: Debug + Send + Sync {
    /// Writes them. What the tool has looked at before may have changed meanwhile: then nothing is written, or what is right
    /// now. A commit that is tried again calls it again.
    fn write(&self, connection: &Connection) -> Result<(), StoreError>;

    /// The commit is done: who has something to do now is woken.
    fn written(&self);
}

/// How a call ended; failure is data. `content` is what the model reads when it went well, `error` when not.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ToolResult {
    pub success: bool,
    pub content: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub metadata: Map<String, Value>,
    #[serde(default)]
    pub duration_ms: u64,
    /// The failure may pass by itself: the executor tries again if the tool allows it. The model is not told.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub retryable: bool,
}

impl ToolResult {
    pub fn ok(content: impl Into<String>) -> Self {
        Self { success: true, content: content.into(), ..Self::default() }
    }

    pub fn failed(error: impl Into<String>) -> Self {
        Self { success: false, error: Some(error.into()), ..Self::default() }
    }

    /// A failure that may pass by itself, e.g. a connection that was refused.
    pub fn failed_for_now(error: impl Into<String>) -> Self {
        Self { retryable: true, ..Self::failed(error) }
    }

    /// The one place where a result becomes text for the model: a failure starts with `Error: `, and what there is of
    /// output follows.
    pub fn render(&self) -> String {
        match &self.error {
            Some(error) if self.content.is_empty() => format!("Error: {error}"),
            Some(error) => format!("Error: {error}\n{}", self.content),
            None if self.content.trim().is_empty() => "(done, no output)".to_owned(),
            None => self.content.clone(),
        }
    }
}

/// A result and what the call does inside daoyou.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolOutcome {
    pub result: ToolResult,
    pub effects: Vec<Effect>,
}

impl ToolOutcome {
    /// There is no result before `turn` has ended.
    pub fn not_yet(turn: Uuid, mut effects: Vec<Effect>) -> Self {
        effects.push(Effect::Await(turn));
        Self { result: ToolResult::ok(""), effects }
    }

    /// The turns whose ends are waited for; with any, there is no result yet.
    pub fn awaited(&self) -> Vec<Uuid> {
        let turn = |effect: &Effect| match effect {
            Effect::Await(turn) => Some(*turn),
            _ => None,
        };
        self.effects.iter().filter_map(turn).collect()
    }
}

impl From<ToolResult> for ToolOutcome {
    fn from(result: ToolResult) -> Self {
        Self { result, effects: Vec::new() }
    }
}

/// For whom a call runs.
#[derive(Clone, Debug)]
pub struct ToolContext {
    pub session: SessionKey,
    pub turn: Uuid,
    pub call_id: String,
    /// The channel and chat of the message that the turn answers.
    pub channel: String,
    pub chat_id: String,
    /// Who wrote it.
    pub sender: String,
    pub trust: Trust,
    /// The files that came with the messages of the turn, by their paths below the workspace.
    pub files: Arc<[String]>,
    /// The channel's metadata of that message, as JSON: what the channel needs to answer it.
    pub metadata: Arc<str>,
    /// Who started the turn.
    pub origin: Arc<TurnOrigin>,
    /// Cancelled by `/stop` and by the turn's deadline.
    pub cancel: CancellationToken,
}

/// The longest output the model sees; what is more is cut in the middle and kept whole in a spill file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutputLimit {
    pub chars: usize,
    pub lines: usize,
}

impl Default for OutputLimit {
    fn default() -> Self {
        Self { chars: 8_000, lines: 500 }
    }
}

/// One tool. Its name, schema, words for the model and code stand together.
#[async_trait]
pub trait Tool: Send + Sync {
    /// Name, description, and the JSON Schema that its arguments struct gives.
    fn spec(&self) -> &ToolSpec;

    /// Other names under which models ask for the same thing.
    fn aliases(&self) -> &'static [&'static str] {
        &[]
    }

    fn replay(&self) -> Replay;

    fn access(&self) -> Access {
        Access::Changes
    }

    fn output_limit(&self) -> OutputLimit {
        OutputLimit::default()
    }

    /// What it says is for this turn alone: where it is too long it is cut, and not kept in a file that others may read.
    fn is_private(&self) -> bool {
        false
    }

    /// When a call is ended from outside, its retries included; absent: `tools.timeout`.
    fn timeout(&self) -> Option<Duration> {
        None
    }

    /// How long a result may be given again for the same arguments; absent: each call runs. For idempotent tools whose
    /// result is the same for every session, turn and chat. None of the file tools: files change without daoyou, and to
    /// read one costs no more than to find out whether it has changed.
    fn cache_ttl(&self) -> Option<Duration> {
        None
    }

    /// Arguments that must stand as the model wrote them: a plan puts no other call's result into them.
    fn sealed_arguments(&self) -> &'static [&'static str] {
        &[]
    }

    /// The tools that a call of this one runs in its turn, by the names that the model used. `arguments` is null where the
    /// schema does not hold.
    fn members(&self, _arguments: &Value) -> Vec<String> {
        Vec::new()
    }

    /// Whether this call may have no result when it is first run ([`Effect::Await`]). `arguments` is null where the schema
    /// does not hold.
    fn waits(&self, _arguments: &Value, _context: &ToolContext) -> bool {
        false
    }

    /// What is said beside the faults of arguments, as the model wrote them, that the schema does not take.
    fn hint(&self, _arguments: &str) -> Option<&'static str> {
        None
    }

    /// Whether this call may run for somebody whose words are data ([`Trust::Untrusted`]): it only looks, and inside the
    /// workspace alone, or it writes to nobody but him. `arguments` is null where the schema does not hold. A tool that
    /// does not say so does not run.
    fn serves_strangers(&self, _arguments: &Value, _context: &ToolContext) -> bool {
        false
    }

    /// Rules that a schema cannot say, in words for the model. Nothing has been done yet, and nothing may be done here.
    ///
    /// # Errors
    /// What is wrong and what would be right.
    fn check(&self, _arguments: &Value, _context: &ToolContext) -> Result<(), String> {
        Ok(())
    }

    /// Runs one call. `arguments` have passed the schema and [`Tool::check`].
    async fn call(&self, arguments: Value, context: &ToolContext) -> ToolOutcome;

    /// As [`Tool::call`], for a tool that runs others: `tools` is who runs this one.
    async fn call_among(&self, arguments: Value, context: &ToolContext, _tools: &Executor) -> ToolOutcome {
        self.call(arguments, context).await
    }
}
