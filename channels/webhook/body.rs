//! Decodes the body of a request into JSON.

use std::borrow::Cow;

use axum::http::{HeaderMap, header};
use serde_json::Value;

use crate::http_error::HttpError;

/// The form field with GitHub's JSON.
const FORM_FIELD: &[u8] = b"payload";

/// Decodes a body as UTF-8. The error is a 400 with the position of the wrong byte.
pub fn text(body: &[u8]) -> Result<&str, HttpError> {
    let text = std::str::from_utf8(body).map_err(|error| {
        HttpError::bad_request(format!("the body is not UTF-8: byte {} cannot be read", error.valid_up_to() + 1))
    })?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if text.trim().is_empty() {
        return Err(HttpError::bad_request("the body is empty; JSON is expected"));
    }
    Ok(text)
}

/// Parses a body as JSON, whatever its content type. The error is a 400 with line and column if the body is not JSON, is
/// nested too deep, or has a duplicate key.
pub fn json(text: &str) -> Result<Value, HttpError> {
    crate::json::from_str(text).map_err(|error| HttpError::bad_request(format!("the body is not JSON: {error}")))
}

/// Returns the JSON inside a form (`payload=…`), which GitHub sends if configured so; returns any other body unchanged.
pub fn without_form<'a>(headers: &HeaderMap, body: &'a [u8]) -> Result<Cow<'a, [u8]>, HttpError> {
    let kind = headers.get(header::CONTENT_TYPE).map(|value| value.as_bytes().to_ascii_lowercase()).unwrap_or_default();
    if !kind.starts_with(b"application/x-www-form-urlencoded") || body.trim_ascii_start().starts_with(b"{") {
        return Ok(body.into());
    }
    let field = body.split(|byte| *byte == b'&').find_map(|pair| {
        let value = pair.strip_prefix(FORM_FIELD)?.strip_prefix(b"=")?;
        Some(percent_decoded(value))
    });
    field.map(Cow::Owned).ok_or_else(|| HttpError::bad_request("the form has no field \"payload\" with the JSON"))
}

/// Decodes a value of a form (<https://url.spec.whatwg.org/#concept-urlencoded-parser>): `+` is a space, `%XX` a byte;
/// anything else stays.
fn percent_decoded(value: &[u8]) -> Vec<u8> {
    let spaced: Vec<u8> = value.iter().map(|byte| if *byte == b'+' { b' ' } else { *byte }).collect();
    percent_encoding::percent_decode(&spaced).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn invalid_json_is_reported_with_its_position() {
        let deep = format!("{}1{}", "[".repeat(200), "]".repeat(200));
        let read = |body: &[u8]| text(body).and_then(json);
        let table: &[(&[u8], &str)] = &[
            (b"", "empty"),
            (b" \n", "empty"),
            (b"{", "line 1 column 1"),
            (b"{\n\"a\": nope}", "line 2 column 7"),
            (b"{\"a\":\"\xff\"}", "byte 7"),
            (b"{\"a\":{\"b\":1,\"b\":1}}", "the key \"b\" stands twice in the object at $[\"a\"]"),
            (deep.as_bytes(), "recursion limit exceeded at line 1 column 128"),
        ];
        for (body, words) in table {
            let error = read(body).unwrap_err();
            assert_eq!(error.status.as_u16(), 400);
            assert!(error.message.contains(words), "{error:?} {words}");
        }
        assert_eq!(read("\u{feff}{}".as_bytes()), Ok(serde_json::json!({})));
    }

    #[test]
    fn json_is_taken_out_of_a_form() {
        let form = HeaderMap::from_iter([(
            header::CONTENT_TYPE,
            "Application/x-www-form-urlencoded; charset=utf-8".parse().unwrap(),
        )]);
        let table: &[(&str, Option<&str>)] = &[
            ("payload=%7B%22a%22%3A%22b+c%2Bd%22%7d", Some(r#"{"a":"b c+d"}"#)),
            ("x=1&payload=%5B%5D&payload=2", Some("[]")),
            ("payload=%E4%BD%A0%zz%2", Some("你%zz%2")),
            (r#"{"content":"a&payload=1"}"#, Some(r#"{"content":"a&payload=1"}"#)),
            ("a=1", None),
            ("", None),
        ];
        for (body, expected) in table {
            let got = without_form(&form, body.as_bytes()).ok();
            assert_eq!(got.as_deref(), expected.map(str::as_bytes), "{body}");
        }
        assert_eq!(without_form(&HeaderMap::new(), b"payload=1").unwrap().as_ref(), b"payload=1");
    }

    proptest! {
        #[test]
        fn any_bytes_are_encoded_and_come_back(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let encoded: String = bytes.iter().map(|byte| format!("%{byte:02X}")).collect();
            prop_assert_eq!(percent_decoded(encoded.as_bytes()), bytes.clone());
            prop_assert!(percent_decoded(&bytes).len() <= bytes.len());
        }
    }
}
