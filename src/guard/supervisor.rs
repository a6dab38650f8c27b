//! `daoyou __exec`: the process between the gateway and a command. It starts the shell in the sandbox, and it ends
//! everything that the shell started: when the shell ends, when the gateway asks for it, and when the gateway dies.
//!
//! Its standard input is a socket whose other end only the gateway holds. The gateway writes one [`Order`] and reads
//! [`Report`]s, each a line of JSON; closing its writing side, by intent or by dying, is the request to end. So a
//! `kill -9` of the gateway leaves no command behind, and nobody has to remember process ids. Only a command that is
//! detached on purpose takes nothing but words for that request, and outlives whoever started it.

use std::fs;
use std::io::{self, BufRead, BufReader, PipeWriter, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Resource, Rlimit, Signal, WaitOptions, WaitStatus};
use serde::{Deserialize, Serialize};

use super::hiding::hide;
use super::pump::Pump;
use super::sandbox::{self, Policy};

/// The first argument that makes the program a supervisor.
pub const EXEC_WORD: &str = "__exec";

/// Between SIGTERM and SIGKILL.
const GRACE: Duration = Duration::from_millis(500);
/// Rounds of killing what keeps being born, and the pause between them: five seconds in all.
const KILL_ROUNDS: u32 = 500;
const KILL_PAUSE: Duration = Duration::from_millis(10);
/// The longest order that is read.
const ORDER_BYTES: u64 = 4_000_000;
/// How readily the kernel kills this process when memory runs out (proc_pid_oom_score_adj(5)).
const OOM_SCORE: &str = "/proc/self/oom_score_adj";
/// The private temp folders begin so; the supervisor's process id follows.
const TEMP_PREFIX: &str = "exec-";

/// What to run. The environment is the supervisor's own, to which `TMPDIR` is added.
#[derive(Debug, Serialize, Deserialize)]
pub struct Order {
    /// For `sh -c`.
    pub command: String,
    /// Where the command starts.
    pub folder: PathBuf,
    /// Where the private temp folder is made.
    pub temp: PathBuf,
    /// Absent: the command runs without protection.
    pub sandbox: Option<Policy>,
    /// Folders that the command finds empty, where the machine can hide them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hidden: Vec<PathBuf>,
    /// Absent: somebody waits for the command, and reads what it prints from the supervisor's own output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub background: Option<Background>,
}

/// How a command runs that nobody waits for. What it prints goes to the file that is the supervisor's standard output.
#[derive(Debug, Serialize, Deserialize)]
pub struct Background {
    /// The most that is kept of what it prints.
    pub output_bytes: u64,
    /// Between SIGTERM and SIGKILL.
    pub grace_ms: u64,
    /// It outlives the gateway.
    pub detached: bool,
}

/// What the supervisor tells.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Report {
    /// The shell runs, as the leader of this process group.
    Started { group: i32 },
    /// Nothing was started, and why.
    Refused { reason: String },
    /// The shell ended, and all that it had started is gone.
    Ended(Ending),
}

/// How a shell ended: by itself with a code, or by a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    Code(i32),
    Signal(i32),
}

