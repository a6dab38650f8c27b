//! The runner of commands, and the tool `exec`.

mod capture;
mod foreign;
mod run;
mod runner;
mod server_process;
mod tool;

pub(in crate::tools) use foreign::visibility as foreign_visibility;
pub(in crate::tools) use runner::{COMMAND_BYTES, CollectedOutput, END_MARGIN, ShellCommand};
pub use runner::{CommandRunner, sandbox_of};
pub use server_process::{ServerCommand, ServerError, ServerProcess, ServerSocket};
pub use tool::ExecTool;
