//! Converts HTML to Markdown, for web pages and chapters of books.

use std::time::{Duration, Instant};

use dom_query::Document;
use html5ever::tendril::TendrilSink;
use html5ever::tree_builder::TreeBuilderOpts;
use html5ever::{ParseOpts, parse_document};

/// The maximum depth of HTML, since the libraries recurse.
const MAX_DEPTH: usize = 400;
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
pub(in crate::tools) fn markdown(html: &str) -> Result<String, String> {
    Ok(without_escapes(&whole_markdown(&parse(html)?)).trim().to_owned())
}

/// Parses a page.
///
/// # Errors
/// Reading the page would take too long, or its nesting is too deep.
pub(in crate::tools) fn parse(html: &str) -> Result<Document, String> {
    let document = parse_in_time(html).ok_or("the HTML is built so that reading it takes too long")?;
    if is_deeper_than(&document, MAX_DEPTH) {
        return Err(format!("the HTML is nested more than {MAX_DEPTH} deep, which is not read"));
    }
    Ok(document)
}

/// Returns all text of a page as Markdown with escapes. Removes from the page what a reader does not see.
pub(in crate::tools) fn whole_markdown(document: &Document) -> String {
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

/// Removes the backslashes that the Markdown writer puts before every punctuation mark outside of code, because the text is read,
/// not rendered. Backslashes before `*` and backticks stay.
pub(in crate::tools) fn without_escapes(markdown: &str) -> String {
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

/// Returns true if the document is nested deeper than `limit`. Walks without recursion.
fn is_deeper_than(document: &Document, limit: usize) -> bool {
    let mut open = vec![(document.root(), 0)];
    while let Some((node, depth)) = open.pop() {
        if depth > limit {
            return true;
        }
        open.extend(node.children_it(false).map(|child| (child, depth + 1)));
    }
    false
}
