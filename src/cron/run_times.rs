//! The times at which a job runs: the slots of its schedule, each delayed by the job's jitter. The delay of a slot is always
//! the same.

use std::time::Duration;

use daoyou_channels::settings::HumanDuration;
use jiff::Timestamp;

use super::{Job, Schedule};

/// The maximum number of slots that are examined for one run time.
const STEPS: usize = 1_000;

/// The number of slots that a jitter is checked against.
const JITTER_SLOTS: usize = 5;

/// The run times of a job.
#[derive(Clone, Copy, Debug)]
pub struct RunTimes<'a> {
    pub job: &'a str,
    pub schedule: &'a Schedule,
    pub jitter: Option<HumanDuration>,
    /// The time when the job was created.
    pub created: Timestamp,
}

impl<'a> RunTimes<'a> {
    pub fn of(job: &'a Job) -> Self {
        let created = Timestamp::from_millisecond(job.row.created_at).unwrap_or(Timestamp::MIN);
        Self { job: &job.row.id, schedule: &job.body.schedule, jitter: job.body.jitter, created }
    }

    /// Checks, for the first few slots, that the jitter never delays a slot past the next one.
    ///
    /// # Errors
    /// The jitter is too long; the error names the longest valid one.
    pub fn check_jitter(&self, now: Timestamp) -> Result<(), String> {
        let Some(jitter) = self.jitter.filter(|jitter| !jitter.0.is_zero()) else { return Ok(()) };
        match self.schedule.shortest_interval(now, JITTER_SLOTS) {
            Some(shortest) if jitter.0 >= shortest => Err(format!(
                "a jitter of {jitter} is too long for a job that is due every {}; it must be shorter than that",
                HumanDuration(shortest)
            )),
            _ => Ok(()),
        }
    }

    /// Returns the first run time after `after`.
    pub fn next_after(&self, after: Timestamp) -> Option<Timestamp> {
        let Some(HumanDuration(jitter)) = self.jitter.filter(|jitter| !jitter.0.is_zero()) else {
            return self.schedule.next_after(after);
        };
        // The delay may move a slot from before `after` to a time after it.
        let mut slot = self.schedule.next_after(after.checked_sub(jitter).ok()?)?;
        // An interval with an anchor at or before the creation of its job has no run at the anchor itself.
        if let Schedule::Every { anchor, .. } | Schedule::Days { anchor, .. } = self.schedule
            && *anchor == slot
            && *anchor <= self.created
        {
            slot = self.schedule.next_after(slot)?;
        }
        for _ in 0..STEPS {
            let following = self.schedule.next_after(slot);
            let moment = self.delay(slot, following, jitter);
            if moment > after {
                return Some(moment);
            }
            slot = following?;
        }
        // The jitter is much longer than the distance of the slots, so it is ignored.
        self.schedule.next_after(after)
    }

    /// Returns the newest `limit` run times from the run time `first` up to `until`, in order, and the number of all run times
    /// in that period.
    pub fn passed(&self, first: Timestamp, until: Timestamp, limit: usize) -> (Vec<Timestamp>, usize) {
        let jitter = self.jitter.map(|HumanDuration(jitter)| jitter).unwrap_or_default();
        let just_before = |at: Timestamp| Timestamp::from_millisecond(at.as_millisecond() - 1).unwrap_or(at);
        // `first` is the run time of the last slot up to it.
        let earliest = just_before(first).checked_sub(jitter).unwrap_or(first);
        let own = self.schedule.slots(earliest, first, 1).newest.last().copied().unwrap_or(first);
        // The delay may move the run time of the last slot past `until`.
        let limit_of_slots = limit.saturating_add(usize::from(!jitter.is_zero()));
        let slots = self.schedule.slots(just_before(own), until, limit_of_slots);
        let moment = |slot: &Timestamp| match jitter.is_zero() {
            true => *slot,
            false => self.delay(*slot, self.schedule.next_after(*slot), jitter),
        };
        let mut newest: Vec<_> = slots.newest.iter().map(moment).filter(|at| (first..=until).contains(at)).collect();
        let outside = slots.newest.len() - newest.len();
        newest.drain(..newest.len().saturating_sub(limit));
        let count = usize::try_from(slots.count).unwrap_or(usize::MAX).saturating_sub(outside);
        (newest, count)
    }

