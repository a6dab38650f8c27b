//! What a command may do: Landlock for files and TCP, seccomp for sockets. Both bind the calling thread and all that it
//! starts, for ever: never the daemon, only the thread of the supervisor that starts the shell.
//!
//! Not covered: changing modes and times of files that are the user's own, and looking at which paths exist. Landlock
//! speaks of neither.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::OnceLock;

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, LandlockStatus, Ruleset, RulesetAttr, RulesetCreatedAttr,
    RulesetStatus, Scope, path_beneath_rules,
};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};
use serde::{Deserialize, Serialize};

/// The newest Landlock this program knows; an older kernel enforces what it has.
const NEWEST: ABI = ABI::V9;

/// Devices that every program expects.
const DEVICES: [&str; 5] = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"];

/// x86-64's second calling convention gives the same system calls other numbers.
#[cfg(target_arch = "x86_64")]
const X32: i64 = 0x4000_0000;

/// What the sandbox lets through.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Policy {
    /// Folders and files that may be read and executed.
    pub read: Vec<PathBuf>,
    /// Folders that may also be written.
    pub write: Vec<PathBuf>,
    /// Internet sockets are allowed. Unix sockets never are: the control sockets of daoyou, Docker and others would be
    /// ways out.
    pub network: bool,
}

/// What this machine's kernel can enforce, for `doctor` and the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SandboxStatus {
    /// Landlock's ABI; 0 where the kernel has none, or has it switched off.
    pub landlock: u32,
    /// Sockets are filtered by seccomp, UDP and Unix sockets too.
    pub sockets: bool,
}

impl SandboxStatus {
    /// Commands can be held; without it they are refused unless `sandbox = false`.
    pub fn is_enough(&self) -> bool {
        self.landlock > 0 && self.sockets
    }

    /// What an older kernel leaves open, in words.
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
        if !self.sockets {
            gaps.push("no seccomp: commands can open sockets");
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
        write!(f, ", socket filter: {}", if self.sockets { "yes" } else { "none" })
    }
}

/// Asks the kernel once, on a thread of its own that ends with the question, so that nothing else is restricted.
pub fn status() -> &'static SandboxStatus {
    static STATUS: OnceLock<SandboxStatus> = OnceLock::new();
    STATUS.get_or_init(|| {
        let probe = || {
            let policy = Policy { read: Vec::new(), write: Vec::new(), network: false };
            SandboxStatus { landlock: landlock(&policy).unwrap_or(0), sockets: filter_sockets(&policy).is_ok() }
        };
        // A panic of the probe counts as "none": closed by default.
        std::thread::spawn(probe).join().unwrap_or(SandboxStatus { landlock: 0, sockets: false })
    })
}

/// Holds the calling thread, and all that it starts from now on, to `policy`.
///
/// # Errors
/// In words for the user, when the kernel cannot hold it. The thread must then start nothing.
pub(super) fn restrict(policy: &Policy) -> Result<(), String> {
    if landlock(policy)? == 0 {
        return Err("this kernel has no Landlock, so commands cannot be kept inside the workspace. \
                    `[tools.exec] sandbox = false` runs them without protection"
            .to_owned());
    }
    filter_sockets(policy)
}

/// Tries on a thread of its own what a command under `policy` could do: whether it can open an internet socket, and
/// whether it can open a Unix socket.
///
/// # Errors
/// In words, when the kernel cannot hold the policy.
pub fn try_sockets(policy: &Policy) -> Result<(bool, bool), String> {
    let policy = policy.clone();
    let tried = std::thread::spawn(move || {
        restrict(&policy)?;
        Ok((std::net::UdpSocket::bind("127.0.0.1:0").is_ok(), std::os::unix::net::UnixDatagram::unbound().is_ok()))
    });
    tried.join().unwrap_or_else(|_| Err("the trial broke off".to_owned()))
}

/// Returns the ABI that is enforced, 0 for none.
fn landlock(policy: &Policy) -> Result<u32, String> {
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

/// Without network no socket at all; with it internet sockets. Landlock knows TCP alone, so this is what stops UDP, raw
/// and Unix sockets. `io_uring` would open sockets past the filter. A pair of datagram sockets could be connected anew to
/// somebody else's.
fn filter_sockets(policy: &Policy) -> Result<(), String> {
    let program = socket_filter(policy).map_err(|error| format!("the socket filter failed: {error}"))?;
    seccompiler::apply_filter(&program).map_err(|error| format!("seccomp failed: {error}"))
}

fn socket_filter(policy: &Policy) -> Result<BpfProgram, seccompiler::BackendError> {
    let word = |argument, operator, value: i32| {
        SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, u64::from(value.unsigned_abs()))
    };
    let socket = if policy.network {
        // Netlink is how the resolver asks which addresses this machine has.
        let families = [libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK];
        let others = families.map(|family| word(0, SeccompCmpOp::Ne, family)).into_iter().collect::<Result<_, _>>()?;
        vec![SeccompRule::new(others)?]
    } else {
        Vec::new()
    };
    let datagrams = vec![SeccompRule::new(vec![word(1, SeccompCmpOp::MaskedEq(0xf), libc::SOCK_DGRAM)?])?];
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
    for (call, rule) in
        [(libc::SYS_socket, socket), (libc::SYS_socketpair, datagrams), (libc::SYS_io_uring_setup, Vec::new())]
    {
        #[cfg(target_arch = "x86_64")]
        rules.insert(call | X32, rule.clone());
        rules.insert(call, rule);
    }
    let refuse = SeccompAction::Errno(libc::EACCES.unsigned_abs());
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refuse, std::env::consts::ARCH.try_into()?)?;
    filter.try_into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_are_named_by_what_the_kernel_lacks() {
        for (landlock, sockets, enough, gaps) in
            [(7, true, true, 0), (1, true, true, 2), (4, false, false, 2), (0, true, false, 1)]
        {
            let status = SandboxStatus { landlock, sockets };
            assert_eq!((status.is_enough(), status.gaps().len()), (enough, gaps), "{status}");
        }
    }

    #[test]
    fn a_trial_shows_what_the_policy_holds() {
        if !status().is_enough() {
            return;
        }
        for (network, expected) in [(false, (false, false)), (true, (true, false))] {
            let policy = Policy { read: vec!["/".into()], write: Vec::new(), network };
            assert_eq!(try_sockets(&policy), Ok(expected));
        }
    }

    #[test]
    fn asking_restricts_nobody() {
        let first = status();
        assert_eq!(first, status());
        std::fs::read_dir("/").unwrap();
        std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    }
}
