//! The terminal.

mod config;
mod console;
mod hub;
mod interrupt;
mod plain;
mod readline;
mod render;
mod terminal;
mod turn;

#[cfg(test)]
mod tests;

pub use config::CliConfig;
pub use console::{Console, Style};
pub use hub::{Attachment, CliChannel, Delivery};
pub use interrupt::Interrupt;
pub use terminal::{Front, Left, Terminal};
