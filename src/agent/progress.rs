//! How far a turn has come, read from its journal.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::repeats::Repeats;
use super::spending::Spending;
use crate::chat::{ChatMessage, ImageRef, ToolCall, Usage};
use crate::llm::ChatResponse;
use crate::store::turn_steps::{self, StepRow};
use crate::store::usage::Costs;
use crate::tools::ToolResult;

/// The result of a call that was cut off by the end of the process.
pub const INTERRUPTED: &str = "interrupted: the gateway stopped while this ran; whether it took effect is unknown";

/// What the model was given when the turn first began; a resumed turn gives it the same again.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ContextStep {
    /// SHA-256 of the system prompt.
    pub system: String,
    /// The session's messages that were given, by seq.
    pub from: i64,
    pub to: i64,
    /// The message itself, as the model reads it.
    pub user: String,
    /// The pictures that came with it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<ImageRef>,
    /// `PROVIDER/MODEL`.
    pub model: String,
    /// How often the conversation was made smaller, as the model would not take it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub squeezed: u8,
    /// The hash of what the system prompt holds of the long-term memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<String>,
    /// The memory that tells what was said before `from`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<i64>,
    /// The room for older messages was used up, or nearly.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_tight: bool,
    /// How often something had been forgotten when the turn was given what it was given.
    #[serde(default, skip_serializing_if = "is_none_yet")]
    pub forgets: i64,
}

