//! Information about processes of this machine, from `/proc`.

use std::fs;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Returns a duration for `sleep` that no other run of these tests uses, so that it identifies the process.
pub fn unique_sleep(n: u32) -> String {
    format!("{n}.{}", std::process::id())
}

/// Returns true if another process with `mark` in its command line is running.
pub fn is_running(mark: &str) -> bool {
    let me = std::process::id().to_string();
    fs::read_dir("/proc").expect("this is Linux").flatten().any(|entry| {
        let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        entry.file_name().to_str() != Some(&me) && String::from_utf8_lossy(&line).contains(mark)
    })
}

/// Raises this process's limit of open sockets to the number that a story needs, if it is lower.
pub fn allow_sockets(count: u64) {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current.is_some_and(|soft| soft < count) {
        let raised = maximum.map_or(count, |hard| hard.min(count));
        setrlimit(Resource::Nofile, Rlimit { current: Some(raised), maximum }).expect("a limit below the hard one");
    }
}

/// Returns the resident memory of a process in bytes.
pub fn resident_bytes(pid: u32) -> u64 {
    memory(pid, "VmRSS:")
}

/// Returns the peak resident memory of a process in bytes.
pub fn peak_bytes(pid: u32) -> u64 {
    memory(pid, "VmHWM:")
}

/// Resets the peak of a process to its present resident memory (proc_pid_clear_refs(5)), and returns it in bytes. The gateway unmaps
/// program pages after its start, so the peak of the start says nothing about later work.
pub fn reset_peak(pid: u32) -> u64 {
    fs::write(format!("/proc/{pid}/clear_refs"), "5").expect("the process is ours");
    peak_bytes(pid)
}

/// Returns a line of `/proc/PID/status` in bytes.
fn memory(pid: u32, name: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("the process has not ended");
    let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("the process has not ended");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") * 1024
}
