//! Results that are given again for a while: bounded, never an error, and made by one caller while the others wait.

use std::fmt;
use std::time::{Duration, Instant};

use moka::Expiry;
use moka::future::{Cache as Moka, CacheBuilder};
use moka::policy::EvictionPolicy;
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::metrics::CacheCounts;

/// SHA-256 of the normal form of what was asked.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Key([u8; 32]);

/// At most so many results; beyond it the one that was not asked for the longest goes.
pub struct Cache<V> {
    kept: Moka<Key, Kept<V>>,
}

/// What came of a lookup.
#[derive(Clone, Debug, PartialEq)]
pub enum Found<V, E> {
    /// It was there, or another caller was already at it.
    Kept(V),
    /// This caller made it.
    Made(V),
    /// This caller tried, and failed.
    Failed(E),
    /// Another caller was at it and has nothing to share: go and make it.
    Nothing,
}

#[derive(Clone)]
struct Kept<V> {
    value: V,
    ttl: Duration,
}

/// Why a result is not shared.
enum Own<V, E> {
    Value(V),
    Error(E),
}

impl Key {
    /// `kind` keeps the keys of different things apart. Objects are the same whatever the order of their keys.
    pub fn of(kind: &str, value: &Value) -> Self {
        let mut hasher = Sha256::new();
        hasher.update(kind.as_bytes());
        hasher.update([0]);
        feed(&mut hasher, value);
        Self(hasher.finalize().into())
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({:02x}{:02x}…)", self.0[0], self.0[1])
    }
}

impl<V: Clone + Send + Sync + 'static> Cache<V> {
    /// Holds `capacity` results at most.
    pub fn new(capacity: u64) -> Self {
        let kept = CacheBuilder::new(capacity).eviction_policy(EvictionPolicy::lru()).expire_after(ByEntry).build();
        Self { kept }
    }

    /// What is kept under `key`, else what `make` makes, which is kept for `ttl` if it says so. Callers with the same key
    /// wait for the first one; when that is dropped, the next one goes on.
    pub async fn get_or<E>(
        &self,
        key: Key,
        ttl: Duration,
        counts: &CacheCounts,
        make: impl Future<Output = Result<(V, Keep), E>>,
    ) -> Found<V, E> {
        let mut own = None;
        let made = async {
            match make.await {
                Ok((value, Keep::Yes)) => Ok(Kept { value, ttl }),
                Ok((value, Keep::No)) => {
                    own = Some(Own::Value(value));
                    Err(())
                }
                Err(error) => {
                    own = Some(Own::Error(error));
                    Err(())
                }
            }
        };
        let found = match self.kept.entry(key).or_try_insert_with(made).await {
            Ok(entry) if entry.is_fresh() => Found::Made(entry.into_value().value),
            Ok(entry) => Found::Kept(entry.into_value().value),
            Err(_) => match own {
                Some(Own::Value(value)) => Found::Made(value),
                Some(Own::Error(error)) => Found::Failed(error),
                None => Found::Nothing,
            },
        };
        match found {
            Found::Kept(_) => counts.hits.increment(),
            _ => counts.misses.increment(),
        }
        // What has expired leaves only when somebody looks after it.
        self.kept.run_pending_tasks().await;
        counts.entries.set(i64::try_from(self.kept.entry_count()).unwrap_or(i64::MAX));
        found
    }
}

/// Whether a result may be given again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    Yes,
    No,
}

/// Each result has a time of its own.
struct ByEntry;

impl<V> Expiry<Key, Kept<V>> for ByEntry {
    fn expire_after_create(&self, _: &Key, kept: &Kept<V>, _: Instant) -> Option<Duration> {
        Some(kept.ttl)
    }
}

