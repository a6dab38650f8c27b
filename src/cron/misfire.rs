//! Chooses which of the passed slots run. Pure: the caller passes the time.

use std::ops::RangeInclusive;
use std::time::Duration;

use jiff::Timestamp;

use super::run_times::RunTimes;
use super::{MisfirePolicy, Schedule};

/// A run that begins within this time after its slot is on time.
pub const ON_TIME: Duration = Duration::from_secs(60);

/// The rules for missed slots of a job.
#[derive(Clone, Debug)]
pub struct MisfireRules {
    pub misfire: MisfirePolicy,
    /// The lateness above which a slot does not run.
    pub stale_after: Duration,
    pub catch_up: usize,
    /// The time of an orderly stop. Slots within it are deferred, not missed.
    pub deferred: Option<RangeInclusive<Timestamp>>,
}

/// The decision about the slots up to now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MisfireDecision {
    /// The slots that run, in order.
    pub runs: Vec<Timestamp>,
    /// The newest slots that do not run and are recorded as missed, in order.
    pub missed: Vec<Timestamp>,
    /// The number of slots that do not run.
    pub passed_over: usize,
}

/// Chooses which slots run, from the slot `first` up to `now`.
pub fn choose_runs(slots: &RunTimes<'_>, first: Timestamp, now: Timestamp, policy: &MisfireRules) -> MisfireDecision {
    let (newest, count) = slots.passed(first, now, policy.catch_up.max(1));
    let late = |slot: &Timestamp| Duration::try_from(now.duration_since(*slot)).unwrap_or_default();
    let is_once = matches!(slots.schedule, Schedule::At { .. });
    let is_deferred = |slot: &Timestamp| policy.deferred.as_ref().is_some_and(|deferred| deferred.contains(slot));
    let is_on_time = |slot: &Timestamp| late(slot) <= ON_TIME || is_deferred(slot);
    let is_fresh = |slot: &Timestamp| is_on_time(slot) || is_once || late(slot) <= policy.stale_after;
    let last = newest.last().copied();
    let runs: Vec<Timestamp> = match policy.misfire {
        MisfirePolicy::Once => last.into_iter().filter(is_fresh).collect(),
        // If the stop deferred any slot, it deferred the earliest one.
        MisfirePolicy::Skip => {
            last.into_iter().filter(is_on_time).chain(Some(first).filter(is_deferred)).take(1).collect()
        }
        MisfirePolicy::All => newest.iter().copied().filter(is_fresh).collect(),
    };
    let passed_over = count.saturating_sub(runs.len());
    // One run replaces all the others.
    let stands_for_all = policy.misfire == MisfirePolicy::Once && !runs.is_empty();
    let missed =
        if stands_for_all { Vec::new() } else { newest.into_iter().filter(|slot| !runs.contains(slot)).collect() };
    MisfireDecision { runs, missed, passed_over }
}

#[cfg(test)]
mod tests {
    use daoyou_channels::settings::HumanDuration;

    use super::*;

    const HOUR: i64 = 3_600;

    fn at(secs: i64) -> Timestamp {
        Timestamp::from_second(secs).unwrap()
    }

    fn decided(schedule: &Schedule, first: i64, now: i64, policy: &MisfireRules) -> (Vec<i64>, Vec<i64>, usize) {
        let slots = RunTimes { job: "j", schedule, jitter: None, created: Timestamp::MIN };
        let MisfireDecision { runs, missed, passed_over } = choose_runs(&slots, at(first), at(now), policy);
        let secs = |slots: Vec<Timestamp>| slots.into_iter().map(Timestamp::as_second).collect();
        (secs(runs), secs(missed), passed_over)
    }

    fn policy(misfire: MisfirePolicy, deferred: Option<(i64, i64)>) -> MisfireRules {
        let deferred = deferred.map(|(from, to)| at(from)..=at(to));
        MisfireRules { misfire, stale_after: Duration::from_secs(86_400), catch_up: 2, deferred }
    }

