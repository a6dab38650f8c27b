//! One turn of a session: from the commit that starts it to the commit that ends it.

use std::sync::Arc;
use std::time::Duration;

use async_channel::Sender;
use daoyou_channels::text::catch_panic;
use daoyou_channels::{SessionKey, Trust, TurnEvent};
use jiff::tz::TimeZone;
use tokio::time::Instant;

use super::conversation_turn::{ConversationDeps, ConversationTurn, RunState, TurnObservers};
use super::store_journal::StoreJournal;
use super::turn_agent::TurnAgent;
use super::turn_end::{EndResult, SessionAppend, TurnEnd, TurnLearning, TurnMessages};
use super::turn_start::{RunningTurns, StartedTurn, TurnStarter, command_of};
use crate::bus::MessageBus;
use crate::chat::ChatMessage;
use crate::consolidation::Summarizer;
use crate::cron;
use crate::llm::{Models, costs_in_words};
use crate::memory::{MemoryOwner, MemoryService};
use crate::metrics::{TurnMeter, TurnPhase};
use crate::origin::{SessionNote, TurnOrigin};
use crate::phrases::Phrases;
use crate::session::commands::{CommandHandler, CommandReply, ModelPrompt, SessionChange, SlashCommand};
use crate::session::lanes::{ConcurrencyLimits, Isolation};
use crate::session::session_ownership::{SessionMemoryUpdate, is_conversation, is_written};
use crate::store::inbox::{InboxRow, MessageStatus};
use crate::store::messages::Ownership;
use crate::store::{Connection, ownership};
use crate::turn::context::conversation_context::AgentMemory;
use crate::turn::context::{attachments, user_message};
use crate::turn::error::{ErrorCode, TurnError};
use crate::turn::event_emitter::EventEmitter;
use crate::turn::progress::TurnProgress;
use crate::turn::turn_loop::{TurnRunOutcome, TurnScope};

/// The channels on which nobody else reads what the owner is told.
const PRIVATE_CHANNELS: [&str; 3] = ["cli", "page", "api"];

/// Runs turns. A reload creates a new runner, which takes over the [`RunningTurns`] of the old one; a turn ends with the runner with
/// which it began.
pub struct TurnRunner {
    pub bus: Arc<MessageBus>,
    pub starter: TurnStarter,
    pub conversations: ConversationDeps,
    pub commands: Arc<CommandHandler>,
    pub memory: Arc<MemoryService>,
    /// The settings for the ends of jobs.
    pub cron_settings: Arc<cron::CronSettings>,
    pub running: RunningTurns,
    pub limits: ConcurrencyLimits,
    pub timezone: TimeZone,
    pub phrases: &'static Phrases,
}

/// The outcome of a started message.
enum MessageOutcome {
    Turn(TurnRunOutcome),
    Command(CommandReply),
    /// A note for the session, without a turn.
    Note(SessionNote),
}

/// A turn panicked. The log already contains the panic's own message.
#[derive(Debug, thiserror::Error)]
#[error("the turn panicked")]
struct TurnPanic;

