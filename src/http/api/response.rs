//! The responses of the API.

use axum::Json;
use daoyou_channels::{HttpError, json};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::http::error::internal;

/// The result of an API handler.
pub type ApiResult = Result<Json<Value>, HttpError>;

/// Reads a JSON body.
///
/// # Errors
/// 400 if the text is not JSON, does not match `T`, or has an object with a duplicate key.
pub fn parse_body<T: DeserializeOwned>(text: &str) -> Result<T, HttpError> {
    json::from_str(text).map_err(|error| HttpError::bad_request(format!("the body is not valid: {error}")))
}

/// Runs `work` to its end even if the client disconnects, so that the actions after a commit are not skipped.
pub async fn run_detached<T, F>(work: F) -> Result<T, HttpError>
where
    T: Send + 'static,
    F: Future<Output = Result<T, HttpError>> + Send + 'static,
{
    tokio::spawn(work).await.unwrap_or_else(|error| {
        tracing::error!(%error, "the work of an API request did not end");
        Err(internal())
    })
}

#[cfg(test)]
mod tests {
    use axum::http::StatusCode;

    use super::*;
    use crate::store::StoreError;

    /// A panic is a fault of the gateway and not of the store, wherever it happens.
    #[tokio::test]
    async fn a_panic_is_an_internal_error() {
        let panicking = run_detached(async { panic!("a fault of this test") });
        let failed = run_detached(async { Err::<(), _>(StoreError::Panicked.into()) });
        for error in [panicking.await, failed.await].map(Result::unwrap_err) {
            assert_eq!((error.status, error.code), (StatusCode::INTERNAL_SERVER_ERROR, "internal"));
        }
    }
}
