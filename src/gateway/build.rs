//! Builds everything from the configuration; nothing runs yet.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use daoyou_channels::cli::{CliChannel, Directory, Front, Language};
use daoyou_channels::webhook::Webhook;
use daoyou_channels::{Channel, ChannelContext, Inbox, SessionKey};
use jiff::tz::TimeZone;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::agent::{
    AgentLoop, FlightRecorder, LaneRunner, Locale, Phrases, SlashCommands, SystemPrompt, prepare_workspace,
};
use crate::bus::{BusInbox, BusSettings, Capacities, ChannelHealth, MessageBus, Notices};
use crate::channel_manager::ChannelManager;
use crate::config::{Config, Faults, Loaded};
use crate::home::{Home, HomeLock};
use crate::http::{self, GatewayDirectory, Hub};
use crate::llm::{Models, OfflineProvider, ProviderFault};
use crate::store::{RetainConfig, Store};
use crate::tools;

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
        let (bus, agent) = build_agent(&home, config, &workspace, models.clone(), options.alone).await?;

        let directory = Arc::new(GatewayDirectory {
            store: bus.store().clone(),
            models: models.clone(),
            model: config.agent.model.clone(),
        });
        let front = match options.front {
            Some(front) => Some(introduce(front, directory.clone(), &workspace).await?),
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
            directory,
            models,
            model: config.agent.model.clone(),
            started: Instant::now(),
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

/// Tells a terminal of this process what it talks to. A model that was asked for by name must be there.
async fn introduce(front: Front, directory: Arc<GatewayDirectory>, workspace: &Path) -> anyhow::Result<Front> {
    let model = match (directory.model(&front.conversation).await, &front.conversation.model) {
        (Err(error), Some(wanted)) => bail!("the model {wanted} cannot be used: {error}"),
        (model, _) => model,
    };
    let banner = banner(&model, workspace, &front);
    Ok(Front { banner, directory, ..front })
}

/// What stands above the first prompt.
pub fn banner(model: &Result<String, String>, workspace: &Path, front: &Front) -> String {
    let version = env!("CARGO_PKG_VERSION");
    let key = front.conversation.key();
    let is_zh = front.language == Language::Zh;
    let model = match model {
        Ok(model) => model.clone(),
        Err(error) if is_zh => format!("无（{error}）"),
        Err(error) => format!("none ({error})"),
    };
    let workspace = workspace.display();
    let mut parts = match front.language {
        Language::En => vec![format!("daoyou {version}"), format!("model {model}"), format!("workspace {workspace}")],
        Language::Zh => vec![format!("道友 {version}"), format!("模型 {model}"), format!("工作区 {workspace}")],
    };
    if key.as_str() != "cli:direct" {
        parts.push(if is_zh { format!("会话 {key}") } else { format!("session {key}") });
    }
    match front.files.count() {
        0 => {}
        files if is_zh => parts.push(format!("{files} 个文件")),
        1 => parts.push("1 file".to_owned()),
        files => parts.push(format!("{files} files")),
    }
    let hint = if is_zh { "/help 列出命令，/exit 离开。" } else { "/help lists the commands, /exit leaves." };
    format!("{}\n{hint}", parts.join(" · "))
}

/// The language of the terminal.
pub fn language(config: &Config) -> Language {
    match config.agent.locale {
        Locale::En => Language::En,
        Locale::Zh => Language::Zh,
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

fn timezone(config: &Config) -> anyhow::Result<TimeZone> {
    match config.agent.timezone.as_str() {
        "" => Ok(TimeZone::system()),
        name => TimeZone::get(name).with_context(|| format!("agent.timezone: {name:?} is no known time zone")),
    }
}

/// What is wrong with a configuration that reading it does not show: what only the areas themselves can say.
pub fn check(loaded: &Loaded, env: &BTreeMap<String, String>) -> Result<(), Faults> {
    build_models(loaded, |name| env.get(name).cloned()).map(drop)
}

fn build_models(loaded: &Loaded, env: impl Fn(&str) -> Option<String>) -> Result<Models, Faults> {
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
) -> anyhow::Result<(Arc<MessageBus>, AgentLoop)> {
    let store = Store::open(&home.database())?;
    let phrases = Phrases::of(config.agent.locale);
    // Not the file's path: the program may be replaced on disk while it runs.
    let exe = PathBuf::from("/proc/self/exe");
    let tools = Arc::new(tools::build(&config.tools, workspace, home.dir(), exe)?);
    let timezone = timezone(config)?;
    let slash = Arc::new(SlashCommands {
        phrases,
        models: models.clone(),
        tools: tools.clone(),
        store: store.clone(),
        timezone: timezone.clone(),
        workspace: workspace.to_owned(),
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
        tools,
        system: SystemPrompt::new(workspace.to_owned(), &config.owner.name),
        slash,
        phrases,
        cancels: Arc::default(),
        flight,
    };
    let agent = AgentLoop::new(Arc::new(runner), alone, waited);
    Ok((bus, agent))
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
