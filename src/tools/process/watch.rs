//! The life of one process, from the gateway's side: one small task. What is printed does not come by here.

use std::io;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::Signal;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};

use super::{Killer, ProcessEnd};
use crate::guard::{Order, Report, end_group};
use crate::tools::exec::Link;

/// Between SIGTERM and SIGKILL.
pub(in crate::tools) const GRACE: Duration = Duration::from_secs(3);
/// What a supervisor may take to end everything once it was asked.
pub(super) const END_LIMIT: Duration = Duration::from_secs(10);
/// What a start may take.
pub(super) const START_LIMIT: Duration = Duration::from_secs(20);

/// What a process is asked from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ask {
    Nothing,
    /// Its end, by the `process` tool.
    Kill(Killer),
    /// The gateway stops.
    Stop,
}

/// How a process is started.
pub(in crate::tools) struct Launch {
    /// This program.
    pub exe: PathBuf,
    pub environment: Vec<(String, String)>,
    pub order: Order,
    pub label: Option<String>,
    /// When it is ended; absent: never.
    pub timeout: Option<Duration>,
    /// How many may run at once, this one included.
    pub at_once: u32,
}

/// A process that runs.
pub(super) struct Watched {
    link: Link,
    /// The shell, which leads its group.
    pub pid: i32,
}

impl Watched {
    /// Starts it; what it prints goes to `file`.
    ///
    /// # Errors
    /// Why it was not started, in words.
    pub(super) async fn start(launch: &Launch, file: std::fs::File) -> Result<Self, String> {
        let failed = |error: io::Error| error.to_string();
        let outputs = (Stdio::from(file), Stdio::null());
        let mut link = Link::start(&launch.exe, &launch.environment, outputs).map_err(failed)?;
        let begun = async {
            link.order(&launch.order).await?;
            link.report().await
        };
        let reason = match timeout(START_LIMIT, begun).await {
            Ok(Ok(Some(Report::Started { group }))) => return Ok(Self { link, pid: group }),
            Ok(Ok(Some(Report::Refused { reason }))) => reason,
            Ok(Ok(_)) => "its supervisor was killed".to_owned(),
            Ok(Err(error)) => error.to_string(),
            Err(_) => "its supervisor did not answer".to_owned(),
        };
        // One that comes late and is detached would take silence for leave to stay.
        link.end().await;
        Err(reason)
    }

    /// Until it has ended, at the latest after `limit`. Absent where it lives on without this gateway.
    pub(super) async fn attend(
        mut self,
        limit: Option<Duration>,
        is_detached: bool,
        mut asked: watch::Receiver<Ask>,
    ) -> Option<ProcessEnd> {
        let mut until = limit.and_then(|limit| Instant::now().checked_add(limit));
        // Why it was told to end.
        let mut reason: Option<ProcessEnd> = None;
        let end = loop {
            tokio::select! {
                report = self.link.report() => match report {
                    Ok(Some(Report::Ended(ending))) => break match reason {
                        None => ProcessEnd::By(ending),
                        Some(ProcessEnd::Killed { by, .. }) => ProcessEnd::Killed { ending: Some(ending), by },
                        Some(reason) => reason,
                    },
                    Ok(Some(_)) => {}
                    Ok(None) | Err(_) => {
                        end_group(self.pid, Signal::KILL);
                        break reason.unwrap_or(ProcessEnd::Lost);
                    }
                },
                ask = next(&mut asked), if reason.is_none() => {
                    reason = Some(match ask {
                        Ask::Stop if is_detached => return None,
                        Ask::Kill(by) => ProcessEnd::Killed { ending: None, by },
                        Ask::Stop | Ask::Nothing => ProcessEnd::Interrupted,
                    });
                    until = Some(Instant::now() + END_LIMIT);
                    self.link.end().await;
                },
                () = due(until) => match (reason, limit) {
                    (None, Some(limit)) => {
                        reason = Some(ProcessEnd::TimedOut(limit));
                        until = Some(Instant::now() + END_LIMIT);
                        self.link.end().await;
                    }
                    (reason, _) => {
                        end_group(self.pid, Signal::KILL);
                        break reason.unwrap_or(ProcessEnd::Lost);
                    }
                },
            }
        };
        self.link.collect().await;
        Some(end)
    }
}

/// What is asked next; never returns when nobody can ask any more.
async fn next(asked: &mut watch::Receiver<Ask>) -> Ask {
    let ask = asked.wait_for(|ask| *ask != Ask::Nothing).await.map(|ask| *ask);
    match ask {
        Ok(ask) => ask,
        Err(_) => std::future::pending().await,
    }
}

async fn due(until: Option<Instant>) {
    match until {
        Some(until) => sleep_until(until).await,
        None => std::future::pending().await,
    }
}
