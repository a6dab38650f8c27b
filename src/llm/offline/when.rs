//! When a reminder is due, as the user said it.

use jiff::civil::{Date, DateTime, Time, Weekday};

use super::context::Now;
use super::{when_en, when_zh};

pub(super) const MINUTE: u64 = 60;
pub(super) const HOUR: u64 = 60 * MINUTE;
pub(super) const DAY: u64 = 24 * HOUR;
pub(super) const WEEK: u64 = 7 * DAY;
/// The longest wait or interval that is understood, in seconds: ten years.
const MAX_SECONDS: u64 = 3_650 * DAY;

/// A time as it was said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// After so many seconds.
    In(u64),
    At {
        day: Day,
        clock: Time,
    },
    /// Every so many seconds.
    Every(u64),
    /// Each day, or each such day of the week.
    Weekly {
        weekday: Option<Weekday>,
        clock: Time,
    },
    /// From Monday to Friday.
    Working {
        clock: Time,
    },
}

/// The day that was said with a clock time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Day {
    /// None was: the next time the clock shows it.
    Next,
    /// So many days from today.
    Ahead(i32),
    /// The next such day, today only if the time is still to come.
    Weekday(Weekday),
    /// The next such day, never today.
    NextWeekday(Weekday),
    /// That day of the week that begins with the next Monday.
    NextWeek(Weekday),
    On(Date),
}

/// When it is due, worked out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// After so many seconds.
    In(u64),
    At(DateTime),
    /// It lies behind us.
    Past,
    /// Every so many seconds.
    Every(u64),
    /// Minute, hour, day of month, month, day of week.
    Cron(String),
}

/// Reads a text that is a time and nothing else, in English or Chinese.
pub fn read(text: &str) -> Option<When> {
    when_en::read(text).or_else(|| when_zh::read(text))
}

/// The hour that a day without one means.
pub(super) fn morning() -> Time {
    Time::constant(9, 0, 0, 0)
}

/// So many of a unit; none when it is nothing, or longer than anybody waits.
pub(super) fn seconds(count: u64, unit: u64) -> Option<u64> {
    count.checked_mul(unit).filter(|seconds| (1..=MAX_SECONDS).contains(seconds))
}

impl When {
    /// Works out when it is due. `None` when the clock is needed and not known, or runs out of years.
    pub(super) fn due(self, now: Option<&Now>) -> Option<Due> {
        match self {
            Self::In(seconds) => Some(Due::In(seconds)),
            Self::Every(seconds) => Some(Due::Every(seconds)),
            Self::Weekly { weekday, clock } => {
                let day = weekday.map_or_else(|| "*".to_owned(), |day| day.to_sunday_zero_offset().to_string());
                Some(Due::Cron(format!("{} {} * * {day}", clock.minute(), clock.hour())))
            }
            Self::Working { clock } => Some(Due::Cron(format!("{} {} * * 1-5", clock.minute(), clock.hour()))),
            Self::At { day, clock } => at(day, clock, now?.at),
        }
    }
}

impl Day {
    /// What the clock shows when it is `clock` on that day, seen from `now`; it may be past. `None` when it runs out of
    /// years.
    pub fn at(self, clock: Time, now: DateTime) -> Option<DateTime> {
        let today = now.date();
        let passed = clock <= now.time();
        let date = match self {
            Self::Next if passed => today.tomorrow().ok()?,
            Self::Next => today,
            Self::Ahead(days) => today.checked_add(jiff::Span::new().days(days)).ok()?,
            Self::Weekday(weekday) if today.weekday() == weekday && !passed => today,
            Self::Weekday(weekday) | Self::NextWeekday(weekday) => today.nth_weekday(1, weekday).ok()?,
            Self::NextWeek(Weekday::Monday) => today.nth_weekday(1, Weekday::Monday).ok()?,
            Self::NextWeek(weekday) => today.nth_weekday(1, Weekday::Monday).ok()?.nth_weekday(1, weekday).ok()?,
            Self::On(date) => date,
        };
        Some(date.to_datetime(clock))
    }
}

fn at(day: Day, clock: Time, now: DateTime) -> Option<Due> {
    let due = day.at(clock, now)?;
    Some(if due <= now { Due::Past } else { Due::At(due) })
}

#[cfg(test)]
mod tests {
    use jiff::civil::{date, time};

    use super::*;

    #[test]
    fn due_times() {
        // A Saturday.
        let now = Now { at: date(2026, 11, 21).at(14, 5, 0, 0), zone: "UTC".into() };
        let at = |day, hour, minute| When::At { day, clock: time(hour, minute, 0, 0) };
        let on = |day, hour, minute| Due::At(date(2026, 11, day).at(hour, minute, 0, 0));
        let cases = [
            (When::In(30), Due::In(30)),
            (at(Day::Next, 15, 0), on(21, 15, 0)),
            (at(Day::Next, 14, 5), on(22, 14, 5)),
            (at(Day::Ahead(0), 9, 0), Due::Past),
            (at(Day::Ahead(2), 9, 0), on(23, 9, 0)),
            (at(Day::Weekday(Weekday::Saturday), 15, 0), on(21, 15, 0)),
            (at(Day::Weekday(Weekday::Saturday), 14, 0), on(28, 14, 0)),
            (at(Day::Weekday(Weekday::Monday), 9, 0), on(23, 9, 0)),
            (at(Day::NextWeekday(Weekday::Saturday), 15, 0), on(28, 15, 0)),
            (at(Day::NextWeek(Weekday::Monday), 9, 0), on(23, 9, 0)),
            (at(Day::NextWeek(Weekday::Saturday), 9, 0), on(28, 9, 0)),
            (at(Day::On(date(2026, 11, 1)), 9, 0), Due::Past),
            (When::Weekly { weekday: None, clock: time(9, 30, 0, 0) }, Due::Cron("30 9 * * *".into())),
            (When::Weekly { weekday: Some(Weekday::Sunday), clock: time(9, 0, 0, 0) }, Due::Cron("0 9 * * 0".into())),
            (When::Every(7_200), Due::Every(7_200)),
        ];
        for (when, expected) in cases {
            assert_eq!(when.due(Some(&now)), Some(expected), "{when:?}");
        }
        assert_eq!(at(Day::Ahead(2), 9, 0).due(None), None);
        assert_eq!(When::Every(60).due(None), Some(Due::Every(60)));
    }
}
