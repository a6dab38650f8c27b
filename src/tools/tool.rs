//! The `Tool` trait, and the types of a call: its context, its outcome, its effects.

use std::fmt::{Debug, Display};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use daoyou_channels::{Attachment, SessionKey, Trust};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::agent_scope::AgentScope;
use super::allow_list::ToolAllowList;
use super::names::{RARELY_NEEDED, aliases_of};
use super::schema::tool_spec;
use super::tool_result::ToolResult;
use crate::chat::{ToolCall, ToolSpec};
use crate::guard::Taint;
use crate::origin::TurnOrigin;
use crate::postprocess::{FileLines, Question};
use crate::store::{Connection, StoreError};

/// How a restart treats a call that was interrupted.
///
/// Ordered by caution: a plan is as careful as the most careful tool in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ReplayPolicy {
    /// The call has no further effect when it runs again, so it is run again.
    Idempotent,
    /// The call only returns [`ToolEffect`]s, which are committed together with its result: an interrupted call did
    /// nothing.
    Atomic,
    /// Whether the call took effect is unknown, and the model is told so. `tool_started` is on disk before the call
    /// runs.
    Once,
}

/// Whether a call may run at the same time as others of the same response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToolAccess {
    /// The call only reads: it runs together with neighbouring reads.
    Reads,
    /// The call may change what others see: it runs alone, after the calls before it and before those after it.
    Changes,
}

/// An effect of a call inside daoyou. It happens when the journal commits it with the result, not when the tool returns
/// it.
#[derive(Clone, Debug, PartialEq)]
pub enum ToolEffect {
    /// Puts a message into the outbox.
    Message {
        channel: String,
        chat_id: String,
        content: String,
        attachments: Vec<Attachment>,
        /// For channels that have subjects.
        subject: Option<String>,
    },
    /// Writes other rows of the store.
    Rows(RowEffect),
    /// The call has no result until this turn has ended: its current result is void, and the call runs again then. Rows
    /// in the same outcome are written at once.
    Await(Uuid),
    /// As [`ToolEffect::Await`], until a person has answered the approval or question with this id. Later calls of the response
    /// wait as well.
    AwaitPerson(Uuid),
}

/// Rows that are written in the commit of a call's result.
#[derive(Clone, Debug)]
pub struct RowEffect(pub Arc<dyn WriteRows>);

impl PartialEq for RowEffect {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// The writer of a [`RowEffect`].
pub trait WriteRows: Debug + Send + Sync {
    /// Writes the rows. The state that the tool has read may have changed meanwhile; then the writer writes nothing, or
    /// what is right now. A retried commit calls it again.
    fn write(&self, connection: &Connection) -> Result<(), StoreError>;

    /// Called after the commit: wakes whoever has something to do now.
    fn committed(&self);
}

/// A result, and the effects of the call inside daoyou.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolOutcome {
    pub result: ToolResult,
    pub effects: Vec<ToolEffect>,
}

impl ToolOutcome {
    /// Returns the outcome of a call that has no result until `turn` has ended.
    pub fn pending(turn: Uuid, mut effects: Vec<ToolEffect>) -> Self {
        effects.push(ToolEffect::Await(turn));
        Self { result: ToolResult::ok(""), effects }
    }

    /// Returns the outcome of a call that has no result until a person has answered the approval or question `id`.
    pub fn asked(id: Uuid, mut effects: Vec<ToolEffect>) -> Self {
        effects.push(ToolEffect::AwaitPerson(id));
        Self { result: ToolResult::ok(""), effects }
    }

    /// Returns the turns, approvals and questions that the call waits for; if there are any, there is no result yet.
    pub fn awaited(&self) -> impl Iterator<Item = Uuid> {
        self.effects.iter().filter_map(|effect| match effect {
            ToolEffect::Await(id) | ToolEffect::AwaitPerson(id) => Some(*id),
            ToolEffect::Message { .. } | ToolEffect::Rows(_) => None,
        })
    }

    /// Returns true if the call has no result yet.
    pub fn is_pending(&self) -> bool {
        self.awaited().next().is_some()
    }

    /// Returns true if the call waits for a person.
    pub fn awaits_person(&self) -> bool {
        self.effects.iter().any(|effect| matches!(effect, ToolEffect::AwaitPerson(_)))
    }
}

