//! The rate limiter for all limits that are kept in memory.
//!
//! Own code because the crate `governor` lacks three things: a check without counting (a webhook checks before it reads a
//! body and counts only when the signature is right), a sliding window ("no more than so many in any minute", for model
//! calls and wrong tokens), and the return of an unused reservation.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// The number of events allowed within a period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quota {
    /// `count` at once, then one more each `period / count`: the generic cell rate algorithm (ITU-T I.371). It needs one
    /// timestamp for each key, whatever `count` is.
    Steady { count: u32, period: Duration },
    /// `count` in any interval of length `period`. It needs a timestamp for each event of the last period.
    Window { count: u32, period: Duration },
}

/// The number of keys from which on idle keys are removed.
const SWEEP_FROM: usize = 1_000;
/// The shortest time between two removals of idle keys.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);

/// Counts events by key and computes how long the next event has to wait. It keeps at most `max_keys` counts: it removes
/// keys without recent events, and the keys that still do not fit share one count.
#[derive(Debug)]
pub struct RateLimiter<K = ()> {
    max_keys: usize,
    state: Mutex<RateLimiterState<K>>,
}

#[derive(Debug)]
struct RateLimiterState<K> {
    /// The key `None` holds the shared count of the keys that do not fit.
    usages: HashMap<Option<K>, RecentEvents>,
    /// The last removal of idle keys.
    swept: Option<Instant>,
}

/// The recent events of one key, in order. For a window: the time at which each event leaves it. For a steady quota: the
/// one time at which all events would have ended if they had come evenly spaced.
#[derive(Debug, Default)]
struct RecentEvents(VecDeque<Instant>);

/// A counted event that has not happened yet. Dropping it before [`Reservation::commit`] removes it from the count.
#[derive(Debug)]
pub struct Reservation<'a, K: Eq + Hash = ()> {
    limiter: &'a RateLimiter<K>,
    key: Option<K>,
    quota: Quota,
    /// When the event may happen.
    pub time: Instant,
    is_committed: bool,
}

impl<K: Clone + Eq + Hash> RateLimiter<K> {
    pub fn new(max_keys: usize) -> Self {
        Self { max_keys, state: Mutex::new(RateLimiterState { usages: HashMap::new(), swept: None }) }
    }

    /// Checks whether one more event of `key` is allowed now, without counting it.
    ///
    /// # Errors
    /// The time until one more event is allowed.
    pub fn check(&self, key: &K, quota: Quota) -> Result<(), Duration> {
        let now = Instant::now();
        let mut state = self.state.lock();
        let key = state.slot(key, self.max_keys, now);
        allow(state.usages.get(&key).map_or(Duration::ZERO, |usage| usage.wait(quota, now)))
    }

    /// Counts an event of `key` if it is allowed now.
    ///
    /// # Errors
    /// The time until one more event is allowed; the event is not counted.
    pub fn take(&self, key: &K, quota: Quota) -> Result<(), Duration> {
        let now = Instant::now();
        let mut state = self.state.lock();
        let key = state.slot(key, self.max_keys, now);
        let usage = state.usages.entry(key).or_default();
        allow(usage.wait(quota, now))?;
        usage.add(quota, now);
        Ok(())
    }

    /// Reserves the earliest time at which an event of `key` is allowed. Reservations are served in order. If that time is
    /// after `deadline`, reserves nothing and returns `None`.
    pub fn reserve(&self, key: &K, quota: Quota, deadline: Instant) -> Option<Reservation<'_, K>> {
        let now = Instant::now();
        let mut state = self.state.lock();
        let key = state.slot(key, self.max_keys, now);
        let usage = state.usages.entry(key.clone()).or_default();
        let time = now + usage.wait(quota, now);
        if time > deadline {
            return None;
        }
        usage.add(quota, time);
        Some(Reservation { limiter: self, key, quota, time, is_committed: false })
    }
}

impl<K> RateLimiter<K> {
    /// Returns the number of stored counts.
    pub fn key_count(&self) -> usize {
        self.state.lock().usages.len()
    }
}

impl<K: Clone + Eq + Hash> RateLimiterState<K> {
    /// Returns the key under which events of `key` are counted.
    fn slot(&mut self, key: &K, max_keys: usize, now: Instant) -> Option<K> {
        let key = Some(key.clone());
        if self.usages.contains_key(&key) {
            return key;
        }
        // The last slot is reserved for the shared count.
        let max = max_keys.saturating_sub(1);
        let is_recent = |swept: Instant| now.saturating_duration_since(swept) < SWEEP_INTERVAL;
        if self.usages.len() >= max.min(SWEEP_FROM) && !self.swept.is_some_and(is_recent) {
            self.usages.retain(|_, usage| usage.0.back().is_some_and(|end| *end > now));
            self.swept = Some(now);
        }
        key.filter(|_| self.usages.len() < max)
    }
}

impl<K: Eq + Hash> Reservation<'_, K> {
    /// Counts the event as happening now, which is at `time` or later.
    pub fn commit(mut self) {
        self.is_committed = true;
        let mut state = self.limiter.state.lock();
        let usage = state.usages.entry(self.key.take()).or_default();
        usage.remove(self.quota, self.time);
        usage.add(self.quota, Instant::now());
    }
}

impl<K: Eq + Hash> Drop for Reservation<'_, K> {
    fn drop(&mut self) {
        if !self.is_committed
            && let Some(usage) = self.limiter.state.lock().usages.get_mut(&self.key)
        {
            usage.remove(self.quota, self.time);
        }
    }
}

impl Quota {
    /// Returns the time that one event adds under a steady quota.
    fn share(count: u32, period: Duration) -> Duration {
        period / count.max(1)
    }
}

