//! Slash commands: answered without a model, on every channel.

mod handler;
mod slash_command;

mod approvals;
mod checkpoints;
mod history;
mod mcp;
mod memories;

pub use handler::CommandHandler;
pub use slash_command::{CommandContext, CommandReply, ModelPrompt, SessionChange, SlashCommand};
