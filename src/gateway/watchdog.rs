//! Resets the service manager's watchdog while the gateway is alive: the store's writer commits, the agent loop responds, and the
//! async runtime runs tasks. Otherwise the service manager starts a new gateway, which continues from the store.

use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::service_manager;
use crate::agent::LivenessProbe;
use crate::bus::MessageBus;
use crate::store::{Durability, StoreError};

/// The number of checks in the time that the service manager allows between two signs of life. The service manager acts only after
/// three consecutive failures, so that one slow moment of the disk has no effect.
const CHECKS: u32 = 4;

/// The time beyond the limit of the check that the runtime gets to report the stuck part.
const SLACK: Duration = Duration::from_millis(500);

/// The parts that must respond.
#[derive(Clone)]
pub(super) struct WatchedParts {
    pub bus: Arc<MessageBus>,
    pub agent: LivenessProbe,
    /// Cancelled when the agent loop begins to drain: it does not respond then, and the drain has its own limit.
    pub stopping: CancellationToken,
}

/// The checking thread, which ends when this is dropped. It is not a task, because a stuck runtime could not report itself.
pub(super) struct Watchdog {
    stop: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Watchdog {
    /// Starts to check `parts` if the service manager uses a watchdog.
    pub fn start(parts: WatchedParts) -> Option<Self> {
        let allowed = sd_notify::watchdog_enabled().filter(|allowed| !allowed.is_zero())?;
        let (stop, stopped) = mpsc::channel();
        let runtime = Handle::current();
        let watch = move || watch(&runtime, &parts, allowed / CHECKS, &stopped);
        match thread::Builder::new().name("watchdog".to_owned()).spawn(watch) {
            Ok(thread) => Some(Self { stop: Some(stop), thread: Some(thread) }),
            Err(error) => {
                tracing::error!(%error, "the watchdog could not be started; the service manager will end this process");
                None
            }
        }
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the watchdog's thread had panicked");
        }
    }
}

/// Checks every `period` until `stopped`.
fn watch(runtime: &Handle, parts: &WatchedParts, period: Duration, stopped: &mpsc::Receiver<()>) {
    loop {
        let begun = Instant::now();
        let (sender, result) = mpsc::channel();
        let checked = parts.clone();
        runtime.spawn(async move {
            // The receiver is gone if the check took too long.
            let _ = sender.send(checked.check(period).await);
        });
        match wait(&result, stopped, period + SLACK) {
            None => return,
            Some(Ok(())) => service_manager::alive(),
            Some(Err(stuck)) => tracing::error!("{stuck}; the service manager's watchdog is not notified"),
        }
        let rest = period.saturating_sub(begun.elapsed());
        if stopped.recv_timeout(rest) != Err(RecvTimeoutError::Timeout) {
            return;
        }
    }
}

/// Returns the result of a check, or an error if it is late; `None` if the watchdog must stop.
fn wait(
    result: &mpsc::Receiver<Result<(), String>>,
    stopped: &mpsc::Receiver<()>,
    limit: Duration,
) -> Option<Result<(), String>> {
    /// The longest delay until a stop is noticed.
    const POLL: Duration = Duration::from_millis(50);
    let deadline = Instant::now() + limit;
    loop {
        match result.recv_timeout(POLL) {
            Ok(answer) => return Some(answer),
            Err(_) if stopped.try_recv() == Err(mpsc::TryRecvError::Disconnected) => return None,
            Err(_) if Instant::now() >= deadline => {
                return Some(Err(format!("the runtime has not answered for {limit:?}")));
            }
            // The runtime dropped the check because it is shutting down.
            Err(RecvTimeoutError::Disconnected) => thread::sleep(POLL),
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
}

impl WatchedParts {
    /// Probes each part; the error names the part that is stuck.
    async fn check(&self, limit: Duration) -> Result<(), String> {
        let (store, agent) = tokio::join!(timeout(limit, self.store()), timeout(limit, self.agent()));
        match store {
            Err(_) => return Err(format!("the store's writer has not answered for {limit:?}")),
            Ok(Err(StoreError::Closed)) => return Err("the store's writer has ended".to_owned()),
            // The writer responds. A restart would not repair a full disk or a locked file.
            Ok(Err(error)) => tracing::warn!(%error, "the store's writer cannot commit"),
            Ok(Ok(())) => {}
        }
        match agent {
            _ if self.stopping.is_cancelled() => Ok(()),
            Err(_) => Err(format!("the agent loop has not answered for {limit:?}")),
            Ok(Err(())) => Err("the agent loop has ended".to_owned()),
            Ok(Ok(())) => Ok(()),
        }
    }

    async fn store(&self) -> Result<(), StoreError> {
        self.bus.store().write(Durability::Synced, |_| Ok(())).await
    }

    async fn agent(&self) -> Result<(), ()> {
        if self.stopping.is_cancelled() {
            return Ok(());
        }
        let (answer, answered) = oneshot::channel();
        self.agent.send(answer).await.map_err(drop)?;
        answered.await.map_err(drop)
    }
}
