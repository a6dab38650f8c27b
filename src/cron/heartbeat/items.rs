//! Reads HEARTBEAT.md: its list entries and paragraphs, each perhaps with its own time in front.

use daoyou_channels::settings::Span;
use jiff::Timestamp;
use jiff::civil::{DateTime, date};
use jiff::tz::TimeZone;
use sha2::{Digest, Sha256};

use crate::cron::Schedule;
use crate::cron::schedule::{instant, moment, zone_name};
use crate::text::time_expression::{self, DueTime};

/// The most of an entry that is read, in characters.
const MAX_ITEM: usize = 2_000;

/// The longest time in front of an entry, in bytes.
const MAX_HEAD: usize = 80;

/// Where intervals with a day or a clock time count from: the file does not say when an entry was written. A Monday.
const COUNTED_FROM: DateTime = date(2024, 1, 1).at(0, 0, 0, 0);

/// An entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Item {
    /// Of its words: another text is another entry.
    pub hash: String,
    /// As written, with its time.
    pub text: String,
    /// Its own time; without one it is due once a day.
    pub schedule: Option<Schedule>,
}

/// The entries of a file, in its order, each once. Comments, headings and what is ticked off are none.
pub(super) fn read(file: &str, zone: &TimeZone) -> Vec<Item> {
    let mut items: Vec<Item> = Vec::new();
    for text in texts(&without_comments(file)) {
        let text: String = text.chars().take(MAX_ITEM).collect();
        let digest = Sha256::digest(text.as_bytes());
        let hash: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        if !items.iter().any(|item| item.hash == hash) {
            let schedule = schedule(&text, zone);
            items.push(Item { hash, text, schedule });
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

/// List entries with what is indented below them, and paragraphs, each in one line.
fn texts(file: &str) -> Vec<String> {
    let mut texts: Vec<String> = Vec::new();
    // Whether the next line may go on with the last text; `None` where that was ticked off.
    let mut open = None;
    for line in file.lines() {
        let (indented, line) = (line.starts_with([' ', '\t']), line.trim());
        let is_rule = line.len() >= 3 && line.chars().all(|c| matches!(c, '-' | '*' | '_' | ' '));
        if line.is_empty() || line.starts_with('#') || is_rule {
            // An entry's indented lines may come behind an empty one.
            open = open.filter(|_| line.is_empty()).map(|_| Line::Behind);
            continue;
        }
        let goes_on = match open {
            Some(Line::In) => indented || entry(line).is_none(),
            Some(Line::Behind) => indented,
            None | Some(Line::Done) => false,
        };
        match (goes_on, open, texts.last_mut(), entry(line)) {
            (true, _, Some(last), _) => {
                last.push(' ');
                last.push_str(line);
                open = Some(Line::In);
            }
            (_, Some(Line::Done), ..) if indented => {}
            (.., Some(Entry::Done)) => open = Some(Line::Done),
            (.., Some(Entry::Open(""))) => open = None,
            (.., Some(Entry::Open(text))) => {
                texts.push(text.to_owned());
                open = Some(Line::In);
            }
            (.., None) => {
                texts.push(line.to_owned());
                open = Some(Line::In);
            }
        }
    }
    texts
}

/// How the line before stands to the next.
#[derive(Clone, Copy)]
enum Line {
    In,
    /// An empty line lies between.
    Behind,
    /// It was ticked off.
    Done,
}

enum Entry<'t> {
    Open(&'t str),
    Done,
}

/// What stands behind the mark of a list.
fn entry(line: &str) -> Option<Entry<'_>> {
    let numbered = |line: &'_ str| -> Option<usize> {
        let digits = line.bytes().take_while(u8::is_ascii_digit).count();
        let is_mark = (1..=3).contains(&digits) && line[digits..].starts_with(['.', ')']);
        is_mark.then_some(digits + 1)
    };
    let mark = if line.starts_with(['-', '*', '+']) { Some(1) } else { numbered(line) }?;
    let text = line[mark..].strip_prefix([' ', '\t']).or((line.len() == mark).then_some(""))?.trim_start();
    if ["[x]", "[X]"].iter().any(|done| text.starts_with(done)) {
        return Some(Entry::Done);
    }
    Some(Entry::Open(text.strip_prefix("[ ]").unwrap_or(text).trim_start()))
}

/// The time in front of an entry: `every 2h: …`, `daily 9:00: …`, `每天9:00：…`. Times have colons themselves.
fn schedule(text: &str, zone: &TimeZone) -> Option<Schedule> {
    let ends = text.char_indices().filter_map(|(at, c)| match c {
        '：' => Some(at),
        ':' if text[at + 1..].starts_with(char::is_whitespace) => Some(at),
        _ => None,
    });
    ends.take_while(|end| *end <= MAX_HEAD).find_map(|end| read_head(text[..end].trim(), zone))
}

fn read_head(head: &str, zone: &TimeZone) -> Option<Schedule> {
    let head = head.to_lowercase();
    let cron = |expr: &str| Schedule::cron(expr, &zone_name(zone)).ok();
    if let Some(expr) = head.strip_prefix("cron ") {
        return cron(expr);
    }
    if let Some(time) = head.strip_prefix("at ") {
        return instant(time, zone).map(|at| Schedule::At { at });
    }
    match time_expression::parse(&head).ok()?.due(Some(COUNTED_FROM))? {
        DueTime::Cron(expr) => cron(&expr),
        DueTime::Every { seconds, first } => {
            let anchor = first.map_or(Some(Timestamp::UNIX_EPOCH), |first| moment(first, zone))?;
            Schedule::every(Span::from_secs(seconds), anchor).ok()
        }
        DueTime::In(_) | DueTime::At(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts_of(file: &str) -> Vec<String> {
        read(file, &TimeZone::UTC).into_iter().map(|item| item.text).collect()
    }

    #[test]
    fn what_counts_as_an_entry() {
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
    fn times_in_front() {
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
