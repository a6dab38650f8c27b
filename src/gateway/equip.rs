//! What turns work with, made from the configuration: at the start, and anew at each reload.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use anyhow::Context;
use daoyou_channels::cli::Language;
use daoyou_channels::settings::Secret;
use daoyou_channels::trust::TrustLists;
use jiff::tz::TimeZone;

use super::trust::trust_lists;
use crate::agent::{Conversations, Parking, RunningTurns, SpawnTool, TurnRunner, TurnStarter, TurnTools};
use crate::bus::{BusSettings, Capacities, MessageBus, Notices, WeakBus};
use crate::config::{Config, Loaded};
use crate::cron::heartbeat::HeartbeatSettings;
use crate::cron::{self, CronSettings, CronTool, JobNotices};
use crate::guard::Secrets;
use crate::home::Home;
use crate::live::Live;
use crate::llm::{Embedder, Models, OFFLINE, SERVICES};
use crate::memory;
use crate::metrics::Metrics;
use crate::phrases::{Locale, Phrases};
use crate::session::commands::{CommandContext, CommandHandler, SkillFolder};
use crate::session::lanes::ConcurrencyLimits;
use crate::session::resets::SessionScope;
use crate::store::StoreConfig;
use crate::text;
use crate::tools::{self, Beside, Executor, PrivateFolders, Processes, Tool};
use crate::turn::context::conversation_context::{ContextBuilder, ContextSettings};
use crate::turn::context::images::ImageLoader;
use crate::turn::context::system_prompt::SystemPrompt;
use crate::turn::limits::TurnLimits;
use crate::turn::middleware::{MiddlewareName, MiddlewareParts, MiddlewareSettings, MiddlewareStack, MiddlewareState};
use crate::turn::model_chains::ModelChains;
use crate::turn::orchestrators::Orchestrators;
use crate::turn::token_budget::TokenBudget;

/// The parts of a running gateway that a reload replaces.
#[derive(Clone)]
pub struct Equipment {
    pub runner: Arc<Live<TurnRunner>>,
    pub slash: Arc<Live<CommandHandler>>,
    pub models: Arc<Live<Models>>,
    /// `agent.model`.
    pub model: Arc<Live<String>>,
    pub store: Arc<Live<StoreConfig>>,
    pub config: Arc<Live<Config>>,
    /// What holds for jobs.
    pub rules: Arc<Live<CronSettings>>,
    /// Where jobs are made.
    pub jobs: Arc<cron::JobService>,
    /// What runs in the background, whatever is replaced.
    pub processes: Arc<Processes>,
    /// Where things are remembered.
    pub memory: Arc<memory::MemoryService>,
    /// Whom the channels trust.
    pub trust: TrustLists,
    /// Keys whose new values hold from the next start on.
    pub waiting: Arc<Live<Vec<String>>>,
}

/// What tools work with beside the workspace.
#[derive(Clone, Default)]
pub struct Partners {
    /// Where jobs are made; absent where tools are only shown.
    pub jobs: Option<Arc<cron::JobService>>,
    /// What runs in the background; without it nothing does.
    pub processes: Option<Arc<Processes>>,
    /// Where things are remembered; absent where tools are only shown.
    pub memory: Option<Arc<memory::MemoryService>>,
    pub bus: WeakBus,
}

impl Equipment {
    pub fn new(
        config: &Config,
        runner: TurnRunner,
        slash: Arc<Live<CommandHandler>>,
        jobs: Arc<cron::JobService>,
        processes: Arc<Processes>,
        memory: Arc<memory::MemoryService>,
    ) -> Self {
        Self {
            rules: Arc::new(Live::new(runner.job_rules.clone())),
            models: Arc::new(Live::new(runner.models().clone())),
            runner: Arc::new(Live::new(runner)),
            slash,
            model: Arc::new(Live::new(config.agent.model.clone())),
            store: Arc::new(Live::new(config.store.clone())),
            config: Arc::new(Live::new(config.clone())),
            jobs,
            processes,
            memory,
            trust: TrustLists::new(trust_lists(config)),
            waiting: Arc::new(Live::new(Vec::new())),
        }
    }

    /// What new tools are to work with.
    pub fn partners(&self) -> Partners {
        let bus = WeakBus::of(&self.runner.get().bus);
        Partners {
            jobs: Some(self.jobs.clone()),
            processes: Some(self.processes.clone()),
            memory: Some(self.memory.clone()),
            bus,
        }
    }

