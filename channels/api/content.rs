//! Parses the parts of messages and the fields of requests, with one clear error for each unsupported or malformed part.

use axum::http::StatusCode;
use base64::Engine;
use serde_json::{Map, Value};

use crate::attachment_folder::IncomingFile;
use crate::clean::is_display_control;
use crate::http_error::HttpError;
use crate::text::BASE64_ANY_PADDING;

/// The longest name of a session, in bytes.
const MAX_NAME: usize = 200;
/// The maximum number of characters of a wrong value that an error repeats.
const SHOWN: usize = 40;

/// The fields of a request, or of an object in it.
pub(super) struct RequestFields<'a> {
    fields: &'a Map<String, Value>,
    /// The path of the object, with a dot at its end; empty for the request itself.
    path: String,
}

impl<'a> RequestFields<'a> {
    /// Returns the fields of a request body.
    ///
    /// # Errors
    /// The body is not an object.
    pub fn of(body: &'a Value) -> Result<Self, HttpError> {
        let fields = body.as_object().ok_or_else(|| HttpError::bad_request("the body is not a JSON object"))?;
        Ok(Self { fields, path: String::new() })
    }

    /// Returns a field that is present and not null.
    pub fn get(&self, key: &str) -> Option<&'a Value> {
        self.fields.get(key).filter(|value| !value.is_null())
    }

    /// Returns the error for a field of the wrong type.
    fn wrong(&self, key: &str, fault: &str) -> HttpError {
        HttpError::bad_request(format!("\"{}{key}\" {fault}", self.path))
    }

    /// Returns the fields of an object field; `None` if it is absent.
    ///
    /// # Errors
    /// The field is not an object.
    pub fn object(&self, key: &str) -> Result<Option<Self>, HttpError> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Object(fields)) => Ok(Some(Self { fields, path: format!("{}{key}.", self.path) })),
            Some(_) => Err(self.wrong(key, "is not an object")),
        }
    }

    /// Returns a list field; an empty list if it is absent.
    ///
    /// # Errors
    /// The field is not a list.
    pub fn list(&self, key: &str) -> Result<&'a [Value], HttpError> {
        match self.get(key) {
            None => Ok(&[]),
            Some(Value::Array(items)) => Ok(items),
            Some(_) => Err(self.wrong(key, "is not a list")),
        }
    }

    /// Returns a string field without surrounding spaces; `None` if it is empty.
    ///
    /// # Errors
    /// The field is not a string.
    pub fn text(&self, key: &str) -> Result<Option<String>, HttpError> {
        let text = match self.get(key) {
            None => return Ok(None),
            Some(Value::String(text)) => text.trim(),
            Some(_) => return Err(self.wrong(key, "is not a string")),
        };
        Ok((!text.is_empty()).then(|| text.to_owned()))
    }

    /// Returns a boolean field; false if it is absent.
    ///
    /// # Errors
    /// The field is neither true nor false.
    pub fn flag(&self, key: &str) -> Result<bool, HttpError> {
        match self.get(key) {
            None => Ok(false),
            Some(Value::Bool(value)) => Ok(*value),
            Some(_) => Err(self.wrong(key, "is neither true nor false")),
        }
    }

    /// Rejects a field that is set, since ignoring it would give a wrong answer. Empty lists, false and null count as not set.
    ///
    /// # Errors
    /// 400 with code `unsupported`.
    pub fn refuse(&self, key: &str, why: &'static str) -> Result<(), HttpError> {
        let is_set = match self.get(key) {
            None | Some(Value::Bool(false)) => false,
            Some(Value::Array(list)) => !list.is_empty(),
            Some(_) => true,
        };
        if is_set { Err(unsupported(why)) } else { Ok(()) }
    }

    /// Rejects any answer format but text in the field `key`.
    ///
    /// # Errors
    /// 400, for another format with code `unsupported`.
    pub fn refuse_format(&self, key: &str) -> Result<(), HttpError> {
        let Some(format) = self.object(key)? else { return Ok(()) };
        if format.get("type").is_none_or(|kind| kind == "text") {
            return Ok(());
        }
        let message = "has to be text: say in the message which form the answer should have";
        Err(unsupported(format!("\"{}{key}\" {message}", self.path)))
    }
}

/// Returns a 400 for a request that the agent does not support.
pub(super) fn unsupported(message: impl Into<std::borrow::Cow<'static, str>>) -> HttpError {
    HttpError::new(StatusCode::BAD_REQUEST, "unsupported", message)
}

