//! Messages that daoyou itself puts into the inbox: due jobs, ends of sub-agents, notes for a session. No capacity limits them,
//! because accepted work must not be refused halfway.

use daoyou_channels::trust::{Author, SenderListing, trust_of};
use daoyou_channels::{ErrorInfo, InboundMessage, SessionKey};
use uuid::Uuid;

use super::accept::{new_row, origin_of, reply_draft};
use super::message_bus::{InboundSignal, MessageBus};
use crate::guard::Taint;
use crate::origin::{SessionNote, TurnCause, TurnOrigin};
use crate::store::inbox::{self, InboxRow, InboxState, NewInboxRow};
use crate::store::{Connection, Durability, StoreError, questions, spawns};

/// An inbound message before it has a row. The caller writes the row within its own commit and then calls
/// [`MessageBus::inbound_written`].
#[derive(Clone, Debug, PartialEq)]
pub struct InboundDraft {
    /// The id of the row. It is also the first id of the row's turn.
    pub id: Uuid,
    pub message: InboundMessage,
    pub origin: TurnOrigin,
}

impl InboundDraft {
    /// Creates a draft of a person's message, with a new id.
    pub fn new(message: InboundMessage) -> Self {
        let origin = origin_of(&message);
        Self::with_origin(message, origin)
    }

    /// Creates a draft of an internal message, with a new id.
    pub fn with_origin(message: InboundMessage, origin: TurnOrigin) -> Self {
        Self { id: daoyou_channels::new_id(), message, origin }
    }

    /// Creates the draft that adds `note` to the history of `session`. The draft belongs to no channel, so nothing is delivered.
    pub fn of_note(note: &SessionNote, session: SessionKey) -> Self {
        let trust = trust_of(Author::Owner, SenderListing::Owner);
        let mut message = InboundMessage::text("daoyou", "", "daoyou", trust, note.said.clone());
        message.session = Some(session);
        Self::with_origin(message, TurnOrigin { cause: TurnCause::Note(note.clone()), ..TurnOrigin::default() })
    }

    /// Inserts the row into the inbox as `queued`, within the caller's commit, unless the store has its `(channel, external_id)`
    /// already; returns true if it was inserted.
    pub fn insert(&self, connection: &Connection) -> Result<bool, StoreError> {
        inbox::insert(connection, &self.row(InboxState::Queued)?)
    }

    fn row(&self, state: InboxState) -> Result<NewInboxRow, StoreError> {
        new_row(self.id, &self.message, &self.origin, &self.message.session_key(), state)
    }

    /// Inserts the row into the inbox as done, and `reply`, if there is one, into the outbox, within the caller's commit. No turn
    /// answers the message. The caller wakes the channel ([`MessageBus::outbound_written`]).
    pub fn insert_answered(
        &self,
        connection: &Connection,
        reply: Option<String>,
        error: Option<ErrorInfo>,
    ) -> Result<(), StoreError> {
        let is_new = inbox::insert(connection, &self.row(InboxState::Done)?)?;
        if let Some(reply) = reply.filter(|_| is_new) {
            let mut draft = reply_draft(self.id, self.message.clone(), reply);
            draft.body.error = error;
            draft.body.context = self.origin.reply.clone();
            draft.insert(connection)?;
        }
        Ok(())
    }
}

/// The end of a turn that ran for a job, a heartbeat or a sub-agent's task.
#[derive(Clone, Debug)]
pub struct EndedTurn<'a> {
    /// The message that the turn answers.
    pub row: &'a InboxRow,
    pub turn: Uuid,
    pub reply: &'a str,
    /// The stable code of the error if the turn failed.
    pub error: Option<&'static str>,
    /// The names of the foreign content that the turn has read; see [`Taint`].
    pub taint: Taint,
}

/// The consequences of an [`EndedTurn`], written in the commit of that end.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FollowUps {
    /// The text to deliver to the chat of the turn's message, if there is one.
    pub reply: Option<String>,
    /// Messages for other sessions.
    pub messages: Vec<InboundDraft>,
    /// A notice for the owner, in Markdown.
    pub notice: Option<String>,
}

impl MessageBus {
    /// Counts inbox rows that the caller committed, and wakes the consumer.
    pub fn inbound_written(&self, session: SessionKey, messages: usize) {
        self.capacity.add(&session, messages);
        self.inbound.wake(InboundSignal::Work(session));
    }

    /// Stops the turn of an accepted message as `/stop` does, with its sub-agents and its question. A message whose turn has not
    /// started ends without a turn. Returns false if the message has already ended.
    ///
    /// # Errors
    /// The store cannot be read or written.
    pub async fn cancel_message(&self, id: Uuid) -> Result<bool, StoreError> {
        let cancel = move |connection: &Connection| {
            let Some(message) = inbox::find(connection, id)? else { return Ok(Vec::new()) };
            let Some((session, has_started)) = inbox::cancel_turn(connection, message.turn)? else {
                return Ok(Vec::new());
            };
            let mut cancelled = if has_started { spawns::cancel_below(connection, &session)? } else { Vec::new() };
            questions::cancel_of_turn(connection, &session, message.turn)?;
            cancelled.push((message.turn, session));
            Ok(cancelled)
        };
        let cancelled = self.store.write(Durability::Synced, cancel).await?;
        let is_open = !cancelled.is_empty();
        self.stop_turns(cancelled);
        Ok(is_open)
    }

    /// Makes the consumer stop these turns. The caller has marked their rows.
    pub(super) fn stop_turns(&self, cancelled: Vec<(Uuid, String)>) {
        for (turn, session) in cancelled {
            tracing::info!(%session, %turn, "asked to stop");
            self.inbound.wake(InboundSignal::Cancel(turn));
            self.inbound.wake(InboundSignal::Work(session.into()));
        }
    }

    /// Wakes the consumer for a session that may have work.
    pub fn wake_session(&self, session: SessionKey) {
        self.inbound.wake(InboundSignal::Work(session));
    }
}
