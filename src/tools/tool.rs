//! The `Tool` trait, and the types of a call: its context, its outcome, its effects.

use std::fmt::{self, Debug, Display};
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
use super::names::{ToolOffer, aliases_of, offer_of};
use super::schema::tool_spec;
use super::tool_result::{StoredOutput, ToolResult};
use crate::chat::{ToolCall, ToolSpec};
use crate::guard::Taint;
use crate::origin::TurnOrigin;
use crate::postprocess::{FileLines, Question};
use crate::store::{Connection, StoreError};

/// How a restart treats an interrupted call.
///
/// The order is by caution: a plan is treated like the most cautious tool in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ReplayPolicy {
    /// A second run of the call has no further effect, so the call runs again.
    Idempotent,
    /// The call runs again after a crash, too. But a second run much later would undo what others have changed since.
    Overwrites,
    /// The call only returns [`ToolEffect`]s, which are committed together with its result. An interrupted call therefore had no
    /// effect.
    Atomic,
    /// Whether the call took effect is unknown, and the result tells the model so. The row `tool_started` is on disk before the
    /// call runs.
    Once,
}

/// Whether a call may run at the same time as others of the same response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToolAccess {
    /// The call only reads. It runs concurrently with neighbouring reads.
    Reads,
    /// The call may change what other calls see. It runs alone, after the calls before it and before the calls after it.
    Changes,
}

/// An effect of a call inside daoyou. It takes place when the journal commits it with the result, not when the tool returns it.
#[derive(Clone, Debug, PartialEq)]
pub enum ToolEffect {
    /// Puts a message into the outbox.
    Message {
        channel: String,
        chat_id: String,
        content: String,
        attachments: Vec<Attachment>,
        /// The subject, for channels that have subjects.
        subject: Option<String>,
    },
    /// Writes other rows to the store.
    Rows(RowEffect),
    /// The call has no result until the turn with this id has ended. Its current result is void, and the call runs again then.
    /// Rows in the same outcome are written at once.
    Await(Uuid),
    /// As [`ToolEffect::Await`], but until a person has answered the approval or question with this id. Later calls of the
    /// response wait as well.
    AwaitPerson(Uuid),
}

/// Rows that the commit of a call's result writes.
#[derive(Clone)]
pub struct RowEffect(pub Arc<dyn WriteRows>);

impl RowEffect {
    /// Returns the effect that writes with `write`, and calls `committed` after the commit.
    pub fn new(
        write: impl Fn(&Connection) -> Result<(), StoreError> + Send + Sync + 'static,
        committed: impl Fn() + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new((write, committed)))
    }
}

impl Debug for RowEffect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RowEffect")
    }
}

impl PartialEq for RowEffect {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// The writer of a [`RowEffect`].
pub trait WriteRows: Send + Sync {
    /// Writes the rows. The state that the tool read may have changed in the meantime; the writer must then adapt the rows, or
    /// write nothing. A retried commit calls this method again.
    fn write(&self, connection: &Connection) -> Result<(), StoreError>;

    /// Called after the commit. Wakes the tasks that act on the rows, if there are any.
    fn committed(&self);
}

impl<W, C> WriteRows for (W, C)
where
    W: Fn(&Connection) -> Result<(), StoreError> + Send + Sync,
    C: Fn() + Send + Sync,
{
    fn write(&self, connection: &Connection) -> Result<(), StoreError> {
        (self.0)(connection)
    }

    fn committed(&self) {
        (self.1)();
    }
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

    /// Returns the turns, approvals and questions that the call waits for. The call has no result yet if there are any.
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

/// Makes an error a failed result, with the error's text for the model.
impl<T: Into<ToolOutcome>, E: Display> From<Result<T, E>> for ToolOutcome {
    fn from(done: Result<T, E>) -> Self {
        done.map_or_else(|error| ToolResult::failed(error.to_string()).into(), Into::into)
    }
}

/// Makes a text the result of a successful call.
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
    /// People other than the sender read the answer, so no tool may show private memories.
    pub is_read_by_others: bool,
    /// The files that came with the messages of the turn, as paths relative to the workspace.
    pub files: Arc<[String]>,
    /// The channel's metadata of that message as JSON. The channel needs it to send the answer.
    pub metadata: Arc<str>,
    /// Who or what started the turn.
    pub origin: Arc<TurnOrigin>,
    /// The agent that answers the message.
    pub agent: Arc<AgentScope>,
    /// The names of the foreign content that the turn has read (content from anyone but the owner).
    pub taint: Arc<Taint>,
    /// The allow-lists of the skills that the turn has loaded. Every list must allow a call.
    pub allow_lists: Arc<[ToolAllowList]>,
    /// True if the owner has approved this call.
    pub is_approved: bool,
    /// The question that the result has to answer.
    pub question: Arc<Question>,
    /// Cancelled by `/stop` and by the turn's deadline.
    pub cancel: CancellationToken,
}

impl ToolContext {
    /// Returns true if the turn may see what only the owner may: it is the owner's, and nobody else reads its answer.
    pub fn is_for_owner_alone(&self) -> bool {
        self.trust == Trust::Owner && !self.is_read_by_others
    }

