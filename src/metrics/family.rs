//! Metrics with one label.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use parking_lot::RwLock;

/// The label value of all names beyond the limit.
pub const OTHER: &str = "other";

/// The longest name, in bytes; a longer one counts as [`OTHER`].
const NAME_BYTES: usize = 128;

/// Metrics by the value of a label. All names after the first `limit` share [`OTHER`]: input from outside must not fill the memory of
/// this process or of the scraper.
#[derive(Debug)]
pub struct MetricFamily<T> {
    limit: usize,
    make: fn() -> T,
    known: RwLock<HashMap<Box<str>, Arc<T>>>,
}

impl<T: Default> MetricFamily<T> {
    pub fn new(limit: usize) -> Self {
        Self::with(limit, T::default)
    }
}

impl<T> MetricFamily<T> {
    /// Creates a family whose metrics `make` creates.
    pub fn with(limit: usize, make: fn() -> T) -> Self {
        Self { limit, make, known: RwLock::default() }
    }

    /// Returns the metric of `name`, which the first call creates.
    pub fn get(&self, name: &str) -> Arc<T> {
        let name = if name.len() > NAME_BYTES { OTHER } else { name };
        let found = self.known.read().get(name).cloned();
        found.unwrap_or_else(|| self.add(name))
    }

    /// Returns all names and their metrics, sorted.
    pub fn all(&self) -> BTreeMap<Box<str>, Arc<T>> {
        let known = self.known.read();
        known.iter().map(|(name, value)| (name.clone(), value.clone())).collect()
    }

    #[cold]
    fn add(&self, name: &str) -> Arc<T> {
        let mut known = self.known.write();
        let name = if known.len() < self.limit || known.contains_key(name) { name } else { OTHER };
        known.entry(name.into()).or_insert_with(|| Arc::new((self.make)())).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::super::Counter;
    use super::*;

    #[test]
    fn names_beyond_the_limit_share_one_metric() {
        let family = MetricFamily::<Counter>::new(2);
        for name in ["a", "b", "c", "d", "a", &"x".repeat(NAME_BYTES + 1)] {
            family.get(name).increment();
        }
        let all: Vec<_> = family.all().iter().map(|(name, count)| (name.to_string(), count.get())).collect();
        assert_eq!(all, [("a".to_owned(), 2), ("b".to_owned(), 1), (OTHER.to_owned(), 3)]);
    }
}
