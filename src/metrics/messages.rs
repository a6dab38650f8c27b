//! Metrics of inbound and outbound messages, by channel.

use std::sync::Arc;

use strum::VariantArray;

use super::{Counter, MetricFamily, MetricsPage};

/// A limit above the number of configured channels.
const CHANNELS: usize = 200;
/// A limit above the number of reasons.
const REASONS: usize = 32;

/// The outcome of one attempt to deliver a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::VariantArray, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum DeliveryOutcome {
    Sent,
    /// Another attempt follows.
    Retry,
    /// The message may have arrived; no further attempt follows.
    Unknown,
    /// The message was given up.
    Dead,
}

/// Counts by channel.
#[derive(Debug, Default)]
pub struct MessageMetrics {
    channels: MetricFamily<ChannelMetrics, CHANNELS>,
}

/// Counts of one channel.
#[derive(Debug, Default)]
pub struct ChannelMetrics {
    pub accepted: Counter,
    pub duplicates: Counter,
    /// Refused messages, by the code of the reason.
    pub refused: MetricFamily<Counter, REASONS>,
    /// By [`DeliveryOutcome`].
    delivered: [Counter; DeliveryOutcome::VARIANTS.len()],
}

impl ChannelMetrics {
    /// Records the outcome of an attempt to deliver `messages`.
    pub fn delivered(&self, outcome: DeliveryOutcome, messages: usize) {
        self.delivered[outcome as usize].add(u64::try_from(messages).unwrap_or(u64::MAX));
    }
}

impl MessageMetrics {
    /// Returns the counts of the channel `name`.
    pub fn channel(&self, name: &str) -> Arc<ChannelMetrics> {
        self.channels.get(name)
    }

    pub(super) fn write(&self, page: &mut MetricsPage) {
        let channels = self.channels.all();
        page.counter("daoyou_messages_accepted_total", "Accepted messages, which are on disk and will be answered.");
        page.samples("channel", channels.iter().map(|(channel, counts)| (channel, &counts.accepted)));
        page.counter("daoyou_messages_duplicate_total", "Messages that were accepted before under the same id.");
        page.samples("channel", channels.iter().map(|(channel, counts)| (channel, &counts.duplicates)));
        page.counter("daoyou_delivery_retries_total", "Failed delivery attempts that will be retried.");
        let retries = |counts: &ChannelMetrics| counts.delivered[DeliveryOutcome::Retry as usize].get();
        page.samples("channel", channels.iter().map(|(channel, counts)| (channel, retries(counts))));
        page.counter(
            "daoyou_messages_refused_total",
            "Refused messages; nothing is stored and the sender gets an error.",
        );
        for (channel, counts) in &channels {
            for (reason, count) in counts.refused.all() {
                page.sample(&[("channel", channel), ("reason", &reason)], &*count);
            }
        }
        page.counter(
            "daoyou_deliveries_total",
            "Messages that left the outbox: sent, unknown (may have arrived) or dead (given up).",
        );
        for (channel, counts) in &channels {
            for outcome in [DeliveryOutcome::Sent, DeliveryOutcome::Unknown, DeliveryOutcome::Dead] {
                let labels = [("channel", &**channel), ("outcome", outcome.into())];
                page.sample(&labels, &counts.delivered[outcome as usize]);
            }
        }
    }
}
