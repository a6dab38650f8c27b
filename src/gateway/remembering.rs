//! What looks after the memory while a gateway runs.

use daoyou_channels::SessionKey;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::equip::Equipment;
use super::run::ended;
use crate::agent::Consolidator;
use crate::memory::vectors::VectorKeeper;
use crate::memory::{Indexer, Keeper};

/// Its workers.
pub(super) struct Remembering {
    consolidation: JoinHandle<()>,
    indexer: JoinHandle<()>,
    files: JoinHandle<()>,
    stop_files: CancellationToken,
}

impl Remembering {
    /// Starts them; `only` names the one conversation of a gateway that runs no other.
    pub fn start(equipment: &Equipment, only: Option<SessionKey>, stopping: &CancellationToken) -> Self {
        let memory = || equipment.memory.clone();
        let stop_files = CancellationToken::new();
        let consolidator = Consolidator::new(equipment.runner.clone(), memory(), only);
        tokio::spawn(VectorKeeper::new(memory()).run(stopping.clone()));
        Self {
            consolidation: tokio::spawn(consolidator.run(stopping.clone())),
            indexer: tokio::spawn(Indexer::new(memory()).run(stopping.clone())),
            files: tokio::spawn(Keeper::new(memory()).run(stop_files.clone())),
            stop_files,
        }
    }

    /// Waits for those that end when the gateway is to stop, and has the files written for the last time: what was remembered
    /// last is to stand there, too.
    pub async fn end(self) {
        ended("the consolidation", self.consolidation.await);
        ended("the indexer", self.indexer.await);
        self.stop_files.cancel();
        ended("the keeper of the memory's files", self.files.await);
    }
}
