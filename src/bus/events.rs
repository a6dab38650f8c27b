//! The live events of running turns. Subscribers receive them as they happen; nothing is stored.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use async_channel::{Receiver, Sender, TrySendError};
use daoyou_channels::{EventSource, SessionEvent};
use parking_lot::Mutex;

/// The maximum number of events that a subscriber may be behind; a slower subscriber loses events.
const BACKLOG: usize = 4_096;

/// A receiver of the events of all channels, in order. It must not block.
type EventSink = Box<dyn Fn(&SessionEvent) + Send + Sync>;

/// Sends events to the subscribers of their channel, and to the sink.
#[derive(Default)]
pub struct EventHub {
    listeners: Mutex<Listeners>,
    count: AtomicUsize,
    /// The number of the current sink, from 1; 0 means that there is none.
    sink: AtomicU64,
}

#[derive(Default)]
struct Listeners {
    of_channels: Vec<Listener>,
    sink: Option<EventSink>,
    /// The number of sinks so far.
    sinks: u64,
}

struct Listener {
    channel: String,
    events: Sender<SessionEvent>,
}

impl EventHub {
    /// Returns true if there is a subscriber or a sink. Otherwise a turn need not build events.
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
            sink(event);
        }
        self.count(&listeners);
    }

    /// Sets the sink of all events, or removes it.
    pub fn set_sink(&self, sink: Option<EventSink>) {
        let mut listeners = self.listeners.lock();
        listeners.sinks += u64::from(sink.is_some());
        let number = if sink.is_some() { listeners.sinks } else { 0 };
        listeners.sink = sink;
        self.sink.store(number, Ordering::Relaxed);
        self.count(&listeners);
    }

    /// Returns the number of the current sink, which is different for each sink, or 0 if there is none.
    pub fn sink_number(&self) -> u64 {
        self.sink.load(Ordering::Relaxed)
    }

    /// Sends an event to the sink alone: the subscribers received it before the sink connected.
    pub fn catch_up(&self, event: &SessionEvent) {
        if let Some(sink) = &self.listeners.lock().sink {
            sink(event);
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
