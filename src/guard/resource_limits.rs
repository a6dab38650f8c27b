//! The resource limits of a command: kernel limits for each process, and a monitor of all processes together.
//!
//! The kernel limits single processes (setrlimit(2)). Only control groups limit a tree, and few machines let a user create them.
//! The supervisor therefore samples the tree several times a second, and kills the tree when it uses too much.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use rustix::process::{Resource, Rlimit, setrlimit};

use super::procfs::{self, ProcessSample};
use super::protocol::{CommandLimits, LimitExceeded};

/// The time between two samples of the tree. Sampling may take at most a twentieth of the time.
const INTERVAL: Duration = Duration::from_millis(50);
const INTERVAL_FACTOR: u32 = 20;
const LONGEST_INTERVAL: Duration = Duration::from_secs(1);
/// How many samples lie between two scans of unnamed open files.
const UNNAMED_EVERY: u32 = 10;
/// The number of threads allowed for each allowed process.
pub(super) const THREADS_PER_PROCESS: u64 = 8;
/// The bytes that a fast disk can take in between two samples. The command is killed this far before it uses the reserve.
const RESERVE_MARGIN: u64 = 128 * 1_024 * 1_024;
/// The limit of open files of one process.
const OPEN_FILES: u64 = 65_536;

/// Limits the calling process and all processes that it starts. `threads` is the limit of the user on the whole machine.
///
/// # Errors
/// The kernel refuses a limit.
pub(super) fn restrict_resources(limits: CommandLimits, threads: u64) -> Result<(), String> {
    let rows = [
        // A core dump would be a file outside the workspace.
        (Resource::Core, 0),
        (Resource::Fsize, limits.disk),
        (Resource::Data, limits.memory),
        (Resource::Nproc, threads),
        (Resource::Nofile, OPEN_FILES),
        // Message queues use memory that is attributed to no process.
        (Resource::Msgqueue, 0),
    ];
    for (resource, most) in rows {
        let current = rustix::process::getrlimit(resource);
        let hard = current.maximum.map_or(most, |hard| hard.min(most));
        let soft = current.current.map_or(hard, |soft| soft.min(hard));
        let limit = Rlimit { current: Some(soft), maximum: Some(hard) };
        setrlimit(resource, limit).map_err(|error| format!("the limit of {resource:?}: {error}"))?;
    }
    Ok(())
}

/// Returns the thread limit for [`restrict_resources`]: the user's current threads, plus twice what the command may add. The
/// monitor therefore kills the command first, and can state the reason. The kernel counts threads by user, so a lower limit would
/// make other processes of the user fail.
pub(super) fn thread_limit(limits: CommandLimits, user: u32) -> u64 {
    procfs::count_threads(user) + u64::from(limits.processes) * THREADS_PER_PROCESS * 2
}

/// Where the processes of a command are found.
pub(super) enum ProcessTree {
    /// All processes in this proc file system, which belongs to the command's own namespace.
    Namespace(PathBuf),
    /// All descendants of this process.
    Below(u32),
}

/// The monitor of the resources of a command.
pub(super) struct ResourceMonitor {
    tree: ProcessTree,
    limits: CommandLimits,
    /// The folders that the command can write.
    folders: Vec<PathBuf>,
    /// The free bytes of the file system of each folder. The command's disk use is counted from this value.
    free: Vec<u64>,
    started: SystemTime,
    samples: u32,
    memory_files: u64,
}

impl ResourceMonitor {
    /// Creates a monitor of a command that can write `folders`.
    ///
    /// # Errors
    /// The disk has no room for any command.
    pub(super) fn new(limits: CommandLimits, folders: Vec<PathBuf>) -> Result<Self, String> {
        let free: Vec<u64> = folders.iter().map(|folder| free_of(folder)).collect();
        let least = free.iter().min().copied().unwrap_or(u64::MAX);
        if limits.reserve > 0 && least < limits.reserve {
            return Err(format!(
                "only {least} bytes are free on disk; {} are kept in reserve (store.reserve)",
                limits.reserve
            ));
        }
        // The clock of file times may lag by a tick.
        let started = SystemTime::now().checked_sub(Duration::from_secs(1)).unwrap_or(SystemTime::UNIX_EPOCH);
        let tree = ProcessTree::Below(std::process::id());
        Ok(Self { tree, limits, folders, free, started, samples: 0, memory_files: 0 })
    }

    /// Sets where the processes are found.
    pub(super) fn with_tree(self, tree: ProcessTree) -> Self {
        Self { tree, ..self }
    }

    /// Takes one sample. Returns the time until the next one, or the limit that is exceeded.
    pub(super) fn sample(&mut self) -> Result<Duration, LimitExceeded> {
        let begun = Instant::now();
        let (proc, processes) = match &self.tree {
            ProcessTree::Namespace(proc) => (proc.as_path(), procfs::processes(proc)),
            ProcessTree::Below(root) => {
                let proc = Path::new("/proc");
                (proc, procfs::descendants(&procfs::processes(proc), *root))
            }
        };
        self.check_processes(&processes)?;
        if self.samples.is_multiple_of(UNNAMED_EVERY) {
            self.memory_files = procfs::unnamed_files(proc, &processes).memory;
        }
        self.check_memory(proc, &processes)?;
        self.samples = self.samples.wrapping_add(1);
        let free = self.check_disk(proc, &processes)?;
        self.free = free;
        Ok((begun.elapsed() * INTERVAL_FACTOR).clamp(INTERVAL, LONGEST_INTERVAL))
    }

