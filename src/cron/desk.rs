//! Where jobs are made and changed while a gateway runs.

use std::sync::Arc;

use tokio::sync::Notify;

use super::Terms;
use crate::live::Live;
use crate::store::Store;

/// What the tool and the API share.
pub struct Desk {
    pub store: Store,
    pub terms: Live<Terms>,
    /// Told when jobs have changed.
    changed: Arc<Notify>,
}

impl Desk {
    pub fn new(store: Store, terms: Terms, changed: Arc<Notify>) -> Self {
        Self { store, terms: Live::new(terms), changed }
    }

    /// The service looks for what is due next.
    pub fn wake(&self) {
        self.changed.notify_one();
    }
}
