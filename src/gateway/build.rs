//! Builds everything from the configuration; nothing runs yet.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use daoyou_channels::cli::{CliChannel, Front};
use daoyou_channels::webhook::{Webhook, WebhookConfig};
use daoyou_channels::{Channel, ChannelContext, Inbox, SessionKey};
use jiff::tz::TimeZone;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::inspect::{Inspector, Live};
use crate::agent::{AgentLoop, FlightRecorder, LaneRunner, Phrases, SlashCommands, SystemPrompt, prepare_workspace};
use crate::bus::{BusInbox, BusSettings, Capacities, ChannelHealth, MessageBus, Notices};
use crate::channel_manager::ChannelManager;
use crate::config::{Config, Faults, Loaded};
use crate::home::{Home, HomeLock};
use crate::http::{self, Hub};
use crate::llm::{Models, OfflineProvider, ProviderFault};
use crate::store::{RetainConfig, Store};
use crate::tools::{self, Executor};

/// What kind of gateway to build.
#[derive(Default)]
pub struct Options {
    /// Run this session's messages only, and open no port: for `chat` and `agent` where no gateway runs.
    pub alone: Option<SessionKey>,
    /// The terminal of this process.
    pub front: Option<Front>,
}

/// A gateway, built and not yet running.
pub struct Gateway {
    pub(super) home: Home,
    pub(super) _lock: HomeLock,
    pub(super) drain_timeout: Duration,
    pub(super) retain: RetainConfig,
    pub(super) bus: Arc<MessageBus>,
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
        let workspace = home.workspace(&config.agent.workspace);
        prepare_workspace(&workspace)
            .with_context(|| format!("the workspace {} cannot be prepared", workspace.display()))?;
        // The commands on the control socket need no token; it is made for those who will come by TCP.
        home.token()?;
        crate::llm::install_crypto();
        let models = Arc::new(build_models(loaded, |name| std::env::var(name).ok())?);
        let is_alone = options.alone.is_some();
        let (bus, agent, tools) = build_agent(&home, config, &workspace, models.clone(), options.alone).await?;

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
        let live = Live { bus: bus.clone(), health: health.clone(), tools, started: Instant::now(), serves: !is_alone };
        let inspector = Inspector::running(home.clone(), config, models.clone(), &running, live);
        let stop_serving = CancellationToken::new();
        let hub = Arc::new(Hub {
            inbox: BusInbox(bus.clone()),
            bus: bus.clone(),
            channels: health.clone(),
            cli: cli.clone(),
            models,
            model: config.agent.model.clone(),
            inspect: Arc::new(inspector),
            shutdown: stop_serving.clone(),
        });
        let server = if is_alone {
            None
        } else {
            let routes = running.iter().filter_map(|channel| channel.routes(&context)).collect();
            let listen = config.gateway.listen_addr().map_err(anyhow::Error::msg)?;
            Some((http::bind(listen).await.map_err(anyhow::Error::msg)?, http::router(hub.clone(), routes)))
        };
        Ok(Self {
            home,
            _lock: lock,
            drain_timeout: config.gateway.drain_timeout.0,
            retain: config.store.retain.clone(),
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

fn capacities(config: &Config) -> Capacities {
    let size = |value: u32| usize::try_from(value).unwrap_or(usize::MAX);
    Capacities {
        session: size(config.gateway.session_capacity),
        inbound: size(config.gateway.inbound_capacity),
        outbound: size(config.gateway.outbound_capacity),
    }
}

fn notices(config: &Config, phrases: &Phrases) -> Option<Notices> {
    let (channel, chat_id) = config.owner.notify.split_once(':')?;
    // A webhook's name holds a colon itself: `webhook:NAME:CHAT`.
    let (channel, chat_id) = match (channel, chat_id.split_once(':')) {
        ("webhook", Some((name, chat_id))) => (format!("webhook:{name}"), chat_id),
        _ => (channel.to_owned(), chat_id),
    };
    Some(Notices { channel, chat_id: chat_id.to_owned(), dead_letter: phrases.dead_letter })
}

/// The owner's time zone.
pub(super) fn timezone(config: &Config) -> anyhow::Result<TimeZone> {
    match config.agent.timezone.as_str() {
        "" => Ok(TimeZone::system()),
        name => TimeZone::get(name).with_context(|| format!("agent.timezone: {name:?} is no known time zone")),
    }
}

/// What is wrong with a configuration that reading it does not show: what only the areas themselves can say.
pub fn check(loaded: &Loaded, env: &BTreeMap<String, String>) -> Result<(), Faults> {
    build_models(loaded, |name| env.get(name).cloned()).map(drop)
}

/// The services and `offline`; `env` reads the environment.
pub(super) fn build_models(loaded: &Loaded, env: impl Fn(&str) -> Option<String>) -> Result<Models, Faults> {
    let fault = |fault: ProviderFault| loaded.fault(&fault.key, fault.message, "");
    Models::build(&loaded.config.providers, env, Arc::new(OfflineProvider))
        .map_err(|faults| Faults(faults.into_iter().map(fault).collect()))
}

/// The bus over the home's store, and the loop that runs turns.
async fn build_agent(
    home: &Home,
    config: &Config,
    workspace: &Path,
    models: Arc<Models>,
    alone: Option<SessionKey>,
) -> anyhow::Result<(Arc<MessageBus>, AgentLoop, Arc<Executor>)> {
    let store = Store::open(&home.database())?;
    let phrases = Phrases::of(config.agent.locale);
    let tools = Arc::new(tools::build(&config.tools, workspace, home.dir(), this_program())?);
    let timezone = timezone(config)?;
    let slash = Arc::new(SlashCommands {
        phrases,
        models: models.clone(),
        tools: tools.clone(),
        store: store.clone(),
        timezone: timezone.clone(),
        started: Instant::now(),
        configured_model: config.agent.model.clone(),
    });
    let settings = BusSettings {
        capacities: capacities(config),
        reserve: config.store.reserve.0.0,
        drain_timeout: config.gateway.drain_timeout.0,
        owners: config.owner.identities.iter().cloned().collect(),
        notices: notices(config, phrases),
    };
    let bus = Arc::new(MessageBus::new(store, settings, slash.clone()));
    bus.recount().await?;
    let lanes = usize::try_from(config.agent.max_concurrent_turns).unwrap_or(usize::MAX);
    let (flight, waited) = match alone {
        // The gateway's record is for the next gateway.
        Some(_) => (FlightRecorder::none(), HashSet::new()),
        None => FlightRecorder::open(&home.flight(), lanes),
    };
    let runner = LaneRunner {
        bus: bus.clone(),
        config: config.agent.clone(),
        timezone,
        models,
        tools: tools.clone(),
        system: SystemPrompt::new(workspace.to_owned(), &config.owner.name),
        slash,
        phrases,
        cancels: Arc::default(),
        flight,
    };
    let agent = AgentLoop::new(Arc::new(runner), alone, waited);
    Ok((bus, agent, tools))
}

/// Not the file's path: the program may be replaced on disk while it runs.
pub(super) fn this_program() -> PathBuf {
    PathBuf::from("/proc/self/exe")
}

struct Channels {
    running: Vec<Arc<dyn Channel>>,
    /// The names of those that are configured but rest.
    resting: BTreeSet<String>,
}

fn build_channels(config: &Config, cli: Arc<CliChannel>, is_alone: bool) -> anyhow::Result<Channels> {
    let mut channels = Channels { running: vec![cli], resting: BTreeSet::new() };
    for (name, webhook) in &config.channels.webhook {
        if webhook.enabled && !is_alone {
            channels.running.push(build_webhook(config, name, webhook).map_err(anyhow::Error::msg)?);
        } else {
            channels.resting.insert(format!("webhook:{name}"));
        }
    }
    Ok(channels)
}

fn build_webhook(config: &Config, name: &str, webhook: &WebhookConfig) -> Result<Arc<dyn Channel>, String> {
    let listen = config.gateway.listen_addr()?;
    Ok(Arc::new(Webhook::new(name, webhook.clone(), listen.ip().is_loopback())?))
}

/// Each channel that is switched on, built for itself alone, or why it cannot be.
pub(super) fn each_channel(config: &Config) -> BTreeMap<String, Result<Arc<dyn Channel>, String>> {
    let cli: Arc<dyn Channel> = Arc::new(CliChannel::new(None));
    let hooks = config.channels.webhook.iter().filter(|(_, hook)| hook.enabled);
    let hooks = hooks.map(|(name, hook)| (format!("webhook:{name}"), build_webhook(config, name, hook)));
    std::iter::once(("cli".to_owned(), Ok(cli))).chain(hooks).collect()
}
