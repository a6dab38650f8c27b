//! Sub-agents: turns in sessions of their own that work on a task from another turn.

mod child;
mod tool;

pub(super) use child::{AwaitingTurn, follow_ups_of};
pub(super) use tool::SPAWN;
pub use tool::SpawnTool;
