//! Reads a time as people and models write it.

use std::time::Duration;

use daoyou_channels::settings::Span;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp, Zoned};

use super::kinds::LONGEST;
use super::{ScheduleError, zone};
use crate::llm::{Day, When, read_when};

/// The longest text that is looked at, in bytes.
const MAX_LENGTH: usize = 100;

/// The time that `words` mean.
///
/// # Errors
/// They mean none, one that is not after `now`, or one further off than ten years.
pub(super) fn read(words: &str, now: Timestamp, zone: &TimeZone) -> Result<Timestamp, ScheduleError> {
    let text = words.trim();
    let shown = |at: Timestamp| show(at, zone);
    if text.is_empty() || text.len() > MAX_LENGTH {
        return Err(unreadable(text, &shown(now)));
    }
    let at = match stamp(text, zone).or_else(|| wait(text, now)) {
        Some(at) => at,
        None => match read_when(text) {
            Some(When::In(seconds)) => later(now, Duration::from_secs(seconds)),
            Some(When::At { day, clock }) => day
                .at(clock, now.to_zoned(zone.clone()).datetime())
                .and_then(|clock| zone::moment(clock, zone))
                .ok_or_else(|| unreadable(text, &shown(now)))?,
            Some(When::Every(_) | When::Weekly { .. } | When::Working { .. }) => {
                let why =
                    format!("{text:?} says how often, not when; for a schedule that repeats use `every` or `cron`");
                return Err(ScheduleError(why));
            }
            None => return Err(unreadable(text, &shown(now))),
        },
    };
    if at <= now {
        return Err(ScheduleError(format!(
            "{text:?} is past: it would be {}, and it is {} now",
            shown(at),
            shown(now)
        )));
    }
    if at > later(now, LONGEST) {
        return Err(ScheduleError(format!("{text:?} is further off than ten years: it is {} now", shown(now))));
    }
    Ok(at)
}

/// A time with its date, which may be past.
pub(in crate::cron) fn instant(text: &str, zone: &TimeZone) -> Option<Timestamp> {
    let text = text.to_uppercase();
    stamp(&text, zone).or_else(|| match read_when(&text)? {
        When::At { day: Day::On(date), clock } => zone::moment(date.to_datetime(clock), zone),
        _ => None,
    })
}

/// RFC 3339, the same with a zone in brackets, or a date and a time by the clock of `zone`.
fn stamp(text: &str, zone: &TimeZone) -> Option<Timestamp> {
    if !text.contains(':') || !text.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let exact = text.parse::<Timestamp>().or_else(|_| text.parse::<Zoned>().map(|zoned| zoned.timestamp()));
    exact.ok().or_else(|| zone::moment(text.parse::<DateTime>().ok()?, zone))
}

/// `20m`, `in 1h 30m`, `2 days`, `20分钟`.
fn wait(text: &str, now: Timestamp) -> Option<Timestamp> {
    let lower = text.to_ascii_lowercase();
    let length = lower.strip_prefix("in ").unwrap_or(&lower);
    if let Ok(span) = length.parse::<Span>() {
        return Some(later(now, span.0));
    }
    [format!("in {length}"), format!("{length}后")].iter().find_map(|words| match read_when(words) {
        Some(When::In(seconds)) => Some(later(now, Duration::from_secs(seconds))),
        _ => None,
    })
}

/// As late as times go, where that is later.
fn later(now: Timestamp, wait: Duration) -> Timestamp {
    let wait = SignedDuration::try_from(wait).unwrap_or(SignedDuration::MAX);
    now.saturating_add(wait).unwrap_or(Timestamp::MAX)
}

fn show(at: Timestamp, zone: &TimeZone) -> String {
    let at = at.to_zoned(zone.clone());
    match zone.iana_name() {
        Some(name) => format!("{} ({name})", at.strftime("%Y-%m-%d %H:%M")),
        None => at.strftime("%Y-%m-%d %H:%M %:z").to_string(),
    }
}

fn unreadable(text: &str, now: &str) -> ScheduleError {
    let text: String = text.chars().take(MAX_LENGTH).collect();
    ScheduleError(format!(
        "{text:?} is no time that can be read; it is {now} now. Times are written as \"in 20m\", \"in 2 days\", \"18:30\", \
         \"tomorrow 9:00\", \"monday 9:00\", \"2026-03-08 09:00\" or \"2026-03-08T09:00:00+08:00\""
    ))
}