    /// Returns the context of a call `call_id` that the owner makes in this chat, in a new turn without taint.
    pub fn of_owner(channel: &str, chat_id: &str, call_id: &str) -> Self {
        Self {
            session: SessionKey::of_chat(channel, chat_id),
            turn: daoyou_channels::new_id(),
            call_id: call_id.to_owned(),
            channel: channel.to_owned(),
            chat_id: chat_id.to_owned(),
            sender: String::new(),
            trust: Trust::Owner,
            is_read_by_others: false,
            files: Arc::default(),
            metadata: "{}".into(),
            origin: Arc::default(),
            agent: Arc::default(),
            taint: Arc::default(),
            allow_lists: Arc::default(),
            is_approved: false,
            question: Arc::default(),
            cancel: CancellationToken::new(),
        }
    }
}

/// The maximum length of a text for the model: of a whole output, or of a page or the diffs in it. An output that exceeds the limit
/// of its tool is shortened, and stored whole in a spill file.
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

/// The properties that all calls of a tool share: its specification, and the rules by which its calls run.
#[derive(Clone, Debug)]
pub struct ToolDefinition {
    pub spec: ToolSpec,
    /// Other names by which models call the same tool.
    pub aliases: &'static [&'static str],
    /// False for a tool that is in a request only after `find_tools` has found it. A call of the tool works even before.
    pub is_offered: bool,
    /// False for a tool that another program describes.
    pub is_own: bool,
    pub replay: ReplayPolicy,
    pub access: ToolAccess,
    pub output_limit: OutputLimit,
    /// Which part of a longer output is kept.
    pub output_strategy: TruncationStrategy,
    /// True if results are for this turn alone. A long one is shortened, and not stored in a file that other turns may read.
    pub is_private: bool,
    /// The time limit of a call, retries included; `None` for `tools.timeout`.
    pub timeout: Option<Duration>,
    /// How long a result may be reused for the same sender in the same conversation, with the same arguments and the same
    /// [`Tool::cache_stamp`]. `None` if each call runs. Only for idempotent tools.
    pub cache_ttl: Option<Duration>,
    /// The arguments that must be literal, because text from a file or page must not determine them. A plan never fills them with
    /// another call's result.
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