/// An error is a text for the model.
impl<T: Into<ToolOutcome>, E: Display> From<Result<T, E>> for ToolOutcome {
    fn from(done: Result<T, E>) -> Self {
        done.map_or_else(|error| ToolResult::failed(error.to_string()).into(), Into::into)
    }
}

/// A text alone is the result of a call that succeeded.
impl From<String> for ToolOutcome {
    fn from(text: String) -> Self {
        ToolResult::ok(text).into()
    }
}

impl From<ToolResult> for ToolOutcome {
    fn from(result: ToolResult) -> Self {
        Self { result, effects: Vec::new() }
    }
}

/// The turn that a call runs for.
#[derive(Clone, Debug)]
pub struct ToolContext {
    pub session: SessionKey,
    pub turn: Uuid,
    pub call_id: String,
    /// The channel and chat of the message that the turn answers.
    pub channel: String,
    pub chat_id: String,
    /// The sender of that message.
    pub sender: String,
    pub trust: Trust,
    /// The files that came with the messages of the turn, as paths relative to the workspace.
    pub files: Arc<[String]>,
    /// The channel's metadata of that message as JSON, which the channel needs to answer it.
    pub metadata: Arc<str>,
    /// Who or what started the turn.
    pub origin: Arc<TurnOrigin>,
    /// The agent that answers.
    pub agent: Arc<AgentScope>,
    /// What the turn has read from others than the owner.
    pub taint: Arc<Taint>,
    /// What the skills that the turn has loaded allow; each of them has to allow a call.
    pub allow_lists: Arc<[ToolAllowList]>,
    /// The owner has approved this call.
    pub is_approved: bool,
    /// What the result is for.
    pub question: Arc<Question>,
    /// Cancelled by `/stop` and by the turn's deadline.
    pub cancel: CancellationToken,
}

/// The longest output that the model sees; a longer one is shortened and kept whole in a spill file.
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

/// What stays of a result that is too long.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TruncationStrategy {
    /// Its start and its end.
    #[default]
    HeadTail,
    /// Its start.
    HeadOnly,
    /// All of it, up to `tools.max_output`.
    None,
}

/// What is the same for all calls of a tool: its specification, and the rules by which its calls run.
#[derive(Clone, Debug)]
pub struct ToolDefinition {
    pub spec: ToolSpec,
    /// Other names under which models ask for the same tool.
    pub aliases: &'static [&'static str],
    /// `false` for a tool that is in a request only after `find_tools` has found it. A call of it works all the same.
    pub is_offered: bool,
    /// `false` for a tool that another program describes.
    pub is_own: bool,
    pub replay: ReplayPolicy,
    pub access: ToolAccess,
    pub output_limit: OutputLimit,
    /// What stays of a longer output.
    pub output_strategy: TruncationStrategy,
    /// Results are for this turn alone: a long one is shortened and not kept in a file that others may read.
    pub is_private: bool,
    /// The time limit of a call, retries included; `None` for `tools.timeout`.
    pub timeout: Option<Duration>,
    /// How long a result is given again to the same sender in the same conversation, for the same arguments and the same
    /// [`Tool::cache_stamp`]; `None`: each call runs. Only for idempotent tools.
    pub cache_ttl: Option<Duration>,
    /// The arguments that must be literal, because text from a file or page must not choose them: a plan puts no other
    /// call's result into them.
    pub literal_arguments: &'static [&'static str],
}

impl ToolDefinition {
    /// Returns the definition of a tool that may change what others see, with arguments `Args`.
    pub fn changing<Args: JsonSchema>(name: &str, description: &str, replay: ReplayPolicy) -> Self {
        Self::of_spec(tool_spec::<Args>(name, description), replay)
    }

    /// Returns the definition of a tool that only reads, with arguments `Args`.
    pub fn reading<Args: JsonSchema>(name: &str, description: &str) -> Self {
        Self { access: ToolAccess::Reads, ..Self::changing::<Args>(name, description, ReplayPolicy::Idempotent) }
    }

    /// As [`ToolDefinition::changing`], for a specification that is already there.
    pub fn of_spec(spec: ToolSpec, replay: ReplayPolicy) -> Self {
        Self {
            aliases: aliases_of(&spec.name),
            is_offered: !RARELY_NEEDED.iter().any(|(name, _)| *name == spec.name),
            is_own: true,
            replay,
            access: ToolAccess::Changes,
            output_limit: OutputLimit::default(),
            output_strategy: TruncationStrategy::default(),
            is_private: false,
            timeout: None,
            cache_ttl: None,
            literal_arguments: &[],
            spec,
        }
    }
}

