//! Waits before retries.

use std::borrow::Cow;
use std::time::Duration;

use uuid::Uuid;

/// The waits between attempts of one delivery; after the last wait the delivery fails for good.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetryTable(Cow<'static, [Duration]>);

/// The table of channels whose deliveries fail only if the gateway's own store does: one more attempt after a second.
pub static ONE_RETRY: RetryTable = RetryTable(Cow::Borrowed(&[Duration::from_secs(1)]));

impl RetryTable {
    pub fn new(waits: Vec<Duration>) -> Self {
        Self(Cow::Owned(waits))
    }

    /// Returns the wait after the `tries`-th failure (1 for the first), or `None` after the last attempt.
    pub fn wait_after(&self, tries: u32) -> Option<Duration> {
        let index = usize::try_from(tries.checked_sub(1)?).ok()?;
        self.0.get(index).copied()
    }

    /// Returns the longest wait of the table.
    pub fn longest(&self) -> Duration {
        self.0.iter().max().copied().unwrap_or_default()
    }
}

/// A doubling wait between restarts of a task that keeps failing. A success resets it.
#[derive(Clone, Debug)]
pub struct Backoff {
    first: Duration,
    longest: Duration,
    next: Duration,
}

impl Backoff {
    pub fn new(first: Duration, longest: Duration) -> Self {
        Self { first, longest, next: first }
    }

    /// Returns the wait before the next attempt, and doubles the following one up to the longest.
    pub fn next_wait(&mut self) -> Duration {
        let wait = self.next;
        self.next = (self.next * 2).min(self.longest);
        wait
    }

    /// Returns to the first wait, after a success.
    pub fn reset(&mut self) {
        self.next = self.first;
    }
}

/// Returns a random time between half of `wait` and `wait`. Attempts that failed together are then not retried at the same moment.
pub fn jittered(wait: Duration) -> Duration {
    let random = Uuid::new_v4().as_u128() as u32;
    wait.mul_f64(0.5 + f64::from(random) / f64::from(u32::MAX) / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_retry_table_ends() {
        let table = RetryTable::new(vec![SECOND, SECOND * 5]);
        let waits: Vec<_> = (0..4).map(|tries| table.wait_after(tries)).collect();
        assert_eq!(waits, [None, Some(SECOND), Some(SECOND * 5), None]);
        assert_eq!(table.longest(), SECOND * 5);
    }

    #[test]
    fn backoff_doubles_up_to_its_longest_and_starts_over() {
        let mut backoff = Backoff::new(SECOND, SECOND * 3);
        let waits: Vec<_> = (0..4).map(|_| backoff.next_wait().as_secs()).collect();
        assert_eq!(waits, [1, 2, 3, 3]);
        backoff.reset();
        assert_eq!(backoff.next_wait(), SECOND);
    }
}
