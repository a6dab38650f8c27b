//! Supervises one process from the gateway's side, in one small task. The task does not handle the output.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use futures_util::future::OptionFuture;
use rustix::process::Signal;
use tokio::sync::watch::{self, error::RecvError};
use tokio::time::{Instant, sleep_until};

use super::end::{KillRequester, ProcessEnd};
use crate::guard::{ExecReport, ExecRequest, signal_group};
use crate::tools::supervisor_client::SupervisorClient;

/// The time between SIGTERM and SIGKILL.
pub(in crate::tools) const GRACE: Duration = Duration::from_secs(3);
/// How long a supervisor may take to end everything.
pub(super) const END_LIMIT: Duration = Duration::from_secs(10);

/// A request to a running process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProcessRequest {
    Nothing,
    /// End the process, as the `process` tool requested.
    Kill(KillRequester),
    /// End the process, because the gateway stops.
    Stop,
}

/// The request to start a background process.
pub(in crate::tools) struct LaunchRequest {
    /// The path of this program, which runs as the supervisor.
    pub exe: PathBuf,
    pub environment: Vec<(String, String)>,
    pub request: ExecRequest,
    pub label: Option<String>,
    /// The time limit; `None`: unlimited.
    pub timeout: Option<Duration>,
    /// How many processes may run at once, this one included.
    pub at_once: u32,
}

/// A running process.
pub(super) struct SupervisedProcess {
    supervisor: SupervisorClient,
    /// The process id of the shell, which is also the id of its process group.
    pub pid: i32,
}

impl SupervisedProcess {
    /// Starts the process with its output going to `file`.
    ///
    /// # Errors
    /// The process was not started, for this reason.
    pub(super) async fn start(launch: &LaunchRequest, file: std::fs::File) -> Result<Self, String> {
        let (output, errors) = (Stdio::from(file), Stdio::null());
        let supervisor = SupervisorClient::start(&launch.exe, &launch.environment, output, errors);
        let mut supervisor = supervisor.map_err(|error| error.to_string())?;
        let reason = match supervisor.start_command(&launch.request).await {
            Ok(Ok(pid)) => return Ok(Self { supervisor, pid }),
            Ok(Err(reason)) | Err(reason) => reason,
        };
        // A detached supervisor that starts too late would keep running otherwise.
        supervisor.request_end().await;
        Err(reason)
    }

    /// Waits for the end of the process, and ends it after `limit`. Returns `None` if the process outlives this gateway.
    pub(super) async fn wait(
        mut self,
        limit: Option<Duration>,
        is_detached: bool,
        mut requests: watch::Receiver<ProcessRequest>,
    ) -> Option<ProcessEnd> {
        let mut until = limit.and_then(|limit| Instant::now().checked_add(limit));
        // The reason of the requested end.
        let mut reason: Option<ProcessEnd> = None;
        let end = loop {
            tokio::select! {
                report = self.supervisor.next_report() => match report {
                    Ok(Some(ExecReport::Ended(ending))) => break match reason {
                        None => ProcessEnd::Exited(ending),
                        Some(ProcessEnd::Killed { by, .. }) => ProcessEnd::Killed { ending: Some(ending), by },
                        Some(reason) => reason,
                    },
                    Ok(Some(_)) => {}
                    Ok(None) | Err(_) => {
                        signal_group(self.pid, Signal::KILL);
                        break reason.unwrap_or(ProcessEnd::Lost);
                    }
                },
                Ok(request) = next_request(&mut requests), if reason.is_none() => {
                    reason = Some(match request {
                        ProcessRequest::Stop if is_detached => return None,
                        ProcessRequest::Kill(by) => ProcessEnd::Killed { ending: None, by },
                        ProcessRequest::Stop | ProcessRequest::Nothing => ProcessEnd::Interrupted,
                    });
                    until = Some(Instant::now() + END_LIMIT);
                    self.supervisor.request_end().await;
                },
                Some(()) = OptionFuture::from(until.map(sleep_until)) => match (reason, limit) {
                    (None, Some(limit)) => {
                        reason = Some(ProcessEnd::TimedOut(limit));
                        until = Some(Instant::now() + END_LIMIT);
                        self.supervisor.request_end().await;
                    }
                    (reason, _) => {
                        signal_group(self.pid, Signal::KILL);
                        break reason.unwrap_or(ProcessEnd::Lost);
                    }
                },
            }
        };
        self.supervisor.wait_for_exit().await;
        Some(end)
    }
}

/// Returns the next request.
///
/// # Errors
/// Nothing can send requests any more.
async fn next_request(requests: &mut watch::Receiver<ProcessRequest>) -> Result<ProcessRequest, RecvError> {
    requests.wait_for(|request| *request != ProcessRequest::Nothing).await.map(|request| *request)
}
