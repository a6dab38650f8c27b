//! Clock times as people write them, and the parts of the day that resolve them.

use jiff::civil::Time;

use super::error::TimeFault;

/// A part of the day: its first and its last hour, which may be after midnight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DayPart {
    first: i8,
    last: i8,
    /// The hour that the part means without a clock time.
    usual: Option<i8>,
    /// True if it is unclear whether the hours after midnight belong to the day before or the day after.
    is_of_two_days: bool,
}

impl DayPart {
    const fn new(first: i8, last: i8, usual: Option<i8>) -> Self {
        Self { first, last, usual, is_of_two_days: false }
    }

    const fn of_two_days(first: i8, last: i8, usual: Option<i8>) -> Self {
        Self { first, last, usual, is_of_two_days: true }
    }

    fn has(self, hour: i8) -> bool {
        match self.is_over_midnight() {
            false => (self.first..=self.last).contains(&hour),
            true => hour >= self.first || hour <= self.last,
        }
    }

    fn is_over_midnight(self) -> bool {
        self.first > self.last
    }
}

pub(super) const DAWN: DayPart = DayPart::new(0, 6, None);
pub(super) const EARLY: DayPart = DayPart::new(1, 11, Some(8));
pub(super) const MORNING: DayPart = DayPart::new(1, 11, Some(9));
pub(super) const AROUND_NOON: DayPart = DayPart::new(11, 14, Some(12));
pub(super) const AFTERNOON: DayPart = DayPart::new(12, 19, Some(15));
/// 下午, which people also write for PM.
pub(super) const NOON_TO_MIDNIGHT: DayPart = DayPart::new(12, 23, Some(15));
pub(super) const DUSK: DayPart = DayPart::new(16, 20, Some(18));
pub(super) const EVENING: DayPart = DayPart::new(16, 23, Some(20));
pub(super) const NIGHT: DayPart = DayPart::new(17, 3, Some(20));
/// "at night" after a clock time.
pub(super) const AT_NIGHT: DayPart = DayPart::of_two_days(18, 5, Some(20));
/// 半夜.
pub(super) const LATE: DayPart = DayPart::of_two_days(22, 5, None);

/// The form in which a clock time is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClockForm {
    /// 0 to 23, or 1 to 12 with a part of the day.
    Bare,
    /// With am or pm, or as noon.
    Definite,
    Midnight,
}

/// A clock time as written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ClockTime {
    pub hour: i8,
    pub minute: i8,
    pub form: ClockForm,
    /// The part of the day next to the clock time.
    pub part: Option<DayPart>,
}

pub(super) const NOON_CLOCK: ClockTime = ClockTime { hour: 12, minute: 0, form: ClockForm::Definite, part: None };
pub(super) const MIDNIGHT_CLOCK: ClockTime = ClockTime { hour: 0, minute: 0, form: ClockForm::Midnight, part: None };

/// A clock time without ambiguity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ResolvedClock {
    pub time: Time,
    /// The time belongs to the night of the day before.
    pub after_midnight: bool,
    /// True if it is unclear which night of a day is meant.
    pub ambiguous: bool,
}

impl ClockTime {
    /// Returns the default time for a part of the day, or for none.
    ///
    /// # Errors
    /// The part of the day has no default time.
    pub fn usual(part: Option<DayPart>) -> Result<Self, TimeFault> {
        let hour = part.map_or(Some(9), |part| part.usual).ok_or(TimeFault::WhichHour)?;
        Ok(Self { hour, minute: 0, form: ClockForm::Definite, part: None })
    }

    /// Returns true if the time may be in either half of the day.
    pub fn is_open(&self) -> bool {
        self.form == ClockForm::Bare && self.part.is_none() && self.hour <= 12
    }

    /// Resolves the time with a part of the day from elsewhere in the expression.
    ///
    /// # Errors
    /// The time is not in the part of the day, could be in both halves of it, or does not exist.
    pub fn resolve(self, elsewhere: Option<DayPart>) -> Result<ResolvedClock, TimeFault> {
        let part = match (self.part, elsewhere) {
            // The time is in the middle of the night that the expression names elsewhere.
            (Some(own), Some(NIGHT)) if own.is_of_two_days => Some(NIGHT),
            (Some(own), Some(other)) if own != other => return Err(TimeFault::Clash),
            (own, other) => own.or(other),
        };
        let Some(part) = part else {
            let is_midnight = self.form == ClockForm::Midnight;
            return Ok(ResolvedClock {
                time: self.at(self.hour)?,
                after_midnight: is_midnight,
                ambiguous: is_midnight,
            });
        };
        let halves = [self.hour % 12, self.hour % 12 + 12];
        let meant: &[i8] = if self.form == ClockForm::Bare && self.hour <= 12 { &halves } else { &[self.hour] };
        let mut fitting = meant.iter().filter(|hour| part.has(**hour));
        let (Some(hour), None) = (fitting.next(), fitting.next()) else { return Err(TimeFault::NotInPart) };
        let after_midnight = part.is_over_midnight() && *hour < 12;
        Ok(ResolvedClock { time: self.at(*hour)?, after_midnight, ambiguous: after_midnight && part.is_of_two_days })
    }

    fn at(&self, hour: i8) -> Result<Time, TimeFault> {
        Time::new(hour, self.minute, 0, 0).map_err(|_| TimeFault::NoSuchTime)
    }
}

/// Returns true if some times name their half of the day and others do not.
pub(super) fn is_mixed<'c>(clocks: impl IntoIterator<Item = &'c ClockTime>) -> bool {
    let (mut open, mut named) = (false, false);
    for clock in clocks {
        open |= clock.is_open();
        named |= clock.form == ClockForm::Definite || clock.part.is_some();
    }
    open && named
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_the_day_determines_the_hour() {
        for (part, hour, expected) in [
            (NIGHT, 12, Ok((0, true))),
            (NIGHT, 1, Ok((1, true))),
            (NIGHT, 9, Ok((21, false))),
            (NIGHT, 4, Err(TimeFault::NotInPart)),
            (NIGHT, 13, Err(TimeFault::NotInPart)),
            (NIGHT, 0, Ok((0, true))),
            (DAWN, 12, Ok((0, false))),
            (DAWN, 9, Err(TimeFault::NotInPart)),
            (AROUND_NOON, 11, Ok((11, false))),
            (AROUND_NOON, 12, Ok((12, false))),
            (AROUND_NOON, 1, Ok((13, false))),
            (AROUND_NOON, 3, Err(TimeFault::NotInPart)),
            (AFTERNOON, 12, Ok((12, false))),
            (AFTERNOON, 9, Err(TimeFault::NotInPart)),
            (NOON_TO_MIDNIGHT, 9, Ok((21, false))),
            (MORNING, 12, Err(TimeFault::NotInPart)),
            (EVENING, 20, Ok((20, false))),
            (LATE, 2, Ok((2, true))),
        ] {
            let clock = ClockTime { hour, minute: 0, form: ClockForm::Bare, part: None };
            let found = clock.resolve(Some(part)).map(|resolved| (resolved.time.hour(), resolved.after_midnight));
            assert_eq!(found, expected, "{part:?} {hour}");
        }
    }
}
