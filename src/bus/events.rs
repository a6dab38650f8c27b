//! The side channel of running turns: subscribers get events live, and nothing is stored.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use async_channel::{Receiver, Sender, TrySendError};
use daoyou_channels::{EventSource, SessionEvent};
use parking_lot::Mutex;

/// The number of events that a listener may be behind; beyond it, the listener loses events.
const BACKLOG: usize = 4_096;

/// Takes the events of all channels at once, in their order. It must not wait.
pub trait EventSink: Send + Sync {
    fn take(&self, event: &SessionEvent);
}

/// Sends events to the subscribers of their channel, and to the sink.
#[derive(Default)]
pub struct EventHub {
    listeners: Mutex<Listeners>,
    count: AtomicUsize,
    /// The number of the sink, from 1; 0 while there is none.
    sink: AtomicU64,
}

#[derive(Default)]
struct Listeners {
    of_channels: Vec<Listener>,
    sink: Option<Arc<dyn EventSink>>,
    /// How many sinks there have been.
    sinks: u64,
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
        listeners.of_channels.retain(|listener| {
            listener.channel != event.channel
                || !matches!(listener.events.try_send(event.clone()), Err(TrySendError::Closed(_)))
        });
        if let Some(sink) = &listeners.sink {
            sink.take(event);
        }
        self.count(&listeners);
    }

    /// Sets the sink of all events, or removes it.
    pub fn set_sink(&self, sink: Option<Arc<dyn EventSink>>) {
        let mut listeners = self.listeners.lock();
        listeners.sinks += u64::from(sink.is_some());
        let number = if sink.is_some() { listeners.sinks } else { 0 };
        listeners.sink = sink;
        self.sink.store(number, Ordering::Relaxed);
        self.count(&listeners);
    }

    /// Returns the number of the sink, which is new for each, or 0 if there is none.
    pub fn sink_number(&self) -> u64 {
        self.sink.load(Ordering::Relaxed)
    }

    /// Gives an event to the sink alone: what the other listeners have had before it was there.
    pub fn catch_up(&self, event: &SessionEvent) {
        if let Some(sink) = &self.listeners.lock().sink {
            sink.take(event);
        }
    }

    fn count(&self, listeners: &Listeners) {
        let count = listeners.of_channels.len() + usize::from(listeners.sink.is_some());
        self.count.store(count, Ordering::Relaxed);
    }
}

impl EventSource for EventHub {
    fn subscribe(&self, channel: &str) -> Receiver<SessionEvent> {
        let (events, received) = async_channel::bounded(BACKLOG);
        let mut listeners = self.listeners.lock();
        listeners.of_channels.push(Listener { channel: channel.to_owned(), events });
        self.count(&listeners);
        received
    }
}
