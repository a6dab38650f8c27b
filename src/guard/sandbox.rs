//! The sandbox of a command: Landlock for files and TCP, seccomp for system calls. Both permanently restrict the calling thread
//! and all processes that it starts. They are therefore applied only to the process that becomes the shell, never to the daemon.
//!
//! Landlock does not hide which paths exist; only a separate file system does.

use std::fmt;
use std::path::PathBuf;
use std::sync::OnceLock;

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, LandlockStatus, Ruleset, RulesetAttr, RulesetCreatedAttr,
    RulesetStatus, Scope, path_beneath_rules,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::bubblewrap;
use super::protocol::SandboxPolicy;
use super::syscalls::{SyscallPolicy, restrict_syscalls};

/// The newest Landlock ABI that this program knows; an older kernel enforces what it supports.
const NEWEST: ABI = ABI::V9;

/// The devices that every program expects.
const DEVICES: [&str; 5] = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"];

/// `tools.exec.sandbox`: the sandbox that commands need.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SandboxMode {
    /// Namespaces if the machine supports them; otherwise Landlock, for the owner's turns alone.
    #[default]
    Auto,
    /// Namespaces, or no command.
    Require,
    /// No protection, for the owner's turns alone.
    Off,
}

/// The sandbox around a process that confines itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum ConfinementKind {
    /// Namespaces with their own `/proc`.
    Namespaces,
    /// Namespaces with the machine's `/proc`. Only Landlock keeps the command from reading the memory and environment of the
    /// user's other processes.
    SharedProc,
    /// Only Landlock and seccomp.
    Landlock,
}

/// The sandbox that commands run in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, strum::Display)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "snake_case")]
pub enum Sandbox {
    /// Namespaces by bubblewrap, with Landlock and seccomp inside them.
    Namespaces,
    /// Only Landlock and seccomp.
    Landlock,
    /// None, by configuration.
    Off,
}

/// The restrictions that this machine's kernel supports, for `doctor` and the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SandboxStatus {
    /// The Landlock ABI; 0 if the kernel lacks Landlock or has it disabled.
    pub landlock: u32,
    /// seccomp can filter system calls.
    pub seccomp: bool,
}

impl SandboxStatus {
    /// Returns true if commands can be sandboxed without namespaces. If neither is possible, commands are refused
    /// unless `sandbox = "off"`.
    pub fn is_enough(&self) -> bool {
        self.landlock > 0 && self.seccomp
    }

    /// Describes the protections that the kernel is too old for.
    pub fn gaps(&self) -> Vec<&'static str> {
        let mut gaps = Vec::new();
        if self.landlock == 0 {
            return vec!["no Landlock: files are not protected from commands (Linux 5.13 or later, lsm=landlock)"];
        }
        if self.landlock < 3 {
            gaps.push("commands can empty files outside the workspace (needs Linux 6.2)");
        }
        if self.landlock < 6 {
            gaps.push("commands can send signals to the user's other processes (needs Linux 6.12)");
        }
        if !self.seccomp {
            gaps.push("no seccomp: commands can make every system call");
        }
        gaps
    }
}

impl fmt::Display for SandboxStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.landlock {
            0 => f.write_str("Landlock: none")?,
            abi => write!(f, "Landlock: ABI {abi}")?,
        }
        write!(f, ", system call filter: {}", if self.seccomp { "yes" } else { "none" })
    }
}

/// Queries the kernel once. The query runs on a thread that ends afterwards, so that no other thread is restricted.
pub fn status() -> &'static SandboxStatus {
    static STATUS: OnceLock<SandboxStatus> = OnceLock::new();
    STATUS.get_or_init(|| {
        let probe = || SandboxStatus {
            landlock: restrict_landlock(&SandboxPolicy::default()).unwrap_or(0),
            seccomp: restrict_syscalls(SyscallPolicy { network: false, seals_attributes: true }).is_ok(),
        };
        // A panic of the probe counts as no support.
        std::thread::spawn(probe).join().unwrap_or(SandboxStatus { landlock: 0, seccomp: false })
    })
}

