//! The agent: takes accepted messages, runs their turns, answers.

mod config;
mod workspace;

pub use config::{AgentConfig, Locale, QueueMode};
pub use workspace::prepare as prepare_workspace;
