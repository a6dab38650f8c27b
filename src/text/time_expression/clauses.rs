//! Combines the clauses of a time expression into one time or schedule.

use jiff::civil::{Date, Weekday};

use super::clock::{ClockTime, DayPart, ResolvedClock, is_mixed};
use super::cron_fields;
use super::error::TimeFault;
use super::expression::{DAY, DayReference, DayTime, TimeExpression, WEEK};

/// One clause of a time expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Clause {
    /// A wait in seconds.
    Wait(u64),
    Interval(Interval),
    Recurrence(Recurrence),
    Days(DaySpec),
    Period(CalendarPeriod),
    Part(DayPart),
    Clocks(Vec<ClockTime>),
    /// A range from one time to another.
    Range(ClockTime, ClockTime),
}

/// An interval between two runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Interval {
    pub seconds: u64,
    /// The interval counts from a clock time even if the expression names none, as in "every other day".
    pub from_clock: bool,
}

/// The period with which a time repeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Recurrence {
    Day,
    Week,
    Month,
    Year,
    /// Every day that another clause names.
    Named,
}

/// The days that an expression names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DaySpec {
    Ahead(i32),
    /// Days of the week, a bit for each, Sunday first; `each` is true if the words alone imply repetition, as in "mondays".
    Week {
        set: u8,
        each: bool,
    },
    /// The next such day of the week, never today.
    NextWeekday(Weekday),
    /// Days of a month, a bit for each.
    Month {
        set: u32,
        last: bool,
    },
    /// The first to fifth such weekday of the month; the last one if the number is `None`.
    Nth(Option<i8>, Weekday),
    /// A day of the year: its month and its day.
    Year(i8, i8),
    On(Date),
}

/// A week, month or year, by its number after the current one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CalendarPeriod {
    Week(i32),
    Month(i32),
    Year(i32),
}

/// A set of all days of the week, with a bit for each, Sunday first.
const EACH_WEEKDAY: u8 = 0x7f;
pub(super) const MONDAY_TO_FRIDAY: u8 = 0b011_1110;
pub(super) const WEEKEND: u8 = 0b100_0001;

/// All clauses of an expression.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Clauses {
    wait: Option<u64>,
    often: Option<Interval>,
    each: Option<Recurrence>,
    days: Option<DaySpec>,
    /// The day of the week next to a date.
    weekday: Option<Weekday>,
    period: Option<CalendarPeriod>,
    part: Option<DayPart>,
    clocks: Option<Vec<ClockTime>>,
    range: Option<(ClockTime, ClockTime)>,
}

fn set_once<T>(place: &mut Option<T>, value: T, fault: TimeFault) -> Result<(), TimeFault> {
    if place.is_some() {
        return Err(fault);
    }
    *place = Some(value);
    Ok(())
}

pub(super) fn bit(day: Weekday) -> u8 {
    1 << day.to_sunday_zero_offset()
}

/// Returns the set of days from the first to the last, across the end of the week if necessary.
pub(super) fn from_to(first: Weekday, last: Weekday) -> u8 {
    let more = usize::try_from(first.until(last)).unwrap_or(0);
    first.cycle_forward().take(more + 1).fold(0, |set, day| set | bit(day))
}

/// Returns the day of the week in a set with one day.
fn only(set: u8) -> Option<Weekday> {
    Weekday::Sunday.cycle_forward().take(7).find(|day| bit(*day) == set)
}

