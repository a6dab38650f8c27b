//! What can go wrong with a model, by what is to be done about it.

use std::time::Duration;

/// The classes of failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LlmErrorKind {
    /// No connection, or it broke before the answer was complete.
    Connection,
    /// One of the three deadlines passed: connect, idle, total.
    Timeout,
    /// HTTP 429.
    RateLimit,
    /// HTTP 5xx.
    Server,
    /// HTTP 401, 402, 403, or an account without credit.
    Auth,
    /// HTTP 400, 404, 422 and their like: the same request will never do.
    BadRequest,
    /// The conversation is longer than the model takes.
    ContextTooLong,
    /// The service's content filter withheld the answer.
    Refused,
    /// The answer could not be read.
    Parse,
}

impl LlmErrorKind {
    /// Whether asking again may help.
    pub fn is_retryable(self) -> bool {
        matches!(self, Self::Connection | Self::Timeout | Self::RateLimit | Self::Server | Self::Parse)
    }
}

/// A model call that failed, after its retries.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{provider}: {message}")]
pub struct LlmError {
    pub kind: LlmErrorKind,
    pub provider: String,
    /// In words, with what the service said; never a secret.
    pub message: String,
    /// When the service said to come back.
    pub retry_after: Option<Duration>,
}

impl LlmError {
    pub fn new(kind: LlmErrorKind, provider: &str, message: impl Into<String>) -> Self {
        Self { kind, provider: provider.to_owned(), message: message.into(), retry_after: None }
    }

    /// The stable word for programs, e.g. `llm_timeout`.
    pub fn code(&self) -> &'static str {
        self.kind.code()
    }
}

impl LlmErrorKind {
    /// The stable word for programs, e.g. `llm_timeout`.
    pub fn code(self) -> &'static str {
        match self {
            LlmErrorKind::Connection => "llm_connection",
            LlmErrorKind::Timeout => "llm_timeout",
            LlmErrorKind::RateLimit => "llm_rate_limit",
            LlmErrorKind::Server => "llm_server_error",
            LlmErrorKind::Auth => "llm_auth",
            LlmErrorKind::BadRequest => "llm_bad_request",
            LlmErrorKind::ContextTooLong => "llm_context_too_long",
            LlmErrorKind::Refused => "llm_refused",
            LlmErrorKind::Parse => "llm_parse",
        }
    }
}

impl LlmError {
    /// Whether asking again may help.
    pub fn is_retryable(&self) -> bool {
        self.kind.is_retryable()
    }
}
