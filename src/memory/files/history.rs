//! The text of HISTORY.md: a dated log of summaries.

use std::collections::BTreeSet;
use std::ops::Range;

use daoyou_channels::cli::Language;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde_json::Value;

use crate::store::memory_lines::SummaryRow;

/// The headings of a section in one language.
struct Words {
    title: &'static str,
    session: &'static str,
    messages: &'static str,
    content: &'static str,
}

const EN: Words =
    Words { title: "Conversation summary", session: "Conversation", messages: "Messages", content: "What matters" };
const ZH: Words = Words { title: "会话摘要", session: "会话", messages: "消息数", content: "关键内容" };

/// The line that ends a section.
const END: &str = "---";

/// Formats a summary as a section of the log.
pub fn section(row: &SummaryRow, language: Language, zone: &TimeZone) -> String {
    let words = match language {
        Language::En => &EN,
        Language::Zh => &ZH,
    };
    let detail: Value = serde_json::from_str(&row.detail).unwrap_or_default();
    let count = match (detail["from"].as_i64(), detail["to"].as_i64()) {
        (Some(from), Some(to)) => to.saturating_sub(from).max(0),
        _ => 0,
    };
    let text =
        row.text.lines().map(|line| if line.trim() == END { "***" } else { line }).collect::<Vec<_>>().join("\n");
    let head = head(words, &row.session, row.at, zone);
    format!("{head}- {}: {count}\n\n### {}\n{text}\n{END}\n", words.messages, words.content)
}

/// The bytes that a person may have appended after a process stopped before it had recorded its own sections.
const WRITTEN_SINCE: usize = 64 * 1024;

/// Appends sections to a log. Sections that a stopped process has written already are not repeated.
pub fn with(log: &str, sections: &[String]) -> String {
    let length = sections.iter().map(|section| section.len() + 2).sum::<usize>() + WRITTEN_SINCE;
    let end = &log[log.floor_char_boundary(log.len().saturating_sub(length))..];
    let mut text = log.to_owned();
    for section in sections.iter().filter(|section| !end.contains(section.as_str())) {
        if !text.is_empty() {
            text.push_str(if text.ends_with('\n') { "\n" } else { "\n\n" });
        }
        text.push_str(section);
    }
    text
}

/// Replaces the sections of a session and a minute by those of `rows`, and removes those without a row.
pub fn retold(log: &str, session: &str, at: i64, rows: &[SummaryRow], language: Language, zone: &TimeZone) -> String {
    let heads: BTreeSet<String> = [&EN, &ZH].into_iter().map(|words| head(words, session, at, zone)).collect();
    let ranges: Vec<Range<usize>> = heads.iter().flat_map(|head| sections(log, head)).collect();
    let Some(first) = ranges.iter().map(|range| range.start).min() else { return log.to_owned() };
    let is_of_then = |row: &&SummaryRow| minute(row.at, zone) == minute(at, zone);
    let told: Vec<String> = rows.iter().filter(is_of_then).map(|row| section(row, language, zone)).collect();
    let mut text = String::with_capacity(log.len());
    let mut from = 0;
    let mut ranges = ranges;
    ranges.sort_by_key(|range| range.start);
    for range in ranges {
        text.push_str(&log[from..range.start]);
        if range.start == first {
            text.push_str(&told.join("\n"));
        }
        from = range.end;
    }
    text.push_str(&log[from..]);
    text
}

fn head(words: &Words, session: &str, at: i64, zone: &TimeZone) -> String {
    format!("## {} ({})\n- {}: {session}\n", words.title, minute(at, zone), words.session)
}

fn minute(at: i64, zone: &TimeZone) -> String {
    let at = Timestamp::from_millisecond(at).unwrap_or_default().to_zoned(zone.clone());
    at.strftime("%Y-%m-%d %H:%M").to_string()
}

/// Returns the ranges of the sections with this head, their last lines included.
fn sections(log: &str, head: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    for (start, _) in log.match_indices(head) {
        let mut end = start;
        for line in log[start..].split_inclusive('\n') {
            if end > start && line.starts_with("## ") {
                break;
            }
            end += line.len();
            if line.trim() == END {
                break;
            }
        }
        found.push(start..end);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(id: i64, text: &str) -> SummaryRow {
        let (session, detail) = ("cli:direct".to_owned(), r#"{"epoch":0,"from":4,"to":29}"#.to_owned());
        SummaryRow { id, session, text: text.to_owned(), detail, at: 60_000 * id }
    }

    #[test]
    fn sections_are_added_once_and_told_anew() {
        let zone = TimeZone::UTC;
        let told = |row: &SummaryRow| section(row, Language::Zh, &zone);
        let (one, two) = (row(1, "- 用户喜欢茶\n---\n- PIN 4711"), row(2, "second"));
        assert_eq!(
            told(&one),
            "## 会话摘要 (1970-01-01 00:01)\n- 会话: cli:direct\n- 消息数: 25\n\n### 关键内容\n- 用户喜欢茶\n***\n- PIN 4711\n---\n"
        );
        assert!(
            section(&two, Language::En, &zone)
                .starts_with("## Conversation summary (1970-01-01 00:02)\n- Conversation: ")
        );
        let log = with("# mine", &[told(&one), told(&two)]);
        assert_eq!(with(&log, &[told(&one), told(&two)]), log);
        let left = row(1, "- 用户喜欢茶");
        let anew = retold(&log, "cli:direct", one.at, std::slice::from_ref(&left), Language::Zh, &zone);
        assert_eq!(anew, with("# mine", &[told(&left), told(&two)]));
        let gone = retold(&log, "cli:direct", one.at, &[], Language::En, &zone);
        assert_eq!(gone, format!("# mine\n\n\n{}", told(&two)));
        assert_eq!(retold(&log, "other", one.at, &[], Language::En, &zone), log);
    }
}
