//! Metrics, their samples, and the page that Prometheus scrapes. Other modules record through [`Metrics`]; this module imports none
//! of them.
//!
//! Names follow <https://prometheus.io/docs/practices/naming/>, the page follows the text format 0.0.4 of
//! <https://prometheus.io/docs/instrumenting/exposition_formats/>. No label value is a session, a chat or a sender, and the number
//! of values of each label is bounded. Recording takes a few atomic additions and never waits for a scrape.
//!
//! Own code, because prometheus-client writes only OpenMetrics, and `prometheus` and `metrics` do not bound label values and omit
//! families without samples.

mod caches;
mod exposition;
mod family;
mod http;
mod messages;
mod registry;
mod scraped;
mod turns;
mod value;

pub use caches::{CacheCounts, CacheMetrics};
pub use exposition::{CONTENT_TYPE, MetricKind, MetricSample, MetricSamples, MetricsPage, SampleValue};
pub use family::MetricFamily;
pub use http::HttpMetrics;
pub use messages::{ChannelMetrics, DeliveryOutcome, MessageMetrics};
pub use registry::{Metrics, StoreMetrics};
pub use scraped::{CircuitSample, QueueDepth, ScrapedState};
pub use turns::{
    CronMetrics, ModelCallTimer, ModelUsage, ProviderMetrics, ToolMetrics, TurnMeter, TurnMetrics, TurnOutcome,
    TurnPhase,
};
pub use value::{Counter, Gauge, GaugeGuard, Histogram};
