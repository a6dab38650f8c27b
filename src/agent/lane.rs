//! One turn of a session: from the commit that starts it to the commit that ends it.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_channel::Sender;
use daoyou_channels::settings::Span;
use daoyou_channels::{SessionKey, Trust, TurnEvent};
use futures_util::FutureExt;
use jiff::tz::TimeZone;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::context::{self, SystemPrompt, Window};
use super::ending::{Append, Ending, since};
use super::flight::{FlightRecorder, FlightSlot};
use super::journal::{Journal, StoreJournal};
use super::lanes::Company;
use super::phrases::{Phrases, fill};
use super::progress::{ContextStep, Progress, StepBody};
use super::rest::{Outage, Rested, Resting};
use super::slash::{Answered, SessionChange, Slash, SlashCommands, wanted_model};
use super::turn::{Answer, Turn, TurnLimits};
use super::waiting::WaitingRoom;
use super::watch::Watch;
use super::{AgentConfig, QueueMode};
use crate::bus::MessageBus;
use crate::crash;
use crate::llm::{Chain, ChatMessage, LlmErrorKind, Models, Usage};
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

/// Runs turns: everything they need, shared by all lanes. New settings make a new one, which has the bus, the cancels, the
/// waiting room and the flight recorder of the old one; turns end with the runner that they began with.
pub struct LaneRunner {
    pub bus: Arc<MessageBus>,
    pub config: AgentConfig,
    pub timezone: TimeZone,
    pub models: Arc<Models>,
    pub tools: Arc<Executor>,
    pub system: SystemPrompt,
    pub slash: Arc<SlashCommands>,
    pub phrases: &'static Phrases,
    pub cancels: Cancels,
    pub room: Arc<WaitingRoom>,
    pub flight: Arc<FlightRecorder>,
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

/// How a turn that did not fail came to its end.
enum Outcome {
    Answered(Answer),
    Stopped,
    TimedOut,
    Panicked,
}

/// How a run of a turn came to its end.
enum Finish {
    Ends(Ending),
    /// The turn is at rest; whether it is to be looked at again at once.
    Waits {
        look_again: bool,
    },
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
        let finish = AssertUnwindSafe(self.run(session, &started, proven, &flight)).catch_unwind().await;
        let finish = finish.unwrap_or_else(|_| {
            tracing::error!(%turn, %session, "a turn panicked");
            Ok(Finish::Ends(self.ending(&started, Outcome::Panicked, None)))
        });
        let finish = finish.unwrap_or_else(|error| {
            tracing::error!(%turn, %session, %error, "a turn failed");
            Finish::Ends(self.ending(&started, Outcome::Panicked, None))
        });
        let ending = match finish {
            Finish::Ends(ending) => ending,
            Finish::Waits { look_again } => {
                self.lock_cancels().remove(&turn);
                return look_again;
            }
        };
        let (outcome, reply_bytes) = (ending.error.unwrap_or("answered"), ending.reply.len());
        let more = ending.write(&self.bus).await;
        self.lock_cancels().remove(&turn);
        self.room.leave(turn);
        tracing::info!(%turn, %session, outcome, reply_bytes, "turn ended");
        more
    }