impl ContextStep {
    /// The message itself.
    pub fn message(&self) -> ChatMessage {
        ChatMessage::User { content: self.user.clone(), images: self.images.clone() }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands over a reference")]
fn is_zero(number: &u8) -> bool {
    *number == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands over a reference")]
fn is_none_yet(number: &i64) -> bool {
    *number == 0
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
    /// No model could be reached, for the first time at `since`, in UTC milliseconds; the sender is told with it.
    Waiting {
        since: i64,
    },
    /// The turn had failed, and its owner has it go on.
    Retried,
}

impl StepBody {
    /// What stands in the row's `kind`.
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
    /// It had been started when the process ended.
    pub interrupted: bool,
}

/// What a turn has done so far.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Progress {
    pub context: Option<ContextStep>,
    /// What the turn added to the conversation after the user's message: answered calls only, in order.
    pub messages: Vec<ChatMessage>,
    /// Calls of the last response without a result, in order.
    pub open_calls: Vec<OpenCall>,
    /// Responses that asked for tools.
    pub tool_rounds: u32,
    pub usage: Usage,
    /// The same by model, and what it cost.
    pub spending: Spending,
    /// What had been spent when the turn was last retried by hand: the budget of a turn begins anew then.
    pub spent_before: Costs,
    /// Active time, over all runs of this turn.
    pub active: Duration,
    /// A response without tool calls: the turn only has to end.
    pub answer: Option<ChatResponse>,
    repeats: Repeats,
    /// `PROVIDER/MODEL` of the last response.
    answered_by: String,
    /// When the turn first found no model, in UTC milliseconds.
    pub waiting_since: Option<i64>,
}

/// The journal cannot be believed, or not be read by this program.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Damaged(String);

impl Progress {
    /// Reads a journal.
    ///
    /// # Errors
    /// [`Damaged`] when the hash chain is broken or a step cannot be read. A tool result that cannot be read counts
    /// as interrupted, never as absent.
    pub fn read(steps: &[StepRow]) -> Result<Self, Damaged> {
        if !turn_steps::chain_holds(steps) {
            return Err(Damaged("the hash chain of the turn's steps is broken".to_owned()));
        }
        let mut progress = Self::default();
        for step in steps {
            let body = if step.version == turn_steps::VERSION { serde_json::from_str(&step.body).ok() } else { None };
            match body {
                Some(body) => progress.apply(body),
                None if step.kind == "tool_started" || step.kind == "tool_result" => progress.interrupt_all(),
                None => return Err(Damaged(format!("step {} ({}) cannot be read", step.seq, step.kind))),
            }
        }
        Ok(progress)
    }

    /// Takes a step that has just been written.
    pub fn apply(&mut self, step: StepBody) {
        match step {
            StepBody::Context(context) => self.context = Some(context),
            StepBody::Response { response, active_ms } => self.respond(response, active_ms),
            StepBody::ToolStarted { call_id, .. } => {
                if let Some(open) = self.open_calls.iter_mut().find(|open| open.call.id == call_id) {
                    open.interrupted = true;
                }
            }
            StepBody::ToolResult { call_id, name, result, active_ms } => {
                self.active = Duration::from_millis(active_ms);
                let mut content = result.render();
                if let Some(open) = self.open_calls.iter().find(|open| open.call.id == call_id)
                    && let Some(note) = self.repeats.note(&open.call, &content)
                {
                    content.push_str(&note);
                }
                self.answer_call(&call_id, name, content);
            }
            StepBody::Note { .. } => {}
            StepBody::Waiting { since } => self.waiting_since = Some(since),
            // What had used the turn up is given anew; what was done stays done.
            StepBody::Retried => {
                self.answer = None;
                self.active = Duration::ZERO;
                self.usage = Usage::default();
                self.spent_before = self.spending.costs();
                self.waiting_since = None;
            }
        }
    }

    /// The provider of the last response; empty before the first.
    pub fn provider(&self) -> &str {
        self.answered_by.split('/').next().unwrap_or_default()
    }

    /// Gives every open call a result, so that the conversation is valid as it stands.
    pub fn close_calls(&mut self, reason: &str) {
        while let Some(OpenCall { call, interrupted }) = self.open_calls.first().cloned() {
            let reason = if interrupted { INTERRUPTED } else { reason };
            self.answer_call(&call.id, call.name, ToolResult::failed(reason).render());
        }
    }

    /// Puts a result where it belongs: results come in any order and stand in the order asked. One that no call waits
    /// for belongs nowhere.
    fn answer_call(&mut self, call_id: &str, name: String, content: String) {
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
        self.messages.insert(place, ChatMessage::Tool { call_id: call_id.to_owned(), name, content });
    }

    fn respond(&mut self, response: ChatResponse, active_ms: u64) {
        // A result that could not be read again leaves its call open; the model has gone on since.
        self.close_calls(INTERRUPTED);
        self.usage += response.usage;
        let asked = self.context.as_ref().map(|context| context.model.as_str()).unwrap_or_default();
        self.spending.count(&response, asked);
        self.active = Duration::from_millis(active_ms);
        self.answered_by.clone_from(&response.answered_by);
        // Should the service fail again, that is another wait.
        self.waiting_since = None;
        if response.tool_calls.is_empty() {
            self.answer = Some(response);
            return;
        }
        self.tool_rounds += 1;
        self.open_calls =
            response.tool_calls.iter().cloned().map(|call| OpenCall { call, interrupted: false }).collect();
        self.messages.push(ChatMessage::Assistant {
            content: super::think::strip(&response.text),
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

    fn rows(bodies: &[StepBody]) -> Vec<StepRow> {
        let mut before = String::new();
        (0..)
            .zip(bodies)
            .map(|(seq, body)| {
                let text = serde_json::to_string(body).unwrap();
                before = turn_steps::chain_hash(&before, &text);
                StepRow {
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

    fn open(progress: &Progress) -> Vec<(&str, bool)> {
        progress.open_calls.iter().map(|open| (open.call.id.as_str(), open.interrupted)).collect()
    }

    #[test]
    fn a_journal_says_which_calls_are_left() {
        type Row<'a> = (&'a [StepBody], &'a [(&'a str, bool)], usize);
        let table: &[Row<'_>] = &[
            (&[], &[], 0),
            (&[response(&["a", "b"])], &[("a", false), ("b", false)], 1),
            (&[response(&["a", "b"]), started("a")], &[("a", true), ("b", false)], 1),
            (&[response(&["a", "b"]), started("b"), result("b")], &[("a", false)], 2),
            (&[response(&["a"]), result("a"), response(&[])], &[], 2),
        ];
        for (steps, calls, messages) in table {
            let progress = Progress::read(&rows(steps)).unwrap();
            assert_eq!((open(&progress).as_slice(), progress.messages.len()), (*calls, *messages), "{steps:?}");
        }
        let done = Progress::read(&rows(&[response(&[])])).unwrap();
        assert!(done.answer.is_some() && done.active == Duration::from_millis(5));
    }

    fn answered(progress: &Progress) -> String {
        let ids = progress.messages.iter().filter_map(|message| match message {
            ChatMessage::Tool { call_id, .. } => Some(call_id.as_str()),
            _ => None,
        });
        ids.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn results_stand_in_the_order_asked_whichever_ended_first() {
        for ended in ["a b c", "c b a", "b c a", "c a", "b", ""] {
            let mut steps = vec![response(&["x"]), result("x"), response(&["a", "b", "c"])];
            steps.extend(ended.split_whitespace().map(result));
            let mut progress = Progress::read(&rows(&steps)).unwrap();
            let expected: Vec<_> = ["a", "b", "c"].into_iter().filter(|id| ended.contains(id)).collect();
            assert_eq!(answered(&progress), format!("x {}", expected.join(" ")).trim_end(), "{ended}");
            progress.close_calls("stopped");
            assert_eq!(answered(&progress), "x a b c", "{ended}");
        }
    }

    #[test]
    fn results_stand_in_the_order_asked_whenever_they_come() {
        let unreadable = |at: usize, bodies: &[StepBody]| {
            let mut steps = rows(bodies);
            steps[at].version = 99;
            Progress::read(&steps).unwrap()
        };
        let answered = |progress: &Progress| {
            let id = |message: &ChatMessage| match message {
                ChatMessage::Tool { call_id, content, .. } if content.contains("unknown") => format!("{call_id}?"),
                ChatMessage::Tool { call_id, .. } => call_id.clone(),
                other => other.role().to_owned(),
            };
            progress.messages.iter().map(id).collect::<Vec<_>>().join(" ")
        };
        let three = [response(&["a", "b", "c"]), result("c"), result("a"), result("x"), result("a"), result("b")];
        assert_eq!(answered(&Progress::read(&rows(&three)).unwrap()), "assistant a b c");

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
        let mut progress = Progress::read(&rows(&[response(&["a", "b"]), started("a")])).unwrap();
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
    fn a_failed_turn_that_is_tried_again_goes_on_from_what_it_did() {
        let answer = StepBody::Response { response: ChatResponse::default(), active_ms: 600_000 };
        let mut steps = rows(&[response(&["a"]), result("a"), answer, StepBody::Waiting { since: 7 }]);
        assert_eq!(Progress::read(&steps).unwrap().active.as_secs(), 600);
        let hash = turn_steps::chain_hash(&steps[3].hash, turn_steps::RETRIED);
        let (kind, body) = ("note".to_owned(), turn_steps::RETRIED.to_owned());
        steps.push(StepRow { seq: 4, kind, version: turn_steps::VERSION, body, hash, at: 0 });
        let progress = Progress::read(&steps).unwrap();
        assert!(progress.answer.is_none() && progress.active.is_zero() && progress.waiting_since.is_none());
        assert_eq!((answered(&progress).as_str(), progress.messages.len()), ("a", 2));
    }

    #[test]
    fn a_damaged_journal_is_not_believed_and_an_unreadable_result_is_not_absent() {
        let mut damaged = rows(&[response(&["a"]), result("a")]);
        damaged[0].body.push(' ');
        assert!(Progress::read(&damaged).is_err());

        let mut newer = rows(&[response(&["a"]), result("a")]);
        newer[1].version = 99;
        assert_eq!(open(&Progress::read(&newer).unwrap()), [("a", true)]);
        newer[0].version = 99;
        assert!(Progress::read(&newer).is_err());
    }
}
