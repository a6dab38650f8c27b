//! What the owner has been told of lately, so that one cause does not fill his screen.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long the same thing of the same channel is not told again.
const QUIET: Duration = Duration::from_secs(3_600);
/// The most things remembered; beyond them some may be told twice.
const MOST: usize = 1_000;

/// The causes told of, by channel and reason.
#[derive(Default)]
pub struct NoticeThrottle(Mutex<HashMap<(String, String), Instant>>);

impl NoticeThrottle {
    /// Whether `reason` is news of `channel`; then it counts as told.
    pub fn is_news(&self, channel: &str, reason: &str, now: Instant) -> bool {
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        told.retain(|_, at| now.saturating_duration_since(*at) < QUIET);
        let key = (channel.to_owned(), reason.to_owned());
        if told.contains_key(&key) {
            return false;
        }
        if told.len() < MOST {
            told.insert(key, now);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_cause_is_told_once_an_hour() {
        let (told, now) = (NoticeThrottle::default(), Instant::now());
        let later = |secs| now + Duration::from_secs(secs);
        for (channel, reason, at, expected) in [
            ("a", "503", 0, true),
            ("a", "503", 3_599, false),
            ("a", "410", 1, true),
            ("b", "503", 1, true),
            ("a", "503", 3_601, true),
        ] {
            assert_eq!(told.is_news(channel, reason, later(at)), expected, "{channel} {reason} {at}");
        }
    }
}
