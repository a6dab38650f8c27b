//! The slots of a cron expression by the clock of a zone. The clock runs evenly between two changes. At a change, Vixie cron's
//! rules hold: an expression that follows the clock is due whenever the clock shows its time; a fixed time that the clock skips
//! is due once, right after the gap; a fixed time that the clock shows twice is due the first time.

use jiff::civil::DateTime;
use jiff::tz::{Offset, TimeZone};
use jiff::{SignedDuration, Timestamp};

use super::cron_pattern::CronPattern;

/// The longest search for a next slot: no two matching days of the calendar are further apart (29 February on a Monday,
/// across the year 2100).
const HORIZON: SignedDuration = SignedDuration::from_hours(24 * 366 * 50);

/// The slots of a period of time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PassedSlots {
    /// The number of slots.
    pub count: u64,
    /// The newest slots, in ascending order.
    pub newest: Vec<Timestamp>,
}

/// A pattern with the clock of a zone.
pub(super) struct Timeline {
    pub pattern: CronPattern,
    pub zone: TimeZone,
}

/// A period without a clock change, or a part of such a period.
#[derive(Clone, Copy, Debug)]
struct EvenPeriod {
    from: Timestamp,
    /// The end, exclusive.
    before: Timestamp,
    offset: Offset,
    /// The clock change at its beginning: its time, and the offset before it.
    change: Option<(Timestamp, Offset)>,
}

impl Timeline {
    /// Returns the first slot after `after`.
    pub fn next_after(&self, after: Timestamp) -> Option<Timestamp> {
        let from = next_second(after)?;
        let before = from.saturating_add(HORIZON).unwrap_or(Timestamp::MAX);
        self.periods(from, before).find_map(|period| self.first(period))
    }

    /// Returns the slots after `after` up to and including `until`.
    pub fn slots(&self, after: Timestamp, until: Timestamp, limit: usize) -> PassedSlots {
        let (Some(from), Some(before)) = (next_second(after), next_second(until)) else {
            return PassedSlots::default();
        };
        let periods: Vec<EvenPeriod> = self.periods(from, before).collect();
        let count = periods.iter().map(|period| self.count(*period)).sum();
        let mut newest: Vec<Timestamp> =
            periods.iter().rev().flat_map(|period| self.backwards(*period)).take(limit).collect();
        newest.reverse();
        PassedSlots { count, newest }
    }

    fn periods(&self, from: Timestamp, before: Timestamp) -> impl Iterator<Item = EvenPeriod> {
        let mut next = (from < before).then(|| (from, self.offset(from), self.last_change(from)));
        std::iter::from_fn(move || {
            let (from, offset, change) = next?;
            // Some transitions of a zone change only its name, not its offset.
            let end = self.zone.following(from).find(|end| end.offset() != offset);
            let end = end.filter(|end| end.timestamp() < before).map(|end| (end.timestamp(), end.offset()));
            next = end.map(|(at, new)| (at, new, Some((at, offset))));
            Some(EvenPeriod { from, before: end.map_or(before, |(at, _)| at), offset, change })
        })
    }

    /// Returns the clock change at the beginning of the period that contains `from`.
    fn last_change(&self, from: Timestamp) -> Option<(Timestamp, Offset)> {
        if self.pattern.follows_clock {
            return None;
        }
        let last = self.zone.preceding(from.checked_add(SECOND).ok()?).next()?.timestamp();
        Some((last, self.offset(last.checked_sub(SECOND).ok()?)))
    }

    fn offset(&self, at: Timestamp) -> Offset {
        self.zone.to_offset(at)
    }

    fn first(&self, period: EvenPeriod) -> Option<Timestamp> {
        if self.makes_up(period) {
            return Some(period.from);
        }
        let (from, before) = self.clock(period);
        moment(self.pattern.first(from, before)?, period)
    }

    fn count(&self, period: EvenPeriod) -> u64 {
        let (from, before) = self.clock(period);
        let made_up = u64::from(self.makes_up(period) && !self.is_due_at(from));
        self.pattern.count(from, before) + made_up
    }

    /// Returns the period's slots in descending order.
    fn backwards(&self, period: EvenPeriod) -> impl Iterator<Item = Timestamp> {
        let (from, before) = self.clock(period);
        let made_up = (self.makes_up(period) && !self.is_due_at(from)).then_some(period.from);
        self.pattern.backwards(from, before).filter_map(move |found| moment(found, period)).chain(made_up)
    }

    /// Returns the clock's readings at the beginning and at the end of the period. For fixed times, excludes readings that the
    /// clock showed before the change.
    fn clock(&self, period: EvenPeriod) -> (DateTime, DateTime) {
        let EvenPeriod { from, before, offset, change } = period;
        let clock = (offset.to_datetime(from), offset.to_datetime(before));
        match change {
            Some((at, old)) if !self.pattern.follows_clock => (clock.0.max(old.to_datetime(at)).min(clock.1), clock.1),
            _ => clock,
        }
    }

    /// Returns true if the period begins with a slot that makes up for fixed times which the clock has just skipped.
    fn makes_up(&self, period: EvenPeriod) -> bool {
        match period.change {
            Some((at, old)) if at == period.from && !self.pattern.follows_clock => {
                self.pattern.first(old.to_datetime(at), period.offset.to_datetime(at)).is_some()
            }
            _ => false,
        }
    }

    fn is_due_at(&self, clock: DateTime) -> bool {
        clock.checked_add(SECOND).is_ok_and(|end| self.pattern.first(clock, end).is_some())
    }
}

const SECOND: SignedDuration = SignedDuration::from_secs(1);

fn moment(clock: DateTime, period: EvenPeriod) -> Option<Timestamp> {
    period.offset.to_timestamp(clock).ok()
}

/// Returns the first whole second after `at`.
fn next_second(at: Timestamp) -> Option<Timestamp> {
    let whole = at.as_millisecond().div_euclid(1_000);
    Timestamp::from_second(whole + 1).ok()
}
