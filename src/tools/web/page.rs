//! The readable text of a response: HTML as Markdown, other text as it is.

use dom_smoothie::{Config, Readability, TextMode};
use encoding_rs::{Encoding, UTF_8};
use url::Url;

use crate::text::{one_line, truncate};
use crate::tools::documents::html;
use crate::tools::encoding::guess;

/// The maximum number of elements of a page that is searched for its article. The time of that search grows faster than the page.
const MAX_ELEMENTS: usize = 50_000;
/// The maximum length of a title, in characters.
const TITLE_CHARS: usize = 300;
/// The length below which an article counts as short, in characters. A short article is used only if the whole page is not much
/// longer.
const SHORT_ARTICLE: usize = 400;
/// The number of leading bytes in which an HTML page may name its encoding (HTML, 13.2.3.2).
const META_BYTES: usize = 1_024;

/// A page as text.
#[derive(Debug, PartialEq, Eq)]
pub struct PageText {
    pub title: String,
    pub text: String,
}

/// Reads a body of the media type `content_type`, which may be empty. The time grows with the body.
///
/// # Errors
/// The body is not a text; the error states what it is.
pub fn read(body: &[u8], content_type: &str, url: &Url) -> Result<PageText, String> {
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
    let text = decode(body, content_type, is_html);
    if is_html { markdown(&text, url) } else { Ok(PageText { title: String::new(), text }) }
}

fn looks_like_html(body: &[u8]) -> bool {
    let start = body[..body.len().min(META_BYTES)].to_ascii_lowercase();
    let start = start.trim_ascii_start();
    start.starts_with(b"<!doctype html") || start.starts_with(b"<html")
}

/// Decodes a body: by its byte order mark, by the encoding in the header, by the encoding in the page, and finally by a guess.
fn decode(body: &[u8], content_type: &str, is_html: bool) -> String {
    let named = parameter(content_type, "charset").or_else(|| is_html.then(|| meta_charset(body)).flatten());
    let named = named.and_then(|label| Encoding::for_label(label.as_bytes()));
    let encoding = named.unwrap_or_else(|| {
        if std::str::from_utf8(body).is_ok() {
            return UTF_8;
        }
        guess(body, true)
    });
    encoding.decode(body).0.into_owned()
}

fn parameter(content_type: &str, name: &str) -> Option<String> {
    let (_, rest) =
        content_type.to_ascii_lowercase().split_once(&format!("{name}=")).map(|(a, b)| (a.len(), b.to_owned()))?;
    let value = rest.trim_start_matches(['"', '\'']).split(['"', '\'', ';', ' ', '>', '/']).next()?;
    (!value.is_empty()).then(|| value.to_owned())
}

fn meta_charset(body: &[u8]) -> Option<String> {
    let start = String::from_utf8_lossy(&body[..body.len().min(META_BYTES)]).to_ascii_lowercase();
    start.split("<meta").skip(1).find_map(|meta| parameter(meta.split('>').next()?, "charset"))
}

fn markdown(text: &str, url: &Url) -> Result<PageText, String> {
    let document = html::parse(text).map_err(|error| format!("{url}: {error}"))?;
    let title = document.select("title").iter().next().map(|title| title.text()).unwrap_or_default();
    let title = truncate(&one_line(&title), TITLE_CHARS);
    let whole = html::whole_markdown(&document);
    let config = Config { text_mode: TextMode::Markdown, max_elements_to_parse: MAX_ELEMENTS, ..Config::default() };
    let article = Readability::with_document(document, Some(url.as_str()), Some(config));
    let article = article.and_then(|mut readable| readable.parse());
    let text = match article {
        Ok(found) if is_enough(&found.text_content, &whole) => found.text_content.to_string(),
        // A list of links, a form or a very short page has no article.
        _ => whole,
    };
    Ok(PageText { title, text: html::without_escapes(&text).trim().to_owned() })
}

fn is_enough(article: &str, whole: &str) -> bool {
    let length = article.trim().chars().count();
    length >= SHORT_ARTICLE || length * 2 >= whole.trim().chars().count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(body: &[u8], kind: &str) -> Result<PageText, String> {
        read(body, kind, &Url::parse("https://example.org/a/b").unwrap())
    }

    #[test]
    fn an_article_becomes_markdown_without_its_surroundings() {
        let words = "The river rises in the hills and runs, through three valleys, down to the sea. ".repeat(12);
        let html = format!(
            "<html><head><title>The  river</title><script>evil()</script></head><body><nav><a href=/x>Menu entry</a></nav>\
             <article><h2>Course</h2><p>{words}</p><p>See <a href='../map'>the map</a> and <b>more</b>.</p>\
             <ul><li>one</li><li>two</li></ul><p hidden>unseen words</p><div style='display:none'>also unseen</div></article>\
             <footer>All rights reserved</footer></body></html>"
        );
        let page = text(html.as_bytes(), "text/html; charset=utf-8").unwrap();
        assert_eq!(page.title, "The river");
        for part in ["## Course", "[the map](https://example.org/map)", "**more**", "- one"] {
            assert!(page.text.contains(part), "{part}: {}", page.text);
        }
        for part in ["evil", "unseen", "Menu entry", "All rights"] {
            assert!(!page.text.contains(part), "{part}: {}", page.text);
        }
        let long = format!("<title>{}</title><p>x</p>", "t".repeat(5_000));
        assert_eq!(text(long.as_bytes(), "text/html").unwrap().title.chars().count(), TITLE_CHARS);
        let code =
            text(b"<p>call snake_case(1), see <code>a_b(.)</code></p><pre>x\\.y = [1]</pre>", "text/html").unwrap();
        assert_eq!(code.text, "call snake_case(1), see `a_b(.)`\n\n```\nx\\.y = [1]\n```");
        let short = text(b"<p>Just <i>this</i>.</p><a href='/k'>key</a>", "text/html").unwrap();
        assert!(short.text.contains("Just *this*.") && short.text.contains("key"), "{short:?}");
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
            let page = text(body, kind).unwrap();
            assert!(page.text.contains(part), "{kind}: {page:?}");
        }
        for (body, kind) in
            [(&b"%PDF-1.7"[..], "application/pdf"), (b"\x89PNG\0\0", "image/png"), (b"a\0b", "text/plain")]
        {
            assert!(text(body, kind).unwrap_err().contains("not text"), "{kind}");
        }
    }

    #[test]
    fn hostile_html_ends() {
        for html in [
            "<div>".repeat(200_000),
            "<b><i>".repeat(50_000),
            "<table><tr><td>".repeat(20_000),
            format!("<p {}>", (0..200_000).map(|n| format!("a{n} ")).collect::<String>()),
        ] {
            assert!(text(html.as_bytes(), "text/html").is_err(), "{}", &html[..20]);
        }
        let wide = "<p>a <b>b</b></p>".repeat(60_000);
        assert!(text(wide.as_bytes(), "text/html").unwrap().text.len() > 100_000);
    }
}
