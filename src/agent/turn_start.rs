//! The start of a turn: one commit, before any work.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use daoyou_channels::{SessionKey, TurnSettings};
use jiff::tz::TimeZone;
use parking_lot::{Mutex, MutexGuard};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::config::QueueMode;
use crate::crash;
use crate::guard::KnownSecrets;
use crate::memory::{MemoryService, origin_on_behalf, sender_of};
use crate::origin::{TurnCause, TurnOrigin};
use crate::postprocess::Question;
use crate::session::commands::SlashCommand;
use crate::session::lanes::Isolation;
use crate::session::resets::Resets;
use crate::session::retry_scheduler::RetryScheduler;
use crate::session::session_ownership;
use crate::store::inbox::{self, InboxRow, MessageStatus};
use crate::store::messages::{self, SessionHead};
use crate::store::turn_steps::{self, TurnStepRow};
use crate::store::{Connection, Durability, Store, StoreError, meta, session_tools};
use crate::tools::{AgentScope, ToolContext};
use crate::turn::context::attachments;
use crate::turn::context::user_message::least_trust;
use crate::turn::flight_recorder::FlightRecorder;

/// The maximum number of messages that `collect` joins into one turn.
const COLLECT_LIMIT: u32 = 50;

/// The running and waiting turns. They survive a reload.
#[derive(Clone)]
pub struct RunningTurns {
    cancels: Arc<Mutex<HashMap<Uuid, CancellationToken>>>,
    pub retries: Arc<RetryScheduler>,
    pub flight: Arc<FlightRecorder>,
}

impl RunningTurns {
    pub fn new(retries: RetryScheduler, flight: FlightRecorder) -> Self {
        Self { cancels: Arc::default(), retries: Arc::new(retries), flight: Arc::new(flight) }
    }

    /// Locks the tokens that stop running turns.
    pub fn lock(&self) -> MutexGuard<'_, HashMap<Uuid, CancellationToken>> {
        self.cancels.lock()
    }

    /// Stops a turn, if it runs.
    pub fn cancel(&self, turn: Uuid) {
        if let Some(cancel) = self.lock().get(&turn) {
            cancel.cancel();
        }
    }
}

/// A turn that has been started in the store.
pub struct StartedTurn {
    pub turn: Uuid,
    pub session: SessionKey,
    /// The messages that the turn answers, in their state before its start.
    pub rows: Vec<InboxRow>,
    /// The last of these messages. Its chat gets the reply.
    pub last: InboxRow,
    /// The origin of that message.
    pub origin: TurnOrigin,
    pub steps: Vec<TurnStepRow>,
    /// The agent that `/agent` has chosen for the session.
    pub agent: Option<String>,
    /// The tools that `find_tools` has found in the conversation.
    pub found_tools: BTreeSet<String>,
    pub cancel: CancellationToken,
}

impl StartedTurn {
    /// Returns the context for the turn's tool calls; `agent` is the agent that answers. The question contains none of `secrets`, because
    /// a model may read it.
    pub fn tool_context(
        &self,
        agent: AgentScope,
        is_read_by_others: bool,
        secrets: Option<&KnownSecrets>,
    ) -> ToolContext {
        let Self { turn, session, rows, last, cancel, .. } = self;
        let asked: Vec<&str> = rows.iter().map(|row| row.content.as_str()).collect();
        let mut asked = asked.join("\n");
        if let Some(secrets) = secrets {
            secrets.redact(&mut asked);
        }
        let mut origin = origin_on_behalf(last);
        if !agent.name.is_empty() {
            // Follow-ups of the turn have the same agent.
            origin.settings.agent = Some(agent.name.clone());
        }
        ToolContext {
            session: session.clone(),
            turn: *turn,
            call_id: String::new(),
            channel: last.channel.clone(),
            chat_id: last.chat_id.clone(),
            sender: sender_of(last),
            trust: least_trust(rows),
            is_read_by_others,
            files: attachments::paths(rows),
            metadata: last.metadata.as_str().into(),
            origin: Arc::new(origin),
            agent: Arc::new(agent),
            taint: Arc::default(),
            allow_lists: Arc::default(),
            is_approved: false,
            question: Arc::new(Question::new(asked)),
            cancel: cancel.child_token(),
        }
    }
}

