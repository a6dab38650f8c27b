//! Decides whether and when a failed model call is repeated. Pure: the caller passes the number of failures and a
//! random number.

use std::time::Duration;

use uuid::Uuid;

use super::LlmErrorKind;

/// The first wait before a retry. The wait doubles with each retry, and half of it is random.
const FIRST_WAIT: Duration = Duration::from_millis(500);
const LONGEST_WAIT: Duration = Duration::from_secs(8);
/// The longest `Retry-After` that a retry waits for.
const LONGEST_RETRY_AFTER: Duration = Duration::from_secs(60);

/// The retry policy of one call.
#[derive(Clone, Copy, Debug)]
pub struct Retry {
    /// The maximum number of retries after the first attempt.
    pub max_retries: u32,
    pub first_wait: Duration,
}

/// A failed attempt.
#[derive(Clone, Copy, Debug)]
pub struct FailedAttempt {
    pub kind: LlmErrorKind,
    /// The wait that the service asked for.
    pub retry_after: Option<Duration>,
    /// Attempts before this one.
    pub retries: u32,
}

impl Retry {
    pub fn new(max_retries: u32) -> Self {
        Self { max_retries, first_wait: FIRST_WAIT }
    }

    /// Returns the wait before the next attempt; `None` if there must be no further attempt. `chance` is a random number
    /// between 0 and 1.
    pub fn wait(&self, tried: FailedAttempt, chance: f64) -> Option<Duration> {
        if tried.retries >= self.max_retries || !tried.kind.is_retryable() {
            return None;
        }
        let asked = tried.retry_after.unwrap_or_default();
        if asked > LONGEST_RETRY_AFTER {
            return None;
        }
        Some(backoff(self.first_wait, LONGEST_WAIT, tried.retries, chance).max(asked))
    }
}

impl FailedAttempt {
    /// Returns the reason why there is no further attempt, as a suffix for the error; empty if the kind of the error already
    /// says it.
    pub fn why_given_up(&self) -> String {
        match self.retry_after {
            Some(asked) if asked > LONGEST_RETRY_AFTER => {
                format!(" (the service asks to wait for {} s)", asked.as_secs())
            }
            _ if self.retries > 0 => format!(" (after {} tries)", self.retries + 1),
            _ => String::new(),
        }
    }
}

/// Returns wait number `number` (from 0) of an exponential backoff from `first` to `longest`, with jitter: the wait is between
/// half and all of the full value, so that clients that failed together do not retry together.
pub fn backoff(first: Duration, longest: Duration, number: u32, chance: f64) -> Duration {
    let full = first.saturating_mul(1 << number.min(16)).min(longest);
    full.mul_f64(0.5 + 0.5 * chance.clamp(0.0, 1.0))
}

/// Returns a random number between 0 and 1.
pub fn random_fraction() -> f64 {
    (Uuid::new_v4().as_u128() & 0xffff) as f64 / 65_536.0
}

#[cfg(test)]
mod tests {
    use super::LlmErrorKind::*;
    use super::*;

    #[test]
    fn passing_failures_are_retried_with_growing_waits_and_respect_retry_after() {
        let retry = Retry::new(9);
        for (kind, retries, retry_after, low, high) in [
            (RateLimit, 0, None, Some(250), 500),
            (Timeout, 1, None, Some(500), 1_000),
            (Server, 4, None, Some(4_000), 8_000),
            (Connection, 8, None, Some(4_000), 8_000),
            (Parse, 0, None, Some(250), 500),
            (Server, 9, None, None, 0),
            (RateLimit, 0, Some(30), Some(30_000), 30_000),
            (RateLimit, 0, Some(60), Some(60_000), 60_000),
            (RateLimit, 0, Some(61), None, 0),
            (Server, 0, Some(86_400), None, 0),
            (Auth, 0, None, None, 0),
            (BadRequest, 0, None, None, 0),
            (ContextTooLong, 0, None, None, 0),
            (Refused, 0, None, None, 0),
            (Cancelled, 0, None, None, 0),
        ] {
            let tried = FailedAttempt { kind, retry_after: retry_after.map(Duration::from_secs), retries };
            let waits = [0.0, 1.0].map(|chance| retry.wait(tried, chance));
            let expected = low.map(|low| (Duration::from_millis(low), Duration::from_millis(high)));
            assert_eq!((waits[0], waits[1]), (expected.map(|e| e.0), expected.map(|e| e.1)), "{tried:?}");
        }
        assert!((0.0..1.0).contains(&random_fraction()));
    }

    #[test]
    fn the_reason_for_giving_up_is_stated() {
        for (retries, retry_after, expected) in [
            (0, None, ""),
            (0, Some(60), ""),
            (3, Some(60), " (after 4 tries)"),
            (1, Some(86_400), " (the service asks to wait for 86400 s)"),
        ] {
            let tried = FailedAttempt { kind: RateLimit, retry_after: retry_after.map(Duration::from_secs), retries };
            assert_eq!(tried.why_given_up(), expected);
        }
    }
}
