//! `daoyou skills`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

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
    /// Install skills from a folder, a ZIP archive or a Git repository
    ///
    /// Shows what a skill brings (files, scripts, tools that it wants) and asks. Nothing of it is run. Its files are pinned: a skill that
    /// changes later is not used until you accept it.
    #[command(
        after_help = "Examples:\n  daoyou skills install ~/downloads/pdf-forms\n  daoyou skills install skills.zip pdf-forms --yes\n  \
                            daoyou skills install https://github.com/anthropics/skills pdf --ref main"
    )]
    Install(SkillInstallArgs),
    /// Accept an installed skill that has changed
    #[command(after_help = "Example:\n  daoyou skills accept pdf-forms")]
    Accept {
        /// The name of the skill
        name: String,
        /// Do not ask
        #[arg(long, short)]
        yes: bool,
        #[command(flatten)]
        output: Output,
    },
    /// Move a skill of the workspace to the trash
    #[command(after_help = "Example:\n  daoyou skills remove pdf-forms")]
    Remove {
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

/// `daoyou skills install`.
#[derive(Clone, Debug, Args)]
pub struct SkillInstallArgs {
    /// The path of a folder or ZIP archive, or the address of a repository: https, ssh or file
    pub source: String,
    /// The names of the skills, if there are several
    #[arg(value_name = "NAME")]
    pub names: Vec<String>,
    /// A branch, tag or commit of the repository
    #[arg(long = "ref", value_name = "REF")]
    pub reference: Option<String>,
    /// Install all skills that are there
    #[arg(long, conflicts_with = "names")]
    pub all: bool,
    /// Replace skills of the same names; the old ones go to the trash
    #[arg(long)]
    pub replace: bool,
    /// Do not ask
    #[arg(long, short)]
    pub yes: bool,
    #[command(flatten)]
    pub output: Output,
}
