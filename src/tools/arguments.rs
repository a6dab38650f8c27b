//! Parses the arguments that a model wrote for a call into a value that satisfies the tool's schema.

use std::future::Future;

use daoyou_channels::json;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::tool::ToolOutcome;
use super::tool_result::ToolResult;
use crate::chat::ToolSpec;
use crate::text::truncate;

/// Runs a call with its arguments as `Args`. The call fails if the arguments do not fit the type.
pub async fn with_arguments<Args, Running>(arguments: Value, run: impl FnOnce(Args) -> Running) -> ToolOutcome
where
    Args: DeserializeOwned,
    Running: Future<Output: Into<ToolOutcome>>,
{
    match serde_json::from_value(arguments) {
        Ok(args) => run(args).await.into(),
        Err(error) => ToolResult::failed(error.to_string()).into(),
    }
}

/// Argument names that models use, each with daoyou's name. An alias applies if a tool has the second name and not the first.
const ALIASES: &[(&str, &str)] = &[
    ("file_path", "path"),
    ("filepath", "path"),
    ("filePath", "path"),
    ("file", "path"),
    ("filename", "path"),
    ("directory", "path"),
    ("dir", "path"),
    ("dir_path", "path"),
    ("test_path", "path"),
    ("test_framework", "framework"),
    ("repo_path", "path"),
    ("paths", "path"),
    ("chat_files", "files"),
    ("mentioned_idents", "idents"),
    ("maxTokens", "max_tokens"),
    ("maxDepth", "max_depth"),
    ("depth", "max_depth"),
    ("language", "lang"),
    ("replacement", "rewrite"),
    ("dryRun", "dry_run"),
    ("repoPath", "repo_path"),
    ("repository", "repo_path"),
    ("maxCount", "max_count"),
    ("cached", "staged"),
    ("oldStr", "old_text"),
    ("old_str", "old_text"),
    ("old_string", "old_text"),
    ("oldString", "old_text"),
    ("oldText", "old_text"),
    ("search", "old_text"),
    ("newStr", "new_text"),
    ("new_str", "new_text"),
    ("new_string", "new_text"),
    ("newString", "new_text"),
    ("newText", "new_text"),
    ("replace", "new_text"),
    ("replaceAll", "replace_all"),
    ("regex", "pattern"),
    ("query", "pattern"),
    ("search_term", "pattern"),
    ("file_pattern", "glob"),
    ("filePattern", "glob"),
    ("include", "glob"),
    ("include_pattern", "glob"),
    ("includePattern", "glob"),
    ("-i", "ignore_case"),
    ("case_insensitive", "ignore_case"),
    ("ignoreCase", "ignore_case"),
    ("maxResults", "max_results"),
    ("max_matches", "max_results"),
    ("max_count", "max_results"),
    ("head_limit", "max_results"),
    ("limit", "max_results"),
    ("cmd", "command"),
    ("script", "command"),
    ("text", "content"),
    ("message", "content"),
    ("contents", "content"),
    ("chatId", "chat_id"),
    ("q", "query"),
    ("prompt", "message"),
    ("task", "message"),
    ("text", "message"),
    ("content", "message"),
    ("at_time", "at"),
    ("atTime", "at"),
    ("everySeconds", "every_seconds"),
    ("interval", "every"),
    ("cron", "cron_expr"),
    ("cronExpr", "cron_expr"),
    ("cron_expression", "cron_expr"),
    ("timezone", "tz"),
    ("jobId", "job_id"),
    ("id", "job_id"),
];

/// Argument names whose values mean the opposite of daoyou's arguments.
const OPPOSITES: &[(&str, &str)] = &[("case_sensitive", "ignore_case"), ("caseSensitive", "ignore_case")];

/// Arguments of other systems that a tool ignores, because it always does what they ask for.
const NEEDLESS: &[(&str, &[&str])] =
    &[("create_dir", &["parents", "recursive", "exist_ok"]), ("delete_file", &["recursive", "force"])];

/// The longest part of a model's text that an error repeats, in characters.
const ECHO_CHARS: usize = 80;
/// The maximum number of faults that one error names.
const MAX_FAULTS: usize = 20;
/// The maximum depth of nested objects and arrays that is checked.
const MAX_DEPTH: u32 = 16;

