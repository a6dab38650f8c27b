//! The tool `run_test`: finds the test runner of a project, runs it in the sandbox of commands, and reads its report.

mod cargo;
mod go;
mod maven;
mod node;
mod project;
mod pytest;
mod report;
mod tool;

pub use tool::RunTest;
