//! Runs tool calls: finds the tool, checks the arguments, enforces the time limit, and shortens the result. Every call gives
//! exactly one result; a failure is a result as well.

use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use daoyou_channels::backoff::{Backoff, jittered};
use daoyou_channels::text::catch_panic;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::arguments::parse_call;
use super::output_limits::{ORIGINAL_KEY, OutputLimits, OutputRule, note_cut, note_left};
use super::refusal::{Restriction, refusal};
use super::registry::ToolRegistry;
use super::result_cache::{CacheableCall, ToolResultCache};
use super::spill::SpillStore;
use super::tool::{
    CallRunner, NestedCall, OutputLimit, ReplayPolicy, Tool, ToolAccess, ToolContext, ToolEffect, ToolOutcome,
};
use super::tool_result::{StoredOutput, StoredPart, ToolResult};
use super::truncation::TextExtent;
use crate::chat::{ERROR_ADVICE, ToolCall, ToolSpec};
use crate::guard::KnownSecrets;
use crate::postprocess::{FileLines, PostprocessOrder, Postprocessor, RawResult};

/// How long a tool may take, after a cancellation, to report what it has done. A tool that runs other calls has more time, so
/// that it can report their results.
const CANCEL_GRACE: Duration = Duration::from_secs(2);
const NESTED_CALLS_GRACE: Duration = Duration::from_secs(3);
/// The maximum number of attempts of one call, and the waits between them.
const TRIES: u32 = 3;
const FIRST_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_secs(10);
/// The metadata key of a command's exit code. Its presence means that the command ran to its end, even if it failed.
const EXIT_CODE_KEY: &str = "exit_code";
/// The maximum size of an output that is filtered, in bytes.
const LONGEST_FILTERED: u64 = 500_000;
/// The longest wait before a retry that a tool may ask for. If it asks for a longer one, the failure is the result.
const LONGEST_ASKED_WAIT: Duration = Duration::from_secs(30);
/// The metadata key for the number of retries.
const RETRIES_KEY: &str = "retries";

/// The tools, and the rules for running them.
pub struct ToolExecutor {
    pub(super) registry: ToolRegistry,
    pub(super) spill: Arc<SpillStore>,
    pub(super) limits: ExecutorLimits,
    pub(super) outputs: Arc<OutputLimits>,
    /// The secrets that are removed from everything that calls return, including calls within a plan.
    pub(super) secrets: KnownSecrets,
    /// Filters results by their relevance to the question of the turn.
    pub(super) postprocessor: Arc<Postprocessor>,
    /// Caches results of the tools that declare themselves cacheable. `None` if each call runs.
    pub(super) cache: Option<Arc<ToolResultCache>>,
}

/// The limits of every call.
#[derive(Clone, Copy, Debug)]
pub struct ExecutorLimits {
    /// The time limit of tools that have no limit of their own.
    pub timeout: Duration,
    /// The maximum number of calls that run at the same time.
    pub at_once: NonZeroUsize,
}

impl ToolExecutor {
    /// Returns the same executor without the tools for which `keeps` returns false, for a turn that may not use every tool.
    pub fn filtered(&self, keeps: impl Fn(&str) -> bool) -> Self {
        Self {
            registry: self.registry.filtered(keeps),
            spill: Arc::clone(&self.spill),
            limits: self.limits,
            outputs: Arc::clone(&self.outputs),
            secrets: self.secrets.clone(),
            postprocessor: Arc::clone(&self.postprocessor),
            cache: self.cache.clone(),
        }
    }

    /// Returns the same executor, with every tool offered to models.
    pub fn offering_all(self) -> Self {
        Self { registry: self.registry.offering_all(), ..self }
    }

    /// Returns the specifications for models, including those of the found tools.
    pub fn specs(&self, found: &BTreeSet<String>) -> Arc<[ToolSpec]> {
        self.registry.specs(found)
    }

    pub fn registry(&self) -> &ToolRegistry {
        &self.registry
    }

    pub fn limits(&self) -> ExecutorLimits {
        self.limits
    }

