//! `daoyou agents`.

use clap::Subcommand;

use super::output::Output;

#[derive(Clone, Debug, Subcommand)]
pub enum AgentsCommand {
    /// List the agents and the rejected profiles
    #[command(after_help = "Examples:\n  daoyou agents list\n  daoyou agents list --json | jq -r '.[].name'")]
    List(Output),
    /// Show an agent: its prompt, model, tools and limits
    #[command(after_help = "Example:\n  daoyou agents show explorer")]
    Show {
        /// The name of the agent
        name: String,
        #[command(flatten)]
        output: Output,
    },
}
