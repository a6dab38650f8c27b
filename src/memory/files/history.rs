//! The text of HISTORY.md: a dated log of summaries.

use std::collections::BTreeSet;
use std::ops::Range;

use daoyou_channels::text::texts;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde_json::Value;

use super::memory_page::remove_ranges;
use crate::store::memory_lines::SummaryRow;
use crate::text::Language;

texts! {
    /// The headings of a section in one language.
    struct HistoryHeadings {
        title: "Conversation summary", "会话摘要";
        session: "Conversation", "会话";
        messages: "Messages", "消息数";
        content: "What matters", "关键内容";
    }
}

/// The line that ends a section.
const SECTION_END: &str = "---";

/// Formats a summary as a section of the log.
pub fn section(row: &SummaryRow, language: Language, zone: &TimeZone) -> String {
    let headings = HistoryHeadings::of(language);
    let detail: Value = serde_json::from_str(&row.detail).unwrap_or_default();
    let count = match (detail["from"].as_i64(), detail["to"].as_i64()) {
        (Some(from), Some(to)) => to.saturating_sub(from).max(0),
        _ => 0,
    };
    let text = row
        .text
        .lines()
        .map(|line| if line.trim() == SECTION_END { "***" } else { line })
        .collect::<Vec<_>>()
        .join("\n");
    let head = section_head(headings, &row.session, row.at, zone);
    format!("{head}- {}: {count}\n\n### {}\n{text}\n{SECTION_END}\n", headings.messages, headings.content)
}

/// The maximum number of bytes that a person may have appended after the unrecorded sections of a stopped process.
const MAX_LATER_BYTES: usize = 64 * 1024;

/// Appends sections to a log. Does not repeat sections that a process wrote before it stopped without recording them.
pub fn append_sections(log: &str, sections: &[String]) -> String {
    let length = sections.iter().map(|section| section.len() + 2).sum::<usize>() + MAX_LATER_BYTES;
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
pub fn replace_sections(
    log: &str,
    session: &str,
    at: i64,
    rows: &[SummaryRow],
    language: Language,
    zone: &TimeZone,
) -> String {
    let heads: BTreeSet<String> = [Language::En, Language::Zh]
        .into_iter()
        .map(HistoryHeadings::of)
        .map(|headings| section_head(headings, session, at, zone))
        .collect();
    let ranges: Vec<Range<usize>> = heads.iter().flat_map(|head| sections(log, head)).collect();
    let Some(first) = ranges.iter().map(|range| range.start).min() else { return log.to_owned() };
    let is_of_then = |row: &&SummaryRow| format_minute(row.at, zone) == format_minute(at, zone);
    let new: Vec<String> = rows.iter().filter(is_of_then).map(|row| section(row, language, zone)).collect();
    let mut text = remove_ranges(log, &ranges);
    text.insert_str(first, &new.join("\n"));
    text
}

fn section_head(headings: &HistoryHeadings, session: &str, at: i64, zone: &TimeZone) -> String {
    format!("## {} ({})\n- {}: {session}\n", headings.title, format_minute(at, zone), headings.session)
}

fn format_minute(at: i64, zone: &TimeZone) -> String {
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
            if line.trim() == SECTION_END {
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
    fn sections_are_added_once_and_replaced() {
        let zone = TimeZone::UTC;
        let format = |row: &SummaryRow| section(row, Language::Zh, &zone);
        let (one, two) = (row(1, "- 用户喜欢茶\n---\n- PIN 4711"), row(2, "second"));
        assert_eq!(
            format(&one),
            "## 会话摘要 (1970-01-01 00:01)\n- 会话: cli:direct\n- 消息数: 25\n\n### 关键内容\n- 用户喜欢茶\n***\n- PIN 4711\n---\n"
        );
        assert!(
            section(&two, Language::En, &zone)
                .starts_with("## Conversation summary (1970-01-01 00:02)\n- Conversation: ")
        );
        let log = append_sections("# mine", &[format(&one), format(&two)]);
        assert_eq!(append_sections(&log, &[format(&one), format(&two)]), log);
        let left = row(1, "- 用户喜欢茶");
        let replaced = replace_sections(&log, "cli:direct", one.at, std::slice::from_ref(&left), Language::Zh, &zone);
        assert_eq!(replaced, append_sections("# mine", &[format(&left), format(&two)]));
        let gone = replace_sections(&log, "cli:direct", one.at, &[], Language::En, &zone);
        assert_eq!(gone, format!("# mine\n\n\n{}", format(&two)));
        assert_eq!(replace_sections(&log, "other", one.at, &[], Language::En, &zone), log);
    }
}
