//! Answers queries about the gateway itself, both for a running gateway and offline.

mod channels;
mod checks;
mod inspector;
mod mcp;
mod providers;
mod read_only;
mod sandbox;
mod status;
mod tools;
mod units;

pub use inspector::{Inspector, RunningInspector, RunningParts};
pub use read_only::read_only_reason;
pub use units::format_age;
