//! Renders the HTML form of a text.

use std::collections::{HashMap, HashSet};
use std::sync::LazyLock;

use ammonia::{Builder, UrlRelative};
use pulldown_cmark::{Event, Tag, TagEnd, TextMergeStream};

use super::markdown::{SCHEMES, link};

const TAGS: [&str; 25] = [
    "a", "p", "br", "hr", "em", "strong", "del", "code", "pre", "blockquote", "ul", "ol", "li", "h1", "h2", "h3", "h4",
    "h5", "h6", "table", "thead", "tbody", "tr", "th", "td",
];
/// The attributes of tags, because mail programs drop style sheets. The order is fixed, because a mail that is sent again
/// must have the same bytes.
const STYLES: [(&str, &str); 5] = [
    ("pre", "style=\"background:#f4f4f4;padding:8px;white-space:pre-wrap;font-family:monospace\""),
    ("code", "style=\"background:#f4f4f4;font-family:monospace\""),
    ("blockquote", "style=\"margin:0 0 0 4px;padding-left:8px;border-left:2px solid #cccccc;color:#555555\""),
    ("table", "border=\"1\" cellspacing=\"0\" cellpadding=\"5\" style=\"border-collapse:collapse\""),
    ("hr", "style=\"border:0;border-top:1px solid #cccccc\""),
];

/// Renders the events as HTML without scripts, remote content and other active content.
pub fn render<'a>(events: impl Iterator<Item = Event<'a>>) -> String {
    render_events(link_urls(TextMergeStream::new(events)).into_iter())
}

fn render_events<'a>(events: impl Iterator<Item = Event<'a>>) -> String {
    let mut html = String::new();
    pulldown_cmark::html::push_html(&mut html, events);
    styled(CLEANER.clean(&html).to_string())
}

/// Turns each URL in a text into a link.
fn link_urls<'a>(events: impl Iterator<Item = Event<'a>>) -> Vec<Event<'a>> {
    let (mut all, mut depth) = (Vec::new(), 0_usize);
    for event in events {
        match &event {
            Event::Start(Tag::Link { .. } | Tag::CodeBlock(_)) => depth += 1,
            Event::End(TagEnd::Link | TagEnd::CodeBlock) => depth = depth.saturating_sub(1),
            Event::Text(text) if depth == 0 && text.contains("://") => {
                let mut end = 0;
                for (start, _) in text.match_indices("http") {
                    let Some(url) = (start >= end).then(|| url_at_start(&text[start..])).flatten() else { continue };
                    all.push(Event::Text(text[end..start].to_owned().into()));
                    all.push(Event::Start(link(url.to_owned().into())));
                    all.push(Event::Text(url.to_owned().into()));
                    all.push(Event::End(TagEnd::Link));
                    end = start + url.len();
                }
                all.push(Event::Text(text[end..].to_owned().into()));
                continue;
            }
            _ => {}
        }
        all.push(event);
    }
    all
}

/// Returns the URL at the beginning of a text, without the punctuation that ends its sentence. Takes linear time for any text.
fn url_at_start(text: &str) -> Option<&str> {
    let host = ["https://", "http://"].iter().find_map(|scheme| text.strip_prefix(scheme))?;
    if !host.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '[') {
        return None;
    }
    let is_part = |c: char| c.is_ascii_graphic() && !matches!(c, '<' | '>' | '"' | '`');
    let mut url = &text[..text.find(|c| !is_part(c)).unwrap_or(text.len())];
    let opening = url.matches('(').count();
    let mut closing = url.matches(')').count();
    while let Some(shorter) = url.strip_suffix(['.', ',', ';', ':', '!', '?', '\'', ')', ']', '}', '*', '_']) {
        if url.ends_with(')') {
            if closing <= opening {
                break;
            }
            closing -= 1;
        }
        url = shorter;
    }
    Some(url)
}

/// Renders a paragraph of plain text.
pub fn paragraph(text: &str) -> String {
    render_events([Event::Start(Tag::Paragraph), Event::Text(text.into()), Event::End(TagEnd::Paragraph)].into_iter())
}

/// Renders a quotation of plain text, below the line that names its author.
pub fn quotation(head: &str, text: &str) -> String {
    let lines = text.lines().flat_map(|line| [Event::HardBreak, Event::Text(line.into())]).skip(1);
    let quote = [Event::InlineHtml("<blockquote>".into())].into_iter().chain(lines);
    paragraph(head) + &render_events(quote.chain([Event::InlineHtml("</blockquote>\n".into())]))
}

/// Wraps a body into a complete document.
pub fn document(body: &str) -> String {
    format!("<!DOCTYPE html>\n<html>\n<head><meta charset=\"utf-8\"></head>\n<body>\n{body}</body>\n</html>\n")
}

static CLEANER: LazyLock<Builder<'static>> = LazyLock::new(|| {
    let mut builder = Builder::empty();
    builder
        .tags(TAGS.into())
        .clean_content_tags(["script", "style"].into())
        .generic_attributes(HashSet::new())
        .tag_attributes(HashMap::from([
            ("a", ["href"].into()),
            ("ol", ["start"].into()),
            ("th", ["style"].into()),
            ("td", ["style"].into()),
        ]))
        .filter_style_properties(["text-align"].into())
        .url_schemes(SCHEMES.into())
        .url_relative(UrlRelative::Deny)
        .link_rel(Some("noopener noreferrer"));
    builder
});

