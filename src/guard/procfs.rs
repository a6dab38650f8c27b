//! Processes as `/proc` lists them: identity, descendants, memory and open files.

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::process::{Pid, Signal};

/// A process at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ProcessSample {
    pub pid: u32,
    pub parent: u32,
    pub threads: u32,
    /// The resident memory in pages. Memory that several processes share is counted for each of them.
    pub resident: u64,
}

/// Returns all processes that `proc`, a mounted proc file system, shows.
pub(super) fn processes(proc: &Path) -> Vec<ProcessSample> {
    samples(proc, |_| true).collect()
}

/// Returns the processes whose folders in `proc` the function accepts.
fn samples(proc: &Path, is_wanted: impl Fn(&fs::DirEntry) -> bool) -> impl Iterator<Item = ProcessSample> {
    let entries = fs::read_dir(proc).into_iter().flatten().flatten().filter(is_wanted);
    entries.filter_map(|entry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        // A process that ended in the meantime has no line.
        parse_stat(pid, &fs::read_to_string(entry.path().join("stat")).ok()?)
    })
}

/// Returns the fields of `/proc/PID/stat`, starting with field 3, the state. The process name before it may contain any
/// character, so the fields start after the last parenthesis (proc_pid_stat(5)).
fn stat_fields(stat: &str) -> Option<std::str::SplitWhitespace<'_>> {
    Some(stat.rsplit_once(')')?.1.split_whitespace())
}

fn parse_stat(pid: u32, stat: &str) -> Option<ProcessSample> {
    let mut fields = stat_fields(stat)?;
    // The parent is field 4, the threads are field 20, resident pages field 24.
    let parent = fields.nth(1)?.parse().ok()?;
    let threads = fields.nth(15)?.parse().ok()?;
    let resident = fields.nth(3)?.parse().ok()?;
    Some(ProcessSample { pid, parent, threads, resident })
}

/// Returns a text that identifies the start of a process, or `None` if the process is gone. Process ids are reused, but no two
/// processes share both the id and this text.
pub fn process_start_identity(pid: i32) -> Option<String> {
    let stat = fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("stat")).ok()?;
    let ticks = parse_start(&stat)?;
    // Ticks count from the boot of the machine.
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    Some(format!("{}/{ticks}", boot.trim()))
}

/// Returns true if the process with this id and start identity is still alive.
pub fn is_same_process(pid: i32, start_identity: &str) -> bool {
    process_start_identity(pid).is_some_and(|found| found == start_identity)
}

/// Returns the start time of a process in ticks; `None` for a process that has ended and waits for its parent to reap it.
fn parse_start(stat: &str) -> Option<u64> {
    let mut fields = stat_fields(stat)?;
    let state = fields.next()?;
    if matches!(state, "Z" | "X") {
        return None;
    }
    // The state is field 3, the start time field 22.
    fields.nth(18)?.parse().ok()
}

/// Sends a signal to the process group with this id. Ignores a group that is gone.
pub fn signal_group(group: i32, signal: Signal) {
    if let Some(group) = Pid::from_raw(group) {
        signal_process_group(group, signal);
    }
}

/// Sends a signal to a process group like [`signal_group`].
pub(super) fn signal_process_group(group: Pid, signal: Signal) {
    let _ = rustix::process::kill_process_group(group, signal);
}

/// Returns the descendants of `root` among `all`, children before grandchildren, without `root` itself.
pub(super) fn descendants(all: &[ProcessSample], root: u32) -> Vec<ProcessSample> {
    let mut found: Vec<ProcessSample> = Vec::new();
    let mut above = root;
    let mut next = 0;
    loop {
        found.extend(all.iter().filter(|process| process.parent == above && process.pid != root));
        let Some(process) = found.get(next) else { return found };
        (above, next) = (process.pid, next + 1);
    }
}

/// Returns the first child of a process.
pub(super) fn first_child(parent: Pid) -> Option<Pid> {
    let parent = parent.as_raw_nonzero().get();
    let first = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children"));
    let first = first.ok().and_then(|children| children.split_whitespace().next()?.parse().ok());
    // Some kernels lack this file.
    let first = first.or_else(|| {
        let parent = u32::try_from(parent).ok()?;
        descendants(&processes(Path::new("/proc")), parent).first().map(|child| child.pid)
    });
    first.and_then(to_pid)
}

pub(super) fn to_pid(pid: u32) -> Option<Pid> {
    i32::try_from(pid).ok().and_then(Pid::from_raw)
}

