//! The bus for those who are built before it.

use std::sync::{Arc, OnceLock, Weak};

use super::MessageBus;

/// A place for the bus, which is put there once. It does not keep the bus alive.
#[derive(Clone, Debug, Default)]
pub struct WeakBus(Arc<OnceLock<Weak<MessageBus>>>);

impl WeakBus {
    /// A place with the bus in it.
    pub fn of(bus: &Arc<MessageBus>) -> Self {
        let late = Self::default();
        late.set(bus);
        late
    }

    /// Puts the bus into its place; a second one is not taken.
    pub fn set(&self, bus: &Arc<MessageBus>) {
        // Whoever is late finds the same bus there.
        drop(self.0.set(Arc::downgrade(bus)));
    }

    /// The bus, where a gateway runs.
    pub fn get(&self) -> Option<Arc<MessageBus>> {
        self.0.get()?.upgrade()
    }
}
