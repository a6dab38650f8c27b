//! The checks of real chat-completion services. A request that would fail at a real service therefore fails here too.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

/// The error of a request, as in the error body.
pub type Fault = String;

const TOP: &[&str] = &[
    "model", "messages", "tools", "functions", "tool_choice", "parallel_tool_calls", "stream", "stream_options",
    "temperature", "top_p", "max_tokens", "max_completion_tokens", "stop", "seed", "user", "n", "response_format",
    "reasoning_effort", "presence_penalty", "frequency_penalty",
];

pub fn object<'a>(value: &'a Value, path: &str) -> Result<&'a Map<String, Value>, Fault> {
    value.as_object().ok_or_else(|| format!("{path}: expected an object, got {value}"))
}

pub fn only(map: &Map<String, Value>, known: &[&str], path: &str) -> Result<(), Fault> {
    match map.keys().find(|key| !known.contains(&key.as_str())) {
        Some(key) => Err(format!("unknown parameter: {path}.{key}")),
        None => Ok(()),
    }
}

pub fn text<'a>(map: &'a Map<String, Value>, key: &str, path: &str) -> Result<&'a str, Fault> {
    map.get(key).and_then(Value::as_str).ok_or_else(|| format!("{path}.{key}: expected a string"))
}

pub fn name(name: &str, path: &str) -> Result<(), Fault> {
    let letters = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if (1..=64).contains(&name.len()) && name.chars().all(letters) {
        return Ok(());
    }
    Err(format!("{path}: {name:?} does not match ^[a-zA-Z0-9_-]{{1,64}}$"))
}

/// Checks a whole request body.
pub fn check(body: &Value) -> Result<(), Fault> {
    let body = object(body, "body")?;
    only(body, TOP, "body")?;
    if text(body, "model", "body")?.is_empty() {
        return Err("body.model: empty string".to_owned());
    }
    let streams = match body.get("stream") {
        None => false,
        Some(value) => value.as_bool().ok_or("body.stream: expected a boolean")?,
    };
    if body.contains_key("stream_options") && !streams {
        return Err("stream_options is only allowed when stream is true".to_owned());
    }
    number(body, "temperature", 0.0..=2.0)?;
    number(body, "top_p", 0.0..=1.0)?;
    for key in ["max_tokens", "max_completion_tokens"] {
        if body.get(key).is_some_and(|value| value.as_u64().is_none_or(|n| n == 0)) {
            return Err(format!("body.{key}: expected a positive integer"));
        }
    }
    tools(body)?;
    functions(body)?;
    let messages = body.get("messages").and_then(Value::as_array).ok_or("body.messages: expected an array")?;
    if messages.is_empty() {
        return Err("body.messages: empty array".to_owned());
    }
    conversation(messages)
}

fn number(body: &Map<String, Value>, key: &str, range: std::ops::RangeInclusive<f64>) -> Result<(), Fault> {
    match body.get(key) {
        Some(value) if !value.as_f64().is_some_and(|n| range.contains(&n)) => {
            Err(format!("body.{key}: {value} is not a number from {} to {}", range.start(), range.end()))
        }
        _ => Ok(()),
    }
}

fn tools(body: &Map<String, Value>) -> Result<(), Fault> {
    let Some(tools) = body.get("tools") else {
        for key in ["tool_choice", "parallel_tool_calls"] {
            if body.contains_key(key) {
                return Err(format!("{key} is only allowed when tools are specified"));
            }
        }
        return Ok(());
    };
    let tools = tools.as_array().ok_or("body.tools: expected an array")?;
    if tools.is_empty() || tools.len() > 128 {
        return Err(format!("body.tools: {} tools, expected 1 to 128", tools.len()));
    }
    let mut names = BTreeSet::new();
    for (i, tool) in tools.iter().enumerate() {
        let path = format!("tools[{i}]");
        let tool = object(tool, &path)?;
        only(tool, &["type", "function"], &path)?;
        if text(tool, "type", &path)? != "function" {
            return Err(format!("{path}.type: expected \"function\""));
        }
        let function = object(tool.get("function").unwrap_or(&Value::Null), &format!("{path}.function"))?;
        only(function, &["name", "description", "parameters", "strict"], &path)?;
        let called = text(function, "name", &path)?;
        name(called, &path)?;
        if !names.insert(called) {
            return Err(format!("{path}: duplicate function name {called:?}"));
        }
        if function.get("description").is_some_and(|d| d.as_str().is_none_or(|d| d.len() > 1024)) {
            return Err(format!("{path}.description: expected a string of at most 1024 bytes"));
        }
        if let Some(parameters) = function.get("parameters") {
            let top = object(parameters, &path)?;
            if top.get("type").and_then(Value::as_str) != Some("object") || !top.contains_key("properties") {
                return Err(format!("{path}.parameters: a schema of type \"object\" with properties is expected"));
            }
            if let Some(key) = ["anyOf", "oneOf", "allOf", "enum", "not"].iter().find(|key| top.contains_key(**key)) {
                return Err(format!("{path}.parameters: {key} is not allowed at the top level"));
            }
            schema(parameters, &format!("{path}.parameters"), 0)?;
        }
    }
    Ok(())
}

