//! One value for each name of something, with a bound on the names.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, PoisonError, RwLock};

/// Stands for all names beyond the bound.
pub const OTHER: &str = "other";

/// The longest name, in bytes; a longer one is [`OTHER`].
const NAME_BYTES: usize = 128;

/// Values by name. After `limit` names, all further ones share one value: what comes from outside must not fill the
/// memory here, nor that of whoever scrapes.
#[derive(Debug)]
pub struct Family<T> {
    limit: usize,
    make: fn() -> T,
    known: RwLock<HashMap<Box<str>, Arc<T>>>,
}

impl<T: Default> Family<T> {
    pub fn new(limit: usize) -> Self {
        Self::with(limit, T::default)
    }
}

impl<T> Family<T> {
    /// A family whose values begin as what `make` makes.
    pub fn with(limit: usize, make: fn() -> T) -> Self {
        Self { limit, make, known: RwLock::default() }
    }

    /// The value of `name`, made when it is first asked for.
    pub fn get(&self, name: &str) -> Arc<T> {
        let name = if name.len() > NAME_BYTES { OTHER } else { name };
        let found = self.known.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned();
        found.unwrap_or_else(|| self.add(name))
    }

    /// All names and their values, in order.
    pub fn all(&self) -> BTreeMap<Box<str>, Arc<T>> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        known.iter().map(|(name, value)| (name.clone(), value.clone())).collect()
    }

    #[cold]
    fn add(&self, name: &str) -> Arc<T> {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        let name = if known.len() < self.limit || known.contains_key(name) { name } else { OTHER };
        known.entry(name.into()).or_insert_with(|| Arc::new((self.make)())).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::super::Counter;
    use super::*;

    #[test]
    fn names_beyond_the_bound_share_one_value() {
        let family = Family::<Counter>::new(2);
        for name in ["a", "b", "c", "d", "a", &"x".repeat(NAME_BYTES + 1)] {
            family.get(name).one();
        }
        let all: Vec<_> = family.all().iter().map(|(name, count)| (name.to_string(), count.get())).collect();
        assert_eq!(all, [("a".to_owned(), 2), ("b".to_owned(), 1), (OTHER.to_owned(), 3)]);
    }
}
