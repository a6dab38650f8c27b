//! Errors as HTTP responses.

use std::borrow::Cow;
use std::time::Duration;

use axum::http::StatusCode;
use daoyou_channels::HttpError;

use crate::cron::JobError;
use crate::memory::MemoryError;
use crate::query::InspectError;
use crate::query::access::TokenError;
use crate::store::StoreError;
use crate::store::checkpoints::CheckpointError;

/// 408: a part of a request did not arrive in time.
pub fn late(what: &str, limit: Duration) -> HttpError {
    HttpError::new(StatusCode::REQUEST_TIMEOUT, "timeout", format!("{what} did not arrive within {limit:?}"))
}

/// 500: a fault of the gateway itself, which its log describes.
pub fn internal() -> HttpError {
    HttpError::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", "the gateway failed; its log says how")
}

/// 431.
pub fn too_many_headers(message: impl Into<Cow<'static, str>>) -> HttpError {
    HttpError::new(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "headers_too_large", message)
}

/// The message that refuses access to a chat of another client.
pub const FOREIGN_CHAT: &str = "this token may use only the chats that it began";

/// 403: the scope of the client's token does not allow a request.
pub fn out_of_scope(message: impl Into<Cow<'static, str>>) -> HttpError {
    HttpError::new(StatusCode::FORBIDDEN, "scope", message)
}

/// The error for a turn to which its session cannot be restored; `code` is that of a [`CheckpointError`].
pub fn no_point(code: &'static str, message: impl Into<Cow<'static, str>>) -> HttpError {
    let status = match code {
        "invalid" => StatusCode::BAD_REQUEST,
        "not_found" => StatusCode::NOT_FOUND,
        "gone" => StatusCode::GONE,
        _ => StatusCode::CONFLICT,
    };
    HttpError::new(status, code, message)
}

// These conversions are here because the other modules do not know HTTP.
impl From<StoreError> for HttpError {
    fn from(error: StoreError) -> Self {
        tracing::error!(%error, "an API request failed");
        if matches!(error, StoreError::Panicked) {
            return internal();
        }
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "store", error.to_string())
    }
}

impl From<CheckpointError> for HttpError {
    fn from(error: CheckpointError) -> Self {
        match error {
            CheckpointError::Store(error) => error.into(),
            other => no_point(other.code(), other.to_string()),
        }
    }
}

impl From<JobError> for HttpError {
    fn from(error: JobError) -> Self {
        match error {
            JobError::Store(error) => error.into(),
            JobError::NotFound(_) => Self::not_found(error.to_string()),
            JobError::Invalid(message) => Self::unprocessable(message),
            JobError::NameTaken { .. } => Self::unprocessable(error.to_string()),
        }
    }
}

impl From<MemoryError> for HttpError {
    fn from(error: MemoryError) -> Self {
        match error {
            MemoryError::Store(error) => error.into(),
            MemoryError::NotFound(_) => Self::not_found(error.to_string()),
            MemoryError::Wrong(message) => Self::unprocessable(message),
        }
    }
}

impl From<TokenError> for HttpError {
    fn from(error: TokenError) -> Self {
        match error {
            TokenError::Store(error) => error.into(),
            TokenError::NotFound(_) => Self::not_found(error.to_string()),
            TokenError::Invalid(message) => Self::unprocessable(message),
        }
    }
}

impl From<InspectError> for HttpError {
    fn from(error: InspectError) -> Self {
        match error {
            InspectError::Unknown(message) => Self::not_found(message),
            InspectError::Invalid(message) => Self::unprocessable(message),
            InspectError::Failed(message) => Self::new(StatusCode::INTERNAL_SERVER_ERROR, "failed", message),
        }
    }
}

/// Returns the error code of a status for which no handler has chosen one.
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
