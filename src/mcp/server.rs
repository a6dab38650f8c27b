//! One MCP server: started on first use, kept open, started again after it ended, and listed.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use daoyou_channels::backoff::{Backoff, jittered};
use parking_lot::Mutex;
use serde::Serialize;
use serde_json::Value;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

use super::cache::ListingCache;
use super::client::{
    BearerTokens, McpConnection, McpError, McpErrorKind, McpRequest, ProtocolEra, ServerLabel, http_client,
};
use super::config::McpServerConfig;
use super::listing::{ListKind, ServerListing};
use crate::guard::KnownSecrets;
use crate::live::Live;
use crate::text::{one_line, truncate};
use crate::tools::{CommandRunner, ExecConfig, ServerCommand};

/// The shortest and the longest wait before a server that ended or failed is started again.
const FIRST_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_secs(120);
/// The longest wait for the next permitted start. If that start is further away, a call fails at once.
const MAX_START_WAIT: Duration = Duration::from_secs(3);
/// The shortest and the longest wait between two listings of a server that keeps reporting changes.
const FIRST_LIST_WAIT: Duration = Duration::from_millis(500);
const LONGEST_LIST_WAIT: Duration = Duration::from_secs(120);
/// The maximum length of a stored error, in characters.
const MAX_ERROR: usize = 500;

/// The context that all servers of a gateway share.
pub struct McpHost {
    /// The gateway's home, which contains a folder for each program, and the cached lists.
    pub home: PathBuf,
    /// The real path of the workspace.
    pub workspace: PathBuf,
    pub runner: CommandRunner,
    /// The settings of commands, which also apply to the servers' programs.
    pub exec: ExecConfig,
    /// The secrets that are removed from the servers' texts for people, and from the log. A reload replaces them.
    pub secrets: Arc<Live<KnownSecrets>>,
    /// Notified when the list of a server has changed.
    pub changed: Arc<Notify>,
}

/// The current state of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum McpServerState {
    /// The server starts with its first call.
    #[default]
    Idle,
    Starting,
    Running,
    /// The server ended or could not be started. The next call tries again.
    Failed,
}

/// The status of a server, as shown to people.
#[derive(Clone, Debug, Default)]
pub struct ServerStatus {
    pub state: McpServerState,
    pub last_error: Option<String>,
    /// The transport of the last connection; `None` if there was none.
    pub transport: Option<&'static str>,
    /// When the list was made, in milliseconds since 1970.
    pub listed_at: Option<i64>,
}

/// A server of the configuration.
pub struct McpServer {
    pub name: String,
    pub config: McpServerConfig,
    pub(super) host: Arc<McpHost>,
    tokens: Mutex<Option<Arc<BearerTokens>>>,
    link: tokio::sync::Mutex<ServerLink>,
    /// Held while a server that did not answer in time is asked for a sign of life.
    liveness: Arc<tokio::sync::Mutex<()>>,
    /// The end of the program that was started last. The channel closes once all processes of the program are gone.
    program_end: Mutex<Option<watch::Receiver<Option<String>>>>,
    /// How the last connection began.
    era: Mutex<ProtocolEra>,
    status: Mutex<ServerStatus>,
    listing: Mutex<Option<Arc<ServerListing>>>,
    /// Held while a list is made, so that there is only one listing at a time.
    listing_turn: tokio::sync::Mutex<()>,
    /// True once a task has begun to make the first list.
    has_begun_listing: AtomicBool,
}

/// The connection to a server, and when the next attempt is permitted.
struct ServerLink {
    connection: Option<Arc<McpConnection>>,
    backoff: Backoff,
    next_try: Option<Instant>,
}

