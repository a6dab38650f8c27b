//! The runtime: all parts that turns, jobs and requests use, built from one configuration.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use anyhow::Context;
use daoyou_channels::settings::size;
use daoyou_channels::trust::SenderLists;
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::agents::agent_directory;
use super::settings::{
    PRIVATE, bus_settings, channels_with_proof, embedder, job_context, memory_settings, result_embedder,
    result_summarizer, secrets, timezone, trust_lists,
};
use crate::agent::{
    ApprovalGate, AskUserTool, ConversationDeps, Parking, RunningTurns, SpawnTool, TurnRunner, TurnStarter, TurnTools,
};
use crate::bus::{BusSettings, MessageBus, WeakBus};
use crate::config::{Config, LoadedConfig, SettingOrigin};
use crate::cron::{CronTool, JobService};
use crate::guard::KnownSecrets;
use crate::home::Home;
use crate::live::Live;
use crate::llm::Models;
use crate::mcp::{McpHost, McpServers};
use crate::memory::{self, MemoryService};
use crate::metrics::Metrics;
use crate::phrases::Phrases;
use crate::postprocess::SemanticFilter;
use crate::profiles::AgentDirectory;
use crate::query::ModelSelection;
use crate::session::commands::{CommandContext, CommandHandler};
use crate::session::lanes::ConcurrencyLimits;
use crate::skills::{BUILT_IN_SKILLS, LOAD_SKILL, SkillCatalog, SkillHost, SkillPins, SkillSource, SkillTool};
use crate::tools::{self, Processes, Tool, ToolDeps, ToolExecutor, ToolResultCache, ToolsConfig, canonical_name};
use crate::turn::context::conversation_context::{ContextBuilder, ContextSettings, SystemTextCache};
use crate::turn::context::images::ImageLoader;
use crate::turn::context::system_prompt::{PromptSkills, SystemPrompt};
use crate::turn::context::window::HistoryCache;
use crate::turn::middleware::{MiddlewareName, MiddlewareParts, MiddlewareStack, MiddlewareState};
use crate::turn::orchestrators::ModelChains;
use crate::turn::token_budget::TokenBudget;
use crate::turn::turn_loop::TurnLimits;

/// The path of this program. The path of its file would not do: the file may be replaced while the program is running.
pub(super) const OWN_PROGRAM: &str = "/proc/self/exe";

/// A snapshot of all parts that depend on the configuration. A reload builds a new snapshot and stores it once, in the gateway's
/// `Live<Runtime>`; a snapshot itself never changes. Each piece of work takes all parts from one snapshot: the agent loop takes the
/// runner for a turn, a request takes its service, the bus takes its settings for an operation. A turn never sees half of a reload,
/// because its runner, tools, memory and jobs were built together and refer to each other, not to the current snapshot.
pub struct Runtime {
    pub config: Arc<Config>,
    /// Every setting and its origin, as JSON.
    pub settings: Value,
    /// Changed keys whose new values apply from the next start on.
    pub restart_needed: Vec<String>,
    pub models: Arc<ModelSelection>,
    pub trust: Arc<HashMap<String, SenderLists>>,
    pub bus: Arc<BusSettings>,
    pub jobs: Arc<JobService>,
    pub memory: Arc<MemoryService>,
    pub mcp: Arc<McpServers>,
    commands: Arc<CommandHandler>,
    /// The tools for agents that have their own folder, by folder.
    elsewhere: HashMap<PathBuf, Arc<ToolExecutor>>,
    /// Set right after the other parts: the runner needs the bus, and the bus reads its settings from the first snapshot.
    runner: OnceLock<Arc<TurnRunner>>,
}

/// The parts of a gateway that a reload keeps.
pub(super) struct FixedParts {
    pub home: Home,
    pub workspace: PathBuf,
    pub jobs: JobService,
    pub memory: MemoryService,
    pub metrics: Arc<Metrics>,
    pub processes: Arc<Processes>,
    pub bus: WeakBus,
    pub started: Instant,
    /// Notified when the tools of an MCP server have changed.
    pub mcp_changed: Arc<Notify>,
}

