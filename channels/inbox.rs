//! The interface through which a channel hands received messages to the gateway.

use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::message::{ErrorInfo, InboundMessage, OutboundMessage, SessionKey};

/// The position up to which a channel has read a source. It is stored in the same commit as the message found at that position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cursor {
    pub channel: String,
    /// The source within the channel, e.g. a mailbox.
    pub source: String,
    /// The position in the channel's own notation, e.g. `UIDVALIDITY:UID`.
    pub position: String,
}

/// A piece of state that a channel needs after a restart, addressed by kind and key. The newest value counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    pub channel: String,
    /// The kind of state in one word, e.g. `thread`.
    pub kind: &'static str,
    pub key: String,
    pub value: String,
}

/// A note as read from the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredNote {
    pub value: String,
    /// The time of the last write.
    pub at: Timestamp,
}

/// Records that are stored in the same commit as a message that a channel accepts or skips.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AcceptExtras {
    pub cursor: Option<Cursor>,
    pub notes: Vec<Note>,
    /// A notice to the owner in Markdown. It goes to the target of `owner.notify`; without one, only to the log.
    pub notice: Option<String>,
}

impl AcceptExtras {
    /// Returns the part that is stored for a duplicate: the cursor, which passes it. The notes and the notice describe a
    /// message that is not stored, and the first message has its own.
    #[must_use]
    pub fn of_duplicate(&self) -> Self {
        Self { cursor: self.cursor.clone(), ..Self::default() }
    }
}

impl From<Cursor> for AcceptExtras {
    fn from(cursor: Cursor) -> Self {
        Self { cursor: Some(cursor), ..Self::default() }
    }
}

/// The result of handing over a message, returned when the message is on disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "status", rename_all = "lowercase")]
pub enum Acceptance {
    /// The message will be answered, even if this process crashes.
    Accepted { id: Uuid, session: SessionKey },
    /// A message with the same `(channel, external_id)` was accepted earlier, as `id`.
    Duplicate { id: Uuid, session: SessionKey, reply: Option<Reply> },
}

impl Acceptance {
    /// Returns the id of the message in the store. For a duplicate, it is the id of the first message.
    pub fn id(&self) -> Uuid {
        match self {
            Self::Accepted { id, .. } | Self::Duplicate { id, .. } => *id,
        }
    }
}

/// The reason why the inbox did not accept a message. The sender may send the message again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The session has too many waiting messages: HTTP 429.
    #[error("session {session} already has {waiting} messages waiting; try again later")]
    SessionFull { session: SessionKey, waiting: usize, retry_after: Duration },
    /// The inbox has too many waiting messages: HTTP 503.
    #[error("the gateway already has {waiting} messages waiting; try again later")]
    InboxFull { waiting: usize, retry_after: Duration },
    /// Too many replies of this channel are undelivered: HTTP 503.
    #[error("channel {channel} has {waiting} undelivered replies and takes no new messages until some are gone")]
    OutboxFull { channel: String, waiting: usize, retry_after: Duration },
    /// The gateway is shutting down: HTTP 503.
    #[error("the gateway is stopping; try again in a moment")]
    Draining { retry_after: Duration },
    /// Another process refused the message for now, for the given reason: HTTP 429 or 503.
    #[error("{reason}")]
    Busy { reason: String, retry_after: Duration },
    /// The message itself is invalid: HTTP 422. Or another process refused it, and will do so again.
    #[error("{0}")]
    Invalid(String),
    /// Writing failed, or the store is closed: HTTP 503.
    #[error("the message could not be stored: {reason}")]
    Store { reason: String, retry_after: Duration },
}

impl Refusal {
    /// Returns the stable word for the reason.
    pub fn code(&self) -> &'static str {
        match self {
            Self::SessionFull { .. } => "session_full",
            Self::InboxFull { .. } => "inbox_full",
            Self::OutboxFull { .. } => "outbox_full",
            Self::Draining { .. } => "draining",
            Self::Busy { .. } => "busy",
            Self::Store { .. } => "store",
            Self::Invalid(_) => "invalid",
        }
    }

    /// Returns the time after which the sender may send the message again; `None` if it stays refused.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::SessionFull { retry_after, .. }
            | Self::InboxFull { retry_after, .. }
            | Self::OutboxFull { retry_after, .. }
            | Self::Draining { retry_after }
            | Self::Busy { retry_after, .. }
            | Self::Store { retry_after, .. } => Some(*retry_after),
            Self::Invalid(_) => None,
        }
    }

    /// Returns the wait after which the message may be accepted, if only room is missing.
    pub fn wait_for_room(&self) -> Option<Duration> {
        self.retry_after().filter(|_| !matches!(self, Self::Draining { .. } | Self::Store { .. }))
    }
}

