//! The terminal.

mod config;

pub use config::CliConfig;