impl Runtime {
    /// Builds a snapshot without its runner. It reuses the MCP servers of `previous` whose settings are unchanged.
    ///
    /// # Errors
    /// The configuration is invalid, or the workspace cannot be opened.
    pub fn new(
        loaded: &LoadedConfig,
        models: Arc<Models>,
        fixed: &FixedParts,
        restart_needed: Vec<String>,
        previous: Option<&Self>,
    ) -> anyhow::Result<Self> {
        let config = &loaded.config;
        let memory = fixed.memory.with_settings(memory_settings(config, fixed.workspace.clone())?);
        let memory = memory.with_secrets(secrets(loaded, &fixed.home)?);
        let memory = Arc::new(memory.with_embedder(embedder(config, &models, &fixed.metrics)));
        let agents = agent_directory(loaded, &fixed.home, &models)?;
        let jobs = Arc::new(fixed.jobs.with_context(job_context(config, &agents)?));
        let skills = skill_catalog(config, &fixed.workspace, fixed.home.dir());
        let is_cached = config.agent.middleware.contains(&MiddlewareName::Cache);
        let previous = previous.map(|previous| &*previous.mcp);
        let changed = fixed.mcp_changed.clone();
        let mcp = mcp_servers(config, &fixed.workspace, &fixed.home, &memory.secrets, changed, previous)?;
        let services = ServiceTools { jobs: &jobs, memory: &memory, processes: &fixed.processes };
        let deps = || ToolDeps {
            semantic: result_embedder(config, &models, &fixed.metrics).map(SemanticFilter::new),
            summarizer: result_summarizer(config, &models, &fixed.metrics),
            cache: is_cached.then(|| ToolResultCache::new(config.agent.cache.capacity, fixed.metrics.clone())),
            ..tool_deps(config, &fixed.bus, &skills, &agents, &mcp, Some(services))
        };
        let elsewhere = tools_elsewhere(config, &fixed.home, &agents, deps)?;
        let commands = Arc::new(CommandHandler {
            context: CommandContext {
                phrases: Phrases::of(config.agent.locale.resolve()),
                store: memory.store.clone(),
                memory: memory.clone(),
                timezone: timezone(config)?,
                bus: fixed.bus.clone(),
            },
            models: models.clone(),
            tools: build_tools(config, &fixed.workspace, &fixed.home, deps())?,
            jobs: jobs.clone(),
            skills: skills.clone(),
            agents: agents.clone(),
            mcp: mcp.clone(),
            configured: config.agent.model.clone(),
            started: fixed.started,
        });
        Ok(Self {
            config: Arc::new(config.clone()),
            settings: describe_settings(loaded),
            restart_needed,
            models: Arc::new(ModelSelection { models, configured: config.agent.model.clone() }),
            trust: Arc::new(trust_lists(config)),
            bus: Arc::new(bus_settings(config, commands.clone())),
            jobs,
            memory,
            mcp,
            commands,
            elsewhere,
            runner: OnceLock::new(),
        })
    }

