//! `daoyou sessions`.

use std::path::PathBuf;

use clap::{Subcommand, ValueEnum};
use daoyou_channels::SessionKey;

use super::output::Output;

#[derive(Clone, Debug, Subcommand)]
pub enum SessionsCommand {
    /// List the conversations
    #[command(after_help = "Examples:\n  daoyou sessions list\n  daoyou sessions list --json")]
    List(Output),
    /// Show the messages of a conversation
    #[command(after_help = "Example:\n  daoyou sessions show cli:direct")]
    Show {
        /// The conversation, e.g. cli:direct
        key: String,
        #[command(flatten)]
        output: Output,
    },
    /// Search all conversations or one, also before the last /new
    #[command(after_help = "Examples:\n  daoyou sessions search 'the red bicycle'\n  \
                            daoyou sessions search 自行车 --session cli:direct --since 30d --json")]
    Search {
        /// What to search for, in your own words
        query: String,
        /// Only in this conversation
        #[arg(long, value_name = "KEY")]
        session: Option<String>,
        /// Nothing older than this: how long ago (7d), a date (2026-03-08) or a time
        #[arg(long, value_name = "WHEN")]
        since: Option<String>,
        /// The maximum number of entries to show
        #[arg(long, value_name = "COUNT", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=100))]
        limit: u32,
        #[command(flatten)]
        output: Output,
    },
    /// Print a whole conversation, as JSON with one message on each line, or as a text to read
    ///
    /// `sessions import` reads both: the text ends with a comment that contains the JSON. --json means --format jsonl.
    #[command(after_help = "Examples:\n  daoyou sessions export cli:direct > direct.jsonl\n  \
                            daoyou sessions export cli:direct --format md > direct.md")]
    Export {
        /// The conversation, e.g. cli:direct
        key: String,
        /// The format: jsonl or md
        #[arg(long, value_enum, default_value_t = ExportFormat::Jsonl, hide_possible_values = true)]
        format: ExportFormat,
        #[command(flatten)]
        output: Output,
    },
    /// Import an exported conversation, or one of another assistant
    ///
    /// It reads what `sessions export` writes, and files of other assistants with one object {"key", "messages": [{"role",
    /// "content", "timestamp"}], …}. Either all of the file is imported or nothing; faults are named with their lines. The
    /// conversation must not exist yet. Summaries in the file are ignored: daoyou makes new ones.
    #[command(after_help = "Examples:\n  daoyou sessions import direct.jsonl\n  \
                            daoyou sessions import direct.md --session cli:old\n  \
                            daoyou sessions import telegram_42.jsonl\n  \
                            daoyou sessions import - --session webhook:in:ann --owner webhook:in:ann < ann.jsonl")]
    Import {
        /// The file; - reads standard input
        #[arg(value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
        file: PathBuf,
        /// The key of the new conversation [default: the key in the file]
        #[arg(long, value_name = "KEY", value_parser = session_key)]
        session: Option<String>,
        /// The owner of the conversation: owner, a name of [identities], or CHANNEL:SENDER [default: as in the file; owner
        /// if the file names none or --session gives another key]
        #[arg(long, value_name = "WHO")]
        owner: Option<String>,
        #[command(flatten)]
        output: Output,
    },
    /// Begin a conversation anew, as /new does; its messages stay searchable
    #[command(after_help = "Example:\n  daoyou sessions clear cli:direct")]
    Clear {
        /// The conversation, e.g. cli:direct
        key: String,
        #[command(flatten)]
        output: Output,
    },
}

/// The format of an exported conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ExportFormat {
    /// JSON, one message on each line.
    Jsonl,
    /// Markdown to read.
    Md,
}

/// Parses the key of a session to write to. Commands that read or clear a session accept any text.
pub(super) fn session_key(text: &str) -> Result<String, String> {
    match text {
        "" => Err("the key of a session is empty; leave the option out, or name one such as cli:work".to_owned()),
        text if SessionKey::is_valid_choice(text) => Ok(text.to_owned()),
        _ => Err(SessionKey::RULE.to_owned()),
    }
}
