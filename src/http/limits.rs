//! The limits of the server's resources that clients may use.

use std::time::Duration;

use daoyou_channels::settings::ByteSize;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use smart_default::SmartDefault;

/// The number of files that the gateway opens besides its connections: the database, model calls, commands, logs.
const OTHER_FILES: u64 = 512;

/// The minimum time between two log lines about refused connections, so that a flood does not fill the log.
pub const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// The pause after a connection could not be accepted for lack of files or memory.
pub const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The largest request body on a route without its own limit, in bytes.
pub const DEFAULT_BODY_LIMIT: usize = 2 * 1024 * 1024;

/// The largest import of memories, sessions or jobs, in bytes.
pub const IMPORT_BODY_LIMIT: usize = 32 * 1024 * 1024;

/// The largest file that the page uploads, in bytes.
pub const UPLOAD_LIMIT: usize = 25 * 1024 * 1024;

/// The minimum rate, in bytes a second, at which the body of an authenticated client has to arrive, after its first
/// seconds.
pub const AUTHENTICATED_BODY_RATE: u64 = 16 * 1024;

/// The limits of times and sizes.
#[derive(Clone, Copy, Debug, SmartDefault)]
pub struct ServerLimits {
    /// The time for the head of a request, from its first byte; for the first request, from the start of the connection.
    #[default(Duration::from_secs(10))]
    pub header: Duration,
    /// The time for the body of a request. The body of an authenticated client gets a second more for each
    /// [`AUTHENTICATED_BODY_RATE`] bytes that have arrived.
    #[default(Duration::from_secs(30))]
    pub body: Duration,
    /// The idle time between two requests.
    #[default(Duration::from_secs(75))]
    pub idle: Duration,
    /// The time for a client that has stopped reading its response to continue.
    #[default(Duration::from_secs(30))]
    pub write: Duration,
    /// The time for which a complete request is still answered after its client has closed its half of the connection.
    #[default(Duration::from_secs(5))]
    pub half_close: Duration,
    /// The time for the TLS handshake.
    #[default(Duration::from_secs(10))]
    pub handshake: Duration,
    /// The time, and the number of bytes, for which the rest of a request is read and discarded after an early refusal. A client
    /// that writes everything before it reads would otherwise see a broken connection instead of the response.
    #[default(Duration::from_secs(5))]
    pub linger: Duration,
    #[default(64 << 20)]
    pub linger_bytes: u64,
    /// The largest head, in bytes.
    #[default(32 << 10)]
    pub head_bytes: usize,
    /// The largest body, in bytes.
    #[default(DEFAULT_BODY_LIMIT as u64)]
    pub body_bytes: u64,
    /// The memory for all bodies while they arrive.
    #[default(ByteSize(64_000_000))]
    pub body_budget: ByteSize,
}

/// Raises the limit of open files as `connections` require, and returns the number of possible connections, which is lower only if
/// the system's hard limit is lower. The limit is not raised further, because commands inherit it.
pub fn raise_file_limit(connections: usize) -> usize {
    let wanted = (connections as u64).saturating_add(OTHER_FILES);
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    // None means unlimited.
    let Some(soft) = current.filter(|soft| *soft < wanted) else { return connections };
    let raised = maximum.map_or(wanted, |hard| hard.min(wanted));
    let open = match setrlimit(Resource::Nofile, Rlimit { current: Some(raised), maximum }) {
        Ok(()) => raised,
        Err(error) => {
            tracing::warn!(%error, "the limit of open files could not be raised");
            soft
        }
    };
    if open >= wanted {
        return connections;
    }
    let possible = open.saturating_sub(OTHER_FILES).max(open / 2);
    let possible = usize::try_from(possible).unwrap_or(connections).min(connections);
    tracing::warn!(
        open_files = open,
        connections = possible,
        "gateway.max_connections is more than the system's limit of open files allows"
    );
    possible
}
