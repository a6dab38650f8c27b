//! A long-running program, such as a language server. It runs below a supervisor like a command, and its standard input and
//! output are one socket. Dropping the process ends the program, and so does the death of the gateway.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::FusedFuture;
use tokio::io::AsyncReadExt;
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf, pipe};
use tokio::time::timeout;

use crate::guard::{ExecReport, ExecRequest, KnownSecrets, ShellExit};
use crate::live::Live;
use crate::text::{one_line, truncate};
use crate::tools::supervisor_client::SupervisorClient;

/// How long to wait for the remaining output of a program that has ended.
const DRAIN_LIMIT: Duration = Duration::from_millis(500);
/// How long the supervisor may take to end everything.
const END_LIMIT: Duration = Duration::from_secs(7);
/// The size of the part of an error line that is kept, in bytes, and the length of the part that is shown, in characters.
const LINE_BYTES: usize = 4_096;
const SHOWN_CHARS: usize = 300;

/// The reason why a program that serves for long was not started, or why a call that it should serve failed, worded for the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerError {
    pub text: String,
    /// True if a retry may succeed.
    pub is_temporary: bool,
}

impl ServerError {
    /// Creates an error after which a retry may succeed.
    pub(in crate::tools) fn for_now(text: impl Into<String>) -> Self {
        Self { text: text.into(), is_temporary: true }
    }

    /// Creates an error after which a retry fails as well.
    pub(in crate::tools) fn lasting(text: impl Into<String>) -> Self {
        Self { text: text.into(), is_temporary: false }
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
    ) -> Result<(Self, ServerSocket), ServerError> {
        let start = || -> std::io::Result<_> {
            let (ours, theirs) = StdUnixStream::pair()?;
            let (errors, error_writer) = std::io::pipe()?;
            ours.set_nonblocking(true)?;
            let stdout = Stdio::from(OwnedFd::from(theirs));
            let supervisor = SupervisorClient::start(exe, environment, stdout, Stdio::from(error_writer))?;
            Ok((supervisor, UnixStream::from_std(ours)?, pipe::Receiver::from_owned_fd(OwnedFd::from(errors))?))
        };
        let (mut supervisor, socket, errors) = start().map_err(|error| ServerError::for_now(error.to_string()))?;
        let started = supervisor.start_command(request).await.map_err(ServerError::for_now)?;
        started.map_err(ServerError::lasting)?;
        let (reader, writer) = socket.into_split();
        Ok((Self { supervisor, errors }, ServerSocket { reader, writer }))
    }

    /// Runs `work` until it or the program ends, and then ends the program. `work` returns a fault of the program, or `None` at
    /// the end of the connection.
    ///
    /// `on_error_line` gets each line that the program writes to its error output. `on_end` gets how the program ended, as the
    /// end of a sentence that begins with the program's name. It is called before all processes that the program started are
    /// gone. Both texts are without the current `secrets`.
    pub async fn run(
        self,
        work: impl Future<Output = Option<String>>,
        secrets: &Live<KnownSecrets>,
        mut on_error_line: impl FnMut(&str),
        on_end: impl FnOnce(&str),
    ) {
        let Self { mut supervisor, mut errors } = self;
        let mut output = ErrorOutput { secrets, line: Vec::new(), last_line: String::new() };
        let mut exit = None;
        let fault = {
            let drain = drain(&mut errors, &mut output, &mut on_error_line).fuse();
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
        let last_line = output.last_line();
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

/// The error output of a program, line by line.
struct ErrorOutput<'a> {
    secrets: &'a Live<KnownSecrets>,
    /// The beginning of the current line, at most `LINE_BYTES`.
    line: Vec<u8>,
    /// The last line that is not empty, as it is shown.
    last_line: String,
}

impl ErrorOutput<'_> {
    fn push(&mut self, piece: &[u8]) {
        let room = LINE_BYTES.saturating_sub(self.line.len());
        self.line.extend_from_slice(&piece[..piece.len().min(room)]);
    }

    /// Ends the current line. Returns it as it is shown: without secrets, and shortened.
    fn end_line(&mut self) -> &str {
        let mut text = String::from_utf8_lossy(&self.line).into_owned();
        if self.line.len() == LINE_BYTES {
            // The mark lets a secret be recognized that the limit has cut.
            text.push('…');
        }
        self.line.clear();
        // Before the line is shortened, which would cut a secret.
        self.secrets.get().redact(&mut text);
        let text = truncate(&one_line(&text), SHOWN_CHARS);
        if text.is_empty() {
            return "";
        }
        self.last_line = text;
        &self.last_line
    }

    /// Returns the last line that is not empty, formatted as a part of a sentence.
    fn last_line(mut self) -> String {
        self.end_line();
        if self.last_line.is_empty() { String::new() } else { format!(": {}", self.last_line) }
    }
}

/// Reads the program's error output, and passes its lines on. A carriage return ends a line too: a program shows its progress by
/// lines that overwrite each other, and the last one counts.
async fn drain(errors: &mut pipe::Receiver, output: &mut ErrorOutput<'_>, on_line: &mut impl FnMut(&str)) {
    let mut chunk = [0; 1_024];
    while let Ok(read @ 1..) = errors.read(&mut chunk).await {
        for piece in chunk[..read].split_inclusive(|byte| matches!(byte, b'\n' | b'\r')) {
            output.push(piece);
            if piece.ends_with(b"\n") || piece.ends_with(b"\r") {
                on_line(output.end_line());
            }
        }
    }
}

/// Does the work, and then waits forever, so that a `select!` never ends by this branch.
async fn never_after(work: impl Future<Output = ()>) -> Option<String> {
    work.await;
    std::future::pending().await
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

#[cfg(test)]
mod tests {
    use daoyou_channels::settings::Secret;
    use tokio::io::AsyncWriteExt;

    use super::*;

    #[test]
    fn error_lines_are_shown_short_and_without_secrets() {
        let secrets = Live::new(KnownSecrets::new([Secret::new("sk-canary-0123456789")]));
        let words = "x".repeat(SHOWN_CHARS - 5);
        let cut = format!("{words} sk-canary-0123456789 and more");
        let endless = format!("why{}", "y".repeat(3 * LINE_BYTES));
        for (lines, expected) in [
            (&["key=sk-canary-0123456789"][..], ": key=(hidden)"),
            (&["first", "second\t2", " "], ": second 2"),
            (&[&cut], &format!(": {words} (hi…")),
            (&[&endless], &format!(": why{}…", "y".repeat(SHOWN_CHARS - 4))),
            (&[], ""),
        ] {
            let mut output = ErrorOutput { secrets: &secrets, line: Vec::new(), last_line: String::new() };
            for line in lines {
                line.as_bytes().chunks(7).for_each(|piece| output.push(piece));
                assert!(!output.end_line().contains("canary"));
            }
            assert_eq!(output.last_line(), expected);
        }
    }

    #[tokio::test]
    async fn a_carriage_return_ends_a_line() {
        let (mut writer, mut errors) = pipe::pipe().unwrap();
        writer.write_all(b"10%\r50%\rthe disk is full\r\nbye\r").await.unwrap();
        drop(writer);
        let secrets = Live::default();
        let mut output = ErrorOutput { secrets: &secrets, line: Vec::new(), last_line: String::new() };
        let mut lines = Vec::new();
        drain(&mut errors, &mut output, &mut |line: &str| lines.push(line.to_owned())).await;
        lines.retain(|line| !line.is_empty());
        assert_eq!(lines, ["10%", "50%", "the disk is full", "bye"]);
        assert_eq!(output.last_line(), ": bye");
    }
}
