//! Reads the text after `Action Input:` as the arguments of a call.

use serde_json::{Deserializer, Map, Value};

use crate::chat::ToolSpec;

/// The result of reading an input as JSON.
#[derive(Clone, Debug, PartialEq)]
pub enum JsonInput {
    /// The input begins with a whole value; what follows is ignored.
    Whole(Value),
    /// The input begins an object or a list that does not end.
    Cut,
    No,
}

/// Reads an input as JSON; accepts unescaped line breaks in strings, which models often write.
pub fn read_json(input: &str) -> JsonInput {
    let text = unfenced(input);
    let escaped = with_escaped_breaks(text);
    match Deserializer::from_str(&escaped).into_iter::<Value>().next() {
        Some(Ok(value)) => JsonInput::Whole(value),
        Some(Err(error)) if error.is_eof() && text.starts_with(['{', '[']) => JsonInput::Cut,
        _ => JsonInput::No,
    }
}

/// Returns the arguments of a call, as JSON if the input or the schema of `tool` allows it. Any other input stays as written, so
/// that validation can report the error.
pub fn arguments(input: &str, tool: Option<&ToolSpec>) -> String {
    let text = unfenced(input);
    if is_nothing(text) {
        return "{}".to_owned();
    }
    match read_json(text) {
        JsonInput::Whole(Value::Object(object)) => Value::Object(object).to_string(),
        JsonInput::Whole(Value::String(word)) => of_word(&word, tool),
        JsonInput::Whole(value @ (Value::Array(_) | Value::Number(_) | Value::Bool(_))) => {
            match tool.map(only_argument) {
                Some(Some((name, false))) => with(name, value),
                _ => of_word(text, tool),
            }
        }
        _ if text.starts_with('{') => python_object(text).unwrap_or_else(|| text.to_owned()),
        _ => of_word(text, tool),
    }
}

/// Returns a plain text as the only argument that it can mean.
fn of_word(word: &str, tool: Option<&ToolSpec>) -> String {
    match tool.map(only_argument) {
        None => with("input", word.into()),
        Some(Some((name, true))) => with(name, word.into()),
        Some(_) => word.to_owned(),
    }
}

fn with(name: &str, value: Value) -> String {
    Value::Object(Map::from_iter([(name.to_owned(), value)])).to_string()
}

/// Returns the argument that an input without names must mean, and whether it is a string: the only required argument, or else the
/// only one.
fn only_argument(tool: &ToolSpec) -> Option<(&str, bool)> {
    let properties = tool.parameters.get("properties")?.as_object()?;
    let required = tool.parameters.get("required").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let name = match (required, properties.len()) {
        ([one], _) => one.as_str()?,
        ([], 1) => properties.keys().next()?,
        _ => return None,
    };
    Some((name, properties.get(name)?.get("type").is_none_or(|kind| kind == "string")))
}

fn is_nothing(text: &str) -> bool {
    text.is_empty() || ["none", "n/a", "null", "nothing", "无"].iter().any(|word| text.eq_ignore_ascii_case(word))
}

/// Removes a code fence or backticks around the input.
fn unfenced(input: &str) -> &str {
    let text = input.trim();
    let Some(fenced) = text.strip_prefix("```") else {
        return text.strip_prefix('`').and_then(|text| text.strip_suffix('`')).map_or(text, str::trim);
    };
    // A language name may follow the opening fence.
    let inside = match fenced.split_once('\n') {
        Some((language, inside)) if language.trim().chars().all(char::is_alphanumeric) => inside,
        _ => fenced,
    };
    inside.split("\n```").next().unwrap_or(inside).trim_end_matches('`').trim()
}

/// Escapes line breaks and tabs inside strings.
fn with_escaped_breaks(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let (mut in_string, mut escaped) = (false, false);
    for char in text.chars() {
        match char {
            '\n' if in_string => out.push_str("\\n"),
            '\r' if in_string => out.push_str("\\r"),
            '\t' if in_string => out.push_str("\\t"),
            other => out.push(other),
        }
        in_string ^= char == '"' && !escaped;
        escaped = in_string && char == '\\' && !escaped;
    }
    out
}

