//! Reads the configuration anew on SIGHUP. What is wrong changes nothing; what is right holds for all that begins from
//! then on, but for settings that need a restart, which are named.

use std::path::PathBuf;
use std::sync::Arc;

use tokio::signal::unix::Signal;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::check::{build_models, check_models};
use super::equip::{self, Equipment};
use super::service;
use super::upkeep::repair_modes;
use crate::agent::{LivenessProbe, TurnRunner};
use crate::config::{Change, Fault, Faults, Loaded};
use crate::guard::Secrets;
use crate::home::Home;
use crate::logging::LogLevel;

/// Reads the configuration as this process was told to at its start.
pub type Load = Arc<dyn Fn() -> Result<Loaded, Vec<Fault>> + Send + Sync>;

/// What a gateway that stays has beside one that answers and goes.
pub struct Daemon {
    /// SIGHUP.
    pub hangup: Signal,
    pub load: Load,
    pub log: LogLevel,
}

/// The settings that hold for all that begins after a reload: keys, or tables with a point at the end. All others need a
/// restart.
const LIVE: [&str; 14] = [
    "agent.",
    "providers.",
    "owner.",
    "identities.",
    "memory.",
    "tools.",
    "store.",
    "cron.",
    "heartbeat.",
    "gateway.drain_timeout",
    "gateway.session_capacity",
    "gateway.inbound_capacity",
    "gateway.outbound_capacity",
    "log.level",
];

/// What in those tables needs a restart all the same.
const FIXED: [&str; 1] = ["agent.workspace"];

/// Waits for SIGHUP and carries it out.
pub(super) struct Reloader {
    pub daemon: Daemon,
    pub home: Home,
    /// The one that this gateway works in.
    pub workspace: PathBuf,
    pub equipment: Equipment,
    pub agent: LivenessProbe,
    /// What the parts that stay were built from.
    pub started: Loaded,
    /// What was read last.
    pub current: Loaded,
}

impl Reloader {
    /// Runs until `shutdown`.
    pub async fn run(mut self, shutdown: CancellationToken) {
        loop {
            tokio::select! {
                () = shutdown.cancelled() => return,
                hangup = self.daemon.hangup.recv() => if hangup.is_none() { return },
            }
            service::reloading();
            repair_modes(&self.home).await;
            let status = self.reload().await;
            service::ready(&status);
        }
    }

    /// Reads and applies; answers what the service manager shows.
    async fn reload(&mut self) -> String {
        let load = self.daemon.load.clone();
        // A secret may stand in a file on a slow disk.
        let loaded = match tokio::task::spawn_blocking(move || load()).await {
            Ok(loaded) => loaded.map_err(|faults| anyhow::Error::from(Faults(faults))),
            Err(error) => Err(error.into()),
        };
        match loaded.and_then(|loaded| Ok((self.prepare(&loaded)?, loaded))) {
            Ok((runner, loaded)) => self.apply(runner, loaded).await,
            Err(error) => refuse(&error),
        }
    }

    /// A runner for the turns to come. All that can fail comes before anything is changed.
    fn prepare(&self, loaded: &Loaded) -> anyhow::Result<(TurnRunner, Secrets)> {
        let old = self.equipment.runner.get();
        let (before, config) = (&self.current.config, &loaded.config);
        let is_priced_alike = config.agent.fallback_price == before.agent.fallback_price;
        let models = if config.providers == before.providers && is_priced_alike {
            old.models().clone()
        } else {
            Arc::new(build_models(loaded, |name| std::env::var(name).ok())?)
        };
        check_models(loaded, &models)?;
        let tools = if config.tools == before.tools && config.agent.spawn == before.agent.spawn {
            old.conversations.tools.all.clone()
        } else {
            equip::build_tools(config, &self.workspace, &self.home, &self.equipment.partners())?
        };
        let jobs = (self.equipment.jobs.clone(), self.equipment.memory.clone());
        let commands = equip::slash_commands(config, jobs, models, tools, &self.workspace, old.commands.started)?;
        let secrets = equip::secrets(loaded, &self.home)?;
        let kept = (secrets.clone(), old.conversations.middleware.kept());
        let (bus, running) = (old.bus.clone(), old.running.clone());
        let runner = equip::turn_runner(config, &self.workspace, Arc::new(commands), bus, running, kept)?;
        Ok((runner, secrets))
    }

