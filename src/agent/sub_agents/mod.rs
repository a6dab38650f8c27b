//! Sub-agents: turns of their own sessions that work on a task which another turn gave them.

mod child;
mod config;
mod ended;
mod tool;

pub use config::SpawnConfig;
pub(super) use ended::{Awaiting, ended};
pub(super) use tool::SPAWN;
pub use tool::SpawnTool;