    /// Returns the output limit of a tool's results.
    pub fn output_rule(&self, tool: &dyn Tool) -> OutputRule {
        self.outputs.of(Some(tool))
    }

    /// Returns whether calls of this tool may run concurrently with others; `None` for an unknown tool.
    pub fn access_of(&self, name: &str) -> Option<ToolAccess> {
        self.registry.get(name).map(|tool| tool.definition().access)
    }

    /// Returns how a restart treats this call; `None` for an unknown tool. A call that runs other calls is treated like the most
    /// cautious of them.
    pub fn replay_of(&self, call: &ToolCall) -> Option<ReplayPolicy> {
        let tool = self.registry.get(&call.name)?;
        let arguments = parse_call(tool.spec(), &call.name, &call.arguments).unwrap_or_default();
        // An unknown tool may have any effect.
        let replay_of =
            |name: &str| self.registry.get(name).map_or(ReplayPolicy::Once, |tool| tool.definition().replay);
        tool.nested_calls(&arguments)
            .iter()
            .map(|nested| replay_of(&nested.tool))
            .chain([tool.definition().replay])
            .max()
    }

    /// Returns why `call` must not run in this turn, or `None` if it may. The text is for the model.
    pub fn refusal(&self, call: &ToolCall, context: &ToolContext) -> Option<String> {
        refusal(&self.registry, call, context)
    }

    /// Returns what the owner may have to approve before `call` runs. Returns `None` if nothing needs approval, or if the call
    /// fails anyway.
    pub fn restriction(&self, call: &ToolCall, context: &ToolContext) -> Option<Restriction> {
        let (tool, arguments) = self.validate(self.registry.get(&call.name), call, context).ok()?;
        let is_forbidden = |tool: &dyn Tool, arguments: &Value| {
            let (name, aliases) = (&tool.spec().name, tool.definition().aliases);
            context.allow_lists.iter().any(|list| list.refusal(name, aliases, arguments).is_some())
        };
        if is_forbidden(tool, &arguments) {
            return None;
        }
        let mut restriction = Restriction::default();
        restriction.add(tool, &arguments, false, context);
        // The content that a call reads can affect only later calls. Only a plan has later calls, so the flag is reset for the
        // outer call.
        restriction.reads_others = false;
        for NestedCall { tool: name, arguments, takes_results } in tool.nested_calls(&arguments) {
            let Some(nested) = self.registry.get(&name) else { continue };
            // Invalid arguments make the nested call fail later, unless the result of another call completes them. They are
            // therefore used as they are.
            let parsed = parse_call(nested.spec(), &name, &arguments.to_string()).unwrap_or(arguments);
            if !is_forbidden(nested.as_ref(), &parsed) {
                restriction.add(nested.as_ref(), &parsed, takes_results, context);
            }
        }
        (!restriction.tools.is_empty() || !restriction.urls.is_empty()).then_some(restriction)
    }

    /// Runs one call, or takes its result from the cache. The model reads the output of [`ToolResult::render`], which is within
    /// the tool's limit.
    pub async fn run(&self, call: &ToolCall, context: &ToolContext) -> ToolOutcome {
        let mut outcome = match self.cacheable(call, context).await {
            Some((cache, cacheable)) => cache.get_or(cacheable, || self.run_whole(call, context)).await,
            None => self.run_whole(call, context).await,
        };
        self.finish(&mut outcome, call, context).await;
        outcome
    }

    /// Prepares the result for the model: leaves out what is irrelevant to the question, and cuts the rest to the tool's limit.
    async fn finish(&self, outcome: &mut ToolOutcome, call: &ToolCall, context: &ToolContext) {
        let tool = self.registry.get(&call.name).map(AsRef::as_ref);
        let (result, rule) = (&mut outcome.result, self.outputs.of(tool));
        let whole = result.content.len();
        let is_cut_first = self.postprocessor.order() == PostprocessOrder::TruncateFirst;
        if is_cut_first {
            self.shorten(result, rule, context).await;
        }
        if let Some(tool) = tool {
            let filtering = catch_panic(self.filter(result, tool, call, rule, context));
            if let Some(Err(panic)) = context.cancel.run_until_cancelled(filtering).await {
                tracing::error!(tool = %tool.spec().name, panic, "the filter of a result panicked");
            }
        }
        self.shorten(result, rule, context).await;
        result.left_out_bytes = whole.saturating_sub(result.content.len());
    }

