//! `daoyou __exec`: the supervisor process between the gateway and a command. It starts the shell in the sandbox, and monitors
//! the resources of all processes below it. It kills everything that the shell started when the shell ends, when the limits are
//! exceeded, when the gateway asks for it, and when the gateway dies.
//!
//! Its standard input is a socket whose other end only the gateway holds. The gateway writes one [`ExecRequest`] and reads
//! [`ExecReport`]s, each a line of JSON. When the gateway closes its writing side, on purpose or by dying, the supervisor ends
//! the command. A `kill -9` of the gateway therefore leaves no command behind, and nothing has to record process ids. A detached
//! command outlives the gateway: for it, only a written request counts.

use std::fs;
use std::io::{self, PipeWriter, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::{Arc, OnceLock, mpsc};
use std::thread;
use std::time::Duration;

use rustix::io::retry_on_intr;
use rustix::process::{Pid, Resource, Rlimit, Signal, WaitOptions, WaitStatus};

use super::bubblewrap::{self, PrivateTemp, bwrap_arguments};
use super::cgroup::Cgroup;
use super::confine::{CONFINE_COMMAND, ConfineReply, Confinement};
use super::output_pump::OutputPump;
use super::ownership::CommandUser;
use super::procfs::{descendants, first_child, processes, signal_process_group, to_pid};
use super::protocol::{ExecReport, ExecRequest, LimitExceeded, ShellExit, read_line, read_request, write_message};
use super::remove::remove_tree;
use super::resource_limits::{ProcessTree, ResourceMonitor, thread_limit};
use super::sandbox::ConfinementKind;

/// The first argument that starts the program as a supervisor.
pub const EXEC_COMMAND: &str = "__exec";

/// The time between SIGTERM and SIGKILL.
const GRACE: Duration = Duration::from_millis(500);
/// The number of rounds in which processes that keep forking are killed, and the pause between rounds: five seconds in total.
const KILL_ROUNDS: u32 = 500;
const KILL_PAUSE: Duration = Duration::from_millis(10);
/// The path of this program, valid even after the program was replaced on disk.
const OWN_PROGRAM: &str = "/proc/self/exe";
/// The prefix of private temp folders; the supervisor's process id follows.
const TEMP_PREFIX: &str = "exec-";

/// Runs a supervisor until its command ends.
pub fn exec_main() -> ExitCode {
    let Ok(control) = io::stdin().as_fd().try_clone_to_owned() else {
        return ExitCode::FAILURE;
    };
    let control = UnixStream::from(control);
    let report = match read_request::<ExecRequest>(&control).and_then(|request| supervise(&request, &control)) {
        Ok(ending) => ExecReport::Ended(ending),
        Err(reason) => ExecReport::Refused { reason },
    };
    // If the gateway is gone, nothing reads the report.
    if write_message(&control, &report).is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Removes the private temp folders of supervisors that are gone.
pub fn remove_stale_temp(temp: &Path) {
    for folder in stale_temp_folders(temp) {
        if let Err(error) = remove_tree(&folder) {
            tracing::warn!(%error, "a command's old temp folder could not be removed");
        }
    }
}

/// Returns the private temp folders of supervisors that are gone.
pub fn stale_temp_folders(temp: &Path) -> Vec<PathBuf> {
    let is_stale = |entry: &fs::DirEntry| {
        let name = entry.file_name();
        let owner =
            name.to_str().and_then(|name| name.strip_prefix(TEMP_PREFIX)).and_then(|pid| pid.parse::<u32>().ok());
        owner.is_some_and(|pid| !Path::new("/proc").join(pid.to_string()).exists())
    };
    fs::read_dir(temp).into_iter().flatten().flatten().filter(is_stale).map(|entry| entry.path()).collect()
}

fn supervise(request: &ExecRequest, control: &UnixStream) -> Result<ShellExit, String> {
    let wrong = |what: &'static str| move |error| format!("{what}: {error}");
    // In its own session, the supervisor gets no Ctrl-C from the gateway's terminal, and has no terminal to write to.
    rustix::process::setsid().map_err(|error| format!("setsid: {error}"))?;
    // Orphans of the shell become children of this process instead of init.
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
        .map_err(|error| format!("subreaper: {error}"))?;
    // A core dump would be a file outside the workspace.
    let none = Rlimit { current: Some(0), maximum: Some(0) };
    rustix::process::setrlimit(Resource::Core, none).map_err(|error| format!("rlimit: {error}"))?;

    if !request.hidden.is_empty() && request.bwrap.is_none() {
        return Err("what is not for this conversation cannot be hidden from the command without namespaces".to_owned());
    }
    let pump = request.background.as_ref().map(|background| OutputPump::start(background.output_bytes)).transpose();
    let (pump, printed) = pump.map_err(wrong("the file for its output"))?.unzip();
    let temp = create_temp_folder(&request.temp).map_err(wrong("the private temp folder"))?;
    let ending = run(request, &temp, printed, control);
    kill_descendants();
    if let Some(pump) = pump {
        pump.finish();
    }
    // If removal fails, the next start of the gateway removes the folder.
    drop(remove_tree(&temp));
    ending
}

/// Creates the private temp folder of this process. A supervisor with the same process id may have left one when it was killed.
fn create_temp_folder(parent: &Path) -> io::Result<PathBuf> {
    let folder = parent.join(format!("{TEMP_PREFIX}{}", std::process::id()));
    if folder.symlink_metadata().is_ok_and(|found| found.is_dir()) {
        remove_tree(&folder)?;
    }
    fs::DirBuilder::new().mode(0o700).create(&folder)?;
    Ok(folder)
}

/// Runs the command until it ends.
fn run(
    request: &ExecRequest,
    temp: &Path,
    printed: Option<PipeWriter>,
    control: &UnixStream,
) -> Result<ShellExit, String> {
    let folders = [request.folder.clone(), temp.to_owned()].into_iter().chain(request.own.iter().cloned());
    let mut monitor = ResourceMonitor::new(request.limits, folders.collect())?;
    let RunningCommand { child, shell, tree, cgroup } = start(request, temp, printed)?;
    let control = control.try_clone().map_err(|error| format!("control socket: {error}"))?;
    let group = shell.as_raw_nonzero().get();
    if write_message(&control, &ExecReport::Started { group }).is_err() {
        signal_process_group(shell, Signal::KILL);
    }
    let (ended, has_ended) = mpsc::channel::<()>();
    let grace = request.background.as_ref().map_or(GRACE, |background| Duration::from_millis(background.grace_ms));
    let is_detached = request.background.as_ref().is_some_and(|background| background.detached);
    thread::spawn(move || {
        if is_end_requested(&control, is_detached) {
            end_shell(shell, grace, &has_ended);
        }
    });
    let exceeded = Arc::new(OnceLock::new());
    let (over, is_over) = mpsc::channel::<()>();
    let found = Arc::clone(&exceeded);
    monitor.tree = tree;
    let monitoring = thread::spawn(move || keep_within_limits(monitor, &is_over, &found, child, shell));
    let ending = reap_until(child);
    drop((ended, over));
    // The monitor may still be killing processes.
    drop(monitoring.join());
    match exceeded.get().copied().or_else(|| cgroup?.exceeded()) {
        Some(exceeded) => Ok(ShellExit::Exceeded(exceeded)),
        None => ending,
    }
}

/// Monitors the command until it has ended, and kills it if it uses too much.
fn keep_within_limits(
    mut monitor: ResourceMonitor,
    over: &mpsc::Receiver<()>,
    found: &OnceLock<LimitExceeded>,
    child: Pid,
    shell: Pid,
) {
    let mut wait = Duration::ZERO;
    while let Err(mpsc::RecvTimeoutError::Timeout) = over.recv_timeout(wait) {
        match monitor.sample() {
            Ok(next) => wait = next,
            Err(exceeded) => {
                let _ = found.set(exceeded);
                // Killing bubblewrap ends its namespaces. Without them, [`kill_descendants`] kills the rest.
                let _ = rustix::process::kill_process(child, Signal::KILL);
                signal_process_group(shell, Signal::KILL);
                return;
            }
        }
    }
}

/// A running command.
struct RunningCommand {
    /// The process id of the shell, or of the bubblewrap around it.
    child: Pid,
    /// The process id of the shell, which leads its process group.
    shell: Pid,
    tree: ProcessTree,
    /// The control group that limits all its processes, where available.
    cgroup: Option<Cgroup>,
}

/// Starts the shell. Must run on the main thread: the processes die with their parent thread.
fn start(request: &ExecRequest, temp: &Path, printed: Option<PipeWriter>) -> Result<RunningCommand, String> {
    let Some(policy) = &request.sandbox else { return start_unprotected(request, temp, printed) };
    let user = CommandUser::for_workspace(&request.folder).map_err(|error| format!("the workspace: {error}"))?;
    let mut policy = policy.clone();
    let (mut program, private) = match &request.bwrap {
        Some(bwrap) => {
            let private = PrivateTemp::create(temp).map_err(|error| format!("the private temp folder: {error}"))?;
            (SandboxProgram::in_namespaces(bwrap, request, &private, user.is_some())?, Some(private))
        }
        None => {
            policy.write.push(temp.to_owned());
            (SandboxProgram::without_namespaces(temp), None)
        }
    };
    if let Some(user) = user {
        give_files(user, request, temp, private.as_ref(), printed.as_ref())?;
    }
    let uid = user.map_or_else(|| rustix::process::getuid().as_raw(), |user| user.uid);
    let confinement = Confinement {
        command: request.command.clone(),
        folder: request.folder.clone(),
        policy,
        kind: match (&request.bwrap, request.shares_proc) {
            (None, _) => ConfinementKind::Landlock,
            (Some(_), true) => ConfinementKind::SharedProc,
            (Some(_), false) => ConfinementKind::Namespaces,
        },
        limits: request.limits,
        threads: thread_limit(request.limits, uid),
        user,
    };
    let (ours, theirs) = UnixStream::pair().map_err(|error| format!("a socket for it: {error}"))?;
    program.command.arg(CONFINE_COMMAND).stdin(OwnedFd::from(theirs));
    set_outputs(&mut program.command, printed)?;
    let child = program.command.spawn().map_err(|error| format!("the sandbox did not start: {error}"))?;
    // The command holds the other side of the socket and of the outputs. While this process keeps it open as well, their end goes
    // unnoticed.
    drop(program);
    let child = to_pid(child.id()).ok_or("no process id")?;
    let started = release(ours, child, &confinement);
    if started.is_err() {
        let _ = rustix::process::kill_process(child, Signal::KILL);
    }
    started
}

/// The program that confines itself and becomes the shell.
struct SandboxProgram {
    command: Command,
    /// This program as an open file. It must stay open until bubblewrap has started.
    _exe: Option<fs::File>,
}

impl SandboxProgram {
    fn in_namespaces(bwrap: &Path, request: &ExecRequest, temp: &PrivateTemp, is_root: bool) -> Result<Self, String> {
        let exe = fs::File::open(OWN_PROGRAM).map_err(|error| format!("this program: {error}"))?;
        // Bubblewrap runs this program inside the sandbox, where the program has no path.
        rustix::io::fcntl_setfd(&exe, rustix::io::FdFlags::empty()).map_err(|error| format!("fcntl: {error}"))?;
        let mut command = Command::new(bwrap);
        command.args(bwrap_arguments(request, temp, is_root)?);
        command.arg(format!("/proc/self/fd/{}", exe.as_raw_fd())).env("TMPDIR", bubblewrap::TEMP);
        Ok(Self { command, _exe: Some(exe) })
    }

    fn without_namespaces(temp: &Path) -> Self {
        let mut command = Command::new(OWN_PROGRAM);
        command.env("TMPDIR", temp);
        Self { command, _exe: None }
    }
}

/// Sends the restrictions to the process inside the sandbox, and releases it to run the shell once its process id is known.
fn release(mut ours: UnixStream, child: Pid, confinement: &Confinement) -> Result<RunningCommand, String> {
    let broke = |error: io::Error| format!("the sandbox broke off: {error}");
    let sent = write_message(&ours, confinement);
    let reply = read_line(&ours).map_err(broke)?;
    match serde_json::from_str(&reply) {
        Ok(ConfineReply::Ready) => {}
        Ok(ConfineReply::Refused(reason)) => return Err(reason),
        Err(_) if reply.is_empty() => {
            return Err("the sandbox broke off before the command; what is above may say why".to_owned());
        }
        Err(error) => return Err(format!("the answer of the sandbox is not valid: {error}")),
    }
    sent.map_err(broke)?;
    let cgroup = Cgroup::create(confinement.limits);
    let mut tree = ProcessTree::Below(std::process::id());
    let mut shell = child;
    let mut pids = vec![child];
    if confinement.kind != ConfinementKind::Landlock {
        // The child of bubblewrap is the first process of the namespace, and its child is the shell.
        let init = first_child(child).ok_or("the sandbox has no first process")?;
        shell = first_child(init).ok_or("the sandbox has no shell")?;
        pids.extend([init, shell]);
        if confinement.kind == ConfinementKind::Namespaces {
            tree = ProcessTree::Namespace(PathBuf::from(format!("/proc/{}/root/proc", init.as_raw_nonzero())));
        }
    }
    if let Some(cgroup) = &cgroup {
        pids.into_iter()
            .try_for_each(|pid| cgroup.add_process(pid))
            .map_err(|error| format!("its control group: {error}"))?;
    }
    ours.write_all(b"g").map_err(broke)?;
    Ok(RunningCommand { child, shell, tree, cgroup })
}

/// Starts the shell without protection.
fn start_unprotected(request: &ExecRequest, temp: &Path, output: Option<PipeWriter>) -> Result<RunningCommand, String> {
    let mut shell = Command::new("/bin/sh");
    shell.arg("-c").arg(&request.command).current_dir(&request.folder).env("TMPDIR", temp).stdin(Stdio::null());
    shell.process_group(0);
    set_outputs(&mut shell, output)?;
    let shell = shell.spawn().map_err(|error| format!("the shell did not start: {error}"))?;
    let shell = to_pid(shell.id()).ok_or("no process id")?;
    // If memory runs out, commands are killed before the gateway. Failure is harmless.
    drop(fs::write(format!("/proc/{}/oom_score_adj", shell.as_raw_nonzero()), "500"));
    Ok(RunningCommand { child: shell, shell, tree: ProcessTree::Below(std::process::id()), cgroup: None })
}

/// Both outputs share one pipe, which keeps errors in order with the output.
fn set_outputs(command: &mut Command, printed: Option<PipeWriter>) -> Result<(), String> {
    if let Some(printed) = printed {
        let other = printed.try_clone().map_err(|error| format!("a pipe for its output: {error}"))?;
        command.stdout(printed).stderr(other);
    }
    Ok(())
}

/// Changes the owner of the files that the command must be able to write to the user of the command.
fn give_files(
    user: CommandUser,
    request: &ExecRequest,
    temp: &Path,
    private: Option<&PrivateTemp>,
    printed: Option<&PipeWriter>,
) -> Result<(), String> {
    let failed = |error: io::Error| format!("the files of the workspace for the user {}: {error}", user.uid);
    // Only the owner of a workspace that daoyou created changes: a workspace elsewhere may belong to anyone, or be the whole
    // system.
    if request.hands_over {
        user.chown_tree(&request.folder).map_err(failed)?;
    } else if fs::symlink_metadata(&request.folder).map_err(failed)?.uid() == 0 {
        return Err(format!(
            "the gateway runs as root, and {} is root's and not the workspace that daoyou made in its home, so its commands cannot have it. Run the \
             gateway as a user of its own, or give that folder to one",
            request.folder.display()
        ));
    }
    let own = request.own.iter().map(PathBuf::as_path);
    for folder in private.map_or(vec![temp], |private| vec![&private.temp, &private.shared]).into_iter().chain(own) {
        user.chown_tree(folder).map_err(failed)?;
    }
    // A script may reopen its own output as /dev/stdout.
    let given =
        printed.map_or_else(|| user.chown_pipe(io::stdout().as_fd()), |printed| user.chown_pipe(printed.as_fd()));
    given.map_err(failed)
}

/// Waits for a message from the gateway, and returns true if the gateway requests the end. Closing its side is a request unless
/// the command is detached; a written request always counts.
fn is_end_requested(control: &UnixStream, is_detached: bool) -> bool {
    let mut bytes = [0; 64];
    let read = retry_on_intr(|| rustix::io::read(control, &mut bytes[..]));
    matches!(read, Ok(1..)) || !is_detached
}

/// Ends the shell if it still runs: first with SIGTERM, then, after `grace`, with SIGKILL.
fn end_shell(shell: Pid, grace: Duration, ended: &mpsc::Receiver<()>) {
    if matches!(ended.try_recv(), Err(mpsc::TryRecvError::Disconnected)) {
        return;
    }
    signal_process_group(shell, Signal::TERM);
    if let Err(mpsc::RecvTimeoutError::Timeout) = ended.recv_timeout(grace) {
        signal_process_group(shell, Signal::KILL);
        // The shell may have moved to another group. It has not been reaped yet, so its id has not been reused.
        let _ = rustix::process::kill_process(shell, Signal::KILL);
    }
}

/// Reaps ended children until the shell has ended.
fn reap_until(shell: Pid) -> Result<ShellExit, String> {
    loop {
        match rustix::process::wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) if pid == shell => return Ok(exit_of(status)),
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(format!("waiting for the shell: {error}")),
        }
    }
}

