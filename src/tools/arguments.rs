//! Parses the arguments that a model wrote for a call into a value that satisfies the tool's schema.

use std::future::Future;

use daoyou_channels::json;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::argument_aliases::{self, UnlistedArgument, parse_bool};
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
    match read_arguments(&arguments) {
        Ok(args) => run(args).await.into(),
        Err(error) => ToolResult::failed(error).into(),
    }
}

/// Returns the arguments as `Args`.
///
/// # Errors
/// Some arguments do not fit their types, such as an integer that is out of range. The error names each of them.
pub(crate) fn read_arguments<Args: DeserializeOwned>(arguments: &Value) -> Result<Args, String> {
    let error = match Args::deserialize(arguments) {
        Ok(args) => return Ok(args),
        Err(error) => error,
    };
    // An error of serde does not name the argument. Read alone, a wrong argument gives another error than that of missing ones.
    let faults = arguments.as_object().into_iter().flatten().filter_map(|(name, value)| {
        let alone = Value::Object(Map::from_iter([(name.clone(), value.clone())]));
        let fault = Args::deserialize(&alone).err()?.to_string();
        (!fault.starts_with("missing field")).then(|| format!("{name}: {}", range_fault(&fault).unwrap_or(fault)))
    });
    let faults: Vec<_> = faults.collect();
    Err(if faults.is_empty() { error.to_string() } else { faults.join("; ") })
}

/// Rewords serde's error for an integer that is out of the range of its type; `None` for other errors.
fn range_fault(error: &str) -> Option<String> {
    let (number, kind) = error.strip_prefix("invalid value: integer `")?.split_once("`, expected ")?;
    let (kind, low) = kind.strip_prefix("a nonzero ").map_or((kind, 0), |kind| (kind, 1));
    let high = match kind {
        "u8" => u64::from(u8::MAX),
        "u16" => u64::from(u16::MAX),
        "u32" => u64::from(u32::MAX),
        "u64" | "usize" => u64::MAX,
        _ => return None,
    };
    let is_low = number.parse::<i128>().ok()? < i128::from(high);
    Some(if is_low { format!("must be at least {low}") } else { format!("must be at most {high}") })
}

/// The longest part of a model's text that an error repeats, in characters.
const ECHO_CHARS: usize = 80;
/// The maximum number of faults that one error names.
const MAX_FAULTS: usize = 20;
/// The maximum depth of nested objects and arrays that is checked.
const MAX_DEPTH: u32 = 16;

/// Parses the arguments of a call by the tool's canonical name. See [`parse_call`].
///
/// # Errors
/// As [`parse_call`].
pub fn parse_arguments(spec: &ToolSpec, text: &str) -> Result<Value, String> {
    parse_call(spec, &spec.name, text)
}

