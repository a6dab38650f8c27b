//! The checks of Anthropic's Messages API. A request that would fail at the real service therefore fails here too.

use std::collections::BTreeSet;

use axum::http::HeaderMap;
use serde_json::{Map, Value};

use super::anthropic::signature;
use super::strict::{Fault, name, object, only, picture, schema, text};

const TOP: &[&str] = &[
    "model", "max_tokens", "messages", "system", "tools", "tool_choice", "temperature", "top_p", "top_k", "thinking",
    "stream", "stop_sequences", "metadata",
];
const CACHE_MARKS_LIMIT: usize = 4;

/// Checks the head of a request.
pub fn check_head(headers: &HeaderMap) -> Result<(), Fault> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    if text("anthropic-version") != Some("2023-06-01") {
        return Err("anthropic-version: header is required".to_owned());
    }
    if text("x-api-key").is_none_or(str::is_empty) {
        return Err("x-api-key: header is required".to_owned());
    }
    match text("content-type") {
        Some("application/json") => Ok(()),
        _ => Err("content-type: must be application/json".to_owned()),
    }
}

/// Checks a whole request body.
pub fn check(body: &Value) -> Result<(), Fault> {
    let body = object(body, "body")?;
    only(body, TOP, "body")?;
    if text(body, "model", "body")?.is_empty() {
        return Err("model: empty string".to_owned());
    }
    let max_tokens = body.get("max_tokens").and_then(Value::as_u64).filter(|tokens| *tokens > 0);
    let max_tokens = max_tokens.ok_or("max_tokens: a positive integer is required")?;
    if body.get("stream").is_some_and(|value| !value.is_boolean()) {
        return Err("stream: expected a boolean".to_owned());
    }
    let thinks = thinking(body, max_tokens)?;
    let mut marks = 0;
    if let Some(system) = body.get("system") {
        for (i, block) in system.as_array().into_iter().flatten().enumerate() {
            marks += text_block(object(block, "system")?, &format!("system.{i}"))?;
        }
        if !system.is_array() && !system.is_string() {
            return Err("system: expected a string or a list".to_owned());
        }
    }
    marks += tools(body)?;
    let messages = body.get("messages").and_then(Value::as_array).ok_or("messages: expected a list")?;
    let has_tools = body.contains_key("tools");
    marks += conversation(messages, has_tools, thinks)?;
    if marks > CACHE_MARKS_LIMIT {
        return Err(format!("at most {CACHE_MARKS_LIMIT} blocks with cache_control, found {marks}"));
    }
    Ok(())
}

/// Returns true if the request asks for thinking; checks the budget.
fn thinking(body: &Map<String, Value>, max_tokens: u64) -> Result<bool, Fault> {
    let temperature = body.get("temperature").map(|value| value.as_f64().unwrap_or(-1.0));
    if temperature.is_some_and(|value| !(0.0..=1.0).contains(&value)) {
        return Err("temperature: range: 0..1".to_owned());
    }
    let Some(thinking) = body.get("thinking") else { return Ok(false) };
    let thinking = object(thinking, "thinking")?;
    if text(thinking, "type", "thinking")? != "enabled" {
        return Err("thinking.type: expected \"enabled\"".to_owned());
    }
    let budget = thinking.get("budget_tokens").and_then(Value::as_u64).unwrap_or_default();
    if budget < 1024 {
        return Err("thinking.enabled.budget_tokens: should be at least 1024".to_owned());
    }
    if budget >= max_tokens {
        return Err("max_tokens must be greater than thinking.budget_tokens".to_owned());
    }
    if temperature.is_some_and(|value| value < 1.0) {
        return Err("temperature may only be set to 1 when thinking is enabled".to_owned());
    }
    Ok(true)
}

