//! The agent: takes accepted messages, runs their turns, answers.

mod config;

pub use config::{AgentConfig, Locale, QueueMode};
