//! The kinds of schedule.

use std::time::Duration;

use daoyou_channels::settings::HumanDuration;
use jiff::Timestamp;
use jiff::civil::{DateTime, Time};
use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};

use super::cron_pattern::CronPattern;
use super::error::ScheduleError;
use super::outline::{days, parts, times};
use super::parse_time::parse_time;
use super::timeline::{PassedSlots, Timeline};
use super::{describe_en, describe_zh, zone};
use crate::text::time_expression::instant_at;
use crate::text::{Language, time_expression};

/// A schedule of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Schedule {
    /// One time.
    At { at: Timestamp },
    /// At `anchor`, and at all multiples of `every` before and after it.
    Every { every: HumanDuration, anchor: Timestamp },
    /// Every so many days at the time that the clock of the zone `tz` shows at `anchor`, before and after it.
    Days { days: u32, anchor: Timestamp, tz: String },
    /// By a cron expression and the clock of the zone `tz`: an IANA name, or an offset such as `+08:00`.
    Cron { expr: String, tz: String },
}

impl Schedule {
    /// Reads a time: RFC 3339, or by the clock of `zone` `2026-03-08 9:00`, `in 20m`, `tomorrow 9:00`, `on the 1st at noon`,
    /// `明天9点` and others, see [`time_expression::parse`]. A time that the clock skips becomes the moment right after the gap.
    /// Of a time that the clock shows twice, the first one counts.
    ///
    /// # Errors
    /// The text is not a time, or the time is not after `now`, or more than 100 years later.
    pub fn at(text: &str, now: Timestamp, zone: &TimeZone) -> Result<Self, ScheduleError> {
        parse_time(text, now, zone).map(|at| Self::At { at })
    }

    /// Creates an interval from `anchor` on.
    ///
    /// # Errors
    /// `every` is shorter than a second, or longer than 100 years.
    pub fn every(every: HumanDuration, anchor: Timestamp) -> Result<Self, ScheduleError> {
        if every < HumanDuration::from_secs(1) {
            return Err(ScheduleError(format!("an interval of {every} is too short; the shortest is 1s")));
        }
        if every.0 > Duration::from_secs(time_expression::MAX_SECONDS) {
            return Err(ScheduleError(format!("an interval of {every} is too long; the longest is 100 years")));
        }
        Ok(Self::Every { every, anchor })
    }

    /// Creates an interval with a first time. An interval of whole days keeps the clock time of `anchor` in `zone`.
    ///
    /// # Errors
    /// `every` is shorter than a second, or longer than 100 years.
    pub fn every_from(every: HumanDuration, anchor: Timestamp, zone: &TimeZone) -> Result<Self, ScheduleError> {
        const DAY: Duration = Duration::from_hours(24);
        let schedule = Self::every(every, anchor)?;
        let days = u32::try_from(every.0.as_secs() / DAY.as_secs()).unwrap_or(u32::MAX);
        let is_whole = days > 0 && every.0 == DAY.saturating_mul(days);
        Ok(if is_whole { Self::Days { days, anchor, tz: zone::zone_name(zone) } } else { schedule })
    }

    /// Creates a schedule of five or six fields (seconds first), or of `@daily` and the like, by the clock of the zone `tz`:
    /// an IANA name, or an offset such as `UTC+8`, which is stored as `+08:00`.
    ///
    /// # Errors
    /// The expression or the zone is invalid, or the expression never matches.
    pub fn cron(expr: &str, tz: &str) -> Result<Self, ScheduleError> {
        let pattern: CronPattern = expr.parse()?;
        if !pattern.has_match() {
            return Err(ScheduleError(format!("the cron expression {expr:?} never comes true: there is no such day")));
        }
        let zone = zone::time_zone(tz)?;
        // The stored name is in the spelling of the time zone database.
        Ok(Self::Cron { expr: expr.split_whitespace().collect::<Vec<_>>().join(" "), tz: zone::zone_name(&zone) })
    }

    /// Returns the first slot after `after`; `None` if there is none, or the schedule cannot be read.
    pub fn next_after(&self, after: Timestamp) -> Option<Timestamp> {
        match self {
            Self::At { at } => Some(*at).filter(|at| *at > after),
            Self::Every { every, anchor } => slot_of(*every, *anchor, slots_up_to(*every, *anchor, after)? + 1),
            Self::Days { days, anchor, tz } => {
                let interval = DayInterval::new(*days, *anchor, tz)?;
                interval.slot(interval.slots_up_to(after)? + 1)
            }
            Self::Cron { expr, tz } => timeline(expr, tz)?.next_after(after),
        }
    }

    /// Returns the next `count` slots after `after`.
    pub fn upcoming(&self, after: Timestamp, count: usize) -> Vec<Timestamp> {
        // The expression is parsed only once for all slots.
        let line = match self {
            Self::Cron { expr, tz } => timeline(expr, tz),
            Self::At { .. } | Self::Every { .. } | Self::Days { .. } => None,
        };
        let next = |after: &Timestamp| match &line {
            Some(line) => line.next_after(*after),
            None => self.next_after(*after),
        };
        std::iter::successors(next(&after), next).take(count).collect()
    }

    /// Returns the shortest interval between the next `count` slots after `after`.
    pub fn shortest_interval(&self, after: Timestamp, count: usize) -> Option<Duration> {
        let slots = self.upcoming(after, count);
        slots.windows(2).filter_map(|pair| Duration::try_from(pair[1].duration_since(pair[0])).ok()).min()
    }

