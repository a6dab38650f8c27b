//! What crosses the wire: the native body, the answers, the callback.

use std::time::Duration;

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::services::Draft;
use crate::inbox::{MessageState, MessageStatus, Refusal, Reply};
use crate::message::{ErrorInfo, OutboundMessage, SessionKey};

/// The longest `id`, `chat_id`, `sender` and `session`, in characters.
pub const MAX_NAME_CHARS: usize = 256;

/// Where an answer to a message keeps the id its sender gave it.
pub const EXTERNAL_ID: &str = "external_id";

/// Reads the native body, its names checked; unknown fields are ignored. 422 for the wrong fields.
pub fn native(body: &Value) -> Result<Draft, HttpError> {
    let Value::Object(fields) = body else {
        return Err(HttpError::unprocessable("the body is not a JSON object"));
    };
    let content = match fields.get("content") {
        Some(Value::String(text)) if !text.trim().is_empty() => text.clone(),
        Some(Value::String(_)) => return Err(HttpError::unprocessable("\"content\" is empty")),
        Some(_) => return Err(HttpError::unprocessable("\"content\" is not a string")),
        None => return Err(HttpError::unprocessable("\"content\" is missing")),
    };
    Ok(Draft {
        content: Some(content),
        chat_id: name(fields, "chat_id")?,
        sender: name(fields, "sender")?,
        id: name(fields, "id")?,
        session: name(fields, "session")?,
    })
}

/// One of the short fields; `null` is absent, and a whole number is taken as its digits.
fn name(fields: &Map<String, Value>, key: &str) -> Result<Option<String>, HttpError> {
    let text = match fields.get(key) {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::String(text)) => text.clone(),
        Some(Value::Number(number)) if !number.is_f64() => number.to_string(),
        Some(_) => return Err(HttpError::unprocessable(format!("\"{key}\" is not a string"))),
    };
    check_name(&format!("\"{key}\""), &text)?;
    Ok(Some(text))
}

/// Whether `text` may name a chat, a sender, a session or a message; `what` says which in the error.
pub fn check_name(what: &str, text: &str) -> Result<(), HttpError> {
    if text.trim().is_empty() {
        return Err(HttpError::unprocessable(format!("{what} is empty")));
    }
    if text.chars().count() > MAX_NAME_CHARS {
        return Err(HttpError::unprocessable(format!("{what} is longer than {MAX_NAME_CHARS} characters")));
    }
    if text.contains(char::is_control) {
        return Err(HttpError::unprocessable(format!("{what} holds control characters")));
    }
    Ok(())
}

/// An error as callers see it: `{"error":{"code","message"}}`.
#[derive(Debug, PartialEq, Eq)]
pub struct HttpError {
    pub status: StatusCode,
    pub code: &'static str,
    pub message: String,
    pub retry_after: Option<Duration>,
}

impl HttpError {
    pub fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self { status, code, message: message.into(), retry_after: None }
    }

    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "bad_request", message)
    }

    pub fn unauthorized(message: impl Into<String>) -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "unauthorized", message)
    }

    pub fn forbidden(message: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, "forbidden", message)
    }

    pub fn unprocessable(message: impl Into<String>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid", message)
    }

    /// A limit was reached.
    pub fn too_many(message: impl Into<String>, wait: Duration) -> Self {
        Self { retry_after: Some(wait), ..Self::new(StatusCode::TOO_MANY_REQUESTS, "rate_limited", message) }
    }

    /// What the inbox said. The disk's own words stay in the log.
    pub fn refused(refusal: &Refusal) -> Self {
        let unavailable = StatusCode::SERVICE_UNAVAILABLE;
        let (status, code, wait) = match refusal {
            Refusal::SessionFull { retry_after, .. } => (StatusCode::TOO_MANY_REQUESTS, "session_full", retry_after),
            Refusal::InboxFull { retry_after, .. } => (unavailable, "inbox_full", retry_after),
            Refusal::OutboxFull { retry_after, .. } => (unavailable, "outbox_full", retry_after),
            Refusal::Draining { retry_after } => (unavailable, "draining", retry_after),
            Refusal::Store { reason, retry_after } => {
                tracing::error!(reason, "a webhook message could not be stored");
                let message = "the message could not be stored; try again later";
                return Self { retry_after: Some(*retry_after), ..Self::new(unavailable, "store", message) };
            }
            Refusal::Invalid(message) => return Self::unprocessable(message),
        };
        Self { retry_after: Some(*wait), ..Self::new(status, code, refusal.to_string()) }
    }
}

