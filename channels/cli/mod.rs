//! The terminal.

mod config;

mod console;
mod helper;
mod interrupt;
mod plain;
mod readline;
mod screen;

mod brief;
mod calls;
mod layout;
mod scan;
mod table;

mod markdown;

mod flow;

mod render;
mod spinner;
mod words;

mod files;
mod host;
mod hub;
mod local;
mod terminal;
mod turn;

#[cfg(any(test, fuzzing))]
pub mod fuzz;
#[cfg(test)]
mod tests;

pub use config::{CliConfig, Thinking};
pub use console::{Console, Style};
pub use files::{FileFault, Files};
pub use host::{Conversation, Directory, Following, Host, Names};
pub use hub::{Attachment, CliChannel, Delivery};
pub use interrupt::Interrupt;
pub use terminal::{Front, Left, Terminal};
pub use words::Language;
