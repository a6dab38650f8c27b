//! What the model can do: the tools, their registry, and the executor that runs them.

mod arguments;
mod config;
mod cut;
mod registry;
mod schema;
mod spill;
mod tool;

pub use arguments::parse_arguments;
pub use config::{ExecConfig, ToolsConfig};
pub use cut::{Extent, cut};
pub use registry::{Registry, RegistryError};
pub use schema::{plain_schema, schema_faults, tool_spec};
pub use spill::Spill;
pub use tool::{Effect, OutputLimit, Replay, Tool, ToolContext, ToolOutcome, ToolResult};
