//! Reads HEARTBEAT.md: list entries and paragraphs, each with an optional schedule in front.

use daoyou_channels::settings::HumanDuration;
use daoyou_channels::text::{Language, hex};
use jiff::Timestamp;
use jiff::civil::{DateTime, date};
use jiff::tz::TimeZone;
use sha2::{Digest, Sha256};

use crate::cron::Schedule;
use crate::cron::schedule::{parse_instant, zone_name};
use crate::text::time_expression::{self, DueTime, instant_at};

/// The longest entry, in characters.
const MAX_ITEM: usize = 2_000;

/// The longest schedule in front of an entry, in bytes.
const MAX_HEAD: usize = 80;

/// The anchor of intervals with a day or a clock time, since the file does not say when an entry was written. It is a Monday.
const COUNTED_FROM: DateTime = date(2024, 1, 1).at(0, 0, 0, 0);

/// An entry of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HeartbeatItem {
    /// The number of the line of the file on which the entry begins.
    pub line: usize,
    /// The hash of the text. An entry with a changed text counts as another entry.
    pub hash: String,
    /// The text as written, with its schedule.
    pub text: String,
    /// The entry's own schedule; an entry without one is due once a day.
    pub schedule: Option<Schedule>,
    /// The words in front that begin like a schedule, but are none. Such an entry does not run.
    pub misread: Option<String>,
}

/// Returns the distinct entries of a file, in order. Comments, headings and completed entries are left out.
pub(super) fn parse_items(file: &str, zone: &TimeZone) -> Vec<HeartbeatItem> {
    let mut items: Vec<HeartbeatItem> = Vec::new();
    for (line, text) in texts(&without_comments(file)) {
        let text: String = text.chars().take(MAX_ITEM).collect();
        let hash = hex(&Sha256::digest(text.as_bytes())[..8]);
        if !items.iter().any(|item| item.hash == hash) {
            let schedule = schedule(&text, zone);
            let misread = if schedule.is_none() { misread_schedule(&text) } else { None };
            items.push(HeartbeatItem { line, hash, text, schedule, misread });
        }
    }
    items
}

/// Returns the lines with their numbers, without comments. The text after a comment continues the line before it.
fn without_comments(file: &str) -> Vec<(usize, String)> {
    let mut lines: Vec<(usize, String)> = Vec::new();
    let mut is_comment = false;
    for (number, line) in (1..).zip(file.lines()) {
        if !is_comment {
            lines.push((number, String::new()));
        }
        let Some((start, text)) = lines.last_mut() else { continue };
        if text.trim().is_empty() {
            *start = number;
        }
        let mut rest = line;
        loop {
            let mark = if is_comment { "-->" } else { "<!--" };
            let (before, after) = rest.split_once(mark).map_or((rest, None), |(before, after)| (before, Some(after)));
            if !is_comment {
                text.push_str(before);
            }
            let Some(after) = after else { break };
            (is_comment, rest) = (!is_comment, after);
        }
    }
    lines
}

/// Returns the list entries, each joined with the lines indented below it, and the paragraphs. Each text is on one line, and has the
/// number of its first line. Fenced code is not text, except below an entry, which it belongs to.
fn texts(lines: &[(usize, String)]) -> Vec<(usize, String)> {
    let mut texts: Vec<(usize, String)> = Vec::new();
    // The state that decides whether the next line continues the last text. `None` after a heading, a rule or an empty entry.
    let mut open = None;
    let mut fence: Option<&str> = None;
    for (number, line) in lines {
        let (indented, line) = (line.starts_with([' ', '\t']), line.trim());
        if let Some(mark) = fence {
            fence = fence.filter(|_| !is_closing_fence(line, mark));
            continue;
        }
        let is_below_entry = indented && matches!(open, Some(PreviousLine::In | PreviousLine::Behind));
        if let Some(mark) = opening_fence(line).filter(|_| !is_below_entry) {
            (fence, open) = (Some(mark), None);
            continue;
        }
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
            (true, _, Some((_, last)), _) => {
                last.push(' ');
                last.push_str(line);
                open = Some(PreviousLine::In);
            }
            (_, Some(PreviousLine::Done), ..) if indented => {}
            (.., Some(ListEntry::Done)) => open = Some(PreviousLine::Done),
            (.., Some(ListEntry::Open(""))) => open = None,
            (.., Some(ListEntry::Open(text))) => {
                texts.push((*number, text.to_owned()));
                open = Some(PreviousLine::In);
            }
            (.., None) => {
                texts.push((*number, line.to_owned()));
                open = Some(PreviousLine::In);
            }
        }
    }
    texts
}