/// Returns the checked name of a session without its prefix; names are written `NAME` or `api:NAME`. `what` is the origin
/// of the name, for the error.
///
/// # Errors
/// The name is empty, too long, or contains control characters.
pub(super) fn session_name(what: &str, name: &str) -> Result<String, HttpError> {
    let name = name.trim();
    let name = name.strip_prefix("api:").unwrap_or(name);
    if name.is_empty() || name.len() > MAX_NAME || name.contains(is_display_control) {
        return Err(HttpError::bad_request(format!(
            "{what} has to be a text of 1 to {MAX_NAME} bytes without control characters or marks of the writing direction"
        )));
    }
    Ok(name.to_owned())
}

/// Returns the text of a message's content and adds its files to `files`.
///
/// # Errors
/// The problem with the content, as text.
pub(super) fn content(content: &Value, files: &mut Vec<IncomingFile>) -> Result<String, String> {
    match content {
        Value::String(text) => Ok(text.clone()),
        Value::Array(parts) => {
            let mut text = String::new();
            for part in parts {
                if let Some(more) = part_text(part, files)? {
                    // Parts are separate blocks, e.g. the text of a file and the question about it.
                    let gap = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
                    text.push_str(gap);
                    text.push_str(more);
                }
            }
            Ok(text)
        }
        _ => Err("has no \"content\": a text, or an array of parts".to_owned()),
    }
}

/// Returns the text of a part, or adds its file to `files`.
fn part_text<'a>(part: &'a Value, files: &mut Vec<IncomingFile>) -> Result<Option<&'a str>, String> {
    let number = files.len() + 1;
    match part["type"].as_str() {
        Some("text" | "input_text" | "output_text") => {
            part["text"].as_str().map(Some).ok_or_else(|| "has a text part without \"text\"".to_owned())
        }
        Some("refusal") => part["refusal"].as_str().map(Some).ok_or_else(|| "has an empty refusal".to_owned()),
        Some("image_url" | "input_image") => {
            let url = part["image_url"].as_str().or_else(|| part["image_url"]["url"].as_str()).unwrap_or_default();
            let (media_type, data) = data_url(url).ok_or_else(|| no_data("an image", url))?;
            let bytes = decode("an image", data)?;
            let ending = media_type.strip_prefix("image/").unwrap_or("bin").replace("jpeg", "jpg");
            files.push(IncomingFile { name: format!("image-{number}.{ending}"), media_type, bytes });
            Ok(None)
        }
        Some("file" | "input_file") => {
            let file = if part["file"].is_object() { &part["file"] } else { part };
            let data = file["file_data"].as_str().unwrap_or_default();
            // A colon is in no base64: this is an address, or a data: URL in another encoding.
            let plain = || (!data.contains(':')).then(|| ("application/octet-stream".to_owned(), data));
            let (media_type, data) = data_url(data).or_else(plain).ok_or_else(|| no_data("a file", data))?;
            let bytes = decode("a file", data)?;
            let name = file["filename"].as_str().map_or_else(|| format!("file-{number}"), str::to_owned);
            files.push(IncomingFile { name, media_type, bytes });
            Ok(None)
        }
        Some("input_audio") => Err("has audio, which is not taken; send its text".to_owned()),
        Some(other) => {
            let other: String = other.chars().take(SHOWN).collect();
            Err(format!("has a part of the type {other:?}; text, image_url and file are taken"))
        }
        None => Err("has a part without \"type\"".to_owned()),
    }
}

fn no_data(what: &str, given: &str) -> String {
    let remedy = "send it as a data: URL in base64";
    if given.starts_with("http://") || given.starts_with("https://") {
        return format!("has {what} as an address, which is not fetched; {remedy}, or ask the agent to fetch it");
    }
    format!("has {what} without its data; {remedy} (an image in \"image_url\", a file in \"file_data\")")
}

/// Returns the media type and the base64 of a `data:` URL (RFC 2397).
fn data_url(url: &str) -> Option<(String, &str)> {
    let (scheme, rest) = url.trim_start().split_once(':')?;
    let (head, data) = rest.split_once(',')?;
    let (kind, encoding) = head.rsplit_once(';')?;
    let is_base64 = scheme.eq_ignore_ascii_case("data") && encoding.trim().eq_ignore_ascii_case("base64");
    let media_type = kind.split(';').next().unwrap_or_default().trim().to_lowercase();
    (is_base64 && !media_type.is_empty()).then_some((media_type, data))
}

