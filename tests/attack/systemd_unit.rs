//! Commands of a gateway that runs under the restrictions of the systemd unit.

use crate::support::gateway::binary;
use crate::support::requirements::{NOBODY, executable_by_all, has_namespaces, is_root, skip_story};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};

use super::sandbox::Harness;

/// The restrictions of the system service's unit.
struct Unit(String);

impl Unit {
    fn read() -> Self {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("systemd/daoyou.service");
        Self(fs::read_to_string(path).unwrap())
    }

    fn values(&self, key: &str) -> Vec<&str> {
        self.0.lines().filter_map(|line| line.strip_prefix(key)?.strip_prefix('=')).collect()
    }

    /// Returns the arguments of a bubblewrap that mounts what the unit mounts.
    fn mounts(&self) -> Vec<&'static str> {
        let mut mounts = Vec::new();
        for (setting, arguments) in [
            (
                "ProtectSystem=strict",
                &["--ro-bind", "/", "/", "--bind", "/proc", "/proc", "--bind", "/tmp", "/tmp"][..],
            ),
            ("PrivateDevices=yes", &["--dev", "/dev"]),
            ("ProtectKernelTunables=yes", &["--ro-bind", "/proc/sys", "/proc/sys"]),
            ("ProtectKernelLogs=yes", &["--ro-bind", "/dev/null", "/proc/kmsg"]),
        ] {
            if self.0.lines().any(|line| line == setting) {
                mounts.extend(arguments);
            }
        }
        mounts
    }

    /// Returns the names of the allowed system calls; `systemd-analyze` expands groups.
    fn calls(&self) -> BTreeSet<String> {
        let mut allowed = BTreeSet::new();
        for line in self.values("SystemCallFilter") {
            let (removes, names) = line.strip_prefix('~').map_or((false, line), |names| (true, names));
            let mut names: Vec<String> = names.split_whitespace().map(str::to_owned).collect();
            while let Some(name) = names.pop() {
                if name.starts_with('@') {
                    let ran = std::process::Command::new("systemd-analyze").args(["syscall-filter", &name]).output();
                    let text = String::from_utf8(ran.unwrap().stdout).unwrap();
                    let members = text.lines().skip(1).map(str::trim);
                    names.extend(members.filter(|line| !line.is_empty() && !line.starts_with('#')).map(str::to_owned));
                } else if removes {
                    allowed.remove(&name);
                } else {
                    allowed.insert(name);
                }
            }
        }
        allowed
    }

    /// Restricts this process, all its threads, to the unit's system calls and namespaces.
    fn apply(&self) {
        let header = fs::read_to_string(UNISTD).unwrap();
        let numbers: BTreeMap<&str, i64> = header
            .lines()
            .filter_map(|line| line.strip_prefix("#define __NR_")?.split_once(' '))
            .filter_map(|(name, number)| Some((name, number.trim().parse().ok()?)))
            .collect();
        let calls = self.calls();
        let allowed =
            numbers.iter().filter(|(name, _)| calls.contains(**name)).map(|(_, number)| (*number, Vec::new()));
        let allowed: BTreeMap<_, _> = allowed.collect();
        assert!(allowed.len() > 200 && !allowed.contains_key(&numbers["chroot"]), "{}", allowed.len());
        let kinds = [("cgroup", libc::CLONE_NEWCGROUP), ("ipc", libc::CLONE_NEWIPC), ("net", libc::CLONE_NEWNET)];
        let kinds = kinds.into_iter().chain([("mnt", libc::CLONE_NEWNS), ("pid", libc::CLONE_NEWPID)]);
        let kinds = kinds.chain([("user", libc::CLONE_NEWUSER), ("uts", libc::CLONE_NEWUTS)]);
        let permitted: Vec<&str> = self.values("RestrictNamespaces").join(" ").leak().split(' ').collect();
        let refused =
            kinds.filter(|(kind, _)| !permitted.contains(kind)).map(|(_, flag)| u64::from(flag.unsigned_abs()));
        let with = |flag| {
            let operator = SeccompCmpOp::MaskedEq(flag);
            SeccompRule::new(vec![SeccompCondition::new(0, SeccompCmpArgLen::Dword, operator, flag).unwrap()]).unwrap()
        };
        let rules: Vec<_> = refused.map(with).collect();
        assert!(!rules.is_empty(), "cgroup namespaces are not needed");
        let rules = [numbers["clone"], numbers["unshare"]].into_iter().map(|call| (call, rules.clone())).collect();
        let missing = [(numbers["clone3"], Vec::new())].into();
        let errno = |errno: i32| SeccompAction::Errno(errno.unsigned_abs());
        for (rules, otherwise, then) in [
            (allowed, errno(libc::EPERM), SeccompAction::Allow),
            (rules, SeccompAction::Allow, errno(libc::EPERM)),
            (missing, SeccompAction::Allow, errno(libc::ENOSYS)),
        ] {
            let arch = std::env::consts::ARCH.try_into().unwrap();
            let program: BpfProgram = SeccompFilter::new(rules, otherwise, then, arch).unwrap().try_into().unwrap();
            seccompiler::apply_filter_all_threads(&program).unwrap();
        }
    }
}