/// Restricts the calling thread, and all processes that it starts from now on, to `policy`. In namespaces the thread already has
/// its own file system; the kernel may then lack Landlock, and changes of file modes affect nothing outside.
///
/// # Errors
/// The kernel cannot enforce the policy. The thread must then start nothing.
pub(super) fn restrict_thread(policy: &SandboxPolicy, kind: ConfinementKind) -> Result<(), String> {
    let mut policy = policy.clone();
    if kind != ConfinementKind::Landlock {
        policy.read.push("/proc".into());
        policy.write.extend([bubblewrap::TEMP, bubblewrap::SHARED].map(PathBuf::from));
    }
    if restrict_landlock(&policy)? == 0 && kind != ConfinementKind::Namespaces {
        return Err(
            "this kernel has no Landlock, so commands cannot be kept inside the workspace. Install bubblewrap; \
                    `[tools.exec] sandbox = \"off\"` runs them without protection"
                .to_owned(),
        );
    }
    restrict_syscalls(SyscallPolicy { network: policy.network, seals_attributes: kind == ConfinementKind::Landlock })
}

/// Gives up the calling thread's access to files, sockets and further system calls, as far as the kernel can enforce it.
/// Afterwards the thread can only compute with what it has open.
pub fn give_up_access() {
    // This is a second line of defence, so a kernel without it is acceptable.
    drop(restrict_landlock(&SandboxPolicy::default()));
    drop(restrict_syscalls(SyscallPolicy { network: false, seals_attributes: true }));
}

/// The kinds of sockets that a command can open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketAccess {
    pub internet: bool,
    pub unix: bool,
}

/// Tries, on a separate thread, which sockets a command under `policy` could open.
///
/// # Errors
/// The kernel cannot enforce the policy.
pub fn try_sockets(policy: &SandboxPolicy) -> Result<SocketAccess, String> {
    let policy = policy.clone();
    let tried = std::thread::spawn(move || {
        restrict_thread(&policy, ConfinementKind::Landlock)?;
        let internet = std::net::UdpSocket::bind("127.0.0.1:0").is_ok();
        Ok(SocketAccess { internet, unix: std::os::unix::net::UnixDatagram::unbound().is_ok() })
    });
    tried.join().unwrap_or_else(|_| Err("the trial broke off".to_owned()))
}

/// Restricts the calling thread with Landlock. Returns the enforced ABI, or 0 if none is enforced.
fn restrict_landlock(policy: &SandboxPolicy) -> Result<u32, String> {
    let write = AccessFs::from_all(NEWEST)
        & !(AccessFs::MakeChar | AccessFs::MakeBlock | AccessFs::IoctlDev | AccessFs::ResolveUnix);
    let device: BitFlags<AccessFs> = AccessFs::ReadFile | AccessFs::WriteFile;
    let enforce = || {
        let mut ruleset =
            Ruleset::default().handle_access(AccessFs::from_all(NEWEST))?.scope(Scope::from_all(NEWEST))?;
        if !policy.network {
            ruleset = ruleset.handle_access(AccessNet::from_all(NEWEST))?;
        }
        ruleset
            .create()?
            .add_rules(path_beneath_rules(&policy.read, AccessFs::from_read(NEWEST)))?
            .add_rules(path_beneath_rules(&policy.write, write))?
            .add_rules(path_beneath_rules(DEVICES, device))?
            .restrict_self()
    };
    let enforced = enforce().map_err(|error: landlock::RulesetError| format!("Landlock failed: {error}"))?;
    Ok(match (enforced.ruleset, enforced.landlock) {
        (RulesetStatus::NotEnforced, _) => 0,
        (_, LandlockStatus::Available { effective_abi, .. }) => effective_abi as u32,
        _ => 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_are_named_by_what_the_kernel_lacks() {
        for (landlock, seccomp, enough, gaps) in
            [(7, true, true, 0), (1, true, true, 2), (4, false, false, 2), (0, true, false, 1)]
        {
            let status = SandboxStatus { landlock, seccomp };
            assert_eq!((status.is_enough(), status.gaps().len()), (enough, gaps), "{status}");
        }
    }

    #[test]
    fn the_policy_decides_which_sockets_open() {
        if !status().is_enough() {
            return;
        }
        for network in [false, true] {
            let policy = SandboxPolicy { read: vec!["/".into()], network, ..SandboxPolicy::default() };
            assert_eq!(try_sockets(&policy), Ok(SocketAccess { internet: network, unix: false }));
        }
    }

    #[test]
    fn querying_the_status_restricts_nothing() {
        let first = status();
        assert_eq!(first, status());
        std::fs::read_dir("/").unwrap();
        std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    }
}
