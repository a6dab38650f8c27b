//! Sessions: which runs next, whose it is, when it begins anew, and the commands that control it.

pub mod commands;
pub mod lanes;
pub mod resets;
pub mod retry_scheduler;
pub mod session_ownership;
