//! The environment of commands that use a home: the home, its configuration, the log, and signals.

use std::io::IsTerminal;
use std::path::PathBuf;

use daoyou_channels::cli::Interrupt;
use tokio_util::sync::CancellationToken;

use super::{CommandExit, output};
use crate::cli::{
    ApprovalsCommand, ChannelsCommand, Cli, Command, CronCommand, McpCommand, MemoryCommand, QueueCommand,
    SessionsCommand, SkillsCommand, TokensCommand, ToolsCommand, TurnsCommand,
};
use crate::config::{self, ConfigFault, ConfigFaults, LoadedConfig};
use crate::gateway;
use crate::home::{Home, is_unwritable};
use crate::logging::{self, LogLevel};

/// The default log level of one-shot commands, whose output is for people.
const QUIET: &str = "warn";

/// An open home with its configuration, and a started log.
pub struct CommandEnvironment {
    pub home: Home,
    /// The configuration; defaults replace faulty settings.
    pub loaded: LoadedConfig,
    /// The faults of the configuration, except missing secrets. A command that uses a running gateway needs no valid configuration:
    /// the credentials of a systemd service are available only to the service.
    faults: Vec<ConfigFault>,
    pub log: LogLevel,
}

impl CommandEnvironment {
    /// Opens the home, loads the configuration, and starts the log. The inner error is the exit code, after the faults were printed.
    pub fn new(cli: &Cli) -> anyhow::Result<Result<Self, CommandExit>> {
        let env = config::environment();
        let open = if only_reads(&cli.command) { Home::open_to_read } else { Home::open };
        let home = match open(cli.globals.home.clone()) {
            // The gateway starts nevertheless, reports the error, and waits until the home can be written.
            Err(error) if matches!(cli.command, Command::Gateway(_)) && error.unwritable().is_some() => {
                Home::locate(cli.globals.home.clone())?
            }
            opened => opened?,
        };
        let is_gateway = matches!(cli.command, Command::Gateway(_));
        let draft = super::config::read(&cli.globals, &home, &env);
        let is_valid = draft.clone().complete().is_ok();
        let checked = match is_gateway {
            true => draft.checked(|loaded| gateway::check(loaded, &home, &env)),
            false => draft,
        };
        let mut loaded = checked.loaded.clone();
        output::set_locale(&loaded.config);
        let found = if is_gateway { checked.complete() } else { checked.without_secrets() };
        let faults = found.err().unwrap_or_default();
        if is_gateway && !is_valid {
            return Ok(Err(super::config::report(&faults, output::stderr())?));
        }
        let has_level = cli.globals.log.is_some() || env.get("DAOYOU_LOG").is_some_and(|level| !level.is_empty());
        if !has_level && !is_gateway {
            loaded.config.log.level = QUIET.to_owned();
        }
        // If the file cannot be written, the log goes to the screen.
        let is_writable =
            |file: &PathBuf| logging::open_file(file).err().is_none_or(|error| !is_unwritable(error.kind()));
        let file = log_file(cli, &home).filter(is_writable);
        let log = logging::start(&loaded.config.log, file.as_deref())?;
        if is_gateway {
            for warning in home.warnings().iter().chain(&loaded.warnings) {
                tracing::warn!("{warning}");
            }
            if !faults.is_empty() {
                return Ok(Err(super::config::report(&faults, output::stderr())?));
            }
        }
        Ok(Ok(Self { home, loaded, faults, log }))
    }

    /// Returns the configuration with all its secrets.
    ///
    /// # Errors
    /// [`ConfigFaults`]: the configuration is invalid, or a secret is missing.
    pub fn with_secrets(&self) -> anyhow::Result<&LoadedConfig> {
        let loaded = self.without_secrets()?;
        if loaded.missing.is_empty() { Ok(loaded) } else { Err(ConfigFaults(loaded.missing.clone()).into()) }
    }

    /// Returns the configuration for work that needs no secrets; some may be missing.
    ///
    /// # Errors
    /// [`ConfigFaults`]: the configuration is invalid.
    pub fn without_secrets(&self) -> anyhow::Result<&LoadedConfig> {
        if self.faults.is_empty() { Ok(&self.loaded) } else { Err(ConfigFaults(self.faults.clone()).into()) }
    }
}

/// Returns true for a command that changes nothing in the home.
fn only_reads(command: &Command) -> bool {
    match command {
        Command::Status(args) => !args.acknowledge,
        Command::Models(_)
        | Command::Agents(_)
        | Command::Channels(ChannelsCommand::List(_))
        | Command::Tools(ToolsCommand::List(_) | ToolsCommand::Show { .. })
        | Command::Skills(SkillsCommand::List(_) | SkillsCommand::Show { .. } | SkillsCommand::Check { .. })
        | Command::Mcp(McpCommand::List(_))
        | Command::Queue(QueueCommand::List(_) | QueueCommand::Show(_))
        | Command::Approvals(ApprovalsCommand::List(_))
        | Command::Tokens(TokensCommand::List(_))
        | Command::Turns(TurnsCommand::List { .. } | TurnsCommand::Show(_)) => true,
        Command::Sessions(command) => {
            !matches!(command, SessionsCommand::Import { .. } | SessionsCommand::Clear { .. })
        }
        Command::Cron(command) => matches!(
            command,
            CronCommand::List(_) | CronCommand::Show(_) | CronCommand::History { .. } | CronCommand::Export { .. }
        ),
        Command::Memory(command) => matches!(
            command,
            MemoryCommand::Show { .. }
                | MemoryCommand::Search { .. }
                | MemoryCommand::Export { .. }
                | MemoryCommand::Stats(_)
        ),
        _ => false,
    }
}

/// Returns true if this process chats on its own terminal.
pub fn has_terminal(cli: &Cli) -> bool {
    match &cli.command {
        Command::Gateway(args) => args.cli || (!args.no_cli && std::io::stdin().is_terminal()),
        Command::Chat(_) => true,
        _ => false,
    }
}

/// Returns the log file of a process that chats on the terminal: log lines there would break the line that the user types.
fn log_file(cli: &Cli, home: &Home) -> Option<PathBuf> {
    let shares_screen = has_terminal(cli) && output::stdout_is_terminal() && output::stderr_is_terminal();
    shares_screen.then(|| home.dir().join(logging::FILE_NAME))
}

/// Returns a token that the first SIGTERM or SIGINT cancels; a second one ends the process at once. While a turn runs on this
/// terminal, SIGINT stops the turn instead.
pub fn watch_signals(interrupt: Interrupt) -> std::io::Result<CancellationToken> {
    use tokio::signal::unix::{SignalKind, signal};

    let token = CancellationToken::new();
    let (mut terminate, mut interrupted) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let stop = token.clone();
    tokio::spawn(async move {
        loop {
            let signal = tokio::select! {
                _ = terminate.recv() => "SIGTERM",
                _ = interrupted.recv() => {
                    if interrupt.raise() {
                        continue;
                    }
                    "SIGINT"
                }
            };
            if stop.is_cancelled() {
                tracing::warn!(signal, "stopping at once");
                std::process::exit(1);
            }
            tracing::info!(signal, "asked to stop");
            stop.cancel();
        }
    });
    Ok(token)
}