/// The whole life of a supervisor.
pub fn exec_main() -> ExitCode {
    let Ok(control) = io::stdin().as_fd().try_clone_to_owned() else {
        return ExitCode::FAILURE;
    };
    let mut control = UnixStream::from(control);
    let report = match read_order(&control).and_then(|order| supervise(&order, &control)) {
        Ok(ending) => Report::Ended(ending),
        Err(reason) => Report::Refused { reason },
    };
    // A gateway that is gone reads nothing any more.
    let told = tell(&mut control, &report);
    if told.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Removes the private temp folders of supervisors that are gone.
pub fn sweep_temp(temp: &Path) {
    for folder in stale_temp(temp) {
        if let Err(error) = fs::remove_dir_all(folder) {
            tracing::warn!(%error, "a command's old temp folder could not be removed");
        }
    }
}

/// Temp folders of supervisors that are gone.
pub fn stale_temp(temp: &Path) -> Vec<PathBuf> {
    let is_stale = |entry: &fs::DirEntry| {
        let name = entry.file_name();
        let owner =
            name.to_str().and_then(|name| name.strip_prefix(TEMP_PREFIX)).and_then(|pid| pid.parse::<u32>().ok());
        owner.is_some_and(|pid| !Path::new("/proc").join(pid.to_string()).exists())
    };
    fs::read_dir(temp).into_iter().flatten().flatten().filter(is_stale).map(|entry| entry.path()).collect()
}

fn read_order(control: &UnixStream) -> Result<Order, String> {
    let mut line = String::new();
    BufReader::new(control.take(ORDER_BYTES)).read_line(&mut line).map_err(|error| format!("no order: {error}"))?;
    serde_json::from_str(&line).map_err(|error| format!("the order is not understood: {error}"))
}

fn tell(control: &mut UnixStream, report: &Report) -> io::Result<()> {
    let mut line = serde_json::to_string(report)?;
    line.push('\n');
    control.write_all(line.as_bytes())
}

fn supervise(order: &Order, control: &UnixStream) -> Result<Ending, String> {
    let wrong = |what: &'static str| move |error| format!("{what}: {error}");
    // A session of its own: Ctrl-C at the gateway's terminal does not reach it, nor has it a terminal to write to.
    rustix::process::setsid().map_err(|error| format!("setsid: {error}"))?;
    // What the shell's children leave behind becomes this process's child instead of escaping to init.
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
        .map_err(|error| format!("subreaper: {error}"))?;
    // A dump of memory is a file somewhere outside the workspace.
    let none = Rlimit { current: Some(0), maximum: Some(0) };
    rustix::process::setrlimit(Resource::Core, none).map_err(|error| format!("rlimit: {error}"))?;

    // Before there is a second thread, and before the sandbox, in which nothing can be mounted any more.
    if !order.hidden.is_empty()
        && let Err(error) = hide(&order.hidden)
    {
        // The gateway has asked whether it can; what fails here was there a moment ago, or is just being made.
        return Err(format!("what is the owner's cannot be hidden from the command: {error}"));
    }
    let pump = order.background.as_ref().map(|background| Pump::start(background.output_bytes)).transpose();
    let (pump, printed) = pump.map_err(wrong("the file for its output"))?.unzip();
    let temp = order.temp.join(format!("{TEMP_PREFIX}{}", std::process::id()));
    fs::DirBuilder::new().mode(0o700).create(&temp).map_err(wrong("the private temp folder"))?;
    let ending = start(order, &temp, printed).and_then(|shell| {
        let mut control = control.try_clone().map_err(wrong("control socket"))?;
        let told = tell(&mut control, &Report::Started { group: shell.as_raw_nonzero().get() });
        if told.is_err() {
            end_group(shell, Signal::KILL);
        }
        let (ended, watched) = mpsc::channel::<()>();
        let grace = order.background.as_ref().map_or(GRACE, |background| Duration::from_millis(background.grace_ms));
        let is_detached = order.background.as_ref().is_some_and(|background| background.detached);
        thread::spawn(move || {
            if is_requested(&mut control, is_detached) {
                end_shell(shell, grace, &watched);
            }
        });
        let ending = reap_until(shell);
        drop(ended);
        ending
    });
    end_all();
    if let Some(pump) = pump {
        pump.finish();
    }
    // What cannot be removed now, the gateway's next start sweeps.
    drop(fs::remove_dir_all(&temp));
    ending
}

/// Starts the shell from a thread that is held to the policy; the supervisor itself stays free to kill.
fn start(order: &Order, temp: &Path, printed: Option<PipeWriter>) -> Result<Pid, String> {
    let mut shell = Command::new("/bin/sh");
    shell.arg("-c").arg(&order.command).current_dir(&order.folder).env("TMPDIR", temp).stdin(Stdio::null());
    shell.process_group(0);
    if let Some(printed) = printed {
        // One pipe for both, so that errors stand where they happened.
        let other = printed.try_clone().map_err(|error| format!("a pipe for its output: {error}"))?;
        shell.stdout(printed).stderr(other);
    }
    let policy = order.sandbox.clone().map(|mut policy| {
        policy.write.push(temp.to_owned());
        policy
    });
    let usual = fs::read_to_string(OOM_SCORE).unwrap_or_default();
    prefer_for_oom("500");
    let started = thread::spawn(move || {
        if let Some(policy) = policy {
            sandbox::restrict(&policy)?;
        }
        shell.spawn().map_err(|error| format!("the shell did not start: {error}"))
    });
    let started = started.join();
    prefer_for_oom(usual.trim());
    let child = started.map_err(|_| "the sandbox broke".to_owned())??;
    i32::try_from(child.id()).ok().and_then(Pid::from_raw).ok_or_else(|| "no process id".to_owned())
}

/// When memory runs out, commands go before the gateway. Only a hint: where it cannot be given, nothing is lost.
fn prefer_for_oom(score: &str) {
    drop(fs::write(OOM_SCORE, score));
}

/// Waits for the gateway to ask for the end: by closing its side, or in words, which alone count for a detached command.
fn is_requested(control: &mut UnixStream, is_detached: bool) -> bool {
    let mut words = [0; 64];
    loop {
        match control.read(&mut words) {
            Ok(0) => return !is_detached,
            Ok(_) => return true,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return !is_detached,
        }
    }
}

/// Ends the shell, unless it has ended: asked first, killed after `grace`.
fn end_shell(shell: Pid, grace: Duration, ended: &mpsc::Receiver<()>) {
    if matches!(ended.try_recv(), Err(mpsc::TryRecvError::Disconnected)) {
        return;
    }
    end_group(shell, Signal::TERM);
    if let Err(mpsc::RecvTimeoutError::Timeout) = ended.recv_timeout(grace) {
        end_group(shell, Signal::KILL);
        // A shell may have moved itself to another group; it is not collected yet, so the id is still its own.
        let _ = rustix::process::kill_process(shell, Signal::KILL);
    }
}

fn end_group(group: Pid, signal: Signal) {
    // An error means that the group is gone already.
    let _ = rustix::process::kill_process_group(group, signal);
}

/// Collects whatever ends until the shell does.
fn reap_until(shell: Pid) -> Result<Ending, String> {
    loop {
        match rustix::process::wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) if pid == shell => return Ok(ending(status)),
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(format!("waiting for the shell: {error}")),
        }
    }
}

