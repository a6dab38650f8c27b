//! One turn of a session: from the commit that starts it to the commit that ends it.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_channel::Sender;
use async_trait::async_trait;
use daoyou_channels::settings::Span;
use daoyou_channels::{SessionKey, Trust, TurnEvent};
use futures_util::FutureExt;
use jiff::tz::TimeZone;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::context::{self, SystemPrompt, Window};
use super::ending::{Append, Ending, since};
use super::error::{ErrorCode, TurnError};
use super::flight::{FlightRecorder, FlightSlot};
use super::journal::{Journal, StoreJournal};
use super::lanes::Company;
use super::middleware::{Context, Handler, Middleware, TurnRequest, TurnRun};
use super::orchestrators::Orchestrators;
use super::phrases::Phrases;
use super::progress::{ContextStep, Damaged, Progress, StepBody};
use super::slash::{Answered, SessionChange, Slash, SlashCommands, wanted_model};
use super::turn::{Answer, Turn, TurnLimits};
use super::watch::Watch;
use super::{AgentConfig, QueueMode};
use crate::bus::MessageBus;
use crate::crash;
use crate::llm::{ChatMessage, ModelChoice, Models, costs_in_words};
use crate::metrics::{Phase, TurnMeter};
use crate::store::inbox::{self, InboxRow, State};
use crate::store::messages::{self, Session};
use crate::store::turn_steps::{self, StepRow};
use crate::store::{Commit, Connection, StoreError, meta};
use crate::tools::{Executor, ToolContext};

/// Messages that `collect` joins into one turn at most.
const COLLECT_LIMIT: u32 = 50;

/// The running turns that can be told to stop.
pub type Cancels = Arc<Mutex<HashMap<Uuid, CancellationToken>>>;

/// Runs turns: everything they need, shared by all lanes. New settings make a new one, which has the bus, the cancels and
/// the flight recorder of the old one; turns end with the runner that they began with.
pub struct LaneRunner {
    pub bus: Arc<MessageBus>,
    pub config: AgentConfig,
    pub timezone: TimeZone,
    pub models: Arc<Models>,
    pub orchestrators: Orchestrators,
    pub tools: Arc<Executor>,
    pub system: SystemPrompt,
    pub slash: Arc<SlashCommands>,
    pub phrases: &'static Phrases,
    pub cancels: Cancels,
    pub flight: Arc<FlightRecorder>,
    pub middleware: Arc<Middleware>,
}

/// A turn that has been started in the store.
struct Started {
    turn: Uuid,
    rows: Vec<InboxRow>,
    steps: Vec<StepRow>,
    cancel: CancellationToken,
}

/// A started turn, and what it is recorded and shown by.
struct Run<'a> {
    session: &'a SessionKey,
    started: &'a Started,
    last: &'a InboxRow,
    journal: &'a dyn Journal,
    watch: &'a Watch,
    flight: &'a FlightSlot<'a>,
    meter: &'a TurnMeter<'a>,
}

/// The turn itself, within its middleware.
struct Conversing<'a> {
    runner: &'a LaneRunner,
    run: &'a Run<'a>,
    around: Context<'a>,
    progress: &'a mut Progress,
    /// Why the journal cannot be gone on with.
    damaged: Option<Damaged>,
    /// `PROVIDER/MODEL`, once one is asked.
    model: String,
}

impl LaneRunner {
    /// Runs the session's next message, if it has one; answers whether it has more. `proven` is told when a turn that
    /// runs alone has got somewhere.
    pub async fn run_next(&self, session: &SessionKey, company: Company, proven: Sender<SessionKey>) -> bool {
        let started = match self.start(session, company).await {
            Ok(Some(started)) => started,
            Ok(None) => return false,
            Err(error) => {
                tracing::error!(%session, %error, "a turn could not be started; trying again");
                tokio::time::sleep(Duration::from_secs(1)).await;
                return true;
            }
        };
        let turn = started.turn;
        let turns = &self.bus.metrics().turns;
        let _running = turns.run();
        // A turn that goes on did not wait: its message was taken up long ago.
        if let Some(first) = started.rows.first().filter(|row| row.stalled == 0 && started.steps.is_empty()) {
            turns.phase(Phase::Waiting, since(first));
        }
        let proven = (company == Company::Alone).then_some(proven);
        let flight = self.flight.board(turn);
        let ending = AssertUnwindSafe(self.run(session, &started, proven, &flight)).catch_unwind().await;
        let ending = ending
            .unwrap_or_else(|_| Ok(self.ending(session, &started, Err(TurnError::internal("turn", Panicked)), None)));
        let ending = ending.unwrap_or_else(|error| self.ending(session, &started, Err(error.into()), None));
        let (outcome, reply_bytes) = (ending.error.unwrap_or("answered"), ending.reply.len());
        let more = ending.write(&self.bus).await;
        self.lock_cancels().remove(&turn);
        tracing::info!(%turn, %session, outcome, reply_bytes, "turn ended");
        more
    }

