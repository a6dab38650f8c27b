//! Builds everything from the configuration; nothing runs yet.

use std::collections::HashSet;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, bail};
use daoyou_channels::cli::{CliChannel, Language, NameDirectory, TerminalSetup};
use daoyou_channels::{ChannelContext, Inbox, SessionKey};
use tokio_util::sync::CancellationToken;

use super::announcer::Announcer;
use super::channels::{self, Channels};
use super::check::{build_models, check_models, check_tools, open_tls};
use super::equip::{
    Equipment, Partners, build_tools, bus_settings, embedder, job_rules, job_terms, memory_terms, secrets,
    slash_commands, timezone, turn_runner,
};
use super::inspect::{self, RunningInspector};
use super::reload::Daemon;
use super::upkeep::repair_modes;
use crate::agent::{AgentLoop, RunningTurns, prepare_workspace};
use crate::bus::{BusInbox, ChannelHealth, MessageBus, WeakBus};
use crate::channel_manager::ChannelManager;
use crate::config::{Config, Loaded};
use crate::cron::{self, CronService};
use crate::home::{Home, HomeLock};
use crate::http::{self, AppState, BoundListener, Server, TokenAuth};
use crate::live::Live;
use crate::llm::Models;
use crate::memory;
use crate::metrics::Metrics;
use crate::phrases::Locale;
use crate::query::GatewayDirectory;
use crate::session::retry_scheduler::RetryScheduler;
use crate::store::{Commit, Committed, Store, StoreError};
use crate::tools::Processes;
use crate::turn::flight_recorder::FlightRecorder;
use crate::turn::middleware::MiddlewareState;

/// What kind of gateway to build.
#[derive(Default)]
pub struct Options {
    /// Run this session's messages only, and open no port: for `chat` and `agent` where no gateway runs.
    pub alone: Option<SessionKey>,
    /// The terminal of this process.
    pub front: Option<TerminalSetup>,
    /// What a gateway that stays has beside: it reads its configuration anew when asked to.
    pub daemon: Option<Daemon>,
    /// The socket to serve on, where one is bound already.
    pub socket: Option<TcpListener>,
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
    pub(super) state: Arc<AppState>,
    pub(super) server: Option<Server>,
    /// None for a single conversation: what is due is the next gateway's.
    pub(super) cron: Option<CronService>,
    pub(super) context: ChannelContext,
    pub(super) stop_serving: CancellationToken,
    /// What the last gateway left is the next one's to judge, not this one's.
    pub(super) is_alone: bool,
    /// The one conversation that it runs then.
    pub(super) alone: Option<SessionKey>,
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
        check_models(loaded, &models)?;
        check_tools(loaded)?;
        let is_alone = options.alone.is_some();
        let listening = listen(loaded, is_alone, options.socket).await?;
        if !is_alone {
            repair_modes(&home).await;
        }
        let workspace = home.workspace(&config.agent.workspace);
        let unprepared = || format!("the workspace {} cannot be prepared", workspace.display());
        prepare_workspace(&workspace).with_context(unprepared)?;
        // The commands on the control socket need no token; it is made for those who will come by TCP.
        home.token()?;
        let (agent, equipment) = build_agent(&home, loaded, &workspace, models.clone(), options.alone.clone()).await?;
        let bus = equipment.runner.get().bus.clone();

