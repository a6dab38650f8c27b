//! The tools with which stories and the bench drive the gateway: a scripted model, a callback sink, the real binary,
//! a terminal, mail servers, and the invariant checker.

pub mod anthropic;
pub mod attached;
pub mod clock;
pub mod config;
pub mod dns;
pub mod embeddings;
pub mod exposition;
pub mod gateway;
pub mod invariants;
pub mod mail;
pub mod model;
pub mod page;
pub mod port;
pub mod pty;
pub mod recorded;
pub mod reply;
pub mod requirements;
pub mod signing;
pub mod sink;

mod strict;
mod strict_anthropic;
pub mod web;

use std::time::Duration;

pub use config::{Hook, Setup};
pub use embeddings::Embeddings;
pub use gateway::Gateway;
pub use model::Model;
pub use reply::{Gate, Reply};
pub use sink::{Answer, Sink};

/// How long to wait for a state before the test fails. Generous: it costs time only when a test fails.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// The polling interval for a state without a notification.
pub const POLL: Duration = Duration::from_millis(5);

/// Waits for `future`; panics with `what` when it times out.
pub async fn deadline<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(PATIENCE, future).await {
        Ok(value) => value,
        Err(_) => panic!("waited {PATIENCE:?} for {what}"),
    }
}

/// Polls until `probe` returns something; panics with `what` when it times out.
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
