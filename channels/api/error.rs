//! Errors in OpenAI's format: `{"error":{"message","type","param","code"}}`.

use axum::Json;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use crate::http_error::HttpError;
use crate::inbox::{Refusal, Reply};

/// The header that tells OpenAI's clients whether to repeat a request automatically.
static SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");
/// The codes of errors that a retry does not fix, although clients retry after their HTTP statuses.
const FINAL: &[&str] = &["too_many_attempts", "waiting"];

/// Converts the error response to a request below `/v1` into OpenAI's format. Leaves other responses unchanged.
pub fn in_openai_form(response: Response) -> Response {
    let Some(error) = response.extensions().get::<HttpError>().cloned() else { return response };
    let (mut parts, _) = response.into_parts();
    parts.headers.remove(header::CONTENT_LENGTH);
    if FINAL.contains(&error.code) {
        parts.headers.insert(SHOULD_RETRY.clone(), HeaderValue::from_static("false"));
    }
    let (new, body) = Json(error_body(error.status, error.code, &error.message)).into_response().into_parts();
    parts.headers.extend(new.headers);
    Response::from_parts(parts, body)
}

/// The reason why a request has no answer.
#[derive(Clone, Debug)]
pub(super) enum ApiFailure {
    Refused(HttpError),
    /// The turn failed. A retry would be a new message.
    Turn(Reply),
}

impl From<HttpError> for ApiFailure {
    fn from(error: HttpError) -> Self {
        Self::Refused(error)
    }
}

impl From<Refusal> for ApiFailure {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal.into())
    }
}

impl ApiFailure {
    /// Returns true if the failure answers the request. After any other failure, the client may repeat the request.
    pub fn is_answer(&self) -> bool {
        matches!(self, Self::Turn(_))
    }

    /// Returns the body of the error response, which is also the last event of a stream.
    pub fn body(&self) -> Value {
        match self {
            Self::Refused(error) => error_body(error.status, error.code, &error.message),
            Self::Turn(reply) => {
                let code = reply.error.as_ref().map_or("failed", |error| error.code.as_str());
                error_body(StatusCode::UNPROCESSABLE_ENTITY, code, reply.content.trim_end())
            }
        }
    }
}

impl IntoResponse for ApiFailure {
    fn into_response(self) -> Response {
        match &self {
            // The server converts it into OpenAI's format.
            Self::Refused(error) => error.clone().into_response(),
            Self::Turn(_) => {
                let header = [(SHOULD_RETRY.clone(), HeaderValue::from_static("false"))];
                (StatusCode::UNPROCESSABLE_ENTITY, header, Json(self.body())).into_response()
            }
        }
    }
}

/// Returns the body of an error response.
fn error_body(status: StatusCode, code: &str, message: &str) -> Value {
    let kind = match status.as_u16() {
        401 => "authentication_error",
        403 => "permission_error",
        429 => "rate_limit_error",
        500.. => "server_error",
        _ => "invalid_request_error",
    };
    json!({ "error": { "message": message, "type": kind, "param": null, "code": code } })
}