    /// Returns the cache and the cacheable call if its result may be cached. A refused or invalid call is never cached.
    async fn cacheable(&self, call: &ToolCall, context: &ToolContext) -> Option<(&ToolResultCache, CacheableCall)> {
        let (cache, tool) = (self.cache.as_deref()?, self.registry.get(&call.name)?);
        if tool.definition().replay != ReplayPolicy::Idempotent || self.refusal(call, context).is_some() {
            return None;
        }
        let (tool, arguments) = self.validate(Some(tool), call, context).ok()?;
        Some((cache, CacheableCall::of(tool, &arguments, context).await?))
    }

    /// Runs one call like [`Self::run`], but bypasses the cache, and does not prepare the result for the model.
    pub async fn run_whole(&self, call: &ToolCall, context: &ToolContext) -> ToolOutcome {
        let started = Instant::now();
        let tool = self.registry.get(&call.name);
        if let Some(error) = self.refusal(call, context) {
            return ToolResult::failed(error).into();
        }
        let mut outcome = match self.validate(tool, call, context) {
            Ok((tool, arguments)) => self.try_within(tool, arguments, context).await,
            Err(error) => ToolResult::failed(error).into(),
        };
        // Redaction must precede shortening: a cut could make a secret unrecognizable, and the spill file would contain it.
        if self.redact(&mut outcome) {
            let ToolContext { turn, session, .. } = context;
            tracing::warn!(%turn, %session, tool = call.name, "secrets of the configuration were removed from a tool's outcome");
        }
        let result = &mut outcome.result;
        result.duration_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
        if !result.success
            && result.content.is_empty()
            && !context.cancel.is_cancelled()
            && let Some(error) = &mut result.error
        {
            error.push_str(ERROR_ADVICE);
        }
        result.is_private |= tool.is_some_and(|tool| tool.definition().is_private);
        outcome
    }

