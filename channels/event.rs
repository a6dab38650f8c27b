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
    /// The model asks for a tool. Sent at once with its name, again, under the same `id`, with its arguments, and perhaps
    /// once more when it begins to run.
    ToolCall {
        id: String,
        name: String,
        /// Absent while they arrive. What is no JSON stands here as the text that the model wrote.
        arguments: Option<Value>,
        /// Nothing more of the arguments will come: tells a call that has none from one whose are still to come.
        #[serde(default)]
        args_complete: bool,
    },
    /// What the tool answered.
    ToolResult {
        id: String,
        name: String,
        content: String,
        success: bool,
        /// How long it ran.
        #[serde(default)]
        duration_ms: u64,
    },
    /// What was streamed of the current response is void, calls that were not complete too; it starts anew.
    Restart,
    /// What one call of the model used, sent when its response is complete. `cached_tokens` are part of the input.
    Usage { input_tokens: u64, output_tokens: u64, cached_tokens: u64 },
    /// The turn ended; `reply` is the whole final text. The tokens are those of all its calls of the model.
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// What goes over the wire between two versions: fields that came later may be missing.
    #[test]
    fn events_have_a_stable_form() {
        let call = |arguments, args_complete| TurnEvent::ToolCall {
            id: "a".into(),
            name: "f".into(),
            arguments,
            args_complete,
        };
        for (event, written) in [
            (
                call(None, false),
                json!({"type": "tool_call", "id": "a", "name": "f", "arguments": null, "args_complete": false}),
            ),
            (
                call(Some(json!({})), true),
                json!({"type": "tool_call", "id": "a", "name": "f", "arguments": {}, "args_complete": true}),
            ),
            (
                TurnEvent::Usage { input_tokens: 3, output_tokens: 2, cached_tokens: 1 },
                json!({"type": "usage", "input_tokens": 3, "output_tokens": 2, "cached_tokens": 1}),
            ),
        ] {
            assert_eq!(serde_json::to_value(&event).unwrap(), written);
            assert_eq!(serde_json::from_value::<TurnEvent>(written).unwrap(), event);
        }
        let older = json!({"type": "tool_call", "id": "a", "name": "f", "arguments": null});
        assert_eq!(serde_json::from_value::<TurnEvent>(older).unwrap(), call(None, false));
    }
}
