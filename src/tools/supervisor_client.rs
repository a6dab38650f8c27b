//! The gateway's side of a supervisor: starts it, sends the request, receives reports, and asks it to end everything. Dropping
//! the client also asks for the end.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use crate::guard::{EXEC_COMMAND, ExecReport, ExecRequest};

/// How long a start may take.
pub(super) const START_LIMIT: Duration = Duration::from_secs(20);
/// How long a supervisor that has reported the end may take to exit.
const EXIT_GRACE: Duration = Duration::from_secs(1);
/// The maximum size of all reports of a supervisor together, in bytes.
const REPORT_BYTES: u64 = 64 * 1_024;

/// A running supervisor.
pub(super) struct SupervisorClient {
    supervisor: Child,
    requests: OwnedWriteHalf,
    reports: BufReader<tokio::io::Take<OwnedReadHalf>>,
    line: Vec<u8>,
}

impl SupervisorClient {
    /// Starts a supervisor with this environment and these outputs, but without a command.
    ///
    /// # Errors
    /// The system refuses to start it.
    pub(super) fn start(exe: &Path, env: &[(String, String)], stdout: Stdio, stderr: Stdio) -> io::Result<Self> {
        let (ours, theirs) = StdUnixStream::pair()?;
        let supervisor = Command::new(exe)
            .arg(EXEC_COMMAND)
            .env_clear()
            .envs(env.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(stdout)
            .stderr(stderr)
            .spawn()?;
        ours.set_nonblocking(true)?;
        let (reports, requests) = UnixStream::from_std(ours)?.into_split();
        Ok(Self { supervisor, requests, reports: BufReader::new(reports.take(REPORT_BYTES)), line: Vec::new() })
    }

    /// Sends the request to run a command, and waits for its start. Returns the command's process group, or why the supervisor
    /// refuses the command.
    ///
    /// # Errors
    /// The supervisor is gone, or does not answer; a retry may succeed.
    pub(super) async fn start_command(&mut self, request: &ExecRequest) -> Result<Result<i32, String>, String> {
        let begun = async {
            self.send(request).await?;
            self.next_report().await
        };
        match timeout(START_LIMIT, begun).await {
            Ok(Ok(Some(ExecReport::Started { group }))) => Ok(Ok(group)),
            Ok(Ok(Some(ExecReport::Refused { reason }))) => Ok(Err(reason)),
            Ok(Ok(_)) => Err("its supervisor was killed".to_owned()),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err("its supervisor did not answer".to_owned()),
        }
    }

    /// Sends the request to run a command.
    ///
    /// # Errors
    /// The supervisor is gone.
    pub(super) async fn send(&mut self, request: &ExecRequest) -> io::Result<()> {
        let mut line = serde_json::to_vec(request)?;
        line.push(b'\n');
        self.requests.write_all(&line).await
    }

    /// Returns the next report, or `None` if the supervisor is gone. Safe to cancel.
    ///
    /// # Errors
    /// The report is not valid.
    pub(super) async fn next_report(&mut self) -> io::Result<Option<ExecReport>> {
        if self.reports.read_until(b'\n', &mut self.line).await? == 0 {
            return Ok(None);
        }
        let report = serde_json::from_slice(&self.line)?;
        self.line.clear();
        Ok(Some(report))
    }

    /// Asks the supervisor to end everything.
    pub(super) async fn request_end(&mut self) {
        // If the supervisor is gone, its reports show that.
        let _ = self.requests.write_all(b"end\n").await;
        let _ = self.requests.shutdown().await;
    }

    /// Waits until the supervisor exits after its last report, and kills it after a grace period.
    pub(super) async fn wait_for_exit(&mut self) {
        if timeout(EXIT_GRACE, self.supervisor.wait()).await.is_err() {
            tracing::warn!("a command's supervisor had to be killed");
            if let Err(error) = self.supervisor.start_kill() {
                tracing::warn!(%error, "a command's supervisor could not be killed");
            }
        }
    }
}
