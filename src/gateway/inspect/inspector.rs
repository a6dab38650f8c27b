//! The inspector: its inputs, and the part that answers each query.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use daoyou_channels::{Channel, api};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::bus::{ChannelHealth, MessageBus};
use crate::config::{Config, ConfigFault, ConfigFaults, LoadedConfig};
use crate::gateway::agents::load_agents;
use crate::gateway::channels;
use crate::gateway::check::build_models;
use crate::gateway::runtime::{Runtime, describe_settings};
use crate::gateway::settings::configured_secrets;
use crate::guard::KnownSecrets;
use crate::home::Home;
use crate::http::PAGE_CHANNEL;
use crate::live::Live;
use crate::llm::Models;
use crate::mcp::MCP_CHANNEL;
use crate::profiles::AgentDirectory;
use crate::query::{GatewayQuery, Inspect, InspectError, ManualToolRun};
use crate::store::overview::{StoreOverview, overview};
use crate::store::{Connection, Store, StoreError};

/// Answers queries about a gateway, or about the gateway that a home would have, with the current settings.
pub struct Inspector {
    pub(super) home: Home,
    pub(super) config: Arc<Config>,
    pub(super) models: Arc<Models>,
    pub(super) channels: Arc<ChannelResults>,
    pub(super) running: Option<RunningParts>,
    /// The current snapshot of a running gateway.
    pub(super) runtime: Option<Arc<Runtime>>,
    pub(super) agents: Arc<AgentDirectory>,
    /// Every setting and its origin, as JSON.
    pub(super) settings: Value,
    /// The secrets that are removed from the texts of MCP servers.
    pub(super) secrets: Arc<KnownSecrets>,
    /// Missing secrets, without which the gateway cannot start.
    pub(super) missing: Vec<ConfigFault>,
}

/// The enabled channels; an error is the reason why a channel cannot be created.
type ChannelResults = BTreeMap<String, Result<Arc<dyn Channel>, String>>;

/// The parts that only a running gateway has.
#[derive(Clone)]
pub struct RunningParts {
    pub bus: Arc<MessageBus>,
    pub health: Arc<ChannelHealth>,
    pub started: Instant,
    /// The address of the HTTP server, regardless of the current configuration; `None` for a gateway of a single conversation.
    pub serves: Option<SocketAddr>,
    pub runtime: Arc<Live<Runtime>>,
}

/// Answers queries about a running gateway, each with the settings at that time.
pub struct RunningInspector {
    home: Home,
    channels: Arc<ChannelResults>,
    running: RunningParts,
}

impl RunningInspector {
    /// Creates the inspector of a gateway that is being built, with its channels.
    pub fn new(home: Home, channels: &[Arc<dyn Channel>], running: RunningParts) -> Self {
        // These channels have no settings and nothing to test.
        let without_settings = [api::NAME, MCP_CHANNEL, PAGE_CHANNEL];
        let channels = channels.iter().filter(|channel| !without_settings.contains(&channel.name()));
        let channels = channels.map(|channel| (channel.name().to_owned(), Ok(channel.clone()))).collect();
        Self { home, channels: Arc::new(channels), running }
    }

    /// Returns an inspector with the current settings.
    fn now(&self) -> Inspector {
        let runtime = self.running.runtime.get();
        Inspector {
            home: self.home.clone(),
            config: runtime.config.clone(),
            models: runtime.models.models.clone(),
            settings: runtime.settings.clone(),
            channels: self.channels.clone(),
            running: Some(self.running.clone()),
            agents: runtime.agents().clone(),
            secrets: runtime.memory.secrets.clone(),
            runtime: Some(runtime),
            missing: Vec::new(),
        }
    }
}

#[async_trait]
impl Inspect for RunningInspector {
    async fn answer(&self, query: GatewayQuery) -> Result<Value, InspectError> {
        self.now().answer(query).await
    }

    async fn run_tool(&self, run: ManualToolRun, cancel: CancellationToken) -> Result<Value, InspectError> {
        self.now().run_tool(run, cancel).await
    }
}