    /// Returns the tool and its arguments if the tool exists, the arguments fit the schema, and the tool accepts them.
    fn validate<'a>(
        &self,
        tool: Option<&'a Arc<dyn Tool>>,
        call: &ToolCall,
        context: &ToolContext,
    ) -> Result<(&'a dyn Tool, Value), String> {
        let tool = tool.ok_or_else(|| self.registry.unknown_tool_error(&call.name))?;
        let arguments = parse_call(tool.spec(), &call.name, &call.arguments);
        let arguments = arguments.map_err(|error| match tool.hint(&call.arguments) {
            Some(hint) => format!("{error}. {hint}"),
            None => error,
        })?;
        tool.validate(&arguments, context)?;
        Ok((tool.as_ref(), arguments))
    }

    /// Runs a call within its time limit, and retries a temporary failure if a second run does no harm.
    async fn try_within(&self, tool: &dyn Tool, arguments: Value, context: &ToolContext) -> ToolOutcome {
        let limit = tool.definition().timeout.unwrap_or(self.limits.timeout);
        let deadline = Instant::now() + limit;
        let may_repeat = tool.definition().replay != ReplayPolicy::Once && tool.nested_calls(&arguments).is_empty();
        let mut backoff = Backoff::new(FIRST_WAIT, LONGEST_WAIT);
        let mut retries = 0;
        loop {
            let mut outcome = self.run_once(tool, arguments.clone(), context, deadline, limit).await;
            let result = &outcome.result;
            let asked = result.retry_after.unwrap_or_default();
            let wait = jittered(backoff.next_wait()).max(asked);
            let may_pass = result.retryable && !result.success && asked <= LONGEST_ASKED_WAIT;
            let again = may_pass && may_repeat && retries + 1 < TRIES;
            let rested = again
                && Instant::now() + wait < deadline
                && context.cancel.run_until_cancelled(tokio::time::sleep(wait)).await.is_some();
            if rested {
                retries += 1;
                tracing::info!(tool = %tool.spec().name, turn = %context.turn, retries, "a tool call is retried");
                continue;
            }
            if retries > 0 {
                outcome.result.metadata.insert(RETRIES_KEY.to_owned(), Value::from(retries));
            }
            return outcome;
        }
    }

    /// Runs a call once. The run always ends: on its own, a grace period after its cancellation, or at `deadline`.
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
        // A call that may have taken effect must not be repeated.
        let is_final = match tool.definition().replay {
            ReplayPolicy::Once => true,
            ReplayPolicy::Idempotent | ReplayPolicy::Overwrites | ReplayPolicy::Atomic => false,
        };
        let cut_off = |error: String| ToolResult { is_final, ..ToolResult::failed(error) }.into();
        let grace = if tool.nested_calls(&arguments).is_empty() { CANCEL_GRACE } else { NESTED_CALLS_GRACE };
        let running = catch_panic(tool.call_with_runner(arguments, context, self));
        let cancelled = async {
            context.cancel.cancelled().await;
            tokio::time::sleep(grace).await;
        };
        tokio::select! {
            biased;
            done = running => done.unwrap_or_else(|panic| {
                tracing::error!(tool = %tool.spec().name, panic, "a tool panicked");
                ToolResult::failed("The tool failed inside daoyou; the fault is in its log").into()
            }),
            () = cancelled => cut_off("Cancelled while it ran; whether it took effect is unknown".to_owned()),
            () = tokio::time::sleep_until(deadline) => {
                cut_off(format!("The tool timed out after {} seconds", limit.as_secs()))
            }
        }
    }

    /// Removes the secrets of the configuration. Returns true if it removed any.
    pub fn redact(&self, outcome: &mut ToolOutcome) -> bool {
        let mut texts = vec![&mut outcome.result.content];
        texts.extend(&mut outcome.result.error);
        for effect in &mut outcome.effects {
            if let ToolEffect::Message { content, subject, .. } = effect {
                texts.push(content);
                texts.extend(subject);
            }
        }
        // `count` instead of `any`: every text must be searched, even after a text with a secret.
        texts.into_iter().filter_map(|text| self.secrets.redact(text).then_some(())).count() > 0
    }

    /// Shortens the result so that its rendered form is within the limit of `rule`, and stores the output in a spill file.
    async fn shorten(&self, result: &mut ToolResult, rule: OutputRule, context: &ToolContext) {
        let (rendered, limit) = (result.render(), rule.limit);
        let extent = TextExtent::of(&rendered);
        if extent.fits(limit) {
            // The tool itself may have cut the output.
            return note_left(&mut result.metadata, extent.chars);
        }
        if result.spill.is_none() && !result.is_private {
            result.spill = self.spill.save_output(rendered.clone(), !result.taint.is_empty(), context).await;
        }
        let stored = result.spill.as_ref().map(ToString::to_string);
        let stored = stored.as_deref();
        // The error matters most: it gets up to half of the limit, and the output gets the rest.
        if let Some(error) = &mut result.error {
            let half = OutputLimit { chars: limit.chars / 2, lines: limit.lines / 2 };
            *error = rule.cut(error, half, None);
        }
        let around = TextExtent::of(&ToolResult { content: "x".to_owned(), ..result.clone() }.render());
        let left = OutputLimit {
            chars: limit.chars.saturating_sub(around.chars.saturating_sub(1)),
            lines: limit.lines.saturating_sub(around.lines.saturating_sub(1)),
        };
        result.content = rule.cut(&result.content, left, stored);
        let mut bounded = result.render();
        if !TextExtent::of(&bounded).fits(limit) {
            // The limit is too small for an error and its output.
            result.error = None;
            result.content = rule.cut(&rendered, limit, stored);
            bounded.clone_from(&result.content);
        }
        note_cut(&mut result.metadata, extent.chars);
        note_left(&mut result.metadata, bounded.chars().count());
    }

    /// Leaves out what is irrelevant to the question of the turn. The output is stored in a spill file, unless the result
    /// is private.
    async fn filter(
        &self,
        result: &mut ToolResult,
        tool: &dyn Tool,
        call: &ToolCall,
        rule: OutputRule,
        context: &ToolContext,
    ) {
        // A command that failed still has an output to filter. Any other failure stays as it is.
        if !result.success && !result.metadata.contains_key(EXIT_CODE_KEY) {
            return;
        }
        let arguments = parse_call(tool.spec(), &call.name, &call.arguments).unwrap_or_default();
        let is_cut_first = self.postprocessor.order() == PostprocessOrder::TruncateFirst;
        let whole = if is_cut_first { None } else { self.kept_whole(result).await };
        let text = whole.unwrap_or_else(|| result.content.clone());
        let raw = RawResult { tool: &tool.spec().name, arguments: &arguments, text: &text, limit: rule.limit.chars };
        let files = tool.file_lines(context).map(|files| RedactedLines { files, secrets: self.secrets.clone() });
        let mut used = Vec::new();
        let filtered = self
            .postprocessor
            .process(&raw, &context.question, files.as_ref().map(|files| files as &dyn FileLines), &mut used)
            .await;
        if let Some(last) = used.last() {
            let tokens = last.usage.input_tokens + last.usage.output_tokens;
            result
                .metadata
                .extend([("model".to_owned(), json!(last.model)), ("model_tokens".to_owned(), json!(tokens))]);
        }
        result.model_use.extend(used);
        let Some(filtered) = filtered else { return };
        if result.spill.is_none() && !result.is_private {
            result.spill = self.spill.save_output(result.render(), !result.taint.is_empty(), context).await;
            if result.spill.is_none() {
                // Without a spill file the model could not read the rest again, so nothing is left out.
                return;
            }
        }
        result.content = filtered.render(result.spill.as_ref().map(ToString::to_string).as_deref());
        result.metadata.extend(filtered.metadata());
    }

    /// Returns the output of a command that was too long for memory, read from its spill file. Returns `None` if the file lacks
    /// the end of the output, which the result has.
    async fn kept_whole(&self, result: &ToolResult) -> Option<String> {
        let spill = result.spill.as_ref().filter(|_| result.metadata.contains_key(ORIGINAL_KEY))?;
        let path = (spill.part == StoredPart::Whole).then(|| spill.path.clone())?;
        let spill = Arc::clone(&self.spill);
        let read = tokio::task::spawn_blocking(move || spill.read(&path, LONGEST_FILTERED)).await;
        let mut text = read.map_err(std::io::Error::other).flatten().inspect_err(|error| {
            tracing::warn!(%error, "a long output could not be read again");
        });
        // Commands write these files themselves, so the files may contain secrets.
        text.as_mut().ok().map(|text| self.secrets.redact(text));
        text.ok()
    }
}

