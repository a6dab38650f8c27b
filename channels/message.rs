//! The two messages that cross the bus: one that a channel received, and one that it delivers.

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use uuid::Uuid;

/// The key of a conversation: `channel:chat_id` unless the message names another. Messages of a session are answered in the
/// order of acceptance.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SessionKey(String);

impl SessionKey {
    /// Returns the key of `chat_id` on `channel`.
    pub fn of_chat(channel: &str, chat_id: &str) -> Self {
        Self(format!("{channel}:{chat_id}"))
    }

    /// Returns the key as written, `channel:rest`.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<String> for SessionKey {
    fn from(key: String) -> Self {
        Self(key)
    }
}

impl From<&str> for SessionKey {
    fn from(key: &str) -> Self {
        Self(key.to_owned())
    }
}

impl fmt::Display for SessionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// How far the sender of a message is trusted, decided by the channel that received it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Trust {
    /// The owner of this gateway, e.g. the user of its terminal.
    Owner,
    /// Authenticated and on the channel's allow-list.
    Known,
    /// A sender whose text is data, never instructions.
    Untrusted,
}

impl Trust {
    /// Returns the word in the store.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Owner => "owner",
            Self::Known => "known",
            Self::Untrusted => "untrusted",
        }
    }

    /// Returns a number that is higher for more trust.
    pub fn rank(self) -> u8 {
        match self {
            Self::Untrusted => 0,
            Self::Known => 1,
            Self::Owner => 2,
        }
    }

    /// Parses the word in the store; an unknown one is the least trusted.
    pub fn parse(word: &str) -> Self {
        match word {
            "owner" => Self::Owner,
            "known" => Self::Known,
            _ => Self::Untrusted,
        }
    }
}

/// The metadata key of the model that answers a message, if it is not the session's.
pub const MODEL_KEY: &str = "model";

/// The metadata key of the subject of an [`OutboundMessage`] that is not a reply, on one line, for channels with subjects.
pub const SUBJECT_KEY: &str = "subject";

/// A file that came with a message or goes with one. Its bytes are synced to disk before the message is accepted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attachment {
    /// The name to show.
    pub name: String,
    /// The path of the bytes, relative to the workspace.
    pub path: String,
    /// Media type, e.g. `image/png`.
    pub media_type: String,
    /// Size in bytes.
    pub size: u64,
    /// The SHA-256 of the bytes in hexadecimal, for a file that goes with a message: a copy is sent
    /// (`OutgoingFiles`). Empty for a file that came with a message.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub digest: String,
}

/// A message that a channel received, before it is accepted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct InboundMessage {
    /// The channel's name: `cli`, `email`, `webhook:NAME`.
    pub channel: String,
    /// The id the sender's side gave it; the same `(channel, external_id)` twice is one message. `None` where the
    /// channel has no ids: then each one is new.
    pub external_id: Option<String>,
    /// The conversation on that channel; replies go there.
    pub chat_id: String,
    /// Who wrote it, in the channel's own terms.
    pub sender: String,
    pub trust: Trust,
    /// The text.
    pub content: String,
    #[serde(default)]
    pub attachments: Vec<Attachment>,
    /// Further data that the channel needs when it sends the reply.
    #[serde(default)]
    pub metadata: Map<String, Value>,
    pub received_at: Timestamp,
    /// Overrides the session `channel:chat_id`.
    #[serde(default)]
    pub session: Option<SessionKey>,
}

impl InboundMessage {
    /// Creates a plain text message that arrived now.
    pub fn text(channel: &str, chat_id: &str, sender: &str, trust: Trust, content: impl Into<String>) -> Self {
        Self {
            channel: channel.to_owned(),
            external_id: None,
            chat_id: chat_id.to_owned(),
            sender: sender.to_owned(),
            trust,
            content: content.into(),
            attachments: Vec::new(),
            metadata: Map::new(),
            received_at: Timestamp::now(),
            session: None,
        }
    }

    /// Returns the session of this message.
    pub fn session_key(&self) -> SessionKey {
        self.session.clone().unwrap_or_else(|| SessionKey::of_chat(&self.channel, &self.chat_id))
    }
}

/// What a channel adds to a message for its turn: what the owner has set for it, and what stands beside the sender's words.
/// It travels in the message's metadata, which a channel fills and no sender does.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnSettings {
    /// `PROVIDER/MODEL`; absent is the agent's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Instructions that go along with the message and are none of its sender's words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
    /// What the model is to know of the message beside its words, one line each: a mail's subject, what was cut off.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub about: Vec<String>,
    /// The model is given nothing of what was said in the session before.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub fresh: bool,
    /// The tools that the turn has, by name; absent is all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<String>>,
    /// How far the turn may go; absent is as far as any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bounds: Option<TurnBounds>,
}

/// Limits of one turn, where they are lower than the usual ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnBounds {
    /// Responses with tool calls.
    pub iterations: u32,
    /// Tokens of all responses together.
    pub tokens: u64,
    /// Active time, in milliseconds.
    pub timeout_ms: u64,
}

impl TurnSettings {
    const KEY: &str = "turn";

    /// Puts them into a message's metadata, if any is set.
    pub fn put(&self, metadata: &mut Map<String, Value>) {
        if *self != Self::default() {
            metadata.insert(Self::KEY.to_owned(), serde_json::json!(self));
        }
    }

    /// Reads them out of a message's metadata, written as JSON; without any, nothing is set.
    pub fn of(metadata: &str) -> Self {
        #[derive(Default, Deserialize)]
        struct Metadata {
            #[serde(default)]
            turn: TurnSettings,
        }
        serde_json::from_str::<Metadata>(metadata).unwrap_or_default().turn
    }
}

/// In the metadata of an [`OutboundMessage`] that is no answer but says how things stand: the word for it, e.g.
/// `waiting`.
pub const NOTICE_KEY: &str = "notice";

/// In the metadata of a message that comes from a scheduled job: the job's name.
pub const JOB_KEY: &str = "job";

/// The machine-readable reason why a turn failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorInfo {
    /// A stable word, e.g. `llm_timeout`, `interrupted`.
    pub code: String,
}

/// A message to deliver: a reply, a tool's message, or a notice.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OutboundMessage {
    /// The same for every delivery attempt; a receiver that stores ids drops a second copy.
    pub id: Uuid,
    /// The turn that produced it.
    pub turn: Uuid,
    pub channel: String,
    pub chat_id: String,
    pub session: SessionKey,
    /// Text, Markdown.
    pub content: String,
    /// The accepted message that this answers: its id in the store.
    #[serde(default)]
    pub in_reply_to: Option<Uuid>,
    #[serde(default)]
    pub attachments: Vec<Attachment>,
    /// The metadata of the message that this answers.
    #[serde(default)]
    pub metadata: Map<String, Value>,
    /// Set if the turn failed; `content` then tells the user.
    #[serde(default)]
    pub error: Option<ErrorInfo>,
    /// When the message was put into the outbox.
    pub created_at: Timestamp,
}
