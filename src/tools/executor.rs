//! Runs a call: finds the tool, checks the arguments, runs it within time, and cuts what comes back. Every call gives
//! exactly one result; failure is data.

use std::num::NonZeroUsize;
use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use daoyou_channels::backoff::Backoff;
use futures_util::FutureExt;
use serde_json::Value;
use tokio::time::Instant;

use super::arguments::parse_arguments;
use super::cut::{Extent, cut};
use super::private_folders::ConversationFolder;
use super::{Access, OutputLimit, Registry, RegistryError, Replay, Spill, Tool, ToolContext, ToolOutcome, ToolResult};
use crate::chat::{ERROR_ADVICE, ToolCall, ToolSpec};

/// After a cancel, how long a tool may take to say what it had done; a tool that runs others is given more, so that it
/// can still say what they said.
const CANCEL_GRACE: Duration = Duration::from_secs(2);
const MEMBERS_GRACE: Duration = Duration::from_secs(3);
/// How often one call is tried, and the waits between.
const TRIES: u32 = 3;
const FIRST_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_secs(10);
/// The longest part of an unknown tool's name that an error repeats, in characters.
const NAME_CHARS: usize = 80;
/// Where in a result's metadata a tool names the file that holds all of its output.
pub(super) const SPILL_KEY: &str = "spill";
/// In a result's metadata: [`Tool::is_private`].
pub(super) const PRIVATE_KEY: &str = "private";
/// Where it says how often the call was tried again.
const RETRIES_KEY: &str = "retries";

/// The tools and how they are run.
pub struct Executor {
    registry: Registry,
    spill: Arc<Spill>,
    limits: Limits,
}

/// What holds for every call.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Ends calls of tools without a limit of their own.
    pub timeout: Duration,
    /// Calls that run at the same time.
    pub at_once: NonZeroUsize,
}

impl Executor {
    pub fn new(registry: Registry, spill: Arc<Spill>, limits: Limits) -> Self {
        Self { registry, spill, limits }
    }

    /// Adds a tool of another area.
    ///
    /// # Errors
    /// As [`Registry::register`].
    pub fn register(&mut self, tool: Arc<dyn Tool>) -> Result<(), RegistryError> {
        self.registry.register(tool)
    }

    /// The same tools, but for those that `keeps` says no to: for a turn that has not all of them.
    pub fn keeping(&self, keeps: impl Fn(&str) -> bool) -> Self {
        Self { registry: self.registry.keeping(keeps), spill: Arc::clone(&self.spill), limits: self.limits }
    }

    /// What models are told.
    pub fn specs(&self) -> Arc<[ToolSpec]> {
        self.registry.specs()
    }

    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// Whether calls of this tool may run beside others; absent for an unknown one, whose calls do nothing.
    pub fn access_of(&self, name: &str) -> Option<Access> {
        self.registry.get(name).map(|tool| tool.access())
    }

    /// What the journal must know before a call; absent for an unknown tool. A call that runs others is as careful as the
    /// most careful of them.
    pub fn replay_of(&self, call: &ToolCall) -> Option<Replay> {
        let tool = self.registry.get(&call.name)?;
        let arguments = parse_arguments(tool.spec(), &call.arguments).unwrap_or_default();
        // What is not known may be anything.
        let replay_of = |name: &String| self.registry.get(name).map_or(Replay::Once, |tool| tool.replay());
        tool.members(&arguments).iter().map(replay_of).chain([tool.replay()]).max()
    }

    /// Runs one call. [`ToolResult::render`] of what comes back is what the model reads; it is within the tool's
    /// limit.
    pub async fn run(&self, call: &ToolCall, context: &ToolContext) -> ToolOutcome {
        let started = Instant::now();
        let tool = self.registry.get(&call.name);
        if let Some(error) = self.refusal(call, context) {
            return ToolResult::failed(error).into();
        }
        let mut outcome = match self.checked(tool, call, context) {
            Ok((tool, arguments)) => self.try_within(tool, arguments, context).await,
            Err(error) => ToolResult::failed(error).into(),
        };
        let result = &mut outcome.result;
        result.duration_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
        if !result.success
            && result.content.is_empty()
            && !context.cancel.is_cancelled()
            && let Some(error) = &mut result.error
        {
            error.push_str(ERROR_ADVICE);
        }
        if tool.is_some_and(|tool| tool.is_private()) {
            result.metadata.insert(PRIVATE_KEY.to_owned(), true.into());
        }
        self.bound(result, tool.map(|tool| tool.output_limit()).unwrap_or_default(), context).await;
        outcome
    }

