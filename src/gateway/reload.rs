//! Reloads the configuration on SIGHUP, and rebuilds the tools when those of an MCP server have changed. A faulty configuration
//! changes nothing. A valid one applies to everything that begins from then on, except for settings that need a restart; the log
//! names these.

use std::sync::Arc;
use std::time::Duration;

use tokio::signal::unix::Signal;
use tokio::sync::oneshot;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::check::{build_models, check_models};
use super::runtime::{FixedParts, Runtime};
use super::service_manager;
use super::upkeep::repair_modes;
use crate::agent::LivenessProbe;
use crate::config::{ConfigFault, ConfigFaults, LoadedConfig, SettingChange};
use crate::live::Live;
use crate::llm::Models;
use crate::logging::LogLevel;

/// Reads the configuration in the same way as the start of this process.
pub type ConfigLoader = Arc<dyn Fn() -> Result<LoadedConfig, Vec<ConfigFault>> + Send + Sync>;

/// The parts that a daemon needs to reload its configuration.
pub struct ReloadSource {
    /// The stream of SIGHUP signals.
    pub hangup: Signal,
    pub load: ConfigLoader,
    pub log: LogLevel,
}

/// The settings that a reload applies: keys, or tables, which end with a dot. All other settings need a restart.
const LIVE: [&str; 19] = [
    "agent.", "agents.", "routes", "skills.", "providers.", "owner.", "identities.", "memory.", "tools.", "approval.",
    "mcp.", "store.", "cron.", "heartbeat.", "gateway.drain_timeout", "gateway.session_capacity",
    "gateway.inbound_capacity", "gateway.outbound_capacity", "log.level",
];

/// The keys in these tables that need a restart all the same.
const FIXED: [&str; 1] = ["agent.workspace"];

/// The time that a gateway of a single conversation waits for the tool lists of MCP servers that were never listed.
const MCP_LIST_LIMIT: Duration = Duration::from_secs(10);

/// The time to wait for the lists of further MCP servers, so that one snapshot contains them all.
const LIST_PAUSE: Duration = Duration::from_millis(300);

/// Reloads the configuration on each SIGHUP.
pub(super) struct Reloader {
    /// `None` for a process that does not reload: only MCP servers change its snapshot.
    pub source: Option<ReloadSource>,
    pub fixed: FixedParts,
    pub runtime: Arc<Live<Runtime>>,
    pub agent: LivenessProbe,
    /// The configuration at the start, from which the fixed parts were built.
    pub started: LoadedConfig,
    /// The configuration of the last reload.
    pub current: LoadedConfig,
}

impl Reloader {
    /// Waits for the tool lists of MCP servers that were never listed, for the first turn of a single conversation.
    pub async fn wait_for_servers(&self) {
        if self.runtime.get().mcp.wait_for_lists(MCP_LIST_LIMIT).await {
            self.renew_tools();
        }
    }

    /// Reports that the gateway is ready, and runs until `shutdown`.
    pub fn start(self: Box<Self>, shutdown: &CancellationToken) {
        if self.source.is_some() {
            service_manager::ready("ready");
        }
        self.runtime.get().mcp.list_missing();
        tokio::spawn(self.run(shutdown.clone()));
    }

    async fn run(mut self: Box<Self>, shutdown: CancellationToken) {
        let mcp_changed = self.fixed.mcp_changed.clone();
        loop {
            tokio::select! {
                () = shutdown.cancelled() => return,
                hangup = hangup(self.source.as_mut()) => if hangup.is_none() { return },
                () = mcp_changed.notified() => {
                    if shutdown.run_until_cancelled(sleep(LIST_PAUSE)).await.is_none() {
                        return;
                    }
                    self.renew_tools();
                    continue;
                }
            }
            service_manager::reloading();
            repair_modes(&self.fixed.home).await;
            let status = self.reload().await;
            service_manager::ready(&status);
        }
    }

    /// Replaces the snapshot by one of the same configuration, with the current tools of the MCP servers.
    fn renew_tools(&self) {
        match self.prepare(&self.current) {
            Ok(runtime) => {
                self.set(runtime);
                tracing::debug!("the tools of MCP servers have changed: new turns have them");
            }
            Err(error) => tracing::error!("the tools of MCP servers have changed, but: {error:#}"),
        }
    }

    /// Replaces the snapshot.
    fn set(&self, runtime: Runtime) {
        // Servers that the reload keeps may print new secrets, too.
        runtime.mcp.set_secrets(&runtime.memory.secrets);
        self.runtime.set(runtime);
        let runtime = self.runtime.get();
        runtime.jobs.wake();
        runtime.memory.notify_changes();
        runtime.mcp.list_missing();
    }

    /// Reads and applies the configuration; returns the status for the service manager.
    async fn reload(&mut self) -> String {
        let Some(source) = &self.source else { return "ready".to_owned() };
        let load = source.load.clone();
        // A secret may be in a file on a slow disk.
        let loaded = match tokio::task::spawn_blocking(move || load()).await {
            Ok(loaded) => loaded.map_err(|faults| anyhow::Error::from(ConfigFaults(faults))),
            Err(error) => Err(error.into()),
        };
        match loaded.and_then(|loaded| Ok((self.prepare(&loaded)?, loaded))) {
            Ok((runtime, loaded)) => self.apply(runtime, loaded),
            Err(error) => log_refusal(&error),
        }
    }

