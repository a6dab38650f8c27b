//! Limits the answered mails within an hour. The counts are stored in notes, which no in-memory rate limiter supports.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

const HOUR: i64 = 3_600;
const DAY: i64 = 24 * HOUR;
/// The highest permitted limit, which bounds the size of a note.
const MAX_LIMIT: u32 = 1_000;

/// The answered mails of one sender or one thread within an hour. A mail counts at the time of its arrival at the server,
/// so that mails that piled up unread do not look like a flood.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HourlyQuota {
    /// The arrival times, in Unix seconds.
    times: Vec<i64>,
    /// The time of the last notice to the sender about the limit, in Unix seconds.
    #[serde(rename = "told")]
    notified_at: Option<i64>,
}

/// The state of a quota: whether one more mail may be answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuotaState {
    Free,
    /// The limit is reached, and the sender has not been notified yet.
    UsedUpUnnotified,
    UsedUp,
}

impl HourlyQuota {
    /// Returns whether one more mail may be answered.
    pub fn state(&self, at: Timestamp, limit: u32) -> QuotaState {
        let at = at.as_second();
        let limit = limit.clamp(1, MAX_LIMIT) as usize;
        if self.times.iter().filter(|time| is_near(**time, at, HOUR)).count() < limit {
            return QuotaState::Free;
        }
        // At most one notice a day: a steady flood must not cause one every hour.
        match self.notified_at {
            Some(notified_at) if is_near(notified_at, at, DAY) => QuotaState::UsedUp,
            _ => QuotaState::UsedUpUnnotified,
        }
    }

    /// Counts one answered mail.
    pub fn count(&mut self, at: Timestamp) {
        let at = at.as_second();
        self.times.retain(|time| is_near(*time, at, HOUR));
        self.times.push(at);
        let surplus = self.times.len().saturating_sub(MAX_LIMIT as usize);
        self.times.drain(..surplus);
    }

    /// Records that the sender was notified.
    pub fn mark_notified(&mut self, at: Timestamp) {
        self.notified_at = Some(at.as_second());
    }
}

/// Returns true if the two times are within `span` seconds, in either order, since several mailboxes are not read in the
/// order of arrival.
fn is_near(time: i64, at: i64, span: i64) -> bool {
    time.abs_diff(at) < span.unsigned_abs()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_holds_for_an_hour_and_is_notified_once_a_day() {
        let at = |minutes: i64| Timestamp::from_second(1_800_000_000 + minutes * 60).unwrap();
        let mut quota = HourlyQuota::default();
        for minute in 0..3 {
            assert_eq!(quota.state(at(minute), 3), QuotaState::Free);
            quota.count(at(minute));
        }
        assert_eq!(quota.state(at(3), 3), QuotaState::UsedUpUnnotified);
        quota.mark_notified(at(3));
        assert_eq!(quota.state(at(4), 3), QuotaState::UsedUp);
        assert_eq!(quota.state(at(59), 3), QuotaState::UsedUp);
        assert_eq!(quota.state(at(60), 3), QuotaState::Free, "the first is an hour old");
        for minute in 60..63 {
            quota.count(at(minute));
        }
        assert_eq!(quota.state(at(63), 3), QuotaState::UsedUp, "it was notified today");
        assert_eq!(quota.times.len(), 3);
        for _ in 0..5_000 {
            quota.count(at(64));
        }
        assert_eq!(quota.times.len(), MAX_LIMIT as usize);
        assert_eq!(HourlyQuota::default().state(at(0), 0), QuotaState::Free, "no limit lets nothing through");
    }
}