impl RecentEvents {
    /// Returns how long the next event has to wait after `now`.
    fn wait(&self, quota: Quota, now: Instant) -> Duration {
        let last = self.0.back().map_or(Duration::ZERO, |end| end.saturating_duration_since(now));
        match quota {
            Quota::Steady { count, period } => (last + Quota::share(count, period)).saturating_sub(period),
            Quota::Window { count, period } => {
                let count = usize::try_from(count.max(1)).unwrap_or(usize::MAX);
                let free = self.0.len().checked_sub(count).map(|at| self.0[at].saturating_duration_since(now));
                // An event never overtakes an earlier reservation, not even just after the quota was raised.
                free.unwrap_or_default().max(last.saturating_sub(period))
            }
        }
    }

    /// Counts an event at `time` and removes expired ones.
    fn add(&mut self, quota: Quota, time: Instant) {
        let now = Instant::now();
        self.0.retain(|end| *end > now);
        match quota {
            Quota::Steady { count, period } => {
                let end = self.0.pop_back().map_or(time, |end| end.max(time));
                self.0.push_back(end + Quota::share(count, period));
            }
            Quota::Window { period, .. } => {
                let end = time + period;
                self.0.insert(self.0.partition_point(|other| *other <= end), end);
            }
        }
    }

    /// Removes the event at `time` from the count.
    fn remove(&mut self, quota: Quota, time: Instant) {
        match quota {
            Quota::Steady { count, period } => {
                self.0 =
                    self.0.back().and_then(|end| end.checked_sub(Quota::share(count, period))).into_iter().collect();
            }
            Quota::Window { period, .. } => {
                if let Some(at) = self.0.iter().rposition(|end| *end == time + period) {
                    self.0.remove(at);
                }
            }
        }
    }
}

fn allow(wait: Duration) -> Result<(), Duration> {
    if wait.is_zero() { Ok(()) } else { Err(wait) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);
    const STEADY: Quota = Quota::Steady { count: 3, period: MINUTE };
    const TWO: Quota = Quota::Window { count: 2, period: MINUTE };

    async fn pass(seconds: u64) {
        tokio::time::advance(Duration::from_secs(seconds)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_steady_quota_allows_a_burst_and_then_one_at_a_time() {
        let limiter = RateLimiter::new(1);
        let took: Vec<_> = (0..5).map(|_| limiter.take(&(), STEADY)).collect();
        let wait = Err(Duration::from_secs(20));
        assert_eq!(took, [Ok(()), Ok(()), Ok(()), wait, wait]);
        pass(19).await;
        assert_eq!(limiter.check(&(), STEADY), Err(Duration::from_secs(1)));
        pass(1).await;
        let next = [limiter.check(&(), STEADY), limiter.take(&(), STEADY), limiter.check(&(), STEADY)];
        assert_eq!(next, [Ok(()), Ok(()), wait]);
        // Dropping an unused reservation returns its slot.
        let reserved = limiter.reserve(&(), STEADY, Instant::now() + MINUTE).unwrap();
        assert_eq!(limiter.check(&(), STEADY), Err(Duration::from_secs(40)));
        drop(reserved);
        assert_eq!(limiter.check(&(), STEADY), wait);
    }

    #[tokio::test(start_paused = true)]
    async fn no_minute_has_more_than_the_quota_and_nobody_overtakes() {
        let (start, limiter) = (Instant::now(), RateLimiter::new(1));
        let mut reservations = Vec::new();
        // The time of the request, and the reserved time.
        for (at, given) in [(0, 0), (10, 10), (20, 60), (20, 70), (65, 120), (300, 300), (300, 300), (300, 360)] {
            pass(at - start.elapsed().as_secs()).await;
            let reservation = limiter.reserve(&(), TWO, start + 100 * MINUTE).unwrap();
            assert_eq!((reservation.time - start).as_secs(), given, "at {at}");
            reservations.push(reservation);
        }
        // A time after the deadline is not reserved, and an unused reservation returns its slot.
        let at = |seconds| start + Duration::from_secs(seconds);
        pass(1).await;
        assert!(limiter.reserve(&(), TWO, at(330)).is_none());
        drop(reservations.pop());
        assert_eq!(limiter.reserve(&(), TWO, at(360)).unwrap().time, at(360));
        assert_eq!(limiter.take(&(), TWO), Err(Duration::from_secs(59)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_reservation_counts_from_its_use_and_not_at_all_without_one() {
        let (limiter, one) = (RateLimiter::new(10), Quota::Window { count: 1, period: MINUTE });
        let far = Instant::now() + 10 * MINUTE;
        limiter.reserve(&"a", one, far).unwrap().commit();
        let second = limiter.reserve(&"a", one, far).unwrap();
        assert_eq!(second.time, Instant::now() + MINUTE);
        drop(second);
        assert_eq!(limiter.check(&"a", one), Err(MINUTE));
        assert_eq!(limiter.check(&"b", one), Ok(()), "each key has its own count");
        let late = limiter.reserve(&"b", one, far).unwrap();
        pass(90).await;
        late.commit();
        assert_eq!((limiter.check(&"a", one), limiter.check(&"b", one)), (Ok(()), Err(MINUTE)));
    }

    #[tokio::test(start_paused = true)]
    async fn keys_are_bounded_and_those_that_do_not_fit_share_a_count() {
        let limiter = RateLimiter::new(2_000);
        for key in 0..20_000 {
            limiter.take(&key, TWO).ok();
        }
        assert_eq!(limiter.key_count(), 2_000);
        assert_eq!((limiter.take(&1_998, TWO), limiter.take(&19_999, TWO)), (Ok(()), Err(MINUTE)));
        pass(60).await;
        assert_eq!((limiter.take(&19_999, TWO), limiter.key_count()), (Ok(()), 1));
    }
}