/// Returns the number of cache marks in the tools.
fn tools(body: &Map<String, Value>) -> Result<usize, Fault> {
    let Some(tools) = body.get("tools") else {
        return if body.contains_key("tool_choice") { Err("tool_choice without tools".to_owned()) } else { Ok(0) };
    };
    let mut names = BTreeSet::new();
    let mut marks = 0;
    for (i, tool) in tools.as_array().ok_or("tools: expected a list")?.iter().enumerate() {
        let path = format!("tools.{i}");
        let tool = object(tool, &path)?;
        only(tool, &["name", "description", "input_schema", "type", "cache_control"], &path)?;
        let called = text(tool, "name", &path)?;
        name(called, &path)?;
        if !names.insert(called) {
            return Err("tools: names must be unique".to_owned());
        }
        let parameters = tool.get("input_schema").ok_or(format!("{path}.input_schema: required"))?;
        let top = object(parameters, &path)?;
        if top.get("type").is_none_or(|kind| kind != "object") {
            return Err(format!("{path}.input_schema.type: should be 'object'"));
        }
        if ["anyOf", "oneOf", "allOf"].iter().any(|key| top.contains_key(*key)) {
            return Err(format!("{path}.input_schema: no oneOf, allOf or anyOf at the top level"));
        }
        schema(parameters, &path, 0)?;
        marks += mark(tool, &path)?;
    }
    Ok(marks)
}

fn mark(block: &Map<String, Value>, path: &str) -> Result<usize, Fault> {
    match block.get("cache_control") {
        None => Ok(0),
        Some(control) if control["type"] == "ephemeral" => Ok(1),
        Some(control) => Err(format!("{path}.cache_control: {control} is none")),
    }
}

fn text_block(block: &Map<String, Value>, path: &str) -> Result<usize, Fault> {
    only(block, &["type", "text", "cache_control"], path)?;
    if text(block, "text", path)?.trim().is_empty() {
        return Err(format!("{path}: text content blocks must contain non-whitespace text"));
    }
    mark(block, path)
}

fn image_block(block: &Map<String, Value>, path: &str) -> Result<usize, Fault> {
    only(block, &["type", "source", "cache_control"], path)?;
    let source = object(block.get("source").unwrap_or(&Value::Null), path)?;
    only(source, &["type", "media_type", "data"], path)?;
    if text(source, "type", path)? != "base64" {
        return Err(format!("{path}.source.type: expected \"base64\""));
    }
    let kind = text(source, "media_type", path)?.strip_prefix("image/").unwrap_or_default();
    picture(kind, text(source, "data", path)?, path)?;
    mark(block, path)
}

/// Checks the messages, and that each call gets its result; returns the number of cache marks.
fn conversation(messages: &[Value], has_tools: bool, thinks: bool) -> Result<usize, Fault> {
    let mut marks = 0;
    let mut used = BTreeSet::new();
    let mut open: Vec<&str> = Vec::new();
    for (i, message) in messages.iter().enumerate() {
        let path = format!("messages.{i}");
        let message = object(message, &path)?;
        only(message, &["role", "content"], &path)?;
        let role = text(message, "role", &path)?;
        if role != if i % 2 == 0 { "user" } else { "assistant" } {
            return Err(format!("{path}: the user begins and roles alternate, found {role:?}"));
        }
        let blocks = message.get("content").and_then(Value::as_array).filter(|blocks| !blocks.is_empty());
        let blocks = blocks.ok_or(format!("{path}: all messages must have non-empty content"))?;
        let mut answered = BTreeSet::new();
        let mut asked = Vec::new();
        for (j, block) in blocks.iter().enumerate() {
            let path = format!("{path}.content.{j}");
            let block = object(block, &path)?;
            let kind = text(block, "type", &path)?;
            marks += match (role, kind) {
                (_, "text") => text_block(block, &path)?,
                ("user", "image") => image_block(block, &path)?,
                ("user", "tool_result") => {
                    only(block, &["type", "tool_use_id", "content", "is_error", "cache_control"], &path)?;
                    let id = text(block, "tool_use_id", &path)?;
                    if !open.contains(&id) || !answered.insert(id) || answered.len() != j + 1 {
                        return Err(format!("{path}: unexpected, repeated or late tool_use_id {id:?}"));
                    }
                    mark(block, &path)?
                }
                ("assistant", "tool_use") => {
                    asked.push(call(block, &path, &mut used)?);
                    mark(block, &path)?
                }
                ("assistant", "thinking") => thought(block, &path)?,
                _ => return Err(format!("{path}: {kind:?} blocks are not allowed in {role} messages")),
            };
        }
        if answered.len() != open.len() {
            return Err(format!("{path}: tool_use ids without tool_result blocks immediately after: {open:?}"));
        }
        let starts_thinking = blocks[0]["type"] == "thinking";
        if thinks && !asked.is_empty() && i + 2 == messages.len() && !starts_thinking {
            return Err(format!("{path}: a final assistant message must start with a thinking block"));
        }
        open = asked;
    }
    if !used.is_empty() && !has_tools {
        return Err("requests which include tool_use or tool_result blocks must define tools".to_owned());
    }
    if messages.len() % 2 == 1 { Ok(marks) } else { Err("the conversation must end with a user message".to_owned()) }
}

