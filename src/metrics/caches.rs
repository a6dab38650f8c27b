//! Metrics of the caches.

use super::{Counter, Gauge, MetricsPage};

/// Metrics of one cache.
#[derive(Debug, Default)]
pub struct CacheCounts {
    /// Lookups that found an entry, or that joined another caller's computation of it.
    pub hits: Counter,
    /// Lookups that computed the entry.
    pub misses: Counter,
    pub entries: Gauge,
}

/// Metrics of all caches.
#[derive(Debug, Default)]
pub struct CacheMetrics {
    pub responses: CacheCounts,
    pub tools: CacheCounts,
}

impl CacheMetrics {
    /// Returns each cache with its name.
    pub fn all(&self) -> [(&'static str, &CacheCounts); 2] {
        [("responses", &self.responses), ("tools", &self.tools)]
    }

    pub(super) fn write(&self, page: &mut MetricsPage) {
        page.counter("daoyou_cache_lookups_total", "Cache lookups by outcome.");
        for (cache, counts) in self.all() {
            for (outcome, count) in [("hit", &counts.hits), ("miss", &counts.misses)] {
                page.sample(&[("cache", cache), ("outcome", outcome)], count);
            }
        }
        page.gauge("daoyou_cache_entries", "Entries in caches.");
        page.samples("cache", self.all().map(|(cache, counts)| (cache, counts.entries.get())));
    }
}