    /// One commit, before any work: the lowest unfinished row is `running`, its start counted.
    async fn start(&self, session: &SessionKey, company: Company) -> Result<Option<Started>, StoreError> {
        let (key, collect) = (session.to_string(), self.config.queue == QueueMode::Collect);
        let cancels = self.cancels.clone();
        let started = self
            .bus
            .store()
            .write(Commit::Synced, move |connection| {
                let rows = take_rows(connection, &key, collect)?;
                let Some(turn) = rows.first().map(|row| row.turn) else { return Ok(None) };
                for row in &rows {
                    inbox::start(connection, row.seq, turn)?;
                }
                if company == Company::Alone {
                    meta::set(connection, meta::ALONE, &turn.to_string())?;
                }
                let steps = turn_steps::of_turn(connection, turn)?;
                // Registered inside the commit: a `/stop` that comes after it finds the turn here.
                let cancel = CancellationToken::new();
                if rows.iter().any(|row| row.cancel) {
                    cancel.cancel();
                }
                cancels.lock().unwrap_or_else(PoisonError::into_inner).insert(turn, cancel.clone());
                Ok(Some(Started { turn, rows, steps, cancel }))
            })
            .await?;
        if let Some(started) = &started {
            let text = started.rows.first().map(|row| row.content.as_str()).unwrap_or_default();
            crash::point("turn_started", text);
        }
        Ok(started)
    }

    async fn run(
        &self,
        session: &SessionKey,
        started: &Started,
        proven: Option<Sender<SessionKey>>,
        flight: &FlightSlot<'_>,
    ) -> Result<Ending, StoreError> {
        let Some(last) = started.rows.last() else {
            return Err(StoreError::Row("a turn without messages".to_owned()));
        };
        if let Some(command) = Slash::parse(&last.content) {
            let Answered { reply, change, error } = self.slash.answer(&command, last, &self.config.model).await?;
            let ending = self.ending(session, started, Ok(Answer { reply }), None);
            return Ok(Ending { append: Append::Nothing, change, error, ..ending });
        }
        let (mut progress, damaged) = match Progress::read(&started.steps) {
            Ok(progress) => (progress, None),
            Err(damaged) => (Progress::default(), Some(damaged)),
        };
        let hub = self.bus.events().clone();
        let watch = Watch::new(hub, session.clone(), started.turn, &last.channel, &last.chat_id);
        watch.emit(|| TurnEvent::Started);
        let (turn, context) = (started.turn, Mutex::default());
        let journal = StoreJournal { bus: &self.bus, turn, session: session.clone(), proven, context };
        let meter = self.bus.metrics().turns.meter();
        let run = Run { session, started, last, journal: &journal, watch: &watch, flight, meter: &meter };
        let left = self.config.turn_timeout.0.saturating_sub(progress.active);
        let around = Context { session, turn, deadline: Instant::now() + left, meter: &meter, phrases: self.phrases };
        let text = progress.context.as_ref().map(|context| context.user.clone());
        let request = TurnRequest { text: text.unwrap_or_else(|| context::user_text(&started.rows, &self.timezone)) };
        let progress_now = &mut progress;
        let mut conversing =
            Conversing { runner: self, run: &run, around, progress: progress_now, damaged, model: String::new() };
        let answer = self.middleware.turn.run(&around, request, &mut conversing).await;
        let model = conversing.model;
        meter.end();
        let ending = self.ending(session, started, answer, Some(&progress));
        let (reply, message) = (ending.reply.clone(), ending.reply.clone());
        watch.emit(|| match ending.error {
            Some(_) => TurnEvent::Error { message },
            None => TurnEvent::Done {
                reply,
                input_tokens: progress.usage.input_tokens,
                output_tokens: progress.usage.output_tokens,
                cost: costs_in_words(&progress.spending.costs()),
            },
        });
        Ok(Ending { model, ..ending })
    }

