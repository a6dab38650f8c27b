//! The progress of a turn, read from its journal, and what its models used and cost.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::chat::{ChatMessage, ImageRef, ToolCall, Usage, repeat_note};
use crate::guard::Taint;
use crate::llm::{ChatResponse, Cost};
use crate::postprocess::ModelUse;
use crate::store::turn_steps::{self, TurnStepRow};
use crate::store::usage::{self, Costs, TokenCounts};
use crate::store::{Connection, StoreError};
use crate::text::think;
use crate::tools::{ToolAllowList, ToolResult};

/// The result of a call that the end of the process interrupted.
pub const INTERRUPTED: &str = "interrupted: the gateway stopped while this ran; whether it took effect is unknown";

/// The context that a turn began with. A resumed turn uses the same context again. The aliases of its fields are their names in rows
/// that were written before format 30 of the store.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ContextStep {
    /// SHA-256 of the system prompt.
    pub system: String,
    /// The range of the session's messages, by seq.
    pub from: i64,
    pub to: i64,
    /// The user's message as the model reads it.
    pub user: String,
    /// The message as the session stores it, if that differs from `user`: an agent's template may surround the message that the
    /// model reads.
    #[serde(default, alias = "said", skip_serializing_if = "Option::is_none")]
    pub stored_text: Option<String>,
    /// The images of the message.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<ImageRef>,
    /// The model that the turn asks, as `PROVIDER/MODEL`.
    pub model: String,
    /// The agent that answers; `None` is the default assistant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// The hash of the workflow that the turn follows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workflow: Option<String>,
    /// The usage of the model call that chose the agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub choice: Option<ModelUse>,
    /// How often the conversation was compacted because the model rejected it as too long.
    #[serde(default, alias = "squeezed", skip_serializing_if = "is_default")]
    pub compactions: u8,
    /// The hash of the memory snapshot in the system prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<String>,
    /// The id of the summary of the messages before `from`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<i64>,
    /// The names of the foreign content in the conversation and the message; see [`Taint`].
    #[serde(default, skip_serializing_if = "Taint::is_empty")]
    pub taint: Taint,
    /// The space for older messages was full, or nearly.
    #[serde(default, alias = "is_tight", skip_serializing_if = "std::ops::Not::not")]
    pub is_context_full: bool,
    /// The count of forgotten memories when the context was composed.
    #[serde(default, alias = "forgets", skip_serializing_if = "is_default")]
    pub forget_count: i64,
}

impl ContextStep {
    /// Returns the user's message as the model reads it.
    pub fn message(&self) -> ChatMessage {
        ChatMessage::User { content: self.user.clone(), images: self.images.clone() }
    }

    /// Returns the user's message as the session stores it.
    pub fn stored_message(&self) -> ChatMessage {
        let content = self.stored_text.as_ref().unwrap_or(&self.user).clone();
        ChatMessage::User { content, images: self.images.clone() }
    }
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// The bodies of steps, by kind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "step", rename_all = "snake_case")]
pub enum StepBody {
    Context(ContextStep),
    Response {
        response: ChatResponse,
        active_ms: u64,
    },
    ToolStarted {
        call_id: String,
        name: String,
    },
    ToolResult {
        call_id: String,
        name: String,
        result: ToolResult,
        active_ms: u64,
    },
    Note {
        text: String,
    },
    /// No model was available since `since`, in UTC milliseconds; the same commit writes the notice for the sender.
    Waiting {
        since: i64,
    },
    /// The owner retried a turn that had failed.
    Retried,
}

impl StepBody {
    /// Returns the row's `kind`.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Context(_) => "context",
            Self::Response { .. } => "response",
            Self::ToolStarted { .. } => "tool_started",
            Self::ToolResult { .. } => "tool_result",
            Self::Note { .. } | Self::Waiting { .. } | Self::Retried => "note",
        }
    }

    /// Returns true for a response without tool calls, after which the turn ends.
    pub fn is_answer(&self) -> bool {
        matches!(self, Self::Response { response, .. } if response.tool_calls.is_empty())
    }
}

