//! Placeholders `{{ID}}` in the arguments of a planned call. Each is replaced by the result of another call.

use std::borrow::Cow;

use serde_json::{Map, Value};

use crate::text::pattern;

/// The maximum size of the filled arguments, in bytes of text.
const FILLED_BYTES: usize = 200_000;

pattern!(PLACEHOLDER, r"\{\{\s*([A-Za-z0-9_-]+)\s*\}\}");

/// Returns the ids of the placeholders in `value`, at any depth.
pub(super) fn placeholder_ids(value: &Value) -> Vec<&str> {
    match value {
        Value::String(text) => PLACEHOLDER.captures_iter(text).map(|found| found.extract().1).map(|[id]| id).collect(),
        Value::Array(items) => items.iter().flat_map(placeholder_ids).collect(),
        Value::Object(fields) => fields.values().flat_map(placeholder_ids).collect(),
        _ => Vec::new(),
    }
}

/// Returns `arguments` with the placeholders replaced whose ids `result_of` knows. Other placeholders stay unchanged, and
/// inserted text is not searched again.
///
/// # Errors
/// The filled arguments would be too large.
pub(super) fn fill<'r>(
    arguments: &Map<String, Value>,
    result_of: &dyn Fn(&str) -> Option<Cow<'r, str>>,
) -> Result<Map<String, Value>, String> {
    let mut room = FILLED_BYTES;
    arguments.iter().map(|(name, value)| Ok((name.clone(), fill_value(value, result_of, &mut room)?))).collect()
}

fn fill_value<'r>(
    value: &Value,
    result_of: &dyn Fn(&str) -> Option<Cow<'r, str>>,
    room: &mut usize,
) -> Result<Value, String> {
    Ok(match value {
        Value::String(text) => Value::String(fill_text(text, result_of, room)?),
        Value::Array(items) => items.iter().map(|item| fill_value(item, result_of, room)).collect::<Result<_, _>>()?,
        Value::Object(fields) => {
            let fields = fields.iter().map(|(name, value)| Ok((name.clone(), fill_value(value, result_of, room)?)));
            Value::Object(fields.collect::<Result<_, String>>()?)
        }
        other => other.clone(),
    })
}

fn fill_text<'r>(
    text: &str,
    result_of: &dyn Fn(&str) -> Option<Cow<'r, str>>,
    room: &mut usize,
) -> Result<String, String> {
    let mut filled = String::with_capacity(text.len());
    let mut push = |piece: &str| {
        *room = room
            .checked_sub(piece.len())
            .ok_or_else(|| format!("With the results put in, the arguments are longer than {FILLED_BYTES} bytes"))?;
        filled.push_str(piece);
        Ok::<_, String>(())
    };
    let mut end = 0;
    for found in PLACEHOLDER.captures_iter(text) {
        let (placeholder, [id]) = found.extract();
        let start = found.get_match().start();
        push(&text[end..start])?;
        push(&result_of(id).unwrap_or(Cow::Borrowed(placeholder)))?;
        end = start + placeholder.len();
    }
    push(&text[end..])?;
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn placeholders_are_found_and_filled_once() {
        let result = |id: &str| match id {
            "a" => Some("A".into()),
            "again" => Some("{{a}}".into()),
            _ => None,
        };
        for (arguments, ids, expected) in [
            (json!({ "x": "{{a}}" }), vec!["a"], json!({ "x": "A" })),
            (json!({ "x": "<{{ a }}|{{a}}>", "n": 1 }), vec!["a", "a"], json!({ "x": "<A|A>", "n": 1 })),
            (json!({ "x": [{ "y": "{{a}}" }] }), vec!["a"], json!({ "x": [{ "y": "A" }] })),
            (json!({ "x": "{{again}}" }), vec!["again"], json!({ "x": "{{a}}" })),
            (json!({ "x": "{{b}} {{a.b}} {{}} {{a" }), vec!["b"], json!({ "x": "{{b}} {{a.b}} {{}} {{a" })),
            (json!({ "x": "{{{a}}} 界{{界}}{{a}}" }), vec!["a", "a"], json!({ "x": "{A} 界{{界}}A" })),
            (json!({ "{{a}}": true }), vec![], json!({ "{{a}}": true })),
        ] {
            assert_eq!(placeholder_ids(&arguments), ids, "{arguments}");
            let filled = fill(arguments.as_object().unwrap(), &result).unwrap();
            assert_eq!(Value::Object(filled), expected, "{arguments}");
        }
        let long = "x".repeat(FILLED_BYTES / 2);
        let twice = json!({ "x": "{{a}}", "y": "{{a}}{{a}}" });
        assert!(
            fill(twice.as_object().unwrap(), &|_| Some(long.as_str().into()))
                .unwrap_err()
                .contains("longer than 200000 bytes")
        );
    }
}
