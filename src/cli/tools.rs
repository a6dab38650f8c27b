//! `daoyou tools`, `daoyou prompt` and `daoyou models`.

use clap::{Args, Subcommand};

use super::output::Output;

#[derive(Clone, Debug, Subcommand)]
pub enum ToolsCommand {
    /// List the tools
    #[command(after_help = "Examples:\n  daoyou tools list\n  \
                            daoyou tools list --json | jq '.[] | select(.name == \"exec\").schema'")]
    List(Output),
    /// Show what a tool does, its arguments, its limits and when it needs your approval
    #[command(after_help = "Examples:\n  daoyou tools show exec\n  daoyou tools show cron --json")]
    Show {
        /// The tool, by its name or another name for it
        name: String,
        #[command(flatten)]
        output: Output,
    },
    /// Run a tool by hand, as the agent does in your own chat
    ///
    /// The sandbox, the path rules, the limits and the removal of secrets are those of the agent. What the tool does inside daoyou
    /// (a job, a memory, a message) is kept. With --raw the result is not shortened. The exit code is 0 if the tool succeeds, 1 if
    /// it fails, and 2 if there is no such tool or the arguments are not a JSON object.
    #[command(after_help = "Examples:\n  daoyou tools run list_dir '{}'\n  \
                            daoyou tools run exec '{\"command\": \"ls -l\"}' --json\n  \
                            daoyou tools run write_file - < arguments.json")]
    Run(ToolRunArgs),
}

/// `daoyou tools run`.
#[derive(Clone, Debug, Args)]
pub struct ToolRunArgs {
    /// The tool, by its name or another name for it
    pub name: String,
    /// The arguments, a JSON object; - reads standard input
    #[arg(value_name = "JSON", default_value = "{}", allow_hyphen_values = true)]
    pub arguments: String,
    /// The question by which the result is filtered, as in a turn
    #[arg(long, value_name = "TEXT")]
    pub query: Option<String>,
    #[command(flatten)]
    pub output: Output,
}

/// `daoyou prompt`.
#[derive(Clone, Debug, Args)]
pub struct PromptArgs {
    /// The conversation [default: cli:direct]
    #[arg(long, value_name = "KEY")]
    pub session: Option<String>,
    /// The message that the request answers [default: hello]
    #[arg(short, long, value_name = "TEXT", allow_hyphen_values = true)]
    pub message: Option<String>,
    #[command(flatten)]
    pub output: Output,
}

/// `daoyou models`.
#[derive(Clone, Debug, Args)]
pub struct ModelsArgs {
    /// Ask this service for its models
    #[arg(conflicts_with = "all")]
    pub provider: Option<String>,
    /// Ask every service for its models
    #[arg(long)]
    pub all: bool,
    #[command(flatten)]
    pub output: Output,
}

/// Parses the model of an option. Otherwise an empty one, such as an unset variable of a script, would count as none.
pub(super) fn model_name(text: &str) -> Result<String, String> {
    match text.trim() {
        "" => Err("the model is empty; leave the option out, or name one such as openai/gpt-4o".to_owned()),
        _ => Ok(text.to_owned()),
    }
}
