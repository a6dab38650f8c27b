//! The commands.

pub mod config;
mod exit;

pub use exit::Exit;