/// Starts turns.
pub struct TurnStarter {
    pub store: Store,
    pub memory: Arc<MemoryService>,
    pub running: RunningTurns,
    pub queue: QueueMode,
    /// The times at which conversations start over automatically.
    pub resets: Resets,
    pub timezone: TimeZone,
}

impl TurnStarter {
    /// Starts the session's lowest unfinished message: sets it `running` and counts the start, in one commit. A power failure may undo
    /// the start; the message is then queued as before, and nothing that may not happen twice has happened, because a step with such
    /// an effect is a synced commit after this one.
    ///
    /// # Errors
    /// The store cannot be written.
    pub async fn start(&self, session: &SessionKey, isolation: Isolation) -> Result<Option<StartedTurn>, StoreError> {
        let (session, key) = (session.clone(), session.to_string());
        let (resets, zone, collect) = (self.resets.clone(), self.timezone.clone(), self.queue == QueueMode::Collect);
        let (running, settings) = (self.running.clone(), self.memory.settings.clone());
        let started = self
            .store
            .write(Durability::Logged, move |connection| {
                let (rows, steps) = take_rows(connection, &key, collect, &running.retries)?;
                let Some((turn, last)) = rows.first().map(|row| row.turn).zip(rows.last().cloned()) else {
                    return Ok(None);
                };
                running.retries.start_try(turn);
                reset_if_due(connection, &rows, &resets, &zone)?;
                for row in &rows {
                    inbox::mark_running(connection, row.seq)?;
                    if row.turn != turn {
                        inbox::set_turn(connection, row.seq, turn)?;
                    }
                }
                if isolation == Isolation::Alone {
                    meta::set(connection, meta::ISOLATED_TURN, &turn.to_string())?;
                }
                let SessionHead { epoch, agent, ownership, .. } = messages::session(connection, &key)?;
                if rows.iter().all(|row| command_of(row).is_none()) {
                    session_ownership::begin(connection, (&key, ownership), &rows, &settings.identities)?;
                }
                let found_tools = session_tools::found(connection, &key, epoch)?;
                // Registered inside the commit, so that a later `/stop` finds the turn here.
                let cancel = CancellationToken::new();
                if rows.iter().any(|row| row.cancel) {
                    cancel.cancel();
                }
                running.lock().insert(turn, cancel.clone());
                let (session, origin) = (session.clone(), TurnOrigin::parse(&last.origin));
                Ok(Some(StartedTurn { turn, session, rows, last, origin, steps, agent, found_tools, cancel }))
            })
            .await?;
        if let Some(started) = &started {
            let text = started.rows.first().map(|row| row.content.as_str()).unwrap_or_default();
            crash::point("turn_started", text);
        }
        Ok(started)
    }
}

/// Returns the session's lowest unfinished message, and with `collect` the messages behind it that are alike (see [`is_alike`]). A
/// turn that was started before takes the same messages again, and has its steps.
fn take_rows(
    connection: &Connection,
    session: &str,
    collect: bool,
    retries: &RetryScheduler,
) -> Result<(Vec<InboxRow>, Vec<TurnStepRow>), StoreError> {
    let own = inbox::open_of_next_turn(connection, session)?;
    let Some(first) = own.first() else { return Ok(Default::default()) };
    if first.state == MessageStatus::Waiting && !first.cancel && retries.must_wait(first.turn) {
        return Ok(Default::default());
    }
    let steps = turn_steps::of_turn(connection, first.turn)?;
    let has_begun = first.state != MessageStatus::Queued || own.len() > 1 || !steps.is_empty();
    if !collect || has_begun || needs_own_turn(first) {
        return Ok((own, steps));
    }
    let mut rows = inbox::open_of_session(connection, session, COLLECT_LIMIT)?;
    let joins = |row: &InboxRow| row.state == MessageStatus::Queued && !needs_own_turn(row) && is_alike(row, first);
    let count = 1 + rows.iter().skip(1).take_while(|row| joins(row)).count();
    rows.truncate(count);
    Ok((rows, steps))
}

