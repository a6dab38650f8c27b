//! Grammar rules that all languages share.

use jiff::civil::Date;

use super::clauses::{Clause, DaySpec};
use super::clock::{ClockForm, ClockTime};
use super::error::TimeFault;
use super::expression::MAX_SECONDS;
use super::token::{TokenCursor, TokenKind};

/// Reads a day such as `tonight`.
pub(super) fn day_ahead(c: &mut TokenCursor<'_>) -> Option<Vec<Clause>> {
    let (ahead, part) =
        c.take_as(|kind| if let TokenKind::Day(ahead, part) = kind { Some((ahead, part)) } else { None })?;
    Some([Clause::Days(DaySpec::Ahead(ahead))].into_iter().chain(part.map(Clause::Part)).collect())
}

/// Reads a date such as `2026-12-24` or `2026/12/24`. `12/24` is refused, since day and month cannot be distinguished.
pub(super) fn written_date(c: &mut TokenCursor<'_>) -> Option<DaySpec> {
    let (first, digits) = c.take_number()?;
    if !c.is_glued() || !c.take_mark(&['-', '/']) {
        return None;
    }
    let (month, _) = c.take_number()?;
    if digits != 4 {
        return c.fail(TimeFault::DayOrMonth);
    }
    c.take_inner_mark(&['-', '/'])?;
    let (day, _) = c.take_number()?;
    date(c, Some(first), month, day)
}

/// Checks a date and returns its day; without a year, the day of any year.
pub(super) fn date(c: &mut TokenCursor<'_>, year: Option<u64>, month: u64, day: u64) -> Option<DaySpec> {
    let small = |value: u64| i8::try_from(value).unwrap_or(0);
    // Without a year, the check uses a leap year, which has every possible day.
    let date =
        i16::try_from(year.unwrap_or(2_000)).ok().and_then(|year| Date::new(year, small(month), small(day)).ok());
    match (date, year) {
        (None, _) => c.fail(TimeFault::NoSuchDate),
        (Some(date), Some(_)) => Some(DaySpec::On(date)),
        (Some(date), None) => Some(DaySpec::Year(date.month(), date.day())),
    }
}

/// Returns days of the month as a set.
pub(super) fn month_days(c: &mut TokenCursor<'_>, days: &[u64]) -> Option<DaySpec> {
    if days.iter().any(|day| !(1..=31).contains(day)) {
        return c.fail(TimeFault::NoSuchDate);
    }
    Some(DaySpec::Month { set: days.iter().fold(0, |set, day| set | 1 << day), last: false })
}

/// Checks a time of the 24-hour clock.
pub(super) fn clock(c: &mut TokenCursor<'_>, hour: u64, minute: u64) -> Option<ClockTime> {
    match (i8::try_from(hour), i8::try_from(minute)) {
        (Ok(hour @ 0..=23), Ok(minute @ 0..=59)) => Some(ClockTime { hour, minute, form: ClockForm::Bare, part: None }),
        _ => c.fail(TimeFault::NoSuchTime),
    }
}

/// Returns the clock time a number of minutes before an hour.
pub(super) fn clock_before(c: &mut TokenCursor<'_>, minutes: u64, hour: u64) -> Option<ClockTime> {
    if !(1..=12).contains(&hour) || !(1..=59).contains(&minutes) {
        return c.fail(TimeFault::NoSuchTime);
    }
    clock(c, hour - 1, 60 - minutes)
}

/// Reads the two digits of minutes after an hour and a mark, such as `:30`.
pub(super) fn minutes_behind(c: &mut TokenCursor<'_>, mark: char) -> Option<u64> {
    c.take_inner_mark(&[mark])?;
    let (minute, digits) = c.take_number()?;
    (digits == 2).then_some(minute)
}

/// An amount: a whole number and a fraction.
#[derive(Clone, Copy)]
pub(super) struct Amount {
    pub whole: u64,
    /// The fraction: its numerator and its denominator.
    pub part: (u64, u64),
}

impl Amount {
    pub fn of(whole: u64) -> Self {
        Self { whole, part: (0, 1) }
    }

    pub fn and_a_half(self) -> Self {
        Self { part: (1, 2), ..self }
    }

    /// Returns the amount of a unit in seconds.
    pub fn times(self, unit: u64) -> Option<u64> {
        let (numerator, denominator) = self.part;
        let part = numerator.checked_mul(unit).filter(|part| part.is_multiple_of(denominator))? / denominator;
        self.whole.checked_mul(unit)?.checked_add(part)
    }
}

/// Returns the seconds of an amount of a unit, and the unit.
pub(super) fn seconds_of(c: &mut TokenCursor<'_>, amount: Amount, unit: u64) -> Option<(u64, u64)> {
    match amount.times(unit) {
        Some(seconds) => Some((seconds, unit)),
        None => c.fail(TimeFault::TooLong),
    }
}

/// Reads an amount such as `2` or `2.5`.
pub(super) fn amount(c: &mut TokenCursor<'_>) -> Option<Amount> {
    let (whole, _) = c.take_number()?;
    let decimals = c.attempt(|c| {
        c.take_inner_mark(&['.'])?;
        let (value, digits) = c.take_number()?;
        Some((value, 10_u64.checked_pow(u32::try_from(digits).ok()?)?))
    });
    Some(Amount { whole, part: decimals.unwrap_or((0, 1)) })
}

/// Reads a duration of parts with decreasing units; `part` returns the seconds and the unit of a part.
pub(super) fn length(
    c: &mut TokenCursor<'_>,
    first: impl FnOnce(&mut TokenCursor<'_>) -> Option<(u64, u64)>,
    part: impl Fn(&mut TokenCursor<'_>) -> Option<(u64, u64)>,
) -> Option<u64> {
    let (mut total, mut last) = first(c)?;
    while let Some((more, unit)) = c.attempt(|c| part(c).filter(|(_, unit)| *unit < last)) {
        total = total.saturating_add(more);
        last = unit;
    }
    match total {
        0 => None,
        1..=MAX_SECONDS => Some(total),
        _ => c.fail(TimeFault::TooLong),
    }
}