    #[test]
    fn missed_slots_follow_the_misfire_policy() {
        let hourly = Schedule::Every { every: HumanDuration::from_secs(3_600), anchor: at(0) };
        let once = Schedule::At { at: at(HOUR) };
        // Runs, missed, passed over.
        type ExpectedRuns<'a> = (&'a [i64], &'a [i64], usize);
        // Case, schedule, policy, time of a stop, now, expected result.
        type Row<'a> = (&'a str, &'a Schedule, MisfirePolicy, Option<(i64, i64)>, i64, ExpectedRuns<'a>);
        #[rustfmt::skip]
        let table: &[Row<'_>] = &[
            ("on the dot",          &hourly, MisfirePolicy::Skip, None, HOUR,              (&[HOUR], &[], 0)),
            ("60 s late",           &hourly, MisfirePolicy::Skip, None, HOUR + 60,         (&[HOUR], &[], 0)),
            ("61 s late",           &hourly, MisfirePolicy::Skip, None, HOUR + 61,         (&[], &[HOUR], 1)),
            ("three, once",         &hourly, MisfirePolicy::Once, None, 3 * HOUR + 100,    (&[3 * HOUR], &[], 2)),
            ("three, all",          &hourly, MisfirePolicy::All,  None, 3 * HOUR + 100,    (&[2 * HOUR, 3 * HOUR], &[], 1)),
            ("three, skip",         &hourly, MisfirePolicy::Skip, None, 3 * HOUR + 100,    (&[], &[2 * HOUR, 3 * HOUR], 3)),
            ("three, last on time", &hourly, MisfirePolicy::Skip, None, 3 * HOUR + 5,      (&[3 * HOUR], &[2 * HOUR], 2)),
            ("put off by a stop",   &hourly, MisfirePolicy::Skip, Some((HOUR - 9, HOUR + 9)), HOUR + 900, (&[HOUR], &[], 0)),
            ("put off, two more",   &hourly, MisfirePolicy::Skip, Some((HOUR - 9, HOUR + 9)), 3 * HOUR + 900,
                (&[HOUR], &[2 * HOUR, 3 * HOUR], 2)),
            ("days late, one time", &once,   MisfirePolicy::Once, None, 240 * HOUR,        (&[HOUR], &[], 0)),
            ("days late, skipped",  &once,   MisfirePolicy::Skip, None, 240 * HOUR,        (&[], &[HOUR], 1)),
        ];
        for (what, schedule, misfire, deferred, now, expected) in table {
            let found = decided(schedule, HOUR, *now, &policy(*misfire, *deferred));
            assert_eq!((&*found.0, &*found.1, found.2), *expected, "{what}");
        }
    }

    #[test]
    fn stale_slots_are_missed() {
        // Policy, lateness, runs, missed, passed over.
        type Row<'a> = (MisfirePolicy, i64, &'a [i64], &'a [i64], usize);
        let day = 86_400;
        let daily = Schedule::Every { every: HumanDuration::from_secs(86_400), anchor: at(0) };
        #[rustfmt::skip]
        let table: &[Row<'_>] = &[
            (MisfirePolicy::Once, 3_600, &[2 * day], &[],             1),
            (MisfirePolicy::Once, 3_601, &[],        &[day, 2 * day], 2),
            (MisfirePolicy::All,  3_600, &[2 * day], &[day],          1),
            (MisfirePolicy::All,  3_601, &[],        &[day, 2 * day], 2),
        ];
        for (misfire, late, runs, missed, passed_over) in table {
            let policy = MisfireRules { stale_after: Duration::from_secs(3_600), ..policy(*misfire, None) };
            let found = decided(&daily, day, 2 * day + late, &policy);
            assert_eq!((&*found.0, &*found.1, found.2), (*runs, *missed, *passed_over), "{misfire:?} {late}");
        }
    }

    #[test]
    fn a_year_of_seconds_is_decided_without_visiting_each() {
        let year = 366 * 86_400;
        for every in [1, 7, 60] {
            let schedule = Schedule::Every { every: HumanDuration::from_secs(every), anchor: at(0) };
            let every = i64::try_from(every).unwrap();
            let (runs, missed, passed_over) = decided(&schedule, every, year + 100, &policy(MisfirePolicy::All, None));
            let newest = (year + 100) / every * every;
            assert_eq!((runs, missed), (vec![newest - every, newest], Vec::new()));
            assert_eq!(i64::try_from(passed_over).unwrap(), newest / every - 2);
        }
    }
}