/// Converts `{'path': 'x'}`, as some models write it, to JSON if it is unambiguous.
fn python_object(text: &str) -> Option<String> {
    if text.contains(['"', '\\']) {
        return None;
    }
    match serde_json::from_str(&text.replace('\'', "\"")) {
        Ok(Value::Object(object)) => Some(Value::Object(object).to_string()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn tool(required: &[&str], properties: &Value) -> ToolSpec {
        let parameters = json!({"type": "object", "required": required, "properties": properties});
        ToolSpec { name: "x".to_owned(), description: String::new(), parameters }
    }

    #[test]
    fn inputs_become_arguments() {
        let text = || json!({"type": "string"});
        let one = tool(&["path"], &json!({"path": text(), "depth": {"type": "integer"}}));
        let two = tool(&["path", "content"], &json!({"path": text(), "content": text()}));
        let number = tool(&[], &json!({"count": {"type": "integer"}}));
        let list = tool(&["names"], &json!({"names": {"type": "array"}}));
        for (input, tool, expected) in [
            (r#"{"path": "a"}"#, Some(&one), r#"{"path":"a"}"#),
            ("```json\n{\"path\": \"a\"}\n```", Some(&one), r#"{"path":"a"}"#),
            ("```{\"path\": \"a\"}```", Some(&one), r#"{"path":"a"}"#),
            ("`{\"path\": \"a\"}`", Some(&one), r#"{"path":"a"}"#),
            ("{\"path\": \"a\"}\n```", Some(&one), r#"{"path":"a"}"#),
            ("{\"path\": \"a\"} // the file", Some(&one), r#"{"path":"a"}"#),
            ("{\"path\":\n \"a\",\n \"content\": \"1\n2\"}", Some(&two), r#"{"content":"1\n2","path":"a"}"#),
            ("{'path': 'a'}", Some(&one), r#"{"path":"a"}"#),
            ("notes.txt", Some(&one), r#"{"path":"notes.txt"}"#),
            ("\"notes.txt\"", Some(&one), r#"{"path":"notes.txt"}"#),
            ("`notes.txt`", Some(&one), r#"{"path":"notes.txt"}"#),
            ("```\none\ntwo\n```", Some(&one), r#"{"path":"one\ntwo"}"#),
            ("7", Some(&one), r#"{"path":"7"}"#),
            ("7", Some(&number), r#"{"count":7}"#),
            ("seven", Some(&number), "seven"),
            (r#"["a", "b"]"#, Some(&list), r#"{"names":["a","b"]}"#),
            ("notes.txt", Some(&two), "notes.txt"),
            ("notes.txt", None, r#"{"input":"notes.txt"}"#),
            ("你好", None, r#"{"input":"你好"}"#),
            (r#"{"path": "#, Some(&one), r#"{"path":"#),
            ("", Some(&one), "{}"),
            ("None", Some(&one), "{}"),
            ("无", None, "{}"),
            ("{}", None, "{}"),
        ] {
            assert_eq!(arguments(input, tool), expected, "{input}");
        }
    }

    #[test]
    fn an_unterminated_object_is_detected() {
        for (input, whole) in [
            ("{\"a\": 1}", Some(true)),
            ("{\"a\": 1} and more", Some(true)),
            ("{\"a\": \"x\ny", Some(false)),
            ("```json\n{\"a\":", Some(false)),
            ("[1, 2", Some(false)),
            ("words", None),
            ("{words}", None),
            ("", None),
        ] {
            let json = read_json(input);
            let found = match json {
                JsonInput::Whole(_) => Some(true),
                JsonInput::Cut => Some(false),
                JsonInput::No => None,
            };
            assert_eq!(found, whole, "{input}");
        }
    }
}
