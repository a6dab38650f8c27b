//! The queries and changes of the API, the control socket and the offline commands, and their JSON results. This module does not
//! know its callers: `http` and `gateway` call it, and `control` sends its requests to a running gateway.

pub mod access;
mod approvals;
pub mod cost;
mod inspect;
pub mod jobs;
pub mod memories;
pub mod open_turns;
mod queue;
mod rows;
pub mod sessions;
mod store_query;
mod terminal;
pub mod turns;

use serde::Serialize;
use serde::de::DeserializeOwned;

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

/// The error for a request that the gateway of another version does not know.
pub const OTHER_VERSION: &str = "the gateway of another version runs; restart it";

/// A query or change of a command, which a running gateway answers on its control socket.
pub trait ControlRequest: Serialize + DeserializeOwned {
    /// The name of the type in the path of the request. The body is the value as JSON.
    const NAME: &'static str;
}

macro_rules! control_requests {
    ($($request:ident),*) => {
        $(impl ControlRequest for $request {
            const NAME: &'static str = stringify!($request);
        })*
    };
}

control_requests!(
    StoreQuery, StoreChange, TokenChange, JobQuery, JobChange, MemoryQuery, MemoryChange, GatewayQuery, ManualToolRun
);
