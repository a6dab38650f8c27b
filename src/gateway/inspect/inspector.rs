//! What there is to look at, and who is asked what.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use daoyou_channels::Channel;
use serde_json::{Value, json};

use crate::agent::prepare_workspace;
use crate::bus::{ChannelHealth, MessageBus};
use crate::config::{Config, Fault, Faults, Loaded};
use crate::gateway::channels;
use crate::gateway::check::build_models;
use crate::gateway::equip::{Equipment, Partners, build_tools};
use crate::home::Home;
use crate::llm::Models;
use crate::query::{GatewayQuery, Inspect, InspectError};
use crate::store::overview::{Overview, overview};
use crate::store::{Connection, Store, StoreError};
use crate::tools::{Executor, Replay};

/// Looks at a gateway, or at what would be one, as it is now.
pub struct Inspector {
    pub(super) home: Home,
    pub(super) config: Arc<Config>,
    pub(super) models: Arc<Models>,
    pub(super) channels: Arc<EachChannel>,
    pub(super) live: Option<Live>,
    /// Secrets that are missing, without which no gateway starts.
    pub(super) missing: Vec<Fault>,
}

/// The channels that are switched on, or why one cannot be.
type EachChannel = BTreeMap<String, Result<Arc<dyn Channel>, String>>;

/// What only a running gateway has.
#[derive(Clone)]
pub struct Live {
    pub bus: Arc<MessageBus>,
    pub health: Arc<ChannelHealth>,
    pub started: Instant,
    /// Where it serves HTTP, whatever the configuration says by now; one that runs for a single conversation does not.
    pub serves: Option<SocketAddr>,
    /// What a reload replaces.
    pub equipment: Equipment,
}

/// Answers for a running gateway, each question with the settings of that moment.
pub struct RunningInspector {
    home: Home,
    channels: Arc<EachChannel>,
    live: Live,
}

impl RunningInspector {
    /// For a gateway that is being built, with its channels.
    pub fn new(home: Home, channels: &[Arc<dyn Channel>], live: Live) -> Self {
        let channels = channels.iter().map(|channel| (channel.name().to_owned(), Ok(channel.clone()))).collect();
        Self { home, channels: Arc::new(channels), live }
    }
}

#[async_trait]
impl Inspect for RunningInspector {
    async fn answer(&self, question: GatewayQuery) -> Result<Value, InspectError> {
        let inspector = Inspector {
            home: self.home.clone(),
            config: self.live.equipment.config.get(),
            models: self.live.equipment.models.get(),
            channels: self.channels.clone(),
            live: Some(self.live.clone()),
            missing: Vec::new(),
        };
        inspector.answer(question).await
    }
}

impl Inspector {
    /// For a home where no gateway runs.
    ///
    /// # Errors
    /// The model services are configured wrongly.
    pub fn offline(home: Home, loaded: &Loaded) -> Result<Self, Faults> {
        crate::llm::install_crypto();
        // Without its secret a provider is none that can be asked; what else there is to see does not depend on it.
        let mut whole = loaded.clone();
        whole.config.providers.retain(|name, _| {
            let is_of =
                |key: &str| key.strip_prefix("providers.").is_some_and(|rest| rest.split('.').next() == Some(name));
            !loaded.missing.iter().any(|missing| is_of(&missing.key))
        });
        let models = Arc::new(build_models(&whole, |name| std::env::var(name).ok())?);
        let mut channels = channels::each(&loaded.config, &home);
        for missing in &loaded.missing {
            let of = |name: &str| missing.key.starts_with(&format!("channels.{}.", name.replacen(':', ".", 1)));
            for (_, channel) in channels.iter_mut().filter(|(name, _)| of(name)) {
                *channel = Err(missing.wrong.clone());
            }
        }
        let (channels, missing) = (Arc::new(channels), loaded.missing.clone());
        Ok(Self { home, config: Arc::new(loaded.config.clone()), models, channels, live: None, missing })
    }

    /// The store's part of what is asked.
    pub(super) async fn overview(&self, since: i64, turns: u32) -> Result<Overview, InspectError> {
        self.read(move |connection| overview(connection, since, turns)).await
    }

    /// Looks into the store; where there is none yet, what is found is nothing.
    pub(super) async fn read<T, F>(&self, look: F) -> Result<T, InspectError>
    where
        T: Default + Send + 'static,
        F: FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    {
        let failed = |error: StoreError| InspectError::Failed(error.to_string());
        match &self.live {
            Some(live) => live.bus.store().read(look).await.map_err(failed),
            // Looking makes nothing.
            None if !self.home.database().exists() => Ok(T::default()),
            None => {
                let store = Store::open(&self.home.database()).map_err(failed)?;
                let found = store.read(look).await;
                store.close().await;
                found.map_err(failed)
            }
        }
    }

    /// The gateway's tools, or those it would have; its workspace must be there.
    pub(super) fn tools(&self) -> Result<Arc<Executor>, String> {
        if let Some(live) = &self.live {
            return Ok(live.equipment.runner.get().tools.clone());
        }
        let workspace = self.home.workspace(&self.config.agent.workspace);
        build_tools(&self.config, &workspace, &self.home, &Partners::default()).map_err(|error| error.to_string())
    }

    fn tool_rows(&self) -> Result<Value, InspectError> {
        let failed = |error: String| InspectError::Failed(error);
        if self.live.is_none() {
            let workspace = self.home.workspace(&self.config.agent.workspace);
            prepare_workspace(&workspace).map_err(|error| failed(error.to_string()))?;
        }
        let tools = self.tools().map_err(failed)?;
        let rows = tools.registry().all().map(|(tool, enabled)| {
            let spec = tool.spec();
            json!({
                "name": spec.name,
                "description": spec.description,
                "enabled": enabled,
                // Of a tool that runs others it depends on which.
                "idempotent": tool.replay() != Replay::Once && tool.members(&Value::Null).is_empty(),
                "aliases": tool.aliases(),
                "schema": spec.parameters,
            })
        });
        Ok(rows.collect())
    }
}

#[async_trait]
impl Inspect for Inspector {
    async fn answer(&self, question: GatewayQuery) -> Result<Value, InspectError> {
        match question {
            GatewayQuery::Status => self.status().await,
            GatewayQuery::Channels => self.channel_rows().await,
            GatewayQuery::TestChannel(name) => self.test_channel(&name).await,
            GatewayQuery::Models(scope) => self.model_rows(scope).await,
            GatewayQuery::Tools => self.tool_rows(),
            GatewayQuery::Checks => Ok(json!(Box::pin(self.checks()).await)),
        }
    }
}
