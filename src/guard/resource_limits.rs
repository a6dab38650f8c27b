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
/// The free inodes that a command leaves on a file system, unless a hundredth of its inodes is less. A command can create this many
/// files between two samples.
const RESERVED_INODES: u64 = 50_000;
/// The bytes that a file or folder counts at least. An empty file uses no block, but an inode and a part of its folder.
const BYTES_PER_FILE: u64 = 4_096;
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
    /// Where the processes are found. The supervisor sets it once the command has started.
    pub tree: ProcessTree,
    limits: CommandLimits,
    /// The folders that the command can write.
    folders: Vec<PathBuf>,
    /// The usage of the file system of each folder. The command's disk use is counted from this value.
    before: Vec<FileSystemUsage>,
    started: SystemTime,
    samples: u32,
    memory_files: u64,
}

impl ResourceMonitor {
    /// Creates a monitor of a command that can write `folders`. Its processes are those below this one.
    ///
    /// # Errors
    /// The disk has no room for any command.
    pub(super) fn new(limits: CommandLimits, folders: Vec<PathBuf>) -> Result<Self, String> {
        let before: Vec<_> = folders.iter().map(|folder| FileSystemUsage::of(folder)).collect();
        let least = before.iter().map(|usage| usage.free_bytes).min().unwrap_or(u64::MAX);
        if limits.reserve > 0 && least < limits.reserve {
            return Err(format!(
                "only {least} bytes are free on disk; {} are kept in reserve (store.reserve)",
                limits.reserve
            ));
        }
        // The clock of file times may lag by a tick.
        let started = SystemTime::now().checked_sub(Duration::from_secs(1)).unwrap_or(SystemTime::UNIX_EPOCH);
        let tree = ProcessTree::Below(std::process::id());
        Ok(Self { tree, limits, folders, before, started, samples: 0, memory_files: 0 })
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
        self.before = self.check_disk(proc, &processes)?;
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

    /// Checks the disk limits. Returns the usage from which the next sample counts.
    fn check_disk(&self, proc: &Path, processes: &[ProcessSample]) -> Result<Vec<FileSystemUsage>, LimitExceeded> {
        let mut counted_from = Vec::with_capacity(self.before.len());
        for (folder, before) in self.folders.iter().zip(&self.before) {
            let now = FileSystemUsage::of(folder);
            self.check_reserve(before, &now)?;
            if now.growth_since(before) <= self.limits.disk {
                counted_from.push(now.least_of(before));
                continue;
            }
            // Other programs write to that disk as well, so the changed files decide.
            let written: u64 = self.folders.iter().map(|folder| changed_since(folder, self.started)).sum();
            if written.saturating_add(procfs::unnamed_files(proc, processes).disk) > self.limits.disk {
                return Err(LimitExceeded::Disk(self.limits.disk));
            }
            counted_from.push(now);
        }
        Ok(counted_from)
    }

    /// Checks that a file system on which the command writes keeps the store's reserve, and inodes for the files of the store.
    fn check_reserve(&self, before: &FileSystemUsage, now: &FileSystemUsage) -> Result<(), LimitExceeded> {
        let reserve = self.limits.reserve;
        if reserve == 0 {
            return Ok(());
        }
        let kept_bytes = reserve + RESERVE_MARGIN.min(before.free_bytes / 2);
        if now.free_bytes < kept_bytes && now.free_bytes < before.free_bytes {
            return Err(LimitExceeded::Reserve(reserve));
        }
        let kept_inodes = RESERVED_INODES.min(now.inodes / 100);
        if now.free_inodes < kept_inodes && now.free_inodes < before.free_inodes {
            return Err(LimitExceeded::Inodes(kept_inodes));
        }
        Ok(())
    }
}

/// The usage of a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileSystemUsage {
    /// The free bytes for this user.
    free_bytes: u64,
    /// All inodes, used or free. 0 if the file system has no limit.
    inodes: u64,
    used_inodes: u64,
    /// The free inodes for this user.
    free_inodes: u64,
}

