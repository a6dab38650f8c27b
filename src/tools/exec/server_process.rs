//! A long-running program, such as a language server. It runs below a supervisor like a command, and its standard input and
//! output are one socket. Dropping the process ends the program, and so does the death of the gateway.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::FusedFuture;
use parking_lot::Mutex;
use tokio::io::AsyncReadExt;
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf, pipe};
use tokio::time::timeout;

use crate::guard::{ExecReport, ExecRequest, ShellExit};
use crate::text::{one_line, truncate};
use crate::tools::supervisor_client::SupervisorClient;

/// How long to wait for the remaining output of a program that has ended.
const DRAIN_LIMIT: Duration = Duration::from_millis(500);
/// How long the supervisor may take to end everything.
const END_LIMIT: Duration = Duration::from_secs(7);
/// The size of the end of the error output that is kept, in bytes, and the length of the part that is shown, in characters.
const ERROR_BYTES: usize = 4_096;
const SHOWN_CHARS: usize = 300;

/// The reason why a program was not started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerStartError {
    pub text: String,
    /// True if a retry may succeed.
    pub is_temporary: bool,
}

impl ServerStartError {
    fn for_now(text: String) -> Self {
        Self { text, is_temporary: true }
    }

    pub(super) fn lasting(text: String) -> Self {
        Self { text, is_temporary: false }
    }
}

/// The program that [`CommandRunner::start_server`](super::CommandRunner::start_server) starts.
pub struct ServerCommand {
    /// The program and its arguments.
    pub words: Vec<String>,
    /// Environment variables that are added to those of commands, or replace them.
    pub environment: Vec<(String, String)>,
    /// The program's own folder, which is its `HOME` and must exist. `None` for the home of the gateway's user.
    pub home: Option<PathBuf>,
    /// True if network connections are allowed.
    pub network: bool,
    /// True if the program runs in the sandbox of commands.
    pub is_sandboxed: bool,
}

/// A running program and its supervisor.
pub struct ServerProcess {
    supervisor: SupervisorClient,
    errors: pipe::Receiver,
}

/// The two directions of the socket that is the program's standard input and output.
pub struct ServerSocket {
    pub reader: OwnedReadHalf,
    pub writer: OwnedWriteHalf,
}

impl ServerProcess {
    /// Starts the program of `request`. `exe` is the path of this program, which runs as the supervisor.
    ///
    /// # Errors
    /// The program cannot be started, or the sandbox refuses it.
    pub(in crate::tools) async fn start(
        exe: &Path,
        environment: &[(String, String)],
        request: &ExecRequest,
    ) -> Result<(Self, ServerSocket), ServerStartError> {
        let start = || -> std::io::Result<_> {
            let (ours, theirs) = StdUnixStream::pair()?;
            let (errors, error_writer) = std::io::pipe()?;
            ours.set_nonblocking(true)?;
            let stdout = Stdio::from(OwnedFd::from(theirs));
            let supervisor = SupervisorClient::start(exe, environment, stdout, Stdio::from(error_writer))?;
            Ok((supervisor, UnixStream::from_std(ours)?, pipe::Receiver::from_owned_fd(OwnedFd::from(errors))?))
        };
        let (mut supervisor, socket, errors) = start().map_err(|error| ServerStartError::for_now(error.to_string()))?;
        let started = supervisor.start_command(request).await.map_err(ServerStartError::for_now)?;
        started.map_err(ServerStartError::lasting)?;
        let (reader, writer) = socket.into_split();
        Ok((Self { supervisor, errors }, ServerSocket { reader, writer }))
    }

    /// Runs `work` until it or the program ends, and then ends the program. `work` returns a fault of the program, or `None` at
    /// the end of the connection.
    ///
    /// `on_error_line` gets each line that the program writes to its error output. `on_end` gets how the program ended, as the
    /// end of a sentence that begins with the program's name. It is called before all processes that the program started are
    /// gone.
    pub async fn run(
        self,
        work: impl Future<Output = Option<String>>,
        mut on_error_line: impl FnMut(&str),
        on_end: impl FnOnce(&str),
    ) {
        let Self { mut supervisor, mut errors } = self;
        let tail = Mutex::new(Vec::new());
        let mut exit = None;
        let fault = {
            let drain = drain(&mut errors, &tail, &mut on_error_line).fuse();
            tokio::pin!(drain);
            let fault = tokio::select! {
                fault = work => fault,
                report = supervisor.next_report() => {
                    exit = Some(report.ok().flatten());
                    None
                }
                never = never_after(drain.as_mut()) => never,
            };
            if exit.is_none() && fault.is_none() {
                // The program has closed its output, so most likely it has ended.
                exit = timeout(DRAIN_LIMIT, supervisor.next_report()).await.ok().map(|report| report.ok().flatten());
            }
            // The error output may still hold lines that were written before the end.
            if exit.is_some() && !drain.is_terminated() {
                drop(timeout(DRAIN_LIMIT, drain).await);
            }
            fault
        };
        let last_line = last_error_line(&tail.into_inner());
        let reason = match (fault, &exit) {
            (Some(fault), _) => format!("was stopped: {fault}{last_line}"),
            (None, Some(Some(ExecReport::Ended(end)))) => format!("ended ({}){last_line}", describe(*end)),
            (None, Some(Some(ExecReport::Refused { reason }))) => format!("was not started: {reason}"),
            (None, _) => format!("ended{last_line}"),
        };
        on_end(&reason);
        if !matches!(exit, Some(Some(ExecReport::Ended(_)) | None)) {
            supervisor.request_end().await;
            let ends = async { while let Ok(Some(ExecReport::Started { .. })) = supervisor.next_report().await {} };
            drop(timeout(END_LIMIT, ends).await);
        }
        supervisor.wait_for_exit().await;
    }
}

/// Keeps the end of the program's error output, and passes its lines on.
async fn drain(errors: &mut pipe::Receiver, tail: &Mutex<Vec<u8>>, on_line: &mut impl FnMut(&str)) {
    let (mut chunk, mut line) = ([0; 1_024], Vec::new());
    while let Ok(read @ 1..) = errors.read(&mut chunk).await {
        for piece in chunk[..read].split_inclusive(|byte| *byte == b'\n') {
            line.extend_from_slice(piece);
            if piece.ends_with(b"\n") || line.len() > ERROR_BYTES {
                on_line(&truncate(&one_line(&String::from_utf8_lossy(&line)), SHOWN_CHARS));
                line.clear();
            }
        }
        let mut tail = tail.lock();
        tail.extend_from_slice(&chunk[..read]);
        let excess = tail.len().saturating_sub(ERROR_BYTES);
        tail.drain(..excess);
    }
}

/// Does the work, and then waits forever, so that a `select!` never ends by this branch.
async fn never_after(work: impl Future<Output = ()>) -> Option<String> {
    work.await;
    std::future::pending().await
}

/// Returns the last line of an error output that is not empty, formatted as a part of a sentence.
fn last_error_line(errors: &[u8]) -> String {
    let text = String::from_utf8_lossy(errors);
    let line = text.lines().rev().map(str::trim).find(|line| !line.is_empty());
    line.map(|line| format!(": {}", truncate(&one_line(line), SHOWN_CHARS))).unwrap_or_default()
}

fn describe(end: ShellExit) -> String {
    match end {
        ShellExit::Code(127) => {
            "not found where commands can use it; tools.exec.read_paths may need its folder".to_owned()
        }
        ShellExit::Code(code) => format!("exit code {code}"),
        ShellExit::Signal(signal) => format!("signal {signal}"),
        ShellExit::Exceeded(limit) => limit.to_string(),
    }
}
