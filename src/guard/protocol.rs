//! The protocol between the gateway and the supervisor of a command: one request, then reports.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use daoyou_channels::settings::ByteSize;
use rustix::io::retry_on_intr;
use rustix::net::{RecvFlags, recv};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

/// The longest request that is read, in bytes.
const REQUEST_BYTES: usize = 4_000_000;

/// The command to run. Its environment is the supervisor's, with `TMPDIR` added.
#[derive(Debug, Serialize, Deserialize)]
// In production every field is listed: the default of a protection is none.
#[cfg_attr(test, derive(Default))]
pub struct ExecRequest {
    /// The command line, which `sh -c` runs.
    pub command: String,
    /// The working directory: the workspace.
    pub folder: PathBuf,
    /// The folder in which the private temp folder is created.
    pub temp: PathBuf,
    /// `None`: the command runs without protection.
    pub sandbox: Option<SandboxPolicy>,
    /// The bubblewrap program that creates the namespaces. `None`: only Landlock and seccomp protect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bwrap: Option<PathBuf>,
    /// True if the namespaces share the machine's `/proc`: the kernel refuses a new one if parts of the old one are covered.
    #[serde(default)]
    pub shares_proc: bool,
    /// True if the gateway runs as root and created `folder` itself. The user of the command then becomes the owner of root's
    /// files in `folder`. By default, no owner changes.
    #[serde(default)]
    pub hands_over: bool,
    /// Folders that appear empty to the command. Only namespaces can hide folders, so without `bwrap` the request is refused.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hidden: Vec<PathBuf>,
    /// Folders inside a hidden one that the command may use.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shown: Vec<PathBuf>,
    /// Files and folders inside a writable folder that stay read-only. Needs `bwrap`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub read_only: Vec<PathBuf>,
    /// Folders outside the workspace that daoyou created for this command alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub own: Vec<PathBuf>,
    #[serde(default)]
    pub limits: CommandLimits,
    /// `None`: the gateway waits for the command, and reads its output from the supervisor's own standard output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub background: Option<BackgroundOptions>,
}

/// The access that the sandbox allows; by default none.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SandboxPolicy {
    /// Folders and files that may be read and executed.
    pub read: Vec<PathBuf>,
    /// The links among `read` with their targets. A new file system contains no links, so they are created again.
    #[serde(default)]
    pub links: Vec<(PathBuf, PathBuf)>,
    /// Folders that may also be written.
    pub write: Vec<PathBuf>,
    /// Internet sockets are allowed. Unix sockets never are: control sockets of daoyou, Docker and others would be ways
    /// out.
    pub network: bool,
}

/// Options of a background command. Its output goes to the file that is the supervisor's standard output.
#[derive(Debug, Serialize, Deserialize)]
pub struct BackgroundOptions {
    /// The maximum size of the kept output.
    pub output_bytes: u64,
    /// The time between SIGTERM and SIGKILL, in milliseconds.
    pub grace_ms: u64,
    /// The command outlives the gateway.
    pub detached: bool,
}

/// The limits for a command together with all processes that it starts.
#[derive(Clone, Copy, Debug, SmartDefault, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CommandLimits {
    /// The maximum number of concurrent processes.
    #[default = 256]
    pub processes: u32,
    /// The maximum memory in bytes.
    #[default = 2_000_000_000]
    pub memory: u64,
    /// The maximum number of bytes that the command may add to the disk. Each file or folder counts as at least 4 KiB.
    #[default = 1_000_000_000]
    pub disk: u64,
    /// The number of bytes that must stay free on the disk, whoever uses it.
    pub reserve: u64,
}

/// A report of the supervisor.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExecReport {
    /// The shell runs, as the leader of this process group.
    Started { group: i32 },
    /// Nothing was started, for this reason.
    Refused { reason: String },
    /// The shell has ended, and all processes that it started are gone.
    Ended(ShellExit),
}

/// How a shell ended: by itself with a code, by a signal, or killed by the supervisor for using too much.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ShellExit {
    Code(i32),
    Signal(i32),
    Exceeded(LimitExceeded),
}

/// The limit that a command exceeded, with its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LimitExceeded {
    #[error("it ran more processes than tools.exec.max_processes ({0})")]
    Processes(u64),
    #[error("it used more memory than tools.exec.max_memory ({})", ByteSize(*.0))]
    Memory(u64),
    #[error("it wrote more to the disk than tools.exec.max_disk ({})", ByteSize(*.0))]
    Disk(u64),
    #[error("the disk was nearly full: store.reserve ({}) stays free", ByteSize(*.0))]
    Reserve(u64),
    #[error("the disk had room for few more files: {0} inodes stay free")]
    Inodes(u64),
}

/// Writes a message as one line of JSON.
pub(super) fn write_message(mut stream: &UnixStream, message: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    stream.write_all(&line)
}

/// Reads one line, of at most 4 MB. What follows the line stays in the stream: the gateway may already have sent the next message.
pub(super) fn read_line(mut stream: &UnixStream) -> io::Result<String> {
    let (mut line, mut buffer) = (Vec::new(), [0; 8_192]);
    while line.len() < REQUEST_BYTES && !line.ends_with(b"\n") {
        let (seen, _) = retry_on_intr(|| recv(stream, &mut buffer[..], RecvFlags::PEEK))?;
        if seen == 0 {
            break;
        }
        let end = buffer[..seen].iter().position(|byte| *byte == b'\n').map_or(seen, |at| at + 1);
        stream.read_exact(&mut buffer[..end])?;
        line.extend_from_slice(&buffer[..end]);
    }
    String::from_utf8(line).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

/// Reads a request as one line of JSON.
///
/// # Errors
/// The request cannot be read or is not valid; the text states why.
pub(super) fn read_request<T: DeserializeOwned>(stream: &UnixStream) -> Result<T, String> {
    let line = read_line(stream).map_err(|error| format!("no request: {error}"))?;
    serde_json::from_str(&line).map_err(|error| format!("the request is not valid: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_after_the_line_stays_in_the_stream() {
        let (mut gateway, mut supervisor) = UnixStream::pair().unwrap();
        gateway.write_all("{\"a\": \"道\"}\nend\n".as_bytes()).unwrap();
        drop(gateway);
        assert_eq!(read_line(&supervisor).unwrap(), "{\"a\": \"道\"}\n");
        let mut rest = String::new();
        supervisor.read_to_string(&mut rest).unwrap();
        assert_eq!((rest.as_str(), read_line(&supervisor).unwrap().as_str()), ("end\n", ""));
    }
}
