//! The envelope of a client's message, which both transports check before rmcp reads the message.

use daoyou_channels::json as strict_json;
use rmcp::model::{ErrorCode, RequestId};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Value, json};

use crate::text::truncate;

/// The maximum size of a client's message, in bytes. It must hold the longest text of `ask`, in which JSON may escape bytes.
pub const MAX_MESSAGE: usize = 4 * 1024 * 1024;
/// The error for a text that is not a message of the protocol.
pub(super) const NO_MESSAGE: &str =
    "this is not a JSON-RPC message: one JSON object with jsonrpc, method, and id for a request";
/// The longest id that an error shows, in characters.
const MAX_SHOWN_ID: usize = 80;

/// The fields of a client's message that the server itself needs.
#[derive(Deserialize)]
pub(super) struct MessageEnvelope {
    pub(super) id: Option<Value>,
    pub(super) method: Option<IgnoredAny>,
}

/// Reads the envelope of a message.
///
/// # Errors
/// The text is not one JSON object, or an object in it has a duplicate key, of which another program might read the other value.
pub(super) fn read_envelope(body: &[u8]) -> Result<MessageEnvelope, String> {
    let text = std::str::from_utf8(body).map_err(|_| NO_MESSAGE.to_owned())?;
    if !text.trim_start().starts_with('{') {
        return Err(NO_MESSAGE.to_owned());
    }
    strict_json::from_str(text).map_err(|error| format!("this is not a JSON-RPC message: {error}"))
}

/// Returns the error for a request with the id of an open request.
pub(super) fn id_in_use(id: &Value) -> String {
    let id = truncate(&id.to_string(), MAX_SHOWN_ID);
    format!("id {id} is still in use: each request of a session needs an id of its own")
}

/// Returns the error response to a message; `id` is that of the message if it is readable.
pub(super) fn refusal(code: ErrorCode, id: Option<&RequestId>, message: &str) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "error": { "code": code.0, "message": message } })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_one_object_without_duplicate_keys() {
        for (body, expected) in [
            (r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#, None),
            (r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#, None),
            ("[]", Some(NO_MESSAGE)),
            (r#"["2.0",1,"ping"]"#, Some(NO_MESSAGE)),
            ("1", Some(NO_MESSAGE)),
            ("", Some(NO_MESSAGE)),
            (r#"{"id":"#, Some("EOF")),
            (r#"{"id":1,"id":2}"#, Some(r#"the key "id" stands twice in the object at $"#)),
            (
                r#"{"params":{"arguments":{"message":"a","\u006dessage":"b"}}}"#,
                Some(r#"the key "message" stands twice in the object at $["params"]["arguments"]"#),
            ),
        ] {
            let error = read_envelope(body.as_bytes()).err();
            assert_eq!(error.is_some(), expected.is_some(), "{body}: {error:?}");
            let error = error.unwrap_or_default();
            assert!(error.contains(expected.unwrap_or_default()), "{body}: {error}");
        }
        assert!(read_envelope(b"{\"a\":\"\xff\"}").is_err());
    }
}
