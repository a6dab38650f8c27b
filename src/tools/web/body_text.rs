//! The text of a response, decoded.

use encoding_rs::{Encoding, UTF_8};
use url::Url;

use crate::tools::encoding::guess;

/// The number of leading bytes in which an HTML page may name its encoding (HTML, 13.2.3.2).
const META_BYTES: usize = 1_024;

/// The body of a response as text.
#[derive(Debug, PartialEq, Eq)]
pub enum BodyText {
    Html(String),
    Plain(String),
}

/// Decodes a body of the media type `content_type`, which may be empty.
///
/// # Errors
/// The body is not a text; the error states what it is.
pub fn decode(body: &[u8], content_type: &str, url: &Url) -> Result<BodyText, String> {
    let kind = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let is_text = kind.starts_with("text/")
        || kind.ends_with("json")
        || kind.ends_with("xml")
        || kind.ends_with("javascript")
        || matches!(kind.as_str(), "application/yaml" | "application/toml" | "application/x-ndjson");
    let is_binary = body.iter().take(8_192).any(|byte| *byte == 0) && Encoding::for_bom(body).is_none();
    if is_binary || !(is_text || kind.is_empty() || kind == "application/octet-stream") {
        let kind = if kind.is_empty() { "an unnamed kind" } else { &kind };
        return Err(format!("{url} is a file of {} bytes ({kind}), not text that can be read", body.len()));
    }
    let is_html =
        matches!(kind.as_str(), "text/html" | "application/xhtml+xml") || (kind.is_empty() && looks_like_html(body));
    let text = decode_text(body, content_type, is_html);
    Ok(if is_html { BodyText::Html(text) } else { BodyText::Plain(text) })
}

fn looks_like_html(body: &[u8]) -> bool {
    let start = body[..body.len().min(META_BYTES)].to_ascii_lowercase();
    let start = start.trim_ascii_start();
    start.starts_with(b"<!doctype html") || start.starts_with(b"<html")
}

/// Decodes a body: by its byte order mark, by the encoding in the header, by the encoding in the page, and finally by a guess.
fn decode_text(body: &[u8], content_type: &str, is_html: bool) -> String {
    let named = charset(content_type).or_else(|| is_html.then(|| meta_charset(body)).flatten());
    let named = named.and_then(|label| Encoding::for_label(label.as_bytes()));
    let encoding = named.unwrap_or_else(|| {
        if std::str::from_utf8(body).is_ok() {
            return UTF_8;
        }
        guess(body, true)
    });
    encoding.decode(body).0.into_owned()
}

/// Returns the encoding that a media type or an element `meta` names.
fn charset(text: &str) -> Option<String> {
    let text = text.to_ascii_lowercase();
    let (_, rest) = text.split_once("charset=")?;
    let value = rest.trim_start_matches(['"', '\'']).split(['"', '\'', ';', ' ', '>', '/']).next()?;
    (!value.is_empty()).then(|| value.to_owned())
}

fn meta_charset(body: &[u8]) -> Option<String> {
    let start = String::from_utf8_lossy(&body[..body.len().min(META_BYTES)]).to_ascii_lowercase();
    start.split("<meta").skip(1).find_map(|meta| charset(meta.split('>').next()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(body: &[u8], kind: &str) -> Result<BodyText, String> {
        decode(body, kind, &Url::parse("https://example.org/a/b").unwrap())
    }

    #[test]
    fn the_encoding_is_named_or_guessed() {
        let gbk = encoding_rs::GBK.encode("道友，今天的天气很好，我们去山上喝茶吧。").0.into_owned();
        for (body, kind, part) in [
            ("plain — text".as_bytes(), "text/plain", "plain — text"),
            (&gbk, "text/plain; charset=gbk", "喝茶"),
            (&gbk, "text/plain", "喝茶"),
            (b"caf\xe9", "text/plain; charset=\"ISO-8859-1\"", "café"),
            (b"<meta charset=windows-1252><p>caf\xe9</p>", "text/html", "café"),
            (b"\xff\xfeh\0i\0", "text/plain", "hi"),
            (b"{\"a\": [1]}", "application/json", "{\"a\": [1]}"),
            (b"<!DOCTYPE html><p>unnamed</p>", "", "unnamed"),
        ] {
            let (BodyText::Html(page) | BodyText::Plain(page)) = text(body, kind).unwrap();
            assert!(page.contains(part), "{kind}: {page:?}");
        }
        for (body, kind) in
            [(&b"%PDF-1.7"[..], "application/pdf"), (b"\x89PNG\0\0", "image/png"), (b"a\0b", "text/plain")]
        {
            assert!(text(body, kind).unwrap_err().contains("not text"), "{kind}");
        }
    }
}
