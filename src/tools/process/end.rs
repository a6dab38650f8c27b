//! How a background process ended, and the announcement of its end.

use std::fmt;
use std::time::Duration;

use daoyou_channels::SessionKey;
use daoyou_channels::settings::HumanDuration;

use super::files::OutputTail;
use crate::guard::ShellExit;
use crate::store::processes::ProcessRow;
use crate::store::{Connection, StoreError};

/// How a process ended. The store keeps its text form, and models read it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProcessEnd {
    /// The shell ended.
    Exited(ShellExit),
    /// The process was killed after this time limit.
    TimedOut(Duration),
    /// The `process` tool killed the process; `ending` is how the shell ended.
    Killed { ending: Option<ShellExit>, by: KillRequester },
    /// The gateway stopped.
    Interrupted,
    /// The supervisor was killed from outside, and the process with it.
    Lost,
    /// A detached process of an earlier gateway ended. How is not known, and when only roughly.
    Unwatched,
    /// The process was not started, for this reason.
    NotStarted(String),
}

/// The session that requested the end of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KillRequester {
    /// The session that started the process. The result of its own call reports the end.
    OwnSession,
    OtherSession,
}

impl ProcessEnd {
    /// Returns true if the end must be announced. Other ends were already reported by the result of the session's own call.
    pub(super) fn needs_announcement(&self) -> bool {
        !matches!(self, Self::Killed { by: KillRequester::OwnSession, .. } | Self::NotStarted(_))
    }
}

impl fmt::Display for ProcessEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exited(ShellExit::Code(code)) => write!(f, "exit {code}"),
            Self::Exited(ShellExit::Signal(signal)) => write!(f, "killed by signal {signal}"),
            Self::Exited(ShellExit::Exceeded(limit)) => write!(f, "killed, as {limit}"),
            Self::TimedOut(limit) => write!(f, "killed, as its time of {} was up", HumanDuration(*limit)),
            Self::Killed { ending: Some(ShellExit::Code(code)), .. } => write!(f, "ended on request (exit {code})"),
            Self::Killed { ending: Some(ShellExit::Signal(signal)), .. } => {
                write!(f, "killed on request (signal {signal})")
            }
            Self::Killed { ending: None | Some(ShellExit::Exceeded(_)), .. } => f.write_str("killed on request"),
            Self::Interrupted => f.write_str("interrupted: the gateway stopped while it ran"),
            Self::Lost => f.write_str("killed from outside"),
            Self::Unwatched => f.write_str("ended; its exit code is not known"),
            Self::NotStarted(reason) => write!(f, "not started: {reason}"),
        }
    }
}

/// Formats a duration briefly: `12.3s`, `2m 3s`, `1h 5m`.
pub fn format_elapsed(time: Duration) -> String {
    let secs = time.as_secs();
    match secs {
        0..60 => format!("{secs}.{}s", time.subsec_millis() / 100),
        60..3_600 => format!("{}m {}s", secs / 60, secs % 60),
        3_600..86_400 => format!("{}h {}m", secs / 3_600, secs / 60 % 60),
        _ => format!("{}d {}h", secs / 86_400, secs / 3_600 % 24),
    }
}

/// The announcer of a process's end to the session that started the process. The gateway implements it, because tools do not know
/// the bus.
pub trait ProcessEndAnnouncer: Send + Sync {
    /// Puts the announcement into the inbox, in the commit that records the end, and returns its session. A retried commit calls
    /// this method again.
    ///
    /// # Errors
    /// The store refuses the write.
    fn write(
        &self,
        connection: &Connection,
        process: &ProcessRow,
        end: &ProcessEnd,
        printed: &OutputTail,
    ) -> Result<SessionKey, StoreError>;

    /// Called after the commit. Wakes the session that has to answer the announcement.
    fn committed(&self, session: SessionKey);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_brief() {
        for (ms, expected) in [
            (0, "0.0s"),
            (12_399, "12.3s"),
            (59_999, "59.9s"),
            (123_456, "2m 3s"),
            (3_900_000, "1h 5m"),
            (90_000_000, "1d 1h"),
        ] {
            assert_eq!(format_elapsed(Duration::from_millis(ms)), expected);
        }
    }
}