/// Parses the arguments, converts unambiguous values ("5" to 5), and checks the result.
///
/// # Errors
/// Lists all faults at once, worded for the model.
pub fn parse_arguments(spec: &ToolSpec, text: &str) -> Result<Value, String> {
    let invalid = |what: String| format!("Invalid params for tool {:?}: {what}", spec.name);
    let mut arguments = parse_object(text).map_err(invalid)?;
    let none = Map::new();
    let properties = spec.parameters.get("properties").and_then(Value::as_object).unwrap_or(&none);
    for (alias, name) in ALIASES {
        if is_alias(properties, alias, name)
            && !arguments.contains_key(*name)
            && let Some(value) = arguments.remove(*alias)
        {
            arguments.insert((*name).to_owned(), value);
        }
    }
    for (opposite, name) in OPPOSITES {
        if is_alias(properties, opposite, name)
            && !arguments.contains_key(*name)
            && let Some(value) = arguments.get(*opposite).and_then(truth)
        {
            arguments.remove(*opposite);
            arguments.insert((*name).to_owned(), Value::Bool(!value));
        }
    }
    if let Some((_, needless)) = NEEDLESS.iter().find(|(tool, _)| *tool == spec.name) {
        arguments.retain(|name, _| !needless.contains(&name.as_str()));
    }
    let mut arguments = Value::Object(arguments);
    let mut faults = Vec::new();
    coerce_and_check(&mut arguments, &spec.parameters, "", &mut faults, MAX_DEPTH);
    if faults.is_empty() {
        return Ok(arguments);
    }
    let more = faults.len().saturating_sub(MAX_FAULTS);
    faults.truncate(MAX_FAULTS);
    if more > 0 {
        faults.push(format!("{more} more"));
    }
    Err(invalid(faults.join("; ")))
}

/// Returns the tool's own name for the argument that a model calls `word`.
pub fn argument_name<'a>(spec: &ToolSpec, word: &'a str) -> &'a str {
    let Some(properties) = spec.parameters.get("properties").and_then(Value::as_object) else { return word };
    let found = ALIASES.iter().find(|(alias, name)| *alias == word && is_alias(properties, alias, name));
    found.map_or(word, |(_, name)| name)
}

/// Returns the value of a boolean, even if it is written as a string.
fn truth(value: &Value) -> Option<bool> {
    match value {
        Value::String(text) => text.trim().to_ascii_lowercase().parse().ok(),
        other => other.as_bool(),
    }
}

fn is_alias(properties: &Map<String, Value>, alias: &str, name: &str) -> bool {
    properties.contains_key(name) && !properties.contains_key(alias)
}

fn parse_object(text: &str) -> Result<Map<String, Value>, String> {
    if text.trim().is_empty() {
        return Ok(Map::new());
    }
    // A repeated key is refused: another program could take the other value.
    let mut value: Value = json::from_str(text)
        .map_err(|error| if error.is_data() { error.to_string() } else { format!("not valid JSON: {error}") })?;
    // Some models encode the object as a string a second time.
    if let Value::String(inner) = &value {
        match json::from_str(inner) {
            Ok(inner) => value = inner,
            Err(error) if error.is_data() => return Err(error.to_string()),
            Err(_) => {}
        }
    }
    match value {
        Value::Object(arguments) => Ok(arguments),
        Value::Null => Ok(Map::new()),
        other => Err(format!("expected a JSON object, got {}", type_name(&other))),
    }
}

