//! The parts of the gateway that routes use.

use std::path::PathBuf;
use std::sync::Arc;

use daoyou_channels::cli::CliChannel;
use daoyou_channels::outgoing::OutgoingFiles;
use jiff::Timestamp;
use tokio_util::sync::CancellationToken;

use super::access::Authenticator;
use super::page::PageHub;
use crate::bus::{BusInbox, ChannelHealth, MessageBus};
use crate::cron::JobService;
use crate::live::LivePart;
use crate::mcp::McpServers;
use crate::memory::MemoryService;
use crate::query::{GatewayDirectory, Inspect};

/// The state that all routes share.
pub struct AppState {
    pub bus: Arc<MessageBus>,
    pub inbox: BusInbox,
    pub channels: Arc<ChannelHealth>,
    pub cli: Arc<CliChannel>,
    pub directory: Arc<GatewayDirectory>,
    pub jobs: LivePart<JobService>,
    pub memory: LivePart<MemoryService>,
    pub mcp: LivePart<McpServers>,
    /// Answers queries about the gateway itself.
    pub inspector: Arc<dyn Inspect>,
    pub auth: Arc<Authenticator>,
    pub page: Arc<PageHub>,
    pub folders: Arc<FileFolders>,
    /// The address of the page, such as `http://127.0.0.1:18790`; `None` if nothing is served.
    pub address: Option<String>,
    /// The time when this gateway started.
    pub started: Timestamp,
    /// Cancelled to end open event streams.
    pub shutdown: CancellationToken,
}

/// The folders of uploads and of files attached to outgoing messages.
pub struct FileFolders {
    pub workspace: PathBuf,
    pub outgoing: OutgoingFiles,
}

/// The extractor for the state.
pub type SharedState = axum::extract::State<Arc<AppState>>;
