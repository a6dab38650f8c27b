//! The TCP server: its accept loop and its connections.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use axum::Router;
use daoyou_channels::BodyBudget;
use futures_util::future::{self, Either};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::connections::{CloseSignal, ConnectionPermit, Connections};
use super::limits::{ACCEPT_PAUSE, LOG_INTERVAL, ServerLimits, raise_file_limit};
use super::proxies::TrustedProxies;
use super::service::{AllowedHosts, ConnectionAddrs, HttpService};
use super::stream::ValidatedStream;
use super::tls::ReloadingTls;
use crate::metrics::Metrics;

/// The bytes that hyper may buffer beyond the largest head.
const EXTRA_BUFFER: usize = 8 << 10;

/// The settings of a server.
pub struct ServerSettings {
    pub listen: SocketAddr,
    pub hosts: AllowedHosts,
    pub proxies: TrustedProxies,
    pub tls: Option<ReloadingTls>,
    /// The maximum number of connections that are open at once.
    pub connections: usize,
    pub limits: ServerLimits,
}

/// A bound address that does not serve routes yet.
pub struct BoundListener {
    listener: TcpListener,
    settings: ServerSettings,
}

/// A server that is bound but does not answer yet.
pub struct Server {
    listener: TcpListener,
    shared: Arc<Shared>,
}

struct Shared {
    service: HttpService,
    tls: Option<ReloadingTls>,
    connections: Arc<Connections>,
    limits: ServerLimits,
    metrics: Arc<Metrics>,
}

impl BoundListener {
    /// Binds the address.
    ///
    /// # Errors
    /// The message names the address, the cause and the remedy.
    pub async fn bind(settings: ServerSettings) -> Result<Self, String> {
        let listen = settings.listen;
        let listener = TcpListener::bind(listen).await.map_err(|error| {
            let hint = match error.kind() {
                io::ErrorKind::AddrInUse => ": another program listens there; choose another port with gateway.listen",
                io::ErrorKind::PermissionDenied => {
                    ": ports below 1024 need privileges; choose another with gateway.listen"
                }
                _ => "",
            };
            format!("gateway.listen: cannot listen on {listen}: {error}{hint}")
        })?;
        Ok(Self { listener, settings })
    }

    /// Returns the address, with the port that the system chose for port 0.
    pub fn address(&self) -> SocketAddr {
        self.listener.local_addr().unwrap_or(self.settings.listen)
    }

    /// Creates a listener from a bound socket.
    ///
    /// # Errors
    /// The socket cannot be used.
    pub fn from_socket(socket: std::net::TcpListener, settings: ServerSettings) -> io::Result<Self> {
        Ok(Self { listener: TcpListener::from_std(socket)?, settings })
    }

    /// Returns a second handle of the socket, from which another server can accept connections.
    ///
    /// # Errors
    /// The process has too many open files.
    pub fn socket(&self) -> io::Result<std::net::TcpListener> {
        Ok(self.listener.as_fd().try_clone_to_owned()?.into())
    }

    /// Adds the routes.
    pub fn serve(self, routes: Router, metrics: Arc<Metrics>) -> Server {
        let ServerSettings { hosts, proxies, tls, connections, limits, .. } = self.settings;
        let service = HttpService {
            routes: TowerToHyperService::new(routes),
            hosts,
            proxies,
            limits,
            budget: BodyBudget::new(limits.body_budget),
            metrics: metrics.clone(),
            is_tls: tls.is_some(),
        };
        let connections = Connections::new(raise_file_limit(connections));
        Server { listener: self.listener, shared: Arc::new(Shared { service, tls, connections, limits, metrics }) }
    }
}