    /// The tool and its arguments, when it is known, its schema holds, and it has nothing against them.
    fn checked<'a>(
        &self,
        tool: Option<&'a Arc<dyn Tool>>,
        call: &ToolCall,
        context: &ToolContext,
    ) -> Result<(&'a dyn Tool, Value), String> {
        let tool = tool.ok_or_else(|| self.unknown(&call.name))?;
        let arguments = parse_arguments(tool.spec(), &call.arguments);
        let arguments = arguments.map_err(|error| match tool.hint(&call.arguments) {
            Some(hint) => format!("{error}. {hint}"),
            None => error,
        })?;
        tool.check(&arguments, context)?;
        Ok((tool.as_ref(), arguments))
    }

    /// What a call of a tool that does not exist is told.
    pub(super) fn unknown(&self, name: &str) -> String {
        let name: String = name.chars().take(NAME_CHARS).collect();
        let known: Vec<_> = self.registry.names().collect();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        let what = if self.registry.withholds(&name) { "is not available in this turn" } else { "not found" };
        format!("Tool {name:?} {what}. Available tools: {known}")
    }

    /// Runs a call within its time, again where the failure may pass and a second run does no harm.
    async fn try_within(&self, tool: &dyn Tool, arguments: Value, context: &ToolContext) -> ToolOutcome {
        let limit = tool.timeout().unwrap_or(self.limits.timeout);
        let deadline = Instant::now() + limit;
        let may_repeat = tool.replay() != Replay::Once && tool.members(&arguments).is_empty();
        let mut backoff = Backoff::new(FIRST_WAIT, LONGEST_WAIT);
        let mut retries = 0;
        loop {
            let mut outcome = self.run_once(tool, arguments.clone(), context, deadline, limit).await;
            let wait = jittered(backoff.next_wait());
            let again = outcome.result.retryable && !outcome.result.success && may_repeat && retries + 1 < TRIES;
            let rested = again
                && Instant::now() + wait < deadline
                && context.cancel.run_until_cancelled(tokio::time::sleep(wait)).await.is_some();
            if rested {
                retries += 1;
                tracing::info!(tool = %tool.spec().name, turn = %context.turn, retries, "a tool is tried again");
                continue;
            }
            if retries > 0 {
                outcome.result.metadata.insert(RETRIES_KEY.to_owned(), Value::from(retries));
            }
            return outcome;
        }
    }

    /// Runs a call once. It always ends: by itself, a grace after its cancellation, or at `deadline`.
    async fn run_once(
        &self,
        tool: &dyn Tool,
        arguments: Value,
        context: &ToolContext,
        deadline: Instant,
        limit: Duration,
    ) -> ToolOutcome {
        if context.cancel.is_cancelled() {
            return ToolResult::failed("Cancelled before it started").into();
        }
        let grace = if tool.members(&arguments).is_empty() { CANCEL_GRACE } else { MEMBERS_GRACE };
        let running = AssertUnwindSafe(tool.call_among(arguments, context, self)).catch_unwind();
        let cancelled = async {
            context.cancel.cancelled().await;
            tokio::time::sleep(grace).await;
        };
        tokio::select! {
            biased;
            done = running => done.unwrap_or_else(|panic| {
                let what = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
                let what = what.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
                tracing::error!(tool = %tool.spec().name, panic = %what, "a tool panicked");
                ToolResult::failed("The tool failed inside daoyou; the fault is in its log").into()
            }),
            () = cancelled => ToolResult::failed("Cancelled while it ran; whether it took effect is unknown").into(),
            () = tokio::time::sleep_until(deadline) => {
                ToolResult::failed(format!("The tool timed out after {} seconds", limit.as_secs())).into()
            }
        }
    }

    /// Cuts the result so that what is rendered of it is within `limit`, and keeps what was cut in a spill file.
    async fn bound(&self, result: &mut ToolResult, limit: OutputLimit, context: &ToolContext) {
        let rendered = result.render();
        if Extent::of(&rendered).fits(limit) {
            return;
        }
        let whole = match result.metadata.get(SPILL_KEY).and_then(Value::as_str) {
            Some(path) => Some(path.to_owned()),
            None if result.metadata.contains_key(PRIVATE_KEY) => None,
            None => self.keep(rendered.clone(), context).await,
        };
        if let Some(path) = &whole {
            result.metadata.insert(SPILL_KEY.to_owned(), Value::from(path.as_str()));
        }
        // The error is what counts: it gets up to half, the output what is left.
        if let Some(error) = &mut result.error {
            let half = OutputLimit { chars: limit.chars / 2, lines: limit.lines / 2 };
            *error = cut(error, half, None);
        }
        let around = Extent::of(&ToolResult { content: "x".to_owned(), ..result.clone() }.render());
        let left = OutputLimit {
            chars: limit.chars.saturating_sub(around.chars.saturating_sub(1)),
            lines: limit.lines.saturating_sub(around.lines.saturating_sub(1)),
        };
        result.content = cut(&result.content, left, whole.as_deref());
        let bounded = result.render();
        if !Extent::of(&bounded).fits(limit) {
            // A limit too small for an error beside its output.
            result.error = None;
            result.content = cut(&rendered, limit, whole.as_deref());
        }
    }

    /// Keeps a text where the model can read it; answers the path, unless the disk does not take it.
    pub(super) async fn keep(&self, text: String, context: &ToolContext) -> Option<String> {
        let (spill, turn, call) = (Arc::clone(&self.spill), context.turn, context.call_id.clone());
        let folder = ConversationFolder::of(context);
        let kept = tokio::task::spawn_blocking(move || spill.keep(&folder, turn, &call, &text)).await;
        match kept {
            Ok(Ok(path)) => Some(path),
            Ok(Err(error)) => {
                tracing::warn!(%error, "a long output could not be kept whole");
                None
            }
            Err(error) => {
                tracing::error!(%error, "keeping a long output failed");
                None
            }
        }
    }
}

/// Between half of `wait` and all of it: who failed together does not come again together.
fn jittered(wait: Duration) -> Duration {
    // The last eight bytes of a version 7 id are random but for two bits.
    let random = daoyou_channels::new_id().as_u64_pair().1 as u32;
    wait.mul_f64(0.5 + f64::from(random) / f64::from(u32::MAX) / 2.0)
}

/// The largest spill file, in bytes: `read_file` must be able to page it.
pub(super) fn spill_bytes(max_file_size: u64) -> u64 {
    const LARGEST: u64 = 10_000_000;
    max_file_size.min(LARGEST)
}

/// The spill files of a workspace.
///
/// # Errors
/// When the workspace cannot be opened.
pub(super) fn open_spill(workspace: &Path, max_file_size: u64) -> std::io::Result<Arc<Spill>> {
    Spill::open(workspace, spill_bytes(max_file_size)).map(Arc::new)
}
