//! Runs a gateway and drains it: the shutdown follows the message.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use daoyou_channels::cli::TerminalExit;
use tokio_util::sync::CancellationToken;

use super::equip::PRIVATE;
use super::periodic::Periodic;
use super::reload::Reloader;
use super::remembering::Remembering;
use super::upkeep::Upkeep;
use super::watchdog::{Parts, Watchdog};
use super::{Gateway, service};
use crate::bus::MessageBus;
use crate::cron::heartbeat::Heartbeat;
use crate::cron::{self, CronService};
use crate::guard;
use crate::http;

/// How long due replies may take to go out after the last turn has ended; not longer than the turns themselves may take.
const FLUSH_LIMIT: Duration = Duration::from_secs(10);

/// How long open HTTP requests may take to end after that.
const HTTP_LIMIT: Duration = Duration::from_secs(2);

/// What a step of the stop may take beyond its limit before the service manager ends the process.
const GRACE: Duration = Duration::from_secs(15);

/// Warns that the gateway runs as root.
fn warn_of_root() {
    if rustix::process::geteuid().is_root() {
        tracing::warn!(
            "the gateway runs as root: a fault in it reaches the whole machine. Run it as a user of its own \
             (`daoyou service install`); its commands run as the workspace's owner, or as nobody where that is root"
        );
    }
}

impl Gateway {
    /// Runs until `shutdown`, or until whoever sits at its terminal leaves; then drains. `on_ready` is called when
    /// messages are taken, with the address that is served, if any is.
    ///
    /// # Errors
    /// What the last run left cannot be read, or the control socket cannot be made.
    pub async fn run(
        mut self,
        shutdown: CancellationToken,
        on_ready: impl FnOnce(Option<SocketAddr>),
    ) -> anyhow::Result<()> {
        let daemon = self.daemon.take();
        let processes = self.equipment.processes.clone();
        let is_daemon = daemon.is_some();
        if is_daemon {
            warn_of_root();
            service::status("looking at what was left");
        }
        self.begin().await?;
        let served = self.server.as_ref().and_then(|server| server.address().ok());
        let server = self.server.take().map(|server| tokio::spawn(server.run(self.stop_serving.clone(), HTTP_LIMIT)));
        tokio::spawn(self.periodic(is_daemon)?.run(self.context.shutdown.clone()));
        let stop_turns = CancellationToken::new();
        let parts = Parts { bus: self.bus.clone(), agent: self.agent.probe(), stopping: self.context.shutdown.clone() };
        let mut agent = tokio::spawn(self.agent.run(stop_turns.clone()));
        let (flush, receiving) = (CancellationToken::new(), self.context.shutdown.clone());
        let mut manager = tokio::spawn(self.manager.run(self.context, flush.clone()));
        let jobs = tokio::spawn(fire_jobs(self.cron.take(), receiving.clone()));
        let remembering = Remembering::start(&self.equipment, self.alone.take(), &receiving);
        on_ready(served);
        let watchdog = match daemon {
            Some(daemon) => {
                service::ready("ready");
                let reloader = Reloader {
                    daemon,
                    home: self.home,
                    workspace: self.workspace,
                    equipment: self.equipment,
                    agent: parts.agent.clone(),
                    current: self.loaded.clone(),
                    started: self.loaded,
                };
                tokio::spawn(reloader.run(receiving.clone()));
                Watchdog::start(parts)
            }
            None => None,
        };

        tokio::select! {
            () = shutdown.cancelled() => {}
            left = self.cli.left() => if left != TerminalExit::Shutdown {
                tracing::info!("the terminal was left");
            },
            // Neither ends by itself: whoever watches this process starts it again, and it goes on from the store.
            result = &mut agent => bail!("the agent loop ended: {result:?}"),
            result = &mut manager => bail!("the channel manager ended: {result:?}"),
            reason = self.bus.store().damaged() => {
                bail!("the database is damaged ({reason}); the next start checks it and takes over what can be read")
            }
        }
        tracing::info!("stopping");
        let say = |doing: &str, limit| {
            if is_daemon {
                service::stopping(doing, limit + GRACE);
            }
        };
        self.bus.close_intake();
        say("finishing the turns that run", self.bus.drain_timeout());
        receiving.cancel();
        stop_turns.cancel();
        ended("the agent loop", agent.await);
        ended("the cron service", jobs.await);
        self.bus.release_waiters();
        say("ending what runs in the background", processes.stop_limit());
        processes.stop().await;
        let flush_limit = self.bus.drain_timeout().min(FLUSH_LIMIT);
        say("delivering what is due", flush_limit);
        flush.cancel();
        match tokio::time::timeout(flush_limit, manager).await {
            Ok(result) => ended("the channel manager", result),
            Err(_) => tracing::warn!("some replies did not go out in time; they go out at the next start"),
        }
        say("closing", HTTP_LIMIT);
        self.stop_serving.cancel();
        if let Some(server) = server {
            ended("the HTTP server", server.await);
        }
        drop(watchdog);
        close(&self.bus, remembering, is_daemon).await;
        Ok(())
    }

    /// Looks at what the last run left, and serves the commands. After an error a start may be tried again in this process:
    /// nothing of this one goes on.
    async fn begin(&mut self) -> anyhow::Result<()> {
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

    /// Looks at what the last run left.
    async fn recover(&mut self) -> anyhow::Result<()> {
        if !self.is_alone {
            self.equipment.processes.recover().await?;
        }
        self.agent.recover().await?;
        self.manager.recover().await?;
        Ok(self.bus.notify_losses().await?)
    }

    /// What is done from time to time; HEARTBEAT.md is looked after by a gateway that stays.
    fn periodic(&self, stays: bool) -> anyhow::Result<Periodic> {
        let upkeep = Upkeep {
            home: self.home.clone(),
            bus: self.bus.clone(),
            config: self.equipment.store.clone(),
            memory: self.equipment.memory.clone(),
            note_ages: self.manager.note_ages(),
        };
        let heartbeat = stays
            .then(|| Heartbeat::new(self.bus.clone(), &self.workspace, &PRIVATE.covered_for_all().hidden))
            .transpose()?;
        Ok(Periodic::new(upkeep, heartbeat, self.equipment.clone()))
    }

    async fn serve_control(&self) -> anyhow::Result<()> {
        let socket = self.home.socket();
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

async fn close(bus: &MessageBus, remembering: Remembering, is_daemon: bool) {
    remembering.end().await;
    if is_daemon && let Err(error) = cron::note_stop(bus.store()).await {
        tracing::warn!(%error, "the end of the stop could not be noted");
    }
    bus.store().close().await;
    tracing::info!("stopped");
}

pub(super) fn ended(part: &str, result: Result<(), tokio::task::JoinError>) {
    if let Err(error) = result {
        tracing::error!(part, %error, "ended unexpectedly");
    }
}

/// When this process was started to supervise a command of `exec`, or to become one: does so, and answers the code to end
/// with.
pub fn supervise_command() -> Option<ExitCode> {
    let word = std::env::args_os().nth(1)?;
    if word == guard::CONFINE_WORD {
        return Some(guard::confine_main());
    }
    (word == guard::EXEC_WORD).then(guard::exec_main)
}