    /// Puts `runner`, and what belongs to it, in the place of the one that runs turns now.
    pub fn replace(&self, config: &Config, runner: TurnRunner, secrets: Secrets) {
        let workspace = self.memory.settings.get().workspace.clone();
        self.memory.settings.set(memory_terms(config, runner.timezone.clone(), workspace));
        self.memory.secrets.set(secrets);
        self.memory.embed_by(embedder(config, runner.models(), runner.bus.metrics()));
        self.jobs.context.set(job_terms(config, runner.job_rules.clone()));
        runner.bus.reconfigure(bus_settings(config));
        self.trust.set(trust_lists(config));
        self.models.set(runner.models().clone());
        self.model.set(config.agent.model.clone());
        self.store.set(config.store.clone());
        self.config.set(config.clone());
        self.slash.set(runner.commands.clone());
        self.rules.set(runner.job_rules.clone());
        self.runner.set(runner);
        self.jobs.wake();
        self.memory.notify_changes();
    }
}

/// The folders of the workspace that are not every turn's.
pub(super) const PRIVATE: PrivateFolders = PrivateFolders::new(&[memory::FOLDER]);

/// The tools over `workspace`.
pub(super) fn build_tools(
    config: &Config,
    workspace: &Path,
    home: &Home,
    partners: &Partners,
) -> anyhow::Result<Arc<Executor>> {
    // Not the file's path: the program may be replaced on disk while it runs.
    let exe = PathBuf::from("/proc/self/exe");
    let cron = partners.jobs.clone().map_or_else(CronTool::to_be_shown, CronTool::new);
    let spawn = SpawnTool::new(config.agent.spawn.clone(), partners.bus.clone());
    let mut further: Vec<Arc<dyn Tool>> = vec![Arc::new(cron), Arc::new(spawn)];
    further.extend(memory::tools(partners.memory.as_ref()));
    let (processes, reserve) = (partners.processes.clone(), config.store.reserve.0);
    let beside = Beside { processes, further, private: PRIVATE, reserve: reserve.0 };
    Ok(Arc::new(tools::build(&config.tools, workspace, home.dir(), exe, beside)?))
}

pub(super) fn slash_commands(
    config: &Config,
    (jobs, memory): (Arc<cron::JobService>, Arc<memory::MemoryService>),
    models: Arc<Models>,
    tools: Arc<Executor>,
    workspace: &Path,
    started: Instant,
) -> anyhow::Result<CommandHandler> {
    Ok(CommandHandler {
        context: CommandContext {
            phrases: Phrases::of(config.agent.locale.resolve()),
            store: jobs.store.clone(),
            memory,
            timezone: timezone(config)?,
        },
        models,
        tools,
        jobs,
        skills: SkillFolder::open(workspace, &PRIVATE.covered_for_all().hidden)
            .map(Arc::new)
            .with_context(|| format!("the workspace {} cannot be opened", workspace.display()))?,
        configured: config.agent.model.clone(),
        started,
    })
}

/// Builds a runner with the models and tools of `commands`, which goes on with the `running` turns.
pub(super) fn turn_runner(
    config: &Config,
    workspace: &Path,
    commands: Arc<CommandHandler>,
    bus: Arc<MessageBus>,
    running: RunningTurns,
    (secrets, kept): (Secrets, MiddlewareState),
) -> anyhow::Result<TurnRunner> {
    let CommandContext { phrases, ref store, ref memory, ref timezone } = commands.context;
    let agent = &config.agent;
    let middleware = MiddlewareStack::build(&MiddlewareParts {
        settings: MiddlewareSettings {
            middleware: agent.middleware.clone(),
            budget: agent.budget.clone(),
            rate_limit: agent.rate_limit.clone(),
            cache: agent.cache.clone(),
        },
        store: store.clone(),
        tools: commands.tools.clone(),
        timezone: timezone.clone(),
        metrics: bus.metrics().clone(),
        secrets,
        kept,
    });
    Ok(TurnRunner {
        starter: TurnStarter {
            store: store.clone(),
            memory: memory.clone(),
            running: running.clone(),
            queue: agent.queue,
            resets: agent.session.resets().map_err(anyhow::Error::msg).context("agent.session.daily_reset")?,
            timezone: timezone.clone(),
        },
        conversations: conversations(config, workspace, &commands, &bus, &running, middleware)?,
        job_rules: Arc::new(job_rules(config)?),
        limits: ConcurrencyLimits { turns: size(agent.max_concurrent_turns), sub_agents: size(agent.spawn.at_once) },
        memory: memory.clone(),
        timezone: timezone.clone(),
        bus,
        running,
        phrases,
        commands,
    })
}

