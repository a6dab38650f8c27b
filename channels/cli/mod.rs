//! The channel `cli`: conversations in a terminal.

mod config;

// Text in rows.
mod layout;
mod markdown;
mod markdown_scan;
mod markdown_stream;
mod table;

// The terminal as a device.
mod console;
mod prompt_helper;
mod readline;
mod screen;
mod streams;

// Rendering of turns.
mod painter;
mod spinner;
mod texts;
mod tool_calls;
mod tool_output;

// The conversation and its channel.
mod channel;
mod files;
mod host;
mod local_command;
mod pending_turn;
mod screens;
mod terminal;

#[cfg(any(test, fuzzing))]
pub mod fuzz;
#[cfg(test)]
mod tests;

pub use crate::text::Language;
pub use channel::CliChannel;
pub use config::{CliConfig, Thinking};
pub use console::{Console, Interrupt};
pub use files::{ConversationFiles, FileFault};
pub use host::{CompletionNames, ConversationFeed, NameDirectory, TerminalConversation, TerminalHost};
pub use screen::TerminalStyle;
pub use screens::{ScreenDelivery, ScreenHandle};
pub use streams::OutputFault;
pub use terminal::{Terminal, TerminalExit, TerminalSetup};
pub use tool_output::render_output;
