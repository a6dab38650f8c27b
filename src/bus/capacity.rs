//! How many messages wait, counted beside the store so that an accept need not count rows.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use daoyou_channels::{Refusal, SessionKey};

use super::Capacities;

/// When a sender who was turned away may come back.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// The counts of waiting messages.
#[derive(Default)]
pub struct Ledger {
    counts: Mutex<Counts>,
}

#[derive(Default)]
struct Counts {
    inbound: usize,
    sessions: HashMap<SessionKey, usize>,
    /// May dip below zero for a moment: a delivery can end before its writer has counted it.
    outbound: HashMap<String, isize>,
}

impl Ledger {
    /// Takes a place for one message of `session` within `bounds`, before it is written.
    pub fn take(&self, bounds: Capacities, channel: &str, session: &SessionKey) -> Result<(), Refusal> {
        let mut counts = self.lock();
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

    /// Counts messages that stand in the store already.
    pub fn add(&self, session: &SessionKey, messages: usize) {
        let mut counts = self.lock();
        *counts.sessions.entry(session.clone()).or_default() += messages;
        counts.inbound += messages;
    }

    /// Gives places back: the messages are finished, or were not written after all.
    pub fn give_back(&self, session: &SessionKey, messages: usize) {
        let mut counts = self.lock();
        counts.inbound = counts.inbound.saturating_sub(messages);
        if let Some(waiting) = counts.sessions.get_mut(session) {
            *waiting = waiting.saturating_sub(messages);
            if *waiting == 0 {
                counts.sessions.remove(session);
            }
        }
    }

    /// Whether the channel may take anything in at all, by what it has not yet delivered.
    pub fn may_take(&self, bounds: Capacities, channel: &str) -> Result<(), Refusal> {
        Self::check_outbound(&self.lock(), bounds, channel)
    }

    pub fn add_outbound(&self, channel: &str, messages: usize) {
        self.change_outbound(channel, isize::try_from(messages).unwrap_or(isize::MAX));
    }

    pub fn remove_outbound(&self, channel: &str) {
        self.change_outbound(channel, -1);
    }

    /// Unfinished messages of all sessions.
    pub fn inbound(&self) -> usize {
        self.lock().inbound
    }

    /// Undelivered messages of all channels.
    pub fn outbound(&self) -> usize {
        usize::try_from(self.lock().outbound.values().sum::<isize>()).unwrap_or(0)
    }

    fn check_outbound(counts: &Counts, bounds: Capacities, channel: &str) -> Result<(), Refusal> {
        let undelivered = counts.outbound.get(channel).copied().unwrap_or_default();
        match usize::try_from(undelivered) {
            Ok(waiting) if waiting >= bounds.outbound => {
                Err(Refusal::OutboxFull { channel: channel.to_owned(), waiting, retry_after: RETRY_AFTER })
            }
            _ => Ok(()),
        }
    }

    fn change_outbound(&self, channel: &str, by: isize) {
        let mut counts = self.lock();
        let waiting = counts.outbound.entry(channel.to_owned()).or_default();
        *waiting += by;
        if *waiting == 0 {
            counts.outbound.remove(channel);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_bound_answers_for_itself_and_places_come_back() {
        let ledger = Ledger::default();
        let bounds = Capacities { session: 2, inbound: 3, outbound: 1 };
        let (a, b) = (SessionKey::from("x:a"), SessionKey::from("x:b"));
        assert_eq!(ledger.take(bounds, "x", &a), Ok(()));
        assert_eq!(ledger.take(bounds, "x", &a), Ok(()));
        assert!(matches!(ledger.take(bounds, "x", &a), Err(Refusal::SessionFull { waiting: 2, .. })));
        assert_eq!(ledger.take(bounds, "x", &b), Ok(()));
        assert!(matches!(ledger.take(bounds, "x", &b), Err(Refusal::InboxFull { waiting: 3, .. })));
        ledger.give_back(&a, 2);
        ledger.add_outbound("x", 1);
        assert!(matches!(ledger.take(bounds, "x", &a), Err(Refusal::OutboxFull { waiting: 1, .. })));
        assert_eq!(ledger.take(bounds, "y", &a), Ok(()), "another channel is not held back");
        ledger.remove_outbound("x");
        assert_eq!(ledger.take(bounds, "x", &a), Ok(()));
        assert_eq!((ledger.inbound(), ledger.outbound()), (3, 0));
    }
}
