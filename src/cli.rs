//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::logging::{LogConfig, LogFormat};

/// A self-hosted AI-assistant gateway that never loses a message.
#[derive(Clone, Debug, Parser)]
#[command(name = "daoyou", version, arg_required_else_help = true, max_term_width = 100)]
#[command(after_help = "Start with `daoyou gateway` in a terminal, and type a message.")]
pub struct Cli {
    #[command(flatten)]
    pub globals: Globals,
    #[command(subcommand)]
    pub command: Command,
}

/// What every command takes.
#[derive(Clone, Debug, Default, Args)]
pub struct Globals {
    /// The folder that holds everything [default: $DAOYOU_HOME, else ~/.daoyou]
    #[arg(long, value_name = "DIR", global = true, help_heading = "Everywhere")]
    pub home: Option<PathBuf>,
    /// The configuration [default: $DAOYOU_CONFIG, else config.toml in the home]
    #[arg(long, value_name = "FILE", global = true, help_heading = "Everywhere")]
    pub config: Option<PathBuf>,
    /// What to log: error, warn, info, debug, trace, off, or directives like info,daoyou::llm=debug [default: $DAOYOU_LOG, else log.level]
    #[arg(long, value_name = "LEVEL", global = true, help_heading = "Everywhere", value_parser = log_level)]
    pub log: Option<String>,
    /// How to log: text or json
    #[arg(long, value_name = "FORMAT", global = true, help_heading = "Everywhere", value_parser = log_format)]
    pub log_format: Option<LogFormat>,
}

#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Run the gateway: all channels, and chat when started in a terminal
    Gateway(GatewayArgs),
    /// Chat in the terminal; without a terminal, each line of input is a message
    Chat(ChatArgs),
    /// Send one message and print the reply
    Agent(AgentArgs),
    /// Show whether the gateway runs, its channels, queues and last turns
    Status(StatusArgs),
    /// List, show, export or clear conversations
    #[command(subcommand)]
    Sessions(SessionsCommand),
    /// Look into turns, step by step
    #[command(subcommand)]
    Turns(TurnsCommand),
    /// Look after messages that could not be delivered
    #[command(subcommand)]
    Queue(QueueCommand),
    /// Check or show the configuration
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Write the whole home to one file: database, configuration, workspace, token
    ///
    /// Works while the gateway runs, which does not wait for it. The file is a tar archive, readable by its owner alone:
    /// it holds the token and whatever secrets stand in config.toml. It is there whole, or not at all. A workspace
    /// that is not in the home is not in it, and it says so.
    Backup(BackupArgs),
    /// Bring a home back from a backup
    ///
    /// Stop the gateway first. The whole file is unpacked and checked before anything is touched; what was in the home is
    /// then moved aside into a folder there, and nothing is deleted. Messages that were accepted after the backup are not
    /// in it, and it says which.
    Restore(RestoreArgs),
}

/// `daoyou status`.
#[derive(Clone, Copy, Debug, Default, Args)]
pub struct StatusArgs {
    /// Put away what status says about lost messages: you have seen it
    #[arg(long)]
    pub acknowledge: bool,
    #[command(flatten)]
    pub output: Output,
}

/// `daoyou backup`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:\n  daoyou backup ~/backups/daoyou.tar\n  \
        daoyou backup --force /mnt/nas/daoyou-$(date +%a).tar    one for each day of the week")]
pub struct BackupArgs {
    /// The file to write
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Overwrite the file if it is there
    #[arg(long)]
    pub force: bool,
    #[command(flatten)]
    pub output: Output,
}

/// `daoyou restore`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:\n  daoyou restore ~/backups/daoyou.tar\n  \
        daoyou restore --home /tmp/look ~/backups/daoyou.tar     unpack it elsewhere, to look at it")]
pub struct RestoreArgs {
    /// The backup
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    #[command(flatten)]
    pub output: Output,
}

