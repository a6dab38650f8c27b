//! The answer, whole or in pieces. Every field may be missing, `null` or of another type; unknown fields are ignored.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

/// A whole answer, or one piece of a stream.
#[derive(Debug, Default, serde::Deserialize)]
#[serde(default)]
pub(in crate::llm) struct WireAnswer<'a> {
    #[serde(borrow)]
    pub model: Text<'a>,
    #[serde(borrow)]
    pub choices: Option<Vec<WireChoice<'a>>>,
    pub usage: Value,
    pub error: Value,
    /// The type of the object. An old vLLM answers an error with `error` here.
    #[serde(borrow)]
    pub object: Text<'a>,
}

#[derive(Debug, Default, serde::Deserialize)]
#[serde(default)]
pub(in crate::llm) struct WireChoice<'a> {
    pub index: Value,
    /// The message part in a piece of a stream.
    #[serde(borrow)]
    pub delta: Option<OpenaiWireMessage<'a>>,
    /// The message in an answer that is not streamed.
    #[serde(borrow)]
    pub message: Option<OpenaiWireMessage<'a>>,
    #[serde(borrow)]
    pub finish_reason: Text<'a>,
    /// The token count of Moonshot, which sends it here.
    pub usage: Value,
}

#[derive(Debug, Default, serde::Deserialize)]
#[serde(default)]
pub(in crate::llm) struct OpenaiWireMessage<'a> {
    #[serde(borrow)]
    pub content: Text<'a>,
    #[serde(borrow)]
    pub refusal: Text<'a>,
    #[serde(borrow)]
    pub reasoning_content: Text<'a>,
    #[serde(borrow)]
    pub reasoning: Text<'a>,
    /// OpenRouter's blocks of reasoning, which must be sent back unchanged.
    pub reasoning_details: Value,
    #[serde(borrow)]
    pub tool_calls: Option<Vec<WireCall<'a>>>,
    /// The only call of an answer, from servers whose protocol has functions and no tools.
    #[serde(borrow)]
    pub function_call: Option<WireFunction<'a>>,
}

#[derive(Debug, Default, serde::Deserialize)]
#[serde(default)]
pub(in crate::llm) struct WireCall<'a> {
    pub index: Value,
    #[serde(borrow)]
    pub id: Text<'a>,
    #[serde(borrow)]
    pub function: Option<WireFunction<'a>>,
    /// Gemini's signature of its reasoning, which must be sent back unchanged.
    pub extra_content: Value,
}

#[derive(Debug, Default, serde::Deserialize)]
#[serde(default)]
pub(in crate::llm) struct WireFunction<'a> {
    #[serde(borrow)]
    pub name: Text<'a>,
    #[serde(borrow)]
    pub arguments: Arguments<'a>,
}

/// A text, borrowed if it has no escapes. Content parts are joined; `null` and other types are empty.
#[derive(Debug, Default, PartialEq)]
pub(in crate::llm) struct Text<'a>(Cow<'a, str>);

impl Text<'_> {
    pub(in crate::llm) fn as_str(&self) -> &str {
        &self.0
    }

    pub(in crate::llm) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The arguments of a call: a text, or the object itself if a service sends that.
#[derive(Debug, Default, PartialEq)]
pub(in crate::llm) struct Arguments<'a>(Cow<'a, str>);

impl Arguments<'_> {
    pub(in crate::llm) fn as_str(&self) -> &str {
        &self.0
    }
}

#[derive(Default, serde::Deserialize)]
#[serde(default)]
struct WirePart<'a> {
    #[serde(rename = "type", borrow)]
    kind: Text<'a>,
    #[serde(borrow)]
    text: Text<'a>,
}

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TextVisitor).map(Text)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Arguments<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ArgumentsVisitor).map(Arguments)
    }
}

struct TextVisitor;

impl<'de> Visitor<'de> for TextVisitor {
    type Value = Cow<'de, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text")
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Cow::Borrowed(text))
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Cow::Owned(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut parts: A) -> Result<Self::Value, A::Error> {
        let mut joined = String::new();
        while let Some(part) = parts.next_element::<WirePart<'de>>()? {
            if matches!(part.kind.as_str(), "" | "text" | "output_text") {
                joined.push_str(part.text.as_str());
            }
        }
        Ok(Cow::Owned(joined))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Cow::Borrowed(""))
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Cow::Borrowed(""))
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
        Ok(Cow::Borrowed(""))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Self::Value, E> {
        Ok(Cow::Owned(number.to_string()))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Self::Value, E> {
        Ok(Cow::Owned(number.to_string()))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Self::Value, E> {
        Ok(Cow::Owned(number.to_string()))
    }
}

struct ArgumentsVisitor;

impl<'de> Visitor<'de> for ArgumentsVisitor {
    type Value = Cow<'de, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text or an object")
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Cow::Borrowed(text))
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Cow::Owned(text.to_owned()))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
        let object = Value::deserialize(serde::de::value::MapAccessDeserializer::new(map))?;
        Ok(Cow::Owned(object.to_string()))
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Cow::Borrowed(""))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_read_in_each_form() {
        for (json, text) in [
            (r#""plain""#, "plain"),
            (r#""es\"caped\u4e16""#, "es\"caped世"),
            ("null", ""),
            ("true", ""),
            ("7", "7"),
            (r#"{"a":[1,{"b":2}]}"#, ""),
            (r#"[{"type":"text","text":"a"},{"type":"image"},{"type":"thinking","text":"x"},{"text":"b"}]"#, "ab"),
        ] {
            assert_eq!(serde_json::from_str::<Text<'_>>(json).unwrap().as_str(), text, "{json}");
        }
        for (json, text) in [(r#""{\"a\"""#, "{\"a\""), (r#"{"a": [1]}"#, r#"{"a":[1]}"#), ("null", "")] {
            assert_eq!(serde_json::from_str::<Arguments<'_>>(json).unwrap().as_str(), text, "{json}");
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
            serde_json::from_str::<WireAnswer<'_>>(json).unwrap();
        }
    }
}
