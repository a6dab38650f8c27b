//! Metrics with one label.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use parking_lot::RwLock;

/// The label value of all names beyond the limit.
pub const OTHER: &str = "other";

/// The longest name, in bytes; a longer one counts as [`OTHER`].
const NAME_BYTES: usize = 128;

/// Metrics by the value of a label. All names after the first `LIMIT` share [`OTHER`], so that external input cannot fill the memory
/// of this process or of the scraper.
#[derive(Debug, Default)]
pub struct MetricFamily<T, const LIMIT: usize>(RwLock<HashMap<Box<str>, Arc<T>>>);

impl<T: Default, const LIMIT: usize> MetricFamily<T, LIMIT> {
    /// Returns the metric of `name`, which the first call creates.
    pub fn get(&self, name: &str) -> Arc<T> {
        let name = if name.len() > NAME_BYTES { OTHER } else { name };
        let found = self.0.read().get(name).cloned();
        found.unwrap_or_else(|| self.add(name))
    }

    /// Returns all names and their metrics, sorted.
    pub fn all(&self) -> BTreeMap<Box<str>, Arc<T>> {
        let known = self.0.read();
        known.iter().map(|(name, value)| (name.clone(), value.clone())).collect()
    }

    #[cold]
    fn add(&self, name: &str) -> Arc<T> {
        let mut known = self.0.write();
        let name = if known.len() < LIMIT || known.contains_key(name) { name } else { OTHER };
        known.entry(name.into()).or_default().clone()
    }
}

#[cfg(test)]
mod tests {
    use super::super::Counter;
    use super::*;

    #[test]
    fn names_beyond_the_limit_share_one_metric() {
        let family = MetricFamily::<Counter, 2>::default();
        for name in ["a", "b", "c", "d", "a", &"x".repeat(NAME_BYTES + 1)] {
            family.get(name).increment();
        }
        let all: Vec<_> = family.all().iter().map(|(name, count)| (name.to_string(), count.get())).collect();
        assert_eq!(all, [("a".to_owned(), 2), ("b".to_owned(), 1), (OTHER.to_owned(), 3)]);
    }
}
