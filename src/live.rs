//! Settings that are replaced while others work with them.

use std::sync::{Arc, PoisonError, RwLock};

/// A value that can be replaced as a whole. Whoever takes the current one keeps it for as long as he needs it, so that a
/// turn ends with the settings that it began with.
#[derive(Debug, Default)]
pub struct Live<T>(RwLock<Arc<T>>);

impl<T> Live<T> {
    pub fn new(value: impl Into<Arc<T>>) -> Self {
        Self(RwLock::new(value.into()))
    }

    /// The current value.
    pub fn get(&self) -> Arc<T> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces the value for those who take it from now on.
    pub fn set(&self, value: impl Into<Arc<T>>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = value.into();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_taken_a_value_keeps_it() {
        let live = Live::new(1);
        let taken = live.get();
        live.set(2);
        assert_eq!((*taken, *live.get()), (1, 2));
    }
}