    /// Returns the number of slots after `after` up to and including `until`, and the newest `limit` of them. The running time
    /// does not grow with their number.
    pub fn slots(&self, after: Timestamp, until: Timestamp, limit: usize) -> PassedSlots {
        match self {
            Self::At { at } if after < *at && *at <= until => {
                PassedSlots { count: 1, newest: vec![*at].into_iter().take(limit).collect() }
            }
            Self::At { .. } => PassedSlots::default(),
            Self::Every { every, anchor } => {
                let up_to = |at| slots_up_to(*every, *anchor, at);
                passed_slots(up_to(after), up_to(until), limit, |number| slot_of(*every, *anchor, number))
            }
            Self::Days { days, anchor, tz } => {
                DayInterval::new(*days, *anchor, tz).map_or_else(PassedSlots::default, |interval| {
                    let up_to = |at| interval.slots_up_to(at);
                    passed_slots(up_to(after), up_to(until), limit, |number| interval.slot(number))
                })
            }
            Self::Cron { expr, tz } => {
                timeline(expr, tz).map(|line| line.slots(after, until, limit)).unwrap_or_default()
            }
        }
    }

    /// Describes the schedule: `every day at 09:00 (Asia/Shanghai)`. A single time is shown by the clock of `zone`.
    pub fn describe(&self, language: Language, zone: &TimeZone) -> String {
        match (self, language) {
            (Self::At { at }, Language::En) => describe_en::once(&at.to_zoned(zone.clone())),
            (Self::At { at }, Language::Zh) => describe_zh::once(&at.to_zoned(zone.clone())),
            (Self::Every { every, .. }, Language::En) => describe_en::every(&parts(*every)),
            (Self::Every { every, .. }, Language::Zh) => describe_zh::every(&parts(*every)),
            (Self::Days { days, anchor, tz }, language) => {
                let every = [(u128::from(*days), 0)];
                let at = zone::time_zone(tz).map_or(Time::MIN, |zone| zone.to_datetime(*anchor).time());
                let at = at.strftime(if at.second() == 0 { "%H:%M" } else { "%H:%M:%S" });
                match language {
                    Language::En => format!("{} at {at} ({tz})", describe_en::every(&every)),
                    Language::Zh => format!("{} {at}（{tz}）", describe_zh::every(&every)),
                }
            }
            (Self::Cron { expr, tz }, language) => match (expr.parse(), language) {
                (Ok(pattern), Language::En) => {
                    format!("{} ({tz})", describe_en::cron(&times(&pattern), &days(&pattern)))
                }
                (Ok(pattern), Language::Zh) => {
                    format!("{}（{tz}）", describe_zh::cron(&times(&pattern), &days(&pattern)))
                }
                // An expression that was changed by hand is shown as it is.
                (Err(_), _) => format!("{expr} ({tz})"),
            },
        }
    }
}

fn timeline(expr: &str, tz: &str) -> Option<Timeline> {
    Some(Timeline { pattern: expr.parse().ok()?, zone: zone::time_zone(tz).ok()? })
}

/// Returns a positive number of milliseconds.
fn millis(every: HumanDuration) -> Option<i64> {
    i64::try_from(every.0.as_millis()).ok().filter(|every| *every > 0)
}

/// Returns the number, counted from the anchor, of the last slot that is not after `until`.
fn slots_up_to(every: HumanDuration, anchor: Timestamp, until: Timestamp) -> Option<i64> {
    Some((until.as_millisecond() - anchor.as_millisecond()).div_euclid(millis(every)?))
}

fn slot_of(every: HumanDuration, anchor: Timestamp, number: i64) -> Option<Timestamp> {
    let since = number.checked_mul(millis(every)?)?;
    Timestamp::from_millisecond(anchor.as_millisecond().checked_add(since)?).ok()
}

/// Returns the slots after the one with the number `after`, up to and including the one with the number `until`.
fn passed_slots(
    after: Option<i64>,
    until: Option<i64>,
    limit: usize,
    slot: impl Fn(i64) -> Option<Timestamp>,
) -> PassedSlots {
    let (Some(after), Some(last)) = (after, until) else { return PassedSlots::default() };
    let shown = (after + 1).max(last.saturating_sub(i64::try_from(limit).unwrap_or(i64::MAX)).saturating_add(1));
    PassedSlots { count: u64::try_from(last - after).unwrap_or(0), newest: (shown..=last).filter_map(slot).collect() }
}

/// A clock time on every so many days.
struct DayInterval {
    /// At least 1.
    days: i64,
    anchor: DateTime,
    zone: TimeZone,
}

impl DayInterval {
    /// Returns `None` if the values of a schedule cannot be read.
    fn new(days: u32, anchor: Timestamp, tz: &str) -> Option<Self> {
        let zone = zone::time_zone(tz).ok()?;
        let anchor = zone.to_datetime(anchor);
        Some(Self { days: i64::from(days), anchor, zone }).filter(|interval| interval.days > 0)
    }

    /// Returns the slot with this number, counted from the anchor.
    fn slot(&self, number: i64) -> Option<Timestamp> {
        let days = jiff::Span::new().try_days(number.checked_mul(self.days)?).ok()?;
        instant_at(self.anchor.checked_add(days).ok()?, &self.zone)
    }

    /// Returns the number, counted from the anchor, of the last slot that is not after `until`.
    fn slots_up_to(&self, until: Timestamp) -> Option<i64> {
        let days = self.anchor.date().until(self.zone.to_datetime(until).date()).ok()?.get_days();
        let number = i64::from(days).div_euclid(self.days);
        // A clock change at midnight moves a slot into the next day, or out of it.
        (number - 1..=number + 1).rev().find(|number| self.slot(*number).is_some_and(|slot| slot <= until))
    }
}