impl TurnRunner {
    /// Runs the session's next message, if there is one; returns true if there are more. `progressed` receives the session when a turn
    /// that runs alone has made progress.
    pub async fn run_next(&self, session: &SessionKey, isolation: Isolation, progressed: Sender<SessionKey>) -> bool {
        let started = match self.starter.start(session, isolation).await {
            Ok(Some(started)) => started,
            Ok(None) => return false,
            Err(error) => {
                tracing::error!(%session, %error, "a turn could not be started; trying again");
                tokio::time::sleep(Duration::from_secs(1)).await;
                return true;
            }
        };
        let StartedTurn { turn, ref last, .. } = started;
        let turns = &self.bus.metrics().turns;
        let _running = turns.run();
        // The wait of a resumed turn is not measured: its message was started before.
        if let Some(first) = started.rows.first().filter(|row| row.stalled == 0 && started.steps.is_empty()) {
            turns.phase(TurnPhase::Waiting, first.age());
        }
        let events = EventEmitter::new(self.bus.events().clone(), session.clone(), turn, &last.channel, &last.chat_id);
        let (flight, meter, mut state) = (self.running.flight.take_slot(turn), turns.meter(), RunState::default());
        let is_isolated = isolation == Isolation::Alone;
        let progressed = is_isolated.then_some(progressed);
        let observers = TurnObservers { events: &events, flight: &flight };
        let run = self.run(&started, progressed, observers, &meter, &mut state);
        // The one place where a panic of a turn becomes an error.
        let outcome = catch_panic(run).await;
        let outcome = outcome.unwrap_or_else(|_| Err(TurnError::internal("turn", TurnPanic)));
        meter.end();
        if let Ok(MessageOutcome::Turn(TurnRunOutcome::Parked { must_recheck })) = outcome {
            self.running.lock().remove(&turn);
            return must_recheck;
        }
        let end = TurnEnd { is_isolated, ..self.end_of(&started, outcome, &mut state) };
        if state.has_begun {
            emit_end(&events, &end, &state.progress);
        }
        let (outcome, reply_bytes) = (end.error.unwrap_or("answered"), end.reply.len());
        let EndResult { more, is_learned } = end.write(&self.bus, &self.cron_settings, &self.running.retries).await;
        self.running.lock().remove(&turn);
        self.running.retries.remove(turn);
        self.bus.clear_faults_if_nobody_waits();
        match is_learned {
            true => self.memory.notify_changes(),
            false => self.memory.notify_messages(),
        }
        tracing::info!(%turn, %session, outcome, reply_bytes, "turn ended");
        more
    }

    async fn run(
        &self,
        started: &StartedTurn,
        progressed: Option<Sender<SessionKey>>,
        observers: TurnObservers<'_>,
        meter: &TurnMeter<'_>,
        state: &mut RunState,
    ) -> Result<MessageOutcome, TurnError> {
        let StartedTurn { turn, session, last, origin, .. } = started;
        if let Some(note) = origin.note() {
            return Ok(MessageOutcome::Note(note.clone()));
        }
        let damaged = TurnProgress::read(&started.steps).map(|progress| state.progress = progress).err();
        let mut prompt = None;
        if let Some(command) = unanswered_command(last, &state.progress).filter(|_| damaged.is_none()) {
            let answered = started.cancel.run_until_cancelled(self.commands.answer(&command, last)).await;
            // A command that did not run is not part of the conversation.
            let Some(answered) = answered else {
                let reply = TurnError::new(ErrorCode::Stopped, "command").user_text(self.phrases);
                return Ok(MessageOutcome::Command(CommandReply::failed(reply, ErrorCode::Stopped.as_str())));
            };
            match answered? {
                CommandReply { change: SessionChange::Ask(asked), .. } => prompt = Some(asked),
                reply => return Ok(MessageOutcome::Command(reply)),
            }
        }
        state.has_begun = true;
        observers.events.emit(|| TurnEvent::Started);
        let journal = StoreJournal::new(&self.bus, *turn, session.clone(), progressed);
        let left = self.conversations.limits.within(origin.settings.bounds).time.saturating_sub(state.progress.active);
        let scope = TurnScope { session, turn: *turn, deadline: Instant::now() + left, meter, phrases: self.phrases };
        let text = state.progress.context.as_ref().map(|context| context.user.clone());
        let text = text.unwrap_or_else(|| match &prompt {
            Some(ModelPrompt { text, .. }) => {
                let row = InboxRow { content: text.clone(), ..last.clone() };
                user_message::user_text(&[row], &self.timezone)
            }
            None => user_message::user_text(&started.rows, &self.timezone),
        });
        let conversation = ConversationTurn {
            conversations: &self.conversations,
            started,
            taint: prompt.map(|prompt| prompt.taint).unwrap_or_default(),
            scope,
            journal: &journal,
            observers,
            state,
            damaged,
        };
        // Boxed, since otherwise the task of a turn would contain the whole conversation from its start.
        let answer = |text| Box::pin(conversation.answer(text));
        let run = self.conversations.middleware.turn.run(&scope, text, answer);
        tokio::select! {
            outcome = run => Ok(MessageOutcome::Turn(outcome?)),
            // Without this step the journal is incomplete, so the turn ends.
            error = journal.failed() => Err(error.into()),
        }
    }