/// What the conversations of turns work with.
fn conversations(
    config: &Config,
    workspace: &Path,
    commands: &CommandHandler,
    bus: &Arc<MessageBus>,
    running: &RunningTurns,
    middleware: MiddlewareStack,
) -> anyhow::Result<Conversations> {
    let unopened = || format!("the workspace {} cannot be opened", workspace.display());
    let closed = PRIVATE.covered_for_all().hidden;
    let agent = &config.agent;
    Ok(Conversations {
        contexts: ContextBuilder {
            store: commands.context.store.clone(),
            memory: commands.context.memory.clone(),
            models: commands.models.clone(),
            tokens: Arc::new(TokenBudget::new(commands.context.store.clone())),
            system: SystemPrompt::new(workspace, &config.owner.name, &closed).with_context(unopened)?,
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
            orchestrators: Orchestrators::new(agent.orchestrator),
        },
        tools: TurnTools { all: commands.tools.clone(), spawn_depth: agent.spawn.depth },
        images: ImageLoader::open(workspace, &closed).with_context(unopened)?,
        middleware: Arc::new(middleware),
        parking: Parking {
            bus: bus.clone(),
            retries: running.retries.clone(),
            wait_for_model: agent.wait_for_model,
            phrases: commands.context.phrases,
        },
        limits: TurnLimits {
            iterations: agent.max_iterations,
            tokens: agent.max_turn_tokens,
            cost: agent.budget.turn_cost.filter(|_| agent.middleware.contains(&MiddlewareName::Budget)),
            time: agent.turn_timeout.0,
        },
        temperature: agent.temperature,
    })
}

fn size(count: u32) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}

/// What no answer and no tool's result may show: the secrets of the configuration, the gateway's own token, and the keys
/// that model services take from the environment.
pub(super) fn secrets(loaded: &Loaded, home: &Home) -> anyhow::Result<Secrets> {
    let variables = SERVICES.iter().flat_map(|service| service.key_variables);
    let keys = variables.filter_map(|name| std::env::var(name).ok()).map(Secret::new);
    let configured = loaded.secrets().filter(|(key, _)| is_meant(key)).map(|(_, secret)| secret.clone());
    Ok(Secrets::new(configured.chain(keys).chain([home.token()?])))
}

/// Every header's value is hidden where the configuration is shown, and most are no secret: a title, a version, a date.
/// Struck out, these would be missing from ordinary texts.
fn is_meant(key: &str) -> bool {
    const SECRET: [&str; 6] = ["auth", "cookie", "key", "password", "secret", "token"];
    match key.split_once(".headers.") {
        Some((_, header)) => SECRET.iter().any(|word| header.to_ascii_lowercase().contains(word)),
        None => true,
    }
}

pub(super) fn bus_settings(config: &Config) -> BusSettings {
    BusSettings {
        capacities: capacities(config),
        reserve: config.store.reserve.0.0,
        drain_timeout: config.gateway.drain_timeout.0,
        by_sender: config.agent.session.scope == SessionScope::Sender,
        notices: notices(config),
    }
}

fn capacities(config: &Config) -> Capacities {
    Capacities {
        session: size(config.gateway.session_capacity),
        inbound: size(config.gateway.inbound_capacity),
        outbound: size(config.gateway.outbound_capacity),
    }
}

/// How jobs run, and what is said of them.
pub(super) fn job_rules(config: &Config) -> anyhow::Result<CronSettings> {
    let phrases = Phrases::of(config.agent.locale.resolve());
    let notices = JobNotices {
        paused: phrases.job_paused,
        failed: phrases.job_failed,
        unreachable: phrases.job_unreachable,
        over_budget: phrases.jobs_braked,
    };
    let hooks = &config.channels.webhook;
    let hooks = hooks.iter().map(|(name, hook)| (format!("webhook:{name}"), hook.callback_url.is_some()));
    let channels = ["cli", "email"].map(|name| (name.to_owned(), true)).into_iter().chain(hooks);
    let channels = channels.filter(|(channel, _)| runs(config, channel)).collect();
    Ok(CronSettings {
        config: config.cron.clone(),
        channels,
        drain_timeout: config.gateway.drain_timeout.0,
        zone: timezone(config)?,
        notices,
        owner: Some(chat(&config.owner.notify).unwrap_or_else(terminal)),
    })
}

/// Where the owner is told: on the open terminals, unless another chat is set.
fn notices(config: &Config) -> Option<Notices> {
    let set = chat(&config.owner.notify);
    let on_terminals = set.is_none();
    let (channel, chat_id) = set.unwrap_or_else(terminal);
    if !runs(config, &channel) {
        tracing::warn!(
            channel,
            "owner.notify names a channel that is not running: what it would be told is in the log alone"
        );
        return None;
    }
    let phrases = Phrases::of(config.agent.locale.resolve());
    Some(Notices {
        on_terminals,
        channel,
        chat_id,
        dead_letter: phrases.dead_letter,
        held: phrases.channel_held,
        loss: phrases.loss,
    })
}

