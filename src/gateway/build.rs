//! Builds all parts from the configuration; nothing runs yet.

use std::collections::HashSet;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, bail};
use daoyou_channels::api;
use daoyou_channels::cli::{CliChannel, Language, NameDirectory, TerminalSetup};
use daoyou_channels::outgoing::OutgoingFiles;
use daoyou_channels::settings::size;
use daoyou_channels::trust::TrustLists;
use daoyou_channels::{ChannelContext, Inbox, SessionKey};
use jiff::Timestamp;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::announcer::ProcessAnnouncer;
use super::api::ApiAccess;
use super::channels::{self, Channels};
use super::check::{build_models, check_models, check_tools, open_tls};
use super::inspect::{self, RunningInspector};
use super::reload::ReloadSource;
use super::runtime::{FixedParts, Runtime, unopened};
use super::settings::{job_context, memory_settings, page_address};
use super::upkeep::repair_modes;
use crate::agent::{AgentLoop, RunningTurns, prepare_workspace};
use crate::bus::{BusInbox, ChannelHealth, MessageBus, WeakBus};
use crate::channel_manager::ChannelManager;
use crate::config::{Config, LoadedConfig};
use crate::cron::{CronHandle, CronService, JobService};
use crate::home::{Home, HomeLock};
use crate::http::{self, AppState, Authenticator, BoundListener, FileFolders, PageHub, Server};
use crate::live::Live;
use crate::llm::{Models, OFFLINE};
use crate::memory::MemoryService;
use crate::metrics::Metrics;
use crate::profiles::AgentDirectory;
use crate::query::GatewayDirectory;
use crate::session::retry_scheduler::RetryScheduler;
use crate::store::{Durability, GroupCommit, Store, StoreError};
use crate::tools::Processes;
use crate::turn::flight_recorder::FlightRecorder;
use crate::turn::middleware::MiddlewareState;

/// The kind of gateway to build.
#[derive(Default)]
pub struct Options {
    /// Run the messages of this session only, and open no port: for `chat` and `agent` when no gateway is running.
    pub only_session: Option<SessionKey>,
    /// The terminal of this process.
    pub terminal: Option<TerminalSetup>,
    /// Set for a daemon, which reloads its configuration on request.
    pub reload: Option<ReloadSource>,
    /// The socket to serve on, if it is already bound.
    pub socket: Option<TcpListener>,
}

/// A gateway that is built but not running yet.
pub struct Gateway {
    pub(super) _lock: HomeLock,
    pub(super) loaded: LoadedConfig,
    pub(super) reload: Option<ReloadSource>,
    pub(super) bus: Arc<MessageBus>,
    pub(super) fixed: FixedParts,
    pub(super) runtime: Arc<Live<Runtime>>,
    pub(super) agent: AgentLoop,
    pub(super) manager: ChannelManager,
    pub(super) cli: Arc<CliChannel>,
    pub(super) state: Arc<AppState>,
    pub(super) server: Option<Server>,
    /// `None` for a gateway of a single conversation: the next full gateway runs the due jobs.
    pub(super) cron: Option<CronService>,
    pub(super) context: ChannelContext,
    pub(super) stop_serving: CancellationToken,
    /// The only session of this gateway. The gateway leaves all other unfinished work to the next one.
    pub(super) only_session: Option<SessionKey>,
}

/// Returns the lists of trusted senders. They follow a reload.
fn trust_lists(runtime: &Arc<Live<Runtime>>) -> TrustLists {
    let runtime = runtime.clone();
    TrustLists::following(move || runtime.get().trust.clone())
}

fn channel_context(bus: &Arc<MessageBus>) -> ChannelContext {
    ChannelContext {
        inbox: Arc::new(BusInbox(bus.clone())),
        events: bus.events().clone(),
        shutdown: CancellationToken::new(),
        started: Arc::new(|| {}),
        impaired: Arc::new(|_| {}),
    }
}

