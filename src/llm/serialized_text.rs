//! A text in serialized form. The system prompt is most of a short request, and the same from turn to turn, so it is serialized once.

use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use serde::ser::Error;
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

/// A text whose JSON form is kept. Copies share both.
#[derive(Clone, Default)]
pub struct SerializedText(Arc<TextForms>);

#[derive(Default)]
struct TextForms {
    text: Box<str>,
    /// The text as a JSON string, once it was needed.
    json: OnceLock<Box<RawValue>>,
}

impl From<String> for SerializedText {
    fn from(text: String) -> Self {
        Self(Arc::new(TextForms { text: text.into(), json: OnceLock::new() }))
    }
}

impl From<&str> for SerializedText {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

impl Deref for SerializedText {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0.text
    }
}

impl fmt::Debug for SerializedText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.text.fmt(f)
    }
}

impl Serialize for SerializedText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let TextForms { text, json } = &*self.0;
        let json = match json.get() {
            Some(json) => json,
            None => {
                let written = serde_json::value::to_raw_value(text).map_err(S::Error::custom)?;
                json.get_or_init(|| written)
            }
        };
        json.serialize(serializer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_serialized_once() {
        let text = SerializedText::from("a \"quoted\" 道\n");
        let copy = text.clone();
        for _ in 0..2 {
            assert_eq!(serde_json::to_string(&text).unwrap(), serde_json::to_string(&*text).unwrap());
        }
        assert!(copy.0.json.get().is_some() && *copy == *text);
    }
}