    async fn apply(&mut self, (runner, secrets): (TurnRunner, Secrets), loaded: Loaded) -> String {
        let is_live = |change: &Change| !needs_restart(&change.key);
        let changed: Vec<_> = self.current.changes(&loaded).into_iter().filter(is_live).collect();
        let waiting: Vec<_> = self.started.changes(&loaded).into_iter().filter(|change| !is_live(change)).collect();
        // Before it is said: who reads the log may count on it.
        let (retries, models, bus) = (runner.running.retries.clone(), runner.models().clone(), runner.bus.clone());
        self.equipment.replace(&loaded.config, runner, secrets);
        let mut keys: Vec<_> = waiting.iter().map(|change| table_of_hook(&change.key).to_owned()).collect();
        keys.dedup();
        self.equipment.waiting.set(keys);
        for warning in &loaded.warnings {
            tracing::warn!("{warning}");
        }
        if changed.is_empty() && waiting.is_empty() {
            tracing::info!("the configuration was read anew: nothing has changed");
        }
        if !changed.is_empty() {
            let changed = list(&changed, Change::to_string);
            tracing::info!("the configuration was read anew: from now on {changed}");
        }
        let mut status = "ready".to_owned();
        if !waiting.is_empty() {
            let keys = list(&waiting, |change| change.key.clone());
            tracing::warn!("until a restart the old values hold of {keys}");
            status = format!("ready; a restart is needed for {keys}");
        }
        if loaded.config.log.level != self.current.config.log.level
            && let Err(error) = self.daemon.log.set(&loaded.config.log.level)
        {
            tracing::error!("log.level: {error:#}");
        }
        // Whoever reads it anew has mended something, if only the account behind a key.
        models.reset_circuits();
        bus.forget_service_faults();
        retries.call_everybody();
        self.current = loaded;
        // More turns may be allowed now; the loop looks when it is asked for anything.
        let (answer, _) = oneshot::channel();
        drop(self.agent.try_send(answer));
        status
    }
}

/// Says why nothing has changed, a line for each fault.
fn refuse(error: &anyhow::Error) -> String {
    match error.downcast_ref::<Faults>() {
        Some(Faults(faults)) => faults.iter().for_each(|fault| tracing::error!("{fault}")),
        None => tracing::error!("{error:#}"),
    }
    tracing::error!("the configuration was read anew and is wrong: the one before stays in force");
    "ready; the new configuration is wrong, the one before stays in force".to_owned()
}

fn list(changes: &[Change], each: impl Fn(&Change) -> String) -> String {
    changes.iter().map(each).collect::<Vec<_>>().join(", ")
}

/// A webhook has many keys, all of them new where it is: its table says enough.
fn table_of_hook(key: &str) -> &str {
    let end = key.strip_prefix("channels.webhook.").and_then(|rest| rest.rfind('.'));
    end.map_or(key, |end| &key[.."channels.webhook.".len() + end])
}

/// Whether a setting is taken in at the start alone.
fn needs_restart(key: &str) -> bool {
    let is_live = |live: &str| if live.ends_with('.') { key.starts_with(live) } else { key == live };
    let is_trust = key.starts_with("channels.") && key.ends_with(".trusted_from");
    FIXED.contains(&key) || !(is_trust || LIVE.into_iter().any(is_live))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_change_while_running_is_known() {
        for (key, expected) in [
            ("agent.model", false),
            ("agent.workspace", true),
            ("providers.p.api_key", false),
            ("gateway.listen", true),
            ("gateway.drain_timeout", false),
            ("channels.webhook.h.secret", true),
            ("channels.webhook.h.trusted_from", false),
            ("channels.email.trusted_from", false),
            ("tools.exec.env", false),
            ("cron.enabled", false),
            ("log.level", false),
            ("log.format", true),
            ("store.retain.turns", false),
            ("heartbeat.every", false),
        ] {
            assert_eq!(needs_restart(key), expected, "{key}");
        }
    }
}