/// Checks `functions`, the predecessor of tools.
fn functions(body: &Map<String, Value>) -> Result<(), Fault> {
    let Some(list) = body.get("functions") else { return Ok(()) };
    if body.contains_key("tools") {
        return Err("functions and tools may not be given together".to_owned());
    }
    for (i, function) in list.as_array().ok_or("body.functions: expected an array")?.iter().enumerate() {
        let path = format!("functions[{i}]");
        let function = object(function, &path)?;
        only(function, &["name", "description", "parameters"], &path)?;
        name(text(function, "name", &path)?, &path)?;
        schema(function.get("parameters").ok_or_else(|| format!("{path}.parameters: missing"))?, &path, 0)?;
    }
    Ok(())
}

const TYPES: &[&str] = &["null", "boolean", "object", "array", "number", "string", "integer"];

pub fn schema(value: &Value, path: &str, depth: usize) -> Result<(), Fault> {
    if value.is_boolean() {
        return Ok(());
    }
    if depth > 40 {
        return Err(format!("{path}: nested too deeply"));
    }
    let map = object(value, path)?;
    let types: Vec<&Value> = match map.get("type") {
        None => Vec::new(),
        Some(Value::Array(types)) => types.iter().collect(),
        Some(one) => vec![one],
    };
    if let Some(wrong) = types.iter().find(|kind| !kind.as_str().is_some_and(|kind| TYPES.contains(&kind))) {
        return Err(format!("{path}.type: {wrong} is not a type"));
    }
    if types.iter().any(|kind| *kind == "array") && !map.contains_key("items") && !map.contains_key("prefixItems") {
        return Err(format!("{path}: array schema missing items"));
    }
    if map.get("enum").is_some_and(|list| list.as_array().is_none_or(Vec::is_empty)) {
        return Err(format!("{path}.enum: expected a non-empty array"));
    }
    if let Some(properties) = map.get("properties") {
        for (key, inner) in object(properties, path)? {
            schema(inner, &format!("{path}.{key}"), depth + 1)?;
        }
    }
    if let Some(required) = map.get("required") {
        let list = required.as_array().ok_or_else(|| format!("{path}.required: expected an array"))?;
        let known = map.get("properties").and_then(Value::as_object);
        for key in list {
            if !key.as_str().is_some_and(|key| known.is_some_and(|known| known.contains_key(key))) {
                return Err(format!("{path}.required: {key} is not a property"));
            }
        }
    }
    for key in ["items", "additionalProperties"] {
        if let Some(inner) = map.get(key) {
            schema(inner, &format!("{path}.{key}"), depth + 1)?;
        }
    }
    for key in ["anyOf", "oneOf", "allOf"] {
        if let Some(list) = map.get(key) {
            let list = list.as_array().filter(|list| !list.is_empty());
            for inner in list.ok_or_else(|| format!("{path}.{key}: expected a non-empty array"))? {
                schema(inner, &format!("{path}.{key}"), depth + 1)?;
            }
        }
    }
    Ok(())
}

