//! The tool that runs commands.

mod capture;
mod run;
mod tool;

pub use tool::{ExecDeps, ExecTool, sandbox_of};
