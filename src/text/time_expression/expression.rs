//! Parsed time expressions, and the moments that they mean.

use jiff::civil::{Date, DateTime, Time, Weekday};
use jiff::tz::{AmbiguousOffset, TimeZone};
use jiff::{Timestamp, ToSpan};

pub(super) const MINUTE: u64 = 60;
pub(super) const HOUR: u64 = 60 * MINUTE;
pub(super) const DAY: u64 = 24 * HOUR;
pub(super) const WEEK: u64 = 7 * DAY;

/// The longest wait and interval: 100 years, in seconds.
pub const MAX_SECONDS: u64 = 36_525 * DAY;

/// A time expression: parsed, or resolved against a clock as a [`DueTime`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TimeExpression<T = DayTime> {
    /// A wait in seconds.
    In(u64),
    /// A time, which may be past.
    At(T),
    /// An interval in seconds, from `first` on if it is set.
    Every { seconds: u64, first: Option<T> },
    /// Minute, hour, day of month, month, day of week.
    Cron(String),
}

/// A time expression resolved against a clock.
pub type DueTime = TimeExpression<DateTime>;

/// A clock time on a day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DayTime {
    pub(super) day: DayReference,
    pub(super) clock: Time,
    /// True if the time is after midnight, in the night that follows the day.
    pub(super) after_midnight: bool,
    /// The day of the week next to a date, which must be that of the date.
    pub(super) weekday: Option<Weekday>,
}

/// The day of a clock time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DayReference {
    /// No day: the next moment at which the clock shows the time.
    Next,
    /// This number of days after today.
    Ahead(i32),
    /// The next such day of the week; today only if the time is still to come.
    Weekday(Weekday),
    /// The next such day of the week, never today.
    NextWeekday(Weekday),
    /// The day of the week, this number of weeks after the current one; weeks begin on Monday.
    OfWeek(i32, Weekday),
    /// The next day with this number in any month.
    OfAnyMonth(i8),
    /// The day of the month, this number of months after the current one.
    OfMonth(i32, i8),
    /// The next such day of any year, by its month and day.
    OfAnyYear(i8, i8),
    /// The day of the year, this number of years after the current one, by its month and day.
    OfYear(i32, i8, i8),
    On(Date),
}

impl TimeExpression {
    /// Resolves the expression at the time `now`. Returns `None` if it needs a clock and `now` is `None`, or if there is no
    /// such date.
    pub fn due(&self, now: Option<DateTime>) -> Option<DueTime> {
        match self {
            Self::In(seconds) => Some(DueTime::In(*seconds)),
            Self::At(moment) => Some(DueTime::At(moment.due(now?)?)),
            Self::Every { seconds, first: None } => Some(DueTime::Every { seconds: *seconds, first: None }),
            Self::Every { seconds, first: Some(first) } => {
                Some(DueTime::Every { seconds: *seconds, first: Some(first.due(now?)?) })
            }
            Self::Cron(expression) => Some(DueTime::Cron(expression.clone())),
        }
    }
}

impl DayTime {
    /// Returns the moment of an expression with a full date.
    pub fn dated(&self) -> Option<DateTime> {
        match self.day {
            DayReference::On(date) => self.on(date),
            _ => None,
        }
    }

    fn due(&self, now: DateTime) -> Option<DateTime> {
        let at = self.seen_from(now)?;
        let date = if self.after_midnight { at.date().yesterday().ok()? } else { at.date() };
        self.weekday.is_none_or(|weekday| weekday == date.weekday()).then_some(at)
    }

    /// Returns the moment at the time `now`; it may be past if the expression names a certain day.
    fn seen_from(&self, now: DateTime) -> Option<DateTime> {
        let today = now.date();
        let first = |mut dates: Box<dyn Iterator<Item = Date>>| {
            dates.find_map(|date| self.on(date).filter(|moment| *moment > now))
        };
        let month = |ahead: i32| today.first_of_month().checked_add(ahead.months()).ok();
        match self.day {
            DayReference::Next => first(Box::new(today.series(1.day()).take(2))),
            DayReference::Weekday(weekday) => {
                let begin = today.yesterday().ok()?.nth_weekday(1, weekday).ok()?;
                first(Box::new(begin.series(7.days()).take(2)))
            }
            DayReference::OfAnyMonth(day) => {
                // Two consecutive months never both lack a certain day.
                let dates = (0..=3).filter_map(|ahead| in_month(month(ahead)?, day));
                first(Box::new(dates.collect::<Vec<_>>().into_iter()))
            }
            DayReference::OfAnyYear(month, day) => {
                // Up to eight years can lack a 29 February.
                let dates = (0..=8).filter_map(|ahead| Date::new(today.year() + ahead, month, day).ok());
                first(Box::new(dates))
            }
            DayReference::Ahead(days) => self.on(today.checked_add(days.days()).ok()?),
            DayReference::NextWeekday(weekday) => self.on(today.nth_weekday(1, weekday).ok()?),
            DayReference::OfWeek(weeks, weekday) => {
                let to_monday = i32::from(today.weekday().to_monday_zero_offset());
                let days = weeks * 7 + i32::from(weekday.to_monday_zero_offset()) - to_monday;
                self.on(today.checked_add(days.days()).ok()?)
            }
            DayReference::OfMonth(ahead, day) => self.on(in_month(month(ahead)?, day)?),
            DayReference::OfYear(ahead, month, day) => {
                self.on(Date::new(today.year().checked_add(i16::try_from(ahead).ok()?)?, month, day).ok()?)
            }
            DayReference::On(date) => self.on(date),
        }
    }