/// A tool: its definition, its rules that depend on the call, and its code.
#[async_trait]
pub trait Tool: Send + Sync {
    fn definition(&self) -> &ToolDefinition;

    /// Returns the name, the description, and the JSON Schema of the arguments struct.
    fn spec(&self) -> &ToolSpec {
        &self.definition().spec
    }

    /// Returns a stamp of all else that the result of this call depends on, such as the files that it reads; `None`: this
    /// call runs. It is taken before each call of a tool with a [`ToolDefinition::cache_ttl`], so it must cost much less
    /// than the call.
    async fn cache_stamp(&self, _arguments: &Value, _context: &ToolContext) -> Option<String> {
        Some(String::new())
    }

    /// Returns the calls that a call of this tool runs: the tools by the names that the model used, and their arguments.
    /// `arguments` is null if the schema does not hold.
    fn nested_calls(&self, _arguments: &Value) -> Vec<(String, Value)> {
        Vec::new()
    }

    /// Returns true if this call does more than read, or answer the chat that asked: in a turn that has read content from
    /// others than the owner, it needs the owner's approval.
    fn is_restricted(&self, _arguments: &Value, _context: &ToolContext) -> bool {
        self.definition().access == ToolAccess::Changes
    }

    /// Returns the address that this call asks. Such a turn may only take it literally from the conversation; an address that
    /// it composes could carry data away.
    fn asked_url(&self, _arguments: &Value) -> Option<String> {
        None
    }

    /// Returns true if the result of this call may hold content from others than the owner. Such a result names its sources
    /// ([`ToolResult::add_sources`]).
    fn may_taint(&self, _arguments: &Value, _context: &ToolContext) -> bool {
        false
    }

    /// Returns true if the first run of this call may have no result ([`ToolOutcome::is_pending`]). `arguments` is null if
    /// the schema does not hold.
    fn may_wait(&self, _arguments: &Value, _context: &ToolContext) -> bool {
        false
    }

    /// Returns what reads the lines around the matches in this tool's results, as far as the turn may read them.
    fn file_lines(&self, _context: &ToolContext) -> Option<Box<dyn FileLines>> {
        None
    }

    /// Returns a hint to append to the schema faults of `arguments`, which are as the model wrote them.
    fn hint(&self, _arguments: &str) -> Option<&'static str> {
        None
    }

    /// Returns true if this call may run for a sender whose texts are data ([`Trust::Untrusted`]): it only reads inside
    /// the workspace, or writes to that sender alone. `arguments` is null if the schema does not hold. The default
    /// refuses.
    fn allows_untrusted(&self, _arguments: &Value, _context: &ToolContext) -> bool {
        false
    }

    /// Checks rules that a schema cannot express, in words for the model. Nothing has been done yet, and nothing may be
    /// done here.
    ///
    /// # Errors
    /// The fault, and what would be right.
    fn validate(&self, _arguments: &Value, _context: &ToolContext) -> Result<(), String> {
        Ok(())
    }

    /// Runs one call. `arguments` have passed the schema and [`Tool::validate`].
    async fn call(&self, arguments: Value, context: &ToolContext) -> ToolOutcome;

    /// As [`Tool::call`], for a tool that runs other calls through `runner`.
    async fn call_with_runner(&self, arguments: Value, context: &ToolContext, _runner: &dyn CallRunner) -> ToolOutcome {
        self.call(arguments, context).await
    }
}

/// Runs the calls of a tool that runs others, such as `parallel`, with all checks and limits of the executor.
#[async_trait]
pub trait CallRunner: Send + Sync {
    /// Returns the tool with this name or alias.
    fn tool(&self, name: &str) -> Option<&dyn Tool>;

    /// Returns the names of all tools.
    fn tool_names(&self) -> Vec<&str>;

    /// Returns the error for a call of a tool that does not exist.
    fn unknown_tool_error(&self, name: &str) -> String;

    /// Returns how many calls may run at the same time.
    fn parallelism(&self) -> NonZeroUsize;

    /// Runs one call.
    async fn run(&self, call: &ToolCall, context: &ToolContext) -> ToolOutcome;

    /// Keeps a text in a spill file and returns its path; `None` if the disk refuses it.
    async fn spill(&self, text: String, context: &ToolContext) -> Option<String>;
}
