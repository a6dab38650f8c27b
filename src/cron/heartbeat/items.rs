//! Reads HEARTBEAT.md: list entries and paragraphs, each with an optional schedule in front.

use daoyou_channels::settings::Span;
use daoyou_channels::text::hex;
use jiff::Timestamp;
use jiff::civil::{DateTime, date};
use jiff::tz::TimeZone;
use sha2::{Digest, Sha256};

use crate::cron::Schedule;
use crate::cron::schedule::{instant_at, parse_instant, zone_name};
use crate::text::time_expression::{self, DueTime};

/// The longest entry, in characters.
const MAX_ITEM: usize = 2_000;

/// The longest schedule in front of an entry, in bytes.
const MAX_HEAD: usize = 80;

/// The anchor of intervals with a day or a clock time, since the file does not say when an entry was written. It is a Monday.
const COUNTED_FROM: DateTime = date(2024, 1, 1).at(0, 0, 0, 0);

/// An entry of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HeartbeatItem {
    /// The hash of the text. An entry with a changed text counts as another entry.
    pub hash: String,
    /// The text as written, with its schedule.
    pub text: String,
    /// The entry's own schedule; an entry without one is due once a day.
    pub schedule: Option<Schedule>,
}

/// Returns the distinct entries of a file, in order. Comments, headings and completed entries are left out.
pub(super) fn parse_items(file: &str, zone: &TimeZone) -> Vec<HeartbeatItem> {
    let mut items: Vec<HeartbeatItem> = Vec::new();
    for text in texts(&without_comments(file)) {
        let text: String = text.chars().take(MAX_ITEM).collect();
        let hash = hex(&Sha256::digest(text.as_bytes())[..8]);
        if !items.iter().any(|item| item.hash == hash) {
            let schedule = schedule(&text, zone);
            items.push(HeartbeatItem { hash, text, schedule });
        }
    }
    items
}

fn without_comments(file: &str) -> String {
    let mut text = String::with_capacity(file.len());
    let mut rest = file;
    while let Some((before, after)) = rest.split_once("<!--") {
        text.push_str(before);
        rest = after.split_once("-->").map_or("", |(_, after)| after);
    }
    text + rest
}

/// Returns the list entries, each joined with the lines indented below it, and the paragraphs. Each text is on one line.
fn texts(file: &str) -> Vec<String> {
    let mut texts: Vec<String> = Vec::new();
    // The state that decides whether the next line continues the last text. `None` after a heading, a rule or an empty entry.
    let mut open = None;
    for line in file.lines() {
        let (indented, line) = (line.starts_with([' ', '\t']), line.trim());
        let is_rule = line.len() >= 3 && line.chars().all(|c| matches!(c, '-' | '*' | '_' | ' '));
        if line.is_empty() || line.starts_with('#') || is_rule {
            // An empty line may precede an entry's indented lines.
            open = open.filter(|_| line.is_empty()).map(|_| PreviousLine::Behind);
            continue;
        }
        let goes_on = match open {
            Some(PreviousLine::In) => indented || list_entry(line).is_none(),
            Some(PreviousLine::Behind) => indented,
            None | Some(PreviousLine::Done) => false,
        };
        match (goes_on, open, texts.last_mut(), list_entry(line)) {
            (true, _, Some(last), _) => {
                last.push(' ');
                last.push_str(line);
                open = Some(PreviousLine::In);
            }
            (_, Some(PreviousLine::Done), ..) if indented => {}
            (.., Some(ListEntry::Done)) => open = Some(PreviousLine::Done),
            (.., Some(ListEntry::Open(""))) => open = None,
            (.., Some(ListEntry::Open(text))) => {
                texts.push(text.to_owned());
                open = Some(PreviousLine::In);
            }
            (.., None) => {
                texts.push(line.to_owned());
                open = Some(PreviousLine::In);
            }
        }
    }
    texts
}

/// The previous line, as it affects the next one.
#[derive(Clone, Copy)]
enum PreviousLine {
    In,
    /// It was empty, after an entry.
    Behind,
    /// It was a completed entry.
    Done,
}

enum ListEntry<'t> {
    Open(&'t str),
    Done,
}

/// Returns the entry after a list mark.
fn list_entry(line: &str) -> Option<ListEntry<'_>> {
    let numbered = |line: &'_ str| -> Option<usize> {
        let digits = line.bytes().take_while(u8::is_ascii_digit).count();
        let is_mark = (1..=3).contains(&digits) && line[digits..].starts_with(['.', ')']);
        is_mark.then_some(digits + 1)
    };
    let mark = if line.starts_with(['-', '*', '+']) { Some(1) } else { numbered(line) }?;
    let text = line[mark..].strip_prefix([' ', '\t']).or((line.len() == mark).then_some(""))?.trim_start();
    if ["[x]", "[X]"].iter().any(|done| text.starts_with(done)) {
        return Some(ListEntry::Done);
    }
    Some(ListEntry::Open(text.strip_prefix("[ ]").unwrap_or(text).trim_start()))
}

