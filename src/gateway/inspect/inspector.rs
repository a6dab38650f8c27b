//! What there is to look at, and who is asked what.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use daoyou_channels::Channel;
use serde_json::{Value, json};

use crate::agent::prepare_workspace;
use crate::bus::{ChannelHealth, MessageBus};
use crate::config::{Config, Faults, Loaded};
use crate::control::{Inspect, InspectError, Question};
use crate::gateway::build;
use crate::home::Home;
use crate::llm::Models;
use crate::store::overview::{Overview, overview};
use crate::store::{Store, StoreError};
use crate::tools::{self, Executor, Replay};

/// Looks at a gateway, or at what would be one.
pub struct Inspector {
    pub(super) home: Home,
    pub(super) config: Config,
    pub(super) models: Arc<Models>,
    /// Those that are switched on, or why one cannot be.
    pub(super) channels: BTreeMap<String, Result<Arc<dyn Channel>, String>>,
    pub(super) live: Option<Live>,
}

/// What only a running gateway has.
pub struct Live {
    pub bus: Arc<MessageBus>,
    pub health: Arc<ChannelHealth>,
    pub tools: Arc<Executor>,
    pub started: Instant,
    /// It serves HTTP; one that runs for a single conversation does not.
    pub serves: bool,
}

impl Inspector {
    /// For a gateway that is being built, with its channels.
    pub fn running(
        home: Home,
        config: &Config,
        models: Arc<Models>,
        channels: &[Arc<dyn Channel>],
        live: Live,
    ) -> Self {
        let channels = channels.iter().map(|channel| (channel.name().to_owned(), Ok(channel.clone()))).collect();
        Self { home, config: config.clone(), models, channels, live: Some(live) }
    }

    /// For a home where no gateway runs.
    ///
    /// # Errors
    /// The model services are configured wrongly.
    pub fn at_rest(home: Home, loaded: &Loaded) -> Result<Self, Faults> {
        crate::llm::install_crypto();
        let models = Arc::new(build::build_models(loaded, |name| std::env::var(name).ok())?);
        let channels = build::each_channel(&loaded.config);
        Ok(Self { home, config: loaded.config.clone(), models, channels, live: None })
    }

    /// The store's part of what is asked.
    pub(super) async fn overview(&self, since: i64, turns: u32) -> Result<Overview, InspectError> {
        let look = move |connection: &_| overview(connection, since, turns);
        let failed = |error: StoreError| InspectError::Failed(error.to_string());
        match &self.live {
            Some(live) => live.bus.store().read(look).await.map_err(failed),
            // Looking makes nothing.
            None if !self.home.database().exists() => Ok(Overview::default()),
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
            return Ok(live.tools.clone());
        }
        let workspace = self.home.workspace(&self.config.agent.workspace);
        let built = tools::build(&self.config.tools, &workspace, self.home.dir(), build::this_program());
        built.map(Arc::new).map_err(|error| error.to_string())
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
                "idempotent": tool.replay() != Replay::Once,
                "aliases": tool.aliases(),
                "schema": spec.parameters,
            })
        });
        Ok(rows.collect())
    }
}

#[async_trait]
impl Inspect for Inspector {
    async fn answer(&self, question: Question) -> Result<Value, InspectError> {
        match question {
            Question::Status => self.status().await,
            Question::Channels => self.channel_rows().await,
            Question::TestChannel(name) => self.test_channel(&name).await,
            Question::Models(ask) => self.model_rows(ask).await,
            Question::Tools => self.tool_rows(),
            Question::Checks => Ok(json!(Box::pin(self.checks()).await)),
        }
    }
}
