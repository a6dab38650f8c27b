//! The readable text of a web page: its article, or else the whole page, as Markdown.

use dom_smoothie::{Config, Readability, TextMode};

use super::html;
use crate::text::{one_line, truncate};

/// The maximum number of elements of a page that is searched for its article. The time of that search grows faster than the page.
const MAX_ELEMENTS: usize = 50_000;
/// The maximum length of a title, in characters.
const TITLE_CHARS: usize = 300;
/// The length below which an article counts as short, in characters. A short article is used only if the whole page is not much
/// longer.
const SHORT_ARTICLE: usize = 400;

/// A page as text.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Article {
    pub title: String,
    pub text: String,
}

/// Reads the page at `url`.
///
/// # Errors
/// As [`html::parse`].
pub(super) fn read(html: &str, url: &str) -> Result<Article, String> {
    let document = html::parse(html)?;
    let title = document.select("title").iter().next().map(|title| title.text()).unwrap_or_default();
    let title = truncate(&one_line(&title), TITLE_CHARS);
    let whole = html::whole_markdown(&document);
    let config = Config { text_mode: TextMode::Markdown, max_elements_to_parse: MAX_ELEMENTS, ..Config::default() };
    let article = Readability::with_document(document, Some(url), Some(config));
    let article = article.and_then(|mut readable| readable.parse());
    let text = match article {
        Ok(found) if is_enough(&found.text_content, &whole) => found.text_content.to_string(),
        // A list of links, a form or a very short page has no article.
        _ => whole,
    };
    Ok(Article { title, text: html::readable(&text) })
}

fn is_enough(article: &str, whole: &str) -> bool {
    let length = article.trim().chars().count();
    length >= SHORT_ARTICLE || length * 2 >= whole.trim().chars().count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(html: &str) -> Result<Article, String> {
        read(html, "https://example.org/a/b")
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
        let page = text(&html).unwrap();
        assert_eq!(page.title, "The river");
        for part in ["## Course", "[the map](https://example.org/map)", "**more**", "- one"] {
            assert!(page.text.contains(part), "{part}: {}", page.text);
        }
        for part in ["evil", "unseen", "Menu entry", "All rights"] {
            assert!(!page.text.contains(part), "{part}: {}", page.text);
        }
        let long = format!("<title>{}</title><p>x</p>", "t".repeat(5_000));
        assert_eq!(text(&long).unwrap().title.chars().count(), TITLE_CHARS);
        let code = text("<p>call snake_case(1), see <code>a_b(.)</code></p><pre>x\\.y = [1]</pre>").unwrap();
        assert_eq!(code.text, "call snake_case(1), see `a_b(.)`\n\n```\nx\\.y = [1]\n```");
        let short = text("<p>Just <i>this</i>.</p><a href='/k'>key</a>").unwrap();
        assert!(short.text.contains("Just *this*.") && short.text.contains("key"), "{short:?}");
    }

    #[test]
    fn hostile_html_ends() {
        for html in [
            "<div>".repeat(200_000),
            "<b><i>".repeat(50_000),
            "<table><tr><td>".repeat(20_000),
            format!("<p {}>", (0..200_000).map(|n| format!("a{n} ")).collect::<String>()),
        ] {
            assert!(text(&html).is_err(), "{}", &html[..20]);
        }
        let wide = "<p>a <b>b</b></p>".repeat(60_000);
        assert!(text(&wide).unwrap().text.len() > 100_000);
    }
}
