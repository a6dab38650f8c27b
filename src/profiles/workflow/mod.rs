//! Workflows: the steps of an agent that asks no model which one is next. A `workflow.yaml` is read and checked with the agent;
//! [`next_step`] decides from the results so far, and from nothing else, so that a turn that resumes goes on as before.

mod file;
mod next;

pub(super) use file::SPAWN;
pub use file::{WORKFLOW_FILE, Workflow};
pub use next::{CallEnd, CallResult, StepCall, WorkflowNext, WorkflowStop, next_step};
