//! What the gateway counts and measures, and how Prometheus reads it. At the bottom of the house: it knows nothing of
//! ours, whoever has something to count holds [`Metrics`].
//!
//! Names go by <https://prometheus.io/docs/practices/naming/>, the page by the text format 0.0.4 of
//! <https://prometheus.io/docs/instrumenting/exposition_formats/>. No label holds a session, a chat or a sender, and each
//! has a bound on its values. Recording is a few atomic additions; nobody waits for a scrape.

mod caches;
mod cron;
mod family;
mod http;
mod messages;
mod page;
mod process;
mod registry;
mod scraped;
mod store;
mod turns;
mod value;

pub use caches::{CacheCounts, CacheMetrics};
pub use cron::CronMetrics;
pub use family::Family;
pub use http::HttpMetrics;
pub use messages::{ChannelMetrics, Delivered, MessageMetrics};
pub use page::{CONTENT_TYPE, Kind, Page};
pub use registry::Metrics;
pub use scraped::{Circuit, QueueDepth, Scraped};
pub use store::StoreMetrics;
pub use turns::{Asking, ModelUse, Outcome, Phase, ProviderCalls, ToolMetrics, TurnMeter, TurnMetrics};
pub use value::{Counter, Gauge, Held, Histogram};