/// The progress of an accepted message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, strum::EnumString, strum::IntoStaticStr)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "snake_case")]
pub enum MessageStatus {
    Queued,
    Running,
    Waiting,
    Done,
    Dead,
}

impl MessageStatus {
    /// Returns the word in the store and in JSON.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// The reply to a message.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reply {
    pub content: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorInfo>,
}

/// The state of an accepted message, for its sender.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessageState {
    pub id: Uuid,
    pub session: SessionKey,
    pub status: MessageStatus,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply: Option<Reply>,
    /// The notice that the sender got while the message waits, also while the model that it waits for is asked again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notice: Option<String>,
    /// The message waits until the owner approves a tool call; `notice` says so.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub awaits_approval: bool,
    /// The question to the sender that the turn waits on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub question: Option<String>,
    /// The earlier message whose question this one answered. This message is then done, and the reply belongs to the earlier one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub continues: Option<Uuid>,
}

impl MessageState {
    /// Returns the status for the sender, which stays `waiting` while the model that the message waits for is asked again.
    pub fn status_for_sender(&self) -> MessageStatus {
        if self.notice.is_some() { MessageStatus::Waiting } else { self.status }
    }

    /// Returns the reply if the message is done or dead; `None` before.
    pub fn final_reply(&self) -> Option<Reply> {
        let lost = || Reply {
            content: "This message could not be answered.".to_owned(),
            error: Some(ErrorInfo { code: "dead".to_owned() }),
        };
        match self.status {
            MessageStatus::Done => Some(self.reply.clone().unwrap_or_default()),
            MessageStatus::Dead => Some(self.reply.clone().unwrap_or_else(lost)),
            MessageStatus::Queued | MessageStatus::Running | MessageStatus::Waiting => None,
        }
    }
}

/// A delivered message, as far as the other side confirmed it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SentMessage {
    /// The message is a notice and not a reply.
    pub is_notice: bool,
    /// The chat that got the message.
    pub chat_id: String,
}

/// Accepts messages. `accept` returns only when the message is on disk (`synchronous = FULL`).
#[async_trait]
pub trait Inbox: Send + Sync {
    /// Accepts `message`. The same commit stores `extras`; for a duplicate, only their cursor.
    async fn accept(&self, message: InboundMessage, extras: AcceptExtras) -> Result<Acceptance, Refusal>;

    /// Accepts `message` and answers it without a turn or a model. One commit stores the message, its reply and `extras`; for
    /// a duplicate, only the cursor.
    async fn answer(&self, message: InboundMessage, reply: String, extras: AcceptExtras)
    -> Result<Acceptance, Refusal>;

    /// Stores `extras` without a message. If they move a cursor, `reason` is stored with the position.
    async fn skip(&self, extras: AcceptExtras, reason: &str) -> Result<(), Refusal>;

    /// Returns the newest note of `kind` and `key`.
    async fn note(&self, channel: &str, kind: &str, key: &str) -> Result<Option<StoredNote>, Refusal>;

    /// Finds a delivered message of `channel` by its id in the outbox. Returns `None` for an undelivered message too.
    async fn sent(&self, channel: &str, id: Uuid) -> Result<Option<SentMessage>, Refusal>;

    /// Returns the position up to which `channel` has read `source`.
    async fn cursor(&self, channel: &str, source: &str) -> Result<Option<Cursor>, Refusal>;

    /// Finds the state of a message of `channel` by its id in the store or by its sender's id.
    async fn state(&self, channel: &str, id: &str) -> Result<Option<MessageState>, Refusal>;

    /// Returns the states of the turns that answered the reports of sub-agents and the ends of background processes which the turn of
    /// the message started, in order.
    async fn follow_ups(&self, _channel: &str, _id: Uuid) -> Result<Vec<MessageState>, Refusal> {
        Ok(Vec::new())
    }

    /// Waits until the message is done or dead, but at most for `limit`; then returns its state.
    async fn wait(&self, id: Uuid, limit: Duration) -> Result<Option<MessageState>, Refusal>;

    /// Returns true if `message` goes to the chat of the inbound message that its turn answers.
    async fn is_for_asker(&self, message: &OutboundMessage) -> Result<bool, Refusal> {
        let asked = self.state(&message.channel, &message.turn.to_string()).await?;
        let own = SessionKey::of_chat(&message.channel, &message.chat_id);
        // The chat id is the whole session key if the conversation belongs to another channel.
        Ok(asked.is_some_and(|asked| asked.session == own || asked.session.as_str() == message.chat_id))
    }
}
