//! Clock times as they are said, and the parts of the day that tell which one is meant.

use jiff::civil::Time;

use super::misread::Why;

/// A part of the day: its hours, from the first to the last, which may lie behind midnight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    first: i8,
    last: i8,
    /// The hour that it means when none is said.
    usual: Option<i8>,
    /// Behind midnight, nobody knows whether the day before or the one after names it.
    is_of_two_days: bool,
}

impl Part {
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

pub(super) const DAWN: Part = Part::new(0, 6, None);
pub(super) const EARLY: Part = Part::new(1, 11, Some(8));
pub(super) const MORNING: Part = Part::new(1, 11, Some(9));
pub(super) const AROUND_NOON: Part = Part::new(11, 14, Some(12));
pub(super) const AFTERNOON: Part = Part::new(12, 19, Some(15));
/// 下午, which is written for PM as well.
pub(super) const NOON_TO_MIDNIGHT: Part = Part::new(12, 23, Some(15));
pub(super) const DUSK: Part = Part::new(16, 20, Some(18));
pub(super) const EVENING: Part = Part::new(16, 23, Some(20));
pub(super) const NIGHT: Part = Part::new(17, 3, Some(20));
/// "at night", behind a clock time.
pub(super) const AT_NIGHT: Part = Part::of_two_days(18, 5, Some(20));
/// 半夜.
pub(super) const LATE: Part = Part::of_two_days(22, 5, None);

/// How a clock time was said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Said {
    /// 0 to 23, or 1 to 12 beside a part of the day.
    Bare,
    /// With am or pm, or as noon.
    Sure,
    Midnight,
}

/// A clock time, as it was said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Clock {
    pub hour: i8,
    pub minute: i8,
    pub said: Said,
    /// The part of the day that stands with it.
    pub part: Option<Part>,
}

pub(super) const NOON_CLOCK: Clock = Clock { hour: 12, minute: 0, said: Said::Sure, part: None };
pub(super) const MIDNIGHT_CLOCK: Clock = Clock { hour: 0, minute: 0, said: Said::Midnight, part: None };

/// What the clock shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Settled {
    pub time: Time,
    /// It belongs to the night of the day before.
    pub late: bool,
    /// With a day, it would not be clear which night is meant.
    pub vague: bool,
}

impl Clock {
    /// The time that is meant where none is said.
    pub fn usual(part: Option<Part>) -> Result<Self, Why> {
        let hour = part.map_or(Some(9), |part| part.usual).ok_or(Why::WhichHour)?;
        Ok(Self { hour, minute: 0, said: Said::Sure, part: None })
    }

    /// Whether it could be in either half of the day.
    pub fn is_open(&self) -> bool {
        self.said == Said::Bare && self.part.is_none() && self.hour <= 12
    }

    /// Brings it together with the part of the day that was said elsewhere.
    pub fn settle(self, elsewhere: Option<Part>) -> Result<Settled, Why> {
        let part = match (self.part, elsewhere) {
            // The middle of a night that is named.
            (Some(own), Some(NIGHT)) if own.is_of_two_days => Some(NIGHT),
            (Some(own), Some(other)) if own != other => return Err(Why::Clash),
            (own, other) => own.or(other),
        };
        let Some(part) = part else {
            let is_midnight = self.said == Said::Midnight;
            return Ok(Settled { time: self.at(self.hour)?, late: is_midnight, vague: is_midnight });
        };
        let halves = [self.hour % 12, self.hour % 12 + 12];
        let meant: &[i8] = if self.said == Said::Bare && self.hour <= 12 { &halves } else { &[self.hour] };
        let mut fitting = meant.iter().filter(|hour| part.has(**hour));
        let (Some(hour), None) = (fitting.next(), fitting.next()) else { return Err(Why::NotInPart) };
        let late = part.is_over_midnight() && *hour < 12;
        Ok(Settled { time: self.at(*hour)?, late, vague: late && part.is_of_two_days })
    }

    fn at(&self, hour: i8) -> Result<Time, Why> {
        Time::new(hour, self.minute, 0, 0).map_err(|_| Why::NoSuchTime)
    }
}

/// Whether some of the times name their half of the day and others leave it open.
pub(super) fn is_mixed<'c>(clocks: impl IntoIterator<Item = &'c Clock>) -> bool {
    let (mut open, mut named) = (false, false);
    for clock in clocks {
        open |= clock.is_open();
        named |= clock.said == Said::Sure || clock.part.is_some();
    }
    open && named
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_the_day_tells_the_hour() {
        for (part, hour, expected) in [
            (NIGHT, 12, Ok((0, true))),
            (NIGHT, 1, Ok((1, true))),
            (NIGHT, 9, Ok((21, false))),
            (NIGHT, 4, Err(Why::NotInPart)),
            (NIGHT, 13, Err(Why::NotInPart)),
            (NIGHT, 0, Ok((0, true))),
            (DAWN, 12, Ok((0, false))),
            (DAWN, 9, Err(Why::NotInPart)),
            (AROUND_NOON, 11, Ok((11, false))),
            (AROUND_NOON, 12, Ok((12, false))),
            (AROUND_NOON, 1, Ok((13, false))),
            (AROUND_NOON, 3, Err(Why::NotInPart)),
            (AFTERNOON, 12, Ok((12, false))),
            (AFTERNOON, 9, Err(Why::NotInPart)),
            (NOON_TO_MIDNIGHT, 9, Ok((21, false))),
            (MORNING, 12, Err(Why::NotInPart)),
            (EVENING, 20, Ok((20, false))),
            (LATE, 2, Ok((2, true))),
        ] {
            let clock = Clock { hour, minute: 0, said: Said::Bare, part: None };
            let found = clock.settle(Some(part)).map(|settled| (settled.time.hour(), settled.late));
            assert_eq!(found, expected, "{part:?} {hour}");
        }
    }
}