        let (directory, cli) = terminals(options.front, &bus, &equipment, &workspace).await?;
        let Channels { running, resting } = channels::build(config, &home, cli.clone(), &equipment.trust, is_alone)?;
        let context = ChannelContext {
            inbox: Arc::new(BusInbox(bus.clone())),
            events: bus.events().clone(),
            shutdown: CancellationToken::new(),
            started: Arc::new(|| {}),
        };
        let health = Arc::new(ChannelHealth::default());
        let parts = inspect::RunningParts {
            bus: bus.clone(),
            health: health.clone(),
            started: Instant::now(),
            serves: listening.as_ref().map(BoundListener::address),
            equipment: equipment.clone(),
        };
        let inspector = RunningInspector::new(home.clone(), &running, parts);
        let cron =
            (!is_alone).then(|| CronService::new(bus.clone(), equipment.rules.clone(), equipment.jobs.cron_handle()));
        let stop_serving = CancellationToken::new();
        let state = Arc::new(AppState {
            inbox: BusInbox(bus.clone()),
            bus: bus.clone(),
            channels: health.clone(),
            cli: cli.clone(),
            directory,
            jobs: equipment.jobs.clone(),
            memory: equipment.memory.clone(),
            inspector: Arc::new(inspector),
            shutdown: stop_serving.clone(),
        });
        let server = listening.map(|listening| {
            let channels = running.iter().filter_map(|channel| channel.routes(&context)).collect();
            let auth = TokenAuth::new(config.gateway.token.clone(), home.clone());
            listening.serve(http::tcp_routes(&state, channels, auth), bus.metrics().clone())
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
            state,
            server,
            cron,
            context,
            stop_serving,
            is_alone,
            alone: options.alone,
        })
    }

    /// Cancelled as soon as a message waits until a model can be reached.
    pub fn rested(&self) -> CancellationToken {
        self.equipment.runner.get().running.retries.rested().clone()
    }

    /// Where the commands of this process hand over messages.
    pub fn inbox(&self) -> Arc<dyn Inbox> {
        Arc::new(BusInbox(self.bus.clone()))
    }
}

/// Builds the terminals: that of this process, if it has one, and those that attach later. Notices for the owner go to them.
async fn terminals(
    front: Option<TerminalSetup>,
    bus: &MessageBus,
    equipment: &Equipment,
    workspace: &Path,
) -> anyhow::Result<(Arc<GatewayDirectory>, Arc<CliChannel>)> {
    let directory = Arc::new(GatewayDirectory {
        store: bus.store().clone(),
        models: equipment.models.clone(),
        model: equipment.model.clone(),
    });
    let cli = Arc::new(CliChannel::new(match front {
        Some(front) => Some(introduce(front, directory.clone(), workspace).await?),
        None => None,
    }));
    let screens = Arc::downgrade(&cli);
    bus.watch_terminals(move || screens.upgrade().is_some_and(|screens| screens.is_open()));
    Ok((directory, cli))
}

/// Tells a terminal of this process what it talks to. A model that was asked for by name must be there.
async fn introduce(
    front: TerminalSetup,
    directory: Arc<GatewayDirectory>,
    workspace: &Path,
) -> anyhow::Result<TerminalSetup> {
    let model = match (directory.model(&front.conversation).await, &front.conversation.model) {
        (Err(error), Some(wanted)) => bail!("the model {wanted} cannot be used: {error}"),
        (model, _) => model,
    };
    let banner = banner(&model, workspace, &front);
    Ok(TerminalSetup { banner, directory, ..front })
}

/// What stands above the first prompt.
pub fn banner(model: &Result<String, String>, workspace: &Path, front: &TerminalSetup) -> String {
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
    match config.agent.locale.resolve() {
        Locale::En => Language::En,
        Locale::Zh => Language::Zh,
    }
}

/// The server stops what no route would take; a webhook may take larger bodies than the others.
fn server_limits(config: &Config) -> http::ServerLimits {
    let usual = http::ServerLimits::default();
    let body_bytes = config.channels.webhook.values().map(|hook| hook.max_body.0).fold(usual.body_bytes, u64::max);
    http::ServerLimits { body_bytes, body_budget: config.gateway.body_budget, ..usual }
}

/// The port, which who runs a single conversation does not open.
async fn listen(loaded: &Loaded, is_alone: bool, socket: Option<TcpListener>) -> anyhow::Result<Option<BoundListener>> {
    if is_alone {
        return Ok(None);
    }
    let settings = server_settings(loaded)?;
    Ok(Some(match socket {
        Some(socket) => BoundListener::from_socket(socket, settings)?,
        None => BoundListener::bind(settings).await.map_err(anyhow::Error::msg)?,
    }))
}

