//! `daoyou open` and `daoyou tokens`: access to the page and the API.

use clap::{Args, Subcommand};

use super::output::Output;
use crate::query::TokenScope;

/// `daoyou open`.
#[derive(Clone, Copy, Debug, Args)]
pub struct OpenArgs {
    /// Print the link only
    #[arg(long)]
    pub no_browser: bool,
    #[command(flatten)]
    pub output: Output,
}

#[derive(Clone, Debug, Subcommand)]
pub enum TokensCommand {
    /// Add a token for another program, device or person, and print it once
    ///
    /// A token with the scope chat begins chats of its own and sees nothing else; the agent knows its holder as the sender token:NAME, not
    /// as the owner. With read it reads what the API shows, without configuration and files. With admin it may do everything.
    #[command(after_help = "Examples:\n  daoyou tokens add phone --scope chat\n  \
                            daoyou tokens add grafana --scope read --json | jq -r .token")]
    Add {
        /// The name of the token: lower-case letters, digits, - and _
        name: String,
        /// The scope of the token
        #[arg(long)]
        scope: TokenScope,
        /// Take the name of a revoked token, with its chats, uploads and memories
        #[arg(long)]
        reuse: bool,
        #[command(flatten)]
        output: Output,
    },
    /// List the tokens, and when they were last used
    #[command(after_help = "Examples:\n  daoyou tokens list\n  daoyou tokens list --json | jq -r '.[].name'")]
    List(Output),
    /// Revoke a token, and end its logins
    #[command(after_help = "Example:\n  daoyou tokens revoke phone")]
    Revoke {
        /// The name of the token
        name: String,
        #[command(flatten)]
        output: Output,
    },
}
