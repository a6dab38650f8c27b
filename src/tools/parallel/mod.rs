//! Several calls as one plan: what needs nothing runs at once, the rest when what it needs is there.

mod fill;
mod plan;
mod report;
mod run;
mod tool;
#[cfg(test)]
mod tool_tests;

pub use plan::{Plan, PlanError, PlanNode};
pub use run::{NodeEnd, OnError, RunNode, run_plan};
pub use tool::{ParallelTool, is_plan};
