//! What is kept to be given again.

use super::{Counter, Gauge, Kind, Page};

/// One cache.
#[derive(Debug, Default)]
pub struct CacheCounts {
    /// Looked up and found, or found while somebody else was already at it.
    pub hits: Counter,
    /// Looked up and made.
    pub misses: Counter,
    /// Kept at the moment.
    pub entries: Gauge,
}

/// The caches.
#[derive(Debug, Default)]
pub struct CacheMetrics {
    pub responses: CacheCounts,
    pub tools: CacheCounts,
}

impl CacheMetrics {
    /// Each with its name.
    pub fn all(&self) -> [(&'static str, &CacheCounts); 2] {
        [("responses", &self.responses), ("tools", &self.tools)]
    }

    pub(super) fn write(&self, page: &mut Page) {
        page.family("daoyou_cache_lookups_total", Kind::Counter, "Lookups in caches, by what came of them.");
        for (cache, counts) in self.all() {
            for (outcome, count) in [("hit", &counts.hits), ("miss", &counts.misses)] {
                page.sample(&[("cache", cache), ("outcome", outcome)], count.get());
            }
        }
        page.family("daoyou_cache_entries", Kind::Gauge, "What caches hold.");
        for (cache, counts) in self.all() {
            page.sample(&[("cache", cache)], counts.entries.get());
        }
    }
}