    /// The one place where an error becomes a reply and a line of the log.
    fn end_of(
        &self,
        started: &StartedTurn,
        outcome: Result<MessageOutcome, TurnError>,
        state: &mut RunState,
    ) -> TurnEnd {
        let StartedTurn { turn, session, rows, .. } = started;
        let mut end =
            TurnEnd { memory_update: self.memory_update(started), ..TurnEnd::bare(*turn, rows.clone(), self.phrases) };
        let memory = state.agent.as_ref().map_or(AgentMemory::Shared, TurnAgent::memory);
        end.learning = TurnLearning::of(&self.memory, rows, memory);
        // A consolidation would store facts about the person for all agents.
        if let Some(update) = end.memory_update.as_mut().filter(|_| memory != AgentMemory::Shared) {
            update.consolidate_at = None;
        }
        end.model.clone_from(&state.model);
        let (reply, code) = match outcome {
            Ok(MessageOutcome::Note(note)) => {
                return TurnEnd { append: SessionAppend::Note(note), ..end };
            }
            Ok(MessageOutcome::Command(CommandReply { reply, change, error })) => {
                return TurnEnd { reply, change, error, ..end };
            }
            Ok(MessageOutcome::Turn(TurnRunOutcome::Answered(reply))) => (reply, None),
            // A parked turn has no end.
            Ok(MessageOutcome::Turn(TurnRunOutcome::Parked { .. })) => (String::new(), None),
            Err(error) => {
                error.log(*turn, session);
                let error = if self.is_for_owner_alone(started) { error.for_owner() } else { error };
                (error.user_text(self.phrases), Some(error.code))
            }
        };
        end.reply = reply;
        end.error = code.map(ErrorCode::as_str);
        // A message that is given up adds nothing to the session. If it is revived, its turn runs as if the message had just
        // arrived.
        if code == Some(ErrorCode::Unavailable) {
            return TurnEnd { state: MessageStatus::Dead, ..end };
        }
        let reason = code.map_or("not run: the turn had ended", ErrorCode::open_calls_reason);
        let context = state.progress.context.take().map(Box::new);
        let user = match &context {
            Some(context) => context.stored_message(),
            None => ChatMessage::User {
                content: user_message::user_text(rows, &self.timezone),
                images: attachments::images(rows),
            },
        };
        let answer = state.progress.take_answer_step().map(Box::new);
        TurnEnd { append: SessionAppend::Turn(TurnMessages { user, context, answer, reason }), ..end }
    }

    /// Returns true if the owner wrote every message of the turn at the terminal, on the page or by the API, where nobody else reads.
    fn is_for_owner_alone(&self, StartedTurn { session, rows, .. }: &StartedTurn) -> bool {
        let is_own = |row: &InboxRow| {
            Trust::parse(&row.trust) == Trust::Owner
                && PRIVATE_CHANNELS.contains(&row.channel.as_str())
                && !TurnOrigin::parse(&row.origin).runs_for_job_or_agent()
        };
        let is_private = |Ownership { owner, is_shared }: Ownership| {
            !is_shared && owner.is_none_or(|owner| owner == MemoryOwner::gateway().as_str())
        };
        let read = |connection: &Connection| ownership::of_session(connection, session.as_str());
        let identities = &self.memory.settings.identities;
        let is_read = identities.is_read_by_token(session.as_str(), Some(&MemoryOwner::gateway()));
        !is_read && rows.iter().all(is_own) && self.bus.store().read_here(read).is_ok_and(is_private)
    }