/// A tool call of the last response that has no result yet.
#[derive(Clone, Debug, PartialEq)]
pub struct OpenCall {
    pub call: ToolCall,
    /// The call had been started when the process ended.
    pub interrupted: bool,
}

/// How a call failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallFailure {
    Repeatable,
    /// It was refused, or may have taken effect.
    Final,
}

/// What a turn has done so far.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TurnProgress {
    pub context: Option<ContextStep>,
    /// The messages after the user's message, in order; they contain only those calls that have a result.
    pub messages: Vec<ChatMessage>,
    /// Calls of the last response without a result, in order.
    pub open_calls: Vec<OpenCall>,
    /// The calls that failed, by id.
    pub failures: BTreeMap<String, CallFailure>,
    /// Responses that asked for tools.
    pub tool_rounds: u32,
    pub usage: Usage,
    /// Usage and cost by model.
    pub spending: Spending,
    /// Active time, over all runs of this turn.
    pub active: Duration,
    /// The tools that `find_tools` has found in the conversation, before or during this turn.
    pub found_tools: BTreeSet<String>,
    /// The tools that the loaded skills of this turn allow.
    pub allow_lists: Vec<ToolAllowList>,
    /// A response without tool calls. With it, the turn only has to end.
    pub answer: Option<ChatResponse>,
    repeats: RepeatedCalls,
    /// The model of the last response, as `PROVIDER/MODEL`.
    answered_by: String,
    /// When the turn first found no model available, in UTC milliseconds.
    pub waiting_since: Option<i64>,
    /// The names of the foreign content that the turn has read, including the conversation before it; see [`Taint`].
    pub taint: Taint,
}

/// The journal is damaged, or was written by a newer program.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct UnreadableJournal(String);

impl TurnProgress {
    /// Reads a journal.
    ///
    /// # Errors
    /// [`UnreadableJournal`] if the hash chain is broken or a step cannot be read. A tool result that cannot be read counts
    /// as interrupted, never as absent.
    pub fn read(steps: &[TurnStepRow]) -> Result<Self, UnreadableJournal> {
        if !turn_steps::chain_holds(steps) {
            return Err(UnreadableJournal("the hash chain of the turn's steps is broken".to_owned()));
        }
        let mut progress = Self::default();
        for step in steps {
            let body = if step.version == turn_steps::VERSION { serde_json::from_str(&step.body).ok() } else { None };
            match body {
                Some(body) => progress.apply(body),
                None if step.kind == "tool_started" || step.kind == "tool_result" => progress.interrupt_all(),
                None => return Err(UnreadableJournal(format!("step {} ({}) cannot be read", step.seq, step.kind))),
            }
        }
        Ok(progress)
    }

    /// Applies a step that has just been recorded.
    pub fn apply(&mut self, step: StepBody) {
        match step {
            StepBody::Context(context) => {
                self.taint.extend(context.taint.iter().cloned());
                // A compacted context repeats the usage of the choice.
                if let Some(used) = context.choice.as_ref().filter(|_| self.context.is_none()) {
                    self.spending.add(&used.model, used.usage, used.cost.as_ref());
                }
                self.context = Some(context);
            }
            StepBody::Response { response, active_ms } => self.respond(response, active_ms),
            StepBody::ToolStarted { call_id, .. } => {
                if let Some(open) = self.open_calls.iter_mut().find(|open| open.call.id == call_id) {
                    open.interrupted = true;
                }
            }
            StepBody::ToolResult { call_id, name, result, active_ms } => {
                self.active = Duration::from_millis(active_ms);
                self.taint.extend(result.taint.iter().cloned());
                self.found_tools.extend(result.found_tools.iter().cloned());
                let new = result.allow_lists.iter().filter(|list| !self.allow_lists.contains(list));
                let new: Vec<_> = new.cloned().collect();
                self.allow_lists.extend(new);
                for used in &result.model_use {
                    self.spending.add(&used.model, used.usage, used.cost.as_ref());
                }
                if !result.success {
                    let failure = if result.is_final { CallFailure::Final } else { CallFailure::Repeatable };
                    self.failures.insert(call_id.clone(), failure);
                }
                let mut content = result.render();
                if let Some(open) = self.open_calls.iter().find(|open| open.call.id == call_id)
                    && let Some(note) = self.repeats.note(&open.call, &content)
                {
                    content.push_str(&note);
                }
                self.answer_call(&call_id, name, content, result.images);
            }
            StepBody::Note { .. } => {}
            StepBody::Waiting { since } => self.waiting_since = Some(since),
            // Resets the values that count against the limits; finished work stays.
            StepBody::Retried => {
                self.answer = None;
                self.active = Duration::ZERO;
                self.usage = Usage::default();
                self.waiting_since = None;
            }
        }
    }

