//! One turn: from the message to the answer, a function of its inputs. No transport, no tables, no screen: those are
//! behind [`Journal`], [`Provider`](crate::llm::Provider), [`Executor`] and [`Watch`].

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use daoyou_channels::TurnEvent;

use super::context::estimate_tokens;
use super::flight::FlightSlot;
use super::journal::Journal;
use super::phrases::{Phrases, fill};
use super::progress::{INTERRUPTED, OpenCall, Progress, StepBody};
use super::think;
use super::watch::Watch;
use crate::llm::{
    ChatMessage, ChatRequest, ChatResponse, Delta, DeltaSink, LlmError, ModelChoice, ToolCall, ToolSpec, Usage,
};
use crate::metrics::TurnMeter;
use crate::tools::{Executor, Replay, ToolContext, ToolResult};

/// How long a turn may go on.
#[derive(Clone, Copy, Debug)]
pub struct TurnLimits {
    /// Responses with tool calls; then one last response without tools.
    pub iterations: u32,
    /// Tokens of all responses together.
    pub tokens: u64,
}

/// Everything a turn works with.
pub struct Turn<'a> {
    /// The system prompt.
    pub system: Arc<str>,
    /// What was said before, and this message last.
    pub conversation: Vec<ChatMessage>,
    pub model: &'a ModelChoice,
    pub temperature: Option<f64>,
    pub max_tokens: Option<u32>,
    pub tools: &'a Executor,
    pub tool_context: ToolContext,
    pub limits: TurnLimits,
    pub journal: &'a dyn Journal,
    pub watch: &'a Watch,
    pub flight: &'a FlightSlot<'a>,
    pub meter: &'a TurnMeter<'a>,
    pub phrases: &'static Phrases,
}

/// How a turn ended by itself.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// What the user is told.
    pub reply: String,
    /// A stable word when it failed.
    pub error: Option<&'static str>,
}

impl Turn<'_> {
    /// Goes on from `progress` until there is an answer; `None` when the context's `cancel` came first. Every step is
    /// in the journal, and in `progress`, before the next one; dropping the future anywhere leaves both fit to go on
    /// from.
    pub async fn run(&self, progress: &mut Progress) -> Option<Answer> {
        let clock = Clock { began: Instant::now(), before: progress.active };
        let cancel = &self.tool_context.cancel;
        loop {
            if let Some(answer) = &progress.answer {
                return Some(self.answer(answer, progress));
            }
            self.run_open_calls(progress, &clock).await;
            let used = progress.usage.input_tokens + progress.usage.output_tokens;
            if used >= self.limits.tokens {
                let notice = fill(self.phrases.token_cap, &[&used.to_string()]);
                return Some(Answer { reply: notice, error: Some("token_cap") });
            }
            match cancel.run_until_cancelled(self.ask(progress)).await? {
                Ok(response) => {
                    let step = StepBody::Response { response, active_ms: clock.active_ms() };
                    self.journal.record(&step).await;
                    progress.apply(step);
                }
                Err(error) => return Some(self.failed(&error)),
            }
        }
    }

    /// One model call; the last one allowed is told of no tools.
    async fn ask(&self, progress: &Progress) -> Result<ChatResponse, LlmError> {
        let last_call = progress.tool_rounds >= self.limits.iterations;
        let tools: Arc<[ToolSpec]> = if last_call { Arc::default() } else { self.tools.specs() };
        let mut messages = self.conversation.clone();
        messages.extend(progress.messages.iter().cloned());
        let request = ChatRequest {
            model: self.model.model.clone(),
            system: self.system.clone(),
            messages,
            tools,
            temperature: self.temperature,
            max_tokens: self.max_tokens,
        };
        let sink = FirstWord { flight: self.flight, watch: self.watch, has_come: AtomicBool::new(false) };
        self.flight.waits();
        let asking = self.meter.ask_model();
        let response = self.model.provider.chat(&request, &sink).await;
        drop(asking);
        self.flight.works();
        self.watch.end_response();
        let mut response = response?;
        if last_call {
            response.tool_calls.clear();
        }
        make_ids_unique(&mut response.tool_calls, &progress.messages);
        if response.usage == Usage::default() {
            response.usage = estimate_usage(&request, &response);
        }
        let Usage { input_tokens, output_tokens, cached_tokens } = response.usage;
        self.meter.model_used(
            self.model.provider.name(),
            &self.model.model,
            input_tokens,
            output_tokens,
            cached_tokens,
        );
        Ok(response)
    }

    /// Runs what the last response asked for. A call that runs when the turn is cancelled still says what it had done;
    /// those behind it stay open.
    async fn run_open_calls(&self, progress: &mut Progress, clock: &Clock) {
        // The calls of one response run in the order asked for; each is answered exactly once.
        while !self.tool_context.cancel.is_cancelled()
            && let Some(OpenCall { call, interrupted }) = progress.open_calls.first().cloned()
        {
            let replay = self.tools.replay_of(&call.name);
            let arguments = serde_json::from_str(&call.arguments).unwrap_or_default();
            self.watch.emit(|| TurnEvent::ToolCall {
                id: call.id.clone(),
                name: call.name.clone(),
                arguments: Some(arguments),
            });
            let began = Instant::now();
            let mut outcome = if interrupted && replay == Some(Replay::Once) {
                ToolResult::failed(INTERRUPTED).into()
            } else {
                if replay == Some(Replay::Once) {
                    let step = StepBody::ToolStarted { call_id: call.id.clone(), name: call.name.clone() };
                    self.journal.record_synced(&step).await;
                    progress.apply(step);
                }
                let context = ToolContext { call_id: call.id.clone(), ..self.tool_context.clone() };
                self.tools.run(&call, &context).await
            };
            let took = began.elapsed();
            outcome.result.duration_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
            // Only registered names are counted: models write what they like.
            let tool = self.tools.registry().get(&call.name).map_or("unknown", |tool| tool.spec().name.as_str());
            self.meter.tool_ran(tool, outcome.result.success, took);
            let ToolCall { id, name, .. } = call;
            let ToolContext { turn, session, .. } = &self.tool_context;
            let ToolResult { success, duration_ms: ms, .. } = outcome.result;
            tracing::info!(%turn, %session, tool = name, success, ms, "tool ran");
            self.watch.emit(|| TurnEvent::ToolResult {
                id: id.clone(),
                name: name.clone(),
                content: outcome.result.render(),
                success: outcome.result.success,
            });
            let result = outcome.result;
            let step = StepBody::ToolResult { call_id: id, name, result, active_ms: clock.active_ms() };
            self.journal.record_result(&step, &outcome.effects).await;
            progress.apply(step);
        }
    }

    fn answer(&self, response: &ChatResponse, progress: &Progress) -> Answer {
        let mut reply = think::strip(&response.text);
        let mut error = None;
        let capped = progress.tool_rounds >= self.limits.iterations;
        // At the limit the notice below is the answer.
        if reply.is_empty() && !capped {
            // After tools that did what was asked, a model may rightly have nothing more to say.
            let did_something = progress.tool_rounds > 0;
            reply = if did_something { self.phrases.done } else { self.phrases.empty_answer }.to_owned();
            error = (!did_something).then_some("empty_answer");
        }
        let mut notice = |text: &str| {
            let gap = if reply.is_empty() { "" } else { "\n\n" };
            reply.push_str(gap);
            reply.push_str(text);
        };
        if response.truncated {
            notice(self.phrases.cut_at_length);
        }
        if capped {
            notice(&fill(self.phrases.iteration_cap, &[&self.limits.iterations.to_string()]));
        }
        Answer { reply, error }
    }

    fn failed(&self, error: &LlmError) -> Answer {
        let ToolContext { turn, session, .. } = &self.tool_context;
        tracing::warn!(%turn, %session, code = error.code(), %error, "the model call failed");
        Answer { reply: fill(self.phrases.model_failed, &[&error.to_string()]), error: Some(error.code()) }
    }
}

