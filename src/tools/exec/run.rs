//! Runs one command from the gateway's side: starts the supervisor, sends the request, forwards the output, and requests the end
//! when the time is up. Dropping the future closes the socket, which also requests the end.

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

use crate::guard::{ExecReport, ExecRequest, ShellExit, signal_group};
use crate::tools::supervisor_client::SupervisorClient;

/// How long a supervisor may take to end everything and to close the output.
const END_GRACE: Duration = Duration::from_secs(7);
const DRAIN_GRACE: Duration = Duration::from_secs(1);
/// The size of one read of the command's output, in bytes.
const CHUNK: usize = 32 * 1_024;

/// The receiver of a command's output.
pub(super) type OutputSink<'a> = dyn FnMut(&[u8]) + Send + 'a;

/// How a command ended, as the gateway sees it.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::tools) enum CommandOutcome {
    Exited(ShellExit),
    TimedOut,
    Cancelled,
    Refused(String),
}

impl CommandOutcome {
    /// Returns the exit code of a command that ended by itself.
    ///
    /// # Errors
    /// The command did not end by itself; the text is for the model. `limit` was its time limit.
    pub(in crate::tools) fn exit_code(&self, limit: Duration) -> Result<i32, String> {
        match self {
            Self::Exited(ShellExit::Code(code)) => Ok(*code),
            Self::Exited(ShellExit::Signal(signal)) => Err(format!("Killed by signal {signal}")),
            Self::Exited(ShellExit::Exceeded(limit)) => Err(format!("The command was ended: {limit}")),
            Self::TimedOut => Err(format!("Command timed out after {} seconds", limit.as_secs())),
            Self::Cancelled => Err("Cancelled; the command was killed".to_owned()),
            Self::Refused(reason) => Err(format!("The command was not started: {reason}")),
        }
    }
}

/// Runs `request` within `limit`, and passes the output to `sink`.
///
/// # Errors
/// The supervisor could not be started, or was killed.
pub(super) async fn run(
    exe: &Path,
    environment: &[(String, String)],
    request: &ExecRequest,
    limit: Duration,
    cancel: &CancellationToken,
    sink: &mut OutputSink<'_>,
) -> io::Result<CommandOutcome> {
    let deadline = Instant::now() + limit;
    let mut running = RunningExec::start(exe, environment)?;
    running.supervisor.send(request).await?;
    let ended = running.wait(deadline, cancel, sink).await;
    running.finish(sink).await;
    ended
}

struct RunningExec {
    supervisor: SupervisorClient,
    output: pipe::Receiver,
    /// The shell's process group, for the case that the supervisor dies.
    group: Option<i32>,
}

impl RunningExec {
    fn start(exe: &Path, environment: &[(String, String)]) -> io::Result<Self> {
        // Both outputs share one pipe, which keeps errors in order with the output.
        let (output, printed) = io::pipe()?;
        let stdout = Stdio::from(printed.try_clone()?);
        let supervisor = SupervisorClient::start(exe, environment, stdout, Stdio::from(printed))?;
        Ok(Self { supervisor, output: pipe::Receiver::from_owned_fd(OwnedFd::from(output))?, group: None })
    }

    /// Waits until the supervisor reports the end, or until its time for that is up.
    async fn wait(
        &mut self,
        deadline: Instant,
        cancel: &CancellationToken,
        sink: &mut OutputSink<'_>,
    ) -> io::Result<CommandOutcome> {
        let mut chunk = vec![0; CHUNK];
        let mut printing = true;
        let mut requested: Option<CommandOutcome> = None;
        let mut until = deadline;
        loop {
            tokio::select! {
                read = self.output.read(&mut chunk), if printing => match read {
                    Ok(0) | Err(_) => printing = false,
                    Ok(read) => sink(&chunk[..read]),
                },
                report = self.supervisor.next_report() => match report? {
                    None => return requested.map_or_else(|| Err(io::Error::other("its supervisor was killed")), Ok),
                    Some(ExecReport::Started { group }) => self.group = Some(group),
                    Some(ExecReport::Refused { reason }) => return Ok(CommandOutcome::Refused(reason)),
                    Some(ExecReport::Ended(ending)) => {
                        self.group = None;
                        return Ok(requested.unwrap_or(CommandOutcome::Exited(ending)));
                    }
                },
                () = cancel.cancelled(), if requested.is_none() => {
                    (requested, until) = (Some(CommandOutcome::Cancelled), Instant::now() + END_GRACE);
                    self.supervisor.request_end().await;
                },
                () = sleep_until(until) => match requested {
                    Some(ended) => return Ok(ended),
                    None => {
                        (requested, until) = (Some(CommandOutcome::TimedOut), Instant::now() + END_GRACE);
                        self.supervisor.request_end().await;
                    }
                },
            }
        }
    }

    /// Reads the rest of the pipe, and kills the shell's group if the supervisor could not.
    async fn finish(&mut self, sink: &mut OutputSink<'_>) {
        if let Some(group) = self.group.take() {
            signal_group(group, Signal::KILL);
        }
        let mut chunk = vec![0; CHUNK];
        let drained = timeout(DRAIN_GRACE, async {
            while let Ok(read @ 1..) = self.output.read(&mut chunk).await {
                sink(&chunk[..read]);
            }
        });
        if drained.await.is_err() {
            tracing::warn!("a command's output stayed open after its end");
        }
        self.supervisor.wait_for_exit().await;
    }
}