impl Gateway {
    /// Builds all parts; nothing runs yet. `lock` is the lock of `home`.
    ///
    /// # Errors
    /// A part cannot be opened, or the configuration is invalid ([`ConfigFaults`]).
    pub async fn build(home: Home, lock: HomeLock, loaded: &LoadedConfig, options: Options) -> anyhow::Result<Self> {
        let config = &loaded.config;
        // All checks come first, so that a faulty configuration creates nothing.
        crate::llm::install_crypto();
        let models = Arc::new(build_models(loaded, |name| std::env::var(name).ok())?);
        check_models(loaded, &models)?;
        check_tools(loaded)?;
        let is_alone = options.only_session.is_some();
        let listening = listen(loaded, is_alone, options.socket).await?;
        if !is_alone {
            repair_modes(&home).await;
        }
        let workspace = home.workspace(&config.agent.workspace);
        let unprepared = || format!("the workspace {} cannot be prepared", workspace.display());
        prepare_workspace(&workspace).with_context(unprepared)?;
        // Commands on the control socket need no token; clients of the HTTP server do.
        home.token()?;
        let AgentParts { agent, runtime, fixed, bus, commits } =
            build_agent(&home, loaded, workspace, models, options.only_session.clone()).await?;
        if is_alone && options.terminal.is_none() {
            fixed.processes.set_short_lived();
        }

        let (directory, cli) = terminals(options.terminal, &bus, &runtime, &fixed.workspace).await?;
        if !is_alone && names_no_model(config) && models_are_missing(&runtime).await {
            tracing::warn!("no model is set up, so the built-in responder answers: connect one with `daoyou init`");
        }
        let api = (!is_alone).then(|| ApiAccess { runtime: runtime.clone(), inbox: BusInbox(bus.clone()) });
        let Channels { running, disabled } = channels::build(config, &home, cli.clone(), &trust_lists(&runtime), api)?;
        let context = channel_context(&bus);
        let health = Arc::new(ChannelHealth::default());
        let parts = inspect::RunningParts {
            bus: bus.clone(),
            health: health.clone(),
            started: Instant::now(),
            serves: listening.as_ref().map(BoundListener::address),
            runtime: runtime.clone(),
        };
        let inspector = RunningInspector::new(home.clone(), &running, parts);
        let cron_settings = runtime.part(|runtime| &runtime.jobs.context.settings);
        let cron = (!is_alone).then(|| CronService::new(bus.clone(), cron_settings, fixed.jobs.cron.clone()));
        let stop_serving = CancellationToken::new();
        let port = listening.as_ref().map_or(0, |listening| listening.address().port());
        let state = Arc::new(AppState {
            page: page_hub(&bus, commits, stop_serving.clone()),
            folders: Arc::new(FileFolders {
                workspace: fixed.workspace.clone(),
                outgoing: OutgoingFiles::of_home(home.dir()),
            }),
            auth: Authenticator::new(config.gateway.token.clone(), home, bus.store().clone(), port),
            address: listening.as_ref().map(|listening| page_address(config, listening.address())),
            started: Timestamp::now(),
            inbox: BusInbox(bus.clone()),
            bus: bus.clone(),
            channels: health.clone(),
            cli: cli.clone(),
            directory,
            jobs: runtime.part(|runtime| &runtime.jobs),
            memory: runtime.part(|runtime| &runtime.memory),
            mcp: runtime.part(|runtime| &runtime.mcp),
            inspector: Arc::new(inspector),
            shutdown: stop_serving.clone(),
        });
        let server = listening
            .map(|listening| listening.serve(http::tcp_routes(&state, &running, &context), bus.metrics().clone()));
        Ok(Self {
            _lock: lock,
            loaded: loaded.clone(),
            reload: options.reload,
            fixed,
            runtime,
            agent,
            manager: ChannelManager::new(bus.clone(), running, disabled, health),
            bus,
            cli,
            state,
            server,
            cron,
            context,
            stop_serving,
            only_session: options.only_session,
        })
    }

    /// Returns a token that is cancelled as soon as a turn is parked, because it waits for a model or a person.
    pub fn parked(&self) -> CancellationToken {
        self.runtime.get().runner().running.retries.has_parked().clone()
    }

    /// Returns the inbox for messages of this process's commands.
    pub fn inbox(&self) -> Arc<dyn Inbox> {
        Arc::new(BusInbox(self.bus.clone()))
    }
}

/// Builds the events of pages. An open page shows notices if no terminal does.
fn page_hub(bus: &MessageBus, commits: Arc<Notify>, stopping: CancellationToken) -> Arc<PageHub> {
    let page = PageHub::new(bus.events().clone(), bus.store().clone(), commits, stopping);
    let pages = Arc::downgrade(&page);
    bus.watch_pages(move || pages.upgrade().is_some_and(|pages| pages.is_open()));
    page
}

