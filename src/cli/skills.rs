//! `daoyou skills`.

use std::path::PathBuf;

use clap::Subcommand;

use super::output::Output;

#[derive(Clone, Debug, Subcommand)]
pub enum SkillsCommand {
    /// List the skills, and say what is wrong with others
    #[command(after_help = "Examples:\n  daoyou skills list\n  \
                            daoyou skills list --json | jq -r '.[] | select(.available).name'")]
    List(Output),
    /// Show a skill as the agent loads it: its instructions and files
    #[command(after_help = "Example:\n  daoyou skills show weather")]
    Show {
        /// The name of the skill
        name: String,
        #[command(flatten)]
        output: Output,
    },
    /// Check the skills in a folder, or all skills of the agent
    ///
    /// Names each problem with its file and line. The exit code is 0 if there is none, and 1 otherwise.
    #[command(after_help = "Examples:\n  daoyou skills check\n  daoyou skills check ~/downloads/skills --json")]
    Check {
        /// A folder with skills, or of one skill [default: all skills of the agent]
        #[arg(value_name = "DIR")]
        folder: Option<PathBuf>,
        #[command(flatten)]
        output: Output,
    },
}
