//! The queries and changes of the API, the control socket and the offline commands, and their JSON results. This module does not
//! know its callers: `http` and `gateway` call it, and `control` maps its requests to HTTP.

pub mod access;
mod approvals;
pub mod cost;
mod inspect;
pub mod jobs;
pub mod memories;
mod queue;
mod rows;
pub mod sessions;
mod store_query;
mod terminal;
pub mod turns;

pub use crate::memory::MemorySelection;
pub use access::{TokenChange, TokenScope};
pub use approvals::ApprovalAnswer;
pub use inspect::{GatewayQuery, Inspect, InspectError, ManualToolRun, ProbeScope};
pub use jobs::{JobChange, JobQuery};
pub use memories::{MemoryChange, MemoryQuery};
pub use queue::{AfterCommit, AppliedChange, RetryClass};
pub use rows::{LIST_LIMIT, losses, timestamp, usage};
pub use store_query::{StoreChange, StoreQuery, apply, read};
pub use terminal::{GatewayDirectory, ModelSelection, TerminalFrame, TerminalInfo};

/// The end of a name in the path of a request that would otherwise lead to another path, such as "..". No name contains it.
const NAME_END: char = '\0';

/// Returns a name with [`NAME_END`], so that the path of a request can contain it although it would lead to another path.
pub fn with_name_end(name: &str) -> String {
    format!("{name}{NAME_END}")
}

/// Returns the name that the path of a request contains.
pub fn name_of_path(segment: &str) -> &str {
    segment.strip_suffix(NAME_END).unwrap_or(segment)
}
