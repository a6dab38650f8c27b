//! MCP: the client of the servers whose tools the agent uses, and daoyou itself as a server.

mod cache;
mod client;
mod config;
mod content;
mod images;
mod import;
mod listing;
mod names;
mod schema;
mod serve;
mod server;
mod servers;
mod tools;

pub use client::{McpError, McpErrorKind};
pub use config::{McpAuthConfig, McpServerConfig, McpTransport, is_server_name};
pub use import::{ImportedServer, import_servers};
pub use listing::{ListedPrompt, ListedResource, ListedTool, PromptArgument, ServerListing};
pub use serve::{
    AgentAccess, BoundedLine, LineReader, MAX_MESSAGE, MCP_CHANNEL, McpEndpoint, mcp_channel, too_long_error,
};
pub use server::{McpHost, McpServer, McpServerState, ServerStatus};
pub use servers::McpServers;
pub use tools::{MCP_READ, prompt_text};
