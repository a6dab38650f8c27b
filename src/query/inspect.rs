//! Requests about the gateway itself rather than its store: its state, its abilities, and tests of its parts.

use async_trait::async_trait;
use serde_json::Value;

/// Something to find out about a gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GatewayQuery {
    /// Channels, queues, the last turns, tokens of today.
    Status,
    Channels,
    /// Tests one channel.
    TestChannel(String),
    /// The model services.
    Models(ProbeScope),
    Tools,
    /// Every check that only the gateway's process can make: of its keys, its sandbox and its channels.
    Checks,
}

/// Which model services are probed when they are listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProbeScope {
    None,
    All,
    One(String),
}

/// Why a [`GatewayQuery`] has no answer.
#[derive(Debug, thiserror::Error)]
pub enum InspectError {
    /// The subject does not exist; the text names those that do.
    #[error("{0}")]
    Unknown(String),
    #[error("{0}")]
    Failed(String),
}

/// Answers for a gateway: the running one, or the one that a home would have.
#[async_trait]
pub trait Inspect: Send + Sync {
    async fn answer(&self, query: GatewayQuery) -> Result<Value, InspectError>;
}
