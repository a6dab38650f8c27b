//! How many mails were answered within an hour.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

const HOUR: i64 = 3_600;
const DAY: i64 = 24 * HOUR;
/// The highest that can be set, so that what is kept of a sender stays small.
pub const MAX_LIMIT: u32 = 1_000;

/// The answered mails of one sender, or of one thread. A mail's time is that of its arrival at the server, so that what
/// piled up while nobody read it is not taken for a flood.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Hours {
    /// Unix seconds.
    times: Vec<i64>,
    /// When it was last said that there were too many.
    told: Option<i64>,
}

/// What the limit says to one more mail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    There,
    /// There is none, and that is to be said.
    NoneYetUntold,
    None,
}

impl Hours {
    /// Whether one more may be answered.
    pub fn room(&self, at: Timestamp, limit: u32) -> Room {
        let at = at.as_second();
        let limit = limit.clamp(1, MAX_LIMIT) as usize;
        if self.times.iter().filter(|time| is_near(**time, at, HOUR)).count() < limit {
            return Room::There;
        }
        // Once a day: what goes on and on is not answered once an hour instead.
        match self.told {
            Some(told) if is_near(told, at, DAY) => Room::None,
            _ => Room::NoneYetUntold,
        }
    }

    /// One more was answered.
    pub fn count(&mut self, at: Timestamp) {
        let at = at.as_second();
        self.times.retain(|time| is_near(*time, at, HOUR));
        self.times.push(at);
        let surplus = self.times.len().saturating_sub(MAX_LIMIT as usize);
        self.times.drain(..surplus);
    }

    /// It was said.
    pub fn tell(&mut self, at: Timestamp) {
        self.told = Some(at.as_second());
    }
}

/// Mails of several mailboxes are not read in the order of their arrival, so both directions count.
fn is_near(time: i64, at: i64, span: i64) -> bool {
    time.abs_diff(at) < span.unsigned_abs()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_holds_for_an_hour_and_is_said_once_a_day() {
        let at = |minutes: i64| Timestamp::from_second(1_800_000_000 + minutes * 60).unwrap();
        let mut hours = Hours::default();
        for minute in 0..3 {
            assert_eq!(hours.room(at(minute), 3), Room::There);
            hours.count(at(minute));
        }
        assert_eq!(hours.room(at(3), 3), Room::NoneYetUntold);
        hours.tell(at(3));
        assert_eq!(hours.room(at(4), 3), Room::None);
        assert_eq!(hours.room(at(59), 3), Room::None);
        assert_eq!(hours.room(at(60), 3), Room::There, "the first is an hour old");
        for minute in 60..63 {
            hours.count(at(minute));
        }
        assert_eq!(hours.room(at(63), 3), Room::None, "it was said today");
        assert_eq!(hours.times.len(), 3);
        for _ in 0..5_000 {
            hours.count(at(64));
        }
        assert_eq!(hours.times.len(), MAX_LIMIT as usize);
        assert_eq!(Hours::default().room(at(0), 0), Room::There, "no limit lets nothing through");
    }
}
