//! Starts a gateway as soon as its home can be written. Until then the process is read-only: it reports the reason and refuses
//! messages, so that senders try again.

use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use rustix::fs::statvfs;
use tokio::task::JoinHandle;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::build::server_settings;
use super::memory_workers::log_join_error;
use super::{Gateway, Options, service_manager};
use crate::config::LoadedConfig;
use crate::home::{Home, HomeError, HomeLock, LockError, is_unwritable};
use crate::http::{self, BoundListener, ReadOnlyReason};
use crate::live::Live;
use crate::metrics::Metrics;
use crate::store::{DISK_FULL, StoreError};

/// The interval at which a write to the home is tried.
const TRIAL_INTERVAL: Duration = Duration::from_secs(1);

/// While a start waits for a command, the log repeats its warning after this many trials (five minutes).
const TRIALS_PER_LOG: u32 = 300;

/// The longest wait after a start that failed although the trial write succeeded. The waits grow, because repairing a large database
/// on a full disk takes minutes each time.
const MAX_WAIT: Duration = Duration::from_secs(30);

/// The time that a start waits for the lock of a gateway that was just killed.
const LOCK_PATIENCE: Duration = Duration::from_secs(2);

/// The time that open requests get to end before the full gateway takes over.
const GRACE: Duration = Duration::from_secs(2);

/// The size of a trial write in bytes: larger than the smallest files of a start.
const TRIAL_BYTES: usize = 64 * 1024;

/// The parameters of a gateway that may be started several times.
pub struct GatewayStart<'a> {
    pub home: &'a Home,
    pub loaded: &'a LoadedConfig,
    pub options: &'a (dyn Fn() -> anyhow::Result<Options> + Sync),
    /// Called with the reason when the gateway becomes read-only.
    pub on_read_only: &'a (dyn Fn(&str) + Sync),
    /// Called with the pid of a process that holds the home temporarily when the start begins to wait for it.
    pub on_held: &'a (dyn Fn(u32) + Sync),
}

/// Builds a gateway and runs it until `shutdown`. Calls `on_ready` with the served address when it accepts messages.
///
/// # Errors
/// [`LockError`] if another gateway holds the home, or any error other than a home that cannot be written.
pub async fn serve(
    start: GatewayStart<'_>,
    shutdown: CancellationToken,
    on_ready: impl Fn(Option<SocketAddr>),
) -> anyhow::Result<()> {
    let mut read_only: Option<ReadOnlyGateway> = None;
    loop {
        let failed = match start.build(read_only.as_mut()).await {
            Ok(gateway) => {
                if let Some(read_only) = &mut read_only {
                    read_only.stop().await;
                    tracing::info!("the home can be written again");
                }
                let is_ready = AtomicBool::new(false);
                let ready = |served| {
                    is_ready.store(true, Ordering::Relaxed);
                    on_ready(served);
                };
                match gateway.run(shutdown.clone(), ready).await {
                    Err(error) if !is_ready.load(Ordering::Relaxed) => error,
                    ended => return ended,
                }
            }
            Err(error) => error,
        };
        if let Some(LockError::Held { is_temporary: true, .. }) = failed.downcast_ref() {
            if start.wait_for_command(&shutdown).await {
                continue;
            }
            return Ok(());
        }
        let Some(kind) = unwritable(start.home, &failed) else { return Err(failed) };
        let read_only = match &mut read_only {
            Some(read_only) => read_only,
            None => {
                // The disk may be full for this process but not for a gateway that holds the home.
                match start.home.lock() {
                    Err(LockError::Held { is_temporary: true, .. }) if start.wait_for_command(&shutdown).await => {
                        continue;
                    }
                    Err(LockError::Held { is_temporary: true, .. }) => return Ok(()),
                    Err(held @ LockError::Held { .. }) => return Err(held.into()),
                    _ => {}
                }
                read_only.insert(ReadOnlyGateway::new(&start, kind).await?)
            }
        };
        read_only.serve(&start, kind, &failed).await?;
        if !read_only.wait(start.home, &shutdown).await {
            read_only.stop().await;
            return Ok(());
        }
    }
}

