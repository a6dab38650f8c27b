//! Reads JSON from outside unambiguously.
//!
//! RFC 8259 does not define the meaning of an object with a duplicate key, and programs differ: most take the last value,
//! some the first. Two programs could therefore read different things in the same signed body, so this module rejects such
//! bodies.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;

use serde::de::{DeserializeOwned, DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

use crate::http_error::HttpError;

/// The maximum number of characters of a key that an error shows.
const SHOWN_CHARS: usize = 64;

/// Parses `text` as JSON and rejects an object, at any depth, with a duplicate key.
///
/// # Errors
/// `text` is not JSON, does not match `T`, or has a duplicate key; the error names the key, its object and the line.
pub fn from_str<T: DeserializeOwned>(text: &str) -> serde_json::Result<T> {
    check_keys(text)?;
    serde_json::from_str(text)
}

/// Parses the body of a request as JSON, whatever its content type.
///
/// # Errors
/// 400 with line and column if the body is not JSON, is nested too deep, or has a duplicate key.
pub(crate) fn parse_body(text: &str) -> Result<Value, HttpError> {
    from_str(text).map_err(|error| HttpError::bad_request(format!("the body is not valid JSON: {error}")))
}

/// Describes the fault of a line that was parsed on its own: with its column, and without the parser's line number, which is 1 for
/// each line.
pub fn fault_of_line(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    text.strip_suffix(&place).map_or_else(|| text.clone(), |fault| format!("{fault}, in column {}", error.column()))
}

/// Checks that `text` is JSON without duplicate keys at any depth.
///
/// # Errors
/// `text` is not JSON, or has a duplicate key; the error names the key, its object and the line.
pub fn check_keys(text: &str) -> serde_json::Result<()> {
    let mut json = serde_json::Deserializer::from_str(text);
    UniqueKeys(JsonPath::Root).deserialize(&mut json)?;
    json.end()
}

/// The path of a value in the document.
#[derive(Clone, Copy)]
enum JsonPath<'a> {
    Root,
    Key(&'a JsonPath<'a>, &'a str),
    Index(&'a JsonPath<'a>, usize),
}

impl fmt::Display for JsonPath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => f.write_str("$"),
            Self::Key(parent, key) => write!(f, "{parent}[{}]", shown(key)),
            Self::Index(parent, index) => write!(f, "{parent}[{index}]"),
        }
    }
}

fn shown(key: &str) -> String {
    format!("{:?}", key.chars().take(SHOWN_CHARS).collect::<String>())
}

/// Reads and discards a value; fails at the first duplicate key of an object.
struct UniqueKeys<'a>(JsonPath<'a>);

impl<'de> DeserializeSeed<'de> for UniqueKeys<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

/// Implements the visits of values that hold no others.
macro_rules! discard {
    ($($visit:ident($value:ty))*) => {$(
        fn $visit<E>(self, _: $value) -> Result<(), E> {
            Ok(())
        }
    )*};
}

impl<'de> Visitor<'de> for UniqueKeys<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    discard!(visit_bool(bool) visit_i64(i64) visit_u64(u64) visit_f64(f64) visit_str(&str));

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let mut index = 0;
        while items.next_element_seed(UniqueKeys(JsonPath::Index(&self.0, index)))?.is_some() {
            index += 1;
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<(), A::Error> {
        let mut keys = HashSet::new();
        while let Some(JsonKey(key)) = fields.next_key::<JsonKey<'de>>()? {
            if keys.contains(&key) {
                let (key, place) = (shown(&key), self.0);
                return Err(A::Error::custom(format!("the key {key} stands twice in the object at {place}")));
            }
            fields.next_value_seed(UniqueKeys(JsonPath::Key(&self.0, &key)))?;
            keys.insert(key);
        }
        Ok(())
    }
}

/// A key, borrowed from the text where it has no escapes.
#[derive(serde::Deserialize)]
#[serde(transparent)]
struct JsonKey<'a>(#[serde(borrow)] Cow<'a, str>);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_duplicate_key_is_reported_with_its_position() {
        for (text, words) in [
            (r#"{"a":1,"a":1}"#, r#"the key "a" stands twice in the object at $ at line 1 column 10"#),
            (r#"{"a":1,"\u0061":2}"#, r#"the key "a" stands twice"#),
            (
                "{\"x\":[0,{\"y z\":{\"b\":1,\n\"b\":2}}]}",
                r#"the key "b" stands twice in the object at $["x"][1]["y z"] at line 2"#,
            ),
            (r#"[{"":1,"c":{},"":2}]"#, r#"the key "" stands twice in the object at $[0]"#),
            (r#"{"a":1"#, "EOF"),
            (r#"{"a":1} {"a":1}"#, "trailing characters"),
            ("", "EOF"),
        ] {
            let error = from_str::<Value>(text).unwrap_err().to_string();
            assert!(error.contains(words), "{text}: {error}");
        }
        let long = format!("{{\"{0}\":1,\"{0}\":2}}", "\u{7}x".repeat(100_000));
        assert!(from_str::<Value>(&long).unwrap_err().to_string().len() < 1_000);
        let deep = format!("{}1{}", "{\"a\":".repeat(200), "}".repeat(200));
        assert!(from_str::<Value>(&deep).unwrap_err().to_string().contains("recursion limit"));
    }

    #[test]
    fn the_same_key_in_two_objects_is_not_a_duplicate() {
        let text = r#" {"a":{"a":[{"a":null},{"a":true}]},"b":{"a":-1.5e3},"A":"a\n","c":18446744073709551615} "#;
        let expected = json!({
            "a": {"a": [{"a": null}, {"a": true}]}, "b": {"a": -1500.0}, "A": "a\n", "c": u64::MAX,
        });
        assert_eq!(from_str::<Value>(text).unwrap(), expected);
    }

    proptest! {
        #[test]
        fn accepts_the_same_texts_as_serde_json(text in "[\\[\\]{}\",:0-9a-c\\\\eE.+ -]{0,40}") {
            match (from_str::<Value>(&text), serde_json::from_str::<Value>(&text)) {
                (Ok(ours), theirs) => prop_assert_eq!(Some(ours), theirs.ok()),
                (Err(ours), Ok(_)) => prop_assert!(ours.to_string().contains("stands twice"), "{}", ours),
                (Err(_), Err(_)) => {}
            }
        }
    }
}
