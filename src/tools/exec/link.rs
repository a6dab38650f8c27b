//! The gateway's side of a supervisor: starts it, gives it its order, hears its reports, and asks it to end everything.
//! Dropping it is the same request.

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

use crate::guard::{EXEC_WORD, Order, Report};

/// What a supervisor that has reported the end may take to go.
const GO_GRACE: Duration = Duration::from_secs(1);
/// All reports of a supervisor, in bytes.
const REPORT_BYTES: u64 = 64 * 1_024;

/// A running supervisor.
pub(in crate::tools) struct Link {
    supervisor: Child,
    orders: OwnedWriteHalf,
    reports: BufReader<tokio::io::Take<OwnedReadHalf>>,
    line: Vec<u8>,
}

impl Link {
    /// Starts a supervisor with this environment and these outputs, and nothing in it yet.
    ///
    /// # Errors
    /// The system does not let it.
    pub(in crate::tools) fn start(
        exe: &Path,
        environment: &[(String, String)],
        (stdout, stderr): (Stdio, Stdio),
    ) -> io::Result<Self> {
        let (ours, theirs) = StdUnixStream::pair()?;
        let supervisor = Command::new(exe)
            .arg(EXEC_WORD)
            .env_clear()
            .envs(environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(stdout)
            .stderr(stderr)
            .spawn()?;
        ours.set_nonblocking(true)?;
        let (reports, orders) = UnixStream::from_std(ours)?.into_split();
        Ok(Self { supervisor, orders, reports: BufReader::new(reports.take(REPORT_BYTES)), line: Vec::new() })
    }

    /// Gives it its order.
    ///
    /// # Errors
    /// It is gone.
    pub(in crate::tools) async fn order(&mut self, order: &Order) -> io::Result<()> {
        let mut line = serde_json::to_vec(order)?;
        line.push(b'\n');
        self.orders.write_all(&line).await
    }

    /// Its next report; absent when it is gone. Nothing is lost when the future is dropped.
    ///
    /// # Errors
    /// It says what no supervisor says.
    pub(in crate::tools) async fn report(&mut self) -> io::Result<Option<Report>> {
        if self.reports.read_until(b'\n', &mut self.line).await? == 0 {
            return Ok(None);
        }
        let report = serde_json::from_slice(&self.line)?;
        self.line.clear();
        Ok(Some(report))
    }

    /// Asks it to end everything.
    pub(in crate::tools) async fn end(&mut self) {
        // One that is gone is heard of by its reports.
        let _ = self.orders.write_all(b"end\n").await;
        let _ = self.orders.shutdown().await;
    }

    /// Collects it after its last report.
    pub(in crate::tools) async fn collect(&mut self) {
        if timeout(GO_GRACE, self.supervisor.wait()).await.is_err() {
            tracing::warn!("a command's supervisor had to be killed");
            if let Err(error) = self.supervisor.start_kill() {
                tracing::warn!(%error, "a command's supervisor could not be killed");
            }
        }
    }
}