    /// Builds the runner of this snapshot's turns; it shares `running` and `middleware` with the previous runner.
    ///
    /// # Errors
    /// The configuration is invalid, or the workspace cannot be opened.
    pub fn add_runner(
        &self,
        workspace: &Path,
        bus: Arc<MessageBus>,
        running: RunningTurns,
        middleware: MiddlewareState,
    ) -> anyhow::Result<()> {
        let CommandContext { phrases, ref store, ref memory, ref timezone, .. } = self.commands.context;
        let agent = &self.config.agent;
        let middleware = MiddlewareStack::build(&MiddlewareParts {
            middleware: agent.middleware.clone(),
            budget: agent.budget.clone(),
            rate_limit: agent.rate_limit.clone(),
            cache: agent.cache.clone(),
            store: store.clone(),
            timezone: timezone.clone(),
            metrics: bus.metrics().clone(),
            secrets: (*memory.secrets).clone(),
            state: middleware,
        });
        let runner = TurnRunner {
            starter: TurnStarter {
                store: store.clone(),
                memory: memory.clone(),
                running: running.clone(),
                queue: agent.queue,
                resets: agent.session.resets().map_err(anyhow::Error::msg).context("agent.session.daily_reset")?,
                timezone: timezone.clone(),
            },
            conversations: self.conversations(workspace, &bus, &running, middleware)?,
            cron_settings: self.jobs.context.settings.clone(),
            limits: ConcurrencyLimits {
                turns: size(agent.max_concurrent_turns),
                sub_agents: size(agent.spawn.at_once),
            },
            memory: memory.clone(),
            timezone: timezone.clone(),
            bus,
            running,
            phrases,
            commands: self.commands.clone(),
        };
        // A snapshot gets its runner only once.
        drop(self.runner.set(Arc::new(runner)));
        Ok(())
    }

    /// Returns the shared parts of turns' conversations.
    fn conversations(
        &self,
        workspace: &Path,
        bus: &Arc<MessageBus>,
        running: &RunningTurns,
        middleware: MiddlewareStack,
    ) -> anyhow::Result<ConversationDeps> {
        let closed = PRIVATE.default_visibility().hidden;
        let (agent, commands) = (&self.config.agent, &self.commands);
        // Without a tool that loads skills, a list of skills is useless.
        let can_load = commands.tools.registry().get(LOAD_SKILL).is_some();
        let tokens = if can_load { self.config.skills.prompt_tokens as usize } else { 0 };
        let skills = PromptSkills { catalog: commands.skills.clone(), tokens };
        let system = SystemPrompt::new(workspace, &self.config.owner.name, &closed, skills);
        Ok(ConversationDeps {
            contexts: ContextBuilder {
                store: commands.context.store.clone(),
                memory: self.memory.clone(),
                models: commands.models.clone(),
                tokens: Arc::new(TokenBudget::new(commands.context.store.clone())),
                system: system.with_context(|| unopened(workspace))?,
                system_texts: SystemTextCache::default(),
                history: HistoryCache::default(),
                settings: ContextSettings {
                    model: agent.model.clone(),
                    memory_window: agent.memory_window,
                    context_tokens: agent.context_tokens,
                    max_tokens: agent.max_tokens,
                },
            },
            chains: ModelChains {
                models: commands.models.clone(),
                fallback: agent.fallback.clone(),
                orchestrator: agent.orchestrator,
            },
            tools: TurnTools {
                all: commands.tools.clone(),
                elsewhere: self.elsewhere.clone(),
                spawn_depth: agent.spawn.depth,
            },
            agents: commands.agents.clone(),
            images: ImageLoader::open(workspace, &closed).with_context(|| unopened(workspace))?,
            middleware: Arc::new(middleware),
            approvals: ApprovalGate {
                bus: bus.clone(),
                config: self.config.approval.with_canonical_names(canonical_name),
                channels_with_proof: channels_with_proof(&self.config),
                phrases: commands.context.phrases,
                timezone: commands.context.timezone.clone(),
                secrets: (*self.memory.secrets).clone(),
            },
            parking: Parking {
                bus: bus.clone(),
                retries: running.retries.clone(),
                wait_for_model: agent.wait_for_model,
                phrases: commands.context.phrases,
            },
            limits: TurnLimits {
                iterations: agent.max_iterations,
                tokens: agent.max_turn_tokens,
                time: agent.turn_timeout.0,
            },
            temperature: agent.temperature,
        })
    }

    pub fn agents(&self) -> &Arc<AgentDirectory> {
        &self.commands.agents
    }

    pub fn skills(&self) -> &Arc<SkillCatalog> {
        &self.commands.skills
    }

    /// Returns the runner of this snapshot's turns.
    pub fn runner(&self) -> &Arc<TurnRunner> {
        self.runner.get().expect("the runner is added before anything runs with the snapshot")
    }
}

