//! Whether the wall clock was set back while we looked away.

use std::time::{Duration, Instant};

/// A clock that falls behind by less is only being adjusted.
const ADJUSTED: i64 = 1_000;

/// What the wall clock said at some moment of the one that only goes forward.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    wall_ms: i64,
    at: Instant,
}

impl Clock {
    pub fn new(wall_ms: i64, at: Instant) -> Self {
        Self { wall_ms, at }
    }

    /// Whether the wall clock is behind where it should be by now; goes on from what it says.
    pub fn was_set_back(&mut self, wall_ms: i64, at: Instant) -> bool {
        let passed = i64::try_from(at.saturating_duration_since(self.at).as_millis()).unwrap_or(i64::MAX);
        let expected = self.wall_ms.saturating_add(passed);
        *self = Self { wall_ms, at };
        wall_ms < expected.saturating_sub(ADJUSTED)
    }
}

/// The time from `now` to `then`, both in UTC milliseconds; nothing when it is past.
pub fn until(then: i64, now: i64) -> Duration {
    Duration::from_millis(u64::try_from(then.saturating_sub(now)).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_clock_that_was_set_back_is_noticed() {
        let begun = Instant::now();
        for (wall, secs, expected) in [
            (60_000, 60, false),
            (59_100, 60, false),
            (58_900, 60, true),
            (-3_600_000, 60, true),
            (31_536_000_000, 60, false),
        ] {
            let mut clock = Clock::new(0, begun);
            let at = begun + Duration::from_secs(secs);
            assert_eq!(clock.was_set_back(wall, at), expected, "{wall}");
            assert!(!clock.was_set_back(wall, at), "once is enough");
        }
    }
}