    /// Builds the new snapshot. All steps that can fail come before the first change.
    fn prepare(&self, loaded: &LoadedConfig) -> anyhow::Result<Runtime> {
        let old = self.runtime.get();
        let models = self.models(loaded, &old.models.models)?;
        check_models(loaded, &models)?;
        let mut restart_needed: Vec<_> =
            self.restart_changes(loaded).iter().map(|change| table_of_hook(&change.key).to_owned()).collect();
        restart_needed.dedup();
        let runtime = Runtime::new(loaded, models, &self.fixed, restart_needed, Some(&old))?;
        let runner = old.runner();
        let (bus, running) = (runner.bus.clone(), runner.running.clone());
        runtime.add_runner(&self.fixed.workspace, bus, running, runner.conversations.middleware.state())?;
        Ok(runtime)
    }

    /// Returns the models of a configuration. If their settings are unchanged, these are the current models, with their connections
    /// and circuit breakers.
    fn models(&self, loaded: &LoadedConfig, current: &Arc<Models>) -> Result<Arc<Models>, ConfigFaults> {
        let (before, config) = (&self.current.config, &loaded.config);
        let is_same_price = config.agent.fallback_price == before.agent.fallback_price;
        if config.providers.iter().eq(&before.providers) && is_same_price {
            return Ok(current.clone());
        }
        Ok(Arc::new(build_models(loaded, |name| std::env::var(name).ok())?))
    }

    /// Returns the changes since the start that need a restart.
    fn restart_changes(&self, loaded: &LoadedConfig) -> Vec<SettingChange> {
        self.started.changes(loaded).into_iter().filter(|change| needs_restart(&change.key)).collect()
    }

    fn apply(&mut self, runtime: Runtime, loaded: LoadedConfig) -> String {
        let changed = self.current.changes(&loaded).into_iter().filter(|change| !needs_restart(&change.key));
        let changed: Vec<_> = changed.collect();
        let waiting = self.restart_changes(&loaded);
        // The swap precedes the log lines, so that a reader of the log can rely on the new settings.
        self.set(runtime);
        let runtime = self.runtime.get();
        for warning in &loaded.warnings {
            tracing::warn!("{warning}");
        }
        if changed.is_empty() && waiting.is_empty() {
            tracing::info!("configuration reloaded: nothing has changed");
        }
        if !changed.is_empty() {
            let changed = list(&changed, SettingChange::to_string);
            tracing::info!("configuration reloaded: {changed}");
        }
        let mut status = "ready".to_owned();
        if !waiting.is_empty() {
            let keys = list(&waiting, |change| change.key.clone());
            tracing::warn!("a restart is needed for {keys}");
            status = format!("ready; a restart is needed for {keys}");
        }
        if loaded.config.log.level != self.current.config.log.level
            && let Some(source) = &self.source
            && let Err(error) = source.log.set(&loaded.config.log.level)
        {
            tracing::error!("log.level: {error:#}");
        }
        // The owner has probably fixed a problem, perhaps only the account of a key.
        let runner = runtime.runner();
        runner.models().reset_circuits();
        runner.bus.clear_service_faults();
        runner.running.retries.retry_all();
        self.current = loaded;
        // More turns may be allowed now; the loop checks that at each probe.
        let (answer, _) = oneshot::channel();
        drop(self.agent.try_send(answer));
        status
    }
}

/// Waits for the next SIGHUP; for ever without a source.
async fn hangup(source: Option<&mut ReloadSource>) -> Option<()> {
    match source {
        Some(source) => source.hangup.recv().await,
        None => std::future::pending().await,
    }
}

/// Logs why nothing has changed, one line per fault; returns the status for the service manager.
fn log_refusal(error: &anyhow::Error) -> String {
    match error.downcast_ref::<ConfigFaults>() {
        Some(ConfigFaults(faults)) => faults.iter().for_each(|fault| tracing::error!("{fault}")),
        None => tracing::error!("{error:#}"),
    }
    tracing::error!("the new configuration is invalid: the previous one stays in force");
    "ready; the new configuration is invalid, the previous one stays in force".to_owned()
}

fn list(changes: &[SettingChange], each: impl Fn(&SettingChange) -> String) -> String {
    changes.iter().map(each).collect::<Vec<_>>().join(", ")
}

/// Returns the webhook's table for a key of a webhook, because all keys of a new webhook change at once; returns any other key
/// unchanged.
fn table_of_hook(key: &str) -> &str {
    let end = key.strip_prefix("channels.webhook.").and_then(|rest| rest.rfind('.'));
    end.map_or(key, |end| &key[.."channels.webhook.".len() + end])
}

/// Returns true if a setting is read only at the start.
fn needs_restart(key: &str) -> bool {
    let is_live = |live: &str| if live.ends_with('.') { key.starts_with(live) } else { key == live };
    let is_trust = key.starts_with("channels.") && key.ends_with(".trusted_from");
    FIXED.contains(&key) || !(is_trust || LIVE.into_iter().any(is_live))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_need_a_restart_are_known() {
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
            ("approval.default", false),
            ("mcp.time.command", false),
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