/// The normal form: lengths before texts, keys in order, so that no two values have the same.
fn feed(hasher: &mut Sha256, value: &Value) {
    let mut text = |mark: u8, text: &str| {
        hasher.update([mark]);
        hasher.update((text.len() as u64).to_le_bytes());
        hasher.update(text.as_bytes());
    };
    match value {
        Value::Null => hasher.update([0]),
        Value::Bool(yes) => hasher.update([1, u8::from(*yes)]),
        Value::Number(number) => text(2, &number.to_string()),
        Value::String(string) => text(3, string),
        Value::Array(list) => {
            hasher.update([4]);
            hasher.update((list.len() as u64).to_le_bytes());
            for one in list {
                feed(hasher, one);
            }
        }
        Value::Object(table) => {
            let mut keys: Vec<_> = table.iter().collect();
            keys.sort_unstable_by_key(|(key, _)| *key);
            hasher.update([5]);
            hasher.update((keys.len() as u64).to_le_bytes());
            for (key, one) in keys {
                hasher.update((key.len() as u64).to_le_bytes());
                hasher.update(key.as_bytes());
                feed(hasher, one);
            }
        }
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

    fn key(n: u32) -> Key {
        Key::of("test", &json!(n))
    }

    async fn look(cache: &Cache<u32>, counts: &CacheCounts, n: u32, made: Result<(u32, Keep), u32>) -> Found<u32, u32> {
        cache.get_or(key(n), LONG, counts, async { made }).await
    }

    #[test]
    fn the_key_is_of_the_normal_form() {
        let of = |value: Value| Key::of("kind", &value);
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
        assert_ne!(Key::of("a", &json!(1)), Key::of("b", &json!(1)));
    }

    #[tokio::test]
    async fn what_is_kept_is_given_again_and_no_error_is() {
        let (cache, counts) = (Cache::new(10), CacheCounts::default());
        for (n, made, expected) in [
            (1, Ok((10, Keep::Yes)), Found::Made(10)),
            (1, Ok((11, Keep::Yes)), Found::Kept(10)),
            (2, Err(7), Found::Failed(7)),
            (2, Ok((20, Keep::No)), Found::Made(20)),
            (2, Ok((21, Keep::Yes)), Found::Made(21)),
            (2, Err(7), Found::Kept(21)),
        ] {
            assert_eq!(look(&cache, &counts, n, made).await, expected, "{n} {made:?}");
        }
        assert_eq!((counts.hits.get(), counts.misses.get(), counts.entries.get()), (2, 4, 2));
    }

    #[tokio::test]
    async fn what_is_too_old_or_too_much_goes() {
        let (cache, counts) = (Cache::new(3), CacheCounts::default());
        for n in 0..10 {
            look(&cache, &counts, n, Ok((n, Keep::Yes))).await;
        }
        assert_eq!(counts.entries.get(), 3);
        assert_eq!(look(&cache, &counts, 9, Ok((90, Keep::Yes))).await, Found::Kept(9));
        assert_eq!(look(&cache, &counts, 0, Ok((1, Keep::Yes))).await, Found::Made(1));

        let short = Duration::from_millis(1);
        let mut made = 0;
        // The clock of the cache is the real one: looked at until it has gone on.
        while made < 2 {
            let found = cache.get_or(key(100), short, &counts, async { Ok::<_, u32>((1, Keep::Yes)) }).await;
            made += u32::from(matches!(found, Found::Made(_)));
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn one_makes_it_while_the_others_wait_and_a_dropped_one_poisons_nobody() {
        let (cache, counts) = (Arc::new(Cache::new(10)), Arc::new(CacheCounts::default()));
        let (gate, runs) = (Arc::new(Semaphore::new(0)), Arc::new(AtomicU32::new(0)));
        let start = |made: Result<(u32, Keep), u32>| {
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
        let first = start(Ok((1, Keep::Yes)));
        arrived(1).await;
        let second = start(Ok((2, Keep::Yes)));
        first.abort();
        arrived(2).await;
        let third = start(Ok((3, Keep::Yes)));
        tokio::task::yield_now().await;
        gate.add_permits(1);
        assert_eq!((second.await.unwrap(), third.await.unwrap()), (Found::Made(2), Found::Kept(2)));
        assert_eq!(runs.load(Ordering::SeqCst), 2);
    }
}
