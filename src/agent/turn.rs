//! One turn: from the message to the answer, a function of its inputs. No transport, no tables, no screen: those are
//! behind [`Journal`], [`Provider`](crate::llm::Provider), [`Executor`] and [`Watch`].

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::OnceCell;
use uuid::Uuid;

use super::budget::Budget;
use super::error::{ErrorCode, TurnError};
use super::flight::FlightSlot;
use super::gallery::Gallery;
use super::journal::Journal;
use super::middleware::{Context, Middleware};
use super::phrases::{Phrases, fill};
use super::progress::{Progress, StepBody};
use super::think;
use super::watch::Watch;
use crate::chat::ChatMessage;
use crate::llm::{ChatResponse, Cost, FallbackChain, Images, Models};
use crate::metrics::TurnMeter;
use crate::tools::{Executor, ToolContext};

/// How long a turn may go on.
#[derive(Clone, Copy, Debug)]
pub struct TurnLimits {
    /// Responses with tool calls; then one last response without tools.
    pub iterations: u32,
    /// Tokens of all responses together.
    pub tokens: u64,
    /// Money of all responses together, in the currency of the prices; `None`: any.
    pub cost: Option<f64>,
    /// Active time, over all runs.
    pub time: Duration,
}

/// Everything a turn works with.
pub struct Turn<'a> {
    /// The system prompt.
    pub system: Arc<str>,
    /// What was said before, and this message last.
    pub conversation: Vec<ChatMessage>,
    pub model: &'a FallbackChain,
    /// Where the conversation's pictures are read, and those that were.
    pub gallery: &'a Gallery,
    pub images: OnceCell<Images>,
    /// What models cost.
    pub prices: &'a Models,
    pub temperature: Option<f64>,
    pub max_tokens: Option<u32>,
    pub tools: &'a Executor,
    pub tool_context: ToolContext,
    pub limits: TurnLimits,
    pub journal: &'a dyn Journal,
    pub watch: &'a Watch,
    pub flight: &'a FlightSlot<'a>,
    pub meter: &'a TurnMeter<'a>,
    pub middleware: &'a Middleware,
    /// What models count.
    pub budget: &'a Budget,
    pub around: Context<'a>,
    pub phrases: &'static Phrases,
}

/// What a turn that went well answers.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// What the user is told.
    pub reply: String,
}

/// How far a turn came.
#[derive(Clone, Debug, PartialEq)]
pub enum Ran {
    Answered(Answer),
    /// All that is left to do needs the ends of these turns.
    Awaits(Vec<Uuid>),
}

impl Turn<'_> {
    /// Goes on from `progress` until there is an answer, or other turns have to end first; `None` when the context's `cancel`
    /// came first. Every step is in the journal, and in `progress`, before the next one; dropping the future anywhere leaves both fit to go on
    /// from.
    pub async fn run(&self, progress: &mut Progress) -> Option<Result<Ran, TurnError>> {
        let clock = Clock { began: Instant::now(), before: progress.active };
        let cancel = &self.tool_context.cancel;
        loop {
            if let Some(answer) = &progress.answer {
                return Some(self.answer(answer, progress).map(Ran::Answered));
            }
            self.watch.calls(progress.open_calls.iter().map(|open| &open.call));
            let awaited = self.run_open_calls(progress, &clock).await;
            if !awaited.is_empty() && !cancel.is_cancelled() {
                return Some(Ok(Ran::Awaits(awaited)));
            }
            let used = progress.usage.input_tokens + progress.usage.output_tokens;
            if used >= self.limits.tokens {
                return Some(Err(TurnError::new(ErrorCode::TokenCap, "turn").with([used.to_string()])));
            }
            if let Some(error) = self.cost_reached(progress) {
                return Some(Err(error));
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

    /// The end of a turn that has used up `agent.budget.turn_cost`.
    fn cost_reached(&self, progress: &Progress) -> Option<TurnError> {
        let limit = self.limits.cost?;
        let before = |currency: &str| progress.spent_before.get(currency).copied().unwrap_or(0);
        let costs = progress.spending.costs().into_iter();
        let mut costs = costs.map(|(currency, micros)| (micros.saturating_sub(before(&currency)), currency));
        let (micros, currency) = costs.find(|(micros, _)| *micros as f64 / 1e6 >= limit)?;
        let amounts = [micros, (limit * 1e6).round() as u64].map(|micros| Cost { micros, currency: currency.clone() });
        Some(TurnError::new(ErrorCode::TurnBudget, "turn").with(amounts.map(|amount| amount.to_string())))
    }

    fn answer(&self, response: &ChatResponse, progress: &Progress) -> Result<Answer, TurnError> {
        let mut reply = think::strip(&response.text);
        let capped = progress.tool_rounds >= self.limits.iterations;
        // At the limit the notice below is the answer.
        if reply.is_empty() && !capped {
            // After tools that did what was asked, a model may rightly have nothing more to say.
            let did_something = progress.tool_rounds > 0;
            if !did_something {
                let error = TurnError::new(ErrorCode::EmptyAnswer, "turn");
                return Err(if response.truncated { error.noting(self.phrases.cut_at_length) } else { error });
            }
            self.phrases.done.clone_into(&mut reply);
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
        Ok(Answer { reply })
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
