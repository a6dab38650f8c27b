//! What the model can do: the tools, their registry, and the executor that runs them.

mod config;
mod tool;

pub use config::{ExecConfig, ToolsConfig};
pub use tool::{Effect, OutputLimit, Replay, Tool, ToolContext, ToolOutcome, ToolResult};