impl McpServer {
    /// Creates a server with its cached list. The server is not started.
    pub(super) fn new(name: &str, config: McpServerConfig, host: Arc<McpHost>) -> Self {
        let cached = ListingCache::of_home(&host.home).read(name, &config.fingerprint());
        let (listing, listed_at) = cached.map(|(listing, at)| (Arc::new(listing), at)).unzip();
        Self {
            name: name.to_owned(),
            config,
            host,
            tokens: Mutex::default(),
            link: tokio::sync::Mutex::new(ServerLink {
                connection: None,
                backoff: Backoff::new(FIRST_WAIT, LONGEST_WAIT),
                next_try: None,
            }),
            liveness: Arc::default(),
            program_end: Mutex::default(),
            era: Mutex::default(),
            status: Mutex::new(ServerStatus { listed_at, ..ServerStatus::default() }),
            listing: Mutex::new(listing),
            listing_turn: tokio::sync::Mutex::default(),
            has_begun_listing: AtomicBool::new(false),
        }
    }

    /// Returns the server's name, and the secrets that are removed from its texts.
    pub(super) fn label(&self) -> ServerLabel {
        ServerLabel { name: self.name.clone(), secrets: Arc::clone(&self.host.secrets) }
    }

    /// Returns the last list of what the server offers.
    pub fn listing(&self) -> Option<Arc<ServerListing>> {
        self.listing.lock().clone()
    }

    /// Returns true for the first caller, which must make the first list.
    pub(super) fn begin_first_listing(&self) -> bool {
        !self.has_begun_listing.swap(true, Ordering::Relaxed)
    }

    pub fn is_running(&self) -> bool {
        self.status().state == McpServerState::Running
    }

    pub fn status(&self) -> ServerStatus {
        let mut status = self.status.lock().clone();
        // A connection that ended by itself is detected only here or by the next call.
        if status.state == McpServerState::Running
            && let Ok(link) = self.link.try_lock()
            && let Some(connection) = link.connection.as_ref().filter(|connection| connection.is_closed())
        {
            status.state = McpServerState::Failed;
            status.last_error = Some(connection.end_reason());
        }
        status
    }

    /// Sends a request to the server, and starts the server if it does not run. A request that could not be sent is retried once.
    /// A request that may have been sent is never retried.
    ///
    /// # Errors
    /// The server cannot be started, or does not fulfil the request.
    pub(super) async fn request(
        self: &Arc<Self>,
        request: McpRequest,
        cancel: &CancellationToken,
    ) -> Result<Value, McpError> {
        let mut tries = 0;
        loop {
            tries += 1;
            let connection = self.connection().await?;
            let answered = connection.request(request.clone(), self.config.timeout.0, cancel).await;
            match &answered {
                Err(error) if error.kind == McpErrorKind::NotSent => {
                    self.note_loss(&connection, error).await;
                    if tries < 2 {
                        continue;
                    }
                }
                Err(error) if error.kind == McpErrorKind::Lost => self.note_loss(&connection, error).await,
                Err(error) if error.kind == McpErrorKind::Timeout => {
                    self.status.lock().last_error = Some(short(error));
                    // The result does not wait for the ping. The next call does: a server that hangs is started again for it.
                    if let Ok(check) = Arc::clone(&self.liveness).try_lock_owned() {
                        let (server, error) = (Arc::clone(self), error.clone());
                        tokio::spawn(async move {
                            if !connection.is_alive().await {
                                server.note_loss(&connection, &error).await;
                            }
                            drop(check);
                        });
                    }
                }
                _ => self.link.lock().await.backoff.reset(),
            }
            return answered;
        }
    }

    /// Drops a connection that no longer works, and stops its program.
    async fn note_loss(&self, connection: &Arc<McpConnection>, error: &McpError) {
        let mut link = self.link.lock().await;
        if link.connection.as_ref().is_some_and(|current| Arc::ptr_eq(current, connection)) {
            link.connection = None;
            if connection.transport == "stdio" {
                // Callers that still wait must not keep the program alive: its next start waits for its end.
                connection.stop();
            }
            self.note_failure(&mut link, error);
        }
    }

    fn note_failure(&self, link: &mut ServerLink, error: &McpError) {
        link.next_try = Some(Instant::now() + jittered(link.backoff.next_wait()));
        let mut status = self.status.lock();
        (status.state, status.last_error) = (McpServerState::Failed, Some(short(error)));
    }

