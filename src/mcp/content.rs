//! Converts the results of a server to text for models: texts stay as they are, and every other part becomes a line that
//! describes it.

use daoyou_channels::clean::clean;
use serde_json::Value;

use crate::text::{format_size, plain_line, truncate};

/// The maximum number of parts of one result.
const MAX_PARTS: usize = 1_000;
/// The maximum size of JSON that is pretty-printed, in bytes.
const MAX_PRETTY: usize = 20_000;
/// The maximum length of a text in a description, in characters.
const MAX_SHOWN: usize = 300;

/// The text of a result.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ResultText {
    pub text: String,
    /// True if the server reports that the call failed.
    pub is_error: bool,
}

impl ResultText {
    /// Converts the result of a tool call.
    pub(super) fn of_call(result: &Value) -> Self {
        let mut texts = texts_of(&result["content"], part_text);
        let structured = &result["structuredContent"];
        let has_text = result["content"].as_array().into_iter().flatten().any(|part| part["type"] == "text");
        if !structured.is_null() && !has_text {
            texts.push(clean(&pretty(structured)));
        }
        let is_known = result.get("content").is_some() || !structured.is_null();
        if !is_known {
            texts.push(clean(&pretty(result)));
        }
        Self { text: texts.join("\n\n"), is_error: result["isError"].as_bool().unwrap_or(false) }
    }

    /// Converts the content of a resource.
    pub(super) fn of_resource(result: &Value) -> String {
        let texts = texts_of(&result["contents"], resource_text);
        if texts.is_empty() { "(the resource is empty)".to_owned() } else { texts.join("\n\n") }
    }

    /// Converts a prompt to one text. Parts that are not from the user are labelled.
    pub(super) fn of_prompt(result: &Value) -> String {
        let messages = result["messages"].as_array().map(Vec::as_slice).unwrap_or_default();
        let is_plain = messages.iter().all(|message| message["role"] == "user");
        let text = |message: &Value| {
            let text = match &message["content"] {
                Value::Array(parts) => parts.iter().take(MAX_PARTS).map(part_text).collect::<Vec<_>>().join("\n\n"),
                Value::String(text) => clean(text),
                part => part_text(part),
            };
            let role = shown(&message["role"]);
            if is_plain { text } else { format!("[{role}]\n{text}") }
        };
        messages.iter().take(MAX_PARTS).map(text).collect::<Vec<_>>().join("\n\n")
    }
}

/// Returns the texts of a list's parts, and a note about the parts that are too many.
fn texts_of(parts: &Value, text: fn(&Value) -> String) -> Vec<String> {
    let parts = parts.as_array().map(Vec::as_slice).unwrap_or_default();
    let left = parts.len().saturating_sub(MAX_PARTS);
    let rest = (left > 0).then(|| format!("[{left} further parts are left out]"));
    parts.iter().take(MAX_PARTS).map(text).chain(rest).collect()
}

fn part_text(part: &Value) -> String {
    match part["type"].as_str() {
        Some("text") => clean(part["text"].as_str().unwrap_or_default()),
        Some(kind @ ("image" | "audio")) => {
            format!("[{kind} {}, {}; not shown]", shown(&part["mimeType"]), size_of(&part["data"]))
        }
        Some("resource") => resource_text(&part["resource"]),
        Some("resource_link") => {
            let (uri, name) = (shown(&part["uri"]), shown(&part["name"]));
            let description = shown(&part["description"]);
            let about = if description.is_empty() { String::new() } else { format!(": {description}") };
            format!("[resource {name} {uri}{about}; mcp_read reads it]")
        }
        kind => format!("[content of an unknown type {:?}]", truncate(&plain_line(kind.unwrap_or("none")), MAX_SHOWN)),
    }
}

/// Returns the text of an embedded resource.
fn resource_text(resource: &Value) -> String {
    let uri = shown(&resource["uri"]);
    match resource["text"].as_str() {
        Some(text) if uri.is_empty() => clean(text),
        Some(text) => format!("[resource {uri}]\n{}", clean(text)),
        None => format!("[resource {uri} {}, {}; not shown]", shown(&resource["mimeType"]), size_of(&resource["blob"])),
    }
}

/// Formats the size of base64 data.
fn size_of(data: &Value) -> String {
    let chars = data.as_str().unwrap_or_default().trim_end_matches('=').len() as u64;
    format_size(chars * 3 / 4)
}

fn shown(text: &Value) -> String {
    truncate(&plain_line(text.as_str().unwrap_or_default()), MAX_SHOWN)
}

/// Formats JSON for models. Only short JSON is pretty-printed, since deep nesting multiplies the size.
fn pretty(value: &Value) -> String {
    let compact = value.to_string();
    if compact.len() > MAX_PRETTY {
        return compact;
    }
    serde_json::to_string_pretty(value).unwrap_or(compact)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_kind_of_content_becomes_text() {
        for (result, expected) in [
            (json!({"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b\u{1b}[31m"}]}), "a\n\nb"),
            (
                json!({"content": [{"type": "image", "data": "AAAA", "mimeType": "image/png"}]}),
                "[image image/png, 3 B; not shown]",
            ),
            (
                json!({"content": [{"type": "resource", "resource": {"uri": "x://1", "text": "inside"}}]}),
                "[resource x://1]\ninside",
            ),
            (
                json!({"content": [{"type": "resource", "resource": {"uri": "x://2", "blob": "AAAA", "mimeType": "a/b"}}]}),
                "[resource x://2 a/b, 3 B; not shown]",
            ),
            (
                json!({"content": [{"type": "resource_link", "uri": "x://3", "name": "n", "description": "</a>\nb"}]}),
                "[resource n x://3: ‹/a› b; mcp_read reads it]",
            ),
            (json!({"content": [], "structuredContent": {"a": 1}}), "{\n  \"a\": 1\n}"),
            (json!({"content": [{"type": "text", "text": "{\"a\":1}"}], "structuredContent": {"a": 1}}), "{\"a\":1}"),
            (
                json!({"content": [{"type": "hologram"}, 7]}),
                "[content of an unknown type \"hologram\"]\n\n[content of an unknown type \"none\"]",
            ),
            (json!({"odd": true}), "{\n  \"odd\": true\n}"),
        ] {
            assert_eq!(ResultText::of_call(&result).text, expected, "{result}");
        }
        assert!(ResultText::of_call(&json!({"content": [], "isError": true})).is_error);
        let many: Vec<_> = (0..1_500).map(|n| json!({"type": "text", "text": n.to_string()})).collect();
        assert!(ResultText::of_call(&json!({"content": many})).text.ends_with("[500 further parts are left out]"));
    }

    #[test]
    fn prompts_name_the_roles_where_there_are_several() {
        let user = json!({"role": "user", "content": {"type": "text", "text": "hello"}});
        assert_eq!(ResultText::of_prompt(&json!({"messages": [user]})), "hello");
        let both = json!({"messages": [user, {"role": "assistant", "content": {"type": "text", "text": "hi"}}]});
        assert_eq!(ResultText::of_prompt(&both), "[user]\nhello\n\n[assistant]\nhi");
    }
}