/// Returns the mark of a line that begins fenced code: at least three backticks or tildes.
fn opening_fence(line: &str) -> Option<&str> {
    ['`', '~'].into_iter().find_map(|mark| {
        let length = line.len() - line.trim_start_matches(mark).len();
        // As in CommonMark, the words behind backticks contain none: "```make``` works" is a text.
        (length >= 3 && (mark == '~' || !line[length..].contains(mark))).then(|| &line[..length])
    })
}

/// Returns true if a line ends the fenced code that `mark` began.
fn is_closing_fence(line: &str, mark: &str) -> bool {
    line.strip_prefix(mark).is_some_and(|rest| rest.chars().all(|c| mark.starts_with(c)))
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
    heads(text).find_map(|head| parse_schedule_prefix(head, zone))
}

/// Returns the texts before each colon that may end a schedule, the shortest first.
fn heads(text: &str) -> impl Iterator<Item = &str> {
    let ends = text.char_indices().filter_map(|(at, c)| match c {
        '：' => Some(at),
        ':' if text[at + 1..].starts_with(char::is_whitespace) => Some(at),
        _ => None,
    });
    ends.take_while(|end| *end <= MAX_HEAD).map(|end| text[..end].trim())
}

/// Returns the words in front of an entry without a schedule that begin like one: `every month`, `25:00`, `cron 99 * * * *`.
fn misread_schedule(text: &str) -> Option<String> {
    let head = heads(text).next()?;
    let lower = head.to_lowercase();
    let (first, rest) = lower.split_once(' ').unwrap_or((&lower, ""));
    let rest = rest.trim_start();
    let is_clock = rest.is_empty()
        && first.split_once(':').is_some_and(|(hour, minute)| {
            let is_number =
                |text: &str| (1..=2).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
            is_number(hour) && minute.get(..2).is_some_and(is_number)
        });
    let is_numeric = rest.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '-' | '*' | '@'));
    let is_schedule = match first {
        // "Every unread mail from Bob" is a task.
        "every" => {
            is_numeric
                || time_expression::starts_with_period(rest.strip_prefix("other ").unwrap_or(rest))
                || time_expression::starts_with_time(rest, Language::En)
        }
        "at" | "cron" => is_numeric,
        "daily" | "weekdays" | "weekends" | "weekly" | "monthly" => is_numeric || rest.starts_with("at "),
        _ => is_clock || is_chinese_schedule(&lower),
    };
    is_schedule.then(|| head.to_owned())
}

/// Returns why the words in front of an entry are not a schedule.
pub(super) fn misread_reason(head: &str, zone: &TimeZone) -> String {
    let head = head.to_lowercase();
    if let Some(expr) = head.strip_prefix("cron ") {
        return Schedule::cron(expr, &zone_name(zone)).err().map(|error| error.to_string()).unwrap_or_default();
    }
    match time_expression::parse(&head) {
        _ if head.starts_with("at ") => "there is no such date and time".to_owned(),
        Err(error) => error.to_string(),
        Ok(_) => "it does not say how often, such as \"daily 9:00\"".to_owned(),
    }
}

