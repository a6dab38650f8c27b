//! The slots of a cron expression by the clock of a zone. Between two changes of the clock it runs evenly; at a change
//! Vixie cron's rules hold: what follows the clock is due whenever the clock shows it; a fixed time that the clock skips is
//! due once, right after, and one that it shows twice is due the first time.

use jiff::civil::DateTime;
use jiff::tz::{Offset, TimeZone};
use jiff::{SignedDuration, Timestamp};

use super::Slots;
use super::pattern::Pattern;

/// How far is looked for a next slot: no day of the calendar is further from the next like it (29 February on a Monday, over
/// the year 2100).
const HORIZON: SignedDuration = SignedDuration::from_hours(24 * 366 * 50);

/// A pattern, by the clock of a zone.
pub(super) struct Timeline {
    pub pattern: Pattern,
    pub zone: TimeZone,
}

/// A time in which the clock runs evenly, or a part of it.
#[derive(Clone, Copy, Debug)]
struct Stretch {
    from: Timestamp,
    /// It ends before.
    before: Timestamp,
    offset: Offset,
    /// The change of the clock with which it began: when, and the offset until then.
    change: Option<(Timestamp, Offset)>,
}

impl Timeline {
    /// The first slot after `after`.
    pub fn next_after(&self, after: Timestamp) -> Option<Timestamp> {
        let from = next_second(after)?;
        let before = from.saturating_add(HORIZON).unwrap_or(Timestamp::MAX);
        self.stretches(from, before).find_map(|stretch| self.first(stretch))
    }

    /// The slots after `after` up to and with `until`.
    pub fn slots(&self, after: Timestamp, until: Timestamp, limit: usize) -> Slots {
        let (Some(from), Some(before)) = (next_second(after), next_second(until)) else { return Slots::default() };
        let stretches: Vec<Stretch> = self.stretches(from, before).collect();
        let count = stretches.iter().map(|stretch| self.count(*stretch)).sum();
        let mut newest: Vec<Timestamp> =
            stretches.iter().rev().flat_map(|stretch| self.backwards(*stretch)).take(limit).collect();
        newest.reverse();
        Slots { count, newest }
    }

    fn stretches(&self, from: Timestamp, before: Timestamp) -> impl Iterator<Item = Stretch> {
        let mut next = (from < before).then(|| (from, self.offset(from), self.last_change(from)));
        std::iter::from_fn(move || {
            let (from, offset, change) = next?;
            // Some changes are of the zone's name alone.
            let end = self.zone.following(from).find(|end| end.offset() != offset);
            let end = end.filter(|end| end.timestamp() < before).map(|end| (end.timestamp(), end.offset()));
            next = end.map(|(at, new)| (at, new, Some((at, offset))));
            Some(Stretch { from, before: end.map_or(before, |(at, _)| at), offset, change })
        })
    }

    /// The change with which the stretch that holds `from` began.
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

    fn first(&self, stretch: Stretch) -> Option<Timestamp> {
        if self.makes_up(stretch) {
            return Some(stretch.from);
        }
        let (from, before) = self.clock(stretch);
        moment(self.pattern.first(from, before)?, stretch)
    }

    fn count(&self, stretch: Stretch) -> u64 {
        let (from, before) = self.clock(stretch);
        let made_up = u64::from(self.makes_up(stretch) && !self.is_due_at(from));
        self.pattern.count(from, before) + made_up
    }

    /// Its slots, the last at the head.
    fn backwards(&self, stretch: Stretch) -> impl Iterator<Item = Timestamp> {
        let (from, before) = self.clock(stretch);
        let made_up = (self.makes_up(stretch) && !self.is_due_at(from)).then_some(stretch.from);
        self.pattern.backwards(from, before).filter_map(move |found| moment(found, stretch)).chain(made_up)
    }

    /// What the clock shows from its beginning to its end, without what was due when the clock showed it before.
    fn clock(&self, stretch: Stretch) -> (DateTime, DateTime) {
        let Stretch { from, before, offset, change } = stretch;
        let clock = (offset.to_datetime(from), offset.to_datetime(before));
        match change {
            Some((at, old)) if !self.pattern.follows_clock => (clock.0.max(old.to_datetime(at)).min(clock.1), clock.1),
            _ => clock,
        }
    }

    /// Whether it begins with a slot for fixed times that the clock has just skipped.
    fn makes_up(&self, stretch: Stretch) -> bool {
        match stretch.change {
            Some((at, old)) if at == stretch.from && !self.pattern.follows_clock => {
                self.pattern.first(old.to_datetime(at), stretch.offset.to_datetime(at)).is_some()
            }
            _ => false,
        }
    }

    fn is_due_at(&self, clock: DateTime) -> bool {
        clock.checked_add(SECOND).is_ok_and(|end| self.pattern.first(clock, end).is_some())
    }
}

const SECOND: SignedDuration = SignedDuration::from_secs(1);

fn moment(clock: DateTime, stretch: Stretch) -> Option<Timestamp> {
    stretch.offset.to_timestamp(clock).ok()
}

/// The first whole second after `at`.
fn next_second(at: Timestamp) -> Option<Timestamp> {
    let whole = at.as_millisecond().div_euclid(1_000);
    Timestamp::from_second(whole + 1).ok()
}
