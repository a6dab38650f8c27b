//! What a turn shows while it runs. A side channel: nothing here is durable, the reply always comes as an
//! [`OutboundMessage`](crate::OutboundMessage).

use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use crate::message::SessionKey;

/// One thing that happened in a running turn.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum TurnEvent {
    /// The turn began to work on this message.
    Started,
    /// More of the model's reasoning.
    Thinking { delta: String },
    /// More of the model's answer.
    Text { delta: String },
    /// The model asks for a tool. Sent at once with its name (`arguments` absent), and again when they are complete.
    ToolCall { id: String, name: String, arguments: Option<Value> },
    /// What the tool answered.
    ToolResult { id: String, name: String, content: String, success: bool },
    /// What was streamed of the current response is void; it starts anew.
    Restart,
    /// The turn ended; `reply` is the whole final text.
    Done {
        reply: String,
        input_tokens: u64,
        output_tokens: u64,
        /// What it cost, for reading, where a price is known: `0.0123 USD`.
        #[serde(default)]
        cost: Option<String>,
    },
    /// The turn failed; `message` is what the user is told.
    Error { message: String },
}

/// A [`TurnEvent`] and where it belongs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SessionEvent {
    pub session: SessionKey,
    pub turn: Uuid,
    /// The channel of the message that the turn answers.
    pub channel: String,
    /// The chat of that message.
    pub chat_id: String,
    pub event: TurnEvent,
}

/// Where a streaming channel listens.
pub trait EventSource: Send + Sync {
    /// The events of the turns whose message came by `channel`, from now on. A receiver that falls behind loses
    /// events, never the reply; dropping it unsubscribes.
    fn subscribe(&self, channel: &str) -> async_channel::Receiver<SessionEvent>;
}
