//! A bounded cache of results. It stores no errors; one caller computes a result while the others wait.

use std::time::{Duration, Instant};

use moka::Expiry;
use moka::future::{Cache as Moka, CacheBuilder};
use moka::policy::EvictionPolicy;
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::metrics::CacheCounts;

/// SHA-256 of a request as JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CacheKey([u8; 32]);

/// A cache of limited size that evicts the least recently used result when it is full.
pub struct ResultCache<V> {
    entries: Moka<CacheKey, CacheEntry<V>>,
}

/// The result of a lookup.
#[derive(Clone, Debug, PartialEq)]
pub enum CacheLookup<V, E> {
    /// The result was cached, or another caller computed it at the same time.
    Cached(V),
    /// This caller computed the result.
    Computed(V),
    /// This caller failed to compute the result.
    Failed(E),
    /// Another caller's computation failed, or its result was not cached: this caller must compute its own result.
    Uncached,
}

#[derive(Clone)]
struct CacheEntry<V> {
    value: V,
    ttl: Duration,
}

impl CacheKey {
    /// Returns the key of `value`; `kind` separates kinds of requests. The order of an object's keys does not matter,
    /// because a [`Value`] holds them sorted.
    pub fn of(kind: &str, value: &Value) -> Self {
        Self(Sha256::digest(format!("{kind}\0{value}")).into())
    }
}

impl<V: Clone + Send + Sync + 'static> ResultCache<V> {
    /// Creates a cache of at most `capacity` results.
    pub fn new(capacity: u64) -> Self {
        Self::weighed(capacity, |_| 1)
    }

    /// Creates a cache in which a result takes as many places as `places` returns; all results together take at most
    /// `capacity`.
    pub fn weighed(capacity: u64, places: impl Fn(&V) -> u32 + Send + Sync + 'static) -> Self {
        let entries = CacheBuilder::new(capacity).weigher(move |_, entry: &CacheEntry<V>| places(&entry.value));
        let entries = entries.eviction_policy(EvictionPolicy::lru()).expire_after(PerEntryExpiry).build();
        Self { entries }
    }

    /// Returns the result under `key`, or computes it with `make` and caches it for `ttl` if `make` allows it. Callers with the
    /// same key wait for the first caller. If the first caller's future is dropped, the next caller computes.
    pub async fn get_or<E>(
        &self,
        key: CacheKey,
        ttl: Duration,
        counts: &CacheCounts,
        make: impl Future<Output = Result<(V, Cacheability), E>>,
    ) -> CacheLookup<V, E> {
        let mut own = None;
        let made = async {
            match make.await {
                Ok((value, Cacheability::Store)) => Ok(CacheEntry { value, ttl }),
                unshared => {
                    own = Some(unshared.map(|(value, _)| value));
                    Err(())
                }
            }
        };
        let found = match self.entries.entry(key).or_try_insert_with(made).await {
            Ok(entry) if entry.is_fresh() => CacheLookup::Computed(entry.into_value().value),
            Ok(entry) => CacheLookup::Cached(entry.into_value().value),
            Err(_) => match own {
                Some(Ok(value)) => CacheLookup::Computed(value),
                Some(Err(error)) => CacheLookup::Failed(error),
                None => CacheLookup::Uncached,
            },
        };
        match found {
            CacheLookup::Cached(_) => counts.hits.increment(),
            _ => counts.misses.increment(),
        }
        // The cache removes expired results only when its pending tasks run.
        self.entries.run_pending_tasks().await;
        counts.entries.set(i64::try_from(self.entries.entry_count()).unwrap_or(i64::MAX));
        found
    }
}

/// The decision whether a result may be cached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cacheability {
    Store,
    Skip,
}

/// Each result has its own time to live.
struct PerEntryExpiry;