    /// Returns the open connection, or creates one. If the caller goes away, the start continues for the next caller.
    async fn connection(self: &Arc<Self>) -> Result<Arc<McpConnection>, McpError> {
        let server = Arc::clone(self);
        let started = tokio::spawn(async move { server.open().await }).await;
        started.unwrap_or_else(|error| Err(McpError::not_sent(format!("{} failed inside daoyou: {error}", self.name))))
    }

    async fn open(self: Arc<Self>) -> Result<Arc<McpConnection>, McpError> {
        drop(self.liveness.lock().await);
        let mut link = self.link.lock().await;
        if let Some(connection) = &link.connection {
            if !connection.is_closed() {
                return Ok(Arc::clone(connection));
            }
            let ended = McpError::not_sent(connection.end_reason());
            tracing::info!(server = self.name, reason = ended.text, "the connection to an MCP server has ended");
            link.connection = None;
            self.note_failure(&mut link, &ended);
        }
        if let Some(at) = link.next_try.take() {
            let wait = at.saturating_duration_since(Instant::now());
            if wait > MAX_START_WAIT {
                link.next_try = Some(at);
                let last = self.status.lock().last_error.clone().unwrap_or_default();
                let seconds = wait.as_secs() + 1;
                return Err(McpError::not_sent(format!("{last}. It is tried again in {seconds} s at the earliest")));
            }
            sleep(wait).await;
        }
        self.wait_for_program_end().await;
        self.status.lock().state = McpServerState::Starting;
        let begun = Instant::now();
        match self.connect(begun + self.config.start_timeout.0).await {
            Ok(connection) => {
                let connection = Arc::new(connection);
                tracing::info!(
                    server = self.name,
                    protocol = connection.protocol(),
                    took = ?begun.elapsed(),
                    "an MCP server runs"
                );
                link.connection = Some(Arc::clone(&connection));
                let mut status = self.status.lock();
                (status.state, status.last_error) = (McpServerState::Running, None);
                status.transport = Some(connection.transport);
                drop(status);
                tokio::spawn(follow_changes(Arc::downgrade(&self), Arc::downgrade(&connection)));
                Ok(connection)
            }
            Err(error) => {
                tracing::warn!(server = self.name, error = error.text, "an MCP server cannot be used");
                self.note_failure(&mut link, &error);
                Err(error)
            }
        }
    }

    /// Connects in the era of the last connection. If the server rejects `initialize`, connects anew in the newer era.
    async fn connect(&self, end: Instant) -> Result<McpConnection, McpError> {
        // A failure resets the era, because the server may have been replaced.
        let mut era = std::mem::take(&mut *self.era.lock());
        let mut connected = self.connect_in(era, end).await;
        let is_rejected = connected.as_ref().is_err_and(|error| error.kind == McpErrorKind::Answer);
        if is_rejected && era == ProtocolEra::Initialize {
            era = ProtocolEra::Discover;
            self.wait_for_program_end().await;
            connected = self.connect_in(era, end).await.or(connected);
        }
        if connected.is_ok() {
            *self.era.lock() = era;
        }
        connected
    }

    async fn connect_in(&self, era: ProtocolEra, end: Instant) -> Result<McpConnection, McpError> {
        let Self { name, config, .. } = self;
        let connecting =
            async { if config.url.is_empty() { self.start(era).await } else { self.connect_by_http(era).await } };
        timeout_at(end, connecting).await.unwrap_or_else(|_| {
            let limit = config.start_timeout;
            Err(McpError::not_sent(format!("{name} did not start within {limit} (mcp.{name}.start_timeout)")))
        })
    }

