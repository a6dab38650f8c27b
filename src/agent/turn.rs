//! One turn: from the message to the answer, a function of its inputs. No transport, no tables, no screen: those are
//! behind [`Journal`], [`Provider`](crate::llm::Provider), [`Executor`] and [`Watch`].

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::flight::FlightSlot;
use super::journal::Journal;
use super::phrases::{Phrases, fill};
use super::progress::{Progress, StepBody};
use super::think;
use super::watch::Watch;
use crate::llm::{Chain, ChatMessage, ChatResponse, LlmError};
use crate::metrics::TurnMeter;
use crate::tools::{Executor, ToolContext};

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
    pub model: &'a Chain,
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

/// Active time of the turn, over all its runs.
pub(super) struct Clock {
    began: Instant,
    before: Duration,
}

impl Clock {
    pub(super) fn active_ms(&self) -> u64 {
        u64::try_from((self.before + self.began.elapsed()).as_millis()).unwrap_or(u64::MAX)
    }
}