/// Checks a call and returns its id.
fn call<'a>(block: &'a Map<String, Value>, path: &str, used: &mut BTreeSet<&'a str>) -> Result<&'a str, Fault> {
    only(block, &["type", "id", "name", "input", "cache_control"], path)?;
    let id = text(block, "id", path)?;
    name(id, path)?;
    name(text(block, "name", path)?, path)?;
    object(block.get("input").unwrap_or(&Value::Null), path)?;
    if used.insert(id) { Ok(id) } else { Err(format!("{path}: tool_use ids must be unique, found {id:?} again")) }
}

fn thought(block: &Map<String, Value>, path: &str) -> Result<usize, Fault> {
    only(block, &["type", "thinking", "signature"], path)?;
    if text(block, "signature", path)? == signature(text(block, "thinking", path)?) {
        return Ok(0);
    }
    Err(format!("{path}: invalid signature in thinking block"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn with(messages: &Value) -> Value {
        let tool = json!({"name": "f", "input_schema": {"type": "object"}});
        json!({"model": "m", "max_tokens": 2000, "tools": [tool], "messages": messages})
    }

    #[test]
    fn requests_are_accepted_as_by_the_service() {
        let message = |role: &str, blocks: Value| json!({"role": role, "content": blocks});
        let user = message("user", json!([{"type": "text", "text": "hi"}]));
        let call = |id: &str| json!({"type": "tool_use", "id": id, "name": "f", "input": {}});
        let asks = |ids: &[&str]| message("assistant", ids.iter().map(|id| call(id)).collect());
        let result = |id: &str| json!({"type": "tool_result", "tool_use_id": id, "content": "done"});
        let text = json!({"type": "text", "text": "and"});
        let answers = message("user", json!([result("b"), result("a"), text]));
        for body in [with(&json!([user])), with(&json!([user, asks(&["a", "b"]), answers]))] {
            assert_eq!(check(&body), Ok(()), "{body}");
        }
        let mut toolless = with(&json!([user, asks(&["a", "b"]), answers]));
        toolless.as_object_mut().unwrap().remove("tools");
        let mut thinking = with(&json!([user, asks(&["a", "b"]), answers]));
        thinking["thinking"] = json!({"type": "enabled", "budget_tokens": 1024});
        let mut hot = thinking.clone();
        hot["temperature"] = json!(0.5);
        let marked = json!({"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}});
        let forged = json!({"type": "thinking", "thinking": "hm", "signature": "x"});
        for (body, why) in [
            (json!({"model": "m", "messages": [user]}), "max_tokens"),
            (with(&json!([])), "end with a user"),
            (with(&json!([user, user])), "roles alternate"),
            (with(&json!([user, message("assistant", json!([text]))])), "end with a user"),
            (with(&json!([message("user", json!([]))])), "non-empty content"),
            (with(&json!([message("user", json!([{"type": "text", "text": " "}]))])), "non-whitespace"),
            (with(&json!([user, asks(&["a"]), user])), "without tool_result"),
            (with(&json!([user, asks(&["a"]), message("user", json!([text, result("a")]))])), "late"),
            (with(&json!([user, asks(&["a"]), message("user", json!([result("a"), result("a")]))])), "repeated"),
            (with(&json!([user, asks(&["a.b"]), answers])), "does not match"),
            (with(&json!([user, asks(&["a"]), message("user", json!([result("a")])), asks(&["a"])])), "unique"),
            (with(&json!([user, message("assistant", json!([forged])), user])), "invalid signature"),
            (with(&json!([message("user", json!([marked, marked, marked, marked, marked]))])), "at most 4"),
            (toolless, "must define tools"),
            (thinking, "start with a thinking block"),
            (hot, "temperature"),
        ] {
            assert!(check(&body).is_err_and(|fault| fault.contains(why)), "{body} -> {:?}", check(&body));
        }
    }
}
