//! The two messages that cross the bus: [`InboundMessage`], which a channel received, and [`OutboundMessage`], which a channel delivers.
//! Also [`new_id`], which makes the ids of messages and turns.

use std::fmt;
use std::sync::Mutex;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use uuid::{ContextV7, Uuid};

use crate::clean::is_display_control;

/// The key of a session: `channel:chat_id` unless the message names another. The agent answers the messages of a session in
/// the order of acceptance.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SessionKey(String);

impl SessionKey {
    /// The rule of [`SessionKey::is_valid_choice`] in words.
    pub const RULE: &str = "a key is one line of 1 to 1200 characters, such as cli:work, without spaces at its ends \
                            and without control characters or marks of the writing direction; . and .. are not keys";

    /// Returns true if a person may choose `key` for a session. The keys of all chats follow this rule: the longest one has the name
    /// of a webhook, a chat and an escaped sender.
    pub fn is_valid_choice(key: &str) -> bool {
        // Browsers would leave out dots in the path of a request.
        let is_dots = matches!(key, "." | "..");
        (1..=1_200).contains(&key.chars().count()) && !is_dots && key.trim() == key && !key.contains(is_display_control)
    }

    /// Returns the key of `chat_id` on `channel`.
    pub fn of_chat(channel: &str, chat_id: &str) -> Self {
        Self(format!("{channel}:{chat_id}"))
    }

    /// Returns the key in its written form, `channel:rest`.
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

/// How far the sender of a message is trusted, from the least trust to the most; decided by the channel that received it.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, strum::EnumString, strum::IntoStaticStr,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "snake_case")]
pub enum Trust {
    /// A sender whose text is data, never instructions.
    Untrusted,
    /// Authenticated and on the channel's allow-list.
    Known,
    /// The owner of this gateway, e.g. the user of its terminal.
    Owner,
}

impl Trust {
    /// Returns the word that the store uses for this level.
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// Parses the store's word. An unknown word means the lowest trust.
    pub fn parse(word: &str) -> Self {
        word.parse().unwrap_or(Self::Untrusted)
    }
}

/// A file that arrived with a message or is sent with one. Its bytes are synced to disk before the message is accepted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attachment {
    /// The name for display.
    pub name: String,
    /// The path of the file, relative to the workspace.
    pub path: String,
    /// Media type, e.g. `image/png`.
    pub media_type: String,
    /// Size in bytes.
    pub size: u64,
    /// The SHA-256 of the bytes in hexadecimal, for a file that is sent: the channel sends the copy in `OutgoingFiles`.
    /// Also set for an upload of the page, whose file must not change. Empty for any other file that arrived with a message.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub digest: String,
}

/// A message that a channel received, before it is accepted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct InboundMessage {
    /// The channel's name: `cli`, `email`, `webhook:NAME`.
    pub channel: String,
    /// The id that the sender's side assigned. Two messages with the same `(channel, external_id)` are one message. `None`
    /// if the channel has no ids; then every message is new.
    pub external_id: Option<String>,
    /// The conversation on that channel, which also receives the replies.
    pub chat_id: String,
    /// The author, named in the channel's own terms.
    pub sender: String,
    pub trust: Trust,
    /// The text.
    pub content: String,
    #[serde(default)]
    pub attachments: Vec<Attachment>,
    /// Further data that the channel needs to send the reply. It does not influence the turn.
    #[serde(default)]
    pub metadata: Map<String, Value>,
    /// The settings of the turn. The channel sets them; the sender cannot.
    #[serde(default)]
    pub settings: TurnSettings,
    /// The context of each message that the turn sends.
    #[serde(default)]
    pub reply: OutboundContext,
    pub received_at: Timestamp,
    /// Replaces the default session `channel:chat_id`.
    #[serde(default)]
    pub session: Option<SessionKey>,
}

impl InboundMessage {
    /// Creates a plain text message that arrives now.
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

    /// Returns the key of this message's session.
    pub fn session_key(&self) -> SessionKey {
        self.session.clone().unwrap_or_else(|| SessionKey::of_chat(&self.channel, &self.chat_id))
    }
}