/// Decodes the base64 of `what` in any of its usual forms: with line breaks, without padding, with `-` and `_` (RFC 4648, section 5).
fn decode(what: &str, data: &str) -> Result<Vec<u8>, String> {
    let symbols = data.bytes().filter(|byte| !byte.is_ascii_whitespace()).map(|byte| match byte {
        b'-' => b'+',
        b'_' => b'/',
        other => other,
    });
    let bytes = BASE64_ANY_PADDING.decode(symbols.collect::<Vec<u8>>());
    let bytes = bytes.map_err(|error| format!("has {what} whose base64 is not valid: {error}"))?;
    if bytes.is_empty() { Err(no_data(what, "")) } else { Ok(bytes) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn texts_images_and_files_are_read() {
        let mut files = Vec::new();
        let parts = json!([
            {"type": "text", "text": "look"},
            {"type": "image_url", "image_url": {"url": "data:image/jpeg;base64,/9g="}},
            {"type": "file", "file": {"filename": "a.txt", "file_data": "data:text/plain;charset=utf-8;base64,aGk="}},
            {"type": "input_image", "image_url": "data:image/PNG;base64,iVA="},
            {"type": "input_file", "file_data": "aGk="},
            {"type": "input_text", "text": "here"},
        ]);
        assert_eq!(content(&parts, &mut files).unwrap(), "look\nhere");
        let found: Vec<_> = files.iter().map(|file| (file.name.as_str(), file.media_type.as_str())).collect();
        let expected = [
            ("image-1.jpg", "image/jpeg"),
            ("a.txt", "text/plain"),
            ("image-3.png", "image/png"),
            ("file-4", "application/octet-stream"),
        ];
        assert_eq!(found, expected);
        assert_eq!((files[1].bytes.as_slice(), files[3].bytes.as_slice()), (&b"hi"[..], &b"hi"[..]));
    }

    #[test]
    fn base64_is_read_in_all_its_usual_forms() {
        for url in [
            "data:image/png;base64,+/+/aGk=",
            "DATA:image/PNG;BASE64,+/+/aGk=",
            " data:image/png;base64,+/+/\r\naGk=\n",
            "data:image/png;name=a.png;base64,+/+/aGk",
            "data:image/png;base64,-_-_aGk",
        ] {
            let mut files = Vec::new();
            content(&json!([{"type": "image_url", "image_url": {"url": url}}]), &mut files).unwrap();
            assert_eq!(
                (files[0].media_type.as_str(), &*files[0].bytes),
                ("image/png", &b"\xfb\xff\xbfhi"[..]),
                "{url}"
            );
        }
    }

    #[test]
    fn unsupported_content_is_explained() {
        for (value, expected) in [
            (json!(7), "has no \"content\""),
            (json!(null), "has no \"content\""),
            (json!([{"text": "a"}]), "a part without \"type\""),
            (json!([{"type": "text"}]), "a text part without \"text\""),
            (json!([{"type": "input_audio", "input_audio": {}}]), "audio"),
            (json!([{"type": "x".repeat(500)}]), "text, image_url and file are taken"),
            (
                json!([{"type": "image_url", "image_url": {"url": "https://a/b.png"}}]),
                "as an address, which is not fetched",
            ),
            (json!([{"type": "image_url", "image_url": {"url": "data:image/png;base64,!"}}]), "base64 is not valid"),
            (json!([{"type": "image_url", "image_url": {"url": "data:image/png;base64,"}}]), "without its data"),
            (json!([{"type": "image_url", "image_url": {"url": "data:image/png,abc"}}]), "without its data"),
            (json!([{"type": "file", "file": {"file_data": "https://a/b.pdf"}}]), "as an address"),
            (json!([{"type": "file", "file": {"file_data": "a!"}}]), "base64 is not valid"),
            (json!([{"type": "file", "file": {"file_id": "file-1"}}]), "without its data"),
        ] {
            let error = content(&value, &mut Vec::new()).unwrap_err();
            assert!(error.contains(expected) && error.len() < 300, "{error}");
        }
    }

    #[test]
    fn names_of_sessions_are_one_short_line() {
        for (name, expected) in [
            ("work", Some("work")),
            (" api:work ", Some("work")),
            ("a:b", Some("a:b")),
            ("", None),
            ("api:", None),
            ("a\nb", None),
            (&"x".repeat(201), None),
        ] {
            assert_eq!(session_name("x", name).ok().as_deref(), expected, "{name:?}");
        }
    }
}