impl GatewayStart<'_> {
    async fn build(&self, read_only: Option<&mut ReadOnlyGateway>) -> anyhow::Result<Gateway> {
        let socket = match read_only {
            Some(read_only) => {
                read_only.lock = None;
                Some(read_only.socket.try_clone().context("the socket cannot be shared")?)
            }
            None => None,
        };
        let home = Home::open(Some(self.home.dir().to_owned()))?;
        let lock = home.lock_within(LOCK_PATIENCE)?;
        let options = Options { socket, ..(self.options)()? };
        Gateway::build(home, lock, self.loaded, options).await
    }

    /// Waits until no process holds the home temporarily; returns false at `shutdown`.
    async fn wait_for_command(&self, shutdown: &CancellationToken) -> bool {
        let mut trials = 0_u32;
        while let Some(pid) = self.home.temporary_holder() {
            if trials == 0 {
                (self.on_held)(pid);
            }
            if trials.is_multiple_of(TRIALS_PER_LOG) {
                tracing::warn!("a daoyou command (pid {pid}) uses the home; this gateway starts after it");
            }
            trials += 1;
            service_manager::status(&format!("waiting for a daoyou command (pid {pid}), which uses the home"));
            service_manager::alive();
            tokio::select! {
                () = shutdown.cancelled() => return false,
                () = sleep(TRIAL_INTERVAL) => {}
            }
        }
        true
    }
}

/// A gateway that serves its state and refuses messages.
struct ReadOnlyGateway {
    reason: Arc<ReadOnlyReason>,
    socket: TcpListener,
    /// Held so that commands reach this process and no other gateway starts. `None` if the lock cannot be taken.
    lock: Option<HomeLock>,
    servers: Option<ReadOnlyServers>,
    /// The number of failed starts since the last failed trial write.
    attempts: u32,
    free_bytes: u64,
}

struct ReadOnlyServers {
    stop: CancellationToken,
    tasks: Vec<JoinHandle<()>>,
}

impl ReadOnlyGateway {
    async fn new(start: &GatewayStart<'_>, kind: ErrorKind) -> anyhow::Result<Self> {
        let listening = BoundListener::bind(server_settings(start.loaded)?).await.map_err(anyhow::Error::msg)?;
        Ok(Self {
            reason: Arc::new(ReadOnlyReason {
                home: start.home.dir().to_owned(),
                listen: start.loaded.config.gateway.listen.clone(),
                since: Instant::now(),
                summary: Live::new(summary(kind)),
                details: Live::default(),
            }),
            socket: listening.socket()?,
            lock: None,
            servers: None,
            attempts: 0,
            free_bytes: 0,
        })
    }

    /// Sets the reason, and starts the servers if they are not running.
    async fn serve(&mut self, start: &GatewayStart<'_>, kind: ErrorKind, error: &anyhow::Error) -> anyhow::Result<()> {
        let summary = summary(kind);
        let details = format!("{summary}: {error:#}");
        if *self.reason.details.get() != details {
            tracing::error!(home = %start.home.dir().display(), "read-only until the home can be written: {details}");
            (start.on_read_only)(&details);
            service_manager::ready(&format!("read-only: {details}"));
        }
        self.reason.summary.set(summary);
        self.reason.details.set(details);
        self.free_bytes = free_bytes(start.home.dir());
        self.lock = start.home.lock().ok();
        if self.servers.is_some() {
            return Ok(());
        }
        let stop = CancellationToken::new();
        let listening = BoundListener::from_socket(self.socket.try_clone()?, server_settings(start.loaded)?)?;
        let server = listening.serve(http::read_only_routes(self.reason.clone(), false), Arc::new(Metrics::default()));
        let mut tasks = vec![tokio::spawn(server.run(stop.clone(), GRACE))];
        if self.lock.is_some() {
            let router = http::read_only_routes(self.reason.clone(), true);
            match http::serve_control(&start.home.socket(), router, stop.clone()).await {
                Ok(task) => tasks.push(task),
                Err(error) => {
                    tracing::warn!(%error, "the control socket cannot be made: commands cannot ask this gateway");
                }
            }
        }
        self.servers = Some(ReadOnlyServers { stop, tasks });
        Ok(())
    }