/// Builds the channel of terminals: that of this process, if it has one, and those that attach later.
async fn terminals(
    terminal: Option<TerminalSetup>,
    bus: &MessageBus,
    runtime: &Arc<Live<Runtime>>,
    workspace: &Path,
) -> anyhow::Result<(Arc<GatewayDirectory>, Arc<CliChannel>)> {
    let models = runtime.part(|runtime| &runtime.models);
    let directory = Arc::new(GatewayDirectory { store: bus.store().clone(), models });
    let cli = Arc::new(CliChannel::new(match terminal {
        Some(terminal) => {
            Some(with_banner(terminal, directory.clone(), workspace, names_no_model(&runtime.get().config)).await?)
        }
        None => None,
    }));
    let terminals = Arc::downgrade(&cli);
    bus.watch_terminals(move || terminals.upgrade().is_some_and(|terminals| terminals.is_open()));
    Ok((directory, cli))
}

/// Sets the banner and the directory of this process's terminal. A model that was asked for by name must exist.
async fn with_banner(
    terminal: TerminalSetup,
    directory: Arc<GatewayDirectory>,
    workspace: &Path,
    is_automatic: bool,
) -> anyhow::Result<TerminalSetup> {
    let model = match (directory.model(&terminal.conversation).await, &terminal.conversation.model) {
        (Err(error), Some(wanted)) => bail!("the model {wanted} cannot be used: {error}"),
        (model, _) => model,
    };
    let banner = banner(&model, workspace, &terminal, is_automatic);
    Ok(TerminalSetup { banner, directory: Some(directory), ..terminal })
}

/// Returns true if the configuration names no model, so that the gateway chooses among the models that it finds.
pub fn names_no_model(config: &Config) -> bool {
    matches!(config.agent.model.as_str(), "" | "auto")
}

/// Returns true if only the built-in responder was found.
async fn models_are_missing(runtime: &Live<Runtime>) -> bool {
    let models = runtime.get().models.models.clone();
    models.resolve("auto").await.is_ok_and(|choice| choice.provider.name() == OFFLINE)
}

/// Returns the text above the first prompt. `is_automatic` means that the configuration names no model.
pub fn banner(
    model: &Result<String, String>,
    workspace: &Path,
    terminal: &TerminalSetup,
    is_automatic: bool,
) -> String {
    let version = env!("CARGO_PKG_VERSION");
    let key = terminal.conversation.key();
    let is_zh = terminal.language == Language::Zh;
    let is_missing = is_automatic && model.as_ref().is_ok_and(|model| model == OFFLINE);
    let model = match model {
        Ok(model) => model.clone(),
        Err(error) if is_zh => format!("无（{error}）"),
        Err(error) => format!("none ({error})"),
    };
    let workspace = workspace.display();
    let mut parts = match terminal.language {
        Language::En => vec![format!("daoyou {version}"), format!("model {model}"), format!("workspace {workspace}")],
        Language::Zh => vec![format!("道友 {version}"), format!("模型 {model}"), format!("工作区 {workspace}")],
    };
    if key.as_str() != "cli:direct" {
        parts.push(if is_zh { format!("会话 {key}") } else { format!("session {key}") });
    }
    match terminal.files.count() {
        0 => {}
        files if is_zh => parts.push(format!("{files} 个文件")),
        1 => parts.push("1 file".to_owned()),
        files => parts.push(format!("{files} files")),
    }
    let hint = if is_zh { "/help 列出命令，/exit 离开。" } else { "/help lists the commands, /exit leaves." };
    let set_up = match (is_missing, is_zh) {
        (false, _) => "",
        (true, false) => "\nNo model is set up yet: `daoyou init` connects one.",
        (true, true) => "\n尚未设置模型：运行 `daoyou init` 连接模型。",
    };
    format!("{}{set_up}\n{hint}", parts.join(" · "))
}

/// Returns the limits of the server. Imports, clients of `/v1` and webhooks may send larger bodies than other routes; the server
/// rejects a body that is too large for every route.
fn server_limits(config: &Config) -> http::ServerLimits {
    let usual = http::ServerLimits::default();
    let own = usual.body_bytes.max(http::IMPORT_BODY_LIMIT as u64).max(api::BODY_LIMIT as u64);
    let body_bytes = config.channels.webhook.values().map(|hook| hook.max_body.0).fold(own, u64::max);
    http::ServerLimits { body_bytes, body_budget: config.gateway.body_budget, ..usual }
}

