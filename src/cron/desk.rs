//! Where jobs are made and changed while a gateway runs.

use super::{CronHandle, Terms};
use crate::live::Live;
use crate::store::Store;

/// What the tool and the API share.
pub struct Desk {
    pub store: Store,
    pub terms: Live<Terms>,
    service: CronHandle,
}

impl Desk {
    pub fn new(store: Store, terms: Terms, service: CronHandle) -> Self {
        Self { store, terms: Live::new(terms), service }
    }

    /// Jobs have changed: the service looks for what is due next.
    pub fn wake(&self) {
        self.service.wake();
    }
}