/// Returns the number of threads of a user on this machine.
pub(super) fn count_threads(user: u32) -> u64 {
    let is_of_user = |entry: &fs::DirEntry| entry.metadata().is_ok_and(|metadata| metadata.uid() == user);
    samples(Path::new("/proc"), is_of_user).map(|process| u64::from(process.threads)).sum()
}

/// Returns the memory of these processes in bytes; shared pages count once.
pub(super) fn proportional_memory(proc: &Path, processes: &[ProcessSample]) -> u64 {
    let share = |process: &ProcessSample| {
        let folder = proc.join(process.pid.to_string());
        let rollup = fs::read_to_string(folder.join("smaps_rollup")).ok();
        let pss = rollup.and_then(|text| {
            let line = text.lines().find_map(|line| line.strip_prefix("Pss:"))?;
            line.trim().strip_suffix(" kB")?.parse::<u64>().ok()
        });
        pss.map_or_else(|| resident_memory(process), |kib| kib * 1_024)
    };
    processes.iter().map(share).sum()
}

/// Returns the resident memory of a process in bytes.
pub(super) fn resident_memory(process: &ProcessSample) -> u64 {
    process.resident * rustix::param::page_size() as u64
}

/// The size of open files without a name, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct UnnamedFiles {
    pub memory: u64,
    pub disk: u64,
}

/// Returns the size of the unnamed files that these processes hold open: in memory (memfd_create(2)), and on disk if
/// the file was removed.
pub(super) fn unnamed_files(proc: &Path, processes: &[ProcessSample]) -> UnnamedFiles {
    let mut sizes = UnnamedFiles::default();
    let mut seen = HashSet::new();
    for process in processes {
        let folder: PathBuf = proc.join(process.pid.to_string()).join("fd");
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let Ok(target) = fs::read_link(entry.path()) else { continue };
            let is_memory = target.as_os_str().as_encoded_bytes().starts_with(b"/memfd:");
            if !is_memory && !target.as_os_str().as_encoded_bytes().ends_with(b" (deleted)") {
                continue;
            }
            let Ok(metadata) = fs::metadata(entry.path()) else { continue };
            if metadata.is_file() && seen.insert((metadata.dev(), metadata.ino())) {
                let size = if is_memory { &mut sizes.memory } else { &mut sizes.disk };
                *size += metadata.blocks() * 512;
            }
        }
    }
    sizes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_parsed_whatever_its_name_is() {
        let rest = "5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 3 21 22 23 77 25";
        let process = ProcessSample { pid: 42, parent: 7, threads: 3, resident: 77 };
        for (stat, expected) in [
            (format!("42 (sh) S 7 {rest}"), Some(process)),
            (format!("42 (a) R 1 ) (b) S 7 {rest}"), Some(process)),
            ("42 (sh) S 7".to_owned(), None),
            ("42 (sh".to_owned(), None),
        ] {
            assert_eq!(parse_stat(42, &stat), expected, "{stat}");
        }
    }

    #[test]
    fn children_come_before_grandchildren() {
        let process = |pid, parent| ProcessSample { pid, parent, threads: 1, resident: 0 };
        let all = [process(9, 4), process(4, 2), process(2, 1), process(1, 0), process(5, 2), process(7, 1)];
        let found: Vec<_> = descendants(&all, 2).iter().map(|process| process.pid).collect();
        assert_eq!(found, [4, 5, 9]);
    }

    #[test]
    fn this_process_has_threads_and_memory() {
        let me = std::process::id();
        let all = processes(Path::new("/proc"));
        let own: Vec<_> = all.into_iter().filter(|process| process.pid == me).collect();
        assert!(own[0].threads >= 1 && own[0].resident > 0);
        assert!(proportional_memory(Path::new("/proc"), &own) > 0);
        assert!(count_threads(rustix::process::getuid().as_raw()) >= 1);
    }

    #[test]
    fn the_start_time_is_parsed_whatever_the_name_is() {
        let rest = "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711 20";
        for (stat, expected) in [
            (format!("42 (sh) S {rest}"), Some(4711)),
            (format!("42 (a) Z 9 (b) R {rest}"), Some(4711)),
            (format!("42 (sh) Z {rest}"), None),
            ("42 (sh".to_owned(), None),
            (String::new(), None),
        ] {
            assert_eq!(parse_start(&stat), expected, "{stat}");
        }
    }

    #[test]
    fn a_process_is_recognized_by_its_start() {
        let me = i32::try_from(std::process::id()).unwrap();
        let start = process_start_identity(me).unwrap();
        assert!(is_same_process(me, &start) && !is_same_process(me, "x/1") && !is_same_process(i32::MAX, &start));
    }
}