impl FileSystemUsage {
    /// Returns the usage of the file system of a folder. A file system that cannot be queried counts as having enough.
    fn of(folder: &Path) -> Self {
        match rustix::fs::statvfs(folder) {
            Ok(stat) => Self {
                free_bytes: stat.f_bavail.saturating_mul(stat.f_frsize),
                inodes: stat.f_files,
                used_inodes: stat.f_files.saturating_sub(stat.f_ffree),
                free_inodes: stat.f_favail,
            },
            Err(_) => Self { free_bytes: u64::MAX, inodes: 0, used_inodes: 0, free_inodes: u64::MAX },
        }
    }

    /// Returns the bytes that were added since `before` at most, whoever added them. New files are counted even if they are empty.
    fn growth_since(&self, before: &Self) -> u64 {
        let files = self.used_inodes.saturating_sub(before.used_inodes);
        before.free_bytes.saturating_sub(self.free_bytes).saturating_add(files.saturating_mul(BYTES_PER_FILE))
    }

    /// Returns the lower usage of both: space that other programs free does not add to the command's limit.
    fn least_of(&self, before: &Self) -> Self {
        Self {
            free_bytes: self.free_bytes.max(before.free_bytes),
            inodes: self.inodes,
            used_inodes: self.used_inodes.min(before.used_inodes),
            free_inodes: self.free_inodes.max(before.free_inodes),
        }
    }
}

/// Returns the disk space of the files and folders below `folder` that changed after `since`, in bytes, each at least
/// [`BYTES_PER_FILE`]. A folder that cannot be read, such as a folder that is nested too deeply, counts as full.
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
            }
            if metadata.ctime() >= since {
                found = found.saturating_add((metadata.blocks() * 512).max(BYTES_PER_FILE));
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
        monitor.before[0].free_bytes = u64::MAX;
        assert_eq!(monitor.sample().err(), Some(LimitExceeded::Reserve(limits.reserve)));
    }

    #[test]
    fn empty_files_and_folders_count_for_the_disk() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("folder")).unwrap();
        for name in ["a", "b", "folder/c"] {
            fs::write(folder.path().join(name), "").unwrap();
        }
        assert!(changed_since(folder.path(), SystemTime::UNIX_EPOCH) >= 4 * BYTES_PER_FILE);
        let before = FileSystemUsage { free_bytes: 10_000, inodes: 100, used_inodes: 50, free_inodes: 50 };
        for (free_bytes, used_inodes, growth) in
            [(10_000, 50, 0), (9_000, 50, 1_000), (10_000, 53, 12_288), (9_000, 51, 5_096), (20_000, 40, 0)]
        {
            let now = FileSystemUsage { free_bytes, used_inodes, ..before };
            assert_eq!(now.growth_since(&before), growth, "{now:?}");
        }
        let others_freed = FileSystemUsage { free_bytes: 20_000, used_inodes: 40, free_inodes: 60, ..before };
        assert_eq!(others_freed.least_of(&before), others_freed);
        assert_eq!(before.least_of(&others_freed), others_freed);
    }

    #[test]
    fn a_command_that_uses_up_the_inodes_is_ended() {
        let folder = tempfile::tempdir().unwrap();
        let limits = CommandLimits { reserve: 1, ..CommandLimits::default() };
        let watching = monitor(limits, folder.path());
        let usage = |inodes, free_inodes| FileSystemUsage { free_bytes: u64::MAX, inodes, used_inodes: 0, free_inodes };
        for (inodes, before, now, expected) in [
            (1_000_000, 500_000, 10_000, None),
            (1_000_000, 500_000, 9_999, Some(10_000)),
            (100_000_000, 90_000_000, 50_000, None),
            (100_000_000, 90_000_000, 49_999, Some(50_000)),
            // It was so before the command.
            (1_000_000, 9_999, 9_999, None),
            // The file system has no limit.
            (0, 0, 0, None),
        ] {
            let (before, now) = (usage(inodes, before), usage(inodes, now));
            let found = watching.check_reserve(&before, &now).err();
            assert_eq!(found, expected.map(LimitExceeded::Inodes), "{now:?}");
            let without = monitor(CommandLimits { reserve: 0, ..limits }, folder.path());
            assert_eq!(without.check_reserve(&before, &now), Ok(()), "{now:?}");
        }
    }
}