/// Lines of files with secrets removed. A filter cuts long lines, and the part of a secret before a cut would not be recognized.
struct RedactedLines {
    files: Box<dyn FileLines>,
    secrets: KnownSecrets,
}

#[async_trait]
impl FileLines for RedactedLines {
    async fn lines(&self, path: &str, first: usize, last: usize) -> Option<Vec<String>> {
        let mut lines = self.files.lines(path, first, last).await?;
        for line in &mut lines {
            self.secrets.redact(line);
        }
        Some(lines)
    }
}

#[async_trait]
impl CallRunner for ToolExecutor {
    fn tool(&self, name: &str) -> Option<&dyn Tool> {
        self.registry.get(name).map(Arc::as_ref)
    }

    fn tool_names(&self) -> Vec<&str> {
        self.registry.names().collect()
    }

    fn unknown_tool_error(&self, name: &str) -> String {
        self.registry.unknown_tool_error(name)
    }

    fn parallelism(&self) -> NonZeroUsize {
        self.limits.at_once
    }

    async fn run(&self, call: &ToolCall, context: &ToolContext) -> ToolOutcome {
        self.run(call, context).await
    }

    async fn spill(&self, text: String, context: &ToolContext) -> Option<StoredOutput> {
        self.spill.save_output(text, !context.taint.is_empty(), context).await
    }
}
