//! Messages that daoyou itself puts into the inbox: a job that is due, the end of a sub-agent, what a session is to know.
//! No capacity holds them back: what was accepted once must not be refused halfway.

use daoyou_channels::trust::{Author, Standing, trust_of};
use daoyou_channels::{ErrorInfo, InboundMessage, SessionKey};
use uuid::Uuid;

use super::accept::{new_row, origin_of, reply_to};
use super::message_bus::{Inbound, MessageBus};
use crate::origin::{SessionNote, TurnCause, TurnOrigin};
use crate::store::inbox::{self, Inserted, State};
use crate::store::{Connection, StoreError};

/// An inbound message before it has a row. To be written within somebody's commit, who then tells the bus
/// ([`MessageBus::inbound_written`]).
#[derive(Clone, Debug, PartialEq)]
pub struct InboundDraft {
    /// The row's, and at first its turn's.
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

    /// Creates a draft of a message of daoyou's own, with a new id.
    pub fn with_origin(message: InboundMessage, origin: TurnOrigin) -> Self {
        Self { id: daoyou_channels::new_id(), message, origin }
    }

    /// Creates the draft that adds `note` to the history of `session`. It belongs to no channel: nothing is ever delivered for it.
    pub fn of_note(note: &SessionNote, session: SessionKey) -> Self {
        let trust = trust_of(Author::Owner, Standing::Owner);
        let mut message = InboundMessage::text("daoyou", "", "daoyou", trust, note.said.clone());
        message.session = Some(session);
        Self::with_origin(message, TurnOrigin { cause: TurnCause::Note(note.clone()), ..TurnOrigin::default() })
    }

    /// Puts the row into the inbox as `queued`, within the caller's commit. One whose `(channel, external_id)` stands already
    /// is not written again.
    pub fn insert(&self, connection: &Connection) -> Result<Inserted, StoreError> {
        let session = self.message.session_key();
        inbox::insert(connection, &new_row(self.id, &self.message, &self.origin, &session, State::Queued)?)
    }

    /// Puts the row into the inbox as done and `reply`, if any, into the outbox, within the caller's commit: no turn answers it. The
    /// caller wakes the channel ([`MessageBus::outbound_written`]).
    pub fn insert_answered(
        &self,
        connection: &Connection,
        reply: Option<String>,
        error: Option<ErrorInfo>,
    ) -> Result<Inserted, StoreError> {
        let session = self.message.session_key();
        let inserted =
            inbox::insert(connection, &new_row(self.id, &self.message, &self.origin, &session, State::Done)?)?;
        if inserted == Inserted::New
            && let Some(reply) = reply
        {
            let mut draft = reply_to(self.id, self.message.clone(), reply);
            draft.body.error = error;
            draft.body.context = self.origin.reply.clone();
            draft.insert(connection)?;
        }
        Ok(inserted)
    }
}

impl MessageBus {
    /// Inbox rows were committed along with something else: their places are counted and the consumer is woken.
    pub fn inbound_written(&self, session: SessionKey, messages: usize) {
        self.ledger.add(&session, messages);
        self.inbound.wake(Inbound::Work(session));
    }

    /// A session may have something to do that the consumer has not been told of.
    pub fn nudge(&self, session: SessionKey) {
        self.inbound.wake(Inbound::Work(session));
    }
}
