//! A started turn talks with its model, until it answers, is stopped, its time is up, or it is laid to rest.

use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;

use async_trait::async_trait;
use daoyou_channels::SessionKey;
use daoyou_channels::settings::Span;
use futures_util::FutureExt;
use tokio::sync::OnceCell;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::attached;
use super::context;
use super::error::{ErrorCode, TurnError};
use super::flight::FlightSlot;
use super::journal::{Journal, StoreJournal};
use super::lane::LaneRunner;
use super::middleware::{Context, Handler, TurnRequest, TurnRun};
use super::past::Past;
use super::progress::{ContextStep, Damaged, Progress, StepBody};
use super::rest::{Outage, Resting};
use super::slash::wanted_model;
use super::turn::{Answer, Ran, Turn, TurnLimits};
use super::watch::Watch;
use crate::chat::ChatMessage;
use crate::llm::{FallbackChain, LlmErrorKind, ModelError};
use crate::memory::{origin_on_behalf, sender_of};
use crate::metrics::TurnMeter;
use crate::store::inbox::InboxRow;
use crate::store::turn_steps::StepRow;
use crate::tools::{Executor, ToolContext};

/// A turn that has been started in the store.
pub(super) struct Started {
    pub turn: Uuid,
    pub rows: Vec<InboxRow>,
    pub steps: Vec<StepRow>,
    pub cancel: CancellationToken,
}

/// A started turn, and what it is recorded and shown by.
pub(super) struct Run<'a> {
    pub session: &'a SessionKey,
    pub started: &'a Started,
    pub last: &'a InboxRow,
    pub journal: &'a StoreJournal<'a>,
    pub watch: &'a Watch,
    pub flight: &'a FlightSlot<'a>,
    pub meter: &'a TurnMeter<'a>,
}

/// The turn itself, within its middleware.
pub(super) struct Conversing<'a> {
    pub runner: &'a LaneRunner,
    pub run: &'a Run<'a>,
    pub around: Context<'a>,
    pub progress: &'a mut Progress,
    /// Why the journal cannot be gone on with.
    pub damaged: Option<Damaged>,
    /// `PROVIDER/MODEL`, once one is asked.
    pub model: String,
}

/// How a turn that did not fail came to its end.
#[derive(Clone, Debug, PartialEq)]
pub enum TurnEnd {
    Answered(Answer),
    /// No model can be reached, or other turns have to end first: it waits, and is run again. Whether it is to be looked at at
    /// once.
    AtRest {
        look_again: bool,
    },
}

/// The program is at fault; what it said is in the log already.
#[derive(Debug, thiserror::Error)]
#[error("the turn panicked")]
pub(super) struct Panicked;

#[async_trait]
impl Handler<TurnRun> for Conversing<'_> {
    async fn handle(&mut self, request: TurnRequest) -> Result<TurnEnd, TurnError> {
        if let Some(damaged) = self.damaged.take() {
            return Err(TurnError::new(ErrorCode::StateCorrupted, "journal").caused_by(damaged));
        }
        // Caught here, so that a panic passes the middleware as any other error does.
        let talk = AssertUnwindSafe(self.talk(request.text)).catch_unwind().await;
        match talk.unwrap_or_else(|_| Err(TurnError::internal("turn", Panicked)))? {
            Talk::Answered(answer) => Ok(TurnEnd::Answered(answer)),
            Talk::NobodyThere(outage) => {
                Ok(TurnEnd::AtRest { look_again: self.runner.rest(self.resting(), outage).await? })
            }
            Talk::Awaits(turns) => {
                Ok(TurnEnd::AtRest { look_again: self.runner.rest_until(self.resting(), turns).await })
            }
        }
    }
}

enum Talk {
    Answered(Answer),
    /// An outage that is waited for.
    NobodyThere(Outage),
    /// Turns whose ends are waited for.
    Awaits(Vec<Uuid>),
}

