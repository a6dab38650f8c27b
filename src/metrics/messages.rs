//! Messages that come in and go out, by channel.

use std::sync::Arc;

use super::{Counter, Family, Kind, Page};

/// More channels than anybody configures.
const CHANNELS: usize = 200;
/// More reasons than there are.
const REASONS: usize = 32;

/// How one try to deliver a message ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivered {
    Sent,
    /// It is tried again later.
    Retry,
    /// Whether it arrived is unknown, and it is not tried again.
    Unknown,
    /// Given up.
    Dead,
}

/// The counts by channel.
#[derive(Debug)]
pub struct MessageMetrics {
    channels: Family<ChannelMetrics>,
}

/// The counts of one channel.
#[derive(Debug)]
pub struct ChannelMetrics {
    pub accepted: Counter,
    pub duplicates: Counter,
    /// By the stable word for the reason.
    pub refused: Family<Counter>,
    sent: Counter,
    retries: Counter,
    unknown: Counter,
    dead: Counter,
}

impl Default for ChannelMetrics {
    fn default() -> Self {
        Self {
            accepted: Counter::default(),
            duplicates: Counter::default(),
            refused: Family::new(REASONS),
            sent: Counter::default(),
            retries: Counter::default(),
            unknown: Counter::default(),
            dead: Counter::default(),
        }
    }
}

impl ChannelMetrics {
    /// `messages` were delivered, or not, so.
    pub fn delivered(&self, how: Delivered, messages: usize) {
        let counter = match how {
            Delivered::Sent => &self.sent,
            Delivered::Retry => &self.retries,
            Delivered::Unknown => &self.unknown,
            Delivered::Dead => &self.dead,
        };
        counter.add(u64::try_from(messages).unwrap_or(u64::MAX));
    }
}

impl Default for MessageMetrics {
    fn default() -> Self {
        Self { channels: Family::new(CHANNELS) }
    }
}

impl MessageMetrics {
    /// The counts of the channel called `name`.
    pub fn channel(&self, name: &str) -> Arc<ChannelMetrics> {
        self.channels.get(name)
    }

    pub(super) fn write(&self, page: &mut Page) {
        let channels = self.channels.all();
        let mut each = |name, help, value: fn(&ChannelMetrics) -> &Counter| {
            page.family(name, Kind::Counter, help);
            for (channel, counts) in &channels {
                page.sample(&[("channel", channel)], value(counts).get());
            }
        };
        each("daoyou_messages_accepted_total", "Messages accepted: on disk, and to be answered.", |of| &of.accepted);
        each(
            "daoyou_messages_duplicate_total",
            "Messages that had been accepted before under the same id, and were not taken again.",
            |of| &of.duplicates,
        );
        each(
            "daoyou_delivery_retries_total",
            "Tries to deliver a message that failed and were put off to a later one.",
            |of| &of.retries,
        );
        page.family(
            "daoyou_messages_refused_total",
            Kind::Counter,
            "Messages that were refused: their senders were told, and nothing of them is kept.",
        );
        for (channel, counts) in &channels {
            for (reason, count) in counts.refused.all() {
                page.sample(&[("channel", channel), ("reason", &reason)], count.get());
            }
        }
        page.family(
            "daoyou_deliveries_total",
            Kind::Counter,
            "Messages that left the outbox: sent, unknown (they may have arrived) or dead (given up).",
        );
        for (channel, counts) in &channels {
            for (outcome, count) in [("sent", &counts.sent), ("unknown", &counts.unknown), ("dead", &counts.dead)] {
                page.sample(&[("channel", channel), ("outcome", outcome)], count.get());
            }
        }
    }
}