    fn on(&self, date: Date) -> Option<DateTime> {
        let date = if self.after_midnight { date.tomorrow().ok()? } else { date };
        Some(date.to_datetime(self.clock))
    }
}

fn in_month(first: Date, day: i8) -> Option<Date> {
    Date::new(first.year(), first.month(), day).ok()
}

/// Returns the moment at which the clock of `zone` shows `clock`: the first of two such moments, or the end of a gap that skips
/// `clock`.
pub fn instant_at(clock: DateTime, zone: &TimeZone) -> Option<Timestamp> {
    let found = zone.to_ambiguous_timestamp(clock);
    match found.offset() {
        AmbiguousOffset::Unambiguous { offset } => offset.to_timestamp(clock).ok(),
        AmbiguousOffset::Fold { before, .. } => before.to_timestamp(clock).ok(),
        AmbiguousOffset::Gap { .. } => {
            let before = found.earlier().ok()?;
            zone.following(before).next().map(|change| change.timestamp())
        }
    }
}

/// Returns true if the clock of `zone` skips `clock`.
pub fn is_skipped(clock: DateTime, zone: &TimeZone) -> bool {
    matches!(zone.to_ambiguous_timestamp(clock).offset(), AmbiguousOffset::Gap { .. })
}

#[cfg(test)]
mod tests {
    use jiff::civil::{date, time};

    use super::*;

    #[test]
    fn moments_are_resolved_on_a_saturday() {
        let now = date(2026, 11, 21).at(14, 5, 0, 0);
        let moment =
            |day, hour, minute| DayTime { day, clock: time(hour, minute, 0, 0), after_midnight: false, weekday: None };
        let on = |month, day, hour, minute| Some(date(2026, month, day).at(hour, minute, 0, 0));
        for (day, hour, minute, expected) in [
            (DayReference::Next, 15, 0, on(11, 21, 15, 0)),
            (DayReference::Next, 14, 5, on(11, 22, 14, 5)),
            (DayReference::Ahead(0), 9, 0, on(11, 21, 9, 0)),
            (DayReference::Ahead(2), 9, 0, on(11, 23, 9, 0)),
            (DayReference::Weekday(Weekday::Saturday), 15, 0, on(11, 21, 15, 0)),
            (DayReference::Weekday(Weekday::Saturday), 14, 0, on(11, 28, 14, 0)),
            (DayReference::Weekday(Weekday::Monday), 9, 0, on(11, 23, 9, 0)),
            (DayReference::NextWeekday(Weekday::Saturday), 15, 0, on(11, 28, 15, 0)),
            (DayReference::OfWeek(0, Weekday::Friday), 9, 0, on(11, 20, 9, 0)),
            (DayReference::OfWeek(1, Weekday::Monday), 9, 0, on(11, 23, 9, 0)),
            (DayReference::OfWeek(2, Weekday::Sunday), 9, 0, on(12, 6, 9, 0)),
            (DayReference::OfAnyMonth(21), 14, 0, on(12, 21, 14, 0)),
            (DayReference::OfAnyMonth(31), 9, 0, on(12, 31, 9, 0)),
            (DayReference::OfMonth(0, 31), 9, 0, None),
            (DayReference::OfAnyYear(2, 29), 9, 0, Some(date(2028, 2, 29).at(9, 0, 0, 0))),
            (DayReference::OfYear(1, 2, 29), 9, 0, None),
            (DayReference::On(date(2026, 11, 1)), 9, 0, on(11, 1, 9, 0)),
        ] {
            assert_eq!(moment(day, hour, minute).seen_from(now), expected, "{day:?}");
        }
        let after_midnight = DayTime { after_midnight: true, ..moment(DayReference::Weekday(Weekday::Saturday), 1, 0) };
        assert_eq!(after_midnight.seen_from(now), on(11, 22, 1, 0));
        assert_eq!(TimeExpression::At(after_midnight).due(None), None);
        assert_eq!(TimeExpression::In(60).due(None), Some(DueTime::In(60)));
        let end = date(9999, 12, 31).at(23, 0, 0, 0);
        for day in [
            DayReference::Next,
            DayReference::Ahead(1),
            DayReference::Weekday(Weekday::Monday),
            DayReference::OfAnyMonth(1),
            DayReference::OfYear(1, 1, 1),
        ] {
            assert_eq!(moment(day, 9, 0).seen_from(end), None, "{day:?}");
        }
    }
}
