//! The turn loop: a function of its inputs that goes from the message to the answer. Its traits ([`Model`], [`Script`], [`Tools`],
//! [`Journal`]) and [`EventEmitter`] hide transport, tables and user interfaces.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use daoyou_channels::{SessionKey, TurnBounds};
use parking_lot::Mutex;
use uuid::Uuid;

use super::context::compaction;
use super::context::images::{ImageLoader, LoadedImages, images_of, with_images_of_results};
use super::error::{ErrorCode, TurnError};
use super::event_emitter::EventEmitter;
use super::flight_recorder::FlightSlot;
use super::progress::{StepBody, TurnProgress};
use crate::chat::{ChatMessage, ToolCall, ToolSpec};
use crate::llm::{ChatRequest, ChatResponse, Delta, DeltaSink, Images, SerializedText, numbered_name, repair_messages};
use crate::metrics::TurnMeter;
use crate::phrases::{Phrases, fill};
use crate::text::think;
use crate::tools::{ReplayPolicy, Restriction, ToolAccess, ToolContext, ToolEffect, ToolOutcome};

/// The turn that a call belongs to, with its limits and its meter.
#[derive(Clone, Copy)]
pub struct TurnScope<'a> {
    pub session: &'a SessionKey,
    pub turn: Uuid,
    /// The end of the turn's time.
    pub deadline: tokio::time::Instant,
    pub meter: &'a TurnMeter<'a>,
    pub phrases: &'static Phrases,
}

/// The model that answers a turn.
#[async_trait]
pub trait Model: Send + Sync {
    /// Returns the model's name within its provider.
    fn name(&self) -> String;

    /// Returns true if a model that may answer takes images.
    async fn takes_images(&self) -> bool;

    /// Asks the model; passes the answer to `sink` while it arrives. The response contains its usage, its cost and the model that
    /// answered.
    ///
    /// # Errors
    /// No model answered, or a limit forbids to ask.
    async fn chat(&self, request: ChatRequest, sink: &dyn DeltaSink) -> Result<ChatResponse, TurnError>;
}

/// Decides the next step of a turn from its progress alone, instead of a model.
pub trait Script: Send + Sync {
    /// Returns the next response: the calls to make, or the answer. The same progress always yields the same response.
    ///
    /// # Errors
    /// The turn cannot go on.
    fn next(&self, progress: &TurnProgress) -> Result<ChatResponse, TurnError>;
}

/// The source of a turn's responses.
#[derive(Clone, Copy)]
pub enum ResponseSource<'a> {
    Model(&'a dyn Model),
    Script(&'a dyn Script),
}

/// The tools that a turn may use.
#[async_trait]
pub trait Tools: Send + Sync {
    /// Returns the definitions of the tools that the model is offered, including the `found` ones.
    fn specs(&self, found: &BTreeSet<String>) -> Arc<[ToolSpec]>;

    /// Returns the tool's canonical name for `name`, which may be an alias.
    fn canonical_name(&self, name: &str) -> Option<String>;

    /// Gives a call the tool's canonical name, so that readers of the journal need not know the aliases, and the arguments that the
    /// alias stands for.
    fn canonicalize(&self, call: &mut ToolCall);

    /// Returns the access of a tool; `None` for an unknown one.
    fn access_of(&self, name: &str) -> Option<ToolAccess>;

    /// Returns whether an interrupted call may run again; `None` for an unknown tool.
    fn replay_of(&self, call: &ToolCall) -> Option<ReplayPolicy>;

    /// Returns the reason why this turn may not make the call, if there is one.
    fn refusal(&self, call: &ToolCall, context: &ToolContext) -> Option<String>;

    /// Returns the restriction that the owner may have to approve before the call runs, if there is one.
    fn restriction(&self, call: &ToolCall, context: &ToolContext) -> Option<Restriction>;

    /// Returns the maximum number of calls that run in parallel.
    fn parallelism(&self) -> NonZeroUsize;

    /// Runs a call. It yields exactly one outcome: a failure is an outcome as well.
    async fn run(&self, call: &ToolCall, context: &ToolContext) -> ToolOutcome;
}

/// Decides whether restricted calls of a turn run, and asks the owner.
#[async_trait]
pub trait Approvals: Send + Sync {
    /// Decides about a call; the same call gets the same decision until the owner answers.
    async fn decide(&self, call: &ToolCall, restriction: &Restriction, context: &ToolContext) -> ApprovalDecision;
}

/// The decision about a restricted call.
#[derive(Clone, Debug, PartialEq)]
pub enum ApprovalDecision {
    /// The call runs within the rights of the turn.
    Allowed,
    /// The owner has approved it.
    Approved,
    /// The call does not run; the text is the reason for the model.
    Refused(String),
    /// The owner was asked; the call has no result yet.
    Asked(Box<ToolOutcome>),
}

/// Stores the steps of a turn, except the context and the answer, before it returns; a store that cannot accept a step holds the turn.
#[async_trait]
pub trait Journal: Send + Sync {
    /// Records a step without effects. The start of a tool ([`StepBody::ToolStarted`]) is synced to disk before this returns. Other
    /// steps are in the store's write-ahead log then: they survive the death of the process, and reach the disk with the next synced
    /// commit. The context is stored with the next step, since a restart composes the same one again, and the answer with the end of the
    /// turn, which follows at once.
    async fn record(&self, step: &StepBody) {
        self.record_with_effects(step, &[]).await;
    }

    /// Records a step together with the effects of its tool inside daoyou. A step with stored effects is synced to disk before this
    /// returns; any other step is recorded as by [`Journal::record`].
    async fn record_with_effects(&self, step: &StepBody, effects: &[ToolEffect]);

    /// Records the effects inside daoyou of a call that has no result yet.
    async fn record_begun(&self, effects: &[ToolEffect]);
}

/// Limits of a turn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TurnLimits {
    /// The maximum number of responses with tool calls; one last response without tools follows them.
    pub iterations: u32,
    /// The maximum number of tokens of all responses together.
    pub tokens: u64,
    /// The longest active time, over all runs.
    pub time: Duration,
}

