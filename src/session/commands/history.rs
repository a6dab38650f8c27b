//! `/history`: the last messages of a session.

use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::chat::ChatMessage;
use crate::memory::written;
use crate::phrases::Phrases;
use crate::store::messages::MessageRow;
use crate::text::{one_line, truncate};

/// The number of messages that are shown by default, and the maximum.
pub const DEFAULT_COUNT: usize = 10;
pub const MAX_COUNT: usize = 100;
/// The number of messages that are searched, since tool results are skipped.
pub const MAX_SEARCHED: i64 = 1_000;
/// The maximum number of shown characters of one message.
const MAX_CHARS: usize = 300;

/// Formats the last `count` messages of people and the agent, one per line.
pub fn lines(rows: &[MessageRow], count: usize, zone: &TimeZone, phrases: &Phrases) -> String {
    let mut lines = Vec::new();
    for row in rows.iter().rev() {
        if lines.len() == count {
            break;
        }
        let (who, text) = match serde_json::from_str(&row.body) {
            Ok(ChatMessage::User { content, .. }) => (phrases.said_by_user, written(&content).to_owned()),
            Ok(ChatMessage::Assistant { content, .. }) => (phrases.said_by_agent, content),
            // An unreadable message is skipped, like a tool result.
            _ => continue,
        };
        if !text.trim().is_empty() {
            lines.push(format!("- {} **{who}** {}", clock(row.at, zone), shorten(&text, MAX_CHARS)));
        }
    }
    lines.reverse();
    lines.join("\n")
}

/// Formats a time; a time of today without the date.
pub fn clock(at_ms: i64, zone: &TimeZone) -> String {
    let at = Timestamp::from_millisecond(at_ms).unwrap_or_default().to_zoned(zone.clone());
    let is_today = at.date() == Timestamp::now().to_zoned(zone.clone()).date();
    at.strftime(if is_today { "%H:%M" } else { "%Y-%m-%d %H:%M" }).to_string()
}

/// Returns `text` on one line, without Markdown, cut after `limit` characters.
pub fn shorten(text: &str, limit: usize) -> String {
    truncate(&one_line(text).replace(['`', '*'], ""), limit + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::Language;

    fn row(seq: i64, message: &ChatMessage) -> MessageRow {
        MessageRow {
            epoch: 0,
            seq,
            role: message.role().to_owned(),
            body: serde_json::to_string(message).unwrap(),
            turn: String::new(),
            at: 0,
        }
    }

    #[test]
    fn the_last_messages_are_shown_without_the_runtime_context() {
        let long = "long ".repeat(100);
        let messages = [
            ChatMessage::user("first"),
            ChatMessage::assistant("answer"),
            ChatMessage::user("second\nline\n\n[Runtime Context]\nCurrent Time: now"),
            ChatMessage::Tool {
                call_id: "1".into(),
                name: "exec".into(),
                content: "hidden".into(),
                images: Vec::new(),
            },
            ChatMessage::assistant(""),
            ChatMessage::assistant(long.as_str()),
        ];
        let rows: Vec<_> = (0..).zip(&messages).map(|(seq, message)| row(seq, message)).collect();
        let shown = lines(&rows, 3, &TimeZone::UTC, Phrases::of(Language::En));
        let lines: Vec<_> = shown.lines().collect();
        assert_eq!(lines[..2], ["- 1970-01-01 00:00 **daoyou** answer", "- 1970-01-01 00:00 **you** second line"]);
        assert!(lines.len() == 3 && lines[2].ends_with("long …"), "{lines:?}");
    }
}
