//! Converts HTML to Markdown, for web pages and chapters of books.

use std::time::{Duration, Instant};

use dom_query::Document;
use html5ever::tendril::TendrilSink;
use html5ever::tree_builder::TreeBuilderOpts;
use html5ever::{ParseOpts, parse_document};

use super::text_sink::MAX_TEXT;

/// The maximum depth of HTML, since the libraries recurse.
const MAX_DEPTH: usize = 400;
/// The maximum number of lists and quotations around a line. The writer repeats a prefix for each of them in every line.
const MAX_PREFIXES: usize = 20;
/// The time limit for parsing. The time grows with the square of the nesting depth and of the number of attributes.
const PARSE_TIME: Duration = Duration::from_secs(5);
/// How many bytes are parsed between two checks of the clock.
const PARSE_STEP: usize = 4_096;
/// Elements without text for readers.
const SKIPPED: &[&str] = &["script", "style", "noscript", "template", "svg", "iframe", "head", "form", "button"];

/// Returns all text of a page as Markdown.
///
/// # Errors
/// As [`parse`].
pub(super) fn markdown(html: &str) -> Result<String, String> {
    Ok(readable(&whole_markdown(&parse(html)?)))
}

/// Parses a page. Lists and quotations in more than [`MAX_PREFIXES`] others become plain blocks.
///
/// # Errors
/// Reading the page would take too long, or its nesting is too deep.
pub(super) fn parse(html: &str) -> Result<Document, String> {
    let document = parse_in_time(html).ok_or("the HTML is built so that reading it takes too long")?;
    if !flatten(&document) {
        return Err(format!("the HTML is nested more than {MAX_DEPTH} deep, which is not read"));
    }
    Ok(document)
}

/// Returns all text of a page as Markdown with escapes. Removes from the page what a reader does not see.
pub(super) fn whole_markdown(document: &Document) -> String {
    // The model must not see what a reader does not see.
    document.select("[hidden], [aria-hidden=true], [style*='display:none'], [style*='display: none']").remove();
    document.md(Some(SKIPPED)).to_string()
}

/// Parses a page; returns `None` if that takes too long.
fn parse_in_time(html: &str) -> Option<Document> {
    let tree_builder = TreeBuilderOpts { scripting_enabled: false, ..TreeBuilderOpts::default() };
    let mut parser = parse_document(Document::default(), ParseOpts { tree_builder, ..ParseOpts::default() });
    let started = Instant::now();
    let mut rest = html;
    while !rest.is_empty() {
        let (step, after) = rest.split_at(rest.floor_char_boundary(PARSE_STEP));
        parser.process(step.into());
        rest = after;
        if started.elapsed() > PARSE_TIME {
            return None;
        }
    }
    Some(parser.finish())
}

/// Returns the Markdown of the writer as a text to read: without escapes, and cut at the maximum length of a document.
pub(super) fn readable(markdown: &str) -> String {
    let text = without_escapes(&markdown[..markdown.floor_char_boundary(MAX_TEXT)]);
    let text = text.trim();
    let is_cut = markdown.len() > MAX_TEXT;
    if is_cut { format!("{text}\n[the text is cut here: the rest is not read]") } else { text.to_owned() }
}

/// Removes the backslashes that the Markdown writer puts before every punctuation mark outside of code, because the text is read,
/// not rendered. Backslashes before `*` and backticks stay.
fn without_escapes(markdown: &str) -> String {
    let mut text = String::with_capacity(markdown.len());
    let mut in_block = false;
    for line in markdown.lines() {
        let is_fence = line.trim_start().starts_with("```");
        in_block ^= is_fence;
        if in_block || is_fence {
            text.push_str(line.trim_end());
        } else {
            push_without_escapes(&mut text, line.trim_end());
        }
        text.push('\n');
    }
    text
}

fn push_without_escapes(text: &mut String, line: &str) {
    let mut in_code = false;
    let mut chars = line.chars().peekable();
    while let Some(c) = chars.next() {
        in_code ^= c == '`';
        match chars.next_if(|next| c == '\\' && !in_code && "_{}[]<>()#+.!|\"*`\\".contains(*next)) {
            Some(mark @ ('*' | '`' | '\\')) => text.extend(['\\', mark]),
            Some(mark) => text.push(mark),
            None => text.push(c),
        }
    }
}

/// Turns each list and quotation in more than [`MAX_PREFIXES`] others into a `div`, which has no prefix. Returns false if the
/// document is nested deeper than [`MAX_DEPTH`]. Walks without recursion.
fn flatten(document: &Document) -> bool {
    let mut open = vec![(document.root(), 0, 0)];
    while let Some((node, depth, mut prefixes)) = open.pop() {
        if depth > MAX_DEPTH {
            return false;
        }
        if ["blockquote", "ol", "ul"].iter().any(|name| node.has_name(name)) {
            prefixes += 1;
            if prefixes > MAX_PREFIXES {
                node.rename("div");
            }
        }
        open.extend(node.children_it(false).map(|child| (child, depth + 1, prefixes)));
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deep_quotations_and_lists_do_not_multiply_the_text() {
        let lines = 8_000;
        for (start, line) in [
            (format!("{}<pre>", "<blockquote>".repeat(380)), "x\n"),
            ("<blockquote>".repeat(190), "<p>x"),
            ("<ul><li>".repeat(190), "<li>x"),
            ("<ol start=999999999><li>".repeat(190), "<li>x"),
            ("<ul><li><blockquote>".repeat(120), "<p>x"),
        ] {
            let html = format!("<html><body>{start}{}", line.repeat(lines));
            let written = whole_markdown(&parse(&html).unwrap());
            let most = (MAX_PREFIXES * 12 + 4) * (lines + 400);
            assert!(written.len() < most, "{line:?}: {} > {most}", written.len());
            let shown = readable(&written);
            assert!(shown.matches('x').count() >= lines || shown.ends_with("not read]"), "{line:?}");
        }
    }

    #[test]
    fn shallow_quotations_and_lists_stay() {
        let html = "<blockquote><p>a</p><blockquote>b</blockquote></blockquote><ul><li>c<ul><li>d</ul></ul>";
        let text = markdown(html).unwrap();
        for line in ["> a", "> > b", "- c", "    - d"] {
            assert!(text.lines().any(|written| written == line), "{line:?}: {text}");
        }
        let deep = format!("{}inner words", "<blockquote>".repeat(MAX_PREFIXES + 5));
        let text = markdown(&deep).unwrap();
        assert_eq!(text, format!("{}inner words", "> ".repeat(MAX_PREFIXES)));
    }

    #[test]
    fn a_text_is_cut_at_the_length_of_a_document() {
        let text = readable(&"界".repeat(MAX_TEXT));
        assert!(text.len() < MAX_TEXT + 100 && text.ends_with("界\n[the text is cut here: the rest is not read]"));
        assert_eq!(readable(" a\\_b "), "a_b");
    }
}
