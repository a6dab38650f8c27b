//! Tells the service manager that the gateway lives, and only as long as it does: the store's writer commits, the agent
//! loop turns, the runtime runs what it is given. Silence for too long has the service manager start a new gateway, which
//! goes on from the store.

use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::service;
use crate::agent::LivenessProbe;
use crate::bus::MessageBus;
use crate::store::{Commit, StoreError};

/// Checks in the time that the service manager allows between two signs of life. Three in a row must fail before it
/// acts, so that one slow moment of the disk costs nothing.
const CHECKS: u32 = 4;

/// What the runtime is given beyond the limit of the check itself, to say what was stuck.
const SLACK: Duration = Duration::from_millis(500);

/// The parts that must answer.
#[derive(Clone)]
pub(super) struct Parts {
    pub bus: Arc<MessageBus>,
    pub agent: LivenessProbe,
    /// From then on the agent loop only drains, and answers nobody. That has a limit of its own.
    pub stopping: CancellationToken,
}

/// The thread that looks; it ends when this is dropped. A thread, since a stuck runtime could not say that it is stuck.
pub(super) struct Watchdog {
    stop: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Watchdog {
    /// Starts looking after `parts`, when a service manager asks for it.
    pub fn start(parts: Parts) -> Option<Self> {
        let allowed = sd_notify::watchdog_enabled().filter(|allowed| !allowed.is_zero())?;
        let (stop, stopped) = mpsc::channel();
        let runtime = Handle::current();
        let looking = move || look(&runtime, &parts, allowed / CHECKS, &stopped);
        match thread::Builder::new().name("watchdog".to_owned()).spawn(looking) {
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
fn look(runtime: &Handle, parts: &Parts, period: Duration, stopped: &mpsc::Receiver<()>) {
    loop {
        let begun = Instant::now();
        let (tell, told) = mpsc::channel();
        let checked = parts.clone();
        runtime.spawn(async move {
            // Nobody listens any more when this took too long.
            let _ = tell.send(checked.check(period).await);
        });
        let answer = wait(&told, stopped, period + SLACK);
        match answer {
            None => return,
            Some(Ok(())) => service::alive(),
            Some(Err(stuck)) => tracing::error!("{stuck}; the service manager's watchdog is not fed"),
        }
        let rest = period.saturating_sub(begun.elapsed());
        if stopped.recv_timeout(rest) != Err(RecvTimeoutError::Timeout) {
            return;
        }
    }
}

/// What the check said, or that it said nothing in time; `None` when there is nothing more to look at.
fn wait(
    told: &mpsc::Receiver<Result<(), String>>,
    stopped: &mpsc::Receiver<()>,
    limit: Duration,
) -> Option<Result<(), String>> {
    /// How late an order to stop may be heard.
    const NAP: Duration = Duration::from_millis(50);
    let deadline = Instant::now() + limit;
    loop {
        match told.recv_timeout(NAP) {
            Ok(answer) => return Some(answer),
            Err(_) if stopped.try_recv() == Err(mpsc::TryRecvError::Disconnected) => return None,
            Err(_) if Instant::now() >= deadline => {
                return Some(Err(format!("the runtime has not answered for {limit:?}")));
            }
            // The runtime dropped the check: it is going down.
            Err(RecvTimeoutError::Disconnected) => thread::sleep(NAP),
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
}

impl Parts {
    /// Asks each part; the error names the one that is stuck.
    async fn check(&self, limit: Duration) -> Result<(), String> {
        let (store, agent) = tokio::join!(timeout(limit, self.store()), timeout(limit, self.agent()));
        match store {
            Err(_) => return Err(format!("the store's writer has not answered for {limit:?}")),
            Ok(Err(StoreError::Closed)) => return Err("the store's writer has ended".to_owned()),
            // It answers. A disk that is full or a file that is locked is not mended by a new start.
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
        self.bus.store().write(Commit::Synced, |_| Ok(())).await
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
