//! Failures of model calls, classified by the reaction that they need.

use std::time::Duration;

/// The kinds of failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(prefix = "llm_", serialize_all = "snake_case")]
pub enum LlmErrorKind {
    /// No connection, or the connection broke before the answer was complete.
    Connection,
    /// One of the three deadlines passed: connect, idle, total.
    Timeout,
    /// HTTP 429.
    RateLimit,
    /// HTTP 5xx.
    #[strum(serialize = "server_error")]
    Server,
    /// HTTP 401 or 403: the service refuses the key.
    Auth,
    /// HTTP 402, or another refusal because the account has no credit left.
    Quota,
    /// HTTP 400, 404, 422 and the like: the same request always fails.
    BadRequest,
    /// The conversation is longer than the model's context.
    ContextTooLong,
    /// The service's content filter withheld the answer.
    Refused,
    /// The answer cannot be parsed.
    Parse,
    /// The caller left before the answer came.
    Cancelled,
}

impl LlmErrorKind {
    /// Returns true if a retry may help.
    pub fn is_retryable(self) -> bool {
        matches!(self, Self::Connection | Self::Timeout | Self::RateLimit | Self::Server | Self::Parse)
    }

    /// Returns true if only the owner can end the failure: the service refuses the key, or the account has no credit left.
    pub fn needs_owner(self) -> bool {
        matches!(self, Self::Auth | Self::Quota)
    }

    /// Returns the stable code for programs, e.g. `llm_timeout`.
    pub fn code(self) -> &'static str {
        self.into()
    }
}

/// A model call that failed, after its retries.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{provider}: {message}")]
pub struct LlmError {
    pub kind: LlmErrorKind,
    pub provider: String,
    /// The message for people, with the text of the service. It never contains a secret.
    pub message: String,
    /// The message for API callers, if `message` contains an address or text of the service.
    pub public: Option<String>,
    /// The wait that the service asks for before the next call.
    pub retry_after: Option<Duration>,
    pub blame: FailureScope,
    /// The address that was asked, and the address that would work. Only the owner may read it. May be empty.
    pub for_owner: String,
}

/// The cause of a failure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FailureScope {
    /// This request alone: another one may succeed.
    #[default]
    Request,
    /// The service as a whole: it cannot be reached, or says that it is down.
    Service,
    /// The model: the service does not have it.
    Model,
}

impl LlmError {
    pub fn new(kind: LlmErrorKind, provider: &str, message: impl Into<String>) -> Self {
        Self {
            kind,
            provider: provider.to_owned(),
            message: message.into(),
            public: None,
            retry_after: None,
            blame: FailureScope::Request,
            for_owner: String::new(),
        }
    }

    /// Returns the message together with the part that only the owner may read.
    pub fn owner_message(&self) -> String {
        if self.for_owner.is_empty() { self.message.clone() } else { format!("{}; {}", self.message, self.for_owner) }
    }

    /// Returns the stable code for programs, e.g. `llm_timeout`.
    pub fn code(&self) -> &'static str {
        self.kind.code()
    }

    /// Returns the error for callers: without addresses and text of the service, which are for the owner alone.
    pub fn to_public(&self) -> String {
        format!("{}: {}", self.provider, self.public.as_ref().unwrap_or(&self.message))
    }

    /// Returns true if the failure is a condition of the service: every request fails until the service is back, the
    /// key is replaced, or the account has credit.
    pub fn is_service_condition(&self) -> bool {
        use LlmErrorKind::{Auth, Quota, RateLimit, Server};
        self.is_outage() || matches!(self.kind, Auth | Quota | RateLimit | Server)
    }

    /// Returns true if the service cannot be reached or says that it is down. A stall or a broken stream is a failure
    /// of one request, no outage.
    pub fn is_outage(&self) -> bool {
        self.blame == FailureScope::Service
    }

    /// Returns true if another model may answer: always, unless the request itself is at fault.
    pub fn may_fall_back(&self) -> bool {
        match self.kind {
            LlmErrorKind::BadRequest => self.blame == FailureScope::Model,
            LlmErrorKind::ContextTooLong | LlmErrorKind::Refused | LlmErrorKind::Cancelled => false,
            LlmErrorKind::Connection
            | LlmErrorKind::Timeout
            | LlmErrorKind::RateLimit
            | LlmErrorKind::Server
            | LlmErrorKind::Auth
            | LlmErrorKind::Quota
            | LlmErrorKind::Parse => true,
        }
    }

    /// Returns true if a retry may help.
    pub fn is_retryable(&self) -> bool {
        self.kind.is_retryable()
    }
}
