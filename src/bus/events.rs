//! The side channel of running turns: who listens gets it live, nothing of it is kept.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use async_channel::{Receiver, Sender, TrySendError};
use daoyou_channels::{EventSource, SessionEvent};

/// Events that a listener may be behind by; then it loses some.
const BACKLOG: usize = 4_096;

/// Fans events out to whoever subscribed to the channel they belong to.
#[derive(Default)]
pub struct EventHub {
    listeners: Mutex<Vec<Listener>>,
    count: AtomicUsize,
}

struct Listener {
    channel: String,
    events: Sender<SessionEvent>,
}

impl EventHub {
    /// Whether anybody listens at all; a turn that nobody watches need not build events.
    pub fn is_watched(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 0
    }

    pub fn emit(&self, event: &SessionEvent) {
        let mut listeners = self.listeners.lock().unwrap_or_else(PoisonError::into_inner);
        listeners.retain(|listener| {
            listener.channel != event.channel
                || !matches!(listener.events.try_send(event.clone()), Err(TrySendError::Closed(_)))
        });
        self.count.store(listeners.len(), Ordering::Relaxed);
    }
}

impl EventSource for EventHub {
    fn subscribe(&self, channel: &str) -> Receiver<SessionEvent> {
        let (events, received) = async_channel::bounded(BACKLOG);
        let mut listeners = self.listeners.lock().unwrap_or_else(PoisonError::into_inner);
        listeners.push(Listener { channel: channel.to_owned(), events });
        self.count.store(listeners.len(), Ordering::Relaxed);
        received
    }
}
