//! The control group of a command, available if systemd delegated one to the gateway (`Delegate=`, `DelegateSubgroup=`). The
//! kernel then limits the memory and the tasks of all processes of the command together.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::Pid;

use super::protocol::{CommandLimits, LimitExceeded};
use super::resource_limits::THREADS_PER_PROCESS;

/// The mount point of control groups of version 2.
const ROOT: &str = "/sys/fs/cgroup";
/// The type of the cgroup2 file system (statfs(2)).
const CGROUP2_MAGIC: i64 = 0x6367_7270;
/// The extended attribute with which systemd marks a delegated group.
const DELEGATED: &str = "user.delegate";

/// How often the gateway tries to remove a group whose last processes are still dying, and the pause between attempts.
const REMOVE_ROUNDS: u32 = 50;
const REMOVE_PAUSE: Duration = Duration::from_millis(10);

/// The control group of one command. Dropping it kills the processes in it.
#[derive(Debug)]
pub(super) struct Cgroup {
    folder: PathBuf,
    limits: CommandLimits,
}

impl Cgroup {
    /// Creates a group if systemd has delegated one. With `None`, only the resource monitor limits the command.
    pub(super) fn create(limits: CommandLimits) -> Option<Self> {
        let own = fs::read_to_string("/proc/self/cgroup").ok()?;
        let own = Path::new(ROOT).join(parse_own_group(&own)?);
        // A group with processes cannot have child groups with controllers, so the gateway's own group is a child of
        // the delegated one.
        let base = own.parent().filter(|base| is_delegated(base))?;
        Self::create_in(base, limits).ok()
    }

    fn create_in(base: &Path, limits: CommandLimits) -> io::Result<Self> {
        fs::write(base.join("cgroup.subtree_control"), "+memory +pids")?;
        let folder = base.join(format!("exec-{}", std::process::id()));
        fs::create_dir(&folder)?;
        let group = Self { folder, limits };
        group.set_limit("memory.max", limits.memory)?;
        // Swap counts as memory; a kernel without swap has no such file.
        drop(group.set_limit("memory.swap.max", 0));
        group.set_limit("memory.oom.group", 1)?;
        group.set_limit("pids.max", u64::from(limits.processes) * THREADS_PER_PROCESS)?;
        Ok(group)
    }

    fn set_limit(&self, file: &str, value: u64) -> io::Result<()> {
        fs::write(self.folder.join(file), value.to_string())
    }

    /// Moves a process into the group. Processes that it starts afterwards inherit the group.
    ///
    /// # Errors
    /// The kernel refuses the move.
    pub(super) fn add_process(&self, pid: Pid) -> io::Result<()> {
        fs::write(self.folder.join("cgroup.procs"), pid.as_raw_nonzero().to_string())
    }

    /// Returns the limit for which the kernel killed the command.
    pub(super) fn exceeded(&self) -> Option<LimitExceeded> {
        let events = fs::read_to_string(self.folder.join("memory.events")).ok()?;
        let kills = events.lines().find_map(|line| line.strip_prefix("oom_kill "))?;
        (kills.trim() != "0").then_some(LimitExceeded::Memory(self.limits.memory))
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // The supervisor kills the process tree in any case. A group that is still in use is removed together with the gateway's
        // own group.
        drop(fs::write(self.folder.join("cgroup.kill"), "1"));
        for _ in 0..REMOVE_ROUNDS {
            match fs::remove_dir(&self.folder) {
                Err(error) if error.kind() == io::ErrorKind::ResourceBusy => std::thread::sleep(REMOVE_PAUSE),
                _ => return,
            }
        }
    }
}

/// Returns the path of the version 2 group from `/proc/PID/cgroup`, relative to the root group.
fn parse_own_group(text: &str) -> Option<&str> {
    text.lines().find_map(|line| line.strip_prefix("0::/")).filter(|path| !path.is_empty())
}

fn is_delegated(group: &Path) -> bool {
    let mut value = [0; 4];
    let is_cgroup2 = rustix::fs::statfs(group).is_ok_and(|stat| stat.f_type == CGROUP2_MAGIC);
    is_cgroup2 && rustix::fs::getxattr(group, DELEGATED, &mut value).is_ok_and(|length| value[..length] == *b"1")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_group_of_this_process_is_parsed() {
        for (text, expected) in [
            ("0::/user.slice/a.service/gateway\n", Some("user.slice/a.service/gateway")),
            ("4:memory:/x\n0::/y\n", Some("y")),
            ("4:memory:/x\n0::/\n", None),
            ("", None),
        ] {
            assert_eq!(parse_own_group(text), expected, "{text}");
        }
    }

    /// Uses plain files in place of the kernel's.
    #[test]
    fn a_group_gets_its_limits_and_its_process() {
        let base = tempfile::tempdir().unwrap();
        assert!(!is_delegated(base.path()));
        let limits = CommandLimits { processes: 10, memory: 5_000, ..CommandLimits::default() };
        let group = Cgroup::create_in(base.path(), limits).unwrap();
        group.add_process(rustix::process::getpid()).unwrap();
        let read = |name: &str| fs::read_to_string(group.folder.join(name)).unwrap();
        assert_eq!(fs::read_to_string(base.path().join("cgroup.subtree_control")).unwrap(), "+memory +pids");
        assert_eq!(
            (read("memory.max"), read("pids.max"), read("memory.swap.max")),
            ("5000".into(), "80".into(), "0".into())
        );
        assert_eq!(read("cgroup.procs"), std::process::id().to_string());
        for (events, expected) in [("oom 1\noom_kill 0\n", None), ("oom_kill 3\n", Some(LimitExceeded::Memory(5_000)))]
        {
            fs::write(group.folder.join("memory.events"), events).unwrap();
            assert_eq!(group.exceeded(), expected);
        }
        assert!(Cgroup::create_in(&base.path().join("none"), limits).is_err());
    }
}
