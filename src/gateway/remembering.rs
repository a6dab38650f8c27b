//! What looks after the memory while a gateway runs.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use daoyou_channels::SessionKey;
use futures_util::FutureExt;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::equip::Equipment;
use super::run::ended;
use crate::consolidation::Consolidator;
use crate::memory::vectors::EmbeddingIndexer;
use crate::memory::{MemoryFileWriter, MessageIndexer};

/// The rest of a worker that panicked: the next start may meet the same.
const REST: Duration = Duration::from_secs(60);

/// Its workers.
pub(super) struct Remembering {
    consolidation: JoinHandle<()>,
    indexer: JoinHandle<()>,
    files: JoinHandle<()>,
    vectors: JoinHandle<()>,
    stop_files: CancellationToken,
}

impl Remembering {
    /// Starts them; `only` names the one conversation of a gateway that runs no other.
    pub fn start(equipment: &Equipment, only: Option<SessionKey>, stopping: &CancellationToken) -> Self {
        let memory = || equipment.memory.clone();
        let stop_files = CancellationToken::new();
        Self {
            consolidation: kept("the consolidation", stopping, {
                let (runner, memory, stop) = (equipment.runner.clone(), memory(), stopping.clone());
                move || {
                    let runner = runner.clone();
                    Consolidator::new(move || runner.get().summarizer(), memory.clone(), only.clone()).run(stop.clone())
                }
            }),
            indexer: kept("the indexer", stopping, {
                let (memory, stop) = (memory(), stopping.clone());
                move || MessageIndexer::new(memory.clone()).run(stop.clone())
            }),
            files: kept("the keeper of the memory's files", &stop_files, {
                let (memory, stop) = (memory(), stop_files.clone());
                move || MemoryFileWriter::new(memory.clone()).run(stop.clone())
            }),
            vectors: kept("the keeper of vectors", stopping, {
                let (memory, stop) = (memory(), stopping.clone());
                move || EmbeddingIndexer::new(memory.clone()).run(stop.clone())
            }),
            stop_files,
        }
    }

    /// Waits for those that end when the gateway is to stop, and has the files written for the last time: what was remembered
    /// last is to stand there, too.
    pub async fn end(self) {
        ended("the consolidation", self.consolidation.await);
        ended("the indexer", self.indexer.await);
        ended("the keeper of vectors", self.vectors.await);
        self.stop_files.cancel();
        ended("the keeper of the memory's files", self.files.await);
    }
}

/// Runs a worker to its end; one that panics is started again after a rest, as nobody else would miss it.
fn kept<Run: Future<Output = ()> + Send>(
    part: &'static str,
    stop: &CancellationToken,
    start: impl Fn() -> Run + Send + Sync + 'static,
) -> JoinHandle<()> {
    let stop = stop.clone();
    tokio::spawn(async move {
        while AssertUnwindSafe(start()).catch_unwind().await.is_err() {
            tracing::error!(part, "a fault of daoyou's ended it; it starts again in a minute");
            if stop.run_until_cancelled(tokio::time::sleep(REST)).await.is_none() {
                return;
            }
        }
    })
}
