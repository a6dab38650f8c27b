//! The two kinds of wake-up signals: [`WakeQueue`] wakes a consumer of the bus to read the store, and [`Waiters`] wakes callers that
//! wait for the end of a message (`?wait`, `daoyou agent`). A lost signal loses no message.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

use async_channel::{Receiver, Sender, TrySendError};
use parking_lot::Mutex;
use tokio::sync::oneshot;
use uuid::Uuid;

/// The waiting callers, by message.
#[derive(Default)]
pub struct Waiters(Mutex<HashMap<Uuid, Vec<oneshot::Sender<()>>>>);

impl Waiters {
    /// Registers a waiter for the end of `message`. The caller must read the store afterwards, so that it misses no end.
    pub fn register(&self, message: Uuid) -> Waiter<'_> {
        let (ended, wait) = oneshot::channel();
        let mut waiting = self.0.lock();
        waiting.entry(message).or_default().push(ended);
        Waiter { waiters: self, message, wait }
    }

    /// Removes the callers of a message that have stopped waiting.
    fn remove_closed(&self, message: Uuid) {
        let mut waiting = self.0.lock();
        if let Some(of_message) = waiting.get_mut(&message) {
            of_message.retain(|waiter| !waiter.is_closed());
            if of_message.is_empty() {
                waiting.remove(&message);
            }
        }
    }

    /// Wakes all callers to read the store, because no more messages will end.
    pub fn wake_all(&self) {
        let mut waiting = self.0.lock();
        for waiter in waiting.drain().flat_map(|(_, of_message)| of_message) {
            // The caller may have stopped waiting and dropped the receiver.
            let _ = waiter.send(());
        }
    }

    /// Wakes the callers of these messages, which have ended.
    pub fn wake(&self, messages: &[Uuid]) {
        let mut waiting = self.0.lock();
        for message in messages {
            for waiter in waiting.remove(message).unwrap_or_default() {
                // The caller may have stopped waiting and dropped the receiver.
                let _ = waiter.send(());
            }
        }
    }
}

/// A waiting caller. Dropping it unregisters it.
pub struct Waiter<'a> {
    waiters: &'a Waiters,
    message: Uuid,
    wait: oneshot::Receiver<()>,
}

impl Waiter<'_> {
    /// Waits until the message has ended, or no more messages will end.
    pub async fn ended(&mut self) {
        // A dropped sender has the same meaning: the caller reads the store.
        let _ = (&mut self.wait).await;
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        self.wait.close();
        self.waiters.remove_closed(self.message);
    }
}

/// The maximum number of waiting signals in each direction. All slots are allocated at once.
const WAKE_UPS: usize = 1_024;

/// A bounded queue of signals. An overflow makes the consumer read all rows, so no signal is lost for good.
pub(super) struct WakeQueue<T> {
    send: Sender<T>,
    receive: Receiver<T>,
    overflowed: AtomicBool,
}

impl<T> WakeQueue<T> {
    pub(super) fn new() -> Self {
        let (send, receive) = async_channel::bounded(WAKE_UPS);
        Self { send, receive, overflowed: AtomicBool::new(false) }
    }

    pub(super) fn wake(&self, item: T) {
        if let Err(TrySendError::Full(item)) = self.send.try_send(item) {
            self.overflow();
            // The consumer may have emptied the queue before it could see the flag: then the queue has room now, and the item wakes
            // the consumer. If the queue is still full, its items wake the consumer.
            let _ = self.send.try_send(item);
        }
    }

    /// Makes the consumer read all rows.
    pub(super) fn overflow(&self) {
        self.overflowed.store(true, Ordering::SeqCst);
    }

    /// Returns the next signal, or `None` for an overflow.
    pub(super) async fn next(&self) -> Option<T> {
        if self.receive.is_empty() && self.overflowed.swap(false, Ordering::SeqCst) {
            return None;
        }
        // The bus itself holds the sender, so the channel stays open while this runs.
        match self.receive.recv().await {
            Ok(item) => Some(item),
            Err(_) => std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn waiters_are_woken_and_dropped_ones_are_removed() {
        let waiters = Waiters::default();
        let message = Uuid::from_u128(1);
        let mut first = waiters.register(message);
        drop(waiters.register(message));
        drop(waiters.register(Uuid::from_u128(2)));
        assert_eq!(waiters.0.lock().values().map(Vec::len).collect::<Vec<_>>(), [1]);
        waiters.wake(&[message]);
        first.ended().await;
        drop(first);
        assert!(waiters.0.lock().is_empty());
    }
}
