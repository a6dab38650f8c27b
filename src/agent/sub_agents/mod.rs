//! Sub-agents: turns in sessions of their own that work on a task from another turn.

mod child;
mod config;
mod run_end;
mod tool;

pub use config::SpawnConfig;
pub(super) use run_end::{AwaitingTurn, follow_ups_of};
pub(super) use tool::SPAWN;
pub use tool::SpawnTool;
