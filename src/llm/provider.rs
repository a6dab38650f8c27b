//! What daoyou asks of a model service.

use std::sync::Arc;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use super::{Cost, Images, LlmError};
use crate::chat::{ChatMessage, Reasoning, ToolCall, ToolSpec, Usage};

/// One request to a model.
#[derive(Clone, Debug)]
pub struct ChatRequest {
    /// The model's name at its service.
    pub model: String,
    /// Same bytes from turn to turn, so that the service's cache hits.
    pub system: Arc<str>,
    pub messages: Vec<ChatMessage>,
    /// The pictures that its messages name, as far as they are sent.
    pub images: Images,
    /// Empty: the model is told of none.
    pub tools: Arc<[ToolSpec]>,
    pub temperature: Option<f64>,
    /// The longest answer, in tokens.
    pub max_tokens: Option<u32>,
}

/// A complete answer. A response that was cut off is an error, never one of these.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ChatResponse {
    pub text: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<Reasoning>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<ToolCall>,
    /// The model as the service names it.
    pub model: String,
    /// Who answered, as it was asked: `PROVIDER/MODEL`; empty in what an older program wrote.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub answered_by: String,
    #[serde(default)]
    pub usage: Usage,
    /// What it cost at the price of that time, where one was known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<Cost>,
    /// From the request to the end of the answer, with its retries.
    #[serde(default)]
    pub latency_ms: u64,
    /// The service cut the answer at its length limit.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub truncated: bool,
    /// It was given before, and kept: nobody was asked, and it cost nothing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cached: bool,
}

/// A piece of an answer while it arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delta<'a> {
    Reasoning(&'a str),
    Text(&'a str),
    /// A tool call has begun; its arguments come with the whole response.
    ToolCall {
        id: &'a str,
        name: &'a str,
    },
    /// What came so far is void, the request is made again.
    Restart,
}

/// Watches an answer arrive.
pub trait DeltaSink: Send + Sync {
    fn delta(&self, delta: Delta<'_>);
}

/// For callers who want the whole answer only.
pub struct NoDeltas;

impl DeltaSink for NoDeltas {
    fn delta(&self, _: Delta<'_>) {}
}

/// A service that answers conversations. Dropping the future of `chat` closes the connection.
#[async_trait]
pub trait Provider: Send + Sync {
    /// Its name in the configuration.
    fn name(&self) -> &str;

    /// Whether `model` can be given tools, as far as its configuration says and its service has told so far; one that cannot
    /// is asked in text.
    fn takes_tools(&self, _model: &str) -> bool {
        true
    }

    /// Whether `model` is shown the pictures of a request, as far as is known.
    fn sees(&self, _model: &str) -> bool {
        false
    }

    /// Asks once, with the provider's own retries and deadlines inside, and streams to `sink` where it can.
    async fn chat(&self, request: &ChatRequest, sink: &dyn DeltaSink) -> Result<ChatResponse, LlmError>;
}