impl Server {
    /// Returns the address.
    ///
    /// # Errors
    /// The system does not report the address.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until `shutdown`. Requests in progress then get `grace` to end.
    pub async fn run(self, shutdown: CancellationToken, grace: Duration) {
        let shared = self.shared;
        let tasks = TaskTracker::new();
        let mut logged: Option<Instant> = None;
        let mut log = move |reason: &dyn std::fmt::Display, open: usize| {
            if logged.is_none_or(|logged| logged.elapsed() >= LOG_INTERVAL) {
                logged = Some(Instant::now());
                tracing::warn!(%reason, open, "connections cannot be accepted");
            }
        };
        loop {
            let accepted = tokio::select! {
                () = shutdown.cancelled() => break,
                accepted = self.listener.accept() => accepted,
            };
            match accepted {
                Ok((stream, peer)) => match shared.connections.admit() {
                    Some(permit) => drop(tasks.spawn(connection(shared.clone(), stream, peer, permit))),
                    None => {
                        shared.metrics.http.rejected("too_many_connections");
                        log(&"all connections are being answered", shared.connections.count());
                        refuse(&stream);
                    }
                },
                // The client disconnected before it was accepted.
                Err(error)
                    if matches!(error.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset) => {}
                Err(error) => {
                    log(&error, shared.connections.count());
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
        drop(self.listener);
        tasks.close();
        shared.connections.signal(CloseSignal::Finish);
        if tokio::time::timeout(grace, tasks.wait()).await.is_err() {
            tracing::debug!(open = shared.connections.count(), "connections that did not end in time are closed");
            shared.connections.signal(CloseSignal::Abort);
            if tokio::time::timeout(ACCEPT_PAUSE, tasks.wait()).await.is_err() {
                tracing::warn!(open = shared.connections.count(), "connections did not end");
            }
        }
    }
}

/// Sends 503 to a client beyond the limit, without waiting for the client.
fn refuse(stream: &TcpStream) {
    const BODY: &str =
        r#"{"error":{"code":"too_many_connections","message":"all connections are in use; try again later"}}"#;
    let answer = format!(
        "HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\nconnection: close\r\n\
        content-type: application/json\r\ncontent-length: {}\r\n\r\n{BODY}",
        BODY.len()
    );
    if let Err(error) = stream.try_write(answer.as_bytes()) {
        tracing::debug!(%error, "the refusal was not read");
    }
}

async fn connection(shared: Arc<Shared>, stream: TcpStream, peer: SocketAddr, permit: ConnectionPermit) {
    let _open = shared.metrics.http.connected();
    // Without TCP_NODELAY a reply in small parts waits 40 ms for an acknowledgement.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "TCP_NODELAY could not be set");
    }
    let Ok(local) = stream.local_addr() else { return };
    let addrs = ConnectionAddrs { peer, local };
    let signal = future::poll_fn(|context| permit.connection.poll_signal(context));
    match &shared.tls {
        None => serve(&shared, stream, addrs, &permit).await,
        Some(tls) => {
            let handshake = pin!(tls.accept(stream, shared.limits.handshake));
            match future::select(handshake, signal).await {
                Either::Left((Ok(stream), _)) => serve(&shared, stream, addrs, &permit).await,
                Either::Left((Err(error), _)) => tracing::debug!(%peer, %error, "the TLS handshake failed"),
                Either::Right(_) => {}
            }
        }
    }
}

/// Serves one connection until either side ends it.
async fn serve<Io>(shared: &Arc<Shared>, io: Io, addrs: ConnectionAddrs, permit: &ConnectionPermit)
where
    Io: AsyncRead + AsyncWrite + Unpin,
{
    let connection = &permit.connection;
    let io = TokioIo::new(ValidatedStream::new(io, connection.clone(), shared.limits));
    let service = service_fn(|request: axum::http::Request<Incoming>| {
        // Taken before the future runs: the stream may validate the next head before the future is polled.
        let head = connection.next_head();
        connection.set_half_close(HttpService::allows_half_close(&request));
        async move { Ok::<_, Infallible>(shared.service.answer(head, request, connection, addrs).await) }
    });
    let mut builder = http1::Builder::new();
    // The stream limits heads and their time. The memory that hyper buffers beyond them is not counted.
    builder.header_read_timeout(None).max_buf_size(shared.limits.head_bytes + EXTRA_BUFFER);
    let mut http = pin!(builder.serve_connection(io, service));
    let mut is_finishing = false;
    let ended = future::poll_fn(|context| {
        match connection.poll_signal(context) {
            Poll::Ready(CloseSignal::Abort) => return Poll::Ready(None),
            Poll::Ready(CloseSignal::Finish) if !is_finishing => {
                is_finishing = true;
                http.as_mut().graceful_shutdown();
            }
            _ => {}
        }
        http.as_mut().poll(context).map(Some)
    });
    if let Some(Err(error)) = ended.await {
        tracing::debug!(peer = %addrs.peer, %error, "a connection failed");
    }
}

#[cfg(test)]
#[path = "server_tests.rs"]
mod tests;