/// Returns true if a head begins with 每 and a period, and ends there or goes on with a time.
fn is_chinese_schedule(head: &str) -> bool {
    let Some(rest) = head.strip_prefix('每') else { return false };
    let rest = rest.strip_prefix(['个', '隔']).unwrap_or(rest);
    let is_numeral = |c: char| c.is_ascii_digit() || "-一二三四五六七八九十两半".contains(c);
    let number = rest.trim_start_matches(is_numeral).trim_start();
    let number = number.strip_prefix('个').unwrap_or(number);
    let periods = ["天", "日", "周", "星期", "礼拜", "月", "年", "小时", "分钟", "秒", "工作日"];
    let behind = periods.iter().find_map(|period| number.strip_prefix(period));
    // "每月报告" and "每一个客户" are tasks.
    behind.map(str::trim_start).is_some_and(|behind| {
        behind.is_empty() || behind.starts_with(is_numeral) || time_expression::starts_with_time(behind, Language::Zh)
    })
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
            let every = HumanDuration::from_secs(seconds);
            match first {
                Some(first) => Schedule::every_from(every, instant_at(first, zone)?, zone).ok(),
                None => Schedule::every(every, Timestamp::UNIX_EPOCH).ok(),
            }
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
            ("- a\n```sh\n- no task\n\nneither\n```\n- b", &["a", "b"]),
            ("~~~~\n- a\n~~~\n```\n~~~~~\nb", &["b"]),
            ("```\n- never closed", &[]),
            ("- run this:\n  ```\n  make\n  ```\n- b", &["run this: ``` make ```", "b"]),
        ] {
            assert_eq!(texts_of(file), expected, "{file:?}");
        }
        let long = texts_of(&"x".repeat(10_000));
        assert_eq!(long[0].len(), MAX_ITEM);
    }

    #[test]
    fn entries_have_the_number_of_their_first_line() {
        let file = "# Heartbeat\n<!-- a\n\nb --> - first\n  more\n\n```\ncode\n```\n- second <!-- c\n- no -->\n- every month: look\n";
        let items = parse_items(file, &TimeZone::UTC);
        let lines: Vec<_> = items.iter().map(|item| (item.line, item.text.as_str())).collect();
        assert_eq!(lines, [(4, "first more"), (10, "second"), (12, "every month: look")]);
    }

    #[test]
    fn a_misread_schedule_has_a_reason() {
        for (head, expected) in [
            ("every month", "say on which day"),
            ("every 0s", "not understood"),
            ("25:00", "the clock never shows that"),
            ("9:00", "it does not say how often"),
            ("cron 99 * * * *", "\"99\" is none of 0 to 59"),
            ("at 2026-13-01 18:00", "there is no such date"),
        ] {
            let reason = misread_reason(head, &TimeZone::UTC);
            assert!(reason.contains(expected), "{head}: {reason}");
        }
    }

    #[test]
    fn schedules_in_front_of_entries_are_read() {
        let zone = TimeZone::get("Asia/Shanghai").unwrap();
        let cron = |expr: &str| Some(Schedule::cron(expr, "Asia/Shanghai").unwrap());
        let every =
            |span: &str| Some(Schedule::every(span.parse().unwrap(), "1970-01-01T00:00:00Z".parse().unwrap()).unwrap());
        let days =
            |days, at: &str| Some(Schedule::Days { days, anchor: at.parse().unwrap(), tz: "Asia/Shanghai".to_owned() });
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
            ("every other day at 9: look", days(2, "2024-01-01T01:00:00Z")),
            ("每两周的周三9点：看", days(14, "2024-01-03T01:00:00Z")),
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

    #[test]
    fn heads_that_are_no_schedule_after_all_are_detected() {
        for (text, expected) in [
            ("every month: look", Some("every month")),
            ("every -5m: look", Some("every -5m")),
            ("every 0s: look", Some("every 0s")),
            ("Every Monday and the day before Easter: look", Some("Every Monday and the day before Easter")),
            ("25:00: look", Some("25:00")),
            ("9:00: look", Some("9:00")),
            ("cron 99 * * * *: look", Some("cron 99 * * * *")),
            ("cron * * *: look", Some("cron * * *")),
            ("at 2026-13-01 18:00: look", Some("at 2026-13-01 18:00")),
            ("daily at 25:00: look", Some("daily at 25:00")),
            ("每0分钟：看", Some("每0分钟")),
            ("每天25点：看", Some("每天25点")),
            ("每个人：看", None),
            ("每一个客户：看", None),
            ("每月报告：看", None),
            ("每日新闻：看", None),
            ("Every unread mail from Bob: look", None),
            ("every customer: look", None),
            ("9:00 meeting: look", None),
            ("every 2h: look", None),
            ("daily report: look", None),
            ("cron is: fine", None),
            ("at home: look", None),
            ("read inbox.txt: what is urgent?", None),
            ("look at this: every 0s: x", None),
            ("every month", None),
        ] {
            let items = parse_items(&format!("- {text}"), &TimeZone::UTC);
            assert_eq!(items[0].misread.as_deref(), expected, "{text}");
        }
    }
}
