//! The side channel of running turns: subscribers get events live, and nothing is stored.

use std::sync::atomic::{AtomicUsize, Ordering};

use async_channel::{Receiver, Sender, TrySendError};
use daoyou_channels::{EventSource, SessionEvent};
use parking_lot::Mutex;

/// The number of events that a listener may be behind; beyond it, the listener loses events.
const BACKLOG: usize = 4_096;

/// Sends events to the subscribers of their channel.
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
    /// Returns true if anybody listens. A turn without listeners need not build events.
    pub fn is_watched(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 0
    }

    pub fn emit(&self, event: &SessionEvent) {
        let mut listeners = self.listeners.lock();
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
        let mut listeners = self.listeners.lock();
        listeners.push(Listener { channel: channel.to_owned(), events });
        self.count.store(listeners.len(), Ordering::Relaxed);
        received
    }
}