    /// Returns the same definition as [`ToolDefinition::changing`], for an existing specification.
    pub fn of_spec(spec: ToolSpec, replay: ReplayPolicy) -> Self {
        Self {
            aliases: aliases_of(&spec.name),
            is_offered: offer_of(&spec.name) == ToolOffer::Always,
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

/// A call that another call runs.
#[derive(Default)]
pub struct NestedCall {
    /// The tool by the name that the model used.
    pub tool: String,
    pub arguments: Value,
    /// The arguments take in the result of another call of the same plan.
    pub takes_results: bool,
}

/// A tool: its definition, the rules that depend on the call, and its code.
#[async_trait]
pub trait Tool: Send + Sync {
    fn definition(&self) -> &ToolDefinition;

    /// Returns the name, the description, and the JSON Schema of the arguments struct.
    fn spec(&self) -> &ToolSpec {
        &self.definition().spec
    }

    /// Returns a stamp of everything else that the result of this call depends on, such as the files that it reads. With `None`,
    /// the call runs.
    ///
    /// The stamp is computed before each call of a tool with a [`ToolDefinition::cache_ttl`], so it must be much cheaper than the
    /// call.
    async fn cache_stamp(&self, _arguments: &Value, _context: &ToolContext) -> Option<String> {
        Some(String::new())
    }

    /// Returns the calls that a call of this tool runs. `arguments` is null if they do not fit the schema.
    fn nested_calls(&self, _arguments: &Value) -> Vec<NestedCall> {
        Vec::new()
    }

    /// Returns true if this call does more than read, or answer the chat that started the turn. Such a call needs the owner's
    /// approval in a turn that has read foreign content.
    fn is_restricted(&self, _arguments: &Value, _context: &ToolContext) -> bool {
        self.definition().access == ToolAccess::Changes
    }

    /// Returns the address that this call requests. A turn that has read foreign content may request only a known address
    /// ([`is_known_address`](super::is_known_address)) without approval: a composed address could carry data away.
    fn asked_url(&self, _arguments: &Value) -> Option<String> {
        None
    }

    /// Returns true if the result of this call may contain content from anyone but the owner. Such a result names its sources
    /// ([`ToolResult::add_sources`]).
    fn may_taint(&self, _arguments: &Value, _context: &ToolContext) -> bool {
        false
    }

    /// Returns true if the first run of this call may have no result ([`ToolOutcome::is_pending`]). `arguments` is null if they
    /// do not fit the schema.
    fn may_wait(&self, _arguments: &Value, _context: &ToolContext) -> bool {
        false
    }

    /// Returns a reader of the lines around the matches in this tool's results, limited to what the turn may read.
    fn file_lines(&self, _context: &ToolContext) -> Option<Box<dyn FileLines>> {
        None
    }

    /// Returns a hint that is appended to the schema faults of `arguments`, which are as the model wrote them.
    fn hint(&self, _arguments: &str) -> Option<&'static str> {
        None
    }

    /// Returns true if this call may run for a sender whose texts are data ([`Trust::Untrusted`]): it only reads inside the
    /// workspace, or writes to that sender alone. `arguments` is null if they do not fit the schema. The default refuses.
    fn allows_untrusted(&self, _arguments: &Value, _context: &ToolContext) -> bool {
        false
    }

    /// Checks rules that a schema cannot express. It runs before the call and must have no effects.
    ///
    /// # Errors
    /// Describes the fault and the correct form, worded for the model.
    fn validate(&self, _arguments: &Value, _context: &ToolContext) -> Result<(), String> {
        Ok(())
    }

    /// Runs one call. `arguments` fit the schema and have passed [`Tool::validate`].
    async fn call(&self, arguments: Value, context: &ToolContext) -> ToolOutcome;

    /// Runs one call like [`Tool::call`]. Tools that run other calls override this method and use `runner`.
    async fn call_with_runner(&self, arguments: Value, context: &ToolContext, _runner: &dyn CallRunner) -> ToolOutcome {
        self.call(arguments, context).await
    }
}

/// The runner of the nested calls of a tool such as `parallel`, with all checks and limits of the executor.
#[async_trait]
pub trait CallRunner: Send + Sync {
    /// Returns the tool with this name or alias.
    fn tool(&self, name: &str) -> Option<&dyn Tool>;

    /// Returns the names of all tools.
    fn tool_names(&self) -> Vec<&str>;

    /// Returns the error for a call of a tool that does not exist.
    fn unknown_tool_error(&self, name: &str) -> String;

    /// Returns the maximum number of calls that run at the same time.
    fn parallelism(&self) -> NonZeroUsize;

    /// Runs one call.
    async fn run(&self, call: &ToolCall, context: &ToolContext) -> ToolOutcome;

    /// Stores a text in a spill file; `None` if the disk refuses it.
    async fn spill(&self, text: String, context: &ToolContext) -> Option<StoredOutput>;
}
