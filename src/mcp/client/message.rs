//! Parses messages of a server for daoyou's own transports. Text that is not a message is distinguished from a message that is
//! unreadable.

use rmcp::RoleClient;
use rmcp::model::{ErrorCode, ErrorData, JsonRpcMessage, RequestId};
use rmcp::service::RxJsonRpcMessage;
use serde_json::Value;

use crate::text::{one_line, truncate};

/// The maximum length of a server's log line, in characters.
const MAX_LOG_LINE: usize = 300;
/// The notifications that the client handles.
const NOTIFICATIONS: [&str; 6] = [
    "notifications/cancelled",
    "notifications/tools/list_changed",
    "notifications/prompts/list_changed",
    "notifications/resources/list_changed",
    "notifications/resources/updated",
    "notifications/subscriptions/acknowledged",
];

/// A text that a server sent.
pub(super) enum ServerText {
    /// Messages of the protocol. A batch contains several. The list is empty if the text needs no handling.
    Messages(Vec<RxJsonRpcMessage<RoleClient>>),
    /// Text that is not a message.
    Noise,
}

impl ServerText {
    /// Parses a text. Invalid UTF-8 is replaced. Log messages of `server` go to the log.
    pub(super) fn read(bytes: &[u8], server: &str) -> Self {
        let text = String::from_utf8_lossy(bytes);
        match serde_json::from_str(text.trim_start_matches('\u{feff}').trim()) {
            Ok(Value::Array(batch)) if !batch.is_empty() && batch.iter().all(is_message) => {
                Self::Messages(batch.into_iter().filter_map(|message| read_message(message, server)).collect())
            }
            Ok(message) if is_message(&message) => Self::Messages(read_message(message, server).into_iter().collect()),
            _ => Self::Noise,
        }
    }
}

fn is_message(value: &Value) -> bool {
    value["jsonrpc"] == "2.0"
}

/// Returns a message for the library; `None` if the message needs no handling.
fn read_message(value: Value, server: &str) -> Option<RxJsonRpcMessage<RoleClient>> {
    let id = match &value["id"] {
        Value::Number(number) => number.as_i64().map(RequestId::Number),
        Value::String(text) => Some(RequestId::String(text.as_str().into())),
        _ => None,
    };
    let method = value["method"].as_str();
    if let (Some(method), None) = (method, &id)
        && !NOTIFICATIONS.contains(&method)
    {
        if method == "notifications/message" {
            let text = truncate(&one_line(&value["params"]["data"].to_string()), MAX_LOG_LINE);
            tracing::debug!(server, text, "an MCP server logs");
        }
        return None;
    }
    let is_answer = method.is_none();
    match serde_json::from_value(value) {
        Ok(message) => Some(message),
        // The call that waits for this response gets the error.
        Err(error) if is_answer => {
            let text = format!("the answer cannot be read: {error}");
            Some(JsonRpcMessage::error(ErrorData::new(ErrorCode::INTERNAL_ERROR, text, None), Some(id?)))
        }
        Err(error) => {
            tracing::debug!(server, %error, "a message of an MCP server cannot be read");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_told_from_noise() {
        for (text, expected) in [
            (&br#"{"jsonrpc":"2.0","id":1,"result":{}}"#[..], Some(1)),
            (br#"{"jsonrpc":"2.0","id":"1","error":{"code":-1,"message":"x"}}"#, Some(1)),
            (br#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#, Some(1)),
            (br#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"x"}}"#, Some(0)),
            (br#"{"jsonrpc":"2.0","method":"notifications/unknown"}"#, Some(0)),
            (b"\xef\xbb\xbf{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"content\":[{\"type\":\"text\",\"text\":\"\xff\"}]}}\r", Some(1)),
            (br#"[{"jsonrpc":"2.0","id":1,"result":{}},{"jsonrpc":"2.0","id":2,"result":{}}]"#, Some(2)),
            (br#"{"jsonrpc":"2.0","id":1,"error":"no object"}"#, Some(1)),
            (b"Listening on stdio", None),
            (br#"{"level":"info"}"#, None),
            (b"[]", None),
            (b"7", None),
        ] {
            let read = match ServerText::read(text, "x") {
                ServerText::Messages(messages) => Some(messages.len()),
                ServerText::Noise => None,
            };
            assert_eq!(read, expected, "{}", String::from_utf8_lossy(text));
        }
    }
}
