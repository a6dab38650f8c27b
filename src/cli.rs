//! The command line.

mod agents;
mod cron;
mod init;
mod mcp;
mod memory;
mod output;
mod page;
mod queue;
mod sessions;
mod skills;
mod state;
mod tools;
mod trash;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;
use daoyou_channels::settings::HumanDuration;

pub use agents::AgentsCommand;
pub use cron::{CronAdd, CronCommand, CronJob};
pub use init::InitArgs;
pub use mcp::McpCommand;
pub use memory::{MemoryCommand, MemoryFilterArgs};
pub use output::Output;
pub use page::{OpenArgs, TokensCommand};
pub use queue::{ApprovalsCommand, QueueCommand, QueueItem, RetryArgs};
pub use sessions::{ExportFormat, SessionsCommand};
pub use skills::{SkillInstallArgs, SkillsCommand};
pub use state::{DoctorArgs, LogsArgs, ShownLevel, StatusArgs};
pub use tools::{ModelsArgs, PromptArgs, ToolRunArgs, ToolsCommand};
pub use trash::TrashCommand;

use sessions::session_key;
use tools::model_name;

use crate::logging::{LogConfig, LogFormat};

/// A self-hosted AI-assistant gateway that never loses a message.
#[derive(Clone, Debug, Parser)]
#[command(name = "daoyou", version, arg_required_else_help = true, max_term_width = 100)]
#[command(after_help = "Examples:\n  daoyou init       set up a model and channels\n  \
                        daoyou gateway    chat in the terminal\n  daoyou doctor     check the set-up")]
pub struct Cli {
    #[command(flatten)]
    pub globals: Globals,
    #[command(subcommand)]
    pub command: Command,
}

/// The options of every command.
#[derive(Clone, Debug, Default, Args)]
pub struct Globals {
    /// The folder that holds everything [default: $DAOYOU_HOME, else ~/.daoyou]
    #[arg(long, value_name = "DIR", global = true, help_heading = "Global options")]
    pub home: Option<PathBuf>,
    /// The configuration file [default: $DAOYOU_CONFIG, else config.toml in the home]
    #[arg(long, value_name = "FILE", global = true, help_heading = "Global options")]
    pub config: Option<PathBuf>,
    /// The log level: error, warn, info, debug, trace, off, or directives such as info,daoyou::llm=debug [default: $DAOYOU_LOG, else log.level]
    #[arg(long, value_name = "LEVEL", global = true, help_heading = "Global options", value_parser = log_level)]
    pub log: Option<String>,
    /// The log format: text or json [default: log.format]
    #[arg(long, value_name = "FORMAT", global = true, help_heading = "Global options", value_parser = log_format)]
    pub log_format: Option<LogFormat>,
    /// Keep terminal escapes in the output, into a pipe or a file only; without this option they are removed. With `tools run`: the
    /// whole result
    #[arg(long, global = true, help_heading = "Global options")]
    pub raw: bool,
}

