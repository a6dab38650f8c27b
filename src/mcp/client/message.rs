//! Parses messages of a server for daoyou's own transports. Text that is not a message is distinguished from a message that is
//! unreadable.

use rmcp::RoleClient;
use rmcp::model::{ErrorCode, ErrorData, JsonRpcMessage, RequestId};
use rmcp::service::RxJsonRpcMessage;
use serde_json::{Deserializer, Value};

use super::ServerLabel;
use crate::text::{one_line, truncate, without_lone_surrogates};

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

/// Returns the messages in a text that a server sent, several for a batch, and none for a message that needs no handling. Returns
/// `None` for a text that is not a message. Invalid UTF-8 is replaced. Log messages of `server` go to the log.
pub(super) fn messages_in(bytes: &[u8], server: &ServerLabel) -> Option<Vec<RxJsonRpcMessage<RoleClient>>> {
    let text = String::from_utf8_lossy(bytes);
    let text = text.trim_start_matches('\u{feff}').trim();
    let messages = match serde_json::from_str(&without_lone_surrogates(text)) {
        Ok(Value::Array(batch)) if !batch.is_empty() && batch.iter().all(is_message) => batch,
        Ok(message) if is_message(&message) => vec![message],
        Ok(_) => return None,
        Err(error) => return unreadable_answer_id(text).map(|id| vec![answer_error(&error, id)]),
    };
    Some(messages.into_iter().filter_map(|message| read_message(message, server)).collect())
}

/// Returns the error for the call that waits for an answer.
fn answer_error(error: &serde_json::Error, id: RequestId) -> RxJsonRpcMessage<RoleClient> {
    let text = format!("the answer cannot be read: {error}");
    JsonRpcMessage::error(ErrorData::new(ErrorCode::INTERNAL_ERROR, text, None), Some(id))
}

/// Returns the id of an answer that is not valid JSON; `None` if the text is something else. The text may be nested too
/// deeply for the parser, or end early, so this only searches for the keys of the outermost object.
fn unreadable_answer_id(text: &str) -> Option<RequestId> {
    if !text.starts_with('{') || !text.contains("\"jsonrpc\"") {
        return None;
    }
    let (mut depth, mut at, mut id, mut is_answer) = (0_usize, 0, None, false);
    while let Some(found) = text[at..].find(['{', '[', '}', ']', '"']) {
        let start = at + found;
        at = start + 1;
        match text.as_bytes()[start] {
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {
                let Some(end) = string_end(text, start) else { break };
                at = end;
                let Some(value) = text[end..].trim_start().strip_prefix(':').filter(|_| depth == 1) else { continue };
                match &text[start..end] {
                    "\"id\"" => id = Deserializer::from_str(value).into_iter::<Value>().next()?.ok(),
                    "\"result\"" | "\"error\"" => is_answer = true,
                    _ => {}
                }
            }
        }
    }
    id.as_ref().filter(|_| is_answer).and_then(request_id)
}

/// Returns the end of the JSON string that begins at `start`.
fn string_end(text: &str, start: usize) -> Option<usize> {
    let mut at = start + 1;
    loop {
        at += text.get(at..)?.find(['"', '\\'])?;
        if text.as_bytes()[at] == b'"' {
            return Some(at + 1);
        }
        at = text.ceil_char_boundary(at + 2);
    }
}

fn request_id(value: &Value) -> Option<RequestId> {
    match value {
        Value::Number(number) => number.as_i64().map(RequestId::Number),
        Value::String(text) => Some(RequestId::String(text.as_str().into())),
        _ => None,
    }
}

fn is_message(value: &Value) -> bool {
    value["jsonrpc"] == "2.0"
}

/// Returns a message for the library; `None` if the message needs no handling.
fn read_message(value: Value, server: &ServerLabel) -> Option<RxJsonRpcMessage<RoleClient>> {
    let id = request_id(&value["id"]);
    let method = value["method"].as_str();
    if let (Some(method), None) = (method, &id)
        && !NOTIFICATIONS.contains(&method)
    {
        if method == "notifications/message" {
            let text = truncate(&one_line(&server.redacted(value["params"]["data"].to_string())), MAX_LOG_LINE);
            tracing::debug!(server = server.name, text, "an MCP server logs");
        }
        return None;
    }
    let is_answer = method.is_none();
    match serde_json::from_value(value) {
        Ok(message) => Some(message),
        // The call that waits for this response gets the error.
        Err(error) if is_answer => Some(answer_error(&error, id?)),
        Err(error) => {
            let error = server.redacted(error.to_string());
            tracing::debug!(server = server.name, error, "a message of an MCP server cannot be read");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &[u8]) -> Option<Vec<RxJsonRpcMessage<RoleClient>>> {
        messages_in(text, &ServerLabel { name: "x".to_owned(), secrets: Default::default() })
    }

    #[test]
    fn an_answer_with_a_lone_surrogate_is_read() {
        let text = br#"{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"cut emoji \ud83d end"}]}}"#;
        let messages = read(text).expect("a message");
        let message = serde_json::to_value(&messages[0]).unwrap();
        assert_eq!(message["result"]["content"][0]["text"], "cut emoji \u{fffd} end");
    }

    #[test]
    fn the_call_that_waits_for_an_unreadable_answer_gets_an_error() {
        let deep =
            |key: &str, depth: usize| format!("{}{}{}", format!("{{\"{key}\":").repeat(depth), 1, "}".repeat(depth));
        for (text, expected) in [
            (format!(r#"{{"jsonrpc":"2.0","id":7,"result":{}}}"#, deep("id", 5_000)), Some(RequestId::Number(7))),
            (
                format!(r#"{{"result":{},"id":"a\"b","jsonrpc":"2.0"}}"#, deep("x", 200)),
                Some(RequestId::String("a\"b".into())),
            ),
            (r#"{"jsonrpc": "2.0", "id" : 3, "result": {"text": "cut in"#.to_owned(), Some(RequestId::Number(3))),
            (r#"{"jsonrpc": "2.0", "id" : 3, "par"#.to_owned(), None),
            (format!(r#"{{"jsonrpc":"2.0","id":7,"method":"roots/list","params":{}}}"#, deep("x", 200)), None),
            (format!(r#"{{"jsonrpc":"2.0","result":{}}}"#, deep("id", 200)), None),
            (r#"{"id":7,"level":"info"#.to_owned(), None),
        ] {
            let found = read(text.as_bytes()).map(|messages| serde_json::to_value(&messages[0]).unwrap());
            let expected = expected.map(|id| serde_json::to_value(id).unwrap());
            assert_eq!(found.as_ref().map(|message| &message["id"]), expected.as_ref(), "{}", &text[..50]);
            if let Some(message) = found {
                let error = message["error"]["message"].as_str().unwrap();
                assert!(error.starts_with("the answer cannot be read: "), "{error}");
            }
        }
    }

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
            let found = read(text).map(|messages| messages.len());
            assert_eq!(found, expected, "{}", String::from_utf8_lossy(text));
        }
    }
}
