//! `daoyou memory`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::output::Output;

#[derive(Clone, Debug, Subcommand)]
pub enum MemoryCommand {
    /// List memories, the newest first, or show one with its history
    #[command(after_help = "Examples:\n  daoyou memory show\n  daoyou memory show 17\n  \
                            daoyou memory show --kind preference --owner ann --json")]
    Show {
        /// The id of one memory
        #[arg(conflicts_with_all = ["owner", "kind", "limit"], value_parser = memory_id)]
        id: Option<i64>,
        #[command(flatten)]
        filter: MemoryFilterArgs,
        /// The maximum number of entries to show
        #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=1_000))]
        limit: Option<u32>,
        #[command(flatten)]
        output: Output,
    },
    /// Search memories and messages, the best match first
    #[command(after_help = "Examples:\n  daoyou memory search 'birthday of Ann'\n  \
                            daoyou memory search 猫 --since 30d --limit 3 --json")]
    Search {
        /// What to search for, in your own words
        query: String,
        #[command(flatten)]
        filter: MemoryFilterArgs,
        /// Nothing older than this: how long ago (7d), a date (2026-03-08) or a time
        #[arg(long, value_name = "WHEN")]
        since: Option<String>,
        /// The maximum number of entries to show
        #[arg(long, value_name = "COUNT", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=100))]
        limit: u32,
        #[command(flatten)]
        output: Output,
    },
    /// Add a memory; prints its id
    ///
    /// It replaces a memory that it contradicts. Duplicates are ignored.
    #[command(after_help = "Examples:\n  daoyou memory add 'The cat is called Momo'\n  \
                            daoyou memory add German --kind preference --key language\n  \
                            daoyou memory add 'The office is closed on Fridays' --owner everyone")]
    Add {
        /// The text
        text: String,
        /// fact, or preference, which has a key [default: fact]
        #[arg(long, value_parser = ["fact", "preference"], hide_possible_values = true)]
        kind: Option<String>,
        /// The subject of the preference, e.g. language
        #[arg(long)]
        key: Option<String>,
        /// The owner of the memory: owner, everyone, a name of [identities], or CHANNEL:SENDER [default: owner]
        #[arg(long, value_name = "WHO")]
        owner: Option<String>,
        #[command(flatten)]
        output: Output,
    },
    /// Remove memories for good, also from prompts and from the conversations that they came from
    #[command(after_help = "Example:\n  daoyou memory forget 17 23")]
    Forget {
        /// The ids of the memories
        #[arg(required = true, value_name = "ID", value_parser = memory_id)]
        ids: Vec<i64>,
        #[command(flatten)]
        output: Output,
    },
    /// Print all memories as JSON, one on each line, the oldest first
    #[command(
        after_help = "Examples:\n  daoyou memory export > memory.jsonl\n  daoyou memory export --owner ann > ann.jsonl"
    )]
    Export {
        #[command(flatten)]
        filter: MemoryFilterArgs,
        /// Has no effect: the output is always JSON
        #[arg(long)]
        json: bool,
    },
    /// Import exported memories
    ///
    /// Either all of the file is imported or nothing; faults are named with their lines. Duplicates are ignored.
    #[command(
        after_help = "Examples:\n  daoyou memory import memory.jsonl\n  daoyou memory import --json - < memory.jsonl"
    )]
    Import {
        /// The file; - reads standard input
        #[arg(value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
        file: PathBuf,
        #[command(flatten)]
        output: Output,
    },
    /// Show the memories of each owner, the index, the vectors, and the tokens used by summaries
    #[command(after_help = "Examples:\n  daoyou memory stats\n  daoyou memory stats --json")]
    Stats(Output),
}

/// A selection of memories by owner and kind.
#[derive(Clone, Debug, Default, Args)]
pub struct MemoryFilterArgs {
    /// Only memories of: owner, everyone, a name of [identities], or CHANNEL:SENDER [default: all]
    #[arg(long, value_name = "WHO")]
    pub owner: Option<String>,
    /// Only memories of this kind: fact, preference, case, task or summary
    #[arg(long, value_parser = ["fact", "preference", "case", "task", "summary"], hide_possible_values = true)]
    pub kind: Option<String>,
}

/// Parses the id of a memory.
fn memory_id(text: &str) -> Result<i64, String> {
    text.parse().map_err(|_| "the id of a memory is a number; `daoyou memory show` lists them".to_owned())
}
