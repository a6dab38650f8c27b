//! Builds everything from the configuration; nothing runs yet.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use anyhow::Context;
use daoyou_channels::cli::{CliChannel, Front};
use daoyou_channels::webhook::Webhook;
use daoyou_channels::{Channel, ChannelContext, Inbox, SessionKey};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::equip::{Equipment, build_tools, bus_settings, lane_runner, slash_commands};
use super::reload::Daemon;
use crate::agent::{AgentLoop, FlightRecorder, prepare_workspace};
use crate::bus::{BusInbox, ChannelHealth, MessageBus};
use crate::channel_manager::ChannelManager;
use crate::config::{Config, Faults, Loaded};
use crate::home::{Home, HomeLock};
use crate::http::{self, Hub};
use crate::live::Live;
use crate::llm::{ModelError, Models, OfflineProvider, ProviderFault};
use crate::store::Store;

/// What kind of gateway to build.
#[derive(Default)]
pub struct Options {
    /// Run this session's messages only, and open no port: for `chat` and `agent` where no gateway runs.
    pub alone: Option<SessionKey>,
    /// The terminal of this process.
    pub front: Option<Front>,
    /// What a gateway that stays has beside: it reads its configuration anew when asked to.
    pub daemon: Option<Daemon>,
}

/// A gateway, built and not yet running.
pub struct Gateway {
    pub(super) home: Home,
    pub(super) _lock: HomeLock,
    pub(super) loaded: Loaded,
    pub(super) workspace: PathBuf,
    pub(super) daemon: Option<Daemon>,
    pub(super) bus: Arc<MessageBus>,
    pub(super) equipment: Equipment,
    pub(super) agent: AgentLoop,
    pub(super) manager: ChannelManager,
    pub(super) cli: Arc<CliChannel>,
    pub(super) hub: Arc<Hub>,
    pub(super) server: Option<(TcpListener, axum::Router)>,
    pub(super) context: ChannelContext,
    pub(super) stop_serving: CancellationToken,
}

impl Gateway {
    /// Builds all parts; nothing runs yet. `lock` is the home's.
    ///
    /// # Errors
    /// What cannot be opened or is configured wrongly, in words for the owner; [`Faults`] where the configuration is to
    /// blame.
    pub async fn build(home: Home, lock: HomeLock, loaded: &Loaded, options: Options) -> anyhow::Result<Self> {
        let config = &loaded.config;
        // First what can be wrong: then nothing has been made.
        crate::llm::install_crypto();
        let models = Arc::new(build_models(loaded, |name| std::env::var(name).ok())?);
        check_model(loaded, &models)?;
        let is_alone = options.alone.is_some();
        let listener = if is_alone {
            None
        } else {
            let listen = config.gateway.listen_addr().map_err(anyhow::Error::msg)?;
            Some(http::bind(listen).await.map_err(anyhow::Error::msg)?)
        };
        let workspace = home.workspace(&config.agent.workspace);
        prepare_workspace(&workspace)
            .with_context(|| format!("the workspace {} cannot be prepared", workspace.display()))?;
        // The commands on the control socket need no token; it is made for those who will come by TCP.
        home.token()?;
        let (agent, equipment) = build_agent(&home, config, &workspace, models.clone(), options.alone).await?;
        let bus = equipment.runner.get().bus.clone();

        let front = match options.front {
            Some(front) => Some(Front { banner: banner(&model_name(&models, config).await, &workspace), ..front }),
            None => None,
        };
        let cli = Arc::new(CliChannel::new(front));
        let Channels { running, resting } = build_channels(config, cli.clone(), is_alone)?;
        let context = ChannelContext {
            inbox: Arc::new(BusInbox(bus.clone())),
            events: bus.events().clone(),
            shutdown: CancellationToken::new(),
            started: Arc::new(|| {}),
        };
        let health = Arc::new(ChannelHealth::default());
        let stop_serving = CancellationToken::new();
        let hub = Arc::new(Hub {
            inbox: BusInbox(bus.clone()),
            bus: bus.clone(),
            channels: health.clone(),
            cli: cli.clone(),
            models: equipment.models.clone(),
            model: equipment.model.clone(),
            started: Instant::now(),
            shutdown: stop_serving.clone(),
        });
        let server = listener.map(|listener| {
            let routes = running.iter().filter_map(|channel| channel.routes(&context)).collect();
            (listener, http::router(hub.clone(), routes))
        });
        Ok(Self {
            home,
            _lock: lock,
            loaded: loaded.clone(),
            workspace,
            daemon: options.daemon,
            equipment,
            agent,
            manager: ChannelManager::new(bus.clone(), running, resting, health),
            bus,
            cli,
            hub,
            server,
            context,
            stop_serving,
        })
    }

