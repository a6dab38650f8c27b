//! The connection to an MCP server, with the protocol library rmcp. Only this folder and `serve` know the library's types;
//! responses leave this folder as JSON.

mod auth;
mod connection;
mod events;
mod http;
mod message;
mod sse;
mod stdio;

pub(super) use auth::BearerTokens;
pub(super) use connection::{McpConnection, McpRequest, ProtocolEra};
pub(super) use http::http_client;

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use daoyou_channels::rate_limit::{Quota, RateLimiter};
use serde_json::Value;

use crate::guard::KnownSecrets;
use crate::live::Live;
use crate::text::{error_chain, one_line, truncate};

/// The maximum size of a server's message, in bytes. A larger one ends the connection.
pub(super) const MAX_MESSAGE: usize = 16 * 1_024 * 1_024;
/// The maximum length of an error text that comes from outside, in characters.
const MAX_ERROR: usize = 500;
/// The number of messages that a server may send in a row, and the time in which it may send as many again. More end the connection.
const MAX_MESSAGES: u32 = 10_000;
const MESSAGE_PERIOD: Duration = Duration::from_secs(10);

/// The name of a server, and the secrets that are removed from its texts. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct ServerLabel {
    pub name: String,
    pub secrets: Arc<Live<KnownSecrets>>,
}

impl ServerLabel {
    /// Returns a text of the server without secrets.
    pub(super) fn redacted(&self, text: impl Into<String>) -> String {
        let mut text = text.into();
        self.secrets.get().redact(&mut text);
        text
    }

    fn redacted_error(&self, error: McpError) -> McpError {
        McpError { text: self.redacted(error.text), ..error }
    }

    /// Removes secrets from the texts of a list's entry. Names and addresses are kept, because they are sent back unchanged.
    fn redact_entry(&self, entry: &mut Value) {
        match entry {
            Value::String(text) => drop(self.secrets.get().redact(text)),
            Value::Array(parts) => parts.iter_mut().for_each(|part| self.redact_entry(part)),
            Value::Object(fields) => {
                let is_sent_back = |key: &str| matches!(key, "name" | "uri" | "uriTemplate");
                let texts = fields.iter_mut().filter(|(key, value)| !(value.is_string() && is_sent_back(key)));
                texts.for_each(|(_, value)| self.redact_entry(value));
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
}

/// How far a failed request came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum McpErrorKind {
    /// There is no connection, so the request was not sent.
    NotSent,
    /// The connection ended while or after the request was sent. Whether the request took effect is unknown.
    Lost,
    /// No answer came in time.
    Timeout,
    /// The turn was cancelled.
    Cancelled,
    /// The server answered with an error, or with something unusable.
    Answer,
    /// The server does not know the method.
    UnknownMethod,
}

/// The reason why a server did not fulfil a request, worded for people and models.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct McpError {
    pub kind: McpErrorKind,
    pub text: String,
}

impl McpError {
    pub(super) fn new(kind: McpErrorKind, text: impl Into<String>) -> Self {
        Self { kind, text: text.into() }
    }

    pub(super) fn not_sent(text: impl Into<String>) -> Self {
        Self::new(McpErrorKind::NotSent, text)
    }
}

/// The count of the messages that a server sent.
pub(super) struct MessageCount(RateLimiter);

impl MessageCount {
    fn new() -> Self {
        Self(RateLimiter::new(2))
    }

    /// Counts a message.
    ///
    /// # Errors
    /// The server floods the connection, which must end for this reason.
    fn add(&self) -> Result<(), String> {
        let quota = Quota::Steady { count: MAX_MESSAGES, period: MESSAGE_PERIOD };
        self.0
            .take(&(), quota)
            .map_err(|_| format!("it sent more than {MAX_MESSAGES} messages within {} s", MESSAGE_PERIOD.as_secs()))
    }
}

/// Returns an error with its causes on one short line.
fn short_chain(error: &(dyn Error + 'static)) -> String {
    truncate(&one_line(&error_chain(error)), MAX_ERROR)
}