impl Clauses {
    /// Adds a clause of the expression.
    ///
    /// # Errors
    /// The clause contradicts an earlier one, or names a second time.
    pub fn add(&mut self, clause: Clause) -> Result<(), TimeFault> {
        match clause {
            Clause::Wait(wait) => set_once(&mut self.wait, wait, TimeFault::TwoTimes),
            Clause::Interval(often) => set_once(&mut self.often, often, TimeFault::Clash),
            Clause::Recurrence(each) => set_once(&mut self.each, each, TimeFault::Clash),
            Clause::Days(days) => self.add_days(days),
            Clause::Period(period) => set_once(&mut self.period, period, TimeFault::Clash),
            Clause::Part(part) => set_once(&mut self.part, part, TimeFault::Clash),
            Clause::Clocks(clocks) => set_once(&mut self.clocks, clocks, TimeFault::TwoTimes),
            Clause::Range(first, last) => set_once(&mut self.range, (first, last), TimeFault::TwoTimes),
        }
    }

    /// Adds days. In "Thursday, December 24", the weekday must be that of the date.
    fn add_days(&mut self, days: DaySpec) -> Result<(), TimeFault> {
        let (date, set) = match (self.days, days) {
            (Some(DaySpec::Week { set, each: false }), date) | (Some(date), DaySpec::Week { set, each: false }) => {
                (date, set)
            }
            _ => return set_once(&mut self.days, days, TimeFault::TwoTimes),
        };
        if !matches!(date, DaySpec::Year(..) | DaySpec::On(_) | DaySpec::Month { .. }) {
            return Err(TimeFault::TwoTimes);
        }
        self.days = Some(date);
        set_once(&mut self.weekday, only(set).ok_or(TimeFault::TwoTimes)?, TimeFault::TwoTimes)
    }

    /// Returns true if a part of the day may follow without a preposition: "tomorrow evening".
    pub fn has_day(&self) -> bool {
        self.days.is_some() && self.part.is_none()
    }

    /// Combines the clauses.
    ///
    /// # Errors
    /// The clauses contradict each other, are incomplete or ambiguous, or name a range or a time that is too far away.
    pub fn combine(&self) -> Result<TimeExpression, TimeFault> {
        let repeats = self.each.is_some()
            || self.often.is_some()
            || self.days.is_some_and(|days| matches!(days, DaySpec::Week { each: true, .. }));
        let has_clock = self.clocks.is_some() || self.part.is_some();
        match (self.wait, self.often) {
            (Some(_), _) if repeats || self.days.is_some() || self.period.is_some() || self.range.is_some() => {
                Err(TimeFault::Clash)
            }
            (Some(seconds), _) if !has_clock => Ok(TimeExpression::In(seconds)),
            (Some(seconds), _) if seconds % DAY == 0 => {
                let days = i32::try_from(seconds / DAY).map_err(|_| TimeFault::TooLong)?;
                self.moment(DayReference::Ahead(days)).map(TimeExpression::At)
            }
            (Some(_), _) => Err(TimeFault::Clash),
            (None, Some(often)) => self.often(often),
            (None, None) if *self == (Self { each: Some(Recurrence::Week), ..Self::default() }) => {
                Ok(TimeExpression::Every { seconds: WEEK, first: None })
            }
            (None, None) if repeats => self.cron(),
            (None, None) if self.range.is_some() => Err(TimeFault::Range),
            (None, None) => self.moment(self.day(has_clock)?).map(TimeExpression::At),
        }
    }