impl<V> Expiry<CacheKey, CacheEntry<V>> for PerEntryExpiry {
    fn expire_after_create(&self, _: &CacheKey, entry: &CacheEntry<V>, _: Instant) -> Option<Duration> {
        Some(entry.ttl)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use serde_json::json;
    use tokio::sync::Semaphore;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    fn key(n: u32) -> CacheKey {
        CacheKey::of("test", &json!(n))
    }

    async fn look_up(
        cache: &ResultCache<u32>,
        counts: &CacheCounts,
        n: u32,
        made: Result<(u32, Cacheability), u32>,
    ) -> CacheLookup<u32, u32> {
        cache.get_or(key(n), LONG, counts, async { made }).await
    }

    #[test]
    fn keys_differ_only_where_values_do() {
        let of = |value: Value| CacheKey::of("kind", &value);
        assert_eq!(of(json!({"a": 1, "b": {"c": 2, "d": 3}})), of(json!({"b": {"d": 3, "c": 2}, "a": 1})));
        let different = [
            json!(null),
            json!("null"),
            json!(1),
            json!("1"),
            json!([1, 2]),
            json!([2, 1]),
            json!(["ab", "c"]),
            json!(["a", "bc"]),
            json!({"a": "b"}),
            json!(["a", "b"]),
            json!([]),
            json!({}),
        ];
        for (n, one) in different.iter().enumerate() {
            for other in &different[n + 1..] {
                assert_ne!(of(one.clone()), of(other.clone()), "{one} and {other}");
            }
        }
        assert_ne!(CacheKey::of("a", &json!(1)), CacheKey::of("b", &json!(1)));
    }

    #[tokio::test]
    async fn values_are_cached_and_errors_are_not() {
        let (cache, counts) = (ResultCache::new(10), CacheCounts::default());
        for (n, made, expected) in [
            (1, Ok((10, Cacheability::Store)), CacheLookup::Computed(10)),
            (1, Ok((11, Cacheability::Store)), CacheLookup::Cached(10)),
            (2, Err(7), CacheLookup::Failed(7)),
            (2, Ok((20, Cacheability::Skip)), CacheLookup::Computed(20)),
            (2, Ok((21, Cacheability::Store)), CacheLookup::Computed(21)),
            (2, Err(7), CacheLookup::Cached(21)),
        ] {
            assert_eq!(look_up(&cache, &counts, n, made).await, expected, "{n} {made:?}");
        }
        assert_eq!((counts.hits.get(), counts.misses.get(), counts.entries.get()), (2, 4, 2));
    }

    #[tokio::test]
    async fn old_and_surplus_values_are_evicted() {
        let (cache, counts) = (ResultCache::new(3), CacheCounts::default());
        for n in 0..10 {
            look_up(&cache, &counts, n, Ok((n, Cacheability::Store))).await;
        }
        assert_eq!(counts.entries.get(), 3);
        assert_eq!(look_up(&cache, &counts, 9, Ok((90, Cacheability::Store))).await, CacheLookup::Cached(9));
        assert_eq!(look_up(&cache, &counts, 0, Ok((1, Cacheability::Store))).await, CacheLookup::Computed(1));

        let short = Duration::from_millis(1);
        let mut made = 0;
        // The cache uses the real clock, so this test polls it.
        while made < 2 {
            let found = cache.get_or(key(100), short, &counts, async { Ok::<_, u32>((1, Cacheability::Store)) }).await;
            made += u32::from(matches!(found, CacheLookup::Computed(_)));
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn one_caller_computes_while_the_others_wait_and_a_dropped_one_blocks_nobody() {
        let (cache, counts) = (Arc::new(ResultCache::new(10)), Arc::new(CacheCounts::default()));
        let (gate, runs) = (Arc::new(Semaphore::new(0)), Arc::new(AtomicU32::new(0)));
        let start = |made: Result<(u32, Cacheability), u32>| {
            let (cache, counts, gate, runs) = (cache.clone(), counts.clone(), gate.clone(), runs.clone());
            tokio::spawn(async move {
                let make = async {
                    runs.fetch_add(1, Ordering::SeqCst);
                    gate.acquire().await.expect("never closed").forget();
                    made
                };
                cache.get_or(key(1), LONG, &counts, make).await
            })
        };
        let arrived = async |count| {
            while runs.load(Ordering::SeqCst) < count {
                tokio::task::yield_now().await;
            }
        };
        let first = start(Ok((1, Cacheability::Store)));
        arrived(1).await;
        let second = start(Ok((2, Cacheability::Store)));
        first.abort();
        arrived(2).await;
        let third = start(Ok((3, Cacheability::Store)));
        tokio::task::yield_now().await;
        gate.add_permits(1);
        assert_eq!((second.await.unwrap(), third.await.unwrap()), (CacheLookup::Computed(2), CacheLookup::Cached(2)));
        assert_eq!(runs.load(Ordering::SeqCst), 2);
    }
}
