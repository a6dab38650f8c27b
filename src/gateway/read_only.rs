//! Starts a gateway as soon as its home can be written. Until then it lives, says why it takes nothing, and refuses what
//! comes, so that senders try again.

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
use super::{Gateway, Options, service};
use crate::config::Loaded;
use crate::home::{Home, HomeError, HomeLock, LockError, is_unwritable};
use crate::http::{self, BoundListener, ReadOnlyReason};
use crate::live::Live;
use crate::metrics::Metrics;
use crate::store::StoreError;

/// How often it is tried whether the home can be written.
const PAUSE: Duration = Duration::from_secs(1);

/// A start that fails although a little can be written, because it needs more, is tried again after growing waits: mending a
/// large database on a full disk costs minutes each time.
const MAX_WAIT: Duration = Duration::from_secs(30);

/// How long a start waits for the lock of a gateway that was killed just before.
const LOCK_PATIENCE: Duration = Duration::from_secs(2);

/// How long requests may take to end when the gateway itself takes over.
const GRACE: Duration = Duration::from_secs(2);

/// Bytes that must fit in: more than the smallest files of a start.
const TRIAL: usize = 64 * 1024;

/// What a gateway is started with, once or several times.
pub struct Start<'a> {
    pub home: &'a Home,
    pub loaded: &'a Loaded,
    pub options: &'a (dyn Fn() -> anyhow::Result<Options> + Sync),
    /// Called with the reason when the gateway can only answer.
    pub on_read_only: &'a (dyn Fn(&str) + Sync),
}

