//! Capacities: the numbers of waiting messages, counted in memory so that an accept need not count rows, and the free disk space.

use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

use daoyou_channels::{Refusal, SessionKey};
use parking_lot::Mutex;

/// The retry delay that a refused sender is given.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// The maximum number of messages that may wait, with the HTTP status of a refusal. Only messages from outside count.
#[derive(Clone, Copy, Debug)]
pub struct Capacities {
    /// The maximum number of unfinished messages of one session (429).
    pub session: usize,
    /// The maximum number of unfinished messages of all sessions (503).
    pub inbound: usize,
    /// The maximum number of undelivered messages of one channel (503 for new messages of that channel).
    pub outbound: usize,
}

/// The counts of waiting messages.
#[derive(Default)]
pub struct CapacityTracker(Mutex<CapacityCounts>);

#[derive(Default)]
struct CapacityCounts {
    inbound: usize,
    sessions: HashMap<SessionKey, usize>,
    /// The undelivered messages of each channel. A count may be negative for a moment: a delivery can end before its writer has
    /// counted it.
    outbound: HashMap<String, isize>,
}

impl CapacityTracker {
    /// Reserves capacity for one message of `session` within `bounds`, before the message is written.
    ///
    /// # Errors
    /// The first full capacity: [`Refusal::OutboxFull`], [`Refusal::InboxFull`] or [`Refusal::SessionFull`]. Nothing is
    /// reserved then.
    pub fn reserve(&self, bounds: Capacities, channel: &str, session: &SessionKey) -> Result<(), Refusal> {
        let mut counts = self.0.lock();
        Self::check_outbound(&counts, bounds, channel)?;
        if counts.inbound >= bounds.inbound {
            return Err(Refusal::InboxFull { waiting: counts.inbound, retry_after: RETRY_AFTER });
        }
        let waiting = counts.sessions.get(session).copied().unwrap_or_default();
        if waiting >= bounds.session {
            return Err(Refusal::SessionFull { session: session.clone(), waiting, retry_after: RETRY_AFTER });
        }
        *counts.sessions.entry(session.clone()).or_default() += 1;
        counts.inbound += 1;
        Ok(())
    }

    /// Counts messages that are already in the store.
    pub fn add(&self, session: &SessionKey, messages: usize) {
        let mut counts = self.0.lock();
        *counts.sessions.entry(session.clone()).or_default() += messages;
        counts.inbound += messages;
    }

    /// Releases the capacity of messages that are finished or were not written.
    pub fn release(&self, session: &SessionKey, messages: usize) {
        let mut counts = self.0.lock();
        counts.inbound = counts.inbound.saturating_sub(messages);
        if let Some(waiting) = counts.sessions.get_mut(session) {
            *waiting = waiting.saturating_sub(messages);
            if *waiting == 0 {
                counts.sessions.remove(session);
            }
        }
    }

    /// Checks that the undelivered messages of the channel are below its capacity.
    ///
    /// # Errors
    /// [`Refusal::OutboxFull`] if the channel has reached its capacity of undelivered messages.
    pub fn check_channel(&self, bounds: Capacities, channel: &str) -> Result<(), Refusal> {
        Self::check_outbound(&self.0.lock(), bounds, channel)
    }

    pub fn add_outbound(&self, channel: &str, messages: usize) {
        self.change_outbound(channel, isize::try_from(messages).unwrap_or(isize::MAX));
    }

    pub fn remove_outbound(&self, channel: &str) {
        self.change_outbound(channel, -1);
    }

    /// Returns the number of unfinished messages of all sessions.
    pub fn inbound(&self) -> usize {
        self.0.lock().inbound
    }

    /// Returns the number of undelivered messages of all channels.
    pub fn outbound(&self) -> usize {
        usize::try_from(self.0.lock().outbound.values().sum::<isize>()).unwrap_or(0)
    }

    fn check_outbound(counts: &CapacityCounts, bounds: Capacities, channel: &str) -> Result<(), Refusal> {
        let undelivered = counts.outbound.get(channel).copied().unwrap_or_default();
        match usize::try_from(undelivered) {
            Ok(waiting) if waiting >= bounds.outbound => {
                Err(Refusal::OutboxFull { channel: channel.to_owned(), waiting, retry_after: RETRY_AFTER })
            }
            _ => Ok(()),
        }
    }

    fn change_outbound(&self, channel: &str, by: isize) {
        let mut counts = self.0.lock();
        let waiting = counts.outbound.entry(channel.to_owned()).or_default();
        *waiting += by;
        if *waiting == 0 {
            counts.outbound.remove(channel);
        }
    }
}

/// Checks that `reserve` bytes are free on the file system of `database`: accepted messages need them for their replies. The error
/// says how many are left. A file system that reports no size passes: the write itself will fail.
///
/// # Errors
/// Fewer than `reserve` bytes are free; the text states how many.
pub fn check_reserve(database: &Path, reserve: u64) -> Result<(), String> {
    let Ok(stat) = rustix::fs::statvfs(database.parent().unwrap_or(database)) else { return Ok(()) };
    let free = stat.f_bavail.saturating_mul(stat.f_frsize);
    if free < reserve {
        return Err(format!("only {free} bytes are free on disk, and {reserve} are reserved"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_capacity_refuses_separately_and_released_capacity_is_reused() {
        let tracker = CapacityTracker::default();
        let bounds = Capacities { session: 2, inbound: 3, outbound: 1 };
        let (a, b) = (SessionKey::from("x:a"), SessionKey::from("x:b"));
        assert_eq!(tracker.reserve(bounds, "x", &a), Ok(()));
        assert_eq!(tracker.reserve(bounds, "x", &a), Ok(()));
        assert!(matches!(tracker.reserve(bounds, "x", &a), Err(Refusal::SessionFull { waiting: 2, .. })));
        assert_eq!(tracker.reserve(bounds, "x", &b), Ok(()));
        assert!(matches!(tracker.reserve(bounds, "x", &b), Err(Refusal::InboxFull { waiting: 3, .. })));
        tracker.release(&a, 2);
        tracker.add_outbound("x", 1);
        assert!(matches!(tracker.reserve(bounds, "x", &a), Err(Refusal::OutboxFull { waiting: 1, .. })));
        assert_eq!(tracker.reserve(bounds, "y", &a), Ok(()), "another channel is not held back");
        tracker.remove_outbound("x");
        assert_eq!(tracker.reserve(bounds, "x", &a), Ok(()));
        assert_eq!((tracker.inbound(), tracker.outbound()), (3, 0));
    }
}
