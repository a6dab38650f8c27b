//! Folders that a command finds empty: Landlock cannot take back a part of what it allows, a mount can cover it.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::OnceLock;

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::unistd::{getgid, getuid};

/// The first argument that makes the program try [`hide`] on the folder of the second.
pub const HIDE_WORD: &str = "__hide";

/// Covers `folders` with empty ones for this process and all that it starts, and for nobody else. The process must have one
/// thread. As root, or in a user namespace of its own (user_namespaces(7)).
///
/// # Errors
/// The machine allows neither, or a folder is not there.
pub(super) fn hide(folders: &[PathBuf]) -> io::Result<()> {
    if unshare(CloneFlags::CLONE_NEWNS).is_err() {
        let (user, group) = (getuid(), getgid());
        unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNS)?;
        // A group may be mapped only by one who cannot set groups any more.
        std::fs::write("/proc/self/setgroups", "deny")?;
        std::fs::write("/proc/self/uid_map", format!("{user} {user} 1"))?;
        std::fs::write("/proc/self/gid_map", format!("{group} {group} 1"))?;
    }
    // What is mounted from here on stays here.
    mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&str>)?;
    for folder in folders {
        let flags = MsFlags::MS_RDONLY | MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
        mount(Some("none"), folder, Some("tmpfs"), flags, Some("size=4k,mode=555"))?;
    }
    Ok(())
}

/// Whether this machine can hide folders: tried once, by a process of its own. `exe` is this program.
pub fn can_hide(exe: &Path) -> bool {
    static CAN: OnceLock<bool> = OnceLock::new();
    *CAN.get_or_init(|| {
        let tried = Command::new(exe)
            .args([HIDE_WORD.as_ref(), std::env::temp_dir().as_os_str()])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        tried.is_ok_and(|status| status.success())
    })
}

/// The whole life of a process that only tries.
pub fn hide_main(folder: &Path) -> ExitCode {
    if hide(&[folder.to_owned()]).is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