    fn check_processes(&self, processes: &[ProcessSample]) -> Result<(), LimitExceeded> {
        let most = u64::from(self.limits.processes);
        let threads: u64 = processes.iter().map(|process| u64::from(process.threads)).sum();
        if processes.len() as u64 > most || threads > most * THREADS_PER_PROCESS {
            return Err(LimitExceeded::Processes(most));
        }
        Ok(())
    }

    fn check_memory(&self, proc: &Path, processes: &[ProcessSample]) -> Result<(), LimitExceeded> {
        let most = self.limits.memory.saturating_sub(self.memory_files);
        let resident: u64 = processes.iter().map(procfs::resident_memory).sum();
        // This sum counts shared memory for each process. Counting it once is slow, so that happens only if the sum exceeds the
        // limit.
        if self.memory_files > self.limits.memory
            || (resident > most && procfs::proportional_memory(proc, processes) > most)
        {
            return Err(LimitExceeded::Memory(self.limits.memory));
        }
        Ok(())
    }

    /// Checks the disk limits. Returns the free bytes from which the next sample counts.
    fn check_disk(&self, proc: &Path, processes: &[ProcessSample]) -> Result<Vec<u64>, LimitExceeded> {
        let mut counted_from = Vec::with_capacity(self.free.len());
        for (folder, before) in self.folders.iter().zip(&self.free) {
            let free = free_of(folder);
            if self.limits.reserve > 0 && free < self.limits.reserve + RESERVE_MARGIN.min(before / 2) && free < *before
            {
                return Err(LimitExceeded::Reserve(self.limits.reserve));
            }
            if before.saturating_sub(free) <= self.limits.disk {
                // Space that other programs free does not add to the command's limit.
                counted_from.push(free.max(*before));
                continue;
            }
            // Other programs write to that disk as well, so the changed files decide.
            let written: u64 = self.folders.iter().map(|folder| changed_since(folder, self.started)).sum();
            if written.saturating_add(procfs::unnamed_files(proc, processes).disk) > self.limits.disk {
                return Err(LimitExceeded::Disk(self.limits.disk));
            }
            counted_from.push(free);
        }
        Ok(counted_from)
    }
}

/// Returns the free bytes for this user on the file system of a folder. A file system that cannot be queried counts as having
/// enough.
fn free_of(folder: &Path) -> u64 {
    rustix::fs::statvfs(folder).map_or(u64::MAX, |stat| stat.f_bavail.saturating_mul(stat.f_frsize))
}

/// Returns the disk space of the files below `folder` that changed after `since`, in bytes. A folder that cannot be read, such as
/// a folder that is nested too deeply, counts as full.
fn changed_since(folder: &Path, since: SystemTime) -> u64 {
    let since = since.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |time| time.as_secs());
    let since = i64::try_from(since).unwrap_or(i64::MAX);
    let mut found: u64 = 0;
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        let entries = match fs::read_dir(&folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(_) => return u64::MAX / 2,
        };
        for entry in entries.flatten() {
            // `DirEntry::metadata` does not follow links.
            let Ok(metadata) = entry.metadata() else { continue };
            if metadata.is_dir() {
                folders.push(entry.path());
            } else if metadata.ctime() >= since {
                found = found.saturating_add(metadata.blocks() * 512);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn monitor(limits: CommandLimits, folder: &Path) -> ResourceMonitor {
        ResourceMonitor::new(limits, vec![folder.to_owned()]).unwrap()
    }

    #[test]
    fn each_limit_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let mut sleeper = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let plenty = CommandLimits::default();
        for (limits, expected) in [
            (plenty, None),
            (CommandLimits { processes: 0, ..plenty }, Some(LimitExceeded::Processes(0))),
            (CommandLimits { memory: 1, ..plenty }, Some(LimitExceeded::Memory(1))),
        ] {
            assert_eq!(monitor(limits, folder.path()).sample().err(), expected, "{limits:?}");
        }
        sleeper.kill().unwrap();
        sleeper.wait().unwrap();
    }

    #[test]
    fn only_what_changed_counts_for_the_disk() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("deep/er");
        fs::create_dir_all(&file).unwrap();
        fs::write(file.join("f"), vec![1; 100_000]).unwrap();
        std::os::unix::fs::symlink("/usr", folder.path().join("link")).unwrap();
        let (before, after) = (SystemTime::UNIX_EPOCH, SystemTime::now() + Duration::from_secs(60));
        let written = changed_since(folder.path(), before);
        assert!((100_000..200_000).contains(&written), "{written}");
        assert_eq!(changed_since(folder.path(), after), 0);
        assert_eq!(changed_since(&folder.path().join("none"), before), 0);
    }

    #[test]
    fn a_disk_below_the_reserve_takes_no_command() {
        let folder = tempfile::tempdir().unwrap();
        let limits = CommandLimits { reserve: u64::MAX / 2, ..CommandLimits::default() };
        let refused = ResourceMonitor::new(limits, vec![folder.path().to_owned()]).err().unwrap();
        assert!(refused.contains("kept in reserve"), "{refused}");
        let mut monitor = monitor(CommandLimits::default(), folder.path());
        assert_eq!(monitor.sample().err(), None);
        monitor.limits.reserve = limits.reserve;
        monitor.free = vec![u64::MAX];
        assert_eq!(monitor.sample().err(), Some(LimitExceeded::Reserve(limits.reserve)));
    }
}
