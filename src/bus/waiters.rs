//! Who waits for which message to end (`?wait`, `daoyou agent`). They only look; the message does not depend on them.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use tokio::sync::oneshot;
use uuid::Uuid;

/// The callers who wait, by message.
#[derive(Default)]
pub struct Waiters(Mutex<HashMap<Uuid, Vec<oneshot::Sender<()>>>>);

impl Waiters {
    /// Completes when the message has ended. Register first, look at the store then: nothing is missed.
    pub fn register(&self, message: Uuid) -> Waiter<'_> {
        let (ended, wait) = oneshot::channel();
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.entry(message).or_default().push(ended);
        Waiter { waiters: self, message, wait: Some(wait) }
    }

    /// Forgets those who have gone away.
    fn forget_gone(&self, message: Uuid) {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(of_message) = waiting.get_mut(&message) {
            of_message.retain(|waiter| !waiter.is_closed());
            if of_message.is_empty() {
                waiting.remove(&message);
            }
        }
    }

    /// Nothing more will end: all are told to look for themselves.
    pub fn wake_all(&self) {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for waiter in waiting.drain().flat_map(|(_, of_message)| of_message) {
            // Whoever gave up waiting has dropped his end.
            let _ = waiter.send(());
        }
    }

    /// The messages have ended.
    pub fn wake(&self, messages: &[Uuid]) {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for message in messages {
            for waiter in waiting.remove(message).unwrap_or_default() {
                // Whoever gave up waiting has dropped his end.
                let _ = waiter.send(());
            }
        }
    }
}

/// Somebody who waits; dropped, nothing of him is left.
pub struct Waiter<'a> {
    waiters: &'a Waiters,
    message: Uuid,
    wait: Option<oneshot::Receiver<()>>,
}

impl Waiter<'_> {
    /// Completes when the message has ended, or nothing more will end.
    pub async fn ended(&mut self) {
        if let Some(wait) = &mut self.wait {
            // A sender that is gone has nothing more to say: whoever waits looks for himself.
            let _ = wait.await;
        }
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        self.wait = None;
        self.waiters.forget_gone(self.message);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn who_waits_is_told_and_who_leaves_is_forgotten() {
        let waiters = Waiters::default();
        let message = Uuid::from_u128(1);
        let mut first = waiters.register(message);
        drop(waiters.register(message));
        drop(waiters.register(Uuid::from_u128(2)));
        assert_eq!(waiters.0.lock().unwrap().values().map(Vec::len).collect::<Vec<_>>(), [1]);
        waiters.wake(&[message]);
        first.ended().await;
        drop(first);
        assert!(waiters.0.lock().unwrap().is_empty());
    }
}