#[cfg(test)]
mod tests {
    use jiff::civil::date;

    use super::*;

    #[test]
    fn times_as_they_are_written() {
        let zone = TimeZone::get("Asia/Shanghai").unwrap();
        // A Saturday.
        let now = date(2026, 11, 21).at(14, 5, 30, 0).to_zoned(zone.clone()).unwrap().timestamp();
        for (words, expected) in [
            ("2026-12-24T18:00:00Z", "2026-12-25 02:00:00"),
            ("2026-12-24T18:00:00+08:00", "2026-12-24 18:00:00"),
            ("2026-12-24T18:00[America/New_York]", "2026-12-25 07:00:00"),
            ("2026-12-24T18:00", "2026-12-24 18:00:00"),
            ("2026-12-24 18:00", "2026-12-24 18:00:00"),
            ("2026-12-24 9:00", "2026-12-24 09:00:00"),
            ("2026-12-24", "2026-12-24 09:00:00"),
            ("in 20m", "2026-11-21 14:25:30"),
            ("20m", "2026-11-21 14:25:30"),
            ("1h 30m", "2026-11-21 15:35:30"),
            ("In 1h30m", "2026-11-21 15:35:30"),
            ("in 45 seconds", "2026-11-21 14:06:15"),
            ("in 2 days", "2026-11-23 14:05:30"),
            ("2 days", "2026-11-23 14:05:30"),
            ("in 30 days", "2026-12-21 14:05:30"),
            ("half an hour", "2026-11-21 14:35:30"),
            ("9:00", "2026-11-22 09:00:00"),
            ("9am", "2026-11-22 09:00:00"),
            ("18:30", "2026-11-21 18:30:00"),
            ("today 18:30", "2026-11-21 18:30:00"),
            ("tomorrow 9:00", "2026-11-22 09:00:00"),
            ("tomorrow", "2026-11-22 09:00:00"),
            ("tonight at 8", "2026-11-21 20:00:00"),
            ("monday 9:00", "2026-11-23 09:00:00"),
            ("saturday 18:00", "2026-11-21 18:00:00"),
            ("next saturday 18:00", "2026-11-28 18:00:00"),
            ("next friday 14:00", "2026-11-27 14:00:00"),
            ("20分钟后", "2026-11-21 14:25:30"),
            ("20分钟", "2026-11-21 14:25:30"),
            ("半小时后", "2026-11-21 14:35:30"),
            ("两小时后", "2026-11-21 16:05:30"),
            ("明天9点", "2026-11-22 09:00:00"),
            ("明天上午9:30", "2026-11-22 09:30:00"),
            ("后天下午3点", "2026-11-23 15:00:00"),
            ("今晚8点", "2026-11-21 20:00:00"),
            ("周一9点", "2026-11-23 09:00:00"),
            ("下周五14:00", "2026-11-27 14:00:00"),
        ] {
            let at = read(words, now, &zone).unwrap_or_else(|error| panic!("{words}: {error}"));
            assert_eq!(at.to_zoned(zone.clone()).strftime("%F %T").to_string(), expected, "{words}");
        }
    }

    #[test]
    fn what_is_no_time_to_come_is_refused_in_words() {
        let zone = TimeZone::get("Asia/Shanghai").unwrap();
        let now = date(2026, 11, 21).at(14, 5, 30, 0).to_zoned(zone.clone()).unwrap().timestamp();
        for (words, expected) in [
            ("today 9:00", "is past: it would be 2026-11-21 09:00 (Asia/Shanghai), and it is 2026-11-21 14:05"),
            ("2020-01-01T00:00:00Z", "is past"),
            ("2026-11-21 14:05", "is past"),
            ("2037-01-01 00:00", "further off than ten years"),
            ("in 99999 days", "no time that can be read"),
            ("in 90000h", "further off than ten years"),
            ("every 2 hours", "use `every` or `cron`"),
            ("每天9点", "use `every` or `cron`"),
            ("1767225600", "no time that can be read; it is 2026-11-21 14:05 (Asia/Shanghai) now. Times are"),
            ("soon", "no time that can be read"),
            ("25:00", "no time that can be read"),
            ("", "no time that can be read"),
            ("2026-02-30 09:00", "no time that can be read"),
        ] {
            let error = read(words, now, &zone).expect_err(words).to_string();
            assert!(error.contains(expected), "{words}: {error}");
        }
    }
}
