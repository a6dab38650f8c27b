//! What the stories and the bench drive the gateway with: a scripted model, a callback sink, the real binary, a
//! terminal, mail servers, and the checker of what must always hold.

pub mod anthropic;
pub mod clock;
pub mod config;
pub mod embeddings;
pub mod exposition;
pub mod gateway;
pub mod invariants;
pub mod mail;
pub mod model;
pub mod needs;
pub mod port;
pub mod pty;
pub mod reply;
pub mod signing;
pub mod sink;

mod strict;
mod strict_anthropic;

use std::time::Duration;

pub use config::{Hook, Setup};
pub use embeddings::Embeddings;
pub use gateway::Gateway;
pub use model::Model;
pub use reply::{Gate, Reply};
pub use sink::{Answer, Sink};

/// How long a state may take to come about before the test gives up. Generous: it costs only when a test fails.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// How often a state is looked at that cannot be waited for.
pub const POLL: Duration = Duration::from_millis(5);

/// Waits for `future`; panics with `what` when it does not come.
pub async fn deadline<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(PATIENCE, future).await {
        Ok(value) => value,
        Err(_) => panic!("waited {PATIENCE:?} for {what}"),
    }
}

/// Looks until `probe` finds something; panics with `what` when it does not.
pub async fn until<T>(what: &str, mut probe: impl AsyncFnMut() -> Option<T>) -> T {
    deadline(what, async {
        loop {
            if let Some(found) = probe().await {
                return found;
            }
            tokio::time::sleep(POLL).await;
        }
    })
    .await
}
