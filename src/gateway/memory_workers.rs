//! The background workers of memory.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use daoyou_channels::SessionKey;
use futures_util::FutureExt;
use tokio::task::{JoinError, JoinHandle};
use tokio_util::sync::CancellationToken;

use super::runtime::Runtime;
use crate::consolidation::Consolidator;
use crate::live::Live;
use crate::memory::vectors::EmbeddingIndexer;
use crate::memory::{MemoryFileWriter, MessageIndexer};

/// The pause after a worker panicked: it may panic again.
const PANIC_PAUSE: Duration = Duration::from_secs(60);

/// The running workers.
pub(super) struct MemoryWorkers {
    consolidation: JoinHandle<()>,
    indexer: JoinHandle<()>,
    files: JoinHandle<()>,
    vectors: JoinHandle<()>,
    stop_files: CancellationToken,
}

impl MemoryWorkers {
    /// Starts the workers; a gateway that runs a single conversation consolidates `only` that one.
    pub fn start(runtime: &Arc<Live<Runtime>>, only: Option<SessionKey>, stopping: &CancellationToken) -> Self {
        let memory = || runtime.part(|runtime| &runtime.memory);
        let stop_files = CancellationToken::new();
        Self {
            consolidation: restart_on_panic("the consolidation", stopping, {
                let (runner, memory) = (runtime.part(|runtime| runtime.runner()), memory());
                let stop = stopping.clone();
                move || {
                    let runner = runner.clone();
                    Consolidator::new(move || runner.get().summarizer(), memory.clone(), only.clone()).run(stop.clone())
                }
            }),
            indexer: restart_on_panic("the indexer", stopping, {
                let (memory, stop) = (memory(), stopping.clone());
                move || MessageIndexer::new(memory.clone()).run(stop.clone())
            }),
            files: restart_on_panic("the writer of the memory files", &stop_files, {
                let (memory, stop) = (memory(), stop_files.clone());
                move || MemoryFileWriter::new(memory.clone()).run(stop.clone())
            }),
            vectors: restart_on_panic("the indexer of vectors", stopping, {
                let (memory, stop) = (memory(), stopping.clone());
                move || EmbeddingIndexer::new(memory.clone()).run(stop.clone())
            }),
            stop_files,
        }
    }

    /// Waits for the workers that end when the gateway stops; then the memory files are written for the last time, so that they
    /// contain the newest memories too.
    pub async fn end(self) {
        log_join_error("the consolidation", self.consolidation.await);
        log_join_error("the indexer", self.indexer.await);
        log_join_error("the indexer of vectors", self.vectors.await);
        self.stop_files.cancel();
        log_join_error("the writer of the memory files", self.files.await);
    }
}

/// Runs a worker to its end, and starts it again after a pause if it panics.
fn restart_on_panic<Run: Future<Output = ()> + Send>(
    part: &'static str,
    stop: &CancellationToken,
    start: impl Fn() -> Run + Send + Sync + 'static,
) -> JoinHandle<()> {
    let stop = stop.clone();
    tokio::spawn(async move {
        while AssertUnwindSafe(start()).catch_unwind().await.is_err() {
            tracing::error!(part, "a worker panicked; it starts again in a minute");
            if stop.run_until_cancelled(tokio::time::sleep(PANIC_PAUSE)).await.is_none() {
                return;
            }
        }
    })
}

/// Logs that a task panicked or was aborted.
pub(super) fn log_join_error(part: &str, result: Result<(), JoinError>) {
    if let Err(error) = result {
        tracing::error!(part, %error, "ended unexpectedly");
    }
}
