//! Detects the format of a tool's result and renders it for people. The limits for models are elsewhere.

use serde_json::Value;

use super::layout::{AnsiColour, ScreenRow, TextStyle, cut};
use super::markdown::{MarkdownStyle, render};
use super::markdown_scan::is_heading;
use crate::clean::clean;

/// The size in bytes from which a text is shown without formatting.
const MAX_FORMATTED: usize = 1_000_000;
/// The maximum number of lines that are searched for Markdown.
const MAX_SEARCHED: usize = 400;
/// How many kinds of Markdown marks make a text count as Markdown. One is not enough: a comment in a script looks like a heading.
const MIN_SIGNS: usize = 2;

/// The format of a tool's result.
#[derive(Debug, PartialEq)]
enum OutputKind {
    /// The call failed.
    Error,
    /// An object or an array.
    Json(Value),
    Markdown,
    Text,
}

impl OutputKind {
    /// Returns the kind of the result of a call.
    fn of(content: &str, success: bool) -> Self {
        if !success {
            return Self::Error;
        }
        if content.len() > MAX_FORMATTED {
            return Self::Text;
        }
        let text = content.trim();
        if text.starts_with(['{', '['])
            && let Ok(value) = serde_json::from_str(text)
        {
            return Self::Json(value);
        }
        if is_markdown(content) { Self::Markdown } else { Self::Text }
    }
}

/// Renders a whole result for people: errors in red, JSON on several lines, Markdown formatted. Without colours the text
/// has no escape sequences.
pub fn render_output(content: &str, success: bool, columns: usize, in_colour: bool) -> String {
    rows(content, success, columns, in_colour).iter().map(|row| format!("{}\n", row.paint(in_colour))).collect()
}

/// Returns the lines of a result that gets only a few rows.
pub(super) fn plain_text(content: &str, success: bool, columns: usize) -> String {
    match OutputKind::of(content, success) {
        // One short line says more than the first lines of a longer form.
        OutputKind::Json(value)
            if content.trim().lines().count() > 1 || cut(content.trim(), columns) != content.trim() =>
        {
            clean(&format!("{value:#}"))
        }
        OutputKind::Markdown => {
            rows(content, success, columns, false).iter().map(|row| format!("{}\n", row.plain())).collect()
        }
        OutputKind::Json(_) | OutputKind::Error | OutputKind::Text => clean(content),
    }
}

fn rows(content: &str, success: bool, columns: usize, in_colour: bool) -> Vec<ScreenRow> {
    let lines = |text: &str, text_style: TextStyle| text.lines().map(|line| ScreenRow::of(text_style, line)).collect();
    match OutputKind::of(content, success) {
        OutputKind::Error => lines(&clean(content), TextStyle::coloured(AnsiColour::Red)),
        OutputKind::Json(value) => lines(&clean(&format!("{value:#}")), TextStyle::PLAIN),
        OutputKind::Markdown => {
            render(&clean(content), MarkdownStyle { width: columns, in_colour }, &ScreenRow::default())
        }
        OutputKind::Text => lines(&clean(content), TextStyle::PLAIN),
    }
}

/// Returns true if a text has several kinds of Markdown marks, or a block or table that occurs only in Markdown.
fn is_markdown(content: &str) -> bool {
    let lines = || content.lines().take(MAX_SEARCHED).map(str::trim_start);
    let is_rule = |line: &str| line.starts_with('|') && line.contains("---") && line.trim_end().ends_with('|');
    if lines().filter(|line| line.starts_with("```")).count() >= 2 || lines().any(is_rule) {
        return true;
    }
    let is_item = |line: &str| line.starts_with("- ") || line.starts_with("* ");
    let signs = [
        lines().any(is_heading),
        lines().filter(|line| is_item(line)).count() >= 2,
        lines().any(|line| line.contains("](") && line.contains('[')),
        lines().any(|line| line.matches("**").count() >= 2),
    ];
    signs.into_iter().filter(|sign| *sign).count() >= MIN_SIGNS
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn kinds_are_told_apart() {
        for (content, success, expected) in [
            ("", true, OutputKind::Text),
            ("plain words", true, OutputKind::Text),
            ("{\"a\": 1}", false, OutputKind::Error),
            (" {\"a\": [1, 2]}\n", true, OutputKind::Json(json!({"a": [1, 2]}))),
            ("[]", true, OutputKind::Json(json!([]))),
            ("{not json}", true, OutputKind::Text),
            ("12", true, OutputKind::Text),
            ("[lines 1-2 of 3; continue with offset=3]", true, OutputKind::Text),
            ("# Title\n\nSee [here](https://example.org).", true, OutputKind::Markdown),
            ("before\n```\nlet x;\n```\n", true, OutputKind::Markdown),
            ("| a | b |\n|---|---|\n| 1 | 2 |", true, OutputKind::Markdown),
            ("#!/bin/sh\n# a comment\necho **/*.rs", true, OutputKind::Text),
            ("- one\n- two\n", true, OutputKind::Text),
        ] {
            assert_eq!(OutputKind::of(content, success), expected, "{content:?}");
        }
        let long = format!("[{}]", "1,".repeat(MAX_FORMATTED));
        assert_eq!(OutputKind::of(&long, true), OutputKind::Text);
    }

    #[test]
    fn each_kind_has_its_form() {
        for (content, success, in_colour, expected) in [
            ("went\nwrong", false, true, "\x1b[31mwent\x1b[0m\n\x1b[31mwrong\x1b[0m\n"),
            ("went wrong", false, false, "went wrong\n"),
            ("{\"b\":[1]}", true, false, "{\n  \"b\": [\n    1\n  ]\n}\n"),
            ("# Title\n\nsome **bold** words", true, false, "# Title\n\nsome **bold** words\n"),
            ("plain \x1b[2J text", true, false, "plain  text\n"),
        ] {
            assert_eq!(render_output(content, success, 80, in_colour), expected, "{content:?}");
        }
        assert_eq!(plain_text("{\"a\":1}", true, 80), "{\"a\":1}");
        assert_eq!(plain_text("{\"a\":1}", true, 4), "{\n  \"a\": 1\n}");
    }
}
