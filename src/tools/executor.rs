//! Runs a call: finds the tool, checks the arguments, runs it within time, and cuts what comes back. Every call gives
//! exactly one result; failure is data.

use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use serde_json::Value;

use super::arguments::parse_arguments;
use super::cut::{Extent, cut};
use super::{OutputLimit, Registry, RegistryError, Replay, Spill, Tool, ToolContext, ToolOutcome, ToolResult};
use crate::llm::{ToolCall, ToolSpec};

/// Ends an error that the model can do something about.
const ADVICE: &str = "\n\n[Please analyze the error above and try a different approach.]";
/// After a cancel, how long a tool may take to say what it had done.
const CANCEL_GRACE: Duration = Duration::from_secs(2);
/// The longest part of an unknown tool's name that an error repeats, in characters.
const NAME_CHARS: usize = 80;
/// Where in a result's metadata a tool names the file that holds all of its output.
pub(super) const SPILL_KEY: &str = "spill";

/// The tools and how they are run.
pub struct Executor {
    registry: Registry,
    spill: Arc<Spill>,
    /// For tools without a time limit of their own.
    timeout: Duration,
}

impl Executor {
    /// `timeout` ends any call; tools that know better end earlier by themselves.
    pub fn new(registry: Registry, spill: Arc<Spill>, timeout: Duration) -> Self {
        Self { registry, spill, timeout }
    }

    /// Adds a tool of another area.
    ///
    /// # Errors
    /// As [`Registry::register`].
    pub fn register(&mut self, tool: Arc<dyn Tool>) -> Result<(), RegistryError> {
        self.registry.register(tool)
    }

    /// What models are told.
    pub fn specs(&self) -> Arc<[ToolSpec]> {
        self.registry.specs()
    }

    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// What the journal must know before a call; absent for an unknown tool, whose call does nothing.
    pub fn replay_of(&self, name: &str) -> Option<Replay> {
        self.registry.replay_of(name)
    }

    /// Runs one call. [`ToolResult::render`] of what comes back is what the model reads; it is within the tool's
    /// limit.
    pub async fn run(&self, call: &ToolCall, context: &ToolContext) -> ToolOutcome {
        let started = Instant::now();
        let Some(tool) = self.registry.get(&call.name) else {
            return self.unknown(&call.name);
        };
        let mut outcome = match parse_arguments(tool.spec(), &call.arguments) {
            Ok(arguments) => self.run_bounded(tool.as_ref(), arguments, context).await,
            Err(error) => ToolResult::failed(error).into(),
        };
        outcome.result.duration_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
        let result = &mut outcome.result;
        if !result.success
            && result.content.is_empty()
            && !context.cancel.is_cancelled()
            && let Some(error) = &mut result.error
        {
            error.push_str(ADVICE);
        }
        self.bound(&mut outcome.result, tool.output_limit(), context).await;
        outcome
    }

    fn unknown(&self, name: &str) -> ToolOutcome {
        let name: String = name.chars().take(NAME_CHARS).collect();
        let known: Vec<_> = self.registry.names().collect();
        let error = format!("Tool {name:?} not found. Available tools: {}{ADVICE}", known.join(", "));
        ToolResult::failed(error).into()
    }

    async fn run_bounded(&self, tool: &dyn Tool, arguments: Value, context: &ToolContext) -> ToolOutcome {
        if context.cancel.is_cancelled() {
            return ToolResult::failed("Cancelled before it started").into();
        }
        let running = AssertUnwindSafe(tool.call(arguments, context)).catch_unwind();
        let cancelled = async {
            context.cancel.cancelled().await;
            tokio::time::sleep(CANCEL_GRACE).await;
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
            () = tokio::time::sleep(self.timeout) => {
                ToolResult::failed(format!("The tool timed out after {} seconds", self.timeout.as_secs())).into()
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

    async fn keep(&self, text: String, context: &ToolContext) -> Option<String> {
        let (spill, turn, call) = (Arc::clone(&self.spill), context.turn, context.call_id.clone());
        let kept = tokio::task::spawn_blocking(move || spill.keep(turn, &call, &text)).await;
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