    /// Takes the step of the turn's answer, if there is one.
    pub fn take_answer_step(&mut self) -> Option<StepBody> {
        let active_ms = u64::try_from(self.active.as_millis()).unwrap_or(u64::MAX);
        self.answer.take().map(|response| StepBody::Response { response, active_ms })
    }

    /// Returns the provider of the last response; empty before the first.
    pub fn provider(&self) -> &str {
        self.answered_by.split('/').next().unwrap_or_default()
    }

    /// Gives every open call a result, so that the conversation is valid.
    pub fn close_calls(&mut self, reason: &str) {
        while let Some(OpenCall { call, interrupted }) = self.open_calls.first().cloned() {
            let reason = if interrupted { INTERRUPTED } else { reason };
            self.failures.insert(call.id.clone(), CallFailure::Final);
            self.answer_call(&call.id, call.name, ToolResult::failed(reason).render(), Vec::new());
        }
    }

    /// Inserts a result at its call's position: results arrive in any order but are stored in the order of the calls. A result
    /// without an open call is dropped.
    fn answer_call(&mut self, call_id: &str, name: String, content: String, images: Vec<ImageRef>) {
        let Some(open) = self.open_calls.iter().position(|open| open.call.id == call_id) else { return };
        self.open_calls.remove(open);
        let asked = self.messages.iter().rposition(|message| matches!(message, ChatMessage::Assistant { .. }));
        let Some(ChatMessage::Assistant { tool_calls, .. }) = asked.and_then(|at| self.messages.get(at)) else {
            return;
        };
        let is_before = |message: &ChatMessage| match message {
            ChatMessage::Tool { call_id: other, .. } => {
                tool_calls.iter().take_while(|call| call.id != call_id).any(|call| call.id == *other)
            }
            _ => true,
        };
        let place = self.messages.iter().rposition(is_before).map_or(0, |at| at + 1);
        self.messages.insert(place, ChatMessage::Tool { call_id: call_id.to_owned(), name, content, images });
    }

    fn respond(&mut self, response: ChatResponse, active_ms: u64) {
        // A result that could not be read back leaves its call open, although the model has continued since.
        self.close_calls(INTERRUPTED);
        self.usage += response.usage;
        let asked = self.context.as_ref().map(|context| context.model.as_str()).unwrap_or_default();
        self.spending.count(&response, asked);
        self.active = Duration::from_millis(active_ms);
        self.answered_by.clone_from(&response.answered_by);
        // If the service fails again, a new wait begins.
        self.waiting_since = None;
        if response.tool_calls.is_empty() {
            self.answer = Some(response);
            return;
        }
        self.tool_rounds += 1;
        self.open_calls =
            response.tool_calls.iter().cloned().map(|call| OpenCall { call, interrupted: false }).collect();
        self.messages.push(ChatMessage::Assistant {
            content: think::strip(&response.text),
            reasoning: response.reasoning,
            tool_calls: response.tool_calls,
        });
    }

    fn interrupt_all(&mut self) {
        for open in &mut self.open_calls {
            open.interrupted = true;
        }
    }
}