/// Parses the arguments of a call, converts unambiguous values ("5" to 5), and checks the result. `called` is the name by which the
/// model calls the tool; some aliases give arguments another meaning.
///
/// # Errors
/// Lists all faults at once, worded for the model.
pub(super) fn parse_call(spec: &ToolSpec, called: &str, text: &str) -> Result<Value, String> {
    let invalid = |what: String| format!("Invalid params for tool {:?}: {what}", spec.name);
    let mut arguments = parse_object(text).map_err(invalid)?;
    let mut faults = Vec::new();
    argument_aliases::rename(spec, &mut arguments);
    argument_aliases::take_needless(spec, &mut arguments, &mut faults);
    let mut unlisted = argument_aliases::take_unlisted(spec, &mut arguments);
    for (UnlistedArgument { name, kind, .. }, value) in &mut unlisted {
        coerce_and_check(value, &json!({ "type": kind }), name, &mut faults, 1);
    }
    let mut arguments = Value::Object(arguments);
    coerce_and_check(&mut arguments, &spec.parameters, "", &mut faults, MAX_DEPTH);
    if faults.is_empty() {
        if let Value::Object(arguments) = &mut arguments {
            argument_aliases::apply(spec, called, arguments, unlisted);
        }
        return Ok(arguments);
    }
    let more = faults.len().saturating_sub(MAX_FAULTS);
    faults.truncate(MAX_FAULTS);
    if more > 0 {
        faults.push(format!("{more} more"));
    }
    Err(invalid(faults.join("; ")))
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
        "integer" => value.is_i64() || value.is_u64(),
        "string" | "number" | "boolean" | "array" | "object" | "null" => type_name(value) == wanted,
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
    let is_omitted = |schema: &Value| {
        let mut refused = Vec::new();
        coerce_and_check(&mut Value::Null, schema, "", &mut refused, depth - 1);
        !refused.is_empty()
    };
    fields.retain(|name, value| !(value.is_null() && properties.get(name).is_some_and(is_omitted)));
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

/// Keeps a value that fits one of the choices, and otherwise applies the first choice to which it can be converted.
fn apply_first_choice(value: &mut Value, choices: &[Value], at: &str, faults: &mut Vec<String>, depth: u32) {
    let (mut converted, mut first_faults) = (None, None);
    for choice in choices {
        let (mut tried, mut found) = (value.clone(), Vec::new());
        coerce_and_check(&mut tried, choice, at, &mut found, depth - 1);
        if !found.is_empty() {
            first_faults.get_or_insert(found);
        } else if tried == *value {
            return;
        } else {
            converted.get_or_insert(tried);
        }
    }
    match converted {
        Some(converted) => *value = converted,
        None => faults.extend(first_faults.into_iter().flatten()),
    }
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
        ("boolean", Value::String(_)) => parse_bool(value).map(Value::Bool),
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
    use serde::Deserialize;

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

    /// The schemas are those of MCP servers' tools, as the cleaning leaves them.
    #[test]
    fn a_value_that_fits_is_not_converted() {
        let or_null = |kind: &str| json!({"anyOf": [{"type": kind}, {"type": "null"}]});
        let parameters = json!({
            "type": "object", "required": ["name"],
            "properties": {
                "name": or_null("string"), "path": {"type": "string"},
                "either": {"anyOf": [{"type": "string"}, {"type": "integer"}]},
                "number": {"anyOf": [{"type": "integer"}, {"type": "string"}]},
                "list": {"type": "array", "items": {"anyOf": [{"type": "string"}, {"type": "number"}]}},
                "count": or_null("integer"), "free": {"type": "object"},
            },
        });
        let open = ToolSpec { parameters, ..spec() };
        for kept in [
            json!({"name": null}),
            json!({"name": "n", "either": 5, "number": "007", "list": ["1", 2], "count": null}),
            json!({"name": "n", "free": {"k": 5}, "other": [true]}),
            // The schema accepts this name too, and the server may mean something else by it.
            json!({"name": "n", "file_path": "p"}),
        ] {
            assert_eq!(parse_arguments(&open, &kept.to_string()).as_ref(), Ok(&kept), "{kept}");
        }
        let parsed = parse_arguments(&open, r#"{"name":7,"either":true,"count":"5","path":null}"#);
        assert_eq!(parsed, Ok(json!({"name": "7", "either": "true", "count": 5})), "only a value that does not fit");
        assert!(parse_arguments(&open, "{}").unwrap_err().ends_with("missing: name"));
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
    fn an_integer_out_of_range_is_named() {
        #[derive(Debug, Deserialize, PartialEq)]
        struct Numbers {
            path: String,
            offset: Option<u32>,
            limit: Option<u64>,
        }
        for (arguments, expected) in [
            (json!({"path": "p", "offset": -1}), "offset: must be at least 0"),
            (json!({"path": "p", "limit": -1, "offset": -1}), "limit: must be at least 0; offset: must be at least 0"),
            (json!({"path": "p", "limit": 5, "offset": 99_999_999_999_u64}), "offset: must be at most 4294967295"),
            (json!({"path": 1, "limit": 5}), "path: invalid type: integer `1`, expected a string"),
            (json!({"limit": 5}), "missing field `path`"),
        ] {
            assert_eq!(read_arguments::<Numbers>(&arguments), Err(expected.to_owned()), "{arguments}");
        }
        let read = Numbers { path: "p".to_owned(), offset: Some(5), limit: None };
        assert_eq!(read_arguments(&json!({"path": "p", "offset": 5})), Ok(read));
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
