//! Remembers what the refusals of a service teach about its models, as long as the process runs.

use std::collections::BTreeMap;

use parking_lot::Mutex;

/// The maximum number of models that are remembered.
const MODELS_LIMIT: usize = 256;

/// The lessons about each model of one provider. They are not stored: a new process learns again.
#[derive(Debug)]
pub struct LearnedByModel<T>(Mutex<BTreeMap<String, T>>);

impl<T> Default for LearnedByModel<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T: Copy> LearnedByModel<T> {
    /// Returns the lessons about `model`; `None` if there are none.
    pub fn get(&self, model: &str) -> Option<T> {
        self.0.lock().get(model).copied()
    }

    /// Applies `learn` to the lessons about `model`, which begin with `first`. If `learn` returns `None`, nothing changes.
    pub fn learn<R>(&self, model: &str, first: T, learn: impl FnOnce(&mut T) -> Option<R>) -> Option<R> {
        let mut by_model = self.0.lock();
        let mut learned = by_model.get(model).copied().unwrap_or(first);
        let change = learn(&mut learned)?;
        if by_model.len() >= MODELS_LIMIT && !by_model.contains_key(model) {
            by_model.pop_first();
        }
        by_model.insert(model.to_owned(), learned);
        Some(change)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_are_told_apart_and_their_number_is_bounded() {
        let learned = LearnedByModel::default();
        for (model, change, expected) in [("m", Some(1), Some(1)), ("m", None, Some(1)), ("n", None, None)] {
            learned.learn(model, 0, |known| change.map(|change| *known += change));
            assert_eq!(learned.get(model), expected, "{model}");
        }
        for n in 0..MODELS_LIMIT + 10 {
            learned.learn(&n.to_string(), 0, |_| Some(()));
        }
        assert_eq!(learned.0.lock().len(), MODELS_LIMIT);
    }
}