/// Checks the messages, and that each call gets its result.
fn conversation(messages: &[Value]) -> Result<(), Fault> {
    let mut asked: BTreeSet<&str> = BTreeSet::new();
    let mut open: BTreeSet<&str> = BTreeSet::new();
    for (i, message) in messages.iter().enumerate() {
        let path = format!("messages[{i}]");
        let message = object(message, &path)?;
        let role = text(message, "role", &path)?;
        if role == "tool" {
            only(message, &["role", "content", "tool_call_id", "name"], &path)?;
            let id = text(message, "tool_call_id", &path)?;
            if !asked.contains(id) {
                return Err(format!(
                    "{path}: tool_call_id {id:?} was not asked for by the preceding assistant message"
                ));
            }
            if !open.remove(id) {
                return Err(format!("{path}: duplicate answer to tool_call_id {id:?}"));
            }
            content(message, &path)?;
            continue;
        }
        if !open.is_empty() {
            return Err(format!("{path}: tool_call_ids without an answer: {open:?}"));
        }
        asked.clear();
        match role {
            "system" | "developer" if i > 0 => {
                return Err(format!("{path}: the system message must be at the beginning"));
            }
            "system" | "developer" | "user" => {
                only(message, &["role", "content", "name"], &path)?;
                if content(message, &path)? == 0 {
                    return Err(format!("{path}.content: empty"));
                }
            }
            "function" => {
                only(message, &["role", "content", "name"], &path)?;
                let called = &messages[i.saturating_sub(1)]["function_call"]["name"];
                if *called != text(message, "name", &path)? {
                    return Err(format!("{path}: the message before it calls no such function"));
                }
                content(message, &path)?;
            }
            "assistant" if message.contains_key("function_call") => {
                only(message, &["role", "content", "function_call"], &path)?;
                let call = object(&message["function_call"], &path)?;
                only(call, &["name", "arguments"], &path)?;
                name(text(call, "name", &path)?, &path)?;
                if messages.get(i + 1).is_none_or(|next| next["role"] != "function") {
                    return Err(format!("{path}: a function_call without a result"));
                }
            }
            "assistant" => {
                asked = assistant(message, &path)?;
                open.clone_from(&asked);
            }
            other => return Err(format!("{path}.role: invalid value {other:?}")),
        }
    }
    if open.is_empty() { Ok(()) } else { Err(format!("tool_call_ids without an answer at the end: {open:?}")) }
}

/// Returns the length of `content`: a string, or an array of non-empty text parts.
fn content(message: &Map<String, Value>, path: &str) -> Result<usize, Fault> {
    match message.get("content") {
        Some(Value::String(text)) => Ok(text.trim().len()),
        Some(Value::Array(parts)) if !parts.is_empty() => parts.iter().try_fold(0, |length, part| {
            let part = object(part, path)?;
            if part.get("type").is_some_and(|kind| kind == "image_url") {
                return image(part, message, path).map(|()| length + 1);
            }
            let text = text(part, "text", path)?;
            if text.is_empty() { Err(format!("{path}.content: empty part")) } else { Ok(length + text.len()) }
        }),
        other => Err(format!("{path}.content: expected a string or parts, got {other:?}")),
    }
}

/// Checks a user's image, which must be part of the message itself.
fn image(part: &Map<String, Value>, message: &Map<String, Value>, path: &str) -> Result<(), Fault> {
    if message["role"] != "user" {
        return Err(format!("{path}.content: image_url is for users alone"));
    }
    only(part, &["type", "image_url"], path)?;
    let url = object(part.get("image_url").unwrap_or(&Value::Null), path)?;
    only(url, &["url", "detail"], path)?;
    let url = text(url, "url", path)?;
    let data = url.strip_prefix("data:image/").and_then(|rest| rest.split_once(";base64,"));
    match data {
        Some((kind, data)) => picture(kind, data, path),
        None => Err(format!("{path}.content: {url:.40} is not a data URL of an image")),
    }
}

/// Checks that `data` is an image of this kind in base64.
pub fn picture(kind: &str, data: &str, path: &str) -> Result<(), Fault> {
    let begins: &str = match kind {
        "png" => "iVBORw0KGg",
        "jpeg" => "/9j/",
        "gif" => "R0lGOD",
        "webp" => "UklGR",
        other => return Err(format!("{path}: image/{other} is not taken")),
    };
    let letters = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'+' | b'/' | b'=');
    if data.starts_with(begins) && data.len().is_multiple_of(4) && data.bytes().all(letters) && data.len() <= 5_000_000
    {
        return Ok(());
    }
    Err(format!("{path}: {data:.20} ({} characters) is not a {kind} in base64", data.len()))
}

