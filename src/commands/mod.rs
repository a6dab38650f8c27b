//! The commands.

mod exit;
mod line;

pub mod config;

pub use exit::Exit;
pub use line::read;