    /// Starts the program, and connects to it.
    async fn start(&self, era: ProtocolEra) -> Result<McpConnection, McpError> {
        let Self { name, config, host, .. } = self;
        let failed = |text: String| McpError::not_sent(format!("{name} was not started: {text}"));
        let home = host.home.join("mcp").join(name);
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&home);
        made.map_err(|error| failed(format!("its folder {}: {error}", home.display())))?;
        let command = ServerCommand {
            words: config.command.clone(),
            environment: config.env.iter().map(|(name, value)| (name.clone(), value.expose().to_owned())).collect(),
            home: Some(home),
            network: config.network,
            is_sandboxed: config.sandbox,
        };
        let (process, socket) = host.runner.start_server(command).await.map_err(|error| failed(error.text))?;
        let root = reqwest::Url::from_file_path(&host.workspace).map(String::from).unwrap_or_default();
        let (sender, ended) = watch::channel(None);
        *self.program_end.lock() = Some(ended);
        McpConnection::by_stdio(&self.label(), era, process, socket, root, sender).await
    }

    /// Waits until the program that was started last is gone, so that it never runs twice at the same time: a program may lock
    /// its files. The wait is bounded, because the supervisor of the program kills it after a grace period.
    async fn wait_for_program_end(&self) {
        let last = self.program_end.lock().clone();
        if let Some(mut ended) = last {
            while ended.changed().await.is_ok() {}
        }
    }

    async fn connect_by_http(&self, era: ProtocolEra) -> Result<McpConnection, McpError> {
        let Self { name, config, .. } = self;
        let client_for = |url: &str| {
            http_client(url).map_err(|error| McpError::not_sent(format!("{name}: no HTTP client: {error}")))
        };
        let client = client_for(&config.url)?;
        // The token outlives the connection. The token endpoint may be another server, with its own connection rules.
        let known = self.tokens.lock().clone();
        let tokens = match known {
            Some(known) => known,
            None => {
                let endpoint = if config.auth.token_url.is_empty() { &config.url } else { &config.auth.token_url };
                let tokens = Arc::new(BearerTokens::new(config.auth.clone(), client_for(endpoint)?));
                self.tokens.lock().insert(tokens).clone()
            }
        };
        McpConnection::by_http(&self.label(), era, config, client, tokens).await
    }

    /// Returns true for a program on this machine that sees private folders, because its sandbox should hide them but cannot.
    pub fn sees_private_folders(&self) -> bool {
        !self.config.command.is_empty() && self.config.sandbox && !self.host.runner.hides_folders()
    }

    /// Lists the server like [`Self::refresh`], but without the wait after earlier failures, for a user who tests a repaired
    /// server.
    ///
    /// # Errors
    /// As [`Self::refresh`].
    pub async fn test(self: &Arc<Self>) -> Result<Arc<ServerListing>, McpError> {
        let mut link = self.link.lock().await;
        link.next_try = None;
        link.backoff.reset();
        drop(link);
        self.refresh().await
    }

    /// Lists what the server offers, and stores the list. Starts the server if necessary.
    ///
    /// # Errors
    /// The server cannot be started, or does not list its tools.
    pub async fn refresh(self: &Arc<Self>) -> Result<Arc<ServerListing>, McpError> {
        let connection = self.connection().await?;
        self.list(&connection).await
    }

    async fn list(&self, connection: &Arc<McpConnection>) -> Result<Arc<ServerListing>, McpError> {
        let _turn = self.listing_turn.lock().await;
        let limit = self.config.start_timeout;
        let listed = timeout(limit.0, self.read_lists(connection)).await.unwrap_or_else(|_| {
            let name = &self.name;
            let text = format!("{name} did not list its tools within {limit} (mcp.{name}.start_timeout)");
            Err(McpError::new(McpErrorKind::Timeout, text))
        });
        match listed {
            Ok(listing) => {
                self.link.lock().await.backoff.reset();
                Ok(self.keep(listing).await)
            }
            Err(error) => {
                if matches!(error.kind, McpErrorKind::Lost | McpErrorKind::NotSent) {
                    self.note_loss(connection, &error).await;
                } else {
                    self.status.lock().last_error = Some(short(&error));
                }
                Err(error)
            }
        }
    }

    async fn read_lists(&self, connection: &McpConnection) -> Result<ServerListing, McpError> {
        let mut listing = ServerListing::new(&connection.protocol(), &connection.title());
        let limit = self.config.start_timeout.0;
        for kind in [ListKind::Tools, ListKind::Resources, ListKind::Templates, ListKind::Prompts] {
            match connection.list(kind, limit).await {
                Ok((entries, is_cut)) => {
                    if is_cut {
                        listing.add_problem(&format!("only the first {} {} are kept", entries.len(), kind.key()));
                    }
                    listing.add(&self.name, kind, &entries);
                }
                // A server is useless without its tools, but useful without the other lists.
                Err(error) if kind == ListKind::Tools || error.kind != McpErrorKind::Answer => return Err(error),
                Err(error) => listing.add_problem(&format!("{}: {error}", kind.key())),
            }
        }
        let secrets = self.host.secrets.get();
        for problem in &mut listing.problems {
            // A problem may quote a name, and names are kept as they are.
            secrets.redact(problem);
        }
        Ok(listing)
    }

    /// Returns the problems of a list: its own, and the entries of `tools` in the configuration that fit none of its tools.
    pub fn problems(&self, listing: &ServerListing) -> Vec<String> {
        let unfit = self.config.unfit_entries(&listing.tools);
        let unfit = unfit.map(|entry| format!("mcp.{}.tools: {entry:?} matches none of the server's tools", self.name));
        listing.problems.iter().cloned().chain(unfit).collect()
    }

    /// Stores a list, in memory and on disk, and notifies the gateway if it has changed.
    async fn keep(&self, listing: ServerListing) -> Arc<ServerListing> {
        let now = crate::store::now_ms();
        let is_new = self.listing().as_deref() != Some(&listing);
        let listing = Arc::new(listing);
        let (cache, name, fingerprint) =
            (ListingCache::of_home(&self.host.home), self.name.clone(), self.config.fingerprint());
        let written = Arc::clone(&listing);
        let written = tokio::task::spawn_blocking(move || cache.write(&name, &fingerprint, &written, now)).await;
        if let Err(error) = written.map_err(std::io::Error::other).flatten() {
            tracing::warn!(server = self.name, %error, "the list of an MCP server cannot be kept on disk");
        }
        *self.listing.lock() = Some(Arc::clone(&listing));
        self.status.lock().listed_at = Some(now);
        if is_new {
            tracing::info!(server = self.name, tools = listing.tools.len(), "the list of an MCP server has changed");
            for entry in self.config.unfit_entries(&listing.tools) {
                tracing::warn!(
                    server = self.name,
                    entry,
                    "a pattern in mcp.NAME.tools matches none of the server's tools"
                );
            }
            self.host.changed.notify_one();
        }
        listing
    }

    /// Closes the connection in an orderly way.
    pub(super) async fn close(&self) {
        let connection = self.link.lock().await.connection.take();
        match connection.map(Arc::try_unwrap) {
            Some(Ok(connection)) => connection.close().await,
            // A call still uses it.
            Some(Err(connection)) => connection.stop(),
            None => {}
        }
        self.status.lock().state = McpServerState::Idle;
    }
}

