//! The consolidations that run now. Their number is bounded, and no epoch is consolidated twice at a time.

use std::collections::HashSet;
use std::future::Future;

use tokio::task::JoinSet;

/// The most consolidations at the same time.
const MAX_RUNNING: usize = 2;

/// A session and its epoch.
pub(super) type SessionEpoch = (String, i64);

/// The running tasks.
#[derive(Default)]
pub(super) struct RunningConsolidations {
    /// The epochs that are being consolidated, and those that panicked.
    taken: HashSet<SessionEpoch>,
    tasks: JoinSet<SessionEpoch>,
}

impl RunningConsolidations {
    /// Returns true if another consolidation may begin. A consolidation that panicked takes no room; it only blocks its own
    /// epoch.
    pub fn has_room(&self) -> bool {
        self.tasks.len() < MAX_RUNNING
    }

    /// Begins `consolidation`, unless this epoch is being consolidated or has panicked.
    pub fn begin(&mut self, epoch_key: SessionEpoch, consolidation: impl Future<Output = ()> + Send + 'static) {
        if self.taken.insert(epoch_key.clone()) {
            self.tasks.spawn(async move {
                consolidation.await;
                epoch_key
            });
        }
    }

    /// Waits until a consolidation ends; returns `None` if none runs.
    pub async fn next_end(&mut self) -> Option<()> {
        match self.tasks.join_next().await? {
            Ok(epoch_key) => drop(self.taken.remove(&epoch_key)),
            // The epoch stays blocked until the next start, since the panic would occur again.
            Err(error) => tracing::error!(%error, "a consolidation ended unexpectedly"),
        }
        Some(())
    }

    /// Aborts all running consolidations.
    pub async fn shut_down(&mut self) {
        self.tasks.shutdown().await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[tokio::test]
    async fn a_panicked_consolidation_is_not_repeated_and_blocks_no_other() {
        let mut running = RunningConsolidations::default();
        let epoch_key = |n: i64| (format!("s{n}"), 0);
        for n in 0..2 {
            assert!(running.has_room());
            running.begin(epoch_key(n), async { panic!("as the test wants it") });
        }
        assert!(!running.has_room());
        while running.next_end().await.is_some() {}
        let runs = Arc::new(AtomicU32::new(0));
        for n in [0, 1, 2, 2] {
            assert!(running.has_room(), "{n}");
            let runs = runs.clone();
            running.begin(epoch_key(n), async move {
                runs.fetch_add(1, Ordering::Relaxed);
            });
        }
        while running.next_end().await.is_some() {}
        assert_eq!(runs.load(Ordering::Relaxed), 1, "a panicked epoch is blocked, and none runs twice at once");
        running.begin(epoch_key(2), async {});
        assert_eq!(running.next_end().await, Some(()));
    }
}
