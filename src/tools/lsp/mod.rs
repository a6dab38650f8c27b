//! The tools that use language servers: diagnostics, definitions, references, symbols, code actions and renaming. Servers run in
//! the sandbox of commands, and see only what all conversations may see.

mod client_state;
mod config;
mod connection;
mod diagnostics;
mod edits;
mod framing;
mod languages;
mod locations;
mod pool;
mod positions;
mod project_files;
mod query;
mod rename;
mod server;
mod service;
mod symbols;

pub use config::LspConfig;
pub use query::LspQuery;
pub use rename::LspRename;
pub use service::LspService;