    /// Returns the one day that the clauses mean.
    fn day(&self, has_clock: bool) -> Result<DayReference, TimeFault> {
        let one = |set: u32| i8::try_from(set.trailing_zeros()).ok().filter(|_| set.count_ones() == 1);
        match (self.days, self.period) {
            (None, None) if has_clock => Ok(DayReference::Next),
            (None, _) => Err(TimeFault::WhichDay),
            // The default hour may have passed.
            (Some(DaySpec::Ahead(0)), None) if !has_clock => Err(TimeFault::WhichHour),
            (Some(DaySpec::Ahead(days)), None) => Ok(DayReference::Ahead(days)),
            (Some(DaySpec::NextWeekday(day)), None) => Ok(DayReference::NextWeekday(day)),
            (Some(DaySpec::On(date)), None) => Ok(DayReference::On(date)),
            (Some(DaySpec::Year(month, day)), None) => Ok(DayReference::OfAnyYear(month, day)),
            (Some(DaySpec::Year(month, day)), Some(CalendarPeriod::Year(ahead))) => {
                Ok(DayReference::OfYear(ahead, month, day))
            }
            (Some(DaySpec::Week { set, .. }), period) => match (only(set), period) {
                (Some(day), None) => Ok(DayReference::Weekday(day)),
                (Some(day), Some(CalendarPeriod::Week(ahead))) => Ok(DayReference::OfWeek(ahead, day)),
                (None, _) => Err(TimeFault::SayEvery),
                _ => Err(TimeFault::Clash),
            },
            (Some(DaySpec::Month { set, last: false }), period) => match (one(set), period) {
                (Some(day), None) => Ok(DayReference::OfAnyMonth(day)),
                (Some(day), Some(CalendarPeriod::Month(ahead))) => Ok(DayReference::OfMonth(ahead, day)),
                (None, _) => Err(TimeFault::SayEvery),
                _ => Err(TimeFault::Clash),
            },
            _ => Err(TimeFault::Clash),
        }
    }

    /// Returns the resolved clock times; without any, the default time.
    fn resolved(&self) -> Result<Vec<ResolvedClock>, TimeFault> {
        let usual = || ClockTime::usual(self.part).map(|clock| vec![clock]);
        let clocks = self.clocks.clone().map_or_else(usual, Ok)?;
        if self.part.is_none() && is_mixed(&clocks) {
            return Err(TimeFault::WhichHalf);
        }
        clocks.into_iter().map(|clock| clock.resolve(self.part)).collect()
    }

    /// Returns the single clock time on a day.
    fn moment(&self, day: DayReference) -> Result<DayTime, TimeFault> {
        let [ResolvedClock { time: clock, after_midnight, ambiguous }] = *self.resolved()? else {
            return Err(TimeFault::TwoTimes);
        };
        match (after_midnight, day) {
            // This means the coming night, even if midnight has passed.
            (true, DayReference::Next | DayReference::Ahead(0)) => {
                Ok(DayTime { day: DayReference::Next, clock, after_midnight: false, weekday: None })
            }
            _ if ambiguous => Err(TimeFault::WhichMidnight),
            _ => Ok(DayTime { day, clock, after_midnight, weekday: self.weekday }),
        }
    }

    /// Returns the schedule of an interval.
    fn often(&self, often: Interval) -> Result<TimeExpression, TimeFault> {
        let Interval { seconds, from_clock } = often;
        if self.period.is_some() || self.weekday.is_some() {
            return Err(TimeFault::Clash);
        }
        if self.range.is_some() || self.each.is_some() || matches!(self.days, Some(DaySpec::Week { each: true, .. })) {
            return self.within(seconds);
        }
        let first = match self.days {
            None if self.clocks.is_none() && self.part.is_none() && !from_clock => None,
            None if seconds % DAY == 0 => Some(self.moment(DayReference::Next)?),
            Some(DaySpec::Week { set, .. }) if seconds % WEEK == 0 => {
                Some(self.moment(DayReference::Weekday(only(set).ok_or(TimeFault::TwoTimes)?))?)
            }
            _ => return Err(TimeFault::Clash),
        };
        Ok(TimeExpression::Every { seconds, first })
    }

    /// Returns the schedule of an interval within some days.
    fn within(&self, seconds: u64) -> Result<TimeExpression, TimeFault> {
        let days = self.cron_days()?;
        if self.clocks.is_some() || self.part.is_some() || days.months != "*" || days.days != "*" {
            return Err(TimeFault::Clash);
        }
        let (minutes, hours) =
            cron_fields::interval_fields(seconds, self.range, days.week == EACH_WEEKDAY && days.nth.is_none())?;
        Ok(TimeExpression::Cron(days.at(&minutes, &hours)))
    }

