//! Anthropic's Messages API of the scripted model. It serves the same scripts in another wire format.

use std::borrow::Cow;
use std::hash::{DefaultHasher, Hash, Hasher};

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use super::reply::{Rendered, pieces};

/// Returns the messages of a request in the format of chat completions, with texts as strings and results as separate
/// messages, so that scripts do not depend on the protocol.
pub fn flat(messages: &[Value]) -> Cow<'_, [Value]> {
    if messages.iter().all(|message| !message["content"].is_array()) {
        return Cow::Borrowed(messages);
    }
    let mut all = Vec::new();
    for message in messages {
        let Some(blocks) = message["content"].as_array() else {
            all.push(message.clone());
            continue;
        };
        for result in blocks.iter().filter(|block| block["type"] == "tool_result") {
            all.push(json!({"role": "tool", "tool_call_id": result["tool_use_id"], "content": result["content"]}));
        }
        let text: Vec<_> = blocks.iter().filter_map(|block| block["text"].as_str()).collect();
        if !text.is_empty() || message["role"] == "assistant" {
            all.push(json!({"role": message["role"], "content": text.join("\n\n")}));
        }
    }
    Cow::Owned(all)
}

/// Returns the signature of a thinking block. A changed block is refused, as the real service does.
pub fn signature(thought: &str) -> String {
    let mut hasher = DefaultHasher::new();
    thought.hash(&mut hasher);
    format!("sig{:016x}", hasher.finish())
}

/// Returns an error answer in the service's form.
pub fn error(status: u16, message: &str) -> Response {
    let kind = match status {
        400 => "invalid_request_error",
        401 => "authentication_error",
        403 => "permission_error",
        404 => "not_found_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        529 => "overloaded_error",
        _ => "api_error",
    };
    let status = StatusCode::from_u16(status).expect("a script's status is one");
    let body = json!({"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_1"});
    (status, axum::Json(body)).into_response()
}

impl Rendered<'_> {
    fn stop_reason(&self) -> &str {
        let usual = if self.reply.calls.is_empty() { "end_turn" } else { "tool_use" };
        self.reply.finish.as_deref().unwrap_or(usual)
    }

    fn counted(&self) -> Value {
        let usage = self.usage();
        let (read, written) = self.reply.cached;
        json!({"input_tokens": usage["prompt_tokens"], "output_tokens": usage["completion_tokens"],
            "cache_read_input_tokens": read, "cache_creation_input_tokens": written})
    }

    /// Returns the body of an answer that is not streamed.
    pub fn message(&self) -> Value {
        let mut content = Vec::new();
        if !self.reply.reasoning.is_empty() {
            let thought = &self.reply.reasoning;
            content.push(json!({"type": "thinking", "thinking": thought, "signature": signature(thought)}));
        }
        if !self.reply.text.is_empty() {
            content.push(json!({"type": "text", "text": self.reply.text}));
        }
        for (index, call) in self.reply.calls.iter().enumerate() {
            let input: Value = serde_json::from_str(&call.arguments).expect("a whole answer holds whole arguments");
            content
                .push(json!({"type": "tool_use", "id": self.call_id(index, call), "name": call.name, "input": input}));
        }
        json!({"id": format!("msg_{}", self.n), "type": "message", "role": "assistant", "model": self.model,
            "content": content, "stop_reason": self.stop_reason(), "stop_sequence": null, "usage": self.counted()})
    }

    /// Returns the events of a streamed answer, each with its name and blank line.
    pub fn message_events(&self) -> Vec<Vec<u8>> {
        let chars = self.reply.chunk_chars.unwrap_or(16);
        let mut usage = self.counted();
        usage["output_tokens"] = json!(1);
        let message = json!({"id": format!("msg_{}", self.n), "type": "message", "role": "assistant",
            "model": self.model, "content": [], "stop_reason": null, "stop_sequence": null, "usage": usage});
        let mut events = vec![json!({"type": "message_start", "message": message}), json!({"type": "ping"})];
        let mut index = 0;
        let mut block = |begin: Value, deltas: Vec<Value>| {
            events.push(json!({"type": "content_block_start", "index": index, "content_block": begin}));
            for delta in deltas {
                events.push(json!({"type": "content_block_delta", "index": index, "delta": delta}));
            }
            events.push(json!({"type": "content_block_stop", "index": index}));
            index += 1;
        };
        let cut = |text: &str, kind: &str, field: &str| -> Vec<Value> {
            pieces(text, chars).into_iter().map(|piece| json!({"type": kind, field: piece})).collect()
        };
        if !self.reply.reasoning.is_empty() {
            let mut deltas = cut(&self.reply.reasoning, "thinking_delta", "thinking");
            deltas.push(json!({"type": "signature_delta", "signature": signature(&self.reply.reasoning)}));
            block(json!({"type": "thinking", "thinking": "", "signature": ""}), deltas);
        }
        if !self.reply.text.is_empty() {
            block(json!({"type": "text", "text": ""}), cut(&self.reply.text, "text_delta", "text"));
        }
        for (at, call) in self.reply.calls.iter().enumerate() {
            let begin = json!({"type": "tool_use", "id": self.call_id(at, call), "name": call.name, "input": {}});
            let mut deltas = vec![json!({"type": "input_json_delta", "partial_json": ""})];
            // The service writes an empty text for an empty input.
            let written = if call.arguments == "{}" { "" } else { &call.arguments };
            deltas.extend(cut(written, "input_json_delta", "partial_json"));
            block(begin, deltas);
        }
        let delta = json!({"stop_reason": self.stop_reason(), "stop_sequence": null});
        events.push(json!({"type": "message_delta", "delta": delta, "usage": self.counted()}));
        events.push(json!({"type": "message_stop"}));
        let newline = if self.reply.crlf { "\r\n" } else { "\n" };
        let written = events.iter().map(|event| {
            let name = event["type"].as_str().unwrap_or_default();
            format!("event: {name}{newline}data: {event}{newline}{newline}").into_bytes()
        });
        written.collect()
    }
}
