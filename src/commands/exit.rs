//! The exit codes.

use std::io::{self, ErrorKind};
use std::process::ExitCode;

use crate::home::LockError;

/// The exit codes that scripts and service managers rely on; 75 and 78 are those of `sysexits.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum CommandExit {
    /// The command succeeded.
    Ok = 0,
    /// The command failed.
    Failed = 1,
    /// The command line is invalid.
    Usage = 2,
    /// Another gateway or command holds this home.
    HomeHeld = 75,
    /// The reply did not arrive in time; the message is kept and will be answered.
    ReplyPending = 76,
    /// The configuration is invalid.
    Config = 78,
}

impl CommandExit {
    /// Returns the result of a command that failed with `error`.
    pub fn of_error(error: &anyhow::Error) -> Self {
        match error.downcast_ref() {
            Some(LockError::Held { .. }) => Self::HomeHeld,
            _ => Self::Failed,
        }
    }

    /// Returns the result of a command that wrote to stdout. A reader that closes the pipe (`daoyou … | head`) is not
    /// an error.
    pub fn of_output(written: io::Result<Self>) -> io::Result<Self> {
        match written {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(Self::Ok),
            other => other,
        }
    }
}

impl From<CommandExit> for ExitCode {
    fn from(exit: CommandExit) -> Self {
        Self::from(exit as u8)
    }
}