/// The settings that a channel gives to a message's turn: the owner's configuration, and facts about the message besides its text.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnSettings {
    /// `PROVIDER/MODEL` that was requested with this message. It takes precedence over the session's choice and over `model`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requested_model: Option<String>,
    /// `PROVIDER/MODEL` of the channel; `None` for the agent's own model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Instructions that accompany the message and do not come from its sender.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
    /// Instructions of the program that the sender writes with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sender_prompt: Option<String>,
    /// The earlier conversation, if the sender's program keeps it and the session does not have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub history: Option<String>,
    /// Facts about the message for the model, one line each: the subject of a mail, or what was cut off.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub about: Vec<String>,
    /// The model gets nothing of the session's earlier messages.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub fresh: bool,
    /// People other than the sender get the reply, so the turn must not use the sender's private memory.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_read_by_others: bool,
    /// The names of the tools that the turn may use; `None` for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<String>>,
    /// The name of the agent that answers; `None` for the agent of the session or the chat.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// The agents that the answering agent works for. Their limits apply too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub within: Vec<String>,
    /// The limits of the turn; `None` for the usual ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bounds: Option<TurnBounds>,
}

/// The limits of one turn, where they are lower than the usual ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnBounds {
    /// The number of responses with tool calls.
    pub iterations: u32,
    /// The tokens of all responses together.
    pub tokens: u64,
    /// The active time, in milliseconds.
    pub timeout_ms: u64,
}

impl TurnSettings {
    /// Returns true if no setting differs from its default.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// The context of an outbound message, for channels that show some messages differently.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct OutboundContext {
    /// The name of the scheduled job that sends the message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    /// The subject line of a message that is not a reply, for channels with subjects.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// The name of the state that the message reports, e.g. `waiting`. Set on a notice, which is not a reply.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub notice: Option<String>,
    /// The turn waits for an answer to this message.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_question: bool,
    /// Every open terminal shows the message.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_for_all_terminals: bool,
    /// The sender of the inbound message fetches the reply by its id. Therefore the reply counts as delivered even without a terminal.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_picked_up: bool,
    /// The turn answers the report of a sub-agent or the end of a background process, and no message of the receiver: the first turn
    /// of the chain that led to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub follows: Option<Uuid>,
}

impl OutboundContext {
    /// Returns true for a plain reply.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// The machine-readable reason for a failed turn.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorInfo {
    /// A stable word, e.g. `llm_timeout`, `interrupted`.
    pub code: String,
}

/// A message to deliver: a reply, a tool's message, or a notice.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OutboundMessage {
    /// The same for every delivery attempt. A receiver that stores ids drops a second copy.
    pub id: Uuid,
    /// The turn that produced it.
    pub turn: Uuid,
    pub channel: String,
    pub chat_id: String,
    pub session: SessionKey,
    /// The text, in Markdown.
    pub content: String,
    /// The id in the store of the accepted message that this one answers.
    #[serde(default)]
    pub in_reply_to: Option<Uuid>,
    #[serde(default)]
    pub attachments: Vec<Attachment>,
    /// The channel's metadata of the answered message.
    #[serde(default)]
    pub metadata: Map<String, Value>,
    #[serde(default)]
    pub context: OutboundContext,
    /// Set if the turn failed. `content` then explains the failure to the user.
    #[serde(default)]
    pub error: Option<ErrorInfo>,
    /// The time at which the message entered the outbox.
    pub created_at: Timestamp,
}

impl OutboundMessage {
    /// Creates a plain message with the current time, in the chat's own session. It answers no other message.
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

/// Keeps ids in order within one millisecond, and while the clock goes back.
static CONTEXT: Mutex<ContextV7> = Mutex::new(ContextV7::new());

/// Returns a new UUID of version 7 for the current time.
///
/// `Uuid::now_v7` panics if the clock shows a time before 1970. Here such a time counts as the start of 1970.
pub fn new_id() -> Uuid {
    id_at(Timestamp::now())
}

fn id_at(now: Timestamp) -> Uuid {
    let now = now.max(Timestamp::UNIX_EPOCH);
    let seconds = u64::try_from(now.as_second()).unwrap_or(0);
    let nanos = u32::try_from(now.subsec_nanosecond()).unwrap_or(0);
    Uuid::new_v7(uuid::Timestamp::from_unix(&CONTEXT, seconds, nanos))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_are_made_in_order_whatever_the_clock_shows() {
        let mut last = Uuid::nil();
        for time in ["1960-01-01T00:00:00Z", "1969-12-31T23:59:59.9Z", "1970-01-01T00:00:00Z", "2026-11-22T18:00:00.5Z"]
        {
            for _ in 0..1_000 {
                let id = id_at(time.parse().unwrap());
                assert!(id > last && id.get_version_num() == 7, "{time}: {id} after {last}");
                last = id;
            }
        }
        assert!(new_id() > last);
    }
}
