//! Several calls as one plan: calls without dependencies run at once, the others after the calls that they need.

mod fill;
mod plan;
mod report;
mod run;
mod tool;
#[cfg(test)]
mod tool_tests;

pub use tool::{ParallelTool, is_plan};
