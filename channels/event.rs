//! Events of a running turn. They are not durable; the reply always arrives as an [`OutboundMessage`](crate::OutboundMessage) too.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use crate::message::SessionKey;

/// An event of a running turn.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum TurnEvent {
    /// The turn starts to work on this message.
    Started,
    /// More of the model's reasoning.
    Thinking { delta: String },
    /// More of the model's answer.
    Text { delta: String },
    /// The model calls a tool. The event arrives first with the name only, then under the same `id` with the arguments. After
    /// another `Started`, because the turn waited or the gateway restarted, the calls without a result arrive once more.
    ToolCall {
        id: String,
        name: String,
        /// Absent until the arguments are complete. Arguments that are not JSON are a string with the model's text.
        arguments: Option<Value>,
        /// The arguments are complete. This distinguishes a call without arguments from a call whose arguments have not arrived yet.
        #[serde(default)]
        args_complete: bool,
    },
    /// The tool's result.
    ToolResult {
        id: String,
        name: String,
        content: String,
        success: bool,
        /// How long the tool ran.
        #[serde(default)]
        duration_ms: u64,
    },
    /// The response starts again. The text and the incomplete calls streamed from it are void.
    Restart,
    /// The tokens of one model call, sent when its response is complete. `input_tokens` includes `cached_tokens`.
    Usage { input_tokens: u64, output_tokens: u64, cached_tokens: u64 },
    /// The turn ended. `reply` is the complete final text; the token counts cover all model calls of the turn.
    Done {
        reply: String,
        input_tokens: u64,
        output_tokens: u64,
        /// The cost for display, if a price is known: `0.0123 USD`.
        #[serde(default)]
        cost: Option<String>,
    },
    /// The turn failed. `message` is the text for the user.
    Error { message: String },
}

/// A [`TurnEvent`] with its session, turn and chat.
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

/// A source of turn events for streaming channels.
pub trait EventSource: Send + Sync {
    /// Subscribes to the events of turns whose message came through `channel`. A receiver that falls behind loses events,
    /// but never the reply. Dropping the receiver unsubscribes.
    fn subscribe(&self, channel: &str) -> async_channel::Receiver<SessionEvent>;
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Two versions of the program may exchange events, so newer fields may be missing.
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
