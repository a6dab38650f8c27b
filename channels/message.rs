//! The two messages that cross the bus: one that a channel received, and one that it delivers.

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use uuid::Uuid;

use crate::ids::new_id;

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
    /// What else the channel needs again when it sends the reply. Nothing here changes what the turn does.
    #[serde(default)]
    pub metadata: Map<String, Value>,
    /// What the channel, never the sender, sets for the turn.
    #[serde(default)]
    pub settings: TurnSettings,
    /// What goes along with each message that the turn sends.
    #[serde(default)]
    pub reply: OutboundContext,
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
            settings: TurnSettings::default(),
            reply: OutboundContext::default(),
            received_at: Timestamp::now(),
            session: None,
        }
    }

    /// Returns the session of this message.
    pub fn session_key(&self) -> SessionKey {
        self.session.clone().unwrap_or_else(|| SessionKey::of_chat(&self.channel, &self.chat_id))
    }
}

/// What a channel sets for a message's turn: the owner's configuration for it, and facts beside the sender's words.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnSettings {
    /// `PROVIDER/MODEL` that was asked for with this very message; it precedes the session's choice and `model`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requested_model: Option<String>,
    /// `PROVIDER/MODEL` of the channel; absent is the agent's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Instructions that go along with the message and are none of its sender's words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
    /// Instructions of the program through which the sender writes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sender_prompt: Option<String>,
    /// What was said before, in a conversation that the sender's program keeps and the session does not have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub history: Option<String>,
    /// What the model is to know of the message beside its words, one line each: a mail's subject, what was cut off.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub about: Vec<String>,
    /// The model is given nothing of what was said in the session before.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub fresh: bool,
    /// The tools that the turn has, by name; absent is all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<String>>,
    /// The agent that answers, by name; absent is that of the session or the chat.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// The agents that this one works for, whose limits hold as well.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub within: Vec<String>,
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
    /// Returns true if nothing is set.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// What a delivered message is about, for channels that show or treat it differently.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct OutboundContext {
    /// Name of the scheduled job that the message comes from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    /// Subject line of a message that answers none, for channels that have subjects.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// Set on a message that is no answer but reports a state: its name, e.g. `waiting`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub notice: Option<String>,
    /// The turn waits for an answer to this message.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_question: bool,
    /// Every open terminal shows it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_for_all_terminals: bool,
    /// Whoever wrote the message fetches the reply by its id; without a terminal it counts as delivered.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_picked_up: bool,
}

impl OutboundContext {
    /// Returns true for a plain reply.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the context of a message that reports a state.
    #[must_use]
    pub fn notice(mut self, name: &str) -> Self {
        self.notice = Some(name.to_owned());
        self
    }
}

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
    /// The channel's metadata of the message that this answers.
    #[serde(default)]
    pub metadata: Map<String, Value>,
    #[serde(default)]
    pub context: OutboundContext,
    /// Set if the turn failed; `content` then tells the user.
    #[serde(default)]
    pub error: Option<ErrorInfo>,
    /// When the message was put into the outbox.
    pub created_at: Timestamp,
}

impl OutboundMessage {
    /// Creates a plain message of now, in the chat's own session, that answers none.
    pub fn text(channel: &str, chat_id: &str, content: impl Into<String>) -> Self {
        Self {
            id: new_id(),
            turn: new_id(),
            channel: channel.to_owned(),
            chat_id: chat_id.to_owned(),
            session: SessionKey::of_chat(channel, chat_id),
            content: content.into(),
            in_reply_to: None,
            attachments: Vec::new(),
            metadata: Map::new(),
            context: OutboundContext::default(),
            error: None,
            created_at: Timestamp::now(),
        }
    }
}