/// Checks `value` against `schema`, and converts unambiguous values.
fn coerce_and_check(value: &mut Value, schema: &Value, at: &str, faults: &mut Vec<String>, depth: u32) {
    if depth == 0 {
        return faults.push(format!("{at}: nested too deeply"));
    }
    if let Some(Value::Array(choices)) = schema.get("anyOf").or_else(|| schema.get("oneOf")) {
        return apply_first_choice(value, choices, at, faults, depth);
    }
    let wanted = schema.get("type").and_then(Value::as_str).unwrap_or("");
    coerce(value, wanted);
    let fits = match wanted {
        "string" => value.is_string(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        _ => true,
    };
    if !fits {
        return faults.push(format!("{}expected {wanted}, got {}", path_prefix(at), type_name(value)));
    }
    if let Some(Value::Array(allowed)) = schema.get("enum")
        && !allowed.contains(value)
    {
        let allowed: Vec<_> = allowed.iter().map(ToString::to_string).collect();
        return faults.push(format!("{}{} is not one of {}", path_prefix(at), excerpt(value), allowed.join(", ")));
    }
    let low = schema.get("minimum").and_then(Value::as_f64).filter(|low| value.as_f64().is_some_and(|got| got < *low));
    let high = schema.get("maximum").and_then(Value::as_f64).filter(|top| value.as_f64().is_some_and(|got| got > *top));
    if let Some(low) = low {
        faults.push(format!("{}must be at least {low}", path_prefix(at)));
    }
    if let Some(high) = high {
        faults.push(format!("{}must be at most {high}", path_prefix(at)));
    }
    match value {
        Value::Array(items) => {
            if let Some(schema) = schema.get("items") {
                for (index, item) in items.iter_mut().enumerate() {
                    coerce_and_check(item, schema, &format!("{at}[{index}]"), faults, depth - 1);
                }
            }
        }
        Value::Object(fields) => coerce_and_check_fields(fields, schema, at, faults, depth),
        _ => {}
    }
}

fn coerce_and_check_fields(
    fields: &mut Map<String, Value>,
    schema: &Value,
    at: &str,
    faults: &mut Vec<String>,
    depth: u32,
) {
    let none = Map::new();
    let properties = schema.get("properties").and_then(Value::as_object).unwrap_or(&none);
    // Many models write `null` for an argument that they omit.
    fields.retain(|name, value| !(value.is_null() && properties.contains_key(name)));
    let required = schema.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
    let missing: Vec<_> = required.filter(|name| !fields.contains_key(*name)).collect();
    if !missing.is_empty() {
        faults.push(format!("{}missing: {}", path_prefix(at), missing.join(", ")));
    }
    if schema.get("additionalProperties") == Some(&Value::Bool(false)) {
        let unknown = fields.keys().filter(|name| !properties.contains_key(*name));
        let unknown: Vec<_> = unknown.take(MAX_FAULTS).map(|name| truncate(name, ECHO_CHARS)).collect();
        if !unknown.is_empty() {
            let known: Vec<_> = properties.keys().map(String::as_str).collect();
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            faults.push(format!("{}unknown: {} (known: {known})", path_prefix(at), unknown.join(", ")));
        }
    }
    for (name, schema) in properties {
        if let Some(value) = fields.get_mut(name) {
            let at = if at.is_empty() { name.clone() } else { format!("{at}.{name}") };
            coerce_and_check(value, schema, &at, faults, depth - 1);
        }
    }
}

/// Applies the first choice that the value fits.
fn apply_first_choice(value: &mut Value, choices: &[Value], at: &str, faults: &mut Vec<String>, depth: u32) {
    let mut first = Vec::new();
    for (index, choice) in choices.iter().enumerate() {
        let mut tried = value.clone();
        let mut found = Vec::new();
        coerce_and_check(&mut tried, choice, at, &mut found, depth - 1);
        if found.is_empty() {
            *value = tried;
            return;
        }
        if index == 0 {
            first = found;
        }
    }
    faults.append(&mut first);
}

fn coerce(value: &mut Value, wanted: &str) {
    let converted = match (wanted, &*value) {
        ("integer", Value::String(text)) => text.trim().parse::<i64>().ok().map(Value::from),
        // JSON Schema counts 5.0 as an integer.
        ("integer", Value::Number(number)) if number.is_f64() => {
            number.as_f64().filter(|n| n.fract() == 0.0 && n.abs() < 9e15).map(|n| Value::from(n as i64))
        }
        ("number", Value::String(text)) => {
            text.trim().parse::<f64>().ok().and_then(serde_json::Number::from_f64).map(Value::Number)
        }
        ("boolean", Value::String(_)) => truth(value).map(Value::Bool),
        ("string", Value::Number(number)) => Some(Value::String(number.to_string())),
        ("string", Value::Bool(word)) => Some(Value::String(word.to_string())),
        ("string", Value::Array(items)) => match items.as_slice() {
            [Value::String(only)] => Some(Value::String(only.clone())),
            _ => None,
        },
        ("array", Value::String(text)) => json::from_str(text).ok().filter(Value::is_array),
        ("object", Value::String(text)) => json::from_str(text).ok().filter(Value::is_object),
        _ => None,
    };
    if let Some(converted) = converted {
        *value = converted;
    }
}

fn path_prefix(at: &str) -> String {
    if at.is_empty() { String::new() } else { format!("{at}: ") }
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn excerpt(value: &Value) -> String {
    truncate(&value.to_string(), ECHO_CHARS)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn spec() -> ToolSpec {
        let parameters = json!({
            "type": "object", "additionalProperties": false, "required": ["path"],
            "properties": {
                "path": { "type": "string" }, "offset": { "type": "integer", "minimum": 1 },
                "all": { "type": "boolean" }, "tags": { "type": "array", "items": { "type": "string" } },
                "mode": { "type": "string", "enum": ["a", "b"] },
            },
        });
        ToolSpec { name: "x".to_owned(), description: String::new(), parameters }
    }

    #[test]
    fn unambiguous_arguments_are_converted() {
        for (text, expected) in [
            (r#"{"path":"p"}"#, json!({ "path": "p" })),
            (r#"{"file_path":"p","offset":"5"}"#, json!({ "path": "p", "offset": 5 })),
            (r#"{"path":7,"offset":5.0,"all":"True"}"#, json!({ "path": "7", "offset": 5, "all": true })),
            (r#"{"path":"p","offset":null,"tags":"[\"t\"]"}"#, json!({ "path": "p", "tags": ["t"] })),
            (r#"{"paths":["p"]}"#, json!({ "path": "p" })),
            (r#""{\"path\":\"p\"}""#, json!({ "path": "p" })),
        ] {
            assert_eq!(parse_arguments(&spec(), text).as_ref(), Ok(&expected), "{text}");
        }
        let empty = ToolSpec { parameters: json!({ "type": "object", "properties": {} }), ..spec() };
        for text in ["", "  ", "{}", "null"] {
            assert_eq!(parse_arguments(&empty, text), Ok(json!({})), "{text}");
        }
    }

    #[test]
    fn one_error_names_all_faults() {
        for (text, expected) in [
            (
                r#"{"foo":1,"offset":"five"}"#,
                "missing: path; unknown: foo (known: all, mode, offset, path, tags); offset: expected integer, got string",
            ),
            (
                r#"{"path":"p","offset":0,"mode":"c"}"#,
                r#"mode: "c" is not one of "a", "b"; offset: must be at least 1"#,
            ),
            (r#"{"path":"p","tags":["a",{}]}"#, "tags[1]: expected string, got object"),
            (r#"{"path":"p","file_path":"q"}"#, "unknown: file_path (known: all, mode, offset, path, tags)"),
            (r#"[1]"#, "expected a JSON object, got array"),
            (r#"{"path":"#, "not valid JSON: EOF while parsing a value at line 1 column 8"),
            (r#"{"path":"a","path":"b"}"#, r#"the key "path" stands twice in the object at $ at line 1 column 18"#),
            (
                r#""{\"path\":\"a\",\"path\":\"b\"}""#,
                r#"the key "path" stands twice in the object at $ at line 1 column 18"#,
            ),
            (r#"{"path":"p","tags":"[{\"a\":1,\"a\":2}]"}"#, "tags: expected array, got string"),
        ] {
            let error = parse_arguments(&spec(), text).unwrap_err();
            assert_eq!(error, format!("Invalid params for tool \"x\": {expected}"), "{text}");
        }
    }

    #[test]
    fn hostile_arguments_give_short_errors() {
        let deep = format!("{}1{}", "[".repeat(5_000), "]".repeat(5_000));
        let many: String = (0..5_000).map(|n| format!("\"k{n}\":1,")).collect();
        for text in [deep, format!("{{{many}\"path\":1}}"), format!("{{\"{}\":1}}", "k".repeat(100_000))] {
            assert!(parse_arguments(&spec(), &text).unwrap_err().len() < 4_000);
        }
    }
}