/// `daoyou gateway`.
#[derive(Clone, Debug, Args)]
pub struct GatewayArgs {
    /// Chat here even if the input is no terminal
    #[arg(long, conflicts_with = "no_cli")]
    pub cli: bool,
    /// Never chat here
    #[arg(long)]
    pub no_cli: bool,
}

/// `daoyou chat`.
#[derive(Clone, Debug, Args)]
pub struct ChatArgs {
    /// The conversation to go on with [default: cli:direct]
    #[arg(long, value_name = "KEY")]
    pub session: Option<String>,
}

/// `daoyou agent`.
#[derive(Clone, Debug, Args)]
pub struct AgentArgs {
    /// The message
    #[arg(short, long, value_name = "TEXT")]
    pub message: String,
    /// The conversation it belongs to [default: cli:direct]
    #[arg(long, value_name = "KEY")]
    pub session: Option<String>,
    #[command(flatten)]
    pub output: Output,
}

/// How data is printed.
#[derive(Clone, Copy, Debug, Default, Args)]
pub struct Output {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Debug, Subcommand)]
pub enum SessionsCommand {
    /// List the conversations
    List(Output),
    /// Show what was said
    Show {
        /// The conversation, e.g. cli:direct
        key: String,
        #[command(flatten)]
        output: Output,
    },
    /// Print a whole conversation, one message a line, as JSON
    Export {
        /// The conversation, e.g. cli:direct
        key: String,
    },
    /// Forget what was said
    Clear {
        /// The conversation, e.g. cli:direct
        key: String,
        #[command(flatten)]
        output: Output,
    },
}

#[derive(Clone, Debug, Subcommand)]
pub enum TurnsCommand {
    /// List the last turns
    List(Output),
    /// Show each step of a turn
    Show {
        /// The turn's id
        id: String,
        #[command(flatten)]
        output: Output,
    },
}

#[derive(Clone, Debug, Subcommand)]
pub enum QueueCommand {
    /// List what waits and what could not be delivered
    List(Output),
    /// Show one
    Show(QueueItem),
    /// Try a dead one again
    Retry(QueueItem),
    /// Give one up
    Drop(QueueItem),
}

/// One message in a queue.
#[derive(Clone, Debug, Args)]
pub struct QueueItem {
    /// Its id
    pub id: String,
    #[command(flatten)]
    pub output: Output,
}

#[derive(Clone, Debug, Subcommand)]
pub enum ConfigCommand {
    /// Say what is wrong with the configuration, each fault on its line
    Check {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Show every setting and where its value comes from; secrets stay hidden
    Show {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Print where the configuration file is
    Path {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

fn log_level(text: &str) -> Result<String, String> {
    LogConfig::filter(text).map(|_| text.to_owned())
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
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn commands_stand_in_their_order() {
        let command = Cli::command();
        let names: Vec<_> =
            command.get_subcommands().filter(|one| !one.is_hide_set()).map(clap::Command::get_name).collect();
        assert_eq!(
            names,
            ["gateway", "chat", "agent", "status", "sessions", "turns", "queue", "config", "backup", "restore"]
        );
    }

    #[test]
    fn lines_are_understood_or_refused_with_2() {
        let table: &[(&str, bool)] = &[
            ("gateway --no-cli", true),
            ("gateway --cli --no-cli", false),
            ("chat --session a:b --home /tmp/x", true),
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
            ("config check --json", true),
            ("config", false),
            ("status --acknowledge", true),
            ("backup /tmp/x.tar --force --json", true),
            ("backup", false),
            ("restore /tmp/x.tar", true),
            ("nonsense", false),
            ("", false),
        ];
        for (line, good) in table {
            let parsed = Cli::try_parse_from(std::iter::once("daoyou").chain(line.split_whitespace()));
            match parsed {
                Ok(_) => assert!(good, "{line}"),
                Err(error) => assert!(!good && error.exit_code() == 2, "{line}: {error}"),
            }
        }
    }
}
