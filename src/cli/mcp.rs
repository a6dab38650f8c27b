//! `daoyou mcp`.

use std::path::PathBuf;

use clap::Subcommand;

use super::output::Output;

#[derive(Clone, Debug, Subcommand)]
pub enum McpCommand {
    /// List the MCP servers: their state, their tools, and what went wrong last
    #[command(
        after_help = "Examples:\n  daoyou mcp list\n  daoyou mcp list --json | jq -r '.[] | select(.last_error).name'"
    )]
    List(Output),
    /// Start a server, list what it offers, and say how long that took
    #[command(after_help = "Example:\n  daoyou mcp test files")]
    Test {
        /// The NAME of [mcp.NAME]
        name: String,
        #[command(flatten)]
        output: Output,
    },
    /// List the tools of a server, with the names that the agent uses
    #[command(after_help = "Examples:\n  daoyou mcp tools files\n  daoyou mcp tools files --json | jq '.[0].schema'")]
    Tools {
        /// The NAME of [mcp.NAME]
        name: String,
        #[command(flatten)]
        output: Output,
    },
    /// Serve daoyou itself as an MCP server on standard input and output, for another program
    ///
    /// A gateway must run. It offers the tools ask, remember, recall, schedule, send and list_sessions. Claude Code takes it by
    /// `claude mcp add daoyou -- daoyou mcp serve`.
    #[command(after_help = "Examples:\n  daoyou mcp serve\n  daoyou mcp serve --session work")]
    Serve {
        /// The session of `ask`, by default one for each run
        #[arg(long)]
        session: Option<String>,
    },
    /// Import servers from another program's configuration
    ///
    /// Reads mcp.json, claude_desktop_config.json or .vscode/mcp.json, and prints a table [mcp.NAME] for each server.
    /// If a part is not understood, the command fails and imports nothing.
    #[command(
        after_help = "Examples:\n  daoyou mcp import ~/.cursor/mcp.json\n  daoyou mcp import .vscode/mcp.json --add"
    )]
    Import {
        /// The file
        file: PathBuf,
        /// Add the tables to config.toml instead of printing them
        #[arg(long)]
        add: bool,
    },
}