impl TurnLimits {
    /// Returns these limits with the agent's own `iterations`, if it has any.
    pub fn of_agent(self, iterations: Option<u32>) -> Self {
        Self { iterations: iterations.unwrap_or(self.iterations), ..self }
    }

    /// Returns the limits of a turn: these limits, lowered to the `bounds` of its message.
    pub fn within(self, bounds: Option<TurnBounds>) -> Self {
        match bounds {
            None => self,
            Some(own) => Self {
                iterations: self.iterations.min(own.iterations),
                tokens: self.tokens.min(own.tokens),
                time: self.time.min(Duration::from_millis(own.timeout_ms)),
            },
        }
    }
}

/// Everything that a turn works with.
pub struct Turn<'a> {
    pub scope: TurnScope<'a>,
    /// The system prompt.
    pub system: SerializedText,
    /// The conversation so far, with this turn's message last.
    pub conversation: Vec<Arc<ChatMessage>>,
    pub source: ResponseSource<'a>,
    pub tools: &'a dyn Tools,
    pub tool_context: ToolContext,
    /// Loads the conversation's images.
    pub image_loader: &'a ImageLoader,
    /// The images that were loaded, from the first model call on.
    pub images: LoadedImages,
    pub temperature: Option<f64>,
    pub max_tokens: Option<u32>,
    pub limits: TurnLimits,
    pub journal: &'a dyn Journal,
    pub approvals: &'a dyn Approvals,
    pub events: &'a EventEmitter,
    pub flight: &'a FlightSlot<'a>,
}

/// The way in which a turn without a failure ended or paused.
#[derive(Clone, Debug, PartialEq)]
pub enum TurnRunOutcome {
    /// The reply to the user.
    Answered(String),
    /// The turn waits for a model or for other turns, and runs again later.
    Parked {
        /// The session must be checked again at once.
        must_recheck: bool,
    },
}

/// The result of the loop.
#[derive(Clone, Debug, PartialEq)]
pub enum LoopOutcome {
    /// The reply to the user.
    Answered(String),
    /// The remaining calls all wait for the ends of these turns.
    AwaitsTurns(Vec<Uuid>),
}