#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Run the gateway: all channels, jobs and HTTP; also chat if standard input is a terminal
    #[command(after_help = "Examples:\n  daoyou gateway\n  daoyou gateway --no-cli --log-format json")]
    Gateway(GatewayArgs),
    /// Chat in the terminal; if standard input is not a terminal, each line is a message
    #[command(after_help = "Examples:\n  daoyou chat\n  daoyou chat --session cli:work < questions.txt")]
    Chat(ChatArgs),
    /// Send one message and print the reply
    #[command(after_help = "Examples:\n  daoyou agent -m 'What is in the workspace?'\n  \
                            daoyou agent -m 'And the newest of them?' --session cli:work --json\n  \
                            git diff | daoyou agent -m -")]
    Agent(AgentArgs),
    /// Set up a model, channels and the service, and write config.toml
    ///
    /// It finds keys in the environment and a local Ollama, tests the model with a real call, and shows every change before it
    /// writes it. With an existing configuration, only the answers change; comments and order stay.
    Init(InitArgs),
    /// Print a link to the page that logs in once, within a minute, and open it in a browser if there is a display
    #[command(after_help = "Examples:\n  daoyou open\n  daoyou open --no-browser\n  daoyou open --json | jq -r .url")]
    Open(OpenArgs),
    /// Check configuration, home, database, model, sandbox, channels and machine
    ///
    /// The result of each check is ok, warn or fail, with the command or edit that solves the problem. The exit code is 0
    /// if nothing fails, and 1 otherwise.
    #[command(after_help = "Examples:\n  daoyou doctor\n  daoyou doctor --fix\n  \
                            daoyou doctor --json | jq '.checks[] | select(.state != \"ok\")'")]
    Doctor(DoctorArgs),
    /// Show the state of the gateway, its channels, queues and last turns
    ///
    /// The exit code is 0 whether or not a gateway runs, except with --ready. A script reads `gateway` in the JSON, which is "up"
    /// or "down".
    #[command(after_help = "Examples:\n  daoyou status\n  daoyou status --json | jq -r .gateway\n  \
                            daoyou status --ready")]
    Status(StatusArgs),
    /// Show the log of the gateway: from the journal, or from its file
    #[command(
        after_help = "Examples:\n  daoyou logs\n  daoyou logs -f --level warn\n  daoyou logs --lines 1000 | less"
    )]
    Logs(LogsArgs),
    /// Manage reminders and scheduled prompts
    #[command(subcommand, after_help = "Example:\n  daoyou cron list")]
    Cron(CronCommand),
    /// List, show, search, export, import or clear conversations
    #[command(subcommand, after_help = "Example:\n  daoyou sessions list")]
    Sessions(SessionsCommand),
    /// Show the steps of turns, and return a conversation to an earlier one
    #[command(subcommand, after_help = "Example:\n  daoyou turns list")]
    Turns(TurnsCommand),
    /// Manage messages that wait or could not be delivered
    #[command(subcommand, after_help = "Example:\n  daoyou queue list")]
    Queue(QueueCommand),
    /// List or answer what waits for your approval
    #[command(subcommand, after_help = "Example:\n  daoyou approvals list")]
    Approvals(ApprovalsCommand),
    /// Show, search, add, remove, export or import memories
    #[command(subcommand, after_help = "Example:\n  daoyou memory show")]
    Memory(MemoryCommand),
    /// List, show or check the skills of the agent
    #[command(subcommand, after_help = "Example:\n  daoyou skills list")]
    Skills(SkillsCommand),
    /// List or show the agents
    #[command(subcommand, after_help = "Example:\n  daoyou agents list")]
    Agents(AgentsCommand),
    /// List or test the MCP servers, list their tools, or take over servers of other programs
    #[command(subcommand, after_help = "Example:\n  daoyou mcp list")]
    Mcp(McpCommand),
    /// List, show or run the tools of the agent
    #[command(subcommand, after_help = "Example:\n  daoyou tools list")]
    Tools(ToolsCommand),
    /// Show the next request to the model, and how many bytes and tokens each part of it takes
    #[command(
        after_help = "Examples:\n  daoyou prompt\n  daoyou prompt --session cli:work --message 'How are you?'\n  \
                            daoyou prompt --json | jq '.parts[] | select(.bytes > 500)'"
    )]
    Prompt(PromptArgs),
    /// List the model services, and which one is used
    #[command(after_help = "Examples:\n  daoyou models\n  daoyou models openai\n  daoyou models --all --json")]
    Models(ModelsArgs),
    /// List or test the channels
    #[command(subcommand, after_help = "Example:\n  daoyou channels list")]
    Channels(ChannelsCommand),
    /// Check or show the configuration
    #[command(subcommand, after_help = "Example:\n  daoyou config check")]
    Config(ConfigCommand),
    /// Add, list or revoke tokens for other programs, devices and people
    #[command(subcommand, after_help = "Example:\n  daoyou tokens list")]
    Tokens(TokensCommand),
    /// Write the whole home to one file: database, configuration, workspace, token
    ///
    /// This works while the gateway runs, and does not delay it. The file is a tar archive that only you can read: it
    /// contains the token and the secrets of config.toml. It is written completely or not at all. A workspace outside of
    /// the home is not included, and the command says so.
    Backup(BackupArgs),
    /// Restore a home from a backup
    ///
    /// Stop the gateway first. The whole file is unpacked and checked before anything changes. The previous content of the
    /// home is then moved into a folder there; nothing is deleted. The command names the messages that were accepted
    /// after the backup.
    Restore(RestoreArgs),
    /// Print the completion script for a shell
    #[command(
        after_help = "Examples:\n  daoyou completions bash > ~/.local/share/bash-completion/completions/daoyou\n  \
                            daoyou completions zsh > ~/.zfunc/_daoyou\n  \
                            daoyou completions fish > ~/.config/fish/completions/daoyou.fish"
    )]
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Run the gateway as a systemd service
    #[command(subcommand, after_help = "Example:\n  daoyou service status")]
    Service(ServiceCommand),
    /// List or restore what the agent deleted, or remove it for good
    #[command(subcommand, after_help = "Example:\n  daoyou trash list")]
    Trash(TrashCommand),
    /// Print the manual page, or write one for each command
    #[command(hide = true, after_help = "Examples:\n  daoyou man | man -l -\n  daoyou man /usr/local/share/man/man1")]
    Man {
        /// The folder for the pages [default: print the first page]
        folder: Option<PathBuf>,
    },
}

