//! Finds out whether commands can run in namespaces on this machine, by running a command in namespaces.

use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::bubblewrap::find_bwrap;
use super::path_rules::{readable_links, readable_paths};
use super::protocol::{CommandLimits, ExecReport, ExecRequest, SandboxPolicy, ShellExit, read_line, write_message};
use super::supervisor::EXEC_COMMAND;

/// Instructions for enabling namespaces.
pub const NAMESPACE_HELP: &str = "install bubblewrap (`apt install bubblewrap`), and let users make namespaces: \
                        `sysctl kernel.unprivileged_userns_clone=1`, or on Ubuntu \
                        `sysctl kernel.apparmor_restrict_unprivileged_userns=0`; a systemd unit needs the settings \
                        RestrictNamespaces and SystemCallFilter of `daoyou service install`, a container \
                        the right to make namespaces";

/// How long a negative answer is cached: an administrator may install bubblewrap in the meantime.
const RETRY_AFTER: Duration = Duration::from_secs(30);
/// The time limit of the trial.
const TRIAL_LIMIT: Duration = Duration::from_secs(10);
/// The maximum length of the trial's output that is kept, in bytes.
const OUTPUT_BYTES: u64 = 2_000;

/// The support of this machine for namespaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NamespaceSupport {
    /// Namespaces work.
    Available {
        /// The path of the bubblewrap program.
        bwrap: PathBuf,
        /// The namespaces must share the machine's `/proc`, because they cannot have their own.
        shares_proc: bool,
    },
    /// Namespaces do not work, for this reason.
    Unavailable(String),
}

/// Finds out whether commands can run in namespaces. The answer is cached. `exe` is the path of this program.
pub fn namespace_support(exe: &Path) -> NamespaceSupport {
    static ANSWER: Mutex<Option<(NamespaceSupport, Instant)>> = Mutex::new(None);
    let mut answer = ANSWER.lock();
    if let Some((known, at)) = &*answer
        && (matches!(known, NamespaceSupport::Available { bwrap, .. } if bwrap.exists()) || at.elapsed() < RETRY_AFTER)
    {
        return known.clone();
    }
    let found = match find_bwrap() {
        None => NamespaceSupport::Unavailable("bubblewrap (bwrap) is not installed, or not in PATH".to_owned()),
        Some(bwrap) => match try_namespaces(exe, &bwrap, false) {
            Ok(()) => NamespaceSupport::Available { bwrap, shares_proc: false },
            Err(_) if try_namespaces(exe, &bwrap, true).is_ok() => {
                NamespaceSupport::Available { bwrap, shares_proc: true }
            }
            Err(reason) => NamespaceSupport::Unavailable(reason),
        },
    };
    *answer = Some((found.clone(), Instant::now()));
    found
}

/// Runs a command in namespaces, in a temporary folder.
///
/// # Errors
/// The command did not run, for this reason.
fn try_namespaces(exe: &Path, bwrap: &Path, shares_proc: bool) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("namespaces could not be tried: {error}");
    let folder = tempfile::tempdir().map_err(failed)?;
    let root = std::fs::canonicalize(folder.path()).map_err(failed)?;
    let (workspace, temp) = (root.join("workspace"), root.join("temp"));
    std::fs::create_dir(&workspace).map_err(failed)?;
    std::fs::create_dir(&temp).map_err(failed)?;
    let (read, links) = (readable_paths(&[], &[]), readable_links(&[]));
    let request = ExecRequest {
        command: "echo > \"$TMPDIR/x\" && echo > x".to_owned(),
        folder: workspace.clone(),
        temp,
        sandbox: Some(SandboxPolicy { read, links, write: vec![workspace], network: false }),
        bwrap: Some(bwrap.to_owned()),
        shares_proc,
        hands_over: true,
        hidden: Vec::new(),
        shown: Vec::new(),
        read_only: Vec::new(),
        own: Vec::new(),
        limits: CommandLimits::default(),
        background: None,
    };
    let (ours, theirs) = UnixStream::pair().map_err(failed)?;
    ours.set_read_timeout(Some(TRIAL_LIMIT)).map_err(failed)?;
    let (printed, writer) = std::io::pipe().map_err(failed)?;
    let mut program = Command::new(exe);
    program.arg(EXEC_COMMAND).env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin");
    program.stdin(OwnedFd::from(theirs)).stdout(Stdio::null()).stderr(writer);
    let mut supervisor = program.spawn().map_err(failed)?;
    drop(program);
    let sent = write_message(&ours, &request);
    let ended = sent.map_err(failed).and_then(|()| last_report(&ours));
    // The supervisor ends the command, and with it the output, when this side is closed.
    drop(ours);
    let mut output = String::new();
    let _ = printed.take(OUTPUT_BYTES).read_to_string(&mut output);
    supervisor.wait().map_err(failed)?;
    let output = output.trim().lines().last().map(|line| format!(" ({line})")).unwrap_or_default();
    match ended {
        Ok(ExecReport::Ended(ShellExit::Code(0))) => Ok(()),
        Ok(ExecReport::Refused { reason }) => Err(format!("namespaces are refused here: {reason}{output}")),
        Ok(report) => Err(format!("namespaces do not work here: a command in them ended with {report:?}{output}")),
        Err(error) => Err(format!("{error}{output}")),
    }
}

fn last_report(control: &UnixStream) -> Result<ExecReport, String> {
    loop {
        let line = read_line(control).map_err(|error| format!("the trial did not end: {error}"))?;
        if line.is_empty() {
            return Err("the trial of namespaces broke off".to_owned());
        }
        match serde_json::from_str(&line) {
            Ok(ExecReport::Started { .. }) => {}
            Ok(report) => return Ok(report),
            Err(error) => return Err(format!("the trial sent an invalid report: {error}")),
        }
    }
}
