//! Parses a time as people and models write it.

use std::time::Duration;

use daoyou_channels::settings::HumanDuration;
use jiff::civil::{Date, DateTime};
use jiff::fmt::temporal::Pieces;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp, Zoned};

use super::error::ScheduleError;
use super::zone;
use crate::text::time_expression::{self, DueTime, TimeExpression};

/// Parses a time in the future.
///
/// # Errors
/// The text is not a time or more than one time, or the time is not after `now`, or more than 100 years later.
pub(super) fn parse_time(text: &str, now: Timestamp, zone: &TimeZone) -> Result<Timestamp, ScheduleError> {
    let text = text.trim();
    let shown = |at: Timestamp| show(at, zone);
    let unreadable = |why: &str| unreadable(text, why, &shown(now));
    if text.is_empty() || text.len() > time_expression::MAX_LENGTH {
        return Err(unreadable(if text.is_empty() { "it is empty" } else { "it is too long" }));
    }
    let at = match parse_timestamp(text, zone)? {
        Some(at) => at,
        None if is_in_last_year(text) => Timestamp::MAX,
        None if has_impossible_date(text) => return Err(unreadable("there is no such date")),
        None => match parse_wait(text) {
            Some(wait) => later(now, wait),
            None => {
                let when = time_expression::parse(text).map_err(|wrong| unreadable(&wrong.to_string()))?;
                resolve(text, &when, now, zone)?.ok_or_else(|| unreadable("there is no such date"))?
            }
        },
    };
    if at <= now {
        return Err(ScheduleError(format!(
            "{text:?} is past: it would be {}, and it is {} now",
            shown(at),
            shown(now)
        )));
    }
    if at > later(now, Duration::from_secs(time_expression::MAX_SECONDS)) {
        return Err(ScheduleError(format!("{text:?} is further off than 100 years: it is {} now", shown(now))));
    }
    Ok(at)
}

/// Returns the moment of an expression; `None` if there is no such date.
fn resolve(
    text: &str,
    when: &TimeExpression,
    now: Timestamp,
    zone: &TimeZone,
) -> Result<Option<Timestamp>, ScheduleError> {
    let often = |how: String| {
        Err(ScheduleError(format!(
            "{text:?} says how often, not when; for a schedule that repeats use `every` or `cron`: {how}"
        )))
    };
    match when.due(Some(now.to_zoned(zone.clone()).datetime())) {
        None => Ok(None),
        Some(DueTime::In(seconds)) => Ok(Some(later(now, Duration::from_secs(seconds)))),
        Some(DueTime::At(clock)) => Ok(time_expression::instant_at(clock, zone)),
        Some(DueTime::Every { seconds, first: None }) => {
            often(format!("every \"{}\"", HumanDuration::from_secs(seconds)))
        }
        Some(DueTime::Every { seconds, first: Some(first) }) => {
            let first = first.strftime("%Y-%m-%d %H:%M");
            often(format!("every \"{}\", the first time \"{first}\"", HumanDuration::from_secs(seconds)))
        }
        Some(DueTime::Cron(expression)) => often(format!("the cron expression \"{expression}\"")),
    }
}

/// Parses a time with a date, which may be past.
pub(in crate::cron) fn parse_instant(text: &str, zone: &TimeZone) -> Option<Timestamp> {
    let text = text.to_uppercase();
    parse_timestamp(&text, zone).ok()?.or_else(|| match time_expression::parse(&text).ok()? {
        TimeExpression::At(moment) => time_expression::instant_at(moment.dated()?, zone),
        _ => None,
    })
}

/// Returns an earlier slot of an interval of `days` days from the time `text`, if the clock of `zone` skips that time; `None` for any
/// other text.
pub(in crate::cron) fn slot_before_skipped(
    text: &str,
    days: u32,
    now: Timestamp,
    zone: &TimeZone,
) -> Option<Timestamp> {
    /// The number of earlier slots that are examined.
    const SLOTS: i64 = 100;
    let clock = clock_time(text.trim(), now, zone).filter(|clock| time_expression::is_skipped(*clock, zone))?;
    let earlier = |number: i64| clock.checked_sub(jiff::Span::new().try_days(number * i64::from(days)).ok()?).ok();
    let slot = (1..=SLOTS).filter_map(earlier).find(|slot| !time_expression::is_skipped(*slot, zone))?;
    time_expression::instant_at(slot, zone)
}

/// Returns the time that `text` names by the clock; `None` for a wait, and for a time with an offset or a zone of its own.
fn clock_time(text: &str, now: Timestamp, zone: &TimeZone) -> Option<DateTime> {
    if text.contains(':') && text.starts_with(|c: char| c.is_ascii_digit()) {
        if text.parse::<Timestamp>().is_ok() || text.parse::<Zoned>().is_ok() {
            return None;
        }
        if let Ok(clock) = text.parse::<DateTime>() {
            return Some(clock);
        }
    }
    match time_expression::parse(text).ok()?.due(Some(now.to_zoned(zone.clone()).datetime()))? {
        DueTime::At(clock) => Some(clock),
        _ => None,
    }
}

/// Parses RFC 3339, the same with a zone in brackets, or a date and a time by the clock of `zone`.
fn parse_timestamp(text: &str, zone: &TimeZone) -> Result<Option<Timestamp>, ScheduleError> {
    if !text.contains(':') || !text.starts_with(|c: char| c.is_ascii_digit()) {
        return Ok(None);
    }
    let offset = Pieces::parse(text).ok().and_then(|pieces| pieces.to_numeric_offset());
    if offset.is_some_and(|offset| !zone::is_offset(offset)) {
        return Err(ScheduleError(format!("{text:?} is not a time: offsets go from -14:00 to +14:00")));
    }
    let exact = text.parse::<Timestamp>().or_else(|_| text.parse::<Zoned>().map(|zoned| zoned.timestamp()));
    Ok(exact.ok().or_else(|| time_expression::instant_at(text.parse::<DateTime>().ok()?, zone)))
}

