//! One turn of a session: from the commit that starts it to the commit that ends it.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_channel::Sender;
use daoyou_channels::{SessionKey, TurnEvent};
use futures_util::FutureExt;
use jiff::tz::TimeZone;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::budget::Budget;
use super::context::{self, SystemPrompt};
use super::conversing::{Conversing, Panicked, Run, Started, TurnEnd};
use super::ending::{Append, Ending, Written, since};
use super::errands::ErrandRules;
use super::error::{ErrorCode, TurnError};
use super::flight::{FlightRecorder, FlightSlot};
use super::gallery::Gallery;
use super::journal::StoreJournal;
use super::lanes::{Bounds, Company};
use super::learning::Learning;
use super::middleware::{Context, Middleware, TurnRequest};
use super::orchestrators::Orchestrators;
use super::phrases::Phrases;
use super::progress::Progress;
use super::sessions::Resets;
use super::slash::{Answered, SessionChange, Slash, SlashCommands};
use super::standing::{self, Settling};
use super::turn::Answer;
use super::waiting::WaitingRoom;
use super::watch::Watch;
use super::{AgentConfig, QueueMode, attached, consolidation};
use crate::bus::MessageBus;
use crate::chat::ChatMessage;
use crate::crash;
use crate::guard::Secrets;
use crate::llm::{Models, costs_in_words};
use crate::memory::MemoryService;
use crate::metrics::TurnPhase;
use crate::origin::{TurnCause, TurnOrigin};
use crate::store::inbox::{self, InboxRow, State};
use crate::store::turn_steps;
use crate::store::{Commit, Connection, StoreError, meta};
use crate::tools::Executor;

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
    /// When conversations begin anew by themselves.
    pub resets: Resets,
    pub models: Arc<Models>,
    pub orchestrators: Orchestrators,
    pub tools: Arc<Executor>,
    pub system: SystemPrompt,
    pub gallery: Gallery,
    pub slash: Arc<SlashCommands>,
    pub phrases: &'static Phrases,
    pub cancels: Cancels,
    pub room: Arc<WaitingRoom>,
    pub flight: Arc<FlightRecorder>,
    pub middleware: Arc<Middleware>,
    pub errands: ErrandRules,
    /// What models count, and what is left of their contexts.
    pub budget: Arc<Budget>,
    /// What is struck out of what daoyou itself tells the agent.
    pub secrets: Secrets,
    /// Where things are remembered.
    pub memory: Arc<MemoryService>,
}

