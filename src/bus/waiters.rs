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
    pub fn register(&self, message: Uuid) -> oneshot::Receiver<()> {
        let (ended, wait) = oneshot::channel();
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let of_message = waiting.entry(message).or_default();
        of_message.retain(|waiter| !waiter.is_closed());
        of_message.push(ended);
        wait
    }

    /// Forgets those who have gone away.
    pub fn forget_gone(&self, message: Uuid) {
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