fn ending(status: WaitStatus) -> Ending {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => Ending::Code(code),
        (None, signal) => Ending::Signal(signal.unwrap_or(0)),
    }
}

/// Kills every process below this one, also those that left the group, until none is left or the rounds are used up.
fn end_all() {
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
        for pid in descendants(std::process::id()) {
            let _ = rustix::process::kill_process(pid, Signal::KILL);
        }
    }
}

/// All processes below `root`, children before grandchildren.
fn descendants(root: u32) -> Vec<Pid> {
    let mut parents: Vec<(u32, u32)> = Vec::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        let Ok(stat) = fs::read_to_string(entry.path().join("stat")) else { continue };
        if let Some(parent) = parent_in(&stat) {
            parents.push((pid, parent));
        }
    }
    let mut found = vec![root];
    let mut next = 0;
    while let Some(&above) = found.get(next) {
        found.extend(parents.iter().filter(|(_, parent)| *parent == above).map(|(pid, _)| *pid));
        next += 1;
    }
    found.into_iter().skip(1).filter_map(|pid| i32::try_from(pid).ok().and_then(Pid::from_raw)).collect()
}

/// The parent in a line of `/proc/PID/stat`, `pid (name) state ppid …`: the name may hold anything, so what counts
/// comes after the last parenthesis (proc_pid_stat(5)).
fn parent_in(stat: &str) -> Option<u32> {
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parent_is_found_whatever_the_name_is() {
        for (stat, parent) in
            [("42 (sh) S 7 42 42 0", Some(7)), ("42 (a) R 1 ) (b) S 9 1", Some(9)), ("42 (sh", None), ("", None)]
        {
            assert_eq!(parent_in(stat), parent, "{stat}");
        }
    }

    #[test]
    fn only_folders_of_dead_supervisors_are_swept() {
        let temp = tempfile::tempdir().unwrap();
        let live = format!("{TEMP_PREFIX}{}", std::process::id());
        for name in [live.as_str(), "exec-4194999", "exec-other", "notes"] {
            fs::create_dir_all(temp.path().join(name).join("inside")).unwrap();
        }
        sweep_temp(temp.path());
        let mut left: Vec<_> =
            fs::read_dir(temp.path()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        left.sort();
        let mut expected = [live, "exec-other".to_owned(), "notes".to_owned()];
        expected.sort();
        assert_eq!(left, expected);
    }
}
