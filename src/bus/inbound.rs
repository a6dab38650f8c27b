//! Messages that daoyou itself puts into the inbox: due jobs, ends of sub-agents, notes for a session. No capacity limits them,
//! because accepted work must not be refused halfway.

use daoyou_channels::trust::{Author, SenderListing, trust_of};
use daoyou_channels::{ErrorInfo, InboundMessage, SessionKey};
use uuid::Uuid;

use super::message_bus::{InboundSignal, MessageBus};
use super::outbound::{OutboundBody, OutboundDraft, OutboxSlot};
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
    /// Creates a draft of a channel's message, with a new id: a person wrote it, whatever its content claims.
    pub fn new(message: InboundMessage) -> Self {
        let (settings, reply) = (message.settings.clone(), message.reply.clone());
        Self::with_origin(message, TurnOrigin { settings, reply, ..TurnOrigin::default() })
    }

    /// Creates a draft of an internal message, with a new id.
    pub fn with_origin(message: InboundMessage, origin: TurnOrigin) -> Self {
        Self { id: daoyou_channels::new_id(), message, origin }
    }

    /// Creates the draft that adds `note` to the history of `session`. The draft belongs to no channel, so nothing is delivered.
    pub fn of_note(note: &SessionNote, session: SessionKey) -> Self {
        let trust = trust_of(Author::Owner, SenderListing::Owner);
        let mut message = InboundMessage::text("daoyou", "", "daoyou", trust, note.reply.clone());
        message.session = Some(session);
        Self::with_origin(message, TurnOrigin { cause: TurnCause::Note(note.clone()), ..TurnOrigin::default() })
    }

    /// Inserts the row into the inbox as `queued`, within the caller's commit, unless the store has its `(channel, external_id)`
    /// already; returns true if it was inserted.
    pub fn insert(&self, connection: &Connection) -> Result<bool, StoreError> {
        inbox::insert(connection, &self.row(InboxState::Queued)?)
    }

    pub(super) fn row(&self, state: InboxState) -> Result<NewInboxRow, StoreError> {
        let Self { id, message, origin } = self;
        Ok(NewInboxRow {
            id: *id,
            channel: message.channel.clone(),
            external_id: message.external_id.clone().unwrap_or_else(|| id.to_string()),
            session: message.session_key().to_string(),
            chat_id: message.chat_id.clone(),
            sender: message.sender.clone(),
            trust: message.trust.as_str(),
            content: message.content.clone(),
            attachments: serde_json::to_string(&message.attachments)?,
            metadata: serde_json::to_string(&message.metadata)?,
            origin: origin.to_column(),
            received_at: message.received_at.as_millisecond(),
            state,
        })
    }

    /// Returns the reply to the message, which no turn answers.
    pub(super) fn reply(&self, content: String, error: Option<ErrorInfo>) -> OutboundDraft {
        let Self { id, message, origin } = self;
        OutboundDraft {
            turn: *id,
            slot: OutboxSlot::Reply,
            channel: message.channel.clone(),
            chat_id: message.chat_id.clone(),
            body: OutboundBody {
                in_reply_to: Some(*id),
                metadata: message.metadata.clone(),
                context: origin.reply.clone(),
                error,
                ..OutboundBody::new(content, message.session_key())
            },
        }
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
            self.reply(reply, error).insert(connection)?;
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
        self.signal(InboundSignal::Work(session));
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
            self.signal(InboundSignal::Cancel(turn));
            self.signal(InboundSignal::Work(session.into()));
        }
    }
}
