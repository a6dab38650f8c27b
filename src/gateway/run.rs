//! Runs a gateway and drains it; the shutdown follows the path of a message.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use daoyou_channels::cli::TerminalExit;
use tokio_util::sync::CancellationToken;

use super::build::Gateway;
use super::memory_workers::{MemoryWorkers, log_join_error};
use super::periodic::PeriodicWork;
use super::reload::Reloader;
use super::service_manager;
use super::settings::PRIVATE;
use super::telemetry_exports::TelemetryExports;
use super::upkeep::Upkeep;
use super::watchdog::{Watchdog, WatchedParts};
use crate::bus::MessageBus;
use crate::cron::heartbeat::Heartbeat;
use crate::cron::{self, CronService};
use crate::guard;
use crate::http;
use crate::tools;

/// The time for sending due replies after the last turn has ended; at most `gateway.drain_timeout`.
const FLUSH_LIMIT: Duration = Duration::from_secs(10);

/// The additional time for open HTTP requests to end.
const HTTP_LIMIT: Duration = Duration::from_secs(2);

/// The time for MCP servers to end on their own.
pub(super) const MCP_END_LIMIT: Duration = Duration::from_secs(3);

/// The time that a step of the shutdown may take beyond its limit before the service manager kills the process.
const GRACE: Duration = Duration::from_secs(15);

/// Warns that the gateway runs as root.
fn warn_of_root() {
    if rustix::process::geteuid().is_root() {
        tracing::warn!(
            "the gateway runs as root: a bug in it can affect the whole machine. Run it as a user of its own \
             (`daoyou service install`); its commands run as the workspace's owner, or as nobody where that is root"
        );
    }
}

impl Gateway {
    /// Runs until `shutdown`, or until the user leaves the terminal; then drains. Calls `on_ready` when messages are accepted, with
    /// the served address if there is one.
    ///
    /// # Errors
    /// The state of the last run cannot be read, the control socket cannot be created, or a part ended unexpectedly.
    pub async fn run(
        mut self,
        shutdown: CancellationToken,
        on_ready: impl FnOnce(Option<SocketAddr>),
    ) -> anyhow::Result<()> {
        let reload = self.reload.take();
        let processes = self.fixed.processes.clone();
        let is_daemon = reload.is_some();
        self.begin(is_daemon).await?;
        let served = self.server.as_ref().and_then(|server| server.address().ok());
        let server = self.server.take().map(|server| tokio::spawn(server.run(self.stop_serving.clone(), HTTP_LIMIT)));
        tokio::spawn(self.periodic(is_daemon)?.run(self.context.shutdown.clone()));
        let stop_turns = CancellationToken::new();
        let parts =
            WatchedParts { bus: self.bus.clone(), agent: self.agent.probe(), stopping: self.context.shutdown.clone() };
        let mut agent = tokio::spawn(self.agent.run(stop_turns.clone()));
        let (flush, receiving) = (CancellationToken::new(), self.context.shutdown.clone());
        let mut manager = tokio::spawn(self.manager.run(self.context, flush.clone()));
        let jobs = tokio::spawn(fire_jobs(self.cron.take(), receiving.clone()));
        let telemetry = is_daemon.then(|| TelemetryExports::start(&self.loaded.config.otel, &self.state));
        let telemetry = telemetry.transpose()?.unwrap_or_default();
        let memory_workers = MemoryWorkers::start(&self.runtime, self.only_session.take(), &receiving);
        let runtime = self.runtime.clone();
        let reloader = Box::new(Reloader {
            source: reload,
            fixed: self.fixed,
            runtime: self.runtime,
            agent: parts.agent.clone(),
            current: self.loaded.clone(),
            started: self.loaded,
        });
        if !is_daemon {
            Box::pin(reloader.wait_for_servers()).await;
        }
        on_ready(served);
        reloader.start(&receiving);
        let watchdog = if is_daemon { Watchdog::start(parts) } else { None };

        tokio::select! {
            () = shutdown.cancelled() => {}
            left = self.cli.exited() => if left != TerminalExit::Shutdown {
                tracing::info!("the terminal was left");
            },
            // Neither ends normally. The service manager restarts the process, which continues from the store.
            result = &mut agent => bail!("the agent loop ended: {result:?}"),
            result = &mut manager => bail!("the channel manager ended: {result:?}"),
            reason = self.bus.store().damaged() => {
                bail!("the database is damaged ({reason}); the next start checks it and takes over what can be read")
            }
        }
        tracing::info!("stopping");
        let report = |step: &str, limit| {
            if is_daemon {
                service_manager::stopping(step, limit + GRACE);
            }
        };
        self.bus.close_intake();
        report("finishing the turns", self.bus.drain_timeout());
        receiving.cancel();
        stop_turns.cancel();
        log_join_error("the agent loop", agent.await);
        log_join_error("the cron service", jobs.await);
        telemetry.stop();
        self.bus.release_waiters();
        report("ending the background processes", processes.stop_limit());
        processes.stop().await;
        Box::pin(runtime.get().mcp.close(MCP_END_LIMIT)).await;
        let flush_limit = self.bus.drain_timeout().min(FLUSH_LIMIT);
        report("delivering due replies", flush_limit);
        flush.cancel();
        match tokio::time::timeout(flush_limit, manager).await {
            Ok(result) => log_join_error("the channel manager", result),
            Err(_) => tracing::warn!("some replies were not sent in time; they are sent after the next start"),
        }
        report("closing", HTTP_LIMIT);
        self.stop_serving.cancel();
        if let Some(server) = server {
            log_join_error("the HTTP server", server.await);
        }
        telemetry.end().await;
        drop(watchdog);
        close(&self.bus, memory_workers, is_daemon).await;
        Ok(())
    }