    /// Gives the model the conversation and lets the turn run, until it answers, is stopped, or its time is up. `text`
    /// is the message as the model reads it, `asked` becomes the name of the model.
    async fn converse(
        &self,
        run: &Run<'_>,
        around: Context<'_>,
        text: String,
        progress: &mut Progress,
        asked: &mut String,
    ) -> Result<Answer, TurnError> {
        let Run { session, started, last, journal, .. } = *run;
        let (head, history, from) = self.history(session, last, progress.context.clone()).await?;
        let wanted = wanted_model(last, head.model.as_deref(), &self.config.model);
        let model = match self.models.resolve(&wanted).await {
            Ok(model) => self.orchestrators.over(model),
            Err(error) => {
                let told = [wanted, error.to_string()];
                return Err(TurnError::new(ErrorCode::NoModel, "turn").with(told).caused_by(error));
            }
        };
        *asked = format!("{}/{}", model.provider.name(), model.model);
        let (system, system_hash) = self.system.current();
        if progress.context.is_none() {
            let step = StepBody::Context(ContextStep {
                system: system_hash.to_string(),
                from,
                to: head.next_seq,
                user: text,
                model: asked.clone(),
            });
            journal.record(&step).await;
            progress.apply(step);
        }
        let user = progress.context.as_ref().map(|context| context.user.clone()).unwrap_or_default();
        let mut conversation = history;
        conversation.push(ChatMessage::User { content: user });
        let turn = self.turn(run, around, &model, conversation, system);
        let mut running = pin!(turn.run(progress));
        let cut_off = tokio::select! {
            biased;
            () = started.cancel.cancelled() => ErrorCode::Stopped,
            () = tokio::time::sleep_until(around.deadline) => ErrorCode::TurnTimeout,
            answer = &mut running => return answer.unwrap_or_else(|| Err(self.cut_off(ErrorCode::Stopped, run.watch))),
        };
        // The model is left at once; a tool that runs is told to end, and within its grace says what it had done.
        started.cancel.cancel();
        running.await.unwrap_or_else(|| Err(self.cut_off(cut_off, run.watch)))
    }

    /// A turn that was stopped, or whose time is up.
    fn cut_off(&self, code: ErrorCode, watch: &Watch) -> TurnError {
        let error = TurnError::new(code, "turn");
        match code {
            ErrorCode::TurnTimeout => error.with([Span(self.config.turn_timeout.0).to_string()]),
            _ => error.after_saying(&watch.partial_text()),
        }
    }

