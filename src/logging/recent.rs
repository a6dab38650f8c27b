//! The last lines of the log, kept in memory, so that the page can show them wherever the log is written.

use std::collections::VecDeque;
use std::fmt::Debug;
use std::fmt::Write as _;

use daoyou_channels::clean::escape_newlines;
use jiff::Timestamp;
use parking_lot::Mutex;
use serde::Serialize;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, Layer};

use crate::text::truncate;

/// The maximum number of lines, and the maximum length, in characters, of a line.
const MAX_LINES: usize = 2_000;
const MAX_TEXT: usize = 1_000;

/// The log of this process. There is one, as there is one log output.
static RECENT: RecentLog = RecentLog(Mutex::new(VecDeque::new()));

/// A line of the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LogLine {
    /// The number of the line, from 1.
    pub number: u64,
    pub at: Timestamp,
    /// `ERROR`, `WARN`, `INFO`, `DEBUG` or `TRACE`.
    pub level: &'static str,
    /// The module that logged the line.
    pub target: String,
    /// The message and the fields.
    pub text: String,
}

/// The last lines of a log.
#[derive(Debug, Default)]
pub struct RecentLog(Mutex<VecDeque<LogLine>>);

impl RecentLog {
    /// Returns the log of this process.
    pub fn of_process() -> &'static Self {
        &RECENT
    }

    /// Returns the last lines of at least this level after the line number `after`, at most `limit`.
    pub fn lines(&self, level: Level, after: u64, limit: usize) -> Vec<LogLine> {
        let is_shown = |line: &&LogLine| line.level.parse::<Level>().is_ok_and(|of_line| of_line <= level);
        let lines = self.0.lock();
        let shown = lines.iter().rev().take_while(|line| line.number > after).filter(is_shown).take(limit);
        let mut shown: Vec<LogLine> = shown.cloned().collect();
        shown.reverse();
        shown
    }

    fn add(&self, level: Level, target: &str, text: &str) {
        let text = truncate(text, MAX_TEXT);
        let mut lines = self.0.lock();
        let number = lines.back().map_or(0, |line| line.number) + 1;
        if lines.len() >= MAX_LINES {
            lines.pop_front();
        }
        lines.push_back(LogLine {
            number,
            at: Timestamp::now(),
            level: level.as_str(),
            target: target.to_owned(),
            text,
        });
    }
}

/// A tracing layer that records the lines that the log shows.
pub struct RecentLayer;

impl<S: Subscriber> Layer<S> for RecentLayer {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut fields = FieldText::default();
        event.record(&mut fields);
        let metadata = event.metadata();
        let text = format!("{}{}", fields.message, fields.others);
        RecentLog::of_process().add(*metadata.level(), metadata.target(), text.trim_start());
    }
}

#[derive(Default)]
struct FieldText {
    message: String,
    others: String,
}

impl Visit for FieldText {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let text = escape_newlines(&format!("{value:?}"));
        match field.name() {
            "message" => self.message = text,
            // Writing to a string cannot fail.
            name => _ = write!(self.others, " {}={text}", name.strip_prefix("r#").unwrap_or(name)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_selected_by_level_number_and_count() {
        let log = RecentLog::default();
        for number in 1..=MAX_LINES + 10 {
            let level = if number % 100 == 0 { Level::WARN } else { Level::INFO };
            log.add(level, "daoyou::a", &format!("line {number}"));
        }
        let numbers = |level, after, limit| -> Vec<u64> {
            log.lines(level, after, limit).into_iter().map(|line| line.number).collect()
        };
        assert_eq!(numbers(Level::INFO, 0, 3), [2_008, 2_009, 2_010]);
        assert_eq!(numbers(Level::INFO, 2_009, 100), [2_010]);
        assert_eq!(numbers(Level::WARN, 0, 2), [1_900, 2_000]);
        assert_eq!(numbers(Level::ERROR, 0, 2), [0_u64; 0]);
        assert_eq!(log.lines(Level::TRACE, 0, usize::MAX).len(), MAX_LINES);
    }
}
