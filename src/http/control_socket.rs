//! The control socket. Only the gateway's own user and root may use it: the kernel names the user of the client (`SO_PEERCRED`,
//! unix(7)), so the modes of the socket and its folder do not matter.

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use axum::Router;
use axum::serve::Listener;
use rustix::process::{Uid, geteuid};
use tokio::net::{UnixListener, UnixStream, unix::SocketAddr};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use super::limits::{ACCEPT_PAUSE, LOG_INTERVAL};
use crate::home::SocketPath;

/// How often the path of the socket is checked.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// Serves the control socket at `path` until `shutdown`, then removes it; the returned task ends after that. A socket that somebody
/// deletes is made again.
///
/// # Errors
/// The socket cannot be created.
pub async fn serve_control(path: &Path, router: Router, shutdown: CancellationToken) -> io::Result<JoinHandle<()>> {
    // This process holds the home's lock, so an existing socket was left by a dead gateway.
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = OwnerListener { listener: bind(path)?, path: path.to_owned(), logged: None, closed: 0 };
    let path = path.to_owned();
    Ok(tokio::spawn(async move {
        let served =
            axum::serve(listener, router.into_make_service()).with_graceful_shutdown(shutdown.cancelled_owned());
        if let Err(error) = served.await {
            tracing::error!(%error, "the control socket failed");
        }
        if let Err(error) = std::fs::remove_file(&path) {
            tracing::debug!(%error, "the control socket could not be removed");
        }
    }))
}

fn bind(path: &Path) -> io::Result<UnixListener> {
    let listener = UnixListener::bind(SocketPath::new(path)?.as_path())?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

/// A Unix socket listener that accepts connections of the gateway's own user and of root, and closes all others at once.
struct OwnerListener {
    listener: UnixListener,
    path: PathBuf,
    logged: Option<Instant>,
    /// The number of connections closed since the last log line.
    closed: u64,
}

impl OwnerListener {
    /// Accepts the next connection. Makes the socket again if its path is gone: no client can connect without it.
    async fn accept_next(&mut self) -> io::Result<(UnixStream, SocketAddr)> {
        loop {
            if let Ok(accepted) = timeout(CHECK_INTERVAL, self.listener.accept()).await {
                return accepted;
            }
            if self.path.try_exists().unwrap_or(true) {
                continue;
            }
            match bind(&self.path) {
                Ok(listener) => {
                    tracing::warn!(path = %self.path.display(), "the control socket was deleted; it is made again");
                    self.listener = listener;
                }
                Err(error) => tracing::debug!(%error, "the control socket was deleted and cannot be made again"),
            }
        }
    }

    fn log_refusal(&mut self, user: &dyn std::fmt::Display) {
        self.closed += 1;
        if self.logged.is_none_or(|logged| logged.elapsed() >= LOG_INTERVAL) {
            tracing::warn!(
                %user, closed = self.closed,
                "a connection to the control socket was closed: only the gateway's own user and root may use it"
            );
            self.logged = Some(Instant::now());
            self.closed = 0;
        }
    }
}

impl Listener for OwnerListener {
    type Io = UnixStream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (UnixStream, SocketAddr) {
        loop {
            let (stream, address) = match self.accept_next().await {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::debug!(%error, "a connection to the control socket could not be accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            match stream.peer_cred().map(|peer| peer.uid()) {
                Ok(user) if is_allowed(user, geteuid()) => return (stream, address),
                Ok(user) => self.log_refusal(&user),
                Err(error) => self.log_refusal(&error),
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

fn is_allowed(user: u32, own: Uid) -> bool {
    user == own.as_raw() || user == Uid::ROOT.as_raw()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_own_user_and_root_may_connect() {
        for (user, own, expected) in [
            (1000, 1000, true),
            (0, 1000, true),
            (1001, 1000, false),
            (65_534, 1000, false),
            (1001, 0, false),
            (0, 0, true),
        ] {
            assert_eq!(is_allowed(user, Uid::from_raw(own)), expected, "{user} at a gateway of {own}");
        }
    }
}