impl Inspector {
    /// Creates the inspector of a home without a running gateway.
    ///
    /// # Errors
    /// The configuration of the model services is invalid.
    pub fn offline(home: Home, loaded: &LoadedConfig) -> Result<Self, ConfigFaults> {
        crate::llm::install_crypto();
        // A provider without its secret cannot be probed; the other queries do not need the secret.
        let mut whole = loaded.clone();
        whole.config.providers.retain(|name, _| {
            let is_of =
                |key: &str| key.strip_prefix("providers.").is_some_and(|rest| rest.split('.').next() == Some(name));
            !loaded.missing.iter().any(|missing| is_of(&missing.key))
        });
        let models = Arc::new(build_models(&whole, |name| std::env::var(name).ok())?);
        let mut channels = channels::build_each(&loaded.config, &home);
        for missing in &loaded.missing {
            let of = |name: &str| missing.key.starts_with(&format!("channels.{}.", name.replacen(':', ".", 1)));
            for (_, channel) in channels.iter_mut().filter(|(name, _)| of(name)) {
                *channel = Err(missing.wrong.clone());
            }
        }
        let (channels, missing) = (Arc::new(channels), loaded.missing.clone());
        let (agents, faults) = load_agents(loaded, &home);
        if !faults.is_empty() {
            return Err(ConfigFaults(faults));
        }
        Ok(Self {
            home,
            config: Arc::new(loaded.config.clone()),
            models,
            channels,
            running: None,
            agents: Arc::new(agents),
            runtime: None,
            settings: describe_settings(loaded),
            secrets: Arc::new(KnownSecrets::new(configured_secrets(loaded))),
            missing,
        })
    }

    /// Reads the store's part of a result.
    pub(super) async fn overview(&self, since: i64, turns: u32) -> Result<StoreOverview, InspectError> {
        self.read(move |connection| overview(connection, since, turns)).await
    }

    /// Reads from the store; without a store, returns the default.
    pub(super) async fn read<T, F>(&self, query: F) -> Result<T, InspectError>
    where
        T: Default + Send + 'static,
        F: FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    {
        let failed = |error: StoreError| InspectError::Failed(error.to_string());
        match &self.running {
            Some(running) => running.bus.store().read(query).await.map_err(failed),
            // A query does not create a store.
            None if !self.home.database().exists() => Ok(T::default()),
            None => {
                let store = Store::open_to_read(&self.home.database()).map_err(failed)?;
                let found = store.read(query).await;
                store.close().await;
                found.map_err(failed)
            }
        }
    }
}

#[async_trait]
impl Inspect for Inspector {
    async fn answer(&self, query: GatewayQuery) -> Result<Value, InspectError> {
        match query {
            GatewayQuery::Status => self.status().await,
            GatewayQuery::Channels => self.channel_rows().await,
            GatewayQuery::TestChannel(name) => self.test_channel(&name).await,
            GatewayQuery::Models(scope) => self.model_rows(scope).await,
            GatewayQuery::Tools => self.tool_rows(),
            GatewayQuery::Skills => self.skill_rows().await,
            GatewayQuery::Skill(name) => self.skill_text(&name).await,
            GatewayQuery::Agents => Ok(self.agent_rows()),
            GatewayQuery::Agent(name) => self.agent(&name),
            GatewayQuery::McpServers => self.mcp_rows(),
            GatewayQuery::McpTools(name) => self.mcp_tools(&name).await,
            GatewayQuery::TestMcp(name) => self.test_mcp(&name).await,
            GatewayQuery::Prompt { session, message } => self.prompt(session, message).await,
            GatewayQuery::Cost { from, to } => self.cost(from.as_deref(), to.as_deref()).await,
            GatewayQuery::Config => Ok(self.settings.clone()),
            GatewayQuery::Checks => Ok(json!(Box::pin(self.checks()).await)),
        }
    }

    async fn run_tool(&self, run: ManualToolRun, cancel: CancellationToken) -> Result<Value, InspectError> {
        self.run_by_hand(run, cancel).await
    }
}
