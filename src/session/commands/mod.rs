//! Slash commands, which every channel supports and which need no model.

mod handler;
mod slash_command;

mod approvals;
mod checkpoints;
mod history;
mod mcp;
mod memories;

pub use handler::CommandHandler;
pub use slash_command::{CommandContext, CommandReply, ModelPrompt, SessionChange, SlashCommand};
