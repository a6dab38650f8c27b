//! Inbound and outbound messages before they are rows, and the columns in which the rows keep them.

use daoyou_channels::trust::{Author, SenderListing, trust_of};
use daoyou_channels::{Attachment, ErrorInfo, InboundMessage, OutboundContext, OutboundMessage, SessionKey};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use uuid::Uuid;

use crate::guard::Taint;
use crate::origin::{SessionNote, TurnCause, TurnOrigin};
use crate::store::inbox::{self, InboxRow, MessageStatus, NewInboxRow};
use crate::store::outbox::{self, InsertedOutbound, NewOutbound, OutboxRow};
use crate::store::{Connection, StoreError, questions, spawns};

/// The body of an outbox row, as JSON.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OutboundBody {
    pub content: String,
    pub session: SessionKey,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_reply_to: Option<Uuid>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attachments: Vec<Attachment>,
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub metadata: Map<String, Value>,
    #[serde(default, skip_serializing_if = "OutboundContext::is_default")]
    pub context: OutboundContext,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorInfo>,
}

impl OutboundBody {
    /// Creates the body of a text that answers no message.
    pub fn new(content: String, session: SessionKey) -> Self {
        Self {
            content,
            session,
            in_reply_to: None,
            attachments: Vec::new(),
            metadata: Map::new(),
            context: OutboundContext::default(),
            error: None,
        }
    }
}

/// The slot of an outbox row within its turn. A turn has at most one row for each slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OutboxSlot {
    /// The answer of the turn.
    Reply,
    /// A message that a tool sent: the step of the tool's result, and the number of the message within that step.
    Tool { step: i64, number: usize },
    /// A question of `ask_user`.
    Question { id: Uuid },
    /// Another text of the gateway itself. `about` distinguishes notices of the same kind in one turn.
    Notice { kind: NoticeKind, about: Option<String> },
}

/// The kind of a notice, and its name in the column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::Display, strum::EnumString)]
#[strum(serialize_all = "kebab-case")]
pub enum NoticeKind {
    /// To the sender: the turn waits for a model.
    Waiting,
    /// To the sender: a call waits for the owner's approval.
    Approval,
    // The other kinds are for the owner.
    OwnerApproval,
    Channel,
    #[strum(serialize = "dead")]
    DeadLetter,
    #[strum(serialize = "errand")]
    FollowUp,
    Heartbeat,
    #[strum(serialize = "held")]
    HeldChannel,
    Loss,
    Service,
}

impl OutboxSlot {
    pub fn notice(kind: NoticeKind) -> Self {
        Self::Notice { kind, about: None }
    }

    /// Returns the slot of a notice kind that may occur several times in a turn.
    pub fn notice_about(kind: NoticeKind, about: impl Into<String>) -> Self {
        Self::Notice { kind, about: Some(about.into()) }
    }

    /// Returns the text of the column.
    pub fn to_column(&self) -> String {
        match self {
            Self::Reply => "reply".to_owned(),
            Self::Tool { step, number: 0 } => format!("tool:{step}"),
            Self::Tool { step, number } => format!("tool:{step}.{number}"),
            Self::Question { id } => format!("question:{}", id.simple()),
            Self::Notice { kind, about: None } => format!("notice:{kind}"),
            Self::Notice { kind, about: Some(about) } => format!("notice:{kind}:{about}"),
        }
    }

    /// Parses the text of the column; `None` if it is not a slot.
    pub fn parse(column: &str) -> Option<Self> {
        let (class, rest) = match column.split_once(':') {
            None => return (column == "reply").then_some(Self::Reply),
            Some(parts) => parts,
        };
        match class {
            "tool" => {
                let (step, number) = rest.split_once('.').unwrap_or((rest, "0"));
                Some(Self::Tool { step: step.parse().ok()?, number: number.parse().ok()? })
            }
            "question" => Some(Self::Question { id: rest.parse().ok()? }),
            "notice" => {
                let (word, about) = rest.split_once(':').map_or((rest, None), |(word, about)| (word, Some(about)));
                Some(Self::Notice { kind: word.parse().ok()?, about: about.map(str::to_owned) })
            }
            _ => None,
        }
    }

    /// Returns true if the column's slot is a notice.
    pub fn is_notice(column: &str) -> bool {
        matches!(Self::parse(column), Some(Self::Notice { .. }))
    }
}

/// An outbound message before it has a row.
#[derive(Clone, Debug, PartialEq)]
pub struct OutboundDraft {
    pub turn: Uuid,
    pub slot: OutboxSlot,
    pub channel: String,
    pub chat_id: String,
    pub body: OutboundBody,
}

