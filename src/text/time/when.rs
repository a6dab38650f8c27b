//! A time as it was said, and the moment that it means.

use jiff::ToSpan;
use jiff::civil::{Date, DateTime, Time, Weekday};

pub(super) const MINUTE: u64 = 60;
pub(super) const HOUR: u64 = 60 * MINUTE;
pub(super) const DAY: u64 = 24 * HOUR;
pub(super) const WEEK: u64 = 7 * DAY;

/// The longest wait and interval, in seconds: 100 years.
pub const LONGEST: u64 = 36_525 * DAY;

/// A time as it was said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum When {
    /// After so many seconds.
    In(u64),
    At(Moment),
    /// Every so many seconds, perhaps from a moment on.
    Every {
        seconds: u64,
        first: Option<Moment>,
    },
    /// Minute, hour, day of month, month, day of week.
    Cron(String),
}

/// A clock time on a day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    pub(super) day: Day,
    pub(super) clock: Time,
    /// In the night that follows the day, behind midnight.
    pub(super) late: bool,
    /// The day of the week that was said with a date; it has to be right.
    pub(super) weekday: Option<Weekday>,
}

/// The day that was said with a clock time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Day {
    /// None was: the next time the clock shows it.
    Next,
    /// So many days from today.
    Ahead(i32),
    /// The next such day, today only if the time is still to come.
    Weekday(Weekday),
    /// The next such day, never today.
    NextWeekday(Weekday),
    /// That day of the week so many after this one; a week begins with Monday.
    OfWeek(i32, Weekday),
    /// The next such day of a month.
    OfAnyMonth(i8),
    /// That day of the month so many after this one.
    OfMonth(i32, i8),
    /// The next such day of a year, by its month and day.
    OfAnyYear(i8, i8),
    /// The same of the year so many after this one.
    OfYear(i32, i8, i8),
    On(Date),
}

/// When it is due, worked out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Due {
    /// After so many seconds.
    In(u64),
    /// May be past.
    At(DateTime),
    /// Every so many seconds, from `first` on if there is one.
    Every { seconds: u64, first: Option<DateTime> },
    /// Minute, hour, day of month, month, day of week.
    Cron(String),
}

impl When {
    /// Works out when it is due, seen from `now`. `None` where the clock is needed and not known, or there is no such date.
    pub fn due(&self, now: Option<DateTime>) -> Option<Due> {
        match self {
            Self::In(seconds) => Some(Due::In(*seconds)),
            Self::At(moment) => Some(Due::At(moment.due(now?)?)),
            Self::Every { seconds, first: None } => Some(Due::Every { seconds: *seconds, first: None }),
            Self::Every { seconds, first: Some(first) } => {
                Some(Due::Every { seconds: *seconds, first: Some(first.due(now?)?) })
            }
            Self::Cron(expression) => Some(Due::Cron(expression.clone())),
        }
    }
}

impl Moment {
    /// What the clock shows then; `None` where the day was not named by its date.
    pub fn dated(&self) -> Option<DateTime> {
        match self.day {
            Day::On(date) => self.on(date),
            _ => None,
        }
    }

    fn due(&self, now: DateTime) -> Option<DateTime> {
        let at = self.seen_from(now)?;
        let date = if self.late { at.date().yesterday().ok()? } else { at.date() };
        self.weekday.is_none_or(|weekday| weekday == date.weekday()).then_some(at)
    }