impl Turn<'_> {
    /// Runs from `progress` until there is an answer, or until other turns have to end first; returns `None` if the context's
    /// `cancel` came first. Every step is in the journal and in `progress` before the next one begins, so the turn can resume from
    /// both wherever the future is dropped. The answer is in `progress` alone until the end of the turn.
    pub async fn run(&self, progress: &mut TurnProgress) -> Option<Result<LoopOutcome, TurnError>> {
        let clock = ActiveClock { began: Instant::now(), before: progress.active };
        let cancel = &self.tool_context.cancel;
        loop {
            if let Some(answer) = &progress.answer {
                return Some(self.answer(answer, progress).map(LoopOutcome::Answered));
            }
            self.events.calls(progress.open_calls.iter().map(|open| &open.call));
            let awaited = self.run_open_calls(progress, &clock).await;
            if !awaited.is_empty() && !cancel.is_cancelled() {
                return Some(Ok(LoopOutcome::AwaitsTurns(awaited)));
            }
            let used = progress.usage.input_tokens.saturating_add(progress.usage.output_tokens);
            if used >= self.limits.tokens {
                return Some(Err(TurnError::new(ErrorCode::TokenCap, "turn").with([used.to_string()])));
            }
            match cancel.run_until_cancelled(self.ask(progress)).await? {
                Ok(response) => {
                    let step = StepBody::Response { response, active_ms: clock.active_ms() };
                    self.journal.record(&step).await;
                    progress.apply(step);
                }
                Err(error) => return Some(Err(error)),
            }
        }
    }

    fn answer(&self, response: &ChatResponse, progress: &TurnProgress) -> Result<String, TurnError> {
        let mut reply = think::strip(&response.text);
        let phrases = self.scope.phrases;
        let cut = match (response.filtered, response.truncated) {
            (true, _) => Some(phrases.cut_by_filter),
            (false, true) => Some(phrases.cut_at_length),
            (false, false) => None,
        };
        let capped = progress.tool_rounds >= self.limits.iterations;
        // At the limit, an empty reply is not an error: the notice below is then the whole answer.
        if reply.is_empty() && !capped {
            // After tools that did the task, a model may have nothing more to say.
            let did_something = progress.tool_rounds > 0;
            if !did_something {
                let error = TurnError::new(ErrorCode::EmptyAnswer, "turn");
                return Err(match cut {
                    Some(cut) => error.with_notice(cut),
                    None => error,
                });
            }
            phrases.done.clone_into(&mut reply);
        }
        let mut notice = |text: &str| {
            let gap = if reply.is_empty() { "" } else { "\n\n" };
            reply.push_str(gap);
            reply.push_str(text);
        };
        if let Some(cut) = cut {
            notice(cut);
        }
        if capped {
            notice(&fill(phrases.iteration_cap, &[&self.limits.iterations.to_string()]));
        }
        Ok(reply)
    }

    fn ask_script(&self, script: &dyn Script, progress: &TurnProgress) -> Result<ChatResponse, TurnError> {
        let mut response = script.next(progress)?;
        CallIds::after(self.past(progress)).settle(&mut response.tool_calls);
        response.tool_calls.iter_mut().for_each(|call| self.tools.canonicalize(call));
        if response.tool_calls.is_empty() {
            self.events.delta(Delta::Text(&response.text));
        }
        self.events.end_response();
        Ok(response)
    }

    /// Returns the next response. The last allowed model call offers no tools.
    async fn ask(&self, progress: &TurnProgress) -> Result<ChatResponse, TurnError> {
        let model = match self.source {
            ResponseSource::Model(model) => model,
            ResponseSource::Script(script) => return self.ask_script(script, progress),
        };
        let last_call = progress.tool_rounds >= self.limits.iterations;
        let tools: Arc<[ToolSpec]> = if last_call { Arc::default() } else { self.tools.specs(&progress.found_tools) };
        let mut messages = self.conversation.clone();
        messages.extend(compaction::messages_to_send(progress).map(Arc::new));
        if let Some(flaw) = repair_messages(&mut messages) {
            let ToolContext { turn, session, .. } = &self.tool_context;
            tracing::warn!(%turn, %session, %flaw, "the conversation was invalid for model services and was repaired");
        }
        let images = self.images(model, &messages).await;
        if !images.is_empty() {
            messages = with_images_of_results(messages);
        }
        let request = ChatRequest {
            model: model.name(),
            system: self.system.clone(),
            images,
            messages,
            tools,
            temperature: self.temperature,
            max_tokens: self.max_tokens,
        };
        let sink = ResponseSink {
            flight: self.flight,
            events: self.events,
            has_come: AtomicBool::new(false),
            ids: CallIds::after(request.messages.iter().map(Arc::as_ref)),
        };
        self.flight.mark_waiting();
        let response = model.chat(request, &sink).await;
        self.flight.mark_working();
        if let Some(answer) = response.as_ref().ok().and_then(|response| think::after_unopened_block(&response.text)) {
            // Listeners have seen the thinking as text.
            self.events.delta(Delta::Restart);
            self.events.delta(Delta::Text(answer));
        }
        self.events.end_response();
        let mut response = response?;
        if last_call {
            response.tool_calls.clear();
        }
        sink.ids.settle(&mut response.tool_calls);
        response.tool_calls.iter_mut().for_each(|call| self.tools.canonicalize(call));
        self.events.used(response.usage);
        Ok(response)
    }

    /// Returns the conversation, and the messages of this turn after it.
    pub(super) fn past<'p>(&'p self, progress: &'p TurnProgress) -> impl Iterator<Item = &'p ChatMessage> + Clone {
        self.conversation.iter().map(Arc::as_ref).chain(&progress.messages)
    }

    /// Returns the images that the messages name; none if no model that may answer accepts images.
    async fn images(&self, model: &dyn Model, messages: &[Arc<ChatMessage>]) -> Images {
        let has_images = messages.iter().any(|message| !images_of(message).is_empty());
        if !has_images || !model.takes_images().await {
            return Images::default();
        }
        self.image_loader.load(messages, &self.images).await
    }
}

