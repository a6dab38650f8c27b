//! What times in all languages have in common.

use jiff::civil::Date;

use super::misread::Why;
use super::part::{Clock, Said};
use super::said::Days;
use super::token::Cursor;
use super::when::LONGEST;

/// `2026-12-24`, `2026/12/24`; of `12/24` nobody knows which is the month.
pub(super) fn written_date(c: &mut Cursor<'_>) -> Option<Days> {
    let (first, digits) = c.number()?;
    if !c.is_glued() || !c.mark(&['-', '/']) {
        return None;
    }
    let (month, _) = c.number()?;
    if digits != 4 {
        return c.blame(Why::DayOrMonth);
    }
    c.inner_mark(&['-', '/'])?;
    let (day, _) = c.number()?;
    date(c, Some(first), month, day)
}

/// The day of a year, or of any year where none is said; it has to be there.
pub(super) fn date(c: &mut Cursor<'_>, year: Option<u64>, month: u64, day: u64) -> Option<Days> {
    let small = |value: u64| i8::try_from(value).unwrap_or(0);
    // In a leap year there is each day that there can be.
    let date =
        i16::try_from(year.unwrap_or(2_000)).ok().and_then(|year| Date::new(year, small(month), small(day)).ok());
    match (date, year) {
        (None, _) => c.blame(Why::NoSuchDate),
        (Some(date), Some(_)) => Some(Days::On(date)),
        (Some(date), None) => Some(Days::Year(date.month(), date.day())),
    }
}

/// Days of the month as a set.
pub(super) fn month_days(c: &mut Cursor<'_>, days: &[u64]) -> Option<Days> {
    if days.iter().any(|day| !(1..=31).contains(day)) {
        return c.blame(Why::NoSuchDate);
    }
    Some(Days::Month { set: days.iter().fold(0, |set, day| set | 1 << day), last: false })
}

/// A time as the clock shows it.
pub(super) fn clock(c: &mut Cursor<'_>, hour: u64, minute: u64) -> Option<Clock> {
    match (i8::try_from(hour), i8::try_from(minute)) {
        (Ok(hour @ 0..=23), Ok(minute @ 0..=59)) => Some(Clock { hour, minute, said: Said::Bare, part: None }),
        _ => c.blame(Why::NoSuchTime),
    }
}

/// So many minutes before an hour.
pub(super) fn clock_before(c: &mut Cursor<'_>, minutes: u64, hour: u64) -> Option<Clock> {
    if !(1..=12).contains(&hour) || !(1..=59).contains(&minutes) {
        return c.blame(Why::NoSuchTime);
    }
    clock(c, hour - 1, 60 - minutes)
}

/// `:30` behind an hour: two digits.
pub(super) fn minutes_behind(c: &mut Cursor<'_>, mark: char) -> Option<u64> {
    c.inner_mark(&[mark])?;
    let (minute, digits) = c.number()?;
    (digits == 2).then_some(minute)
}

/// How many of a unit: a whole number, with a part of one more.
#[derive(Clone, Copy)]
pub(super) struct Amount {
    pub whole: u64,
    /// The numerator and the denominator.
    pub part: (u64, u64),
}

impl Amount {
    pub fn of(whole: u64) -> Self {
        Self { whole, part: (0, 1) }
    }

    pub fn and_a_half(self) -> Self {
        Self { part: (1, 2), ..self }
    }

    /// So many of a unit, in seconds.
    pub fn times(self, unit: u64) -> Option<u64> {
        let (numerator, denominator) = self.part;
        let part = numerator.checked_mul(unit).filter(|part| part.is_multiple_of(denominator))? / denominator;
        self.whole.checked_mul(unit)?.checked_add(part)
    }
}

/// `2`, `2.5`.
pub(super) fn amount(c: &mut Cursor<'_>) -> Option<Amount> {
    let (whole, _) = c.number()?;
    let decimals = c.attempt(|c| {
        c.inner_mark(&['.'])?;
        let (value, digits) = c.number()?;
        Some((value, 10_u64.checked_pow(u32::try_from(digits).ok()?)?))
    });
    Some(Amount { whole, part: decimals.unwrap_or((0, 1)) })
}

/// One part after the other, each of a smaller unit than the one before; `part` gives seconds and unit.
pub(super) fn length(
    c: &mut Cursor<'_>,
    first: impl FnOnce(&mut Cursor<'_>) -> Option<(u64, u64)>,
    part: impl Fn(&mut Cursor<'_>) -> Option<(u64, u64)>,
) -> Option<u64> {
    let (mut total, mut last) = first(c)?;
    while let Some((more, unit)) = c.attempt(|c| part(c).filter(|(_, unit)| *unit < last)) {
        total = total.saturating_add(more);
        last = unit;
    }
    match total {
        0 => None,
        1..=LONGEST => Some(total),
        _ => c.blame(Why::TooLong),
    }
}
