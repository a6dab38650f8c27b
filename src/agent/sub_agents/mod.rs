//! Sub-agents: turns of their own sessions that work on a task which another turn gave them.

mod child;
mod config;
mod ended;
mod tool;

pub use config::SpawnConfig;
pub(super) use ended::{AwaitingTurn, ended};
pub(super) use tool::SPAWN;
pub use tool::SpawnTool;