/// Tells the flight recorder when the wait for the model is over: from its first word on, this process works.
struct FirstWord<'a> {
    flight: &'a FlightSlot<'a>,
    watch: &'a Watch,
    has_come: AtomicBool,
}

impl DeltaSink for FirstWord<'_> {
    fn delta(&self, delta: Delta<'_>) {
        if delta == Delta::Restart {
            self.has_come.store(false, Ordering::Relaxed);
            self.flight.waits();
        } else if !self.has_come.swap(true, Ordering::Relaxed) {
            self.flight.works();
        }
        self.watch.delta(delta);
    }
}

/// What a response cost, where its service does not say: limits hold all the same.
fn estimate_usage(request: &ChatRequest, response: &ChatResponse) -> Usage {
    let tokens_of = |message: &ChatMessage| match message {
        ChatMessage::User { content } | ChatMessage::Tool { content, .. } => estimate_tokens(content),
        ChatMessage::Assistant { content, tool_calls, .. } => {
            estimate_tokens(content) + tool_calls.iter().map(|call| estimate_tokens(&call.arguments)).sum::<usize>()
        }
    };
    let input = estimate_tokens(&request.system) + request.messages.iter().map(tokens_of).sum::<usize>();
    let calls = response.tool_calls.iter().map(|call| estimate_tokens(&call.arguments)).sum::<usize>();
    let output = estimate_tokens(&response.text) + calls;
    let count = |tokens| u64::try_from(tokens).unwrap_or(u64::MAX);
    Usage { input_tokens: count(input), output_tokens: count(output), cached_tokens: 0 }
}

/// Active time of the turn, over all its runs.
struct Clock {
    began: Instant,
    before: Duration,
}

impl Clock {
    fn active_ms(&self) -> u64 {
        u64::try_from((self.before + self.began.elapsed()).as_millis()).unwrap_or(u64::MAX)
    }
}

/// Some services count their call ids anew in each response; in the journal of a turn each id means one call.
fn make_ids_unique(calls: &mut [ToolCall], before: &[ChatMessage]) {
    let mut used: HashSet<String> = before
        .iter()
        .filter_map(|message| match message {
            ChatMessage::Tool { call_id, .. } => Some(call_id.clone()),
            _ => None,
        })
        .collect();
    for call in calls {
        let wanted = if call.id.is_empty() { "call".to_owned() } else { call.id.clone() };
        call.id.clone_from(&wanted);
        let mut number = 2;
        while !used.insert(call.id.clone()) {
            call.id = format!("{wanted}_{number}");
            number += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_id_means_one_call_of_the_turn() {
        let call = |id: &str| ToolCall { id: id.to_owned(), name: "x".to_owned(), arguments: String::new() };
        let before = [ChatMessage::Tool { call_id: "a".to_owned(), name: "x".to_owned(), content: String::new() }];
        let mut calls = [call("a"), call("b"), call("b"), call("")];
        make_ids_unique(&mut calls, &before);
        assert_eq!(calls.map(|call| call.id), ["a_2", "b", "b_2", "call"]);
    }
}