/// Returns the messages that a turn adds to its session: the user's message, the steps with open calls closed by
/// `reason`, the reply.
pub fn session_messages(user: &ChatMessage, mut progress: TurnProgress, reason: &str, reply: &str) -> Vec<ChatMessage> {
    progress.close_calls(reason);
    let mut messages = vec![user.clone()];
    messages.extend(progress.messages);
    messages.push(ChatMessage::assistant(reply));
    for message in &mut messages {
        // The session stores reasoning only for messages with calls, because some services require it there in all later turns
        // (DeepSeek's thinking mode, Gemini's signatures).
        if let ChatMessage::Assistant { reasoning, tool_calls, .. } = message
            && tool_calls.is_empty()
        {
            *reasoning = None;
        }
    }
    messages
}

/// The number of equal consecutive calls from which on the model gets a note.
const NOTED_FROM: u32 = 3;

/// The last call of a turn, and how many consecutive times it had the same result.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct RepeatedCalls {
    name: String,
    arguments: String,
    result: String,
    times: u32,
}

impl RepeatedCalls {
    /// Counts a call and its result; returns the note for the model, if one is due.
    fn note(&mut self, call: &ToolCall, result: &str) -> Option<String> {
        let is_same = self.name == call.name && self.arguments == call.arguments && self.result == result;
        if is_same {
            self.times = self.times.saturating_add(1);
        } else {
            let (name, arguments) = (call.name.clone(), call.arguments.clone());
            *self = Self { name, arguments, result: result.to_owned(), times: 1 };
        }
        (self.times >= NOTED_FROM).then(|| repeat_note(self.times))
    }
}

/// Tokens and money of a turn, by model (`PROVIDER/MODEL`).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Spending(BTreeMap<String, ModelSpending>);

/// Usage and cost of one model.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModelSpending {
    pub usage: Usage,
    /// The cost of the responses whose price was known.
    pub cost: Option<Cost>,
}

impl Spending {
    /// Counts a response in a turn that `asked` the model `PROVIDER/MODEL`.
    pub fn count(&mut self, response: &ChatResponse, asked: &str) {
        let name = if response.answered_by.is_empty() { asked } else { &response.answered_by };
        // The steps of a workflow belong to no model.
        if name.is_empty() && response.usage == Usage::default() {
            return;
        }
        self.add(name, response.usage, response.cost.as_ref());
    }

    /// Counts usage of the model `PROVIDER/MODEL`.
    pub fn add(&mut self, model: &str, usage: Usage, cost: Option<&Cost>) {
        let one = self.0.entry(model.to_owned()).or_default();
        one.usage += usage;
        let Some(cost) = cost else { return };
        match &mut one.cost {
            Some(sum) if sum.currency == cost.currency => sum.micros = sum.micros.saturating_add(cost.micros),
            // The currency of the prices changed during the turn, after a restart; amounts in two currencies cannot be added.
            Some(sum) => tracing::warn!(%sum, %cost, model, "a turn's cost is in two currencies; the first is kept"),
            none => *none = Some(cost.clone()),
        }
    }

    /// Iterates over the models that answered.
    pub fn models(&self) -> impl Iterator<Item = (&str, &ModelSpending)> {
        self.0.iter().map(|(model, spending)| (model.as_str(), spending))
    }

    /// Returns the cost of all models by currency.
    pub fn costs(&self) -> Costs {
        let mut costs = Costs::new();
        for cost in self.0.values().filter_map(|spending| spending.cost.as_ref()) {
            let sum: &mut u64 = costs.entry(cost.currency.clone()).or_default();
            *sum = sum.saturating_add(cost.micros);
        }
        costs
    }
}

impl ModelSpending {
    /// Writes the spending of the model `PROVIDER/MODEL`. `turn` is the id of the turn, or a new id for a consolidation.
    ///
    /// # Errors
    /// The database cannot be written.
    pub fn write(&self, connection: &Connection, turn: Uuid, session: &str, model: &str) -> Result<(), StoreError> {
        let Usage { input_tokens: input, output_tokens: output, cached_tokens: cached, .. } = self.usage;
        let cost = self.cost.as_ref().map(|cost| (cost.currency.as_str(), cost.micros));
        usage::add(connection, turn, session, model, TokenCounts { turns: 1, input, output, cached }, cost)
    }
}

#[cfg(test)]
#[path = "progress_tests.rs"]
mod tests;