    /// Waits until another start is due; returns false at `shutdown`.
    async fn wait(&mut self, home: &Home, shutdown: &CancellationToken) -> bool {
        let due = match self.attempts {
            0 => Duration::ZERO,
            attempts => (TRIAL_INTERVAL * 2_u32.saturating_pow(attempts.min(8))).min(MAX_WAIT),
        };
        let begun = Instant::now();
        loop {
            tokio::select! {
                () = shutdown.cancelled() => return false,
                () = sleep(TRIAL_INTERVAL) => {}
            }
            service_manager::alive();
            match try_to_write(home) {
                Ok(()) if begun.elapsed() >= due || free_bytes(home.dir()) > self.free_bytes => {
                    self.attempts += 1;
                    return true;
                }
                Ok(()) => {}
                Err(_) => self.attempts = 0,
            }
        }
    }

    async fn stop(&mut self) {
        self.lock = None;
        let Some(ReadOnlyServers { stop, tasks }) = self.servers.take() else { return };
        stop.cancel();
        for task in tasks {
            log_join_error("a server of the read-only gateway", task.await);
        }
    }
}

/// Returns the reason why the home cannot be written, if that made a start fail. The reason comes from the error or from a trial
/// write, because SQLite's errors do not distinguish a full disk from a broken one.
fn unwritable(home: &Home, error: &anyhow::Error) -> Option<ErrorKind> {
    error.chain().find_map(unwritable_kind).or_else(|| {
        let is_of_store = error.chain().any(<dyn std::error::Error>::is::<StoreError>);
        let trial = try_to_write(home).err().filter(|_| is_of_store)?;
        Some(trial.kind()).filter(|kind| is_unwritable(*kind))
    })
}

fn unwritable_kind(cause: &(dyn std::error::Error + 'static)) -> Option<ErrorKind> {
    if let Some(error) = cause.downcast_ref::<io::Error>() {
        return Some(error.kind()).filter(|kind| is_unwritable(*kind));
    }
    if let Some(error) = cause.downcast_ref::<StoreError>() {
        return error.is_full().then_some(ErrorKind::StorageFull);
    }
    match cause.downcast_ref::<LockError>() {
        Some(LockError::Home(error)) => error.unwritable(),
        _ => cause.downcast_ref::<HomeError>().and_then(HomeError::unwritable),
    }
}

fn summary(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::QuotaExceeded => "the disk quota of the home is used up",
        ErrorKind::ReadOnlyFilesystem => "the home is on a read-only file system",
        _ => DISK_FULL,
    }
}

/// Writes a trial file, and removes it.
fn try_to_write(home: &Home) -> io::Result<()> {
    let home = Home::open(Some(home.dir().to_owned())).map_err(|error| match error {
        HomeError::Io { error, .. } => error,
        other => io::Error::other(other),
    })?;
    let path = home.dir().join("daoyou.trial");
    let written = File::create(&path).and_then(|mut file| {
        file.write_all(&[0; TRIAL_BYTES])?;
        file.sync_all()
    });
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != ErrorKind::NotFound => written.and(Err(error)),
        _ => written,
    }
}

/// Returns the free bytes on the disk of `dir` or of its nearest existing parent.
fn free_bytes(dir: &Path) -> u64 {
    let existing = dir.ancestors().find(|folder| folder.is_dir()).unwrap_or(Path::new("/"));
    statvfs(existing).map_or(0, |stat| stat.f_bavail.saturating_mul(stat.f_frsize))
}
