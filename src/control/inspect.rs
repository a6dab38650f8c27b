//! What the commands ask of the gateway itself, not of its store: how it is, what it can do, whether its parts work.

use async_trait::async_trait;
use serde_json::Value;

use super::request::escape;

/// Something to find out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Question {
    /// Channels, queues, the last turns, tokens of today.
    Status,
    Channels,
    /// Whether a channel works.
    TestChannel(String),
    /// The model services.
    Models(Ask),
    Tools,
    /// Every check that only the process of the gateway can make: its keys, its sandbox, its channels.
    Checks,
}

/// Which model services are asked for their own lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ask {
    Nobody,
    Everybody,
    Only(String),
}

impl Question {
    /// Where the API answers it.
    pub fn path(&self) -> String {
        match self {
            Self::Status => "/api/status".to_owned(),
            Self::Channels => "/api/channels".to_owned(),
            Self::TestChannel(name) => format!("/api/channels/{}/test", escape(name)),
            Self::Models(Ask::Nobody) => "/api/models".to_owned(),
            Self::Models(Ask::Everybody) => "/api/models?ask=*".to_owned(),
            Self::Models(Ask::Only(name)) => format!("/api/models?ask={}", escape(name)),
            Self::Tools => "/api/tools".to_owned(),
            Self::Checks => "/api/checks".to_owned(),
        }
    }
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum InspectError {
    /// What was asked about is not there; in whole words, with what there is.
    #[error("{0}")]
    Unknown(String),
    #[error("{0}")]
    Failed(String),
}

/// Answers for the gateway: the running one, or the one that this home would have.
#[async_trait]
pub trait Inspect: Send + Sync {
    async fn answer(&self, question: Question) -> Result<Value, InspectError>;
}
