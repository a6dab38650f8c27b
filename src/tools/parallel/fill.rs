//! `{{ID}}` in the arguments of a plan's call: the place where the result of another call goes.

use serde_json::{Map, Value};

/// The most that arguments may grow to, in bytes of text.
const FILLED_BYTES: usize = 200_000;

/// A text in parts.
enum Part<'a> {
    /// As it stands.
    Plain(&'a str),
    /// A place: the id, and all of it as it stands.
    Place(&'a str, &'a str),
}

/// The ids that stand in places of `value`, in any depth.
pub(super) fn mentioned(value: &Value) -> Vec<&str> {
    match value {
        Value::String(text) => parts(text)
            .into_iter()
            .filter_map(|part| match part {
                Part::Place(id, _) => Some(id),
                Part::Plain(_) => None,
            })
            .collect(),
        Value::Array(items) => items.iter().flat_map(mentioned).collect(),
        Value::Object(fields) => fields.values().flat_map(mentioned).collect(),
        _ => Vec::new(),
    }
}

/// `arguments` with every place filled whose id `result_of` knows; others stay as they stand, and what is put in is not
/// looked through again.
///
/// # Errors
/// When they would grow too large.
pub(super) fn fill<'r>(
    arguments: &Map<String, Value>,
    result_of: &dyn Fn(&str) -> Option<&'r str>,
) -> Result<Map<String, Value>, String> {
    let mut room = FILLED_BYTES;
    arguments.iter().map(|(name, value)| Ok((name.clone(), filled(value, result_of, &mut room)?))).collect()
}

fn filled<'r>(value: &Value, result_of: &dyn Fn(&str) -> Option<&'r str>, room: &mut usize) -> Result<Value, String> {
    Ok(match value {
        Value::String(text) => {
            let mut out = String::with_capacity(text.len());
            for part in parts(text) {
                let piece = match part {
                    Part::Plain(piece) => piece,
                    Part::Place(id, whole) => result_of(id).unwrap_or(whole),
                };
                *room = room.checked_sub(piece.len()).ok_or_else(|| {
                    format!("With the results put in, the arguments are longer than {FILLED_BYTES} bytes")
                })?;
                out.push_str(piece);
            }
            Value::String(out)
        }
        Value::Array(items) => items.iter().map(|item| filled(item, result_of, room)).collect::<Result<_, _>>()?,
        Value::Object(fields) => {
            let fields = fields.iter().map(|(name, value)| Ok((name.clone(), filled(value, result_of, room)?)));
            Value::Object(fields.collect::<Result<_, String>>()?)
        }
        other => other.clone(),
    })
}

fn parts(text: &str) -> Vec<Part<'_>> {
    let mut parts = Vec::new();
    let (mut plain, mut at) = (0, 0);
    while let Some(open) = text[at..].find("{{").map(|found| at + found) {
        let place = text[open + 2..].find("}}").map(|length| (&text[open + 2..open + 2 + length], open + 4 + length));
        let is_id = |id: &str| !id.is_empty() && id.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
        match place {
            Some((inside, end)) if is_id(inside.trim()) => {
                parts.push(Part::Plain(&text[plain..open]));
                parts.push(Part::Place(inside.trim(), &text[open..end]));
                (plain, at) = (end, end);
            }
            // Another place may begin one brace further on.
            Some(_) => at = open + 1,
            None => break,
        }
    }
    parts.push(Part::Plain(&text[plain..]));
    parts
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn places_are_found_and_filled_once() {
        let result = |id: &str| match id {
            "a" => Some("A"),
            "again" => Some("{{a}}"),
            _ => None,
        };
        for (given, ids, expected) in [
            (json!({ "x": "{{a}}" }), vec!["a"], json!({ "x": "A" })),
            (json!({ "x": "<{{ a }}|{{a}}>", "n": 1 }), vec!["a", "a"], json!({ "x": "<A|A>", "n": 1 })),
            (json!({ "x": [{ "y": "{{a}}" }] }), vec!["a"], json!({ "x": [{ "y": "A" }] })),
            (json!({ "x": "{{again}}" }), vec!["again"], json!({ "x": "{{a}}" })),
            (json!({ "x": "{{b}} {{a.b}} {{}} {{a" }), vec!["b"], json!({ "x": "{{b}} {{a.b}} {{}} {{a" })),
            (json!({ "x": "{{{a}}} 界{{界}}{{a}}" }), vec!["a", "a"], json!({ "x": "{A} 界{{界}}A" })),
            (json!({ "{{a}}": true }), vec![], json!({ "{{a}}": true })),
        ] {
            assert_eq!(mentioned(&given), ids, "{given}");
            let filled = fill(given.as_object().unwrap(), &result).unwrap();
            assert_eq!(Value::Object(filled), expected, "{given}");
        }
        let long = "x".repeat(FILLED_BYTES / 2);
        let twice = json!({ "x": "{{a}}", "y": "{{a}}{{a}}" });
        assert!(fill(twice.as_object().unwrap(), &|_| Some(&long)).unwrap_err().contains("longer than 200000 bytes"));
    }
}
