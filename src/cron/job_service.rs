//! The access of the tool and the API to jobs while a gateway runs.

use std::sync::Arc;

use super::{CronHandle, FiringReport, JobContext};
use crate::bus::WeakBus;
use crate::store::Store;

/// The jobs, as the tool, the slash commands and the API use them. The context of a service never changes: a reload creates
/// another service, and a turn keeps the service with which it began.
#[derive(Clone)]
pub struct JobService {
    pub store: Store,
    pub context: Arc<JobContext>,
    pub cron: CronHandle,
    /// The bus, which learns of runs that are started by hand.
    bus: WeakBus,
}

impl JobService {
    pub fn new(store: Store, context: JobContext, cron: CronHandle, bus: WeakBus) -> Self {
        Self { store, context: Arc::new(context), cron, bus }
    }

    /// Returns a service for the same jobs with another context.
    #[must_use]
    pub fn with_context(&self, context: JobContext) -> Self {
        Self { context: Arc::new(context), ..self.clone() }
    }

    /// Wakes the sessions and channels that have work after a run by hand was committed.
    pub fn wake_started(&self, fired: FiringReport) {
        if let Some(bus) = self.bus.get() {
            fired.wake(&bus);
        }
    }

    /// Wakes the cron service after a change of jobs.
    pub fn wake(&self) {
        self.cron.wake();
    }
}