impl OutboundDraft {
    /// Returns a message of the turn `turn` to the sender of `row`, in the context of its reply.
    pub fn to_sender(row: &InboxRow, turn: Uuid, slot: OutboxSlot, content: String) -> Self {
        let body = OutboundBody {
            metadata: metadata_of(&row.metadata),
            context: TurnOrigin::parse(&row.origin).reply,
            ..OutboundBody::new(content, row.session.as_str().into())
        };
        Self { turn, slot, channel: row.channel.clone(), chat_id: row.chat_id.clone(), body }
    }

    /// Inserts the row into the outbox within the caller's commit.
    ///
    /// # Errors
    /// The body cannot be serialized, or the row cannot be written.
    pub fn insert(&self, connection: &Connection) -> Result<InsertedOutbound, StoreError> {
        outbox::insert(
            connection,
            &NewOutbound {
                turn: self.turn,
                slot: self.slot.to_column(),
                channel: self.channel.clone(),
                chat_id: self.chat_id.clone(),
                body: serde_json::to_string(&self.body)?,
            },
        )
    }
}

/// Returns the metadata of a message from its column. Unreadable metadata becomes empty: a reply without it still arrives.
pub fn metadata_of(column: &str) -> Map<String, Value> {
    serde_json::from_str(column).unwrap_or_else(|error| {
        tracing::warn!(%error, "the metadata of a message cannot be read; it is treated as empty");
        Map::new()
    })
}

/// Returns the message of a row.
///
/// # Errors
/// The body of the row is not that of an outbound message.
pub fn message_of(row: OutboxRow) -> Result<OutboundMessage, StoreError> {
    let body: OutboundBody = serde_json::from_str(&row.body)?;
    Ok(OutboundMessage {
        id: row.id,
        turn: row.turn,
        channel: row.channel,
        chat_id: row.chat_id,
        session: body.session,
        content: body.content,
        in_reply_to: body.in_reply_to,
        attachments: body.attachments,
        metadata: body.metadata,
        context: body.context,
        error: body.error,
        created_at: Timestamp::from_millisecond(row.created_at).unwrap_or_default(),
    })
}

/// Returns the texts that the tools of a turn sent to a chat.
pub(super) fn texts_of_turn(
    connection: &Connection,
    turn: Uuid,
    channel: &str,
    chat_id: &str,
) -> Result<Vec<String>, StoreError> {
    let rows = outbox::of_turn(connection, turn)?.into_iter().filter(|row| {
        let is_tools = matches!(OutboxSlot::parse(&row.slot), Some(OutboxSlot::Tool { .. }));
        row.channel == channel && row.chat_id == chat_id && is_tools
    });
    let text = |row| -> Result<String, StoreError> {
        let message = message_of(row)?;
        let files = message.attachments.iter().map(|file| format!("\n[file {}, which stays here]", file.name));
        Ok(message.content + &files.collect::<String>())
    };
    rows.map(text).collect()
}

