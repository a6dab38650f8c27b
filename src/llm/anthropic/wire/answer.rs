//! The answer, whole or as events. Every field may be missing or `null`; unknown fields are ignored.

use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use crate::chat::read_token_count;

/// The longest event that can be a ping: pings have no content.
const PING_LIMIT: usize = 200;

/// One event of a stream, or an answer that is not streamed, which has the form of the message in `message_start`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::llm) struct WireEvent {
    #[serde(rename = "type")]
    pub kind: String,
    /// The index of the block that the event belongs to.
    pub index: Option<u64>,
    pub message: Option<AnthropicWireMessage>,
    pub content_block: Option<WireBlock>,
    pub delta: Option<WireDelta>,
    pub usage: Option<Count>,
    pub error: Value,
    /// The model, in an answer that is not streamed.
    pub model: Option<String>,
    pub content: Option<Vec<WireBlock>>,
    pub stop_reason: Option<String>,
    pub stop_details: Option<StopDetails>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::llm) struct AnthropicWireMessage {
    pub model: Option<String>,
    pub usage: Option<Count>,
}

/// A block, whole or at its beginning.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::llm) struct WireBlock {
    #[serde(rename = "type")]
    pub kind: String,
    pub text: Option<String>,
    pub thinking: Option<String>,
    pub signature: Option<String>,
    /// The data of a `redacted_thinking` block.
    pub data: Option<String>,
    pub id: Option<String>,
    pub name: Option<String>,
    pub input: Option<Map<String, Value>>,
}

/// A piece of a block, or in `message_delta` the end of the message.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::llm) struct WireDelta {
    pub text: Option<String>,
    pub thinking: Option<String>,
    pub signature: Option<String>,
    pub partial_json: Option<String>,
    pub stop_reason: Option<String>,
    pub stop_details: Option<StopDetails>,
}

/// The reason why an answer was withheld.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::llm) struct StopDetails {
    pub explanation: Option<String>,
}

/// The token counts so far. The input excludes tokens that were read from the cache or written to it.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::llm) struct Count {
    #[serde(deserialize_with = "token_count")]
    pub input_tokens: Option<u64>,
    #[serde(deserialize_with = "token_count")]
    pub output_tokens: Option<u64>,
    #[serde(deserialize_with = "token_count")]
    pub cache_read_input_tokens: Option<u64>,
    #[serde(deserialize_with = "token_count")]
    pub cache_creation_input_tokens: Option<u64>,
    pub cache_creation: Option<CacheWrites>,
}

/// The part of the cache writes that stays cached for longer than five minutes.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::llm) struct CacheWrites {
    #[serde(deserialize_with = "token_count")]
    pub ephemeral_1h_input_tokens: Option<u64>,
}

fn token_count<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    Value::deserialize(deserializer).map(|count| read_token_count(&count))
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Head {
    #[serde(rename = "type")]
    kind: String,
}

/// Returns true if an event is a ping, which has no content.
pub(in crate::llm) fn is_ping(piece: &str) -> bool {
    piece.len() <= PING_LIMIT && serde_json::from_str::<Head>(piece).is_ok_and(|head| head.kind == "ping")
}

/// Returns true if an event that cannot be read is of an unknown type.
pub(in crate::llm) fn is_unknown(piece: &str) -> bool {
    const KNOWN: [&str; 10] = [
        "", "message", "message_start", "content_block_start", "content_block_delta", "content_block_stop",
        "message_delta", "message_stop", "ping", "error",
    ];
    serde_json::from_str::<Head>(piece).is_ok_and(|head| !KNOWN.contains(&head.kind.as_str()))
}