/// `daoyou backup`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:\n  daoyou backup ~/daoyou.tar\n  \
        daoyou backup --force /mnt/nas/daoyou.tar     overwrite an existing file")]
pub struct BackupArgs {
    /// The file to write
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Overwrite an existing file
    #[arg(long)]
    pub force: bool,
    #[command(flatten)]
    pub output: Output,
}

/// `daoyou restore`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:\n  daoyou restore ~/daoyou.tar\n  \
        daoyou restore --home /tmp/restored ~/daoyou.tar     restore it to another home")]
pub struct RestoreArgs {
    /// The backup file
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    #[command(flatten)]
    pub output: Output,
}

/// `daoyou gateway`.
#[derive(Clone, Debug, Args)]
pub struct GatewayArgs {
    /// Chat, even if standard input is not a terminal
    #[arg(long, conflicts_with = "no_cli")]
    pub cli: bool,
    /// Do not chat
    #[arg(long)]
    pub no_cli: bool,
}

/// `daoyou chat`.
#[derive(Clone, Debug, Args)]
pub struct ChatArgs {
    /// The conversation [default: cli:direct]
    #[arg(long, value_name = "KEY", value_parser = session_key)]
    pub session: Option<String>,
    /// The model, e.g. openai/gpt-4o [default: the conversation's]
    #[arg(long, value_name = "MODEL", value_parser = model_name)]
    pub model: Option<String>,
    /// Text files to send with the first message
    #[arg(value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub files: Vec<String>,
}

/// `daoyou agent`.
#[derive(Clone, Debug, Args)]
pub struct AgentArgs {
    /// The message; - reads standard input
    #[arg(short, long, value_name = "TEXT", allow_hyphen_values = true)]
    pub message: String,
    /// The conversation of the message [default: cli:direct]
    #[arg(long, value_name = "KEY", value_parser = session_key)]
    pub session: Option<String>,
    /// The model for this message, e.g. openai/gpt-4o [default: the conversation's]
    #[arg(long, value_name = "MODEL", value_parser = model_name)]
    pub model: Option<String>,
    /// The longest wait for the reply; 0s has no limit. After it, the command prints the message's id and exits with 76;
    /// the message is still answered
    #[arg(long, value_name = "DURATION", default_value = "30m")]
    pub timeout: HumanDuration,
    #[command(flatten)]
    pub output: Output,
}