/// Builds a gateway and runs it until `shutdown`; `on_ready` is called when messages are taken, with the address
/// that is served.
///
/// # Errors
/// [`LockError`] where another gateway holds the home; else what is wrong, if it is not that nothing can be written.
pub async fn serve(
    start: Start<'_>,
    shutdown: CancellationToken,
    on_ready: impl Fn(Option<SocketAddr>),
) -> anyhow::Result<()> {
    let mut standby: Option<Standby> = None;
    loop {
        let failed = match start.build(standby.as_mut()).await {
            Ok(gateway) => {
                if let Some(standby) = &mut standby {
                    standby.stop().await;
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
        let Some(kind) = unwritable(start.home, &failed) else { return Err(failed) };
        let standby = match &mut standby {
            Some(standby) => standby,
            None => {
                // The disk may be full for this process and not for the gateway that has the home.
                if let Err(held @ LockError::Held { .. }) = start.home.lock() {
                    return Err(held.into());
                }
                standby.insert(Standby::new(&start, kind).await?)
            }
        };
        standby.begin(&start, kind, &failed).await?;
        if !standby.wait(start.home, &shutdown).await {
            standby.stop().await;
            return Ok(());
        }
    }
}

impl Start<'_> {
    async fn build(&self, standby: Option<&mut Standby>) -> anyhow::Result<Gateway> {
        let socket = match standby {
            Some(standby) => {
                standby.lock = None;
                Some(standby.socket.try_clone().context("the socket cannot be shared")?)
            }
            None => None,
        };
        let home = Home::open(Some(self.home.dir().to_owned()))?;
        let lock = home.lock_within(LOCK_PATIENCE)?;
        let options = Options { socket, ..(self.options)()? };
        Gateway::build(home, lock, self.loaded, options).await
    }
}

/// What answers while nothing can be written.
struct Standby {
    why: Arc<ReadOnlyReason>,
    socket: TcpListener,
    /// So that commands ask this process, and no other gateway starts. None where not even the lock can be had.
    lock: Option<HomeLock>,
    serving: Option<Serving>,
    /// Failed starts since the home could be written at least a little.
    attempts: u32,
    free: u64,
}

struct Serving {
    stop: CancellationToken,
    tasks: Vec<JoinHandle<()>>,
}

impl Standby {
    async fn new(start: &Start<'_>, kind: ErrorKind) -> anyhow::Result<Self> {
        let listening = BoundListener::bind(server_settings(start.loaded)?).await.map_err(anyhow::Error::msg)?;
        Ok(Self {
            why: Arc::new(ReadOnlyReason {
                home: start.home.dir().to_owned(),
                listen: start.loaded.config.gateway.listen.clone(),
                since: Instant::now(),
                summary: Live::new(summary(kind)),
                details: Live::default(),
            }),
            socket: listening.socket()?,
            lock: None,
            serving: None,
            attempts: 0,
            free: 0,
        })
    }

    /// Says why, and answers if it does not yet.
    async fn begin(&mut self, start: &Start<'_>, kind: ErrorKind, error: &anyhow::Error) -> anyhow::Result<()> {
        let summary = summary(kind);
        let details = format!("{summary}: {error:#}");
        if *self.why.details.get() != details {
            tracing::error!(home = %start.home.dir().display(), "read-only until the home can be written: {details}");
            (start.on_read_only)(&details);
            service::ready(&format!("read-only: {details}"));
        }
        self.why.summary.set(summary);
        self.why.details.set(details);
        self.free = free(start.home.dir());
        self.lock = start.home.lock().ok();
        if self.serving.is_some() {
            return Ok(());
        }
        let stop = CancellationToken::new();
        let listening = BoundListener::from_socket(self.socket.try_clone()?, server_settings(start.loaded)?)?;
        let server = listening.serve(http::read_only_routes(self.why.clone(), false), Arc::new(Metrics::default()));
        let mut tasks = vec![tokio::spawn(server.run(stop.clone(), GRACE))];
        if self.lock.is_some() {
            let router = http::read_only_routes(self.why.clone(), true);
            match http::serve_control(&start.home.socket(), router, stop.clone()).await {
                Ok(task) => tasks.push(task),
                Err(error) => {
                    tracing::warn!(%error, "the control socket cannot be made: commands cannot ask this gateway");
                }
            }
        }
        self.serving = Some(Serving { stop, tasks });
        Ok(())
    }

    /// Returns true when a start is worth trying, false at `shutdown`.
    async fn wait(&mut self, home: &Home, shutdown: &CancellationToken) -> bool {
        let due = match self.attempts {
            0 => Duration::ZERO,
            attempts => (PAUSE * 2_u32.saturating_pow(attempts.min(8))).min(MAX_WAIT),
        };
        let begun = Instant::now();
        loop {
            tokio::select! {
                () = shutdown.cancelled() => return false,
                () = sleep(PAUSE) => {}
            }
            service::alive();
            match try_to_write(home) {
                Ok(()) if begun.elapsed() >= due || free(home.dir()) > self.free => {
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
        let Some(Serving { stop, tasks }) = self.serving.take() else { return };
        stop.cancel();
        for task in tasks {
            super::run::ended("a server of the read-only gateway", task.await);
        }
    }
}

/// Returns why nothing can be written, if a start failed for that: what the error says, or else what a trial says, since
/// SQLite's errors do not tell a full disk from a broken one.
fn unwritable(home: &Home, error: &anyhow::Error) -> Option<ErrorKind> {
    error.chain().find_map(of_cause).or_else(|| {
        let is_of_store = error.chain().any(<dyn std::error::Error>::is::<StoreError>);
        let trial = try_to_write(home).err().filter(|_| is_of_store)?;
        Some(trial.kind()).filter(|kind| is_unwritable(*kind))
    })
}

fn of_cause(cause: &(dyn std::error::Error + 'static)) -> Option<ErrorKind> {
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
        _ => "the disk that holds the home is full",
    }
}

/// Writes as much as a small start does, and removes it.
fn try_to_write(home: &Home) -> io::Result<()> {
    let home = Home::open(Some(home.dir().to_owned())).map_err(|error| match error {
        HomeError::Io { error, .. } => error,
        other => io::Error::other(other),
    })?;
    let path = home.dir().join("daoyou.trial");
    let written = File::create(&path).and_then(|mut file| {
        file.write_all(&[0; TRIAL])?;
        file.sync_all()
    });
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != ErrorKind::NotFound => written.and(Err(error)),
        _ => written,
    }
}

/// Bytes that are free on the disk of `dir`, or where it will be.
fn free(dir: &Path) -> u64 {
    let there = dir.ancestors().find(|folder| folder.is_dir()).unwrap_or(Path::new("/"));
    statvfs(there).map_or(0, |stat| stat.f_bavail.saturating_mul(stat.f_frsize))
}