/// How a run of a turn came to its end.
enum Finish {
    Ends(Box<Ending>),
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
            turns.phase(TurnPhase::Waiting, since(first));
        }
        let proven = (company == Company::Alone).then_some(proven);
        let flight = self.flight.board(turn);
        let finish = AssertUnwindSafe(self.run(session, &started, proven, &flight)).catch_unwind().await;
        let finish = finish.unwrap_or_else(|_| Err(TurnError::internal("turn", Panicked)));
        let finish =
            finish.unwrap_or_else(|error| Finish::Ends(Box::new(self.ending(session, &started, Err(error), None))));
        let ending = match finish {
            Finish::Ends(ending) => ending,
            Finish::Waits { look_again } => {
                self.lock_cancels().remove(&turn);
                return look_again;
            }
        };
        let (outcome, reply_bytes) = (ending.error.unwrap_or("answered"), ending.reply.len());
        let Written { more, is_learned } = ending.write(&self.bus, &self.errands, &self.room).await;
        self.lock_cancels().remove(&turn);
        self.room.leave(turn);
        self.bus.forget_faults_if_nobody_waits();
        match is_learned {
            true => self.memory.notify_changes(),
            false => self.memory.notify_messages(),
        }
        tracing::info!(%turn, %session, outcome, reply_bytes, "turn ended");
        more
    }

    /// One commit, before any work: the lowest unfinished row is `running`, its start counted.
    async fn start(&self, session: &SessionKey, company: Company) -> Result<Option<Started>, StoreError> {
        let (key, collect) = (session.to_string(), self.config.queue == QueueMode::Collect);
        let (resets, zone) = (self.resets.clone(), self.timezone.clone());
        let (cancels, room, terms) = (self.cancels.clone(), self.room.clone(), self.memory.settings.get());
        let started = self
            .bus
            .store()
            .write(Commit::Synced, move |connection| {
                let rows = take_rows(connection, &key, collect, &room)?;
                let Some(turn) = rows.first().map(|row| row.turn) else { return Ok(None) };
                room.call(turn);
                begin_anew(connection, &rows, &resets, &zone)?;
                for row in &rows {
                    inbox::start(connection, row.seq, turn)?;
                }
                if company == Company::Alone {
                    meta::set(connection, meta::ALONE, &turn.to_string())?;
                }
                if rows.iter().all(|row| command_of(row).is_none()) {
                    standing::begin(connection, &key, &rows, &terms.identities)?;
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
    ) -> Result<Finish, TurnError> {
        let Some(last) = started.rows.last() else {
            return Err(StoreError::Row("a turn without messages".to_owned()).into());
        };
        if let Some(note) = TurnOrigin::parse(&last.origin).note().cloned() {
            let ending = self.ending(session, started, Ok(Answer { reply: String::new() }), None);
            return Ok(Finish::Ends(Box::new(Ending { append: Append::Note(note), ..ending })));
        }
        if let Some(command) = command_of(last) {
            let Answered { reply, change, error } = self.slash.answer(&command, last).await?;
            let ending = self.ending(session, started, Ok(Answer { reply }), None);
            return Ok(Finish::Ends(Box::new(Ending { append: Append::Nothing, change, error, ..ending })));
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
        let left = self.limits_of(last).time.saturating_sub(progress.active);
        let around = Context { session, turn, deadline: Instant::now() + left, meter: &meter, phrases: self.phrases };
        let text = progress.context.as_ref().map(|context| context.user.clone());
        let request = TurnRequest { text: text.unwrap_or_else(|| context::user_text(&started.rows, &self.timezone)) };
        let progress_now = &mut progress;
        let mut conversing =
            Conversing { runner: self, run: &run, around, progress: progress_now, damaged, model: String::new() };
        let end = self.middleware.turn.run(&around, request, &mut conversing).await;
        let model = conversing.model;
        meter.end();
        let answer = match end {
            Ok(TurnEnd::AtRest { look_again }) => return Ok(Finish::Waits { look_again }),
            Ok(TurnEnd::Answered(answer)) => Ok(answer),
            Err(error) => Err(error),
        };
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
        Ok(Finish::Ends(Box::new(Ending { model, ..ending })))
    }

    /// The one place where an error becomes a reply and a line of the log.
    fn ending(
        &self,
        session: &SessionKey,
        started: &Started,
        answer: Result<Answer, TurnError>,
        progress: Option<&Progress>,
    ) -> Ending {
        let (reply, code) = match answer {
            Ok(Answer { reply }) => (reply, None),
            Err(error) => {
                error.log(started.turn, session);
                (error.words(self.phrases), Some(error.code))
            }
        };
        let reason = code.map_or("not run: the turn had ended", ErrorCode::open_calls_reason);
        // Nothing of a message that is given up goes into the session: revived, it is answered as if it had come then.
        let is_given_up = code == Some(ErrorCode::Unavailable);
        let user = match progress.and_then(|progress| progress.context.as_ref()) {
            Some(context) => context.message(),
            None => ChatMessage::User {
                content: context::user_text(&started.rows, &self.timezone),
                images: attached::images(&started.rows),
            },
        };
        Ending {
            turn: started.turn,
            rows: started.rows.clone(),
            reply,
            error: code.map(ErrorCode::word),
            state: if is_given_up { State::Dead } else { State::Done },
            append: if is_given_up { Append::Nothing } else { Append::Turn { user, reason } },
            change: SessionChange::None,
            settling: self.settling(started),
            learning: Learning::of(&self.slash.memory, &started.rows),
            model: String::new(),
            phrases: self.phrases,
        }
    }

    /// What the end of a turn means for the memory of its session. What daoyou asks of itself is no conversation.
    fn settling(&self, started: &Started) -> Option<Settling> {
        let last = started.rows.last().filter(|row| standing::is_written(row))?;
        let terms = self.memory.settings.get();
        let is_talk = consolidation::is_conversation(last);
        let consolidate_at = Some(terms.config.consolidate_at).filter(|_| terms.config.enabled && is_talk);
        Some(Settling { writer: terms.identities.writer_of(last), consolidate_at })
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
            settling: None,
            learning: None,
            model: String::new(),
            phrases: self.phrases,
        };
        ending.write(&self.bus, &self.errands, &self.room).await;
    }

    /// Turns that run side by side.
    pub fn at_once(&self) -> Bounds {
        let count = |count: u32| usize::try_from(count).unwrap_or(usize::MAX);
        Bounds { turns: count(self.config.max_concurrent_turns), sub_agents: count(self.config.spawn.at_once) }
    }

    pub fn lock_cancels(&self) -> std::sync::MutexGuard<'_, HashMap<Uuid, CancellationToken>> {
        self.cancels.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The session's lowest unfinished message, and with `collect` those behind it from the same sender and chat. A turn
/// that had been started before takes the same messages again.
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
            && !stands_alone(row)
            && (&row.sender, &row.trust, &row.channel, &row.chat_id)
                == (&first.sender, &first.trust, &first.channel, &first.chat_id)
    };
    let count = if stands_alone(&first) { 1 } else { 1 + rows.iter().skip(1).take_while(|row| joins(row)).count() };
    rows.truncate(count);
    Ok(rows)
}

/// Begins a new epoch before the first turn of a message for which one is due. A command is answered in the conversation that
/// it is about, and what a session is told goes into the one that there is.
fn begin_anew(connection: &Connection, rows: &[InboxRow], resets: &Resets, zone: &TimeZone) -> Result<(), StoreError> {
    let Some(first) = rows.first().filter(|row| row.state == State::Queued) else { return Ok(()) };
    let is_said = command_of(first).is_none() && TurnOrigin::parse(&first.origin).note().is_none();
    if is_said && resets.apply(connection, &first.session, first.received_at, zone)? {
        tracing::info!(session = first.session, turn = %first.turn, "a new conversation begins by itself");
    }
    Ok(())
}

/// Whether a message is never joined with others: what follows from its end is its own.
fn stands_alone(row: &InboxRow) -> bool {
    command_of(row).is_some() || TurnOrigin::parse(&row.origin).cause != TurnCause::Person
}

/// The command that a message is. Nobody gives orders by what daoyou itself asks for, whatever it begins with.
fn command_of(row: &InboxRow) -> Option<Slash> {
    Slash::parse(&row.content).filter(|_| !TurnOrigin::parse(&row.origin).is_errand())
}
