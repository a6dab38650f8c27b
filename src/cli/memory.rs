//! `daoyou memory`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::Output;

#[derive(Clone, Debug, Subcommand)]
pub enum MemoryCommand {
    /// List what is remembered, the newest first, or show one with its history
    #[command(after_help = "Examples:\n  daoyou memory show\n  daoyou memory show 17\n  \
                            daoyou memory show --kind preference --owner ann --json")]
    Show {
        /// One, by its id
        #[arg(conflicts_with_all = ["owner", "kind", "limit"])]
        id: Option<i64>,
        #[command(flatten)]
        whose: MemoryOwner,
        /// How many
        #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=1_000))]
        limit: Option<u32>,
        #[command(flatten)]
        output: Output,
    },
    /// Find what is remembered and what was said, the best first
    #[command(after_help = "Examples:\n  daoyou memory search 'birthday of Ann'\n  \
                            daoyou memory search 猫 --since 30d --limit 3 --json")]
    Search {
        /// What to look for, in your words
        query: String,
        #[command(flatten)]
        whose: MemoryOwner,
        /// Not older: how long ago (7d), a date (2026-03-08) or a time
        #[arg(long, value_name = "WHEN")]
        since: Option<String>,
        /// How many
        #[arg(long, value_name = "COUNT", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=100))]
        limit: u32,
        #[command(flatten)]
        output: Output,
    },
    /// Remember something; prints its id
    ///
    /// What contradicts something that is known takes its place, and what says the same is not written again.
    #[command(after_help = "Examples:\n  daoyou memory add 'The cat is called Momo'\n  \
                            daoyou memory add German --kind preference --key language\n  \
                            daoyou memory add 'The office is closed on Fridays' --owner everyone")]
    Add {
        /// What
        text: String,
        /// A fact, or a preference, which has a key [default: fact]
        #[arg(long, value_parser = ["fact", "preference"], hide_possible_values = true)]
        kind: Option<String>,
        /// What the preference is about, e.g. language
        #[arg(long)]
        key: Option<String>,
        /// Whose it is: owner, everyone, a name of [identities], or CHANNEL:SENDER [default: owner]
        #[arg(long, value_name = "WHO")]
        owner: Option<String>,
        #[command(flatten)]
        output: Output,
    },
    /// Remove memories for good: from the index, from prompts, and from the conversations that they came from
    #[command(after_help = "Example:\n  daoyou memory forget 17 23")]
    Forget {
        /// Their ids
        #[arg(required = true, value_name = "ID")]
        ids: Vec<i64>,
        #[command(flatten)]
        output: Output,
    },
    /// Print what is remembered, one a line, as JSON, the oldest first
    #[command(
        after_help = "Examples:\n  daoyou memory export > memory.jsonl\n  daoyou memory export --owner ann > ann.jsonl"
    )]
    Export {
        #[command(flatten)]
        whose: MemoryOwner,
        /// It is JSON in any case
        #[arg(long)]
        json: bool,
    },
    /// Remember what stands in an export
    ///
    /// All of it or nothing: what cannot be taken is named with its line. What is known already is not written again.
    #[command(
        after_help = "Examples:\n  daoyou memory import memory.jsonl\n  daoyou memory import --json - < memory.jsonl"
    )]
    Import {
        /// The file; - is standard input
        #[arg(value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
        file: PathBuf,
        #[command(flatten)]
        output: Output,
    },
    /// Show how much is remembered of whom, the index, the vectors, and what summaries have used
    #[command(after_help = "Examples:\n  daoyou memory stats\n  daoyou memory stats --json")]
    Stats(Output),
}

/// Whose memories, and of which kind.
#[derive(Clone, Debug, Default, Args)]
pub struct MemoryOwner {
    /// Whose: owner, everyone, a name of [identities], or CHANNEL:SENDER [default: everybody's]
    #[arg(long, value_name = "WHO")]
    pub owner: Option<String>,
    /// Only of this kind: fact, preference, case, task or summary
    #[arg(long, value_parser = ["fact", "preference", "case", "task", "summary"], hide_possible_values = true)]
    pub kind: Option<String>,
}