pub(super) fn server_settings(loaded: &Loaded) -> anyhow::Result<http::ServerSettings> {
    let config = &loaded.config.gateway;
    let proxies =
        config.trusted_proxies.iter().map(|text| http::parse_network(text)).collect::<Result<Vec<_>, String>>();
    Ok(http::ServerSettings {
        listen: config.listen_addr().map_err(anyhow::Error::msg)?,
        hosts: http::AllowedHosts::new(&config.hosts),
        proxies: http::TrustedProxies(proxies.map_err(anyhow::Error::msg)?),
        tls: open_tls(loaded)?,
        connections: usize::try_from(config.max_connections).unwrap_or(usize::MAX),
        limits: server_limits(&loaded.config),
    })
}

/// The bus over the home's store, and what runs turns.
async fn build_agent(
    home: &Home,
    loaded: &Loaded,
    workspace: &Path,
    models: Arc<Models>,
    alone: Option<SessionKey>,
) -> anyhow::Result<(AgentLoop, Equipment)> {
    let config = &loaded.config;
    let metrics = Arc::new(Metrics::default());
    let store = open_store(home, metrics.clone())?;
    let desk = cron::JobService::new(
        store.clone(),
        job_terms(config, Arc::new(job_rules(config)?)),
        cron::CronHandle::default(),
    );
    let desk = Arc::new(desk);
    let processes = Processes::open(store.clone(), workspace)
        .with_context(|| format!("the workspace {} cannot be opened", workspace.display()))?;
    let processes = Arc::new(processes);
    let late = WeakBus::default();
    let memory =
        memory::MemoryService::new(store.clone(), memory_terms(config, timezone(config)?, workspace.to_owned()));
    let memory = Arc::new(memory);
    memory.embed_by(embedder(config, &models, &metrics));
    let partners = Partners {
        jobs: Some(desk.clone()),
        processes: Some(processes.clone()),
        memory: Some(memory.clone()),
        bus: late.clone(),
    };
    let tools = build_tools(config, workspace, home, &partners)?;
    let current =
        Arc::new(slash_commands(config, (desk.clone(), memory.clone()), models, tools, workspace, Instant::now())?);
    let slash = Arc::new(Live::new(current.clone()));
    let bus = Arc::new(MessageBus::new(store, bus_settings(config), slash.clone(), metrics));
    late.set(&bus);
    desk.connect_bus(&bus);
    bus.recount().await?;
    let (running, waited) = match alone {
        // The gateway's record is for the next gateway. A user who waits at the terminal is told of an outage at once.
        Some(_) => (RunningTurns::new(RetryScheduler::closed(), FlightRecorder::none()), HashSet::new()),
        None => {
            let (flight, waited) = FlightRecorder::open(&home.flight());
            (RunningTurns::new(RetryScheduler::default(), flight), waited)
        }
    };
    let secrets = secrets(loaded, home)?;
    memory.secrets.set(secrets.clone());
    let runner = turn_runner(config, workspace, current, bus, running, (secrets, MiddlewareState::default()))?;
    let equipment = Equipment::new(config, runner, slash, desk, processes.clone(), memory);
    processes.announce_by(Arc::new(Announcer::new(equipment.runner.clone())));
    let agent = AgentLoop::new(equipment.runner.clone(), alone, waited);
    Ok((agent, equipment))
}

/// The home's store, its commits counted.
fn open_store(home: &Home, metrics: Arc<Metrics>) -> Result<Store, StoreError> {
    let on_commit = move |committed: Committed| match committed.took {
        Some(took) => metrics.store.committed(committed.commit == Commit::Synced, committed.writes, took),
        None => metrics.store.failed(),
    };
    Store::open_to_serve(&home.database(), Box::new(on_commit))
}