    /// Where the commands of this process hand over messages.
    pub fn inbox(&self) -> Arc<dyn Inbox> {
        Arc::new(BusInbox(self.bus.clone()))
    }
}

/// What stands above the first prompt.
pub fn banner(model: &str, workspace: &Path) -> String {
    let version = env!("CARGO_PKG_VERSION");
    format!(
        "daoyou {version} · model {model} · workspace {}\n/help lists the commands, /exit leaves.",
        workspace.display()
    )
}

async fn model_name(models: &Models, config: &Config) -> String {
    match models.resolve(&config.agent.model).await {
        Ok(choice) => choice.to_string(),
        Err(error) => format!("none ({error})"),
    }
}

/// What is wrong with a configuration that reading it does not show: what only the areas themselves can say.
pub fn check(loaded: &Loaded, env: &BTreeMap<String, String>) -> Result<(), Faults> {
    let models = build_models(loaded, |name| env.get(name).cloned())?;
    check_model(loaded, &models)
}

/// Whether the model of the configuration has a provider.
pub(super) fn check_model(loaded: &Loaded, models: &Models) -> Result<(), Faults> {
    let wrong = |error: ModelError| Faults(vec![loaded.fault("agent.model", error.to_string(), "")]);
    models.check_provider(&loaded.config.agent.model).map_err(wrong)
}

pub(super) fn build_models(loaded: &Loaded, env: impl Fn(&str) -> Option<String>) -> Result<Models, Faults> {
    let fault = |fault: ProviderFault| loaded.fault(&fault.key, fault.message, "");
    Models::build(&loaded.config.providers, env, Arc::new(OfflineProvider))
        .map_err(|faults| Faults(faults.into_iter().map(fault).collect()))
}

/// The bus over the home's store, and what runs turns.
async fn build_agent(
    home: &Home,
    config: &Config,
    workspace: &Path,
    models: Arc<Models>,
    alone: Option<SessionKey>,
) -> anyhow::Result<(AgentLoop, Equipment)> {
    let store = Store::open(&home.database())?;
    let tools = build_tools(config, workspace, home)?;
    let current = Arc::new(slash_commands(config, store.clone(), models, tools, Instant::now())?);
    let slash = Arc::new(Live::new(current.clone()));
    let bus = Arc::new(MessageBus::new(store, bus_settings(config), slash.clone()));
    bus.recount().await?;
    let (flight, waited) = match alone {
        // The gateway's record is for the next gateway.
        Some(_) => (FlightRecorder::none(), HashSet::new()),
        None => FlightRecorder::open(&home.flight()),
    };
    let runner = lane_runner(config, workspace, current, bus, Arc::new(flight));
    let equipment = Equipment::new(config, runner, slash);
    let agent = AgentLoop::new(equipment.runner.clone(), alone, waited);
    Ok((agent, equipment))
}

struct Channels {
    running: Vec<Arc<dyn Channel>>,
    /// The names of those that are configured but rest.
    resting: BTreeSet<String>,
}

fn build_channels(config: &Config, cli: Arc<CliChannel>, is_alone: bool) -> anyhow::Result<Channels> {
    let mut channels = Channels { running: vec![cli], resting: BTreeSet::new() };
    let listen = config.gateway.listen_addr().map_err(anyhow::Error::msg)?;
    for (name, webhook) in &config.channels.webhook {
        if webhook.enabled && !is_alone {
            let webhook = Webhook::new(name, webhook.clone(), listen.ip().is_loopback()).map_err(anyhow::Error::msg)?;
            channels.running.push(Arc::new(webhook));
        } else {
            channels.resting.insert(format!("webhook:{name}"));
        }
    }
    Ok(channels)
}
