//! The answer, whole or in pieces. Every field may be missing, `null` or of another type; unknown fields are ignored.

use serde::de::{Error, Unexpected};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// A whole answer, or one piece of a stream.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::llm) struct WireAnswer {
    #[serde(deserialize_with = "text")]
    pub model: String,
    pub choices: Option<Vec<WireChoice>>,
    pub usage: Value,
    pub error: Value,
    /// The type of the object. An old vLLM answers an error with `error` here.
    #[serde(deserialize_with = "text")]
    pub object: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::llm) struct WireChoice {
    pub index: Value,
    /// The message part in a piece of a stream.
    pub delta: Option<OpenaiWireMessage>,
    /// The message in an answer that is not streamed.
    pub message: Option<OpenaiWireMessage>,
    #[serde(deserialize_with = "text")]
    pub finish_reason: String,
    /// The token count of Moonshot, which sends it here.
    pub usage: Value,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::llm) struct OpenaiWireMessage {
    #[serde(deserialize_with = "text")]
    pub content: String,
    #[serde(deserialize_with = "text")]
    pub refusal: String,
    #[serde(deserialize_with = "text")]
    pub reasoning_content: String,
    #[serde(deserialize_with = "text")]
    pub reasoning: String,
    /// OpenRouter's blocks of reasoning, which must be sent back unchanged.
    pub reasoning_details: Value,
    pub tool_calls: Option<Vec<WireCall>>,
    /// The only call of an answer, from servers whose protocol has functions and no tools.
    pub function_call: Option<WireFunction>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::llm) struct WireCall {
    pub index: Value,
    #[serde(deserialize_with = "text")]
    pub id: String,
    pub function: Option<WireFunction>,
    /// Gemini's signature of its reasoning, which must be sent back unchanged.
    pub extra_content: Value,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::llm) struct WireFunction {
    #[serde(deserialize_with = "text")]
    pub name: String,
    #[serde(deserialize_with = "arguments")]
    pub arguments: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WirePart {
    #[serde(rename = "type", deserialize_with = "text")]
    kind: String,
    #[serde(deserialize_with = "text")]
    text: String,
}

/// Reads a text. Content parts are joined; `null` and other types are empty.
fn text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    Ok(match Value::deserialize(deserializer)? {
        Value::String(text) => text,
        Value::Number(number) => number.to_string(),
        parts @ Value::Array(_) => {
            let parts = Vec::<WirePart>::deserialize(parts).map_err(D::Error::custom)?.into_iter();
            let shown = parts.filter(|part| matches!(part.kind.as_str(), "" | "text" | "output_text"));
            shown.map(|part| part.text).collect()
        }
        Value::Null | Value::Bool(_) | Value::Object(_) => String::new(),
    })
}

/// Reads the arguments of a call: a text, or the object itself if a service sends that.
fn arguments<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    match Value::deserialize(deserializer)? {
        Value::String(text) => Ok(text),
        object @ Value::Object(_) => Ok(object.to_string()),
        Value::Null => Ok(String::new()),
        _ => Err(D::Error::invalid_type(Unexpected::Other("a value of another type"), &"a text or an object")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_read_in_each_form() {
        for (json, expected) in [
            (r#""plain""#, "plain"),
            (r#""es\"caped\u4e16""#, "es\"caped世"),
            ("null", ""),
            ("true", ""),
            ("7", "7"),
            (r#"{"a":[1,{"b":2}]}"#, ""),
            (r#"[{"type":"text","text":"a"},{"type":"image"},{"type":"thinking","text":"x"},{"text":"b"}]"#, "ab"),
        ] {
            assert_eq!(text(&mut serde_json::Deserializer::from_str(json)).unwrap(), expected, "{json}");
        }
        for (json, expected) in [(r#""{\"a\"""#, "{\"a\""), (r#"{"a": [1]}"#, r#"{"a":[1]}"#), ("null", "")] {
            assert_eq!(arguments(&mut serde_json::Deserializer::from_str(json)).unwrap(), expected, "{json}");
        }
    }

    #[test]
    fn odd_answers_are_harmless() {
        for json in [
            "{}",
            r#"{"choices":null,"usage":{},"error":null,"model":null}"#,
            r#"{"choices":[{}],"usage":[],"x":{"y":1}}"#,
            r#"{"choices":[{"index":0.0,"delta":null,"message":null,"finish_reason":null}]}"#,
            r#"{"choices":[{"delta":{"content":null,"tool_calls":null,"reasoning":{"effort":1},"audio":{}}}]}"#,
            r#"{"choices":[{"delta":{"tool_calls":[{},{"function":null},{"index":null,"id":null}]}}]}"#,
        ] {
            serde_json::from_str::<WireAnswer>(json).unwrap();
        }
    }
}