/// Returns true if two messages come from the same sender and chat, and ask for the same model, agent, tools and limits. One turn has
/// only one of each.
fn is_alike(row: &InboxRow, other: &InboxRow) -> bool {
    // The facts about each message are listed one after the other.
    let settings = |row: &InboxRow| TurnSettings { about: Vec::new(), ..TurnOrigin::parse(&row.origin).settings };
    (&row.sender, &row.trust, &row.channel, &row.chat_id)
        == (&other.sender, &other.trust, &other.channel, &other.chat_id)
        && settings(row) == settings(other)
}

/// Begins a new epoch before the first turn of a message, if one is due. Commands and notes belong to the current
/// epoch.
fn reset_if_due(
    connection: &Connection,
    rows: &[InboxRow],
    resets: &Resets,
    zone: &TimeZone,
) -> Result<(), StoreError> {
    let Some(first) = rows.first().filter(|row| row.state == MessageStatus::Queued) else { return Ok(()) };
    let is_said = command_of(first).is_none() && TurnOrigin::parse(&first.origin).note().is_none();
    if is_said && resets.apply(connection, &first.session, first.received_at, zone)? {
        tracing::info!(session = first.session, turn = %first.turn, "a new conversation begins automatically");
    }
    Ok(())
}

/// Returns true if a message is never joined with others: its end has follow-ups of its own, or its turn is stopped, which must not
/// stop the other messages.
fn needs_own_turn(row: &InboxRow) -> bool {
    row.cancel || command_of(row).is_some() || TurnOrigin::parse(&row.origin).cause != TurnCause::Person
}

/// Returns the command of a message. An internal message is never a command, whatever its text.
pub fn command_of(row: &InboxRow) -> Option<SlashCommand> {
    SlashCommand::parse(&row.content).filter(|_| !TurnOrigin::parse(&row.origin).runs_for_job_or_agent())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::inbox::NewInboxRow;

    /// Input: the origins of the queued messages, and whether each is cancelled. Expected: how many messages the first turn takes.
    #[tokio::test]
    async fn only_messages_that_fit_one_turn_are_joined() {
        const CODER: &str = r#"{"settings":{"agent":"coder"}}"#;
        const ABOUT: &str = r#"{"settings":{"about":["Subject: x"]}}"#;
        const HEARTBEAT: &str = r#"{"cause":{"kind":"heartbeat"}}"#;
        let (_folder, store) = Store::temporary();
        for (number, (rows, expected)) in [
            (&[("{}", false), ("{}", false), ("{}", false)][..], 3),
            (&[("{}", false), (ABOUT, false)], 2),
            // The stop of one message must not stop another.
            (&[("{}", false), ("{}", true), ("{}", false)], 1),
            (&[("{}", true), ("{}", false)], 1),
            (&[("{}", false), (CODER, false)], 1),
            (&[(CODER, false), (CODER, false)], 2),
            (&[("{}", false), (HEARTBEAT, false)], 1),
        ]
        .into_iter()
        .enumerate()
        {
            let session = format!("s{number}");
            let take = move |connection: &Connection| {
                for (origin, is_cancelled) in rows {
                    let (id, origin) = (daoyou_channels::new_id(), (*origin).to_owned());
                    inbox::insert(connection, &NewInboxRow { origin, ..NewInboxRow::sample(id, &session) })?;
                    connection.execute("UPDATE inbox SET cancel = ? WHERE id = ?", (is_cancelled, id.to_string()))?;
                }
                Ok(take_rows(connection, &session, true, &RetryScheduler::default())?.0.len())
            };
            assert_eq!(store.write(Durability::Logged, take).await.unwrap(), expected, "{rows:?}");
        }
    }
}
