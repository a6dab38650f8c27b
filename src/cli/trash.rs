//! `daoyou trash`.

use clap::Subcommand;

use super::output::Output;

#[derive(Clone, Debug, Subcommand)]
pub enum TrashCommand {
    /// List what is in the trash, the newest first
    #[command(after_help = "Examples:\n  daoyou trash list\n  daoyou trash list --json | jq -r '.[].path'")]
    List(Output),
    /// Move an entry back to its former place
    ///
    /// Missing folders are created. Nothing is overwritten.
    #[command(after_help = "Examples:\n  daoyou trash restore 019a2b3c-4d5e\n  \
                            daoyou trash restore 019a2b3c-4d5e --to notes/old.txt")]
    Restore {
        /// The id of the entry, or the beginning of it
        id: String,
        /// The new path, relative to the workspace [default: the former one]
        #[arg(long, value_name = "PATH")]
        to: Option<String>,
        #[command(flatten)]
        output: Output,
    },
    /// Remove everything in the trash for good
    #[command(after_help = "Example:\n  daoyou trash empty")]
    Empty(Output),
}
