//! Error responses to HTTP callers, `{"error":{"code","message"}}`, for the channels and for the server that mounts their routes.

use std::borrow::Cow;
use std::time::Duration;

use axum::Json;
use axum::extract::DefaultBodyLimit;
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::map_response;
use axum::response::{IntoResponse, Response};
use axum::routing::MethodRouter;
use serde_json::json;

use crate::inbox::Refusal;
use crate::settings::ByteSize;

/// An error response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpError {
    pub status: StatusCode,
    /// A stable word, e.g. `not_found`.
    pub code: &'static str,
    pub message: Cow<'static, str>,
    /// When the caller may retry.
    pub retry_after: Option<Duration>,
}

impl HttpError {
    pub fn new(status: StatusCode, code: &'static str, message: impl Into<Cow<'static, str>>) -> Self {
        Self { status, code, message: message.into(), retry_after: None }
    }

    pub fn bad_request(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "bad_request", message)
    }

    pub fn unauthorized(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "unauthorized", message)
    }

    pub fn forbidden(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::FORBIDDEN, "forbidden", message)
    }

    pub fn not_found(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not_found", message)
    }

    pub fn unprocessable(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid", message)
    }

    /// Returns a 413: the body has more than `limit` bytes.
    pub fn too_large(limit: ByteSize) -> Self {
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", format!("the body is larger than {limit}"))
    }

    /// Returns a 429: the caller reached a limit and may retry after `wait`.
    pub fn too_many(message: impl Into<Cow<'static, str>>, wait: Duration) -> Self {
        Self { retry_after: Some(wait), ..Self::new(StatusCode::TOO_MANY_REQUESTS, "rate_limited", message) }
    }

    /// Returns the response to a refusal by the inbox for the owner, who reads the reason why a message could not be stored.
    pub fn for_owner(refusal: Refusal) -> Self {
        let reason = matches!(refusal, Refusal::Store { .. }).then(|| refusal.to_string());
        let error = Self::from(refusal);
        Self { message: reason.map_or(error.message, Cow::Owned), ..error }
    }

    /// Turns the error into a response that closes the connection, because the rest of the input is not trustworthy.
    pub fn closing(self) -> Response {
        let mut response = self.into_response();
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        response
    }
}

/// Limits the body that a route reads, in bytes. A larger one gets a 413 that names the limit.
pub fn limit_body<S: Clone + Send + Sync + 'static>(route: MethodRouter<S>, limit: usize) -> MethodRouter<S> {
    let named = move |response: Response| async move { name_body_limit(response, limit) };
    route.layer(DefaultBodyLimit::max(limit)).layer(map_response(named))
}

/// Returns the 413 of axum's extractors, which do not name the limit, as an error that does, and any other response unchanged.
pub fn name_body_limit(response: Response, limit: usize) -> Response {
    let is_text = |value: &HeaderValue| value.as_bytes().starts_with(b"text/plain");
    let is_unnamed = response.status() == StatusCode::PAYLOAD_TOO_LARGE
        && response.headers().get(header::CONTENT_TYPE).is_some_and(is_text);
    if is_unnamed { HttpError::too_large(ByteSize(limit as u64)).into_response() } else { response }
}

impl From<Refusal> for HttpError {
    /// Returns the response to a refusal by the inbox. Disk errors appear only in the log.
    fn from(refusal: Refusal) -> Self {
        let status = match refusal {
            Refusal::SessionFull { .. } => StatusCode::TOO_MANY_REQUESTS,
            Refusal::Invalid(_) => StatusCode::UNPROCESSABLE_ENTITY,
            _ => StatusCode::SERVICE_UNAVAILABLE,
        };
        let message = match &refusal {
            Refusal::Store { reason, .. } => {
                tracing::error!(reason, "a message could not be stored");
                "the message could not be stored; try again later".into()
            }
            other => other.to_string().into(),
        };
        Self { status, code: refusal.code(), message, retry_after: refusal.retry_after() }
    }
}

impl IntoResponse for HttpError {
    fn into_response(self) -> Response {
        let body = json!({ "error": { "code": self.code, "message": self.message } });
        let mut response = (self.status, Json(body)).into_response();
        let headers = response.headers_mut();
        if let Some(wait) = self.retry_after {
            // At least one second, since zero would make callers retry in a busy loop.
            let secs = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
            headers.insert(header::RETRY_AFTER, HeaderValue::from(secs.max(1)));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"daoyou\""));
        }
        // Routes whose clients expect another error format read the error from here.
        response.extensions_mut().insert(self);
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            let error = HttpError::from(refusal.clone());
            assert!(!error.message.contains("/secret"));
            assert_eq!(HttpError::for_owner(refusal.clone()).message, refusal.to_string());
            let response = error.into_response();
            assert_eq!(response.status().as_u16(), status, "{refusal:?}");
            let header = response.headers().get(header::RETRY_AFTER).map(|value| value.to_str().unwrap());
            assert_eq!(header, retry_after, "{refusal:?}");
        }
    }
}
