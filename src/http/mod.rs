//! The HTTP server: health, the routes of channels, and the API, which needs the token on TCP.

mod access;
mod api;
mod control_socket;
mod health;
mod mcp;
mod metrics;
mod page;
mod read_only;
mod routes;
mod state;

mod login_attempts;

mod proxies;
mod server;
mod service;
mod tls;

mod body;
mod connections;
mod head;
mod limits;
mod stream;

mod error;

#[cfg(any(test, fuzzing))]
pub mod fuzz;

pub use access::Authenticator;
pub use control_socket::serve_control;
pub use limits::{IMPORT_BODY_LIMIT, ServerLimits};
pub use metrics::scrape;
pub use page::{PAGE_CHANNEL, PageChannel, PageHub, sweep_uploads};
pub use proxies::{TrustedProxies, parse_network};
pub use read_only::{ReadOnlyReason, read_only_routes};
pub use routes::{control_routes, tcp_routes};
pub use server::{BoundListener, Server, ServerSettings};
pub use service::AllowedHosts;
pub use state::{AppState, FileFolders};
pub use tls::{ReloadingTls, TlsConfig, TlsFile};