impl IntoResponse for HttpError {
    fn into_response(self) -> Response {
        let body = json!({ "error": { "code": self.code, "message": self.message } });
        let mut response = (self.status, Json(body)).into_response();
        let headers = response.headers_mut();
        if let Some(wait) = self.retry_after {
            // A whole second at least: zero would be an invitation to spin.
            let secs = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
            headers.insert(header::RETRY_AFTER, HeaderValue::from(secs.max(1)));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

/// `202 {"id","session","status"}`.
#[derive(Serialize)]
pub struct AcceptedBody<'a> {
    pub id: Uuid,
    pub session: &'a SessionKey,
    pub status: &'static str,
}

/// `200 {"id","session","reply","error"?}`.
#[derive(Serialize)]
pub struct RepliedBody<'a> {
    pub id: Uuid,
    pub session: &'a SessionKey,
    pub reply: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<&'a ErrorInfo>,
}

impl<'a> RepliedBody<'a> {
    pub fn new(id: Uuid, session: &'a SessionKey, reply: Option<&'a Reply>) -> Self {
        Self {
            id,
            session,
            reply: reply.map_or("", |reply| &reply.content),
            error: reply.and_then(|reply| reply.error.as_ref()),
        }
    }
}

/// `200 {"id","status","session","reply"?,"error"?}`.
#[derive(Serialize)]
pub struct StateBody<'a> {
    pub id: Uuid,
    pub session: &'a SessionKey,
    pub status: MessageStatus,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reply: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<&'a ErrorInfo>,
}

impl<'a> From<&'a MessageState> for StateBody<'a> {
    fn from(state: &'a MessageState) -> Self {
        let reply = state.reply.as_ref();
        Self {
            id: state.id,
            session: &state.session,
            status: state.status,
            reply: reply.map(|reply| reply.content.as_str()),
            error: reply.and_then(|reply| reply.error.as_ref()),
        }
    }
}

/// The body of a callback.
#[derive(Serialize)]
pub struct CallbackBody<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    timestamp: Timestamp,
    data: CallbackData<'a>,
}

#[derive(Serialize)]
struct CallbackData<'a> {
    id: Uuid,
    in_reply_to: Option<Uuid>,
    /// The id that the sender gave the message that this answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    external_id: Option<&'a str>,
    session: &'a SessionKey,
    chat_id: &'a str,
    content: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a ErrorInfo>,
}

impl<'a> From<&'a OutboundMessage> for CallbackBody<'a> {
    fn from(message: &'a OutboundMessage) -> Self {
        Self {
            kind: "message.reply",
            timestamp: message.created_at,
            data: CallbackData {
                id: message.id,
                in_reply_to: message.in_reply_to,
                external_id: message.metadata.get(EXTERNAL_ID).and_then(Value::as_str),
                session: &message.session,
                chat_id: &message.chat_id,
                content: &message.content,
                error: message.error.as_ref(),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_are_read_or_refused_with_a_reason() {
        let long = format!(r#"{{"content":"x","chat_id":"{}"}}"#, "c".repeat(257));
        let table = [
            ("[]", "not a JSON object"),
            ("{}", "\"content\" is missing"),
            (r#"{"content":7}"#, "\"content\" is not a string"),
            (r#"{"content":"  "}"#, "\"content\" is empty"),
            (r#"{"content":"x","chat_id":["a"]}"#, "\"chat_id\" is not a string"),
            (r#"{"content":"x","sender":""}"#, "\"sender\" is empty"),
            (r#"{"content":"x","id":"a\nb"}"#, "control characters"),
            (long.as_str(), "longer than 256"),
        ];
        for (body, words) in table {
            let error = native(&serde_json::from_str(body).unwrap()).unwrap_err();
            assert_eq!(error.status.as_u16(), 422, "{error:?}");
            assert!(error.message.contains(words), "{error:?} {words}");
        }
        let body = native(&json!({"content": "hi", "chat_id": 42, "sender": null, "more": {}})).unwrap();
        let expected = Draft { content: Some("hi".into()), chat_id: Some("42".into()), ..Draft::default() };
        assert_eq!(body, expected);
    }

    #[test]
    fn refusals_become_statuses() {
        let soon = Duration::from_millis(1_500);
        let table = [
            (Refusal::SessionFull { session: "s:1".into(), waiting: 3, retry_after: soon }, 429, Some("2")),
            (Refusal::InboxFull { waiting: 3, retry_after: Duration::ZERO }, 503, Some("1")),
            (Refusal::OutboxFull { channel: "c".into(), waiting: 3, retry_after: soon }, 503, Some("2")),
            (Refusal::Draining { retry_after: soon }, 503, Some("2")),
            (Refusal::Store { reason: "/secret/path".into(), retry_after: soon }, 503, Some("2")),
            (Refusal::Invalid("no".into()), 422, None),
        ];
        for (refusal, status, retry_after) in table {
            let error = HttpError::refused(&refusal);
            assert!(!error.message.contains("/secret"));
            let response = error.into_response();
            assert_eq!(response.status().as_u16(), status, "{refusal:?}");
            let header = response.headers().get(header::RETRY_AFTER).map(|value| value.to_str().unwrap());
            assert_eq!(header, retry_after, "{refusal:?}");
        }
    }
}