/// Lists every setting that is set or has a default, without secrets, together with the origin of its value.
pub(super) fn describe_settings(loaded: &LoadedConfig) -> Value {
    let rows = loaded.settings().into_iter().map(|setting| {
        let (section, key) = setting.key.rsplit_once('.').unwrap_or(("", &setting.key));
        let source = match &setting.origin {
            SettingOrigin::Default => "default",
            SettingOrigin::File { .. } => "file",
            SettingOrigin::Env(_) => "environment",
            SettingOrigin::Option(_) => "option",
        };
        json!({ "section": section, "key": key, "value": setting.value, "source": source, "from": setting.origin })
    });
    rows.collect()
}

/// Returns the error message for a workspace that cannot be opened.
pub(super) fn unopened(workspace: &Path) -> String {
    format!("the workspace {} cannot be opened", workspace.display())
}

/// The services of a running gateway that tools use.
#[derive(Clone, Copy)]
pub(super) struct ServiceTools<'a> {
    jobs: &'a Arc<JobService>,
    memory: &'a Arc<MemoryService>,
    processes: &'a Arc<Processes>,
}

/// Returns the dependencies of the tools. If tools are only listed, there are no `services`, and `bus` is not used.
pub(super) fn tool_deps(
    config: &Config,
    bus: &WeakBus,
    skills: &Arc<SkillCatalog>,
    agents: &Arc<AgentDirectory>,
    mcp: &McpServers,
    services: Option<ServiceTools<'_>>,
) -> ToolDeps {
    let memory = services.map(|services| services.memory);
    let cron = services.map_or_else(CronTool::without_service, |services| CronTool::new(services.jobs.clone()));
    let spawn = SpawnTool::new(config.agent.spawn.clone(), bus.clone(), agents.clone());
    let is_redacted = config.agent.middleware.contains(&MiddlewareName::Redaction);
    let secrets = memory.filter(|_| is_redacted).map(|memory| (*memory.secrets).clone()).unwrap_or_default();
    let ask_user = AskUserTool::new(bus.clone(), config.approval.expires, secrets.clone());
    let (load, find) = (SkillTool::load(skills.clone()), SkillTool::find(skills.clone()));
    let mut further: Vec<Arc<dyn Tool>> =
        vec![Arc::new(ask_user), Arc::new(cron), Arc::new(spawn), Arc::new(load), Arc::new(find)];
    further.extend(memory::tools(memory));
    further.extend(mcp.tools());
    ToolDeps {
        processes: services.map(|services| services.processes.clone()),
        channels: services.map(|services| services.jobs.context.settings.channels.clone()),
        further,
        private: PRIVATE,
        reserve: config.store.reserve.0,
        secrets,
        ..ToolDeps::default()
    }
}

/// Returns the catalog of skills of a gateway with the home folder `home` and the workspace `workspace`.
pub(super) fn skill_catalog(config: &Config, workspace: &Path, home: &Path) -> Arc<SkillCatalog> {
    let closed = PRIVATE.default_visibility().hidden;
    let sources = SkillSource::all(&config.skills, workspace, std::env::home_dir().as_deref(), &closed);
    let catalog = SkillCatalog::new(&config.skills, sources, BUILT_IN_SKILLS, SkillHost::of_process());
    Arc::new(catalog.with_pins(SkillPins::in_home(home)))
}

/// Builds the tools for agents that have their own folder. A folder below the workspace is created.
///
/// # Errors
/// A folder cannot be used; the error names it.
fn tools_elsewhere(
    config: &Config,
    home: &Home,
    agents: &AgentDirectory,
    deps: impl Fn() -> ToolDeps,
) -> anyhow::Result<HashMap<PathBuf, Arc<ToolExecutor>>> {
    let mut elsewhere = HashMap::new();
    for path in agents.all().filter_map(|agent| agent.workspace.as_ref()) {
        if elsewhere.contains_key(path) {
            continue;
        }
        std::fs::create_dir_all(path).with_context(|| path.display().to_string())?;
        elsewhere.insert(path.clone(), build_tools(config, path, home, deps())?);
    }
    Ok(elsewhere)
}

