//! What the server itself says no with.

use daoyou_channels::settings::ByteSize;
use std::borrow::Cow;
use std::time::Duration;

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::json;

/// An error as callers see it: `{"error":{"code","message"}}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    pub status: StatusCode,
    pub code: &'static str,
    pub message: Cow<'static, str>,
    /// When it is worth trying again.
    pub retry_after: Option<Duration>,
}

impl Fault {
    pub fn new(status: StatusCode, code: &'static str, message: impl Into<Cow<'static, str>>) -> Self {
        Self { status, code, message: message.into(), retry_after: None }
    }

    pub fn bad_request(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "bad_request", message)
    }

    pub fn forbidden(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::FORBIDDEN, "forbidden", message)
    }

    /// Something did not arrive in time.
    pub fn late(what: &str, limit: Duration) -> Self {
        let message = format!("{what} did not arrive within {limit:?}");
        Self::new(StatusCode::REQUEST_TIMEOUT, "timeout", message)
    }

    /// A body of more than `limit` bytes.
    pub fn too_large(limit: u64) -> Self {
        let message = format!("the body is larger than {}", ByteSize(limit));
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", message)
    }

    pub fn too_many_headers(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "headers_too_large", message)
    }

    /// As a response after which the connection is closed: what follows on it may be anything.
    pub fn closing(self) -> Response {
        let mut response = self.into_response();
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        response
    }
}

impl IntoResponse for Fault {
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
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"daoyou\""));
        }
        response
    }
}

/// The word for a status where nobody chose one.
pub fn code(status: StatusCode) -> &'static str {
    match status.as_u16() {
        400 => "bad_request",
        401 => "unauthorized",
        403 => "forbidden",
        404 => "not_found",
        405 => "method_not_allowed",
        408 => "timeout",
        413 => "too_large",
        415 => "unsupported_media_type",
        422 => "invalid",
        429 => "too_many_requests",
        431 => "headers_too_large",
        503 => "unavailable",
        500.. => "internal",
        _ => "refused",
    }
}
