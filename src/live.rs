//! Values that are replaced while others use them.

use std::sync::{Arc, PoisonError, RwLock};

/// A value that can be replaced as a whole. A user of the current value keeps it for as long as needed: a turn ends with the
/// settings with which it began.
#[derive(Debug, Default)]
pub struct Live<T>(RwLock<Arc<T>>);

impl<T> Live<T> {
    pub fn new(value: impl Into<Arc<T>>) -> Self {
        Self(RwLock::new(value.into()))
    }

    /// Returns the current value.
    pub fn get(&self) -> Arc<T> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces the value for later calls of [`Self::get`].
    pub fn set(&self, value: impl Into<Arc<T>>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = value.into();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_taken_value_stays_the_same() {
        let live = Live::new(1);
        let taken = live.get();
        live.set(2);
        assert_eq!((*taken, *live.get()), (1, 2));
    }
}
