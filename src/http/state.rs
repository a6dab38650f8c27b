//! The parts of the gateway that routes use.

use std::sync::Arc;

use daoyou_channels::cli::CliChannel;
use tokio_util::sync::CancellationToken;

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
    /// Cancelled to end open event streams.
    pub shutdown: CancellationToken,
}

/// The extractor of the state.
pub type SharedState = axum::extract::State<Arc<AppState>>;
