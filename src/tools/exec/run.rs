//! One command, from the gateway's side: starts the supervisor, gives it its order, takes in the output, and asks it to
//! end when the time is up. Dropping the future closes the socket, which is the same request.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::Signal;
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::capture::Capture;
use super::link::Link;
use crate::guard::{Ending, Order, Report, end_group};

/// What a supervisor may take to end everything once it was asked, and then its output to close.
const END_GRACE: Duration = Duration::from_secs(7);
const DRAIN_GRACE: Duration = Duration::from_secs(1);
/// Read at once from the command's output, in bytes.
const CHUNK: usize = 32 * 1_024;

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
    running.link.order(order).await?;
    let ended = running.attend(deadline, cancel, capture).await;
    running.finish(capture).await;
    ended
}

struct Running {
    link: Link,
    output: pipe::Receiver,
    /// The shell's process group, for the case that the supervisor itself is gone.
    group: Option<i32>,
}

impl Running {
    fn start(exe: &Path, environment: &[(String, String)]) -> io::Result<Self> {
        // One pipe for both, so that errors stand where they happened.
        let (output, printed) = io::pipe()?;
        let outputs = (Stdio::from(printed.try_clone()?), Stdio::from(printed));
        let link = Link::start(exe, environment, outputs)?;
        Ok(Self { link, output: pipe::Receiver::from_owned_fd(OwnedFd::from(output))?, group: None })
    }

    /// Until the supervisor reports the end, or had its time to.
    async fn attend(
        &mut self,
        deadline: Instant,
        cancel: &CancellationToken,
        capture: &mut Capture,
    ) -> io::Result<Ended> {
        let mut chunk = vec![0; CHUNK];
        let mut printing = true;
        let mut asked: Option<Ended> = None;
        let mut until = deadline;
        loop {
            tokio::select! {
                read = self.output.read(&mut chunk), if printing => match read {
                    Ok(0) | Err(_) => printing = false,
                    Ok(read) => capture.push(&chunk[..read]),
                },
                report = self.link.report() => match report? {
                    None => return asked.map_or_else(|| Err(io::Error::other("its supervisor was killed")), Ok),
                    Some(Report::Started { group }) => self.group = Some(group),
                    Some(Report::Refused { reason }) => return Ok(Ended::Refused(reason)),
                    Some(Report::Ended(ending)) => {
                        self.group = None;
                        return Ok(asked.unwrap_or(Ended::By(ending)));
                    }
                },
                () = cancel.cancelled(), if asked.is_none() => {
                    (asked, until) = (Some(Ended::Cancelled), Instant::now() + END_GRACE);
                    self.link.end().await;
                },
                () = sleep_until(until) => match asked {
                    Some(ended) => return Ok(ended),
                    None => {
                        (asked, until) = (Some(Ended::TimedOut), Instant::now() + END_GRACE);
                        self.link.end().await;
                    }
                },
            }
        }
    }

    /// Takes in what is still in the pipe, and makes sure that nothing is left when the supervisor could not.
    async fn finish(&mut self, capture: &mut Capture) {
        if let Some(group) = self.group.take() {
            end_group(group, Signal::KILL);
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
        self.link.collect().await;
    }
}