    fn turn<'a>(
        &'a self,
        run: &Run<'a>,
        around: Context<'a>,
        model: &'a ModelChoice,
        conversation: Vec<ChatMessage>,
        system: Arc<str>,
    ) -> Turn<'a> {
        let Run { session, started, last, journal, watch, flight, meter } = *run;
        Turn {
            system,
            conversation,
            model,
            prices: &self.models,
            temperature: self.config.temperature,
            max_tokens: self.config.max_tokens,
            tools: &self.tools,
            tool_context: ToolContext {
                session: session.clone(),
                turn: started.turn,
                call_id: String::new(),
                channel: last.channel.clone(),
                chat_id: last.chat_id.clone(),
                trust: Trust::parse(&last.trust),
                cancel: started.cancel.child_token(),
            },
            limits: TurnLimits { iterations: self.config.max_iterations, tokens: self.config.max_turn_tokens },
            journal,
            watch,
            flight,
            meter,
            middleware: &self.middleware,
            around,
            phrases: self.phrases,
        }
    }

    /// The session's head and what of it the model is given, the same again for a turn that goes on.
    async fn history(
        &self,
        session: &SessionKey,
        last: &InboxRow,
        context: Option<ContextStep>,
    ) -> Result<(Session, Vec<ChatMessage>, i64), StoreError> {
        let key = session.to_string();
        let tokens = usize::try_from(self.config.context_tokens).unwrap_or(usize::MAX);
        let (head, from, rows) = self.bus.store().read_here(|connection| {
            let head = messages::session(connection, &key)?;
            let (from, rows) = match &context {
                Some(context) => (context.from, context::choose_again(connection, &key, context)?),
                None => {
                    let wanted = wanted_model(last, head.model.as_deref(), &self.config.model);
                    // The other half is for the system prompt, the tools, their results and the answer.
                    let held = self.models.context_tokens(&wanted).and_then(|tokens| usize::try_from(tokens / 2).ok());
                    let tokens = held.map_or(tokens, |held| held.min(tokens));
                    let window = Window { messages: self.config.memory_window, tokens };
                    context::choose(connection, &key, &head, window)?
                }
            };
            Ok((head, from, rows))
        })?;
        Ok((head, context::read_messages(&rows)?, from))
    }

    /// The one place where an error becomes a reply and a line of the log.
    fn ending(
        &self,
        session: &SessionKey,
        started: &Started,
        answer: Result<Answer, TurnError>,
        progress: Option<&Progress>,
    ) -> Ending {
        let (reply, error, reason) = match answer {
            Ok(Answer { reply }) => (reply, None, "not run: the turn had ended"),
            Err(error) => {
                error.log(started.turn, session);
                (error.words(self.phrases), Some(error.code.word()), error.code.open_calls_reason())
            }
        };
        let user = match progress.and_then(|progress| progress.context.as_ref()) {
            Some(context) => context.user.clone(),
            None => context::user_text(&started.rows, &self.timezone),
        };
        Ending {
            turn: started.turn,
            rows: started.rows.clone(),
            reply,
            error,
            state: State::Done,
            append: Append::Turn { user, reason },
            change: SessionChange::None,
            model: String::new(),
        }
    }

    /// Gives up a message that stopped the gateway each time; its sender is told, its session goes on.
    pub async fn bury(&self, rows: Vec<InboxRow>) {
        let Some(turn) = rows.first().map(|row| row.turn) else { return };
        tracing::error!(%turn, "a message stopped the gateway each time and is set aside");
        let ending = Ending {
            turn,
            rows,
            reply: self.phrases.poison.to_owned(),
            error: Some(ErrorCode::Poison.word()),
            state: State::Dead,
            append: Append::Nothing,
            change: SessionChange::None,
            model: String::new(),
        };
        ending.write(&self.bus).await;
    }

    /// Turns that run side by side.
    pub fn turns_at_once(&self) -> usize {
        usize::try_from(self.config.max_concurrent_turns).unwrap_or(usize::MAX)
    }

    pub fn lock_cancels(&self) -> std::sync::MutexGuard<'_, HashMap<Uuid, CancellationToken>> {
        self.cancels.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Handler<TurnRun> for Conversing<'_> {
    async fn handle(&mut self, request: TurnRequest) -> Result<Answer, TurnError> {
        if let Some(damaged) = self.damaged.take() {
            return Err(TurnError::new(ErrorCode::StateCorrupted, "journal").caused_by(damaged));
        }
        let talk = self.runner.converse(self.run, self.around, request.text, self.progress, &mut self.model);
        // Caught here, so that a panic passes the middleware as any other error does.
        AssertUnwindSafe(talk).catch_unwind().await.unwrap_or_else(|_| Err(TurnError::internal("turn", Panicked)))
    }
}

/// The program is at fault; what it said is in the log already.
#[derive(Debug, thiserror::Error)]
#[error("the turn panicked")]
struct Panicked;

/// The session's lowest unfinished message, and with `collect` those behind it from the same sender and chat. A turn
/// that had been started before takes the same messages again.
fn take_rows(connection: &Connection, session: &str, collect: bool) -> Result<Vec<InboxRow>, StoreError> {
    let limit = if collect { COLLECT_LIMIT } else { 1 };
    let mut rows = inbox::open_of_session(connection, session, limit)?;
    let Some(first) = rows.first().cloned() else { return Ok(Vec::new()) };
    if first.state == State::Waiting {
        return Ok(Vec::new());
    }
    let mut own = inbox::of_turn(connection, first.turn)?;
    own.retain(|row| matches!(row.state, State::Queued | State::Running));
    let has_begun = first.state == State::Running || own.len() > 1 || turn_steps::has_any(connection, first.turn)?;
    if has_begun {
        return Ok(own);
    }
    let joins = |row: &InboxRow| {
        row.state == State::Queued
            && Slash::parse(&row.content).is_none()
            && (&row.sender, &row.trust, &row.channel, &row.chat_id)
                == (&first.sender, &first.trust, &first.channel, &first.chat_id)
    };
    let count = if Slash::parse(&first.content).is_some() {
        1
    } else {
        1 + rows.iter().skip(1).take_while(|row| joins(row)).count()
    };
    rows.truncate(count);
    Ok(rows)
}
