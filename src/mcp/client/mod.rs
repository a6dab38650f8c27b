//! The connection to an MCP server, with the protocol library rmcp: no other folder knows its types. What a server answers leaves as JSON.

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
use std::fmt;

use crate::text::{one_line, truncate};

/// The largest message of a server, in bytes; a larger one ends its connection.
pub(super) const MAX_MESSAGE: usize = 16 * 1_024 * 1_024;
/// The longest text of an error that comes from outside, in characters.
const MAX_ERROR: usize = 500;

/// What became of a request that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum McpErrorKind {
    /// There is no connection: the request was not sent.
    NotSent,
    /// The connection ended after the request was sent, or while it was; whether it took effect is unknown.
    Lost,
    /// No answer came in time.
    Timeout,
    /// The turn was cancelled.
    Cancelled,
    /// The server answered with an error, or with what cannot be used.
    Answer,
    /// The server does not know the method.
    UnknownMethod,
}

/// Why a server did not do what was asked of it, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
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

impl fmt::Display for McpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Error for McpError {}

/// Returns an error with its causes on one line, each said once.
fn error_chain(error: &(dyn Error + 'static)) -> String {
    let mut parts: Vec<String> = Vec::new();
    let mut next = Some(error);
    while let Some(error) = next {
        let text = one_line(&error.to_string());
        if !parts.iter().any(|part| part.contains(&text)) {
            parts.push(text);
        }
        next = error.source();
    }
    truncate(&parts.join(": "), MAX_ERROR)
}