    /// One commit, before any work: the lowest unfinished row is `running`, its start counted.
    async fn start(&self, session: &SessionKey, company: Company) -> Result<Option<Started>, StoreError> {
        let (key, collect) = (session.to_string(), self.config.queue == QueueMode::Collect);
        let (cancels, room) = (self.cancels.clone(), self.room.clone());
        let started = self
            .bus
            .store()
            .write(Commit::Synced, move |connection| {
                let rows = take_rows(connection, &key, collect, &room)?;
                let Some(turn) = rows.first().map(|row| row.turn) else { return Ok(None) };
                room.call(turn);
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
    ) -> Result<Finish, StoreError> {
        let Some(last) = started.rows.last() else {
            return Err(StoreError::Row("a turn without messages".to_owned()));
        };
        if let Some(command) = Slash::parse(&last.content) {
            let Answered { reply, change, error } = self.slash.answer(&command, last, &self.config.model).await?;
            let answer = Answer { reply, error };
            let ending = self.ending(started, Outcome::Answered(answer), None);
            return Ok(Finish::Ends(Ending { append: Append::Nothing, change, ..ending }));
        }
        let mut progress = match Progress::read(&started.steps) {
            Ok(progress) => progress,
            Err(damaged) => {
                tracing::error!(turn = %started.turn, %damaged, "the journal of a turn is damaged");
                let answer = Answer { reply: self.phrases.state_corrupted.to_owned(), error: Some("state_corrupted") };
                return Ok(Finish::Ends(self.ending(started, Outcome::Answered(answer), None)));
            }
        };
        let hub = self.bus.events().clone();
        let watch = Watch::new(hub, session.clone(), started.turn, &last.channel, &last.chat_id);
        watch.emit(|| TurnEvent::Started);
        let (turn, context) = (started.turn, Mutex::default());
        let journal = StoreJournal { bus: &self.bus, turn, session: session.clone(), proven, context };
        let meter = self.bus.metrics().turns.meter();
        let run = Run { session, started, last, journal: &journal, watch: &watch, flight, meter: &meter };
        let (model, outcome) = self.converse(&run, &mut progress).await?;
        meter.end();
        let ending = match outcome {
            Ok(outcome) => self.ending(started, outcome, Some((&watch, &progress))),
            Err(outage) => {
                let (rows, context, progress) = (&started.rows, journal.context(), &progress);
                match self.rest(Resting { turn, session, rows, progress, context }, outage).await? {
                    Rested::Waits { look_again } => return Ok(Finish::Waits { look_again }),
                    Rested::GivenUp(ending) => ending,
                }
            }
        };
        let (reply, message) = (ending.reply.clone(), ending.reply.clone());
        watch.emit(|| match ending.error {
            Some(_) => TurnEvent::Error { message },
            None => TurnEvent::Done {
                reply,
                input_tokens: progress.usage.input_tokens,
                output_tokens: progress.usage.output_tokens,
                cost: self.cost_of(&model, progress.usage),
            },
        });
        Ok(Finish::Ends(Ending { model, ..ending }))
    }

    /// What a model's tokens cost, where its price is known.
    fn cost_of(&self, model: &str, used: Usage) -> Option<String> {
        let provider = model.split('/').next().unwrap_or_default();
        self.models.price(provider).map(|price| price.cost(used))
    }

    /// Gives the model the conversation and lets the turn run, until it answers, is stopped, or its time is up; the error is
    /// that no model can be reached.
    async fn converse(
        &self,
        run: &Run<'_>,
        progress: &mut Progress,
    ) -> Result<(String, Result<Outcome, Outage>), StoreError> {
        let Run { session, started, last, journal, .. } = *run;
        let (head, history, from) = self.history(session, progress.context.clone()).await?;
        let wanted = wanted_model(last, head.model.as_deref(), &self.config.model);
        let (room, mark) = (self.room.clone(), self.room.mark());
        let on_answer = Box::new(move |provider: &str| room.answered(provider));
        let fallback = &self.config.fallback;
        let chain = match Chain::new(self.models.clone(), &wanted, fallback, &progress.provider, on_answer).await {
            Ok(chain) => chain,
            Err(error) => {
                if let Some(outage) = error.outage().filter(|_| self.may_wait(progress)) {
                    let providers = vec![outage.provider.clone()];
                    return Ok((String::new(), Err(Outage { error: outage, providers, mark })));
                }
                let reply = fill(self.phrases.no_model, &[&wanted, &error.to_string()]);
                let answer = Answer { reply, error: Some("no_model") };
                return Ok((String::new(), Ok(Outcome::Answered(answer))));
            }
        };
        let (system, system_hash) = self.system.current();
        if progress.context.is_none() {
            let step = StepBody::Context(ContextStep {
                system: system_hash.to_string(),
                from,
                to: head.next_seq,
                user: context::user_text(&started.rows, &self.timezone),
                model: name_of(&chain),
                squeezed: 0,
            });
            journal.record(&step).await;
            progress.apply(step);
        }
        let mut history = history;
        loop {
            let user = progress.context.as_ref().map(|context| context.user.clone()).unwrap_or_default();
            history.push(ChatMessage::User { content: user });
            let turn = self.turn(run, &chain, std::mem::take(&mut history), system.clone());
            let outcome = self.attend(started, turn, progress).await;
            let failure = chain.failure().filter(|_| matches!(outcome, Outcome::Answered(_)));
            match failure {
                Some(error) if error.kind == LlmErrorKind::ContextTooLong => {
                    let Some(smaller) = self.make_smaller(session, progress)? else {
                        return Ok((name_of(&chain), Ok(outcome)));
                    };
                    let step = StepBody::Context(smaller);
                    journal.record(&step).await;
                    progress.apply(step);
                    history = self.history(session, progress.context.clone()).await?.1;
                }
                Some(error) if error.is_outage() && self.may_wait(progress) => {
                    let outage = Outage { error, providers: chain.providers(), mark };
                    return Ok((name_of(&chain), Err(outage)));
                }
                _ => return Ok((name_of(&chain), Ok(outcome))),
            }
        }
    }

    /// Whether an outage is waited for; a turn that waited before goes on to.
    fn may_wait(&self, progress: &Progress) -> bool {
        self.room.is_open() || progress.waiting_since.is_some()
    }

    /// Lets the turn run until it ends by itself, is stopped, or its time is up.
    async fn attend(&self, started: &Started, turn: Turn<'_>, progress: &mut Progress) -> Outcome {
        let limit = self.config.turn_timeout.0.saturating_sub(progress.active);
        let mut running = pin!(turn.run(progress));
        let cut_off = tokio::select! {
            biased;
            () = started.cancel.cancelled() => Outcome::Stopped,
            () = tokio::time::sleep(limit) => Outcome::TimedOut,
            answer = &mut running => return answer.map_or(Outcome::Stopped, Outcome::Answered),
        };
        // The model is left at once; a tool that runs is told to end, and within its grace says what it had done.
        started.cancel.cancel();
        running.await.map_or(cut_off, Outcome::Answered)
    }

    fn turn<'a>(
        &'a self,
        run: &Run<'a>,
        model: &'a Chain,
        conversation: Vec<ChatMessage>,
        system: Arc<str>,
    ) -> Turn<'a> {
        let Run { session, started, last, journal, watch, flight, meter } = *run;
        Turn {
            system,
            conversation,
            model,
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
            phrases: self.phrases,
        }
    }