/// The chat of the terminal.
fn terminal() -> (String, String) {
    ("cli".to_owned(), "direct".to_owned())
}

/// By what jobs are made and shown.
pub(super) fn job_terms(config: &Config, settings: Arc<CronSettings>) -> cron::JobContext {
    cron::JobContext {
        settings,
        providers: providers(config),
        language: match config.agent.locale.resolve() {
            Locale::En => text::Language::En,
            Locale::Zh => text::Language::Zh,
        },
    }
}

/// The providers that models can be of: those that are set up, and those that only need a key in the environment.
fn providers(config: &Config) -> BTreeSet<String> {
    let services = SERVICES.iter().map(|service| service.name.to_owned());
    config.providers.keys().cloned().chain(services).chain([OFFLINE.to_owned()]).collect()
}

pub(super) fn memory_terms(config: &Config, zone: TimeZone, workspace: PathBuf) -> memory::MemorySettings {
    memory::MemorySettings {
        config: config.memory.clone(),
        identities: memory::Identities::new(&config.identities),
        language: match config.agent.locale.resolve() {
            Locale::En => Language::En,
            Locale::Zh => Language::Zh,
        },
        zone,
        workspace,
    }
}

/// What makes vectors of memories; nothing where none is set, or it is not to be had, which was checked before.
pub(super) fn embedder(config: &Config, models: &Models, metrics: &Arc<Metrics>) -> Option<Embedder> {
    let settings = &config.memory.embeddings;
    let embedder = models.embedder(&settings.model, settings.dimensions).ok()?;
    let metrics = metrics.clone();
    let count = move |provider: &str, model: &str, tokens| metrics.turns.model_read(provider, model, tokens);
    Some(embedder.counted_by(Arc::new(count)))
}

/// The channel and the chat of `CHANNEL:CHAT`.
fn chat(text: &str) -> Option<(String, String)> {
    let (channel, chat_id) = text.split_once(':')?;
    // A webhook's name holds a colon itself: `webhook:NAME:CHAT`.
    Some(match (channel, chat_id.split_once(':')) {
        ("webhook", Some((name, chat_id))) => (format!("webhook:{name}"), chat_id.to_owned()),
        _ => (channel.to_owned(), chat_id.to_owned()),
    })
}

/// What the heartbeat goes by.
pub(super) fn heartbeat(config: &Config) -> HeartbeatSettings {
    let places = [&config.heartbeat.deliver_to, &config.owner.notify];
    let place = places.into_iter().find_map(|place| chat(place)).filter(|(channel, _)| runs(config, channel));
    let (channel, chat_id) = place.unwrap_or_else(terminal);
    HeartbeatSettings {
        config: config.heartbeat.clone(),
        zone: timezone(config).unwrap_or_else(|_| TimeZone::system()),
        channel,
        chat_id,
        silent: Phrases::of(config.agent.locale.resolve()).heartbeat_silent,
    }
}

/// Whether a channel delivers, as far as the configuration says.
fn runs(config: &Config, channel: &str) -> bool {
    let email = &config.channels.email;
    match channel.split_once(':') {
        None if channel == "email" => email.enabled && email.consent_granted,
        None => channel == "cli",
        Some((_, name)) => config.channels.webhook.get(name).is_some_and(|hook| hook.enabled),
    }
}

/// The owner's time zone.
pub fn timezone(config: &Config) -> anyhow::Result<TimeZone> {
    match config.agent.timezone.as_str() {
        "" => Ok(TimeZone::system()),
        name => TimeZone::get(name).with_context(|| format!("agent.timezone: {name:?} is no known time zone")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_of_the_tools_are_those_of_the_table() {
        let folder = tempfile::tempdir().unwrap();
        let home = Home::open(Some(folder.path().join("home"))).unwrap();
        let workspace = folder.path().join("workspace");
        std::fs::create_dir(&workspace).unwrap();
        let built = build_tools(&Config::default(), &workspace, &home, &Partners::default()).unwrap();
        let built: Vec<_> =
            built.registry().all().map(|(tool, _)| (tool.spec().name.clone(), tool.aliases())).collect();
        let known: Vec<_> = tools::TOOLS.iter().map(|(name, others)| ((*name).to_owned(), *others)).collect();
        assert_eq!(built, known);
    }

    #[test]
    fn a_header_is_a_secret_when_its_name_says_so() {
        for (key, expected) in [
            ("providers.p.api_key", true),
            ("gateway.token", true),
            ("providers.p.headers.X-Title", false),
            ("providers.p.headers.anthropic-version", false),
            ("providers.p.headers.Authorization", true),
            ("providers.p.headers.X-Api-Key", true),
        ] {
            assert_eq!(is_meant(key), expected, "{key}");
        }
    }
}