/// The numbers of system calls, from the headers of the C library.
const UNISTD: &str = "/usr/include/x86_64-linux-gnu/asm/unistd_64.h";

/// Namespaces are in force under the restrictions of the system service's unit. No systemd runs in tests, so a
/// separate process has the same mounts, by a bubblewrap around it, and the same system call filter.
#[test]
fn namespaces_work_under_the_systemd_unit() {
    const ROLE: &str = "DAOYOU_TEST_UNIT";
    if std::env::var_os(ROLE).is_some() {
        Unit::read().apply();
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        return runtime.block_on(under_the_unit());
    }
    let has_analyze = std::process::Command::new("systemd-analyze").arg("--version").output().is_ok();
    if !has_namespaces() {
        return;
    }
    if !has_analyze || !Path::new(UNISTD).exists() {
        return skip_story("no systemd-analyze, or no headers of the C library");
    }
    let name = "attack::systemd_unit::namespaces_work_under_the_systemd_unit";
    // The service never runs as root.
    let mut program = std::process::Command::new(if is_root() { "setpriv" } else { "bwrap" });
    if is_root() {
        let nobody = NOBODY.to_string();
        program.args(["--reuid", &nobody, "--regid", &nobody, "--clear-groups", "bwrap"]);
    }
    program.args(Unit::read().mounts());
    program.arg("--").arg(executable_by_all(std::env::current_exe().unwrap())).args(["--exact", name, "--nocapture"]);
    program.env(ROLE, "1").env("DAOYOU_BIN", executable_by_all(binary()));
    let ran = program.output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    assert!(ran.status.success() && out.contains("1 passed"), "{out}\n{err}");
}

async fn under_the_unit() {
    let harness = Harness::start(|setup| setup).await;
    assert_eq!(harness.sandbox().await, "namespaces", "{}", harness.gateway.run(&["doctor"]).await.stdout);
    let result = harness
        .exec("known", "echo in > in; cat in; ls -A memory; cat ../token /proc/*/environ | wc -c; echo end")
        .await;
    assert!(result.contains("in\n") && result.contains("\nend"), "{result}");
    let pid = harness.gateway.pid();
    let result = harness
        .own(&format!("cat /proc/{pid}/environ /proc/{pid}/maps; ls /proc/{pid}/root/ /proc/{pid}/cwd/; echo end"))
        .await;
    assert!(!result.contains("DAOYOU_HOME") && !result.contains("/usr/lib") && result.ends_with("end\n"), "{result}");
    assert!(!result.contains("workspace") && !result.contains("bin\n"), "{result}");
}
