//! The responses of the API.

use axum::Json;
use daoyou_channels::{HttpError, json};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::http::error::internal;

/// The result of an API handler.
pub type ApiResult = Result<Json<Value>, HttpError>;

/// Rejects a JSON text that is not an object. serde would read an array as the fields of a struct in their order.
///
/// # Errors
/// 400 if the text does not begin as an object.
pub fn check_object(text: &str) -> Result<(), HttpError> {
    if text.trim_start().starts_with('{') {
        return Ok(());
    }
    Err(HttpError::bad_request("the body is not a JSON object: it has to begin with {"))
}

/// Reads a JSON body, which must be an object.
///
/// # Errors
/// 400 if the text is not a JSON object, does not match `T`, or has an object with a duplicate key.
pub fn parse_body<T: DeserializeOwned>(text: &str) -> Result<T, HttpError> {
    check_object(text)?;
    json::from_str(text).map_err(|error| HttpError::bad_request(format!("the body is not valid: {error}")))
}

/// Runs `work` to its end even if the client disconnects, so that the actions after a commit are not skipped.
///
/// # Errors
/// The error of `work`; an internal error if `work` panics.
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

    #[test]
    fn a_body_is_an_object() {
        #[derive(Debug, PartialEq, serde::Deserialize)]
        struct Body {
            name: String,
        }
        assert_eq!(parse_body::<Body>(" \n{\"name\":\"phone\"}").unwrap(), Body { name: "phone".to_owned() });
        for text in ["[\"phone\"]", "\"phone\"", "null", "1", ""] {
            let error = parse_body::<Body>(text).unwrap_err();
            assert_eq!(error.status, StatusCode::BAD_REQUEST, "{text}");
            assert!(error.message.contains("not a JSON object"), "{text}: {}", error.message);
        }
    }

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
