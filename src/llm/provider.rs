//! The interface to a model service.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::breaker::RequestFingerprint;
use super::{Cost, Images, LlmError, SerializedText};
use crate::chat::{ChatMessage, Reasoning, ToolCall, ToolSpec, Usage};

/// One request to a model.
#[derive(Clone, Debug, Default)]
pub struct ChatRequest {
    /// The model's name at its service.
    pub model: String,
    /// The system prompt. It has the same bytes in each turn, so that the service's prompt cache hits.
    pub system: SerializedText,
    pub messages: Vec<Arc<ChatMessage>>,
    /// The images that the messages name and that are sent.
    pub images: Images,
    /// The tools; empty if the model gets none.
    pub tools: Arc<[ToolSpec]>,
    pub temperature: Option<f64>,
    /// The longest answer, in tokens.
    pub max_tokens: Option<u32>,
}

impl ChatRequest {
    /// Returns the fingerprint of the conversation. A turn that waits for a model repeats the same conversation.
    pub(super) fn fingerprint(&self) -> Option<RequestFingerprint> {
        let messages = serde_json::to_vec(&self.messages).ok()?;
        let mut hasher = DefaultHasher::new();
        messages.hash(&mut hasher);
        Some(RequestFingerprint(hasher.finish()))
    }
}

/// A complete answer. An answer that a broken connection cut off is an error instead.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ChatResponse {
    pub text: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<Reasoning>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<ToolCall>,
    /// The model's name as the answer gives it.
    pub model: String,
    /// The `PROVIDER/MODEL` that answered, by its configured name; empty in rows of older versions.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub answered_by: String,
    #[serde(default)]
    pub usage: Usage,
    /// The cost at the price when the model answered, if a price was known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<Cost>,
    /// The time from the request to the end of the answer, retries included.
    #[serde(default)]
    pub latency_ms: u64,
    /// The service cut the answer at its length limit.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub truncated: bool,
    /// The service's content filter cut the answer. Such an answer holds no calls.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub filtered: bool,
    /// The answer comes from the response cache: no model was asked, and it cost nothing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cached: bool,
}

/// A piece of a streamed answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delta<'a> {
    Reasoning(&'a str),
    Text(&'a str),
    /// A tool call has begun; its arguments come with the whole response.
    ToolCall {
        id: &'a str,
        name: &'a str,
    },
    /// The receiver must discard the pieces so far: the request is repeated.
    Restart,
}

/// A receiver of an answer while it is streamed.
pub trait DeltaSink: Send + Sync {
    fn delta(&self, delta: Delta<'_>);
}

/// A sink for callers that want the whole answer only.
pub struct NoDeltas;

impl DeltaSink for NoDeltas {
    fn delta(&self, _: Delta<'_>) {}
}

/// A sink that records each piece that it receives, for tests.
#[cfg(any(test, fuzzing))]
#[derive(Default)]
pub(super) struct DeltaRecorder(pub parking_lot::Mutex<Vec<String>>);

#[cfg(any(test, fuzzing))]
impl DeltaSink for DeltaRecorder {
    fn delta(&self, delta: Delta<'_>) {
        let note = match delta {
            Delta::Text(text) => text.to_owned(),
            Delta::Reasoning(text) => format!("({text})"),
            Delta::ToolCall { id, name } => format!("<{name} {id}>"),
            Delta::Restart => "<restart>".to_owned(),
        };
        self.0.lock().push(note);
    }
}

/// A sink that passes the pieces on, and records whether a part of an answer is shown that was not discarded.
pub(super) struct ShownWatch<'a> {
    pub sink: &'a dyn DeltaSink,
    pub is_shown: &'a AtomicBool,
}

impl ShownWatch<'_> {
    /// Tells the sink to discard the part that is shown, if there is one.
    pub fn take_back(&self) {
        if self.is_shown.load(Ordering::Relaxed) {
            self.delta(Delta::Restart);
        }
    }
}

impl DeltaSink for ShownWatch<'_> {
    fn delta(&self, delta: Delta<'_>) {
        self.is_shown.store(delta != Delta::Restart, Ordering::Relaxed);
        self.sink.delta(delta);
    }
}

/// A service that answers conversations. Dropping the future of [`chat`](Self::chat) closes the connection.
#[async_trait]
pub trait Provider: Send + Sync {
    /// Returns the name of the provider in the configuration.
    fn name(&self) -> &str;

    /// Returns true if `model` takes tools, by the configuration and earlier refusals. Otherwise the caller describes the tools
    /// in the text.
    fn takes_tools(&self, _model: &str) -> bool {
        true
    }

    /// Returns true if `model` takes images, as far as is known.
    fn takes_images(&self, _model: &str) -> bool {
        false
    }

    /// Returns the body that [`chat`](Self::chat) would send first, or its content as JSON if nothing is sent.
    ///
    /// # Errors
    /// The body cannot be written.
    fn body(&self, request: &ChatRequest) -> Result<Vec<u8>, LlmError> {
        let ChatRequest { model, system, messages, tools, .. } = request;
        let content = json!({ "model": model, "system": **system, "messages": messages, "tools": **tools });
        Ok(content.to_string().into_bytes())
    }

    /// Sends one request, with the provider's own retries and deadlines, and streams the answer to `sink` if the service can.
    async fn chat(&self, request: &ChatRequest, sink: &dyn DeltaSink) -> Result<ChatResponse, LlmError>;
}