    /// Returns `slot` delayed by its jitter, but before the slot that follows it.
    fn delay(&self, slot: Timestamp, following: Option<Timestamp>, jitter: Duration) -> Timestamp {
        let room = following.map_or(i64::MAX, |following| following.as_millisecond() - slot.as_millisecond());
        let most = i64::try_from(jitter.as_millis()).unwrap_or(i64::MAX).min(room);
        let by = if most > 0 { self.random(slot) % most } else { 0 };
        Timestamp::from_millisecond(slot.as_millisecond().saturating_add(by)).unwrap_or(slot)
    }

    /// Returns a non-negative number that depends on the job and the slot alone.
    fn random(&self, slot: Timestamp) -> i64 {
        // FNV-1a is the same in each build, unlike the standard library's hash.
        let bytes = self.job.bytes().chain(slot.as_millisecond().to_le_bytes());
        let hash = bytes
            .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
        // The low bits of FNV are weak, so the high bits are folded into them.
        i64::try_from((hash ^ (hash >> 29)) >> 2).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jitter_delays_each_slot_and_neither_drops_nor_doubles_one() {
        let at = |ms: i64| Timestamp::from_millisecond(ms).unwrap();
        let schedule = Schedule::Every { every: HumanDuration::from_secs(60), anchor: at(0) };
        for jitter in [0, 1, 30, 59, 60, 3_600] {
            let created = Timestamp::MIN;
            let of =
                RunTimes { job: "j", schedule: &schedule, jitter: Some(HumanDuration::from_secs(jitter)), created };
            let mut moments = vec![of.next_after(at(0)).unwrap()];
            for _ in 0..50 {
                moments.push(of.next_after(*moments.last().unwrap()).unwrap());
            }
            let minutes: Vec<i64> = moments.iter().map(|moment| moment.as_millisecond() / 60_000).collect();
            let first = minutes[0];
            assert_eq!(minutes, (first..=first + 50).collect::<Vec<_>>(), "one in each minute with {jitter} s");
            let late = moments.iter().map(|moment| moment.as_millisecond() % 60_000).max().unwrap();
            assert!(late < (jitter * 1_000).clamp(1, 60_000) as i64, "{late}");
            let (newest, count) = of.passed(moments[10], moments[20], 3);
            assert_eq!((newest.as_slice(), count), (&moments[18..=20], 11), "{jitter} s");
            // The run time is the same from any moment in between.
            for pair in moments.windows(2) {
                assert_eq!(of.next_after(pair[1].checked_sub(Duration::from_millis(1)).unwrap()), Some(pair[1]));
            }
        }
    }

    #[test]
    fn the_anchor_is_a_slot_only_if_it_is_in_the_future() {
        let at = |secs: i64| Timestamp::from_second(secs).unwrap();
        let (hour, day) = (3_600, 86_400);
        let jitter = Some(HumanDuration::from_secs(3_600));
        // Anchor, creation, time of the query, delayed slot.
        for (anchor, created, asked, slot) in [
            (10 * day, 10 * day, 10 * day, 11 * day),
            (10 * day, 10 * day, 10 * day + 60, 11 * day),
            (10 * day - 60, 10 * day, 10 * day, 11 * day - 60),
            (12 * day, 10 * day, 11 * day + hour, 12 * day),
        ] {
            let schedule = Schedule::Every { every: HumanDuration::from_secs(86_400), anchor: at(anchor) };
            for job in ["j", "k", "l"] {
                let of = RunTimes { job, schedule: &schedule, jitter, created: at(created) };
                let next = of.next_after(at(asked)).unwrap().as_second();
                assert!((slot..slot + hour).contains(&next), "{anchor} {created} {asked} {job}: {next}");
            }
        }
    }
}
