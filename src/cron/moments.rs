//! The moments at which a job runs: its schedule's, each put off by the job's jitter, which is the same for a slot however
//! often it is asked for.

use std::hash::Hasher;
use std::time::Duration;

use daoyou_channels::settings::Span;
use jiff::Timestamp;

use super::{Job, Schedule};

/// Slots that are looked through for one moment at most.
const STEPS: usize = 1_000;

/// Slots that a jitter is compared with.
const LOOKED_AT: usize = 5;

/// When a job runs.
#[derive(Clone, Copy, Debug)]
pub struct Moments<'a> {
    pub job: &'a str,
    pub schedule: &'a Schedule,
    pub jitter: Option<Span>,
    /// When the job was made.
    pub made: Timestamp,
}

impl<'a> Moments<'a> {
    pub fn of(job: &'a Job) -> Self {
        let made = Timestamp::from_millisecond(job.row.created_at).unwrap_or(Timestamp::MIN);
        Self { job: &job.row.id, schedule: &job.body.schedule, jitter: job.body.jitter, made }
    }

    /// Whether the jitter leaves each slot before the next one, as far as the first few tell.
    ///
    /// # Errors
    /// What would be right.
    pub fn check_jitter(&self, now: Timestamp) -> Result<(), String> {
        let Some(jitter) = self.jitter.filter(|jitter| !jitter.0.is_zero()) else { return Ok(()) };
        let coming = self.schedule.upcoming(now, LOOKED_AT);
        let shortest =
            coming.windows(2).filter_map(|pair| Duration::try_from(pair[1].duration_since(pair[0])).ok()).min();
        match shortest {
            Some(shortest) if jitter.0 >= shortest => Err(format!(
                "a jitter of {jitter} is too long for a job that is due every {}; it must be shorter than that",
                Span(shortest)
            )),
            _ => Ok(()),
        }
    }

    /// The first moment after `after`; `None` when there is no more.
    pub fn next_after(&self, after: Timestamp) -> Option<Timestamp> {
        let Some(jitter) = self.jitter.map(|Span(jitter)| jitter).filter(|jitter| !jitter.is_zero()) else {
            return self.schedule.next_after(after);
        };
        // A slot before `after` may have been put off until behind it.
        let mut slot = self.schedule.next_after(after.checked_sub(jitter).ok()?)?;
        // A job that counts from when it was made, or before, does not run at that.
        if matches!(self.schedule, Schedule::Every { anchor, .. } if *anchor == slot && *anchor <= self.made) {
            slot = self.schedule.next_after(slot)?;
        }
        for _ in 0..STEPS {
            let following = self.schedule.next_after(slot);
            let moment = self.put_off(slot, following, jitter);
            if moment > after {
                return Some(moment);
            }
            slot = following?;
        }
        // Slots much closer than the jitter is long: it means nothing there.
        self.schedule.next_after(after)
    }

    /// The newest `limit` moments from `first`, which is one, up to `until`, in order; and how many there are.
    pub fn passed(&self, first: Timestamp, until: Timestamp, limit: usize) -> (Vec<Timestamp>, usize) {
        let jitter = self.jitter.map(|Span(jitter)| jitter).unwrap_or_default();
        let just_before = |at: Timestamp| Timestamp::from_millisecond(at.as_millisecond() - 1).unwrap_or(at);
        // The slot of the first moment is the last one before it.
        let earliest = just_before(first).checked_sub(jitter).unwrap_or(first);
        let own = self.schedule.slots(earliest, first, 1).newest.last().copied().unwrap_or(first);
        // The last slot may be put off until behind `until`.
        let limit_of_slots = limit.saturating_add(usize::from(!jitter.is_zero()));
        let slots = self.schedule.slots(just_before(own), until, limit_of_slots);
        let moment = |slot: &Timestamp| match jitter.is_zero() {
            true => *slot,
            false => self.put_off(*slot, self.schedule.next_after(*slot), jitter),
        };
        let mut newest: Vec<_> = slots.newest.iter().map(moment).filter(|at| (first..=until).contains(at)).collect();
        let outside = slots.newest.len() - newest.len();
        newest.drain(..newest.len().saturating_sub(limit));
        let count = usize::try_from(slots.count).unwrap_or(usize::MAX).saturating_sub(outside);
        (newest, count)
    }

    /// `slot` with its jitter, and before the slot that follows it.
    fn put_off(&self, slot: Timestamp, following: Option<Timestamp>, jitter: Duration) -> Timestamp {
        let room = following.map_or(i64::MAX, |following| following.as_millisecond() - slot.as_millisecond());
        let most = i64::try_from(jitter.as_millis()).unwrap_or(i64::MAX).min(room);
        let by = if most > 0 { self.random(slot) % most } else { 0 };
        Timestamp::from_millisecond(slot.as_millisecond().saturating_add(by)).unwrap_or(slot)
    }

    /// A number, not negative, that depends on the job and the slot alone.
    fn random(&self, slot: Timestamp) -> i64 {
        // FNV-1a: the same in each build, unlike the standard library's.
        let mut hash = Fnv(0xcbf2_9ce4_8422_2325);
        hash.write(self.job.as_bytes());
        hash.write(&slot.as_millisecond().to_le_bytes());
        i64::try_from(hash.finish() >> 2).unwrap_or(0)
    }
}

struct Fnv(u64);

impl Hasher for Fnv {
    fn finish(&self) -> u64 {
        // The low bits of FNV are weak; the high ones are folded in.
        self.0 ^ (self.0 >> 29)
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jitter_puts_each_slot_off_and_neither_drops_nor_doubles_one() {
        let at = |ms: i64| Timestamp::from_millisecond(ms).unwrap();
        let schedule = Schedule::Every { every: Span::from_secs(60), anchor: at(0) };
        for jitter in [0, 1, 30, 59, 60, 3_600] {
            let made = Timestamp::MIN;
            let of = Moments { job: "j", schedule: &schedule, jitter: Some(Span::from_secs(jitter)), made };
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
            // Asked from anywhere in between, it is the same moment.
            for pair in moments.windows(2) {
                assert_eq!(of.next_after(pair[1].checked_sub(Duration::from_millis(1)).unwrap()), Some(pair[1]));
            }
        }
    }

    #[test]
    fn where_a_job_counts_from_is_no_slot_unless_it_is_still_to_come() {
        let at = |secs: i64| Timestamp::from_second(secs).unwrap();
        let (hour, day) = (3_600, 86_400);
        let jitter = Some(Span::from_secs(3_600));
        // Anchor, made, asked at, the slot that is put off.
        for (anchor, made, asked, slot) in [
            (10 * day, 10 * day, 10 * day, 11 * day),
            (10 * day, 10 * day, 10 * day + 60, 11 * day),
            (10 * day - 60, 10 * day, 10 * day, 11 * day - 60),
            (12 * day, 10 * day, 11 * day + hour, 12 * day),
        ] {
            let schedule = Schedule::Every { every: Span::from_secs(86_400), anchor: at(anchor) };
            for job in ["j", "k", "l"] {
                let of = Moments { job, schedule: &schedule, jitter, made: at(made) };
                let next = of.next_after(at(asked)).unwrap().as_second();
                assert!((slot..slot + hour).contains(&next), "{anchor} {made} {asked} {job}: {next}");
            }
        }
    }
}
