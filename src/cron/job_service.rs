//! The access of the tool and the API to jobs while a gateway runs.

use std::sync::{Arc, OnceLock, Weak};

use super::{CronHandle, FiringReport, JobContext};
use crate::bus::MessageBus;
use crate::live::Live;
use crate::store::Store;

/// What the tool and the API share.
pub struct JobService {
    pub store: Store,
    pub context: Live<JobContext>,
    cron: CronHandle,
    /// Set after the tools are built, since the bus holds them.
    bus: OnceLock<Weak<MessageBus>>,
}

impl JobService {
    pub fn new(store: Store, context: JobContext, cron: CronHandle) -> Self {
        Self { store, context: Live::new(context), cron, bus: OnceLock::new() }
    }

    /// Connects the bus, which is informed of runs that are started by hand.
    pub fn connect_bus(&self, bus: &Arc<MessageBus>) {
        // There is one bus, connected once.
        let _ = self.bus.set(Arc::downgrade(bus));
    }

    /// Returns the handle of the cron service.
    pub fn cron_handle(&self) -> CronHandle {
        self.cron.clone()
    }

    /// Wakes those who have work after a run by hand was committed.
    pub fn wake_started(&self, fired: FiringReport) {
        if let Some(bus) = self.bus.get().and_then(Weak::upgrade) {
            fired.wake(&bus);
        }
    }

    /// Wakes the cron service after a change of jobs.
    pub fn wake(&self) {
        self.cron.wake();
    }
}