    /// The moment that is meant, seen from `now`; it may be past where one certain day is meant.
    fn seen_from(&self, now: DateTime) -> Option<DateTime> {
        let today = now.date();
        let first = |mut dates: Box<dyn Iterator<Item = Date>>| {
            dates.find_map(|date| self.on(date).filter(|moment| *moment > now))
        };
        let month = |ahead: i32| today.first_of_month().checked_add(ahead.months()).ok();
        match self.day {
            Day::Next => first(Box::new(today.series(1.day()).take(2))),
            Day::Weekday(weekday) => {
                let begin = today.yesterday().ok()?.nth_weekday(1, weekday).ok()?;
                first(Box::new(begin.series(7.days()).take(2)))
            }
            Day::OfAnyMonth(day) => {
                // No two months without a certain day follow each other.
                let dates = (0..=3).filter_map(|ahead| in_month(month(ahead)?, day));
                first(Box::new(dates.collect::<Vec<_>>().into_iter()))
            }
            Day::OfAnyYear(month, day) => {
                // 29 February may be missing for eight years.
                let dates = (0..=8).filter_map(|ahead| Date::new(today.year() + ahead, month, day).ok());
                first(Box::new(dates))
            }
            Day::Ahead(days) => self.on(today.checked_add(days.days()).ok()?),
            Day::NextWeekday(weekday) => self.on(today.nth_weekday(1, weekday).ok()?),
            Day::OfWeek(weeks, weekday) => {
                let to_monday = i32::from(today.weekday().to_monday_zero_offset());
                let days = weeks * 7 + i32::from(weekday.to_monday_zero_offset()) - to_monday;
                self.on(today.checked_add(days.days()).ok()?)
            }
            Day::OfMonth(ahead, day) => self.on(in_month(month(ahead)?, day)?),
            Day::OfYear(ahead, month, day) => {
                self.on(Date::new(today.year().checked_add(i16::try_from(ahead).ok()?)?, month, day).ok()?)
            }
            Day::On(date) => self.on(date),
        }
    }

    fn on(&self, date: Date) -> Option<DateTime> {
        let date = if self.late { date.tomorrow().ok()? } else { date };
        Some(date.to_datetime(self.clock))
    }
}

fn in_month(first: Date, day: i8) -> Option<Date> {
    Date::new(first.year(), first.month(), day).ok()
}

#[cfg(test)]
mod tests {
    use jiff::civil::{date, time};

    use super::*;

    #[test]
    fn moments_seen_from_a_saturday() {
        let now = date(2026, 11, 21).at(14, 5, 0, 0);
        let moment = |day, hour, minute| Moment { day, clock: time(hour, minute, 0, 0), late: false, weekday: None };
        let on = |month, day, hour, minute| Some(date(2026, month, day).at(hour, minute, 0, 0));
        for (day, hour, minute, expected) in [
            (Day::Next, 15, 0, on(11, 21, 15, 0)),
            (Day::Next, 14, 5, on(11, 22, 14, 5)),
            (Day::Ahead(0), 9, 0, on(11, 21, 9, 0)),
            (Day::Ahead(2), 9, 0, on(11, 23, 9, 0)),
            (Day::Weekday(Weekday::Saturday), 15, 0, on(11, 21, 15, 0)),
            (Day::Weekday(Weekday::Saturday), 14, 0, on(11, 28, 14, 0)),
            (Day::Weekday(Weekday::Monday), 9, 0, on(11, 23, 9, 0)),
            (Day::NextWeekday(Weekday::Saturday), 15, 0, on(11, 28, 15, 0)),
            (Day::OfWeek(0, Weekday::Friday), 9, 0, on(11, 20, 9, 0)),
            (Day::OfWeek(1, Weekday::Monday), 9, 0, on(11, 23, 9, 0)),
            (Day::OfWeek(2, Weekday::Sunday), 9, 0, on(12, 6, 9, 0)),
            (Day::OfAnyMonth(21), 14, 0, on(12, 21, 14, 0)),
            (Day::OfAnyMonth(31), 9, 0, on(12, 31, 9, 0)),
            (Day::OfMonth(0, 31), 9, 0, None),
            (Day::OfAnyYear(2, 29), 9, 0, Some(date(2028, 2, 29).at(9, 0, 0, 0))),
            (Day::OfYear(1, 2, 29), 9, 0, None),
            (Day::On(date(2026, 11, 1)), 9, 0, on(11, 1, 9, 0)),
        ] {
            assert_eq!(moment(day, hour, minute).seen_from(now), expected, "{day:?}");
        }
        let late = Moment { late: true, ..moment(Day::Weekday(Weekday::Saturday), 1, 0) };
        assert_eq!(late.seen_from(now), on(11, 22, 1, 0));
        assert_eq!(When::At(late).due(None), None);
        assert_eq!(When::In(60).due(None), Some(Due::In(60)));
        let end = date(9999, 12, 31).at(23, 0, 0, 0);
        for day in [Day::Next, Day::Ahead(1), Day::Weekday(Weekday::Monday), Day::OfAnyMonth(1), Day::OfYear(1, 1, 1)] {
            assert_eq!(moment(day, 9, 0).seen_from(end), None, "{day:?}");
        }
    }
}