#[derive(Clone, Debug, Subcommand)]
pub enum TurnsCommand {
    /// List the last turns; a conversation can return to each of them
    #[command(
        after_help = "Examples:\n  daoyou turns list\n  daoyou turns list --session cli:direct --limit 10 --json"
    )]
    List {
        /// Only turns of this conversation
        #[arg(long, value_name = "KEY")]
        session: Option<String>,
        /// The maximum number of entries to show
        #[arg(long, value_name = "COUNT", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=200))]
        limit: u32,
        #[command(flatten)]
        output: Output,
    },
    /// Show the steps and the cost of a turn, and check its record
    #[command(after_help = "Examples:\n  daoyou turns show 019a2b3c-4d5e-7f60-8a9b-0c1d2e3f4a5b\n  \
                            daoyou turns show 019a2b3c-4d5e --json")]
    Show(TurnItem),
    /// Return a conversation to its state right after a turn
    ///
    /// The model no longer gets what was said later. Nothing is deleted, so the conversation can also return to a later
    /// turn. With a running gateway, unfinished turns of that conversation end first.
    #[command(after_help = "Example:\n  daoyou turns restore 019a2b3c-4d5e")]
    Restore(TurnItem),
    /// Begin a new conversation from the state right after a turn; prints its key
    #[command(after_help = "Examples:\n  daoyou turns fork 019a2b3c-4d5e\n  \
                            daoyou turns fork 019a2b3c-4d5e --session cli:other-way")]
    Fork {
        #[command(flatten)]
        turn: TurnItem,
        /// The key of the new conversation [default: fork: and an id]
        #[arg(long, value_name = "KEY")]
        session: Option<String>,
    },
}

/// One turn.
#[derive(Clone, Debug, Args)]
pub struct TurnItem {
    /// The id of the turn, or the beginning of it
    pub id: String,
    #[command(flatten)]
    pub output: Output,
}

#[derive(Clone, Debug, Subcommand)]
pub enum ChannelsCommand {
    /// List the channels, and the last messages that they skipped
    #[command(after_help = "Examples:\n  daoyou channels list\n  \
                            daoyou channels list --json | jq '.[] | select(.name == \"email\").last_skipped'")]
    List(Output),
    /// Test a channel, without a message to anybody else
    ///
    /// For e-mail, it tests both servers and the mailboxes, and sends one or two mails from the account to itself. The exit
    /// code is 0 if nothing fails, and 1 otherwise.
    #[command(after_help = "Examples:\n  daoyou channels test cli\n  daoyou channels test email\n  \
                            daoyou channels test webhook:phone --json")]
    Test {
        /// The channel, e.g. cli, email or webhook:phone
        name: String,
        #[command(flatten)]
        output: Output,
    },
}

#[derive(Clone, Debug, Subcommand)]
pub enum ConfigCommand {
    /// Check the configuration, and print each fault with its line
    #[command(after_help = "Example:\n  daoyou config check")]
    Check(Output),
    /// Show every setting and the source of its value; secrets stay hidden
    #[command(after_help = "Examples:\n  daoyou config show\n  daoyou config show --json | jq .config.agent")]
    Show(Output),
    /// Print the path of the configuration file
    #[command(after_help = "Example:\n  daoyou config path")]
    Path(Output),
}

#[derive(Clone, Debug, Subcommand)]
pub enum ServiceCommand {
    /// Write the unit, enable it and start it; a repeated call updates the unit
    #[command(after_help = "Examples:\n  sudo daoyou service install\n  daoyou service install --user --dry-run")]
    Install(ServiceInstallArgs),
    /// Stop and disable the service and remove its unit; its home stays
    #[command(after_help = "Example:\n  sudo daoyou service uninstall")]
    Uninstall(ServiceInstallArgs),
    /// Show whether the service is installed, enabled and running
    #[command(after_help = "Example:\n  daoyou service status --json")]
    Status {
        #[command(flatten)]
        scope: ServiceScope,
        #[command(flatten)]
        output: Output,
    },
}

/// The options of `service install` and `service uninstall`.
#[derive(Clone, Copy, Debug, Args)]
pub struct ServiceInstallArgs {
    #[command(flatten)]
    pub scope: ServiceScope,
    /// Only show what would be done
    #[arg(long)]
    pub dry_run: bool,
}

/// The systemd instance that manages the service.
#[derive(Clone, Copy, Debug, Default, Args)]
pub struct ServiceScope {
    /// A service of this user [default, except for root]
    #[arg(long, conflicts_with = "system")]
    pub user: bool,
    /// A service of the system, with its own user [default for root]
    #[arg(long)]
    pub system: bool,
}