/// Checks that an assistant message contains text or tool calls; returns the ids of its calls.
fn assistant<'a>(message: &'a Map<String, Value>, path: &str) -> Result<BTreeSet<&'a str>, Fault> {
    const KNOWN: &[&str] =
        &["role", "content", "name", "tool_calls", "refusal", "reasoning_content", "reasoning", "reasoning_details"];
    only(message, KNOWN, path)?;
    let length = match message.get("content") {
        None | Some(Value::Null) => 0,
        Some(_) => content(message, path)?,
    };
    let Some(calls) = message.get("tool_calls") else {
        return if length > 0 { Ok(BTreeSet::new()) } else { Err(format!("{path}: neither content nor tool_calls")) };
    };
    let calls = calls.as_array().filter(|calls| !calls.is_empty());
    let mut ids = BTreeSet::new();
    for (j, call) in calls.ok_or_else(|| format!("{path}.tool_calls: expected a non-empty array"))?.iter().enumerate() {
        let path = format!("{path}.tool_calls[{j}]");
        let call = object(call, &path)?;
        only(call, &["id", "type", "function"], &path)?;
        if text(call, "type", &path)? != "function" {
            return Err(format!("{path}.type: expected \"function\""));
        }
        let id = text(call, "id", &path)?;
        if id.is_empty() || id.len() > 40 {
            return Err(format!("{path}.id: {} bytes, expected 1 to 40", id.len()));
        }
        if !ids.insert(id) {
            return Err(format!("{path}.id: duplicate {id:?}"));
        }
        let function = object(call.get("function").unwrap_or(&Value::Null), &path)?;
        only(function, &["name", "arguments"], &path)?;
        name(text(function, "name", &path)?, &path)?;
        let arguments = text(function, "arguments", &path)?;
        if !serde_json::from_str::<Value>(arguments).is_ok_and(|value| value.is_object()) {
            return Err(format!("{path}.arguments: not a JSON object: {arguments}"));
        }
    }
    Ok(ids)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn with(messages: &Value) -> Value {
        json!({"model": "m", "messages": messages})
    }

    #[test]
    fn requests_are_accepted_as_by_services() {
        let call = |id: &str| json!({"id": id, "type": "function", "function": {"name": "f", "arguments": "{}"}});
        let asks = |ids: &[&str]| json!({"role": "assistant", "content": null, "tool_calls": ids.iter().map(|id| call(id)).collect::<Vec<_>>()});
        let user = json!({"role": "user", "content": "hi"});
        let tool = |id: &str| json!({"role": "tool", "tool_call_id": id, "content": "done"});
        let fine = [with(&json!([user])), with(&json!([user, asks(&["a", "b"]), tool("b"), tool("a"), user]))];
        for body in fine {
            assert_eq!(check(&body), Ok(()), "{body}");
        }
        let mut broken_arguments = asks(&["a"]);
        broken_arguments["tool_calls"][0]["function"]["arguments"] = json!("{\"path\":");
        let wrong = [
            (json!({"model": "m", "messages": [user], "cat": 1}), "unknown parameter"),
            (with(&json!([])), "empty array"),
            (with(&json!([{"role": "user", "content": ""}])), "empty"),
            (with(&json!([{"role": "robot", "content": "hi"}])), "role"),
            (with(&json!([user, tool("a")])), "not asked for"),
            (with(&json!([user, asks(&["a"]), user])), "without an answer"),
            (with(&json!([user, asks(&["a"])])), "without an answer at the end"),
            (with(&json!([user, asks(&["a", "a"])])), "duplicate"),
            (with(&json!([user, asks(&["a"]), tool("a"), tool("a")])), "duplicate answer"),
            (with(&json!([user, broken_arguments, tool("a")])), "not a JSON object"),
            (with(&json!([user, {"role": "assistant", "content": ""}])), "neither"),
            (json!({"model": "m", "messages": [user], "tools": []}), "1 to 128"),
            (
                json!({"model": "m", "messages": [user], "tools": [{"type": "function",
                "function": {"name": "a b"}}]}),
                "does not match",
            ),
            (
                json!({"model": "m", "messages": [user], "tools": [{"type": "function",
                "function": {"name": "f", "parameters": {"type": "object", "properties": {"a": {"type": "array"}}}}}]}),
                "missing items",
            ),
        ];
        for (body, why) in wrong {
            assert!(check(&body).is_err_and(|fault| fault.contains(why)), "{body} -> {:?}", check(&body));
        }
    }
}
