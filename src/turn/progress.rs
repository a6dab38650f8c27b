//! The progress of a turn, read from its journal.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::spending::Spending;
use crate::chat::{ChatMessage, ImageRef, ToolCall, Usage, repeat_note};
use crate::guard::Taint;
use crate::llm::ChatResponse;
use crate::postprocess::ModelUse;
use crate::store::turn_steps::{self, TurnStepRow};
use crate::store::usage::Costs;
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
    /// The costs at the last manual retry, which resets the turn's budget.
    pub spent_before: Costs,
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

    /// Applies a step that has just been written.
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
                self.spent_before = self.spending.costs();
                self.waiting_since = None;
            }
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn call(id: &str) -> ToolCall {
        ToolCall { id: id.to_owned(), name: "exec".to_owned(), arguments: "{}".to_owned() }
    }

    fn response(calls: &[&str]) -> StepBody {
        let tool_calls = calls.iter().map(|id| call(id)).collect();
        StepBody::Response { response: ChatResponse { tool_calls, ..ChatResponse::default() }, active_ms: 5 }
    }

    fn result(id: &str) -> StepBody {
        let result = ToolResult::ok("fine");
        StepBody::ToolResult { call_id: id.to_owned(), name: "exec".to_owned(), result, active_ms: 9 }
    }

    fn started(id: &str) -> StepBody {
        StepBody::ToolStarted { call_id: id.to_owned(), name: "exec".to_owned() }
    }

    fn rows(bodies: &[StepBody]) -> Vec<TurnStepRow> {
        let mut before = String::new();
        (0..)
            .zip(bodies)
            .map(|(seq, body)| {
                let text = serde_json::to_string(body).unwrap();
                before = turn_steps::chain_hash(&before, &text);
                TurnStepRow {
                    seq,
                    kind: body.kind().to_owned(),
                    version: turn_steps::VERSION,
                    body: text,
                    hash: before.clone(),
                    at: 0,
                }
            })
            .collect()
    }

    fn open(progress: &TurnProgress) -> Vec<(&str, bool)> {
        progress.open_calls.iter().map(|open| (open.call.id.as_str(), open.interrupted)).collect()
    }

    #[test]
    fn a_journal_yields_the_open_calls() {
        type Row<'a> = (&'a [StepBody], &'a [(&'a str, bool)], usize);
        let table: &[Row<'_>] = &[
            (&[], &[], 0),
            (&[response(&["a", "b"])], &[("a", false), ("b", false)], 1),
            (&[response(&["a", "b"]), started("a")], &[("a", true), ("b", false)], 1),
            (&[response(&["a", "b"]), started("b"), result("b")], &[("a", false)], 2),
            (&[response(&["a"]), result("a"), response(&[])], &[], 2),
        ];
        for (steps, calls, messages) in table {
            let progress = TurnProgress::read(&rows(steps)).unwrap();
            assert_eq!((open(&progress).as_slice(), progress.messages.len()), (*calls, *messages), "{steps:?}");
        }
        let done = TurnProgress::read(&rows(&[response(&[])])).unwrap();
        assert!(done.answer.is_some() && done.active == Duration::from_millis(5));
    }

    fn answered(progress: &TurnProgress) -> String {
        let ids = progress.messages.iter().filter_map(|message| match message {
            ChatMessage::Tool { call_id, .. } => Some(call_id.as_str()),
            _ => None,
        });
        ids.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn parallel_results_are_kept_in_the_order_of_their_calls() {
        for ended in ["a b c", "c b a", "b c a", "c a", "b", ""] {
            let mut steps = vec![response(&["x"]), result("x"), response(&["a", "b", "c"])];
            steps.extend(ended.split_whitespace().map(result));
            let mut progress = TurnProgress::read(&rows(&steps)).unwrap();
            let expected: Vec<_> = ["a", "b", "c"].into_iter().filter(|id| ended.contains(id)).collect();
            assert_eq!(answered(&progress), format!("x {}", expected.join(" ")).trim_end(), "{ended}");
            progress.close_calls("stopped");
            assert_eq!(answered(&progress), "x a b c", "{ended}");
        }
    }

    #[test]
    fn results_in_any_order_are_kept_in_the_order_of_their_calls() {
        let unreadable = |at: usize, bodies: &[StepBody]| {
            let mut steps = rows(bodies);
            steps[at].version = 99;
            TurnProgress::read(&steps).unwrap()
        };
        let answered = |progress: &TurnProgress| {
            let id = |message: &ChatMessage| match message {
                ChatMessage::Tool { call_id, content, .. } if content.contains("unknown") => format!("{call_id}?"),
                ChatMessage::Tool { call_id, .. } => call_id.clone(),
                other => other.role().to_owned(),
            };
            progress.messages.iter().map(id).collect::<Vec<_>>().join(" ")
        };
        let three = [response(&["a", "b", "c"]), result("c"), result("a"), result("x"), result("a"), result("b")];
        assert_eq!(answered(&TurnProgress::read(&rows(&three)).unwrap()), "assistant a b c");

        let mut lost = unreadable(1, &[response(&["a", "b"]), result("a"), result("b")]);
        assert_eq!((answered(&lost).as_str(), open(&lost)), ("assistant b", vec![("a", true)]));
        lost.close_calls("stopped");
        assert_eq!(answered(&lost), "assistant a? b");

        let gone_on = unreadable(1, &[response(&["a"]), result("a"), response(&["b"]), result("b")]);
        assert_eq!((answered(&gone_on).as_str(), open(&gone_on)), ("assistant a? assistant b", vec![]));
        let ended = unreadable(1, &[response(&["a"]), result("a"), response(&[])]);
        assert_eq!((answered(&ended).as_str(), ended.answer.is_some()), ("assistant a?", true));
    }

    #[test]
    fn closing_leaves_a_conversation_where_every_call_is_answered_once() {
        let mut progress = TurnProgress::read(&rows(&[response(&["a", "b"]), started("a")])).unwrap();
        progress.close_calls("stopped");
        let tools: Vec<_> = progress.messages[1..]
            .iter()
            .map(|message| match message {
                ChatMessage::Tool { call_id, content, .. } => (call_id.as_str(), content.contains("unknown")),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(tools, [("a", true), ("b", false)]);
    }

    #[test]
    fn a_retried_turn_resumes_from_its_finished_steps() {
        let answer = StepBody::Response { response: ChatResponse::default(), active_ms: 600_000 };
        let mut steps = rows(&[response(&["a"]), result("a"), answer, StepBody::Waiting { since: 7 }]);
        assert_eq!(TurnProgress::read(&steps).unwrap().active.as_secs(), 600);
        let hash = turn_steps::chain_hash(&steps[3].hash, turn_steps::RETRIED);
        let (kind, body) = ("note".to_owned(), turn_steps::RETRIED.to_owned());
        steps.push(TurnStepRow { seq: 4, kind, version: turn_steps::VERSION, body, hash, at: 0 });
        let progress = TurnProgress::read(&steps).unwrap();
        assert!(progress.answer.is_none() && progress.active.is_zero() && progress.waiting_since.is_none());
        assert_eq!((answered(&progress).as_str(), progress.messages.len()), ("a", 2));
    }

    #[test]
    fn contexts_under_earlier_names_are_read() {
        let earlier = r#"{"step":"context","system":"","from":1,"to":2,"user":"u","said":"s","model":"a/b",
            "squeezed":2,"is_tight":true,"forgets":3}"#;
        let expected = ContextStep {
            from: 1,
            to: 2,
            user: "u".to_owned(),
            stored_text: Some("s".to_owned()),
            model: "a/b".to_owned(),
            compactions: 2,
            is_context_full: true,
            forget_count: 3,
            ..ContextStep::default()
        };
        assert_eq!(serde_json::from_str::<StepBody>(earlier).unwrap(), StepBody::Context(expected));
    }

    #[test]
    fn a_damaged_journal_is_an_error_and_an_unreadable_result_counts_as_interrupted() {
        let mut damaged = rows(&[response(&["a"]), result("a")]);
        damaged[0].body.push(' ');
        assert!(TurnProgress::read(&damaged).is_err());

        let mut newer = rows(&[response(&["a"]), result("a")]);
        newer[1].version = 99;
        assert_eq!(open(&TurnProgress::read(&newer).unwrap()), [("a", true)]);
        newer[0].version = 99;
        assert!(TurnProgress::read(&newer).is_err());
    }

    #[test]
    fn only_repeated_calls_with_the_same_result_get_a_note() {
        let mut repeats = RepeatedCalls::default();
        for (name, arguments, result, expected) in [
            ("list_dir", "{}", "a", None),
            ("list_dir", "{}", "a", None),
            ("list_dir", "{}", "a", Some("3 times")),
            ("list_dir", "{}", "a", Some("4 times")),
            ("list_dir", "{}", "b", None),
            ("list_dir", "{}", "a", None),
            ("list_dir", "{\"path\":\".\"}", "a", None),
            ("read_file", "{\"path\":\".\"}", "a", None),
            ("read_file", "{\"path\":\".\"}", "a", None),
            ("read_file", "{\"path\":\".\"}", "a", Some("3 times")),
        ] {
            let call = ToolCall { id: "x".to_owned(), name: name.to_owned(), arguments: arguments.to_owned() };
            let note = repeats.note(&call, result);
            let fits = note
                .as_deref()
                .map_or(expected.is_none(), |note| expected.is_some_and(|expected| note.contains(expected)));
            assert!(fits, "{name} {arguments} {result}: {note:?}");
        }
    }
}