/// Active time of the turn, over all its runs.
pub(super) struct ActiveClock {
    began: Instant,
    before: Duration,
}

impl ActiveClock {
    pub(super) fn active_ms(&self) -> u64 {
        u64::try_from((self.before + self.began.elapsed()).as_millis()).unwrap_or(u64::MAX)
    }
}

/// A sink that records the end of the wait for the model: from the first delta on, this process works.
struct ResponseSink<'a> {
    flight: &'a FlightSlot<'a>,
    events: &'a EventEmitter,
    has_come: AtomicBool,
    ids: CallIds,
}

impl DeltaSink for ResponseSink<'_> {
    fn delta(&self, delta: Delta<'_>) {
        if delta == Delta::Restart {
            self.has_come.store(false, Ordering::Relaxed);
            self.flight.mark_waiting();
            self.ids.restart();
        } else if !self.has_come.swap(true, Ordering::Relaxed) {
            self.flight.mark_working();
        }
        match delta {
            Delta::ToolCall { id, name } => self.events.delta(Delta::ToolCall { id: &self.ids.show(id), name }),
            other => self.events.delta(other),
        }
    }
}

/// Assigns unique ids to tool calls. Some services restart their call ids with each response, and others reject a conversation that
/// contains an id twice. A call keeps the id under which listeners saw it while its arguments were still arriving.
pub(super) struct CallIds {
    /// The ids of the earlier responses.
    before: HashSet<String>,
    now: Mutex<ResponseIds>,
}

/// Ids of the current response.
#[derive(Default)]
struct ResponseIds {
    taken: HashSet<String>,
    /// Our ids of the calls that listeners have seen, by the service's ids.
    shown: HashMap<String, String>,
}

impl CallIds {
    /// Prepares the ids for the response to `messages`.
    pub(super) fn after<'a>(messages: impl Iterator<Item = &'a ChatMessage>) -> Self {
        // A call whose result was lost still occupies its id.
        let ids = |message: &ChatMessage| match message {
            ChatMessage::Tool { call_id, .. } => vec![call_id.clone()],
            ChatMessage::Assistant { tool_calls, .. } => tool_calls.iter().map(|call| call.id.clone()).collect(),
            ChatMessage::User { .. } => Vec::new(),
        };
        Self { before: messages.flat_map(ids).collect(), now: Mutex::default() }
    }

    /// Returns our id for a call whose text has begun to arrive.
    pub(super) fn show(&self, sent: &str) -> String {
        let mut now = self.now.lock();
        let id = self.take(&mut now, sent);
        now.shown.insert(sent.to_owned(), id.clone());
        id
    }

    /// Clears the ids of a response that restarts.
    pub(super) fn restart(&self) {
        *self.now.lock() = ResponseIds::default();
    }

    /// Assigns the final ids to the calls of a complete response.
    pub(super) fn settle(&self, calls: &mut [ToolCall]) {
        let mut now = self.now.lock();
        for call in calls {
            let shown = now.shown.remove(&call.id);
            call.id = shown.unwrap_or_else(|| self.take(&mut now, &call.id));
        }
    }

    fn take(&self, now: &mut ResponseIds, sent: &str) -> String {
        let wanted = if sent.is_empty() { "call" } else { sent };
        numbered_name(wanted, |id| self.before.contains(id) || !now.taken.insert(id.to_owned()))
    }
}

#[cfg(test)]
#[path = "turn_loop_tests.rs"]
mod tests;