fn log_level(text: &str) -> Result<String, String> {
    LogConfig::filter(text).map(|_| text.to_owned()).map_err(|wrong| format!("{wrong}; allowed: {}", LogConfig::LEVELS))
}

fn log_format(text: &str) -> Result<LogFormat, String> {
    match text {
        "text" => Ok(LogFormat::Text),
        "json" => Ok(LogFormat::Json),
        _ => Err("it is text or json".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};
    use daoyou_channels::SessionKey;

    use super::*;

    #[test]
    fn the_command_line_is_valid() {
        Cli::command().debug_assert();
    }

    #[test]
    fn keys_ids_and_levels_are_checked() {
        for (line, part) in [
            (&["agent", "-m", "x", "--session", ""][..], "is empty"),
            (&["agent", "-m", "x", "--model", ""], "the model is empty"),
            (&["chat", "--model", " "], "the model is empty"),
            (&["chat", "--session", " a"], SessionKey::RULE),
            (&["chat", "--session", "webhook:in:a\nb"], SessionKey::RULE),
            (&["agent", "-m", "x", "--session", &"k".repeat(1_201)], SessionKey::RULE),
            (&["cron", "add", "--prompt", "x", "--every", "1h", "--session", ""], "is empty"),
            (&["memory", "show", "abc"], "is a number"),
            (&["memory", "forget", "a"], "is a number"),
            (&["--log", "foo", "status"], "allowed: \"error\""),
        ] {
            let wrong = Cli::try_parse_from([&["daoyou"], line].concat()).err().map(|error| error.to_string());
            assert!(wrong.as_ref().is_some_and(|wrong| wrong.contains(part)), "{line:?}: {wrong:?}");
        }
        // The longest key: the name of a webhook, a chat and a sender, whose colons are escaped.
        let longest = ["webhook", &"n".repeat(64), &"道 ".repeat(128), &"%3A".repeat(256)].join(":");
        for key in ["webhook:in:a b", longest.as_str()] {
            assert!(Cli::try_parse_from(["daoyou", "chat", "--session", key]).is_ok(), "{key}");
            for command in ["show", "export", "clear"] {
                assert!(Cli::try_parse_from(["daoyou", "sessions", command, key]).is_ok(), "{command}");
            }
        }
    }

    #[test]
    fn commands_are_listed_in_their_order() {
        let command = Cli::command();
        let names: Vec<_> =
            command.get_subcommands().filter(|one| !one.is_hide_set()).map(clap::Command::get_name).collect();
        let order = [
            "gateway", "chat", "agent", "init", "open", "doctor", "status", "logs", "cron", "sessions", "turns",
            "queue", "approvals", "memory", "skills", "agents", "mcp", "tools", "prompt", "models", "channels",
            "config", "tokens", "backup", "restore", "completions", "service", "trash",
        ];
        assert_eq!(names, order);
    }

    /// Calls `visit` for a command and all its subcommands.
    fn visit_commands(command: &clap::Command, visit: &mut impl FnMut(&clap::Command)) {
        visit(command);
        command.get_subcommands().for_each(|inner| visit_commands(inner, visit));
    }

    #[test]
    fn every_help_ends_with_examples_that_parse() {
        visit_commands(&Cli::command(), &mut |command| {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            let mut examples = help.lines().skip(1).peekable();
            assert!(help.starts_with("Example") && examples.peek().is_some(), "{}: {help:?}", command.get_name());
            for example in examples {
                // Other parts are for the shell, or explain the example.
                let ours = |piece: &&str| ["daoyou", "sudo daoyou"].iter().any(|name| piece.trim().starts_with(name));
                let line = example.split(['|', '>', '<']).find(ours).unwrap_or_default().trim();
                let line = line.split("    ").next().unwrap_or_default();
                let line = line.strip_prefix("sudo ").unwrap_or(line);
                // A quoted text is one word.
                let pieces = line.split('\'').enumerate();
                let words: Vec<&str> = pieces
                    .flat_map(|(at, piece)| if at % 2 == 1 { vec![piece] } else { piece.split_whitespace().collect() })
                    .collect();
                let parsed = Cli::try_parse_from(&words);
                assert!(parsed.is_ok(), "{example:?}: {:?}", parsed.err().map(|error| error.to_string()));
            }
        });
    }

    /// Command lines, and whether they are valid.
    const LINES: &[(&str, bool)] = &[
        ("gateway --no-cli", true),
        ("gateway --cli --no-cli", false),
        ("chat --session a:b --home /tmp/x", true),
        ("chat --model a/b one.txt two.txt", true),
        ("--home /tmp/x --log-format json --log debug chat", true),
        ("chat --log-format xml", false),
        ("chat --log loud", false),
        ("agent -m hello --session s", true),
        ("agent", false),
        ("status --json", true),
        ("sessions show", false),
        ("sessions show cli:direct --json", true),
        ("queue retry 0190 --json", true),
        ("turns show x", true),
        ("turns list --session cli:direct --limit 3 --json", true),
        ("turns list --limit 0", false),
        ("turns restore", false),
        ("turns fork 019a --session cli:x --json", true),
        ("config check --json", true),
        ("config", false),
        ("service install --user --dry-run", true),
        ("service install --user --system", false),
        ("service status --system --json", true),
        ("service", false),
        ("status --acknowledge", true),
        ("status --ready --json", false),
        ("logs -f -n 5 --level warn --json", true),
        ("logs --lines 0", false),
        ("init --yes --provider p --api-key-env P_KEY --model m", true),
        ("init --api-key-env sk-abc", false),
        ("backup /tmp/x.tar --force --json", true),
        ("cron add --name n --at 9:00 --prompt p --channel cli --chat direct --misfire skip --session cli:x", true),
        ("cron add --every 2h --anchor 9:00 --message m --jitter 1m --json", true),
        ("cron add --cron @daily --tz Asia/Shanghai --prompt p --deliver when_asked --stale-after 1h", true),
        ("cron add --prompt p", false),
        ("cron add --at 9:00", false),
        ("cron add --at 9:00 --every 2h --prompt p", false),
        ("cron add --at 9:00 --prompt p --message m", false),
        ("cron add --at 9:00 --message m --model a/b", false),
        ("cron add --cron @daily --prompt p --keep", false),
        ("cron add --every 2h --prompt p --misfire never", false),
        ("cron history news --limit 3 --json", true),
        ("cron run", false),
        ("cron import -", true),
        ("cron export --json", true),
        ("memory show 17 --json", true),
        ("memory show --owner ann --kind fact --limit 5", true),
        ("memory show 17 --owner ann", false),
        ("memory show --kind facts", false),
        ("memory search cat --since 7d --owner ann --limit 3", true),
        ("memory search", false),
        ("memory add x --kind task", false),
        ("memory forget", false),
        ("memory forget 1 2 x", false),
        ("memory import -", true),
        ("memory stats --json", true),
        ("sessions search cat --session cli:direct --limit 0", false),
        ("sessions export cli:direct --format md", true),
        ("sessions export cli:direct --json", true),
        ("sessions export cli:direct --format html", false),
        ("sessions import - --session cli:x --owner ann --json", true),
        ("backup", false),
        ("restore /tmp/x.tar", true),
        ("doctor --fix --json", true),
        ("models openai --json", true),
        ("models openai --all", false),
        ("channels test", false),
        ("channels test webhook:in --json", true),
        ("tools list --json", true),
        ("tools show exec --json", true),
        ("tools run exec {} --query why --raw --json", true),
        ("tools run", false),
        ("prompt --session cli:work -m hi --json", true),
        ("trash list --json", true),
        ("trash restore 019a2b3c --to notes/old.txt --json", true),
        ("trash restore", false),
        ("trash empty --json", true),
        ("trash", false),
        ("completions zsh", true),
        ("completions cmd", false),
        ("nonsense", false),
        ("", false),
    ];

    #[test]
    fn valid_lines_parse_and_invalid_ones_exit_with_2() {
        for (line, good) in LINES {
            let parsed = Cli::try_parse_from(std::iter::once("daoyou").chain(line.split_whitespace()));
            match parsed {
                Ok(_) => assert!(good, "{line}"),
                Err(error) => assert!(!good && error.exit_code() == 2, "{line}: {error}"),
            }
        }
    }
}
