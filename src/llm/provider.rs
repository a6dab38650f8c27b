//! What daoyou asks of a model service.

use async_trait::async_trait;

use super::{ChatRequest, ChatResponse, LlmError};

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