    /// The session's head and what of it the model is given, the same again for a turn that goes on.
    async fn history(
        &self,
        session: &SessionKey,
        context: Option<ContextStep>,
    ) -> Result<(Session, Vec<ChatMessage>, i64), StoreError> {
        let key = session.to_string();
        let tokens = usize::try_from(self.config.context_tokens).unwrap_or(usize::MAX);
        let window = Window { messages: self.config.memory_window, tokens };
        let (head, from, rows) = self.bus.store().read_here(|connection| {
            let head = messages::session(connection, &key)?;
            let (from, rows) = match &context {
                Some(context) => (context.from, context::choose_again(connection, &key, context)?),
                None => context::choose(connection, &key, &head, window)?,
            };
            Ok((head, from, rows))
        })?;
        Ok((head, context::read_messages(&rows)?, from))
    }

    fn ending(&self, started: &Started, outcome: Outcome, run: Option<(&Watch, &Progress)>) -> Ending {
        let (reply, error, reason) = match outcome {
            Outcome::Answered(answer) => (answer.reply, answer.error, "not run: the turn had ended"),
            Outcome::Stopped => {
                let partial = run.map(|(watch, _)| watch.partial_text()).unwrap_or_default();
                let reply = format!("{}\n\n{}", partial.trim(), self.phrases.stopped_mark).trim().to_owned();
                (reply, Some("stopped"), "stopped by the user")
            }
            Outcome::TimedOut => {
                let limit = Span(self.config.turn_timeout.0).to_string();
                (fill(self.phrases.turn_timeout, &[&limit]), Some("turn_timeout"), "stopped: the turn's time was up")
            }
            Outcome::Panicked => (self.phrases.internal.to_owned(), Some("internal"), "not run: the turn had failed"),
        };
        let user = match run.and_then(|(_, progress)| progress.context.as_ref()) {
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
            error: Some("poison"),
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

/// `PROVIDER/MODEL` of what answered last, or is asked first.
fn name_of(chain: &Chain) -> String {
    let model = chain.current();
    format!("{}/{}", model.provider.name(), model.model)
}

/// The session's lowest unfinished message, and with `collect` those behind it from the same sender and chat. A turn
/// that had been started before takes the same messages again; one that waits holds its session until it is due.
fn take_rows(
    connection: &Connection,
    session: &str,
    collect: bool,
    room: &WaitingRoom,
) -> Result<Vec<InboxRow>, StoreError> {
    let limit = if collect { COLLECT_LIMIT } else { 1 };
    let mut rows = inbox::open_of_session(connection, session, limit)?;
    let Some(first) = rows.first().cloned() else { return Ok(Vec::new()) };
    if first.state == State::Waiting && !first.cancel && room.holds(first.turn) {
        return Ok(Vec::new());
    }
    let mut own = inbox::of_turn(connection, first.turn)?;
    own.retain(|row| matches!(row.state, State::Queued | State::Running | State::Waiting));
    let has_begun = first.state != State::Queued || own.len() > 1 || turn_steps::has_any(connection, first.turn)?;
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
