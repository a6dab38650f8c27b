//! The turn loop: a function of its inputs that goes from the message to the answer. [`TurnLead`], [`Tools`], [`Journal`] and
//! [`EventEmitter`] hide transport, tables and user interfaces.

use std::time::{Duration, Instant};

use uuid::Uuid;

use super::context::images::{ImageLoader, LoadedImages};
use super::error::{ErrorCode, TurnError};
use super::event_emitter::EventEmitter;
use super::flight_recorder::FlightSlot;
use super::progress::{StepBody, TurnProgress};
use super::traits::{Approvals, Journal, Tools, TurnLead, TurnScope};
use crate::chat::ChatMessage;
use crate::llm::{ChatResponse, Cost, SerializedText};
use crate::origin::TurnOrigin;
use crate::phrases::fill;
use crate::store::inbox::InboxRow;
use crate::text::think;
use crate::tools::ToolContext;

/// Limits of a turn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TurnLimits {
    /// The most responses with tool calls; one last response without tools follows them.
    pub iterations: u32,
    /// The most tokens of all responses together.
    pub tokens: u64,
    /// The highest cost of all responses together, in the currency of the prices; `None` is no limit.
    pub cost: Option<f64>,
    /// The longest active time, over all runs.
    pub time: Duration,
}

impl TurnLimits {
    /// Returns these limits with the agent's own `iterations`, if it has any.
    pub fn of_agent(self, iterations: Option<u32>) -> Self {
        Self { iterations: iterations.unwrap_or(self.iterations), ..self }
    }

    /// Returns the limits of the turn of `row`: these limits, lowered to the limits of the message.
    pub fn of_message(self, row: &InboxRow) -> Self {
        match TurnOrigin::parse(&row.origin).settings.bounds {
            None => self,
            Some(own) => Self {
                iterations: self.iterations.min(own.iterations),
                tokens: self.tokens.min(own.tokens),
                cost: self.cost,
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
    pub conversation: Vec<ChatMessage>,
    pub lead: TurnLead<'a>,
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
pub enum ConversationOutcome {
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
    /// both wherever the future is dropped.
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

    /// Returns the error of a turn that has used up `agent.budget.turn_cost`.
    fn cost_reached(&self, progress: &TurnProgress) -> Option<TurnError> {
        let limit = self.limits.cost?;
        let before = |currency: &str| progress.spent_before.get(currency).copied().unwrap_or(0);
        let costs = progress.spending.costs().into_iter();
        let mut costs = costs.map(|(currency, micros)| (micros.saturating_sub(before(&currency)), currency));
        let (micros, currency) = costs.find(|(micros, _)| *micros as f64 / 1e6 >= limit)?;
        let amounts = [micros, (limit * 1e6).round() as u64].map(|micros| Cost { micros, currency: currency.clone() });
        Some(TurnError::new(ErrorCode::TurnBudget, "turn").with(amounts.map(|amount| amount.to_string())))
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
        // At the limit, an empty reply is no error: the notice below is then the whole answer.
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

#[cfg(test)]
#[path = "turn_loop_tests.rs"]
mod tests;
