//! Workflows: fixed steps of an agent, which needs no model to choose the next step. A `workflow.yaml` is read and checked with
//! the agent. [`next_step`] decides from the results so far alone, so that a resumed turn continues as before.

mod file;
mod next;

pub(super) use file::SPAWN;
pub use file::{WORKFLOW_FILE, Workflow};
pub use next::{CallEnd, CallResult, StepCall, WorkflowNext, WorkflowStop, next_step};