/// Reads the schedule in front of an entry: `every 2h: …`, `daily 9:00: …`, `每天9:00：…`. Clock times contain colons as well.
fn schedule(text: &str, zone: &TimeZone) -> Option<Schedule> {
    let ends = text.char_indices().filter_map(|(at, c)| match c {
        '：' => Some(at),
        ':' if text[at + 1..].starts_with(char::is_whitespace) => Some(at),
        _ => None,
    });
    ends.take_while(|end| *end <= MAX_HEAD).find_map(|end| parse_schedule_prefix(text[..end].trim(), zone))
}

fn parse_schedule_prefix(head: &str, zone: &TimeZone) -> Option<Schedule> {
    let head = head.to_lowercase();
    let cron = |expr: &str| Schedule::cron(expr, &zone_name(zone)).ok();
    if let Some(expr) = head.strip_prefix("cron ") {
        return cron(expr);
    }
    if let Some(time) = head.strip_prefix("at ") {
        return parse_instant(time, zone).map(|at| Schedule::At { at });
    }
    match time_expression::parse(&head).ok()?.due(Some(COUNTED_FROM))? {
        DueTime::Cron(expr) => cron(&expr),
        DueTime::Every { seconds, first } => {
            let anchor = first.map_or(Some(Timestamp::UNIX_EPOCH), |first| instant_at(first, zone))?;
            Schedule::every(Span::from_secs(seconds), anchor).ok()
        }
        DueTime::In(_) | DueTime::At(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts_of(file: &str) -> Vec<String> {
        parse_items(file, &TimeZone::UTC).into_iter().map(|item| item.text).collect()
    }

    #[test]
    fn entries_are_found_in_the_file() {
        for (file, expected) in [
            ("", &[][..]),
            ("# Heartbeat\n\n<!-- - [ ] a\n- b -->\n\n---\n- \n", &[]),
            ("<!-- never closed\n- a", &[]),
            ("- a\n* b\n+ c\n1. d\n2) e\n- a", &["a", "b", "c", "d", "e"]),
            ("- [ ] open\n- [x] done\n  with more\n- [X] done\n- next", &["open", "next"]),
            ("- a\n  - only this\n\n  and that\n\nb\n", &["a - only this and that", "b"]),
            ("- a\nthat goes on\n- b", &["a that goes on", "b"]),
            (
                "One paragraph\nof two lines.\n\nAnother <!-- not this --> one.",
                &["One paragraph of two lines.", "Another  one."],
            ),
            ("a\n# b\nc", &["a", "c"]),
            ("2026 was good\n-5 degrees", &["2026 was good -5 degrees"]),
        ] {
            assert_eq!(texts_of(file), expected, "{file:?}");
        }
        let long = texts_of(&"x".repeat(10_000));
        assert_eq!(long[0].len(), MAX_ITEM);
    }

    #[test]
    fn schedules_in_front_of_entries_are_read() {
        let zone = TimeZone::get("Asia/Shanghai").unwrap();
        let cron = |expr: &str| Some(Schedule::cron(expr, "Asia/Shanghai").unwrap());
        let from = |span: &str, at: &str| Some(Schedule::every(span.parse().unwrap(), at.parse().unwrap()).unwrap());
        let every = |span: &str| from(span, "1970-01-01T00:00:00Z");
        for (text, expected) in [
            ("every 2h: look", every("2h")),
            ("Every 30 minutes: look", every("30m")),
            ("每2小时：看", every("2h")),
            ("daily 9:00: read inbox.txt: what is urgent?", cron("0 9 * * *")),
            ("每天9:00：看", cron("0 9 * * *")),
            ("每天早上8点：看", cron("0 8 * * *")),
            ("weekdays 9:30: look", cron("30 9 * * 1-5")),
            ("工作日9:30：看", cron("30 9 * * 1-5")),
            ("every monday at 8:00: look", cron("0 8 * * 1")),
            ("every Monday and Thursday at 9: look", cron("0 9 * * 1,4")),
            ("每周一和周四9点：看", cron("0 9 * * 1,4")),
            ("every hour from 9 to 17 on weekdays: look", cron("0 9-17 * * 1-5")),
            ("on the 1st of every month: look", cron("0 9 1 * *")),
            ("every other day at 9: look", from("2d", "2024-01-01T01:00:00Z")),
            ("每两周的周三9点：看", from("14d", "2024-01-03T01:00:00Z")),
            ("every Monday and the day before Easter: look", None),
            ("in 10 minutes: look", None),
            ("cron 0 9 * * 1: look", cron("0 9 * * 1")),
            ("at 2026-12-24 18:00: look", Some(Schedule::At { at: "2026-12-24T10:00:00Z".parse().unwrap() })),
            ("at 2026-12-24T18:00:00Z: look", Some(Schedule::At { at: "2026-12-24T18:00:00Z".parse().unwrap() })),
            ("look at this: every 2h", None),
            ("cron is: fine", None),
            ("remember: tomorrow", None),
            ("look", None),
        ] {
            assert_eq!(schedule(text, &zone), expected, "{text}");
        }
    }
}