/// Returns true for a date in the last year that can be represented. Its last days are not moments in every zone.
fn is_in_last_year(text: &str) -> bool {
    Pieces::parse(text).is_ok_and(|pieces| pieces.date().year() == Date::MAX.year())
}

/// Returns true for a text that begins with a date of the form `2027-02-29` that no calendar has.
fn has_impossible_date(text: &str) -> bool {
    let is_dated = |date: &&str| {
        let fits = |(at, byte): (usize, u8)| if matches!(at, 4 | 7) { byte == b'-' } else { byte.is_ascii_digit() };
        date.bytes().enumerate().all(fits)
    };
    text.get(..10).filter(is_dated).is_some_and(|date| date.parse::<Date>().is_err())
}

/// `20m`, `1h 30m`, `2 days`, `20分钟`.
fn parse_wait(text: &str) -> Option<Duration> {
    let length = text.get(..3).filter(|head| head.eq_ignore_ascii_case("in ")).map_or(text, |_| &text[3..]);
    let span = length.to_ascii_lowercase().parse::<HumanDuration>().ok();
    span.map(|span| span.0).or_else(|| time_expression::parse_duration(length).map(Duration::from_secs))
}

/// Adds a wait to `now`; returns the latest possible moment if the sum is beyond it.
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

fn unreadable(text: &str, why: &str, now: &str) -> ScheduleError {
    let text: String = text.chars().take(time_expression::MAX_LENGTH).collect();
    ScheduleError(format!(
        "{text:?} is not a time that can be read: {why}. It is {now} now. Times are written as \"in 20m\", \
         \"in 2 days\", \"18:30\", \"tomorrow 9:00\", \"monday 9:00\", \"December 24 at 18:00\", \"2026-03-08 09:00\" \
         or \"2026-03-08T09:00:00+08:00\""
    ))
}

#[cfg(test)]
mod tests {
    use jiff::civil::date;

    use super::*;

    #[test]
    fn times_are_parsed() {
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
            ("tonight at 12", "2026-11-22 00:00:00"),
            ("今晚12点", "2026-11-22 00:00:00"),
            ("December 24 at 18:00", "2026-12-24 18:00:00"),
            ("in an hour and a half", "2026-11-21 15:35:30"),
            ("2036-01-01 00:00", "2036-01-01 00:00:00"),
            ("2026-12-24T18:00:00+14:00", "2026-12-24 12:00:00"),
        ] {
            let at = parse_time(words, now, &zone).unwrap_or_else(|error| panic!("{words}: {error}"));
            assert_eq!(at.to_zoned(zone.clone()).strftime("%F %T").to_string(), expected, "{words}");
        }
    }

    #[test]
    fn texts_that_are_no_future_time_are_refused_with_a_reason() {
        let zone = TimeZone::get("Asia/Shanghai").unwrap();
        let now = date(2026, 11, 21).at(14, 5, 30, 0).to_zoned(zone.clone()).unwrap().timestamp();
        for (words, expected) in [
            ("today 9:00", "is past: it would be 2026-11-21 09:00 (Asia/Shanghai), and it is 2026-11-21 14:05"),
            ("2020-01-01T00:00:00Z", "is past"),
            ("2026-11-21 14:05", "is past"),
            ("2127-01-01 00:00", "further off than 100 years"),
            ("in 99999 days", "longer than 100 years"),
            ("in 900000h", "further off than 100 years"),
            ("every 2 hours", "use `every` or `cron`: every \"2h\""),
            ("every other day", "every \"2d\", the first time \"2026-11-22 09:00\""),
            ("每天9点", "use `every` or `cron`: the cron expression \"0 9 * * *\""),
            (
                "every Monday and the day before Easter",
                "understood \"every Monday\"; not understood: \"and the day before Easter\"",
            ),
            ("in 10 minutes and in 20 minutes", "two times are named; one job takes one"),
            ("tomorrow at 25:00", "understood \"tomorrow\"; not understood: \"at 25:00\" (the clock never shows that"),
            ("12/24", "day and month cannot be told apart"),
            ("this month on the 31st", "there is no such date"),
            ("Friday, December 24", "there is no such date"),
            ("2026-12-24T18:00:00+25:00", "offsets go from -14:00 to +14:00"),
            ("2026-12-24T18:00:00-14:30", "offsets go from -14:00 to +14:00"),
            ("2026-12-24T24:00", "not a time that can be read"),
            ("2026-12-24 24:00", "not a time that can be read"),
            (
                "1767225600",
                "not a time that can be read: not understood: \"1767225600\". It is 2026-11-21 14:05 (Asia/Shanghai) \
                 now. Times are",
            ),
            ("soon", "not a time that can be read"),
            ("25:00", "not a time that can be read"),
            ("", "not a time that can be read"),
            ("2026-02-30 09:00", "not a time that can be read: there is no such date"),
            ("2027-02-29T00:00:00Z", "not a time that can be read: there is no such date. It is"),
            ("2027-13-01T00:00:00+08:00", "not a time that can be read: there is no such date"),
            ("2027-02-29", "there is no such date"),
            ("9999-12-31T23:59:59Z", "further off than 100 years"),
            ("9999-12-31", "further off than 100 years"),
            ("9999-12-31 23:59", "further off than 100 years"),
        ] {
            let error = parse_time(words, now, &zone).expect_err(words).to_string();
            assert!(error.contains(expected), "{words}: {error}");
        }
    }
}
