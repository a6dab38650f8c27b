//! Where jobs are made and changed while a gateway runs.

use std::sync::{Arc, OnceLock, Weak};

use super::{CronHandle, Fired, Terms};
use crate::bus::MessageBus;
use crate::live::Live;
use crate::store::Store;

/// What the tool and the API share.
pub struct Desk {
    pub store: Store,
    pub terms: Live<Terms>,
    service: CronHandle,
    /// Comes later than the tools, and holds them.
    bus: OnceLock<Weak<MessageBus>>,
}

impl Desk {
    pub fn new(store: Store, terms: Terms, service: CronHandle) -> Self {
        Self { store, terms: Live::new(terms), service, bus: OnceLock::new() }
    }

    /// From now on runs begun by hand wake those who have something to do.
    pub fn serve(&self, bus: &Arc<MessageBus>) {
        // There is one bus, and it comes once.
        let _ = self.bus.set(Arc::downgrade(bus));
    }

    /// What wakes the service.
    pub fn service(&self) -> CronHandle {
        self.service.clone()
    }

    /// A run was begun by hand, and is committed.
    pub fn started(&self, fired: Fired) {
        if let Some(bus) = self.bus.get().and_then(Weak::upgrade) {
            fired.wake(&bus);
        }
    }

    /// Jobs have changed: the service looks for what is due next.
    pub fn wake(&self) {
        self.service.wake();
    }
}
