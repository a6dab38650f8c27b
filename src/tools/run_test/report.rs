//! The report of a test run, in one form for all runners.

use regex::{Captures, Regex};
use serde::Serialize;

use crate::text::{one_line, pattern, plural, truncate};

/// The maximum number of failures that a report keeps, and of those that the model sees.
pub(super) const MAX_FAILURES: usize = 50;
const MAX_SHOWN: usize = 20;
/// The size limit of a failure's message.
const MESSAGE_LINES: usize = 6;
const MESSAGE_CHARS: usize = 600;
/// The maximum length of the name of a test, and of its file, in characters.
const NAME_CHARS: usize = 200;

/// The counts and failures of a run.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct TestReport {
    pub passed: u64,
    pub failed: u64,
    pub skipped: u64,
    /// The failures, at most [`MAX_FAILURES`].
    pub failures: Vec<TestFailure>,
    /// True if the failures are compiler errors, so that no test ran.
    pub is_build_error: bool,
}

/// A test that failed, or a compiler error.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct TestFailure {
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u64>,
    /// The first lines of the message.
    pub message: String,
}

impl TestFailure {
    pub(super) fn new(name: &str, location: Option<(String, u64)>, message: &str) -> Self {
        let (file, line) = location.unzip();
        let lines: Vec<&str> = message.lines().map(str::trim_end).filter(|line| !line.is_empty()).collect();
        let lines = &lines[..lines.len().min(MESSAGE_LINES)];
        // Most runners indent the whole message, so the common indentation is removed.
        let indent = lines.iter().map(|line| line.len() - line.trim_start_matches(' ').len()).min().unwrap_or(0);
        let message = lines.iter().map(|line| &line[indent..]).collect::<Vec<_>>().join("\n");
        Self {
            name: truncate(&one_line(name), NAME_CHARS),
            file: file.map(|file| truncate(&one_line(&file), NAME_CHARS)),
            line,
            message: truncate(&message, MESSAGE_CHARS),
        }
    }

    /// Formats the failure: name, place and message.
    fn render(&self) -> String {
        let place = match (&self.file, self.line) {
            (Some(file), Some(line)) => format!(" ({file}:{line})"),
            (Some(file), None) => format!(" ({file})"),
            _ => String::new(),
        };
        let message: String = self.message.lines().map(|line| format!("\n    {line}")).collect();
        format!("FAILED {}{place}{message}", self.name)
    }
}

impl TestReport {
    /// Returns true if the parser recognized nothing in the output.
    pub(super) fn is_empty(&self) -> bool {
        self.passed + self.failed + self.skipped == 0 && self.failures.is_empty()
    }

    pub(super) fn push(&mut self, failure: TestFailure) {
        if self.failures.len() < MAX_FAILURES {
            self.failures.push(failure);
        }
    }

    /// Adds counts.
    pub(super) fn add(&mut self, passed: u64, failed: u64, skipped: u64) {
        self.passed = self.passed.saturating_add(passed);
        self.failed = self.failed.saturating_add(failed);
        self.skipped = self.skipped.saturating_add(skipped);
    }

    /// Adds a count that a runner labels with this word. Counts of anything else, such as warnings, are ignored.
    pub(super) fn add_named(&mut self, count: u64, word: &str) {
        match word {
            "pass" | "passed" | "passing" | "xpassed" => self.add(count, 0, 0),
            "fail" | "failed" | "failing" | "cancelled" | "error" | "errors" => self.add(0, count, 0),
            "skipped" | "todo" | "pending" | "xfailed" => self.add(0, 0, count),
            _ => {}
        }
    }

    /// Formats the counts.
    pub(super) fn counts(&self) -> String {
        if self.is_build_error {
            return format!("does not compile: {}", plural(self.failures.len(), "error"));
        }
        format!("{} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped)
    }

    pub(super) fn render_failures(&self) -> String {
        let mut parts: Vec<String> = self.failures.iter().take(MAX_SHOWN).map(TestFailure::render).collect();
        let hidden = self.failures.len().saturating_sub(MAX_SHOWN);
        if hidden > 0 {
            parts.push(format!("[{hidden} more failures, not shown]"));
        }
        parts.join("\n")
    }
}

pattern!(ESCAPES, r"\x1b\[[0-9;?]*[A-Za-z]");

/// Returns an output without colours, and with LF as line ends.
pub(super) fn clean(text: &str) -> String {
    ESCAPES.replace_all(text, "").replace("\r\n", "\n")
}

/// Returns the matches of a pattern, each with the text up to the next one.
pub(super) fn sections<'a>(pattern: &Regex, text: &'a str) -> impl Iterator<Item = (Captures<'a>, &'a str)> {
    let mut heads = pattern.captures_iter(text).peekable();
    std::iter::from_fn(move || {
        let head = heads.next()?;
        let end = heads.peek().map_or(text.len(), |next| next.get_match().start());
        let body = &text[head.get_match().end()..end];
        Some((head, body))
    })
}

/// Parses a number of at most ten digits; 0 if it is longer.
pub(super) fn number(digits: &str) -> u64 {
    if digits.len() <= 10 { digits.parse().unwrap_or(0) } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_bounded_and_shows_names_places_and_messages() {
        let mut report = TestReport::default();
        report.add(1, 99, 2);
        for n in 0..99 {
            report.push(TestFailure::new(&format!("t{n}\nx"), Some(("a.rs".to_owned(), n)), &"line\n".repeat(1_000)));
        }
        assert_eq!(report.failures.len(), MAX_FAILURES);
        let text = report.render_failures();
        assert!(text.starts_with("FAILED t0 x (a.rs:0)\n    line\n") && text.len() < 3_000, "{text}");
        assert!(text.ends_with("[30 more failures, not shown]"), "{text}");
        assert_eq!(report.counts(), "1 passed, 99 failed, 2 skipped");
    }
}
