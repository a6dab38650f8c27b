//! All metrics of a gateway.

use std::time::SystemTime;

use super::{
    CacheMetrics, CronMetrics, HttpMetrics, MessageMetrics, MetricKind, MetricsPage, ScrapedState, StoreMetrics,
    TurnMetrics, process,
};

/// The metrics of a gateway, shared by all its parts.
#[derive(Debug)]
pub struct Metrics {
    pub messages: MessageMetrics,
    pub turns: TurnMetrics,
    pub store: StoreMetrics,
    pub http: HttpMetrics,
    pub caches: CacheMetrics,
    pub cron: CronMetrics,
    started: SystemTime,
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            messages: MessageMetrics::default(),
            turns: TurnMetrics::default(),
            store: StoreMetrics::default(),
            http: HttpMetrics::default(),
            caches: CacheMetrics::default(),
            cron: CronMetrics::default(),
            started: SystemTime::now(),
        }
    }
}

impl Metrics {
    /// Writes the page, with the state that is read at each scrape.
    pub fn render(&self, scraped: &ScrapedState) -> String {
        let mut page = MetricsPage::default();
        page.family("daoyou_build_info", MetricKind::Gauge, "Always 1; the labels say which build this is.");
        let build = if cfg!(debug_assertions) { "debug" } else { "release" };
        page.sample(&[("version", env!("CARGO_PKG_VERSION")), ("build", build)], 1);
        self.messages.write(&mut page);
        self.turns.write(&mut page);
        self.caches.write(&mut page);
        self.cron.write(&mut page);
        scraped.write(&mut page);
        self.store.write(&mut page);
        self.http.write(&mut page);
        process::write(&mut page, self.started);
        page.into_text()
    }
}