impl Conversing<'_> {
    fn resting(&self) -> Resting<'_> {
        let Run { session, started, journal, .. } = *self.run;
        Resting {
            turn: started.turn,
            session,
            rows: &started.rows,
            progress: self.progress,
            context: journal.context(),
        }
    }

    /// Gives the model the conversation and lets the turn run. `text` is the message as the model reads it.
    async fn talk(&mut self, text: String) -> Result<Talk, TurnError> {
        let (runner, run) = (self.runner, self.run);
        let (session, last) = (run.session, run.last);
        if self.progress.context.is_none() {
            runner.memory.import_by_hand().await;
        }
        let past = runner.past(session, last, self.progress.context.as_ref())?;
        let head = &past.head;
        let wanted = wanted_model(last, head.model.as_deref(), &runner.config.model);
        // Taken before anybody is asked: who comes back meanwhile is not missed.
        let mark = runner.room.mark();
        let chain = match runner.chain(&wanted, self.progress).await {
            Ok(chain) => chain,
            Err(error) => {
                if let Some(outage) = error.outage().filter(|_| self.may_wait()) {
                    let (providers, failures) = (vec![outage.provider.clone()], vec![outage.clone()]);
                    return Ok(Talk::NobodyThere(Outage { error: outage, failures, providers, mark }));
                }
                let told = [wanted, error.to_public()];
                return Err(TurnError::new(ErrorCode::NoModel, "turn").with(told).caused_by(error));
            }
        };
        self.model = chain.current().to_string();
        let (system, hash) = runner.system.current(context::least_trust(&run.started.rows));
        let (system, hash) = past.given.in_prompt(&system, &hash);
        let tools = runner.tools_for(last);
        if self.progress.context.is_none() {
            self.begin(&past, text, &hash).await;
        }
        let mut history = past.messages;
        let ended = loop {
            history.extend(self.progress.context.as_ref().map(ContextStep::message));
            let with = (std::mem::take(&mut history), system.clone(), &*tools);
            let turn = runner.turn(run, self.around, &chain, with);
            let ended = self.attend(turn).await;
            self.model = chain.current().to_string();
            let is_the_models = matches!(&ended, Err(TurnError { code: ErrorCode::Model(_), .. }));
            match chain.failure().filter(|_| is_the_models) {
                Some(error) if error.kind == LlmErrorKind::ContextTooLong => {
                    runner.budget.learn_limit(&chain.asked_last(), &error.message);
                    let Some(smaller) = runner.make_smaller(session, self.progress)? else { break ended };
                    self.note(smaller).await;
                    history = runner.past(session, last, self.progress.context.as_ref())?.messages;
                }
                Some(error) if error.is_service_condition() && self.may_wait() => {
                    let (failures, providers) = (chain.failures(), chain.providers());
                    return Ok(Talk::NobodyThere(Outage { error, failures, providers, mark }));
                }
                _ => break ended,
            }
        };
        Ok(match ended? {
            Ran::Answered(answer) => Talk::Answered(answer),
            Ran::Awaits(turns) => Talk::Awaits(turns),
        })
    }

    /// Notes what the turn is given, so that it is given the same again should it go on in another process.
    async fn begin(&mut self, past: &Past, mut text: String, system: &str) {
        let (runner, run) = (self.runner, self.run);
        runner.keep_snapshot(run.session, past).await;
        text.push_str(&runner.recollect(&run.started.rows, past).await);
        let context = ContextStep {
            system: system.to_owned(),
            from: past.from,
            to: past.head.next_seq,
            user: text,
            images: attached::images(&run.started.rows),
            model: self.model.clone(),
            squeezed: 0,
            snapshot: past.given.snapshot.as_ref().map(|snapshot| snapshot.hash.clone()),
            summary: past.given.summary.as_ref().map(|(id, _)| *id),
            is_tight: past.is_tight,
            forgets: past.forgets,
        };
        self.note(context).await;
    }

    async fn note(&mut self, context: ContextStep) {
        let step = StepBody::Context(context);
        self.run.journal.record(&step).await;
        self.progress.apply(step);
    }

    /// Whether an outage is waited for; a turn that waited before goes on to.
    fn may_wait(&self) -> bool {
        self.runner.room.is_open() || self.progress.waiting_since.is_some()
    }

    /// Lets the turn run until it ends by itself, is stopped, or its time is up.
    async fn attend(&mut self, turn: Turn<'_>) -> Result<Ran, TurnError> {
        let Run { started, watch, .. } = *self.run;
        let limits = turn.limits;
        let mut running = pin!(turn.run(self.progress));
        let cut_off = tokio::select! {
            biased;
            () = started.cancel.cancelled() => ErrorCode::Stopped,
            () = tokio::time::sleep_until(self.around.deadline) => ErrorCode::TurnTimeout,
            answer = &mut running => {
                return answer.unwrap_or_else(|| Err(self.runner.cut_off(ErrorCode::Stopped, limits, watch)));
            }
        };
        // The model is left at once; a tool that runs is told to end, and within its grace says what it had done.
        started.cancel.cancel();
        running.await.unwrap_or_else(|| Err(self.runner.cut_off(cut_off, limits, watch)))
    }
}

impl LaneRunner {
    /// The models that may answer: the wanted one, then those that stand in, each behind its orchestrator.
    async fn chain(&self, wanted: &str, progress: &Progress) -> Result<FallbackChain, ModelError> {
        let (room, bus, orchestrators) = (self.room.clone(), self.bus.clone(), self.orchestrators);
        let on_answer = Box::new(move |provider: &str| {
            room.answered(provider);
            bus.service_answered(provider);
        });
        let chain =
            FallbackChain::new(self.models.clone(), wanted, &self.config.fallback, progress.provider(), on_answer)
                .await?;
        Ok(chain.behind(Box::new(move |model| orchestrators.over(model))))
    }

    /// A turn that was stopped, or whose time is up.
    fn cut_off(&self, code: ErrorCode, limits: TurnLimits, watch: &Watch) -> TurnError {
        let error = TurnError::new(code, "turn");
        match code {
            ErrorCode::TurnTimeout => error.with([Span(limits.time).to_string()]),
            _ => error.after_saying(&watch.partial_text()),
        }
    }

    fn turn<'a>(
        &'a self,
        run: &Run<'a>,
        around: Context<'a>,
        model: &'a FallbackChain,
        (conversation, system, tools): (Vec<ChatMessage>, Arc<str>, &'a Executor),
    ) -> Turn<'a> {
        let Run { session, started, last, journal, watch, flight, meter } = *run;
        Turn {
            system,
            conversation,
            model,
            prices: &self.models,
            temperature: self.config.temperature,
            max_tokens: self.config.max_tokens,
            gallery: &self.gallery,
            images: OnceCell::new(),
            tools,
            tool_context: ToolContext {
                session: session.clone(),
                turn: started.turn,
                call_id: String::new(),
                channel: last.channel.clone(),
                chat_id: last.chat_id.clone(),
                sender: sender_of(last),
                trust: context::least_trust(&started.rows),
                files: attached::paths(&started.rows),
                metadata: last.metadata.as_str().into(),
                origin: Arc::new(origin_on_behalf(last)),
                cancel: started.cancel.child_token(),
            },
            limits: self.limits_of(last),
            journal,
            watch,
            flight,
            meter,
            middleware: &self.middleware,
            budget: &self.budget,
            around,
            phrases: self.phrases,
        }
    }
}