    /// Returns the change that the end of a turn makes to the memory of its session.
    fn memory_update(&self, started: &StartedTurn) -> Option<SessionMemoryUpdate> {
        let last = Some(&started.last).filter(|row| is_written(row))?;
        let settings = self.memory.settings.clone();
        let is_talk = is_conversation(last);
        let consolidate_at = Some(settings.config.consolidate_at).filter(|_| settings.config.enabled && is_talk);
        Some(SessionMemoryUpdate { writer: settings.identities.writer_of(last), consolidate_at })
    }

    /// Gives up a message that crashed the gateway on each start: notifies its sender, and lets its session continue.
    pub async fn give_up(&self, rows: Vec<InboxRow>) {
        let Some(turn) = rows.first().map(|row| row.turn) else { return };
        tracing::error!(%turn, "a message crashed the gateway each time it ran and is given up");
        let reply = self.phrases.poison.to_owned();
        let error = Some(ErrorCode::Poison.as_str());
        let end = TurnEnd { reply, error, state: MessageStatus::Dead, ..TurnEnd::bare(turn, rows, self.phrases) };
        end.write(&self.bus, &self.cron_settings, &self.running.retries).await;
    }

    /// Returns the summarizer with the settings of this runner.
    pub fn summarizer(&self) -> Summarizer {
        let ConversationDeps { contexts, chains, middleware, temperature, .. } = &self.conversations;
        Summarizer {
            memory: self.memory.clone(),
            chains: chains.clone(),
            retries: self.running.retries.clone(),
            middleware: middleware.clone(),
            tokens: contexts.tokens.clone(),
            metrics: self.bus.metrics().clone(),
            phrases: self.phrases,
            model: contexts.settings.model.clone(),
            context_tokens: contexts.settings.context_tokens,
            temperature: *temperature,
            max_tokens: contexts.settings.max_tokens,
        }
    }

    /// Returns the models that turns use.
    pub fn models(&self) -> &Arc<Models> {
        &self.conversations.chains.models
    }
}

/// Returns the command of a message, unless it is an MCP prompt whose turn has its context already. A turn that was parked before it
/// had one asks for its prompt again.
fn unanswered_command(row: &InboxRow, progress: &TurnProgress) -> Option<SlashCommand> {
    command_of(row).filter(|_| progress.context.is_none())
}

fn emit_end(events: &EventEmitter, end: &TurnEnd, progress: &TurnProgress) {
    let (reply, message) = (end.reply.clone(), end.reply.clone());
    events.emit(|| match end.error {
        Some(_) => TurnEvent::Error { message },
        None => TurnEvent::Done {
            reply,
            input_tokens: progress.usage.input_tokens,
            output_tokens: progress.usage.output_tokens,
            cost: costs_in_words(&progress.spending.costs()),
        },
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::inbox::{self, NewInboxRow};
    use crate::store::{Durability, Store};
    use crate::turn::progress::{ContextStep, StepBody};

    #[tokio::test]
    async fn a_command_is_answered_until_its_turn_has_a_context() {
        let (_folder, store) = Store::temporary();
        let insert = |connection: &Connection| {
            let id = daoyou_channels::new_id();
            let row = NewInboxRow { content: "/help".to_owned(), ..NewInboxRow::sample(id, "s") };
            inbox::insert(connection, &row)?;
            Ok(inbox::of_turn(connection, id)?.remove(0))
        };
        let row = store.write(Durability::Logged, insert).await.unwrap();
        let mut progress = TurnProgress::default();
        for (step, is_answered) in [
            (StepBody::Retried, true),
            (StepBody::Waiting { since: 7 }, true),
            (StepBody::Context(ContextStep::default()), false),
        ] {
            progress.apply(step.clone());
            assert_eq!(unanswered_command(&row, &progress).is_some(), is_answered, "{step:?}");
        }
    }
}
