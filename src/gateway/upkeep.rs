//! What a gateway does for its store from time to time.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::live::Live;
use crate::store::{Commit, Connection, Store, StoreConfig, StoreError, now_ms, retention};

/// How often the store is looked through.
const EVERY: Duration = Duration::from_secs(3_600);

/// The rest between two pieces of work.
const BREATH: Duration = Duration::from_millis(20);

type Prune = fn(&Connection, i64) -> Result<usize, StoreError>;

/// Deletes what is older than `config` says then, an hour after the start and every hour from then on.
pub async fn run(store: Store, config: Arc<Live<StoreConfig>>, shutdown: CancellationToken) {
    loop {
        tokio::select! {
            () = shutdown.cancelled() => return,
            () = tokio::time::sleep(EVERY) => {}
        }
        let retain = config.get().retain.clone();
        let rules: [(&str, Option<Duration>, Prune); 3] = [
            ("turns", retain.turns.map(Duration::from), retention::prune_turn_steps),
            ("outbox", retain.outbox.map(Duration::from), retention::prune_outbox),
            ("sessions", retain.sessions.map(Duration::from), retention::prune_sessions),
        ];
        for (what, keep, prune) in rules {
            let Some(keep) = keep else { continue };
            let before = now_ms().saturating_sub(i64::try_from(keep.as_millis()).unwrap_or(i64::MAX));
            match clear(&store, prune, before).await {
                Ok(0) => {}
                Ok(rows) => tracing::info!(what, rows, "old rows deleted"),
                Err(StoreError::Closed) => return,
                Err(error) => tracing::warn!(what, %error, "old rows could not be deleted"),
            }
        }
    }
}

async fn clear(store: &Store, prune: Prune, before: i64) -> Result<usize, StoreError> {
    let mut total = 0;
    loop {
        let rows = store.write(Commit::Logged, move |connection| prune(connection, before)).await?;
        if rows == 0 {
            return Ok(total);
        }
        total += rows;
        tokio::time::sleep(BREATH).await;
    }
}
