//! One command, from the gateway's side: starts the supervisor, gives it its order, takes in the output, and asks it to
//! end when the time is up. Dropping the future closes the socket, which is the same request.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::pipe;
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::capture::Capture;
use crate::guard::{EXEC_WORD, Ending, Order, Report};

/// What a supervisor may take to end everything once it was asked, and then its output to close.
const END_GRACE: Duration = Duration::from_secs(7);
const DRAIN_GRACE: Duration = Duration::from_secs(1);
/// Read at once from the command's output, in bytes.
const CHUNK: usize = 32 * 1_024;
/// The longest report of a supervisor, in bytes.
const REPORT_BYTES: u64 = 64 * 1_024;

/// How a command ended, as the gateway sees it.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Ended {
    By(Ending),
    TimedOut,
    Cancelled,
    Refused(String),
}

/// Runs `order` within `limit`; what it prints goes to `capture`.
///
/// # Errors
/// When the supervisor could not be started or broke off.
pub(super) async fn run(
    exe: &Path,
    environment: &[(String, String)],
    order: &Order,
    limit: Duration,
    cancel: &CancellationToken,
    capture: &mut Capture,
) -> io::Result<Ended> {
    let deadline = Instant::now() + limit;
    let mut running = Running::start(exe, environment)?;
    let mut line = serde_json::to_vec(order)?;
    line.push(b'\n');
    running.orders.write_all(&line).await?;
    let ended = running.attend(deadline, cancel, capture).await;
    running.finish(capture).await;
    ended
}

struct Running {
    supervisor: Child,
    /// Closing this side asks the supervisor to end everything.
    orders: tokio::net::unix::OwnedWriteHalf,
    reports: BufReader<tokio::io::Take<tokio::net::unix::OwnedReadHalf>>,
    output: pipe::Receiver,
    /// The shell's process group, for the case that the supervisor itself is gone.
    group: Option<Pid>,
}

impl Running {
    fn start(exe: &Path, environment: &[(String, String)]) -> io::Result<Self> {
        let (ours, theirs) = StdUnixStream::pair()?;
        // One pipe for both, so that errors stand where they happened.
        let (output, printed) = io::pipe()?;
        let supervisor = Command::new(exe)
            .arg(EXEC_WORD)
            .env_clear()
            .envs(environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(printed.try_clone()?)
            .stderr(printed)
            .spawn()?;
        ours.set_nonblocking(true)?;
        let (reports, orders) = UnixStream::from_std(ours)?.into_split();
        Ok(Self {
            supervisor,
            orders,
            reports: BufReader::new(reports.take(REPORT_BYTES)),
            output: pipe::Receiver::from_owned_fd(OwnedFd::from(output))?,
            group: None,
        })
    }

    /// Until the supervisor reports the end, or had its time to.
    async fn attend(
        &mut self,
        deadline: Instant,
        cancel: &CancellationToken,
        capture: &mut Capture,
    ) -> io::Result<Ended> {
        let mut chunk = vec![0; CHUNK];
        let mut report = Vec::new();
        let mut printing = true;
        let mut asked: Option<Ended> = None;
        let mut until = deadline;
        loop {
            tokio::select! {
                read = self.output.read(&mut chunk), if printing => match read {
                    Ok(0) | Err(_) => printing = false,
                    Ok(read) => capture.push(&chunk[..read]),
                },
                read = self.reports.read_until(b'\n', &mut report) => {
                    if read? == 0 {
                        return asked.map_or_else(|| Err(io::Error::other("its supervisor was killed")), Ok);
                    }
                    match serde_json::from_slice(&report)? {
                        Report::Started { group } => self.group = Pid::from_raw(group),
                        Report::Refused { reason } => return Ok(Ended::Refused(reason)),
                        Report::Ended(ending) => {
                            self.group = None;
                            return Ok(asked.unwrap_or(Ended::By(ending)));
                        }
                    }
                    report.clear();
                },
                () = cancel.cancelled(), if asked.is_none() => {
                    (asked, until) = (Some(Ended::Cancelled), Instant::now() + END_GRACE);
                    self.orders.shutdown().await?;
                },
                () = sleep_until(until) => match asked {
                    Some(ended) => return Ok(ended),
                    None => {
                        (asked, until) = (Some(Ended::TimedOut), Instant::now() + END_GRACE);
                        self.orders.shutdown().await?;
                    }
                },
            }
        }
    }

    /// Takes in what is still in the pipe, and makes sure that nothing is left when the supervisor could not.
    async fn finish(&mut self, capture: &mut Capture) {
        if let Some(group) = self.group.take() {
            // An error means that the group is gone already.
            let _ = rustix::process::kill_process_group(group, Signal::KILL);
        }
        let mut chunk = vec![0; CHUNK];
        let drained = timeout(DRAIN_GRACE, async {
            while let Ok(read @ 1..) = self.output.read(&mut chunk).await {
                capture.push(&chunk[..read]);
            }
        });
        if drained.await.is_err() {
            tracing::warn!("a command's output stayed open after its end");
        }
        if timeout(DRAIN_GRACE, self.supervisor.wait()).await.is_err() {
            tracing::warn!("a command's supervisor had to be killed");
            if let Err(error) = self.supervisor.start_kill() {
                tracing::warn!(%error, "a command's supervisor could not be killed");
            }
        }
    }
}
