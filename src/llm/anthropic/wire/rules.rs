//! The rules of the service for a request, written independently of the code that builds requests, to check it.

use std::collections::HashSet;

use serde_json::Value;

/// Returns the first rule that a request breaks.
pub(super) fn broken_rule(body: &Value) -> Option<String> {
    let messages = body["messages"].as_array()?;
    let blocks = |message: &Value| message["content"].as_array().cloned().unwrap_or_default();
    let ids = |message: &Value, kind: &str, field: &str| -> Vec<String> {
        let of_kind = blocks(message).into_iter().filter(|block| block["type"] == kind);
        of_kind.map(|block| block[field].as_str().unwrap_or_default().to_owned()).collect()
    };
    let mut seen = HashSet::new();
    for (at, message) in messages.iter().enumerate() {
        let content = blocks(message);
        let asked = ids(message, "tool_use", "id");
        let answered = ids(message, "tool_result", "tool_use_id");
        let before = at.checked_sub(1).map_or(Vec::new(), |at| ids(&messages[at], "tool_use", "id"));
        let rule = if message["role"] != if at % 2 == 0 { "user" } else { "assistant" } {
            "the user begins and roles alternate"
        } else if content.is_empty() {
            "no message is empty"
        } else if content.iter().any(|block| block["type"] == "text" && is_blank(&block["text"])) {
            "no text is blank"
        } else if answered != before {
            "each call is answered once, in order, in the next message"
        } else if content.iter().take(answered.len()).any(|block| block["type"] != "tool_result") {
            "results stand first"
        } else if !asked.iter().all(|id| is_id(id) && seen.insert(id.clone())) {
            "ids are clean and stand once"
        } else if content.iter().any(|block| block["type"] == "tool_use" && !block["input"].is_object()) {
            "inputs are objects"
        } else {
            continue;
        };
        return Some(format!("messages.{at}: {rule}"));
    }
    rule_of_the_whole(body, messages)
}

fn rule_of_the_whole(body: &Value, messages: &[Value]) -> Option<String> {
    let text = body["messages"].to_string();
    let marks = body.to_string().matches("\"cache_control\"").count();
    let budget = body["thinking"]["budget_tokens"].as_u64();
    let before_last = messages.len().checked_sub(2).map_or(&Value::Null, |at| &messages[at]);
    let calls_before_last = before_last["content"].as_array().into_iter().flatten();
    let has_calls = calls_before_last.clone().any(|block| block["type"] == "tool_use");
    let begins = &before_last["content"][0]["type"];
    let rule = if messages.last().is_none_or(|last| last["role"] != "user") {
        "the user ends"
    } else if !(1..=4).contains(&marks) {
        "there is something to keep, and at most four marks"
    } else if text.contains("\"tool_use\"") && body["tools"].as_array().is_none_or(Vec::is_empty) {
        "calls stand next to tools"
    } else if body["max_tokens"].as_u64().is_none_or(|tokens| tokens == 0) {
        "there is a longest answer"
    } else if budget.is_some_and(|budget| budget < 1_024 || budget >= body["max_tokens"].as_u64().unwrap_or(0)) {
        "thoughts leave room"
    } else if budget.is_some() && body.get("temperature").is_some() {
        "thinking has its own temperature"
    } else if budget.is_some() && has_calls && begins != "thinking" && begins != "redacted_thinking" {
        "where the model thinks, the last answer with calls begins with a thought"
    } else {
        return None;
    };
    Some(rule.to_owned())
}

fn is_blank(text: &Value) -> bool {
    text.as_str().is_none_or(|text| text.trim().is_empty())
}

fn is_id(id: &str) -> bool {
    !id.is_empty() && id.chars().all(|char| char.is_ascii_alphanumeric() || matches!(char, '_' | '-'))
}