/// An inbound message before it has a row. The caller writes the row within its own commit and then calls
/// [`super::MessageBus::inbound_written`].
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

    /// Marks the message as one that follows from the turn `turn`, so that [`inbox::follow_ups`] finds it.
    ///
    /// # Errors
    /// The store cannot be read.
    pub fn following(mut self, connection: &Connection, turn: Uuid) -> Result<Self, StoreError> {
        self.message.external_id = Some(format!("{turn}:{}", self.id));
        if self.origin.reply.follows.is_none() {
            self.origin.reply.follows = Some(inbox::last_asked(connection, turn)?.unwrap_or(turn));
        }
        Ok(self)
    }

    /// Creates the draft that adds `note` to the history of `session`. The draft belongs to no channel, so nothing is delivered.
    pub fn of_note(note: &SessionNote, session: SessionKey) -> Self {
        let trust = trust_of(Author::Owner, SenderListing::Owner);
        let mut message = InboundMessage::text("daoyou", "", "daoyou", trust, note.reply.clone());
        message.session = Some(session);
        Self::with_origin(message, TurnOrigin { cause: TurnCause::Note(note.clone()), ..TurnOrigin::default() })
    }

    /// Inserts the row into the inbox as `queued`, within the caller's commit, unless the store has its `(channel, external_id)`
    /// already; returns true if it was inserted. No capacity limits these messages, because accepted work must not be refused halfway.
    ///
    /// # Errors
    /// The message cannot be serialized, or the row cannot be written.
    pub fn insert(&self, connection: &Connection) -> Result<bool, StoreError> {
        inbox::insert(connection, &self.row(MessageStatus::Queued)?)
    }

    pub(super) fn row(&self, state: MessageStatus) -> Result<NewInboxRow, StoreError> {
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
    /// answers the message. The caller wakes the channel ([`super::MessageBus::outbound_written`]).
    ///
    /// # Errors
    /// The message or the reply cannot be serialized or written.
    pub fn insert_answered(
        &self,
        connection: &Connection,
        reply: Option<String>,
        error: Option<ErrorInfo>,
    ) -> Result<(), StoreError> {
        let is_new = inbox::insert(connection, &self.row(MessageStatus::Done)?)?;
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
    /// The turn has read private memories.
    pub has_read_memory: bool,
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

/// Marks the turn of an accepted message for cancellation, with its sub-agents and its question; returns the marked turns and their
/// sessions. There are none if the message has already ended.
///
/// # Errors
/// The store cannot be read or written.
pub fn mark_cancelled(connection: &Connection, id: Uuid) -> Result<Vec<(Uuid, String)>, StoreError> {
    let Some(message) = inbox::find(connection, id)? else { return Ok(Vec::new()) };
    let Some((session, has_started)) = inbox::cancel_turn(connection, message.turn)? else { return Ok(Vec::new()) };
    let mut cancelled = if has_started { spawns::cancel_below(connection, &session)? } else { Vec::new() };
    questions::cancel_of_turn(connection, &session, message.turn)?;
    cancelled.push((message.turn, session));
    Ok(cancelled)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Durability, Store};

    #[test]
    fn slots_keep_the_texts_of_their_column() {
        let kinds = [
            (NoticeKind::Waiting, "waiting"),
            (NoticeKind::Approval, "approval"),
            (NoticeKind::OwnerApproval, "owner-approval"),
            (NoticeKind::Channel, "channel"),
            (NoticeKind::DeadLetter, "dead"),
            (NoticeKind::FollowUp, "errand"),
            (NoticeKind::Heartbeat, "heartbeat"),
            (NoticeKind::HeldChannel, "held"),
            (NoticeKind::Loss, "loss"),
            (NoticeKind::Service, "service"),
        ];
        let kinds = kinds.map(|(kind, word)| (OutboxSlot::notice(kind), format!("notice:{word}")));
        let rows = [
            (OutboxSlot::Reply, "reply"),
            (OutboxSlot::Tool { step: 7, number: 0 }, "tool:7"),
            (OutboxSlot::Tool { step: 7, number: 2 }, "tool:7.2"),
            (OutboxSlot::notice_about(NoticeKind::HeldChannel, "webhook:in"), "notice:held:webhook:in"),
            (OutboxSlot::notice_about(NoticeKind::OwnerApproval, "a1b2"), "notice:owner-approval:a1b2"),
        ];
        for (slot, column) in rows.map(|(slot, column)| (slot, column.to_owned())).into_iter().chain(kinds) {
            assert_eq!((slot.to_column(), OutboxSlot::parse(&column)), (column, Some(slot)));
        }
        for column in ["", "replies", "tool:", "tool:x", "tool:1.x", "notice:", "notice:unheard-of", "other:1"] {
            assert_eq!(OutboxSlot::parse(column), None, "{column}");
        }
    }

    #[tokio::test]
    async fn a_follow_up_names_the_last_message_of_the_first_turn_of_its_chain() {
        let (_folder, store) = Store::temporary();
        let work = |connection: &Connection| {
            let [first, joined, second] = [1, 2, 3].map(Uuid::from_u128);
            for id in [first, joined, second] {
                inbox::insert(connection, &NewInboxRow::sample(id, "webhook:in:c"))?;
            }
            inbox::set_turn(connection, 2, first)?;
            let message = InboundMessage::text("webhook:in", "c", "daoyou", daoyou_channels::Trust::Known, "x");
            let report = InboundDraft::new(message.clone()).following(connection, first)?;
            let next = InboundDraft::with_origin(message, report.origin.for_follow_up());
            let next = next.following(connection, second)?;
            assert_eq!([report, next].map(|draft| draft.origin.reply.follows), [Some(joined); 2]);
            Ok(())
        };
        store.write(Durability::Logged, work).await.unwrap();
    }

    #[test]
    fn metadata_that_cannot_be_read_becomes_empty() {
        for (column, keys) in [(r#"{"a":1}"#, 1), ("{}", 0), ("x", 0), ("[1]", 0), ("", 0)] {
            assert_eq!(metadata_of(column).len(), keys, "{column}");
        }
    }
}
