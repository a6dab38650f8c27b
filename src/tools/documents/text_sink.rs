//! A sink for the text that is extracted from a document, with limits on size and time.

use std::time::{Duration, Instant};

/// The maximum length of a document's text, in bytes.
pub(super) const MAX_TEXT: usize = 4_000_000;
/// The time limit for reading a document. The text that was read until then is the result.
const MAX_TIME: Duration = Duration::from_secs(40);

/// Collects the text of a document.
pub(super) struct TextSink {
    text: String,
    is_cut: bool,
    deadline: Instant,
}

impl TextSink {
    pub(super) fn new() -> Self {
        Self { text: String::new(), is_cut: false, deadline: Instant::now() + MAX_TIME }
    }

    /// Appends a text, or as much of it as fits.
    pub(super) fn push(&mut self, text: &str) {
        let room = MAX_TEXT - self.text.len();
        self.is_cut |= text.len() > room;
        self.text.push_str(&text[..text.floor_char_boundary(room)]);
    }

    /// Ends the line, if one has begun.
    pub(super) fn end_line(&mut self) {
        if !self.text.is_empty() && !self.text.ends_with('\n') {
            self.push("\n");
        }
    }

    /// Ends the line and removes the spaces at its end.
    pub(super) fn break_line(&mut self) {
        self.trim_end();
        self.push("\n");
    }

    /// Removes spaces and tabs at the end of the text.
    pub(super) fn trim_end(&mut self) {
        let length = self.text.trim_end_matches([' ', '\t']).len();
        self.text.truncate(length);
    }

    /// Removes `ending` at the end of the text.
    pub(super) fn trim_ending(&mut self, ending: &str) {
        if self.text.ends_with(ending) {
            self.text.truncate(self.text.len() - ending.len());
        }
    }

    /// Returns true if the size or time limit is reached, so that nothing more should be read.
    pub(super) fn is_full(&mut self) -> bool {
        self.is_cut |= Instant::now() > self.deadline;
        self.is_cut
    }

    /// Returns the text without runs of empty lines, and whether a part of it is missing.
    pub(super) fn finish(self) -> (String, bool) {
        let mut text = String::with_capacity(self.text.len());
        let mut empty = 0;
        for line in self.text.lines().map(str::trim_end) {
            empty = if line.is_empty() { empty + 1 } else { 0 };
            if empty <= 1 {
                text.push_str(line);
                text.push('\n');
            }
        }
        (text.trim_matches('\n').to_owned(), self.is_cut)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_bounded_and_has_no_runs_of_empty_lines() {
        let mut sink = TextSink::new();
        for part in ["\n\na  ", "\n\n\n\nb", "\n"] {
            sink.push(part);
        }
        assert!(!sink.is_full());
        assert_eq!(sink.finish(), ("a\n\nb".to_owned(), false));
        let mut sink = TextSink::new();
        sink.push(&"界".repeat(MAX_TEXT));
        assert!(sink.is_full());
        let (text, is_cut) = sink.finish();
        assert!(is_cut && text.len() <= MAX_TEXT && text.ends_with('界'));
    }
}
