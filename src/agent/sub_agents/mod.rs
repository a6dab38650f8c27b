//! Sub-agents: turns of their own sessions that work on a task which another turn gave them.

mod child;
mod config;
mod run_end;
mod tool;

pub use config::SpawnConfig;
pub(super) use run_end::{AwaitingTurn, follow_ups_of};
pub(super) use tool::SPAWN;
pub use tool::SpawnTool;
