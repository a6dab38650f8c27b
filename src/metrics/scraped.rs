//! State of other modules that is read at each scrape instead of being counted a second time.

use super::MetricsPage;

/// Messages of one channel in one state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueDepth {
    pub channel: String,
    /// The state, as in the store.
    pub state: String,
    pub messages: u64,
    /// The age of the oldest message, in milliseconds.
    pub oldest_ms: i64,
}

/// The state of other modules at one scrape.
#[derive(Clone, Debug, Default)]
pub struct ScrapedState {
    /// Every channel, and whether it is running. Each channel has samples even if its queues are empty.
    pub channels: Vec<(String, bool)>,
    /// Inbound messages that are not done.
    pub inbox: Vec<QueueDepth>,
    /// Outbound messages that are not sent.
    pub outbox: Vec<QueueDepth>,
    /// The sizes of the database and its write-ahead log, in bytes.
    pub database_bytes: Vec<(&'static str, u64)>,
    pub takes_messages: bool,
    /// The circuit breaker of each configured model service.
    pub circuits: Vec<CircuitSample>,
    /// The numbers of stored approval requests, by state.
    pub approvals: Vec<(String, u64)>,
    pub memories: u64,
    /// Each MCP server, and whether it is running.
    pub mcp_servers: Vec<(String, bool)>,
}

/// The state of the circuit breaker of a model service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CircuitSample {
    pub provider: String,
    pub is_closed: bool,
    /// The number of times that the circuit breaker has opened.
    pub opened: u64,
}

/// The families of a queue.
struct QueueFamilies<'a> {
    depths: &'a [QueueDepth],
    states: &'a [&'static str],
    /// The states in which a message no longer waits.
    ended: &'a [&'static str],
    messages: (&'static str, &'static str),
    age: (&'static str, &'static str),
}

impl ScrapedState {
    pub(super) fn write(&self, page: &mut MetricsPage) {
        page.gauge("daoyou_accepting", "1 while messages are accepted, 0 while all are refused.");
        page.sample(&[], u8::from(self.takes_messages));
        page.gauge("daoyou_channel_up", "1 while the channel receives, 0 while it starts, fails or stops.");
        page.samples("channel", self.channels.iter().map(|(channel, is_up)| (channel, u8::from(*is_up))));
        self.write_queue(
            page,
            &QueueFamilies {
                depths: &self.inbox,
                states: &["queued", "running", "waiting", "dead"],
                ended: &["dead"],
                messages: ("daoyou_inbox_messages", "Accepted messages that are not done, by state."),
                age: ("daoyou_inbox_oldest_age_seconds", "Age of the oldest message that is neither done nor dead."),
            },
        );
        self.write_queue(
            page,
            &QueueFamilies {
                depths: &self.outbox,
                states: &["pending", "sending", "unknown", "dead"],
                ended: &["unknown", "dead"],
                messages: ("daoyou_outbox_messages", "Messages to deliver that are not sent, by state."),
                age: ("daoyou_outbox_oldest_age_seconds", "Age of the oldest message that is still to be delivered."),
            },
        );
        page.gauge("daoyou_provider_circuit_closed", "1 while the circuit breaker of the model service is closed, 0 while it is open or half open after repeated failures.",
        );
        let circuits = || self.circuits.iter();
        page.samples("provider", circuits().map(|circuit| (&circuit.provider, u8::from(circuit.is_closed))));
        page.counter(
            "daoyou_provider_circuit_opened_total",
            "How often the circuit breaker of the model service opened.",
        );
        page.samples("provider", circuits().map(|circuit| (&circuit.provider, circuit.opened)));
        page.gauge("daoyou_approvals", "Stored requests for the owner's approval, by state.");
        page.samples("state", self.approvals.iter().map(|(state, count)| (state, *count)));
        page.gauge("daoyou_memories", "Entries of the memory.");
        page.sample(&[], self.memories);
        page.gauge("daoyou_mcp_server_up", "1 while the MCP server runs; a server starts with its first call.");
        page.samples("server", self.mcp_servers.iter().map(|(server, is_up)| (server, u8::from(*is_up))));
        page.gauge("daoyou_store_bytes", "Size of the database and of its write-ahead log.");
        page.samples("file", self.database_bytes.iter().copied());
    }

    fn write_queue(&self, page: &mut MetricsPage, queue: &QueueFamilies<'_>) {
        let mut channels: Vec<&str> = self.channels.iter().map(|(channel, _)| channel.as_str()).collect();
        channels.extend(queue.depths.iter().map(|depth| depth.channel.as_str()));
        channels.sort_unstable();
        channels.dedup();
        let of = |channel: &str, state: &str| {
            queue.depths.iter().find(|depth| depth.channel == channel && depth.state == state)
        };
        page.gauge(queue.messages.0, queue.messages.1);
        for channel in &channels {
            for state in queue.states {
                let messages = of(channel, state).map_or(0, |depth| depth.messages);
                page.sample(&[("channel", channel), ("state", state)], messages);
            }
        }
        page.gauge(queue.age.0, queue.age.1);
        for channel in &channels {
            let waiting = queue.states.iter().filter(|state| !queue.ended.contains(state));
            let oldest = waiting.filter_map(|state| of(channel, state)).map(|depth| depth.oldest_ms).max();
            // A clock that was set back must not yield a negative age.
            page.sample(&[("channel", channel)], oldest.unwrap_or(0).max(0) as f64 / 1_000.0);
        }
    }
}