/// Binds the port, unless the gateway runs a single conversation.
async fn listen(
    loaded: &LoadedConfig,
    is_alone: bool,
    socket: Option<TcpListener>,
) -> anyhow::Result<Option<BoundListener>> {
    if is_alone {
        return Ok(None);
    }
    let settings = server_settings(loaded)?;
    Ok(Some(match socket {
        Some(socket) => BoundListener::from_socket(socket, settings)?,
        None => BoundListener::bind(settings).await.map_err(anyhow::Error::msg)?,
    }))
}

pub(super) fn server_settings(loaded: &LoadedConfig) -> anyhow::Result<http::ServerSettings> {
    let config = &loaded.config.gateway;
    let proxies =
        config.trusted_proxies.iter().map(|text| http::parse_network(text)).collect::<Result<Vec<_>, String>>();
    Ok(http::ServerSettings {
        listen: config.listen_addr().map_err(anyhow::Error::msg)?,
        hosts: http::AllowedHosts::new(&config.hosts),
        proxies: http::TrustedProxies(proxies.map_err(anyhow::Error::msg)?),
        tls: open_tls(loaded)?,
        connections: size(config.max_connections),
        limits: server_limits(&loaded.config),
    })
}

/// The bus, and the parts that run turns.
struct AgentParts {
    agent: AgentLoop,
    runtime: Arc<Live<Runtime>>,
    fixed: FixedParts,
    bus: Arc<MessageBus>,
    /// Notified at each commit of the store.
    commits: Arc<Notify>,
}

/// Builds the store, the first snapshot, the bus and the agent loop.
async fn build_agent(
    home: &Home,
    loaded: &LoadedConfig,
    workspace: PathBuf,
    models: Arc<Models>,
    only_session: Option<SessionKey>,
) -> anyhow::Result<AgentParts> {
    let config = &loaded.config;
    let metrics = Arc::new(Metrics::default());
    let commits = Arc::new(Notify::new());
    let store = open_store(home, metrics.clone(), commits.clone())?;
    let processes = Processes::open(store.clone(), &workspace).with_context(|| unopened(&workspace))?;
    let weak_bus = WeakBus::default();
    let fixed = FixedParts {
        home: home.clone(),
        jobs: JobService::new(
            store.clone(),
            job_context(config, &AgentDirectory::default())?,
            CronHandle::default(),
            weak_bus.clone(),
        ),
        memory: MemoryService::new(store.clone(), memory_settings(config, workspace.clone())?),
        workspace,
        metrics: metrics.clone(),
        processes: Arc::new(processes),
        bus: weak_bus,
        started: Instant::now(),
        mcp_changed: Arc::default(),
    };
    let runtime = Arc::new(Live::new(Runtime::new(loaded, models, &fixed, Vec::new(), None)?));
    let bus = Arc::new(MessageBus::new(store, runtime.part(|runtime| &runtime.bus), metrics));
    fixed.bus.set(&bus);
    bus.recount().await?;
    let (running, waited) = match only_session {
        // The flight record belongs to the next gateway. A user who waits at the terminal hears of an outage at once.
        Some(_) => (RunningTurns::new(RetryScheduler::closed(), FlightRecorder::none()), HashSet::new()),
        None => {
            let (flight, waited) = FlightRecorder::open(&home.flight());
            (RunningTurns::new(RetryScheduler::default(), flight), waited)
        }
    };
    runtime.get().add_runner(&fixed.workspace, bus.clone(), running, MiddlewareState::default())?;
    let runner = runtime.part(|runtime| runtime.runner());
    fixed.processes.set_announcer(Arc::new(ProcessAnnouncer(runner.clone())));
    Ok(AgentParts { agent: AgentLoop::new(runner, only_session, waited), runtime, fixed, bus, commits })
}

/// Opens the store of the home; each commit is counted and notified.
fn open_store(home: &Home, metrics: Arc<Metrics>, commits: Arc<Notify>) -> Result<Store, StoreError> {
    let on_commit = move |committed: GroupCommit| {
        match committed.took {
            Some(took) => metrics.store.committed(committed.durability == Durability::Synced, committed.writes, took),
            None => metrics.store.failed(),
        }
        // There is one waiter. Without it, only the fact of a commit is stored.
        commits.notify_one();
    };
    Store::open_to_serve(&home.database(), Box::new(on_commit))
}
