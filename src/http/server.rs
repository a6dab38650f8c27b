//! Listening: TCP for the world, a Unix socket for the owner's own commands.

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::StatusCode;
use axum::serve::ListenerExt;
use daoyou_channels::cli::CliChannel;
use serde_json::json;
use tokio::net::{TcpListener, UnixListener};
use tokio_util::sync::CancellationToken;

use super::directory::GatewayDirectory;
use super::{api, health};
use crate::bus::{BusInbox, ChannelHealth, MessageBus};
use crate::llm::Models;

/// The largest request body where a channel sets no other, in bytes.
const BODY_LIMIT: usize = 2 * 1024 * 1024;

/// What the routes work with.
pub struct Hub {
    pub bus: Arc<MessageBus>,
    pub inbox: BusInbox,
    pub channels: Arc<ChannelHealth>,
    pub cli: Arc<CliChannel>,
    pub directory: Arc<GatewayDirectory>,
    pub models: Arc<Models>,
    /// `agent.model`.
    pub model: String,
    pub started: Instant,
    /// Cancelled when open streams are to end.
    pub shutdown: CancellationToken,
}

/// Binds `address`.
///
/// # Errors
/// In words: the address, what was wrong, what to do.
pub async fn bind(address: SocketAddr) -> Result<TcpListener, String> {
    TcpListener::bind(address).await.map_err(|error| {
        let hint = match error.kind() {
            std::io::ErrorKind::AddrInUse => ": another program listens there; choose another port with gateway.listen",
            std::io::ErrorKind::PermissionDenied => {
                ": ports below 1024 need privileges; choose another with gateway.listen"
            }
            _ => "",
        };
        format!("gateway.listen: cannot listen on {address}: {error}{hint}")
    })
}

/// The public routes: health, and what the channels mount.
pub fn router(hub: Arc<Hub>, channels: Vec<Router>) -> Router {
    let mut router = health::routes(hub);
    for channel in channels {
        router = router.merge(channel);
    }
    router.fallback(not_found).layer(DefaultBodyLimit::max(BODY_LIMIT))
}

/// The routes of the control socket.
pub fn control(hub: Arc<Hub>) -> Router {
    health::routes(hub.clone()).merge(api::routes(hub)).fallback(not_found).layer(DefaultBodyLimit::max(BODY_LIMIT))
}

/// Serves until `shutdown`.
pub async fn serve(listener: TcpListener, router: Router, shutdown: CancellationToken) {
    // Without TCP_NODELAY a reply in small pieces waits 40 ms for the other side's acknowledgement.
    let listener = listener.tap_io(|stream| {
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "TCP_NODELAY");
        }
    });
    let service = router.into_make_service_with_connect_info::<SocketAddr>();
    let served = axum::serve(listener, service).with_graceful_shutdown(shutdown.cancelled_owned()).await;
    if let Err(error) = served {
        tracing::error!(%error, "the HTTP server ended");
    }
}

/// Serves the control socket at `path`, for its owner only, until `shutdown`; removes it then.
///
/// # Errors
/// The socket cannot be made.
pub async fn serve_control(path: &Path, router: Router, shutdown: CancellationToken) -> std::io::Result<()> {
    // The lock on the home is ours, so a socket that lies here is a dead gateway's.
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    let path = path.to_owned();
    tokio::spawn(async move {
        let served =
            axum::serve(listener, router.into_make_service()).with_graceful_shutdown(shutdown.cancelled_owned());
        if let Err(error) = served.await {
            tracing::error!(%error, "the control socket ended");
        }
        if let Err(error) = std::fs::remove_file(&path) {
            tracing::debug!(%error, "the control socket could not be removed");
        }
    });
    Ok(())
}

async fn not_found(uri: axum::http::Uri) -> (StatusCode, axum::Json<serde_json::Value>) {
    let message = format!("there is nothing at {}", uri.path());
    (StatusCode::NOT_FOUND, axum::Json(json!({ "error": { "code": "not_found", "message": message } })))
}