fn exit_of(status: WaitStatus) -> ShellExit {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => ShellExit::Code(code),
        (None, signal) => ShellExit::Signal(signal.unwrap_or(0)),
    }
}

/// Kills every descendant of this process, including those that left the group, until none is left or the rounds are used up.
fn kill_descendants() {
    for round in 0..KILL_ROUNDS {
        loop {
            match rustix::process::wait(WaitOptions::NOHANG) {
                Ok(Some(_)) | Err(rustix::io::Errno::INTR) => {}
                Ok(None) => break,
                // No child is left.
                Err(_) => return,
            }
        }
        if round > 0 {
            thread::sleep(KILL_PAUSE);
        }
        let below = descendants(&processes(Path::new("/proc")), std::process::id());
        // All processes are stopped before the first is killed: a fork bomb forks faster than its processes can be killed one by
        // one.
        for signal in [Signal::STOP, Signal::KILL] {
            for process in below.iter().filter_map(|process| to_pid(process.pid)) {
                let _ = rustix::process::kill_process(process, signal);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_temp_folders_of_dead_supervisors_are_removed() {
        let temp = tempfile::tempdir().unwrap();
        let live = format!("{TEMP_PREFIX}{}", std::process::id());
        for name in [live.as_str(), "exec-4194999", "exec-other", "notes"] {
            fs::create_dir_all(temp.path().join(name).join("inside")).unwrap();
        }
        remove_stale_temp(temp.path());
        let mut left: Vec<_> =
            fs::read_dir(temp.path()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        left.sort();
        let mut expected = [live, "exec-other".to_owned(), "notes".to_owned()];
        expected.sort();
        assert_eq!(left, expected);
        let own = create_temp_folder(temp.path()).unwrap();
        assert_eq!(fs::read_dir(own).unwrap().count(), 0, "a former supervisor had the same process id");
    }
}
