//! `daoyou __confine`: the process that becomes the shell of a command. It gives up the rights that a command must not have, and
//! then replaces itself with the shell.
//!
//! Its standard input is a socket to the supervisor. The supervisor sends one line that states what to give up, and the process
//! answers with one line. The process starts the shell once the supervisor, which by then knows the process id, releases it.

use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use rustix::process::Signal;
use serde::{Deserialize, Serialize};

use super::ownership::CommandUser;
use super::protocol::{CommandLimits, SandboxPolicy, read_request, write_message};
use super::resource_limits::restrict_resources;
use super::sandbox::{self, ConfinementKind};

/// The first argument that starts the program as the process inside the sandbox.
pub const CONFINE_COMMAND: &str = "__confine";

/// The file that sets how likely the kernel is to kill this process when memory runs out (proc_pid_oom_score_adj(5)).
const OOM_SCORE: &str = "/proc/self/oom_score_adj";

/// The restrictions for the process, and the command to run afterwards.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Confinement {
    pub command: String,
    pub folder: PathBuf,
    pub policy: SandboxPolicy,
    pub kind: ConfinementKind,
    pub limits: CommandLimits,
    /// The maximum number of threads of the user on the whole machine.
    pub threads: u64,
    /// The user of the command, if the gateway runs as root.
    pub user: Option<CommandUser>,
}

/// The answer of the process to its [`Confinement`].
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum ConfineReply {
    /// The process is confined, and waits for its release.
    Ready,
    /// The process runs nothing, for this reason.
    Refused(String),
}

/// Confines this process and replaces it with the shell. Returns only if that fails.
pub fn confine_main() -> ExitCode {
    let Ok(control) = io::stdin().as_fd().try_clone_to_owned() else { return ExitCode::FAILURE };
    let mut control = UnixStream::from(control);
    let confined = read_request::<Confinement>(&control)
        .and_then(|confinement| confine(&confinement, &control).map(|()| confinement));
    let confinement = match confined {
        Ok(confinement) => confinement,
        Err(reason) => {
            // A supervisor that has exited needs no answer.
            let _ = write_message(&control, &ConfineReply::Refused(reason));
            return ExitCode::FAILURE;
        }
    };
    let mut release = [0];
    if write_message(&control, &ConfineReply::Ready).is_err() || control.read_exact(&mut release).is_err() {
        return ExitCode::FAILURE;
    }
    let error = Command::new("/bin/sh").arg("-c").arg(&confinement.command).stdin(Stdio::null()).exec();
    // The process writes to the command's output.
    let _ = writeln!(io::stderr(), "the shell did not start: {error}");
    ExitCode::from(126)
}

fn confine(confinement: &Confinement, control: &UnixStream) -> Result<(), String> {
    close_inherited(control)?;
    // The shell must lead its own process group, so that the group can be signalled.
    rustix::process::setsid().map_err(|error| format!("setsid: {error}"))?;
    // If memory runs out, commands are killed before the gateway. Failure is harmless.
    drop(fs::write(OOM_SCORE, "500"));
    restrict_resources(confinement.limits, confinement.threads)?;
    if let Some(user) = confinement.user {
        user.drop_root()?;
    }
    // The flag is set after the change of user, which would clear it. With namespaces, bubblewrap sets it.
    if confinement.kind == ConfinementKind::Landlock {
        let signal = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
        signal.map_err(|error| format!("the signal for a dead supervisor: {error}"))?;
    }
    std::env::set_current_dir(&confinement.folder).map_err(|error| enter_error(confinement, &error))?;
    sandbox::restrict_thread(&confinement.policy, confinement.kind)
}

fn enter_error(confinement: &Confinement, error: &io::Error) -> String {
    let folder = confinement.folder.display();
    // A command can take these rights away.
    let is_closed = fs::metadata(&confinement.folder).is_ok_and(|found| found.mode() & 0o700 != 0o700);
    match confinement.user {
        _ if is_closed => format!("{folder}: {error}; chmod u+rwx {folder}"),
        Some(user) => format!(
            "the gateway runs as root, and the user {} that its commands run as cannot enter {folder}: {error}. Install bubblewrap, \
             or run the gateway as a user of its own",
            user.uid
        ),
        None => format!("{folder}: {error}"),
    }
}

/// Closes all inherited file descriptors except input and output. One of them may be this program, which bubblewrap receives as
/// an open file; a command could change its mode.
fn close_inherited(control: &UnixStream) -> Result<(), String> {
    use std::os::fd::AsRawFd;
    let listed = fs::read_dir(Path::new("/proc/self/fd")).map_err(|error| format!("/proc/self/fd: {error}"))?;
    let numbers: Vec<i32> = listed.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    for number in numbers.into_iter().filter(|number| *number > 2 && *number != control.as_raw_fd()) {
        // The descriptor of the directory listing is among them and already closed.
        let _ = nix::unistd::close(number);
    }
    Ok(())
}