    /// Recovers the state of the last run, and serves the control socket. After an error no part of this gateway keeps running, so
    /// this process may start another one.
    async fn begin(&mut self, is_daemon: bool) -> anyhow::Result<()> {
        if is_daemon {
            warn_of_root();
            service_manager::status("recovering the state of the last run");
        }
        let begun = async {
            self.recover().await?;
            self.serve_control().await
        };
        let begun = begun.await;
        if begun.is_err() {
            self.stop_serving.cancel();
            self.bus.store().close().await;
        }
        begun
    }

    /// Recovers the state of the last run.
    async fn recover(&mut self) -> anyhow::Result<()> {
        if self.only_session.is_none() {
            self.fixed.processes.recover().await?;
        }
        self.agent.recover().await?;
        self.manager.recover().await?;
        Ok(self.bus.notify_losses().await?)
    }

    /// Builds the periodic work; only a daemon has a heartbeat.
    fn periodic(&self, is_daemon: bool) -> anyhow::Result<PeriodicWork> {
        let upkeep = Upkeep {
            home: self.fixed.home.clone(),
            bus: self.bus.clone(),
            runtime: self.runtime.clone(),
            note_ages: self.manager.note_ages(),
        };
        let heartbeat = is_daemon
            .then(|| Heartbeat::new(self.bus.clone(), &self.fixed.workspace, &PRIVATE.default_visibility().hidden))
            .transpose()?;
        Ok(PeriodicWork { upkeep, heartbeat, runtime: self.runtime.clone() })
    }

    async fn serve_control(&self) -> anyhow::Result<()> {
        let socket = self.fixed.home.socket();
        http::serve_control(&socket, http::control_routes(&self.state), self.stop_serving.clone())
            .await
            .map(drop)
            .with_context(|| format!("the control socket {} cannot be made", socket.display()))
    }
}

async fn fire_jobs(cron: Option<CronService>, shutdown: CancellationToken) {
    if let Some(cron) = cron {
        cron.run(shutdown).await;
    }
}

async fn close(bus: &MessageBus, memory_workers: MemoryWorkers, is_daemon: bool) {
    memory_workers.end().await;
    if is_daemon && let Err(error) = cron::note_stop(bus.store()).await {
        tracing::warn!(%error, "the end of the stop could not be recorded");
    }
    bus.store().close().await;
    tracing::info!("stopped");
}

/// Runs this process as the supervisor of an `exec` command, as such a command, or as a document extractor, if it was started as
/// one; returns the exit code in that case.
pub fn supervise_command() -> Option<ExitCode> {
    let argument = std::env::args_os().nth(1)?;
    if argument == guard::CONFINE_COMMAND {
        return Some(guard::confine_main());
    }
    if argument == tools::EXTRACT_COMMAND {
        return Some(tools::extract_main());
    }
    (argument == guard::EXEC_COMMAND).then(guard::exec_main)
}
