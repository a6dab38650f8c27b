//! What others know better, and is asked for at each scrape: counted twice it could be counted wrongly.

use super::{Kind, Page};

/// Messages of one channel in one state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueDepth {
    pub channel: String,
    /// As in the store.
    pub state: String,
    pub messages: u64,
    /// How long the oldest has been there, in milliseconds.
    pub oldest_ms: i64,
}

/// What the page is given at one scrape.
#[derive(Clone, Debug, Default)]
pub struct Scraped {
    /// Every channel and whether it runs. These have their lines also where nothing waits.
    pub channels: Vec<(String, bool)>,
    /// What came in and is not done.
    pub inbox: Vec<QueueDepth>,
    /// What is to go out and is not sent.
    pub outbox: Vec<QueueDepth>,
    /// Bytes of the database and of its write-ahead log.
    pub database_bytes: Vec<(&'static str, u64)>,
    /// Whether messages are accepted.
    pub takes_messages: bool,
    /// Each model service that is set up.
    pub circuits: Vec<Circuit>,
}

/// The circuit breaker before a model service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Circuit {
    pub provider: String,
    /// The service is asked as usual.
    pub is_closed: bool,
    /// How often it began to be left alone.
    pub opened: u64,
}

/// A queue as the page shows it.
struct Queue<'a> {
    depths: &'a [QueueDepth],
    states: &'a [&'static str],
    /// In these states nobody waits any more.
    ended: &'a [&'static str],
    messages: (&'static str, &'static str),
    age: (&'static str, &'static str),
}

impl Scraped {
    pub(super) fn write(&self, page: &mut Page) {
        page.family("daoyou_accepting", Kind::Gauge, "1 while messages are accepted, 0 while every one is refused.");
        page.sample(&[], u8::from(self.takes_messages));
        page.family(
            "daoyou_channel_up",
            Kind::Gauge,
            "1 while the channel receives, 0 while it starts, fails or stops.",
        );
        for (channel, is_up) in &self.channels {
            page.sample(&[("channel", channel)], u8::from(*is_up));
        }
        self.write_queue(
            page,
            &Queue {
                depths: &self.inbox,
                states: &["queued", "running", "waiting", "dead"],
                ended: &["dead"],
                messages: ("daoyou_inbox_messages", "Messages accepted and not done, by state."),
                age: ("daoyou_inbox_oldest_age_seconds", "Age of the oldest message that is neither done nor dead."),
            },
        );
        self.write_queue(
            page,
            &Queue {
                depths: &self.outbox,
                states: &["pending", "sending", "unknown", "dead"],
                ended: &["unknown", "dead"],
                messages: ("daoyou_outbox_messages", "Messages to deliver and not sent, by state."),
                age: ("daoyou_outbox_oldest_age_seconds", "Age of the oldest message that is still to be delivered."),
            },
        );
        page.family(
            "daoyou_provider_circuit_closed",
            Kind::Gauge,
            "1 while the model service is asked as usual, 0 while it is left alone or tried, as it failed again and again.",
        );
        for circuit in &self.circuits {
            page.sample(&[("provider", &circuit.provider)], u8::from(circuit.is_closed));
        }
        page.family(
            "daoyou_provider_circuit_opened_total",
            Kind::Counter,
            "How often the model service began to be left alone.",
        );
        for circuit in &self.circuits {
            page.sample(&[("provider", &circuit.provider)], circuit.opened);
        }
        page.family("daoyou_store_bytes", Kind::Gauge, "Size of the database and of its write-ahead log.");
        for (file, bytes) in &self.database_bytes {
            page.sample(&[("file", file)], bytes);
        }
    }

    fn write_queue(&self, page: &mut Page, queue: &Queue<'_>) {
        let mut channels: Vec<&str> = self.channels.iter().map(|(channel, _)| channel.as_str()).collect();
        channels.extend(queue.depths.iter().map(|depth| depth.channel.as_str()));
        channels.sort_unstable();
        channels.dedup();
        let of = |channel: &str, state: &str| {
            queue.depths.iter().find(|depth| depth.channel == channel && depth.state == state)
        };
        page.family(queue.messages.0, Kind::Gauge, queue.messages.1);
        for channel in &channels {
            for state in queue.states {
                let messages = of(channel, state).map_or(0, |depth| depth.messages);
                page.sample(&[("channel", channel), ("state", state)], messages);
            }
        }
        page.family(queue.age.0, Kind::Gauge, queue.age.1);
        for channel in &channels {
            let waiting = queue.states.iter().filter(|state| !queue.ended.contains(state));
            let oldest = waiting.filter_map(|state| of(channel, state)).map(|depth| depth.oldest_ms).max();
            // A clock that was set back makes nobody younger than new.
            page.sample(&[("channel", channel)], oldest.unwrap_or(0).max(0) as f64 / 1_000.0);
        }
    }
}