/// Lists a server again after its start, and whenever the server reports changed lists. The wait grows with the number of
/// reports.
async fn follow_changes(server: Weak<McpServer>, connection: Weak<McpConnection>) {
    let mut backoff = Backoff::new(FIRST_LIST_WAIT, LONGEST_LIST_WAIT);
    let Some(changed) = connection.upgrade().map(|connection| Arc::clone(&connection.changed)) else { return };
    loop {
        {
            let (Some(server), Some(connection)) = (server.upgrade(), connection.upgrade()) else { return };
            if connection.is_closed() {
                return;
            }
            if server.list(&connection).await.is_err() && !connection.is_closed() {
                // The failure may be temporary, so the list is requested again.
                changed.notify_one();
            }
        }
        let quiet = Instant::now();
        // The end of the connection is not signalled, so this task polls for it.
        loop {
            if timeout(LONGEST_LIST_WAIT, changed.notified()).await.is_ok() {
                break;
            }
            if connection.upgrade().is_none_or(|connection| connection.is_closed()) {
                return;
            }
        }
        if quiet.elapsed() > LONGEST_LIST_WAIT {
            backoff.reset();
        }
        sleep(backoff.next_wait()).await;
    }
}

fn short(error: &McpError) -> String {
    truncate(&one_line(&error.text), MAX_ERROR)
}
