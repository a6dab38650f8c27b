//! The background workers of memory.

use std::sync::Arc;
use std::time::Duration;

use daoyou_channels::SessionKey;
use daoyou_channels::text::catch_panic;
use tokio::task::{JoinError, JoinHandle};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::runtime::Runtime;
use crate::consolidation::Consolidator;
use crate::live::Live;
use crate::memory::vectors::EmbeddingIndexer;
use crate::memory::{MemoryFileWriter, MessageIndexer};

/// The pause after a worker panicked: it may panic again.
const PANIC_PAUSE: Duration = Duration::from_secs(60);

/// A running worker, with its name for the log.
type WorkerTask = (&'static str, JoinHandle<()>);

/// The running workers.
pub(super) struct MemoryWorkers {
    /// The workers that end when the gateway stops.
    workers: [WorkerTask; 3],
    files: WorkerTask,
    stop_files: CancellationToken,
}

impl MemoryWorkers {
    /// Starts the workers. A gateway of a single conversation consolidates `only` that session.
    pub fn start(runtime: &Arc<Live<Runtime>>, only: Option<SessionKey>, stopping: &CancellationToken) -> Self {
        let stop_files = CancellationToken::new();
        let memory = runtime.part(|runtime| &runtime.memory);
        let runner = runtime.part(|runtime| runtime.runner());
        let (of_indexer, of_vectors, of_files) = (memory.clone(), memory.clone(), memory.clone());
        let workers = [
            restart_on_panic("the consolidation", stopping, move |stop| {
                let runner = runner.clone();
                Consolidator::new(move || runner.get().summarizer(), memory.clone(), only.clone()).run(stop)
            }),
            restart_on_panic("the indexer", stopping, move |stop| MessageIndexer::new(of_indexer.clone()).run(stop)),
            restart_on_panic("the indexer of vectors", stopping, move |stop| {
                EmbeddingIndexer::new(of_vectors.clone()).run(stop)
            }),
        ];
        let files = restart_on_panic("the writer of the memory files", &stop_files, move |stop| {
            MemoryFileWriter::new(of_files.clone()).run(stop)
        });
        Self { workers, files, stop_files }
    }

    /// Waits for the workers that end when the gateway stops, for half of `limit`. Then writes the memory files for the last time, so
    /// that they contain the newest memories.
    pub async fn end(self, limit: Duration) {
        let workers = async {
            for (part, task) in self.workers {
                log_join_error(part, task.await);
            }
        };
        if timeout(limit / 2, workers).await.is_err() {
            tracing::warn!("the workers of the memory did not end in time; they continue after the next start");
        }
        self.stop_files.cancel();
        match timeout(limit / 2, self.files.1).await {
            Ok(written) => log_join_error(self.files.0, written),
            Err(_) => tracing::warn!("the memory files were not written in time; the next start writes them"),
        }
    }
}

/// Runs a worker to its end; if it panics, restarts it after a pause.
fn restart_on_panic<Run: Future<Output = ()> + Send>(
    part: &'static str,
    stop: &CancellationToken,
    start: impl Fn(CancellationToken) -> Run + Send + Sync + 'static,
) -> WorkerTask {
    let stop = stop.clone();
    let task = tokio::spawn(async move {
        while catch_panic(start(stop.clone())).await.is_err() {
            tracing::error!(part, "a worker panicked; it starts again in a minute");
            if stop.run_until_cancelled(tokio::time::sleep(PANIC_PAUSE)).await.is_none() {
                return;
            }
        }
    });
    (part, task)
}

/// Logs that a task panicked or was aborted.
pub(super) fn log_join_error(part: &str, result: Result<(), JoinError>) {
    if let Err(error) = result {
        tracing::error!(part, %error, "a worker ended unexpectedly");
    }
}
