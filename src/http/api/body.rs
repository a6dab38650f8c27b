//! JSON bodies of requests.

use axum::Json;
use axum::extract::{FromRequest, Request};
use axum::response::{IntoResponse, Response};
use daoyou_channels::{HttpError, json};
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

/// A JSON body in which no object has a key twice: two programs could read such a body differently.
pub struct UniqueJson<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for UniqueJson<T> {
    type Rejection = Response;

    async fn from_request(request: Request, state: &S) -> Result<Self, Response> {
        let Json(text) =
            Json::<Box<RawValue>>::from_request(request, state).await.map_err(IntoResponse::into_response)?;
        parse(text.get()).map(Self).map_err(IntoResponse::into_response)
    }
}

/// Parses a body.
///
/// # Errors
/// 400 if it is not JSON or an object has a key twice, 422 if it does not fit `T`.
fn parse<T: DeserializeOwned>(text: &str) -> Result<T, HttpError> {
    json::check_keys(text).map_err(|error| HttpError::bad_request(format!("the body is not JSON: {error}")))?;
    serde_json::from_str(text).map_err(|error| HttpError::unprocessable(format!("the body does not fit: {error}")))
}