/// Adds the style attributes. In clean HTML every `<` begins a tag, and these tags have no attributes yet.
fn styled(html: String) -> String {
    let style = |html: String, (tag, attributes): &(&str, &str)| {
        html.replace(&format!("<{tag}>"), &format!("<{tag} {attributes}>"))
    };
    STYLES.iter().fold(html, style)
}

#[cfg(test)]
mod tests {
    use super::super::markdown;
    use super::*;

    fn html(markdown: &str) -> String {
        render(markdown::events(markdown, "image").into_iter())
    }

    #[test]
    fn markdown_becomes_clean_html() {
        for (markdown, expected) in [
            ("a **b** *c* ~~d~~ `e<f>`", "<p>a <strong>b</strong> <em>c</em> <del>d</del> <code"),
            ("one\ntwo", "<p>one<br>\ntwo</p>"),
            (
                "[x](https://example.org/?a=1&b=2)",
                "href=\"https://example.org/?a=1&amp;b=2\" rel=\"noopener noreferrer\">x</a>",
            ),
            ("<ann@example.org>", "href=\"mailto:ann@example.org\""),
            (
                "| a |\n|--:|\n| 1 |",
                "cellpadding=\"5\" style=\"border-collapse:collapse\"><thead><tr><th style=\"text-align:right\">a</th></tr></thead><tbody>\n<tr><td style=\"text-align:right\">1</td>",
            ),
            ("3. c\n4. d", "<ol start=\"3\">"),
            ("- [x] done\n- [ ] not", "<li>☑ done</li>"),
            ("Dear <name>, use Vec<String>", "Dear &lt;name&gt;, use Vec&lt;String&gt;"),
            ("[x](https://example.org/<pre>)", "href=\"https://example.org/%3Cpre%3E\""),
            ("2*3*4 is 24, x**2 + y**2", "<p>2*3*4 is 24, x**2 + y**2</p>"),
            ("这是*重点*内容，*a*b", "这是<em>重点</em>内容，<em>a</em>b"),
            (
                "see https://example.org/a_b_c?x=(1)&y=2.",
                "see <a href=\"https://example.org/a_b_c?x=(1)&amp;y=2\" rel=\"noopener noreferrer\">https://example.org/a_b_c?x=(1)&amp;y=2</a>.",
            ),
            ("见https://example.org/路径。", "见<a href=\"https://example.org/\""),
            ("`https://example.org`", "font-family:monospace\">https://example.org</code>"),
            (
                "[https://a.example](https://b.example)",
                "<p><a href=\"https://b.example\" rel=\"noopener noreferrer\">https://a.example</a></p>",
            ),
            ("http://", "<p>http://</p>"),
            ("http:// or https://example.org", "<p>http:// or <a href=\"https://example.org\""),
            ("***", "<hr style=\"border:0;"),
            ("> q", "<blockquote style=\"margin:0"),
            ("a<br>b", "a<br>\nb"),
            ("```rust\nlet a = \"<b>\";\n```", "let a = \"&lt;b&gt;\";"),
            ("![cat](https://evil.example/x.png?d=secret)", "rel=\"noopener noreferrer\">cat</a>"),
            (
                "[![cat](https://e.example/x.png)](https://example.org/)",
                "<p><a href=\"https://example.org/\" rel=\"noopener noreferrer\">cat</a></p>",
            ),
        ] {
            let html = html(markdown);
            assert!(html.contains(expected), "{markdown} -> {html}");
        }
    }

    #[test]
    fn urls_are_found_in_linear_time() {
        for text in ["http://x".to_owned() + &")".repeat(100_000), "http://x ".repeat(5_000), "http://(".repeat(20_000)]
        {
            let started = std::time::Instant::now();
            assert!(html(&text).len() > text.len());
            assert!(started.elapsed().as_secs() < 20, "{}: {:?}", &text[..20], started.elapsed());
        }
    }

    #[test]
    fn active_and_remote_content_is_removed() {
        for markdown in [
            "<script>alert(1)</script>",
            "<img src=https://evil.example/x.png onerror=alert(1)>",
            "![x](https://evil.example/x.png)",
            "![x][r]\n\n[r]: https://evil.example/x.png",
            "[x](javascript:alert(1))",
            "[x](data:text/html;base64,AAAA)",
            "<a href=\"javascript:alert(1)\" onclick=\"x()\">x</a>",
            "<div style=\"background:url(https://evil.example/x.png)\">\n\nx\n\n</div>",
            "<style>body{background:url(https://evil.example)}</style>",
            "<link rel=stylesheet href=https://evil.example>",
            "<iframe src=https://evil.example></iframe>",
            "[x](/relative \"onmouseover=alert(1)\")",
        ] {
            let html = html(markdown);
            // All other tags must be escaped as text.
            for tag in html.split('<').skip(1).filter_map(|tag| tag.split('>').next()) {
                let name = tag.trim_start_matches('/').split([' ', '/']).next().unwrap_or_default();
                assert!(TAGS.contains(&name), "{markdown} -> {html}");
                for wrong in ["src=", " on", "url(", "javascript:", "data:", "href=\"/"] {
                    assert!(!tag.contains(wrong), "{markdown} -> {html}");
                }
            }
        }
    }
}
