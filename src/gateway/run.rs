//! Runs a gateway and drains it; the shutdown follows the path of a message.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use daoyou_channels::cli::TerminalExit;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use super::build::Gateway;
use super::memory_workers::{MemoryWorkers, log_join_error};
use super::periodic::PeriodicWork;
use super::program_pages::release_program_pages;
use super::reload::Reloader;
use super::service_manager;
use super::settings::PRIVATE;
use super::telemetry_exports::TelemetryExports;
use super::upkeep::Upkeep;
use super::watchdog::{Watchdog, WatchedParts};
use crate::bus::MessageBus;
use crate::cron;
use crate::cron::heartbeat::Heartbeat;
use crate::guard;
use crate::http;
use crate::tools::{self, Processes};

/// The longest time for sending due replies after the last turn has ended.
const FLUSH_LIMIT: Duration = Duration::from_secs(10);

/// The time for due replies if the turns used up the time of the stop; at most `gateway.drain_timeout`. A delivery that is cut off
/// may count as unknown.
const FLUSH_MINIMUM: Duration = Duration::from_secs(5);

/// The time for open HTTP requests to end.
const HTTP_LIMIT: Duration = Duration::from_secs(2);

/// The longest time for sending the remaining telemetry.
const TELEMETRY_LIMIT: Duration = Duration::from_secs(5);

/// The longest time for the memory workers to end and to write their files.
const MEMORY_LIMIT: Duration = Duration::from_secs(5);

/// The time of a step that must not be skipped if the earlier steps used up the time of the stop. The documentation promises that the
/// minimums of all steps are at most 10 seconds together: this one thrice, `FLUSH_MINIMUM` and `HTTP_LIMIT`.
const STEP_MINIMUM: Duration = Duration::from_secs(1);

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
        let jobs = self.cron.take().map(|cron| tokio::spawn(cron.run(receiving.clone())));
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
        match is_daemon {
            true => release_program_pages(),
            false => Box::pin(reloader.wait_for_servers()).await,
        }
        on_ready(served);
        reloader.start(&receiving);
        let watchdog = if is_daemon { Watchdog::start(parts) } else { None };

        tokio::select! {
            () = shutdown.cancelled() => {}
            left = self.cli.exited() => if left != TerminalExit::Shutdown {
                tracing::info!("the terminal chat ended");
            },
            // Neither ends normally. The service manager restarts the process, which continues from the store.
            result = &mut agent => bail!("the agent loop ended: {result:?}"),
            result = &mut manager => bail!("the channel manager ended: {result:?}"),
            reason = self.bus.store().damaged() => {
                bail!("the database is damaged ({reason}); the next start checks it and takes over what can be read")
            }
        }
        tracing::info!("stopping");
        let stop = StopDeadline::begin(self.bus.drain_timeout(), is_daemon);
        self.bus.close_intake();
        stop.begin_step("finishing the turns", stop.total, stop.total);
        receiving.cancel();
        stop_turns.cancel();
        log_join_error("the agent loop", agent.await);
        if let Some(jobs) = jobs {
            log_join_error("the cron service", jobs.await);
        }
        telemetry.stop();
        self.bus.release_waiters();
        let limit = stop.begin_step("ending the background processes", STEP_MINIMUM, Processes::STOP_LIMIT);
        processes.stop(limit).await;
        let limit = stop.begin_step("ending the MCP servers", STEP_MINIMUM, MCP_END_LIMIT);
        Box::pin(runtime.get().mcp.close(limit)).await;
        let limit = stop.begin_step("delivering due replies", FLUSH_MINIMUM.min(stop.total), FLUSH_LIMIT);
        flush.cancel();
        match timeout(limit, manager).await {
            Ok(result) => log_join_error("the channel manager", result),
            Err(_) => tracing::warn!("some replies were not sent in time; they are sent after the next start"),
        }
        stop.begin_step("closing", HTTP_LIMIT, HTTP_LIMIT);
        self.stop_serving.cancel();
        if let Some(server) = server {
            log_join_error("the HTTP server", server.await);
        }
        telemetry.end(stop.limit(Duration::ZERO, TELEMETRY_LIMIT)).await;
        drop(watchdog);
        close(&self.bus, memory_workers, &stop).await;
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

/// The deadline that the steps of a stop share.
struct StopDeadline {
    begun: Instant,
    /// `gateway.drain_timeout`.
    total: Duration,
    is_daemon: bool,
}

impl StopDeadline {
    fn begin(total: Duration, is_daemon: bool) -> Self {
        Self { begun: Instant::now(), total, is_daemon }
    }

    /// Returns the time for a step that begins now: the time that is left, within `shortest` and `longest`.
    fn limit(&self, shortest: Duration, longest: Duration) -> Duration {
        self.total.saturating_sub(self.begun.elapsed()).max(shortest).min(longest)
    }

    /// Returns the time for a step that begins now, as [`Self::limit`] does, and reports the step to the service
    /// manager.
    fn begin_step(&self, step: &str, shortest: Duration, longest: Duration) -> Duration {
        let limit = self.limit(shortest, longest);
        if self.is_daemon {
            service_manager::stopping(step, limit + GRACE);
        }
        limit
    }
}

async fn close(bus: &MessageBus, memory_workers: MemoryWorkers, stop: &StopDeadline) {
    memory_workers.end(stop.limit(STEP_MINIMUM, MEMORY_LIMIT)).await;
    if stop.is_daemon
        && let Err(error) = cron::note_stop(bus.store()).await
    {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_steps_of_a_stop_share_its_time_and_none_is_skipped() {
        let stop = StopDeadline::begin(Duration::from_secs(30), false);
        for (passed, shortest, longest, expected) in
            [(0, 1, 10, 10), (24, 1, 10, 6), (5, 5, 10, 5), (40, 1, 13, 1), (0, 0, 5, 0)]
        {
            tokio::time::advance(Duration::from_secs(passed)).await;
            let limit = stop.begin_step("a step", Duration::from_secs(shortest), Duration::from_secs(longest));
            assert_eq!(limit, Duration::from_secs(expected), "{passed} {shortest} {longest}");
        }
    }
}