/// Returns the MCP servers of a gateway with this workspace; none is started. `secrets` are removed from their texts.
pub(super) fn mcp_servers(
    config: &Config,
    workspace: &Path,
    home: &Home,
    secrets: &KnownSecrets,
    changed: Arc<Notify>,
    previous: Option<&McpServers>,
) -> anyhow::Result<Arc<McpServers>> {
    if config.mcp.is_empty() {
        return Ok(Arc::default());
    }
    let (exec, reserve) = (tool_settings(config, workspace).exec, config.store.reserve.0);
    let mut runner = tools::command_runner(&exec, workspace, home.dir(), PRIVATE, reserve, OWN_PROGRAM.into())?;
    let sources = SkillSource::all(&config.skills, workspace, std::env::home_dir().as_deref(), &[]);
    runner.skill_folders = sources.iter().filter_map(SkillSource::resolved_path).collect();
    let workspace = workspace.canonicalize().with_context(|| unopened(workspace))?;
    let secrets = Arc::new(Live::new(secrets.clone()));
    let host = McpHost { home: home.dir().to_owned(), workspace, runner, exec, secrets, changed };
    Ok(Arc::new(McpServers::new(&config.mcp, host, previous)))
}

/// Builds the tools of `workspace`.
pub(super) fn build_tools(
    config: &Config,
    workspace: &Path,
    home: &Home,
    deps: ToolDeps,
) -> anyhow::Result<Arc<ToolExecutor>> {
    let settings = tool_settings(config, workspace);
    Ok(Arc::new(tools::build(&settings, workspace, home.dir(), OWN_PROGRAM.into(), deps)?))
}

/// Returns the settings of the tools. Commands can read the folders of skills.
fn tool_settings(config: &Config, workspace: &Path) -> ToolsConfig {
    let mut settings = config.tools.clone();
    let sources = SkillSource::all(&config.skills, workspace, std::env::home_dir().as_deref(), &[]);
    let inside = workspace.canonicalize().unwrap_or_else(|_| workspace.to_owned());
    let user_home = std::env::home_dir().and_then(|home| home.canonicalize().ok());
    let folders = sources.iter().filter_map(|source| source.path().canonicalize().ok());
    // A skill folder that is a whole home or the whole machine is a mistake.
    let is_narrow = |path: &PathBuf| path.parent().is_some() && user_home.as_ref() != Some(path);
    let outside = folders.filter(|path| !path.starts_with(&inside) && is_narrow(path));
    settings.exec.read_paths.extend(outside.map(|path| path.display().to_string()));
    settings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcp::McpServerConfig;

    #[test]
    fn the_names_of_the_tools_are_those_of_the_table() {
        let folder = tempfile::tempdir().unwrap();
        let home = Home::open(Some(folder.path().join("home"))).unwrap();
        let workspace = folder.path().join("workspace");
        std::fs::create_dir(&workspace).unwrap();
        let mut config = Config::default();
        config
            .mcp
            .insert("x".to_owned(), McpServerConfig { command: vec!["x".to_owned()], ..McpServerConfig::default() });
        let (bus, skills, agents) =
            (WeakBus::default(), skill_catalog(&config, &workspace, home.dir()), Arc::default());
        let mcp = mcp_servers(&config, &workspace, &home, &KnownSecrets::default(), Arc::default(), None).unwrap();
        let deps = tool_deps(&config, &bus, &skills, &agents, &mcp, None);
        let built = build_tools(&config, &workspace, &home, deps).unwrap();
        let built: Vec<_> =
            built.registry().all().map(|(tool, _)| (tool.spec().name.clone(), tool.definition().aliases)).collect();
        let known: Vec<_> = tools::TOOL_NAMES.iter().map(|(name, _, others)| ((*name).to_owned(), *others)).collect();
        assert_eq!(built, known);
    }
}
