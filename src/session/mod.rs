//! Sessions: their order, ownership and resets, and the commands that control them.

pub mod commands;
pub mod lanes;
pub mod resets;
pub mod retry_scheduler;
pub mod session_ownership;