    /// Returns the schedule of clock times on some days.
    fn cron(&self) -> Result<TimeExpression, TimeFault> {
        if self.range.is_some() {
            return Err(TimeFault::Range);
        }
        let mut days = self.cron_days()?;
        let clocks = self.resolved()?;
        let minute = clocks.first().map_or(0, |clock| clock.time.minute());
        if clocks.iter().any(|clock| clock.time.minute() != minute) {
            return Err(TimeFault::MinutesDiffer);
        }
        let is_each = days.week == EACH_WEEKDAY && days.days == "*" && days.nth.is_none();
        if !is_each && clocks.iter().any(|clock| clock.ambiguous) {
            return Err(TimeFault::WhichMidnight);
        }
        match clocks.iter().filter(|clock| clock.after_midnight).count() {
            after_midnight if after_midnight == 0 || is_each => {}
            after_midnight if after_midnight < clocks.len() => return Err(TimeFault::MinutesDiffer),
            // A time after midnight in the night of a day is on the next day.
            _ if days.days == "*" && days.nth.is_none() => days.week = (days.week << 1 | days.week >> 6) & EACH_WEEKDAY,
            _ => return Err(TimeFault::WhichMidnight),
        }
        let hours = clocks.iter().fold(0, |set, clock| set | 1 << clock.time.hour());
        Ok(TimeExpression::Cron(days.at(&minute.to_string(), &cron_fields::field(hours, 24))))
    }

    fn cron_days(&self) -> Result<CronDays, TimeFault> {
        let free = CronDays { days: "*".to_owned(), months: "*".to_owned(), week: EACH_WEEKDAY, nth: None };
        if self.period.is_some() || self.weekday.is_some() {
            return Err(TimeFault::Clash);
        }
        match (self.each, self.days) {
            // A daily time, or an interval without days, applies to every day.
            (Some(Recurrence::Day) | None, None) => Ok(free),
            (Some(Recurrence::Day), Some(DaySpec::Week { set, .. })) if only(set).is_none() => {
                Ok(CronDays { week: set, ..free })
            }
            (None | Some(Recurrence::Named | Recurrence::Week), Some(DaySpec::Week { set, .. })) => {
                Ok(CronDays { week: set, ..free })
            }
            (Some(Recurrence::Month | Recurrence::Named), Some(DaySpec::Month { set, last })) => {
                let last = if last { vec!["L".to_owned()] } else { Vec::new() };
                let days = Some(cron_fields::field(u64::from(set), 32)).filter(|days| !days.is_empty());
                Ok(CronDays { days: days.into_iter().chain(last).collect::<Vec<_>>().join(","), ..free })
            }
            (Some(Recurrence::Month), Some(DaySpec::Nth(nth, day))) => {
                let day = day.to_sunday_zero_offset();
                let nth = nth.map_or_else(|| format!("{day}L"), |nth| format!("{day}#{nth}"));
                Ok(CronDays { nth: Some(nth), ..free })
            }
            (Some(Recurrence::Year | Recurrence::Named), Some(DaySpec::Year(month, day))) => {
                Ok(CronDays { days: day.to_string(), months: month.to_string(), ..free })
            }
            (Some(Recurrence::Week | Recurrence::Month | Recurrence::Year), None) => Err(TimeFault::WhichDay),
            _ => Err(TimeFault::Clash),
        }
    }
}

/// The day fields of a cron expression.
struct CronDays {
    days: String,
    months: String,
    /// The days of the week, with a bit for each, Sunday first.
    week: u8,
    /// A weekday of the month in place of `week`, such as the second Monday.
    nth: Option<String>,
}

impl CronDays {
    fn at(&self, minutes: &str, hours: &str) -> String {
        let Self { days, months, week, nth } = self;
        let week = nth.clone().unwrap_or_else(|| cron_fields::field(u64::from(*week), 7));
        format!("{minutes} {hours} {days} {months} {week}")
    }
}
