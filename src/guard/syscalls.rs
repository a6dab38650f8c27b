//! The system calls that a command may make: an allow-list, and conditions on some of the allowed calls.
//!
//! A call that is not on the list fails with `ENOSYS`, as on a kernel without it, so that programs use their fallbacks for older
//! kernels. A call fails with `EPERM` if its arguments are refused, or if programs need a clear refusal.

use std::collections::BTreeMap;

use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule,
};

/// The optional parts of the filter.
#[derive(Clone, Copy, Debug)]
pub(super) struct SyscallPolicy {
    /// Internet sockets are allowed. Unix sockets never are: control sockets of daoyou, Docker and others would be ways
    /// out.
    pub network: bool,
    /// Refuses to change modes, owners, extended attributes and times of files. Landlock does not cover these calls and seccomp
    /// does not see paths. Without a mount namespace, the calls would therefore reach every file of the user.
    pub seals_attributes: bool,
}

/// Restricts the calling thread, and all processes that it starts from now on, to the allow-list.
///
/// # Errors
/// The kernel has no seccomp.
pub(super) fn restrict_syscalls(policy: SyscallPolicy) -> Result<(), String> {
    let failed = |error: BackendError| format!("the system call filter failed: {error}");
    // If two filters refuse a call, the errno of the newer one counts.
    for program in [allow_list().map_err(failed)?, refusals(policy).map_err(failed)?] {
        seccompiler::apply_filter(&program).map_err(|error| format!("seccomp failed: {error}"))?;
    }
    Ok(())
}

/// Compiles the filter that allows [`ALLOWED`] and [`LEGACY`]. x32, the other calling convention of x86-64, has other
/// numbers, so none of its calls pass; calls of 32-bit programs end the process.
fn allow_list() -> Result<BpfProgram, BackendError> {
    let rules = ALLOWED.iter().chain(LEGACY).map(|call| (*call, Vec::new())).collect();
    let missing = SeccompAction::Errno(libc::ENOSYS.unsigned_abs());
    SeccompFilter::new(rules, missing, SeccompAction::Allow, std::env::consts::ARCH.try_into()?)?.try_into()
}

/// Compiles the filter that refuses with `EPERM`.
fn refusals(policy: SyscallPolicy) -> Result<BpfProgram, BackendError> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        REFUSED.iter().chain(REFUSED_LEGACY).map(|call| (*call, Vec::new())).collect();
    if policy.seals_attributes {
        rules.extend(ATTRIBUTES.iter().chain(ATTRIBUTES_LEGACY).map(|call| (*call, Vec::new())));
        // A call without a path changes the times of an open file, as `touch` does after creating a file.
        rules.insert(libc::SYS_utimensat, vec![rule([long(1, SeccompCmpOp::Ne, 0)?])?]);
    }
    rules.insert(libc::SYS_socket, socket_rules(policy.network)?);
    rules.insert(libc::SYS_socketpair, socketpair_rules()?);
    rules.insert(libc::SYS_clone, clone_rules()?);
    rules.insert(libc::SYS_ioctl, ioctl_rules(policy.seals_attributes)?);
    // The argument 0, the calling thread itself, is allowed.
    for call in [
        libc::SYS_prlimit64,
        libc::SYS_sched_setparam,
        libc::SYS_sched_setscheduler,
        libc::SYS_sched_setattr,
        libc::SYS_sched_setaffinity,
    ] {
        rules.insert(call, vec![rule([word(0, SeccompCmpOp::Ne, 0)?])?]);
    }
    let which = |process: u64| {
        Ok::<_, BackendError>(vec![
            rule([word(0, SeccompCmpOp::Ne, process)?])?,
            rule([word(1, SeccompCmpOp::Ne, 0)?])?,
        ])
    };
    rules.insert(libc::SYS_setpriority, which(PRIO_PROCESS)?);
    rules.insert(libc::SYS_ioprio_set, which(IOPRIO_WHO_PROCESS)?);
    // Reading the personality (`0xffff_ffff`), or setting the default one (0), changes nothing.
    let personality = [word(0, SeccompCmpOp::Ne, 0)?, word(0, SeccompCmpOp::Ne, 0xffff_ffff)?];
    rules.insert(libc::SYS_personality, vec![rule(personality)?]);
    let refused = SeccompAction::Errno(libc::EPERM.unsigned_abs());
    SeccompFilter::new(rules, SeccompAction::Allow, refused, std::env::consts::ARCH.try_into()?)?.try_into()
}

/// Returns the refusal rules for `socket`. Without network, every socket is refused. With network, internet sockets are allowed,
/// and netlink route sockets, from which the resolver learns the machine's addresses.
fn socket_rules(network: bool) -> Result<Vec<SeccompRule>, BackendError> {
    if !network {
        return Ok(Vec::new());
    }
    let family = |operator, family: i32| word(0, operator, u64::from(family.unsigned_abs()));
    let families = [libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK];
    let others = families.map(|one| family(SeccompCmpOp::Ne, one)).into_iter().collect::<Result<Vec<_>, _>>()?;
    let netlink = [family(SeccompCmpOp::Eq, libc::AF_NETLINK)?, word(2, SeccompCmpOp::Ne, 0)?];
    Ok(vec![SeccompRule::new(others)?, rule(netlink)?])
}

/// Returns the refusal rules for `socketpair`, which allow only stream and sequenced-packet pairs. A pair of datagram sockets,
/// which includes raw ones (unix(7)), can be reconnected to another socket.
fn socketpair_rules() -> Result<Vec<SeccompRule>, BackendError> {
    let kinds = [libc::SOCK_STREAM, libc::SOCK_SEQPACKET].map(i32::unsigned_abs).map(u64::from);
    let others = (0..=SOCKET_KIND).filter(|kind| !kinds.contains(kind));
    let mut rules = vec![rule([word(0, SeccompCmpOp::Ne, u64::from(libc::AF_UNIX.unsigned_abs()))?])?];
    for kind in others {
        rules.push(rule([word(1, SeccompCmpOp::MaskedEq(SOCKET_KIND), kind)?])?);
    }
    Ok(rules)
}

/// Returns the rules that refuse new namespaces. `clone3` takes its flags in memory, which a filter cannot read. The allow-list
/// therefore lacks `clone3`, and libraries fall back to `clone`.
fn clone_rules() -> Result<Vec<SeccompRule>, BackendError> {
    let flags = [
        libc::CLONE_NEWNS,
        libc::CLONE_NEWCGROUP,
        libc::CLONE_NEWUTS,
        libc::CLONE_NEWIPC,
        libc::CLONE_NEWUSER,
        libc::CLONE_NEWPID,
        libc::CLONE_NEWNET,
    ];
    let flags = flags.map(|flag| u64::from(flag.unsigned_abs()));
    flags.into_iter().map(|flag| rule([word(0, SeccompCmpOp::MaskedEq(flag), flag)?])).collect()
}

/// Returns the rules for `ioctl`, which refuse input for another terminal, and file flags (`chattr`) if attributes are sealed.
fn ioctl_rules(seals_attributes: bool) -> Result<Vec<SeccompRule>, BackendError> {
    let flags = if seals_attributes { &[FS_IOC_SETFLAGS, FS_IOC_FSSETXATTR][..] } else { &[] };
    let requests = [TIOCSTI, TIOCLINUX].into_iter().chain(flags.iter().copied());
    requests.map(|request| rule([word(1, SeccompCmpOp::Eq, request)?])).collect()
}

fn rule<const N: usize>(conditions: [SeccompCondition; N]) -> Result<SeccompRule, BackendError> {
    SeccompRule::new(conditions.into())
}

/// Returns a condition on the lower 32 bits of an argument; the kernel ignores the rest of an `int`.
fn word(argument: u8, operator: SeccompCmpOp, value: u64) -> Result<SeccompCondition, BackendError> {
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, value)
}

fn long(argument: u8, operator: SeccompCmpOp, value: u64) -> Result<SeccompCondition, BackendError> {
    SeccompCondition::new(argument, SeccompCmpArgLen::Qword, operator, value)
}

/// The bits of a socket type that are not flags.
const SOCKET_KIND: u64 = 0xf;
/// The argument values for setpriority(2) and ioprio_set(2). C libraries declare these numbers, and those of ioctls, with
/// different types.
const PRIO_PROCESS: u64 = 0;
const IOPRIO_WHO_PROCESS: u64 = 1;
/// The ioctls that set file flags (ioctl_fs(2)): `_IOW('f', 2, long)` and `_IOW('X', 32, struct fsxattr)`.
const FS_IOC_SETFLAGS: u64 = 0x4008_6602;
const FS_IOC_FSSETXATTR: u64 = 0x401c_5820;
/// The ioctls that inject input into a terminal (ioctl_tty(2)).
const TIOCSTI: u64 = 0x5412;
const TIOCLINUX: u64 = 0x541c;
/// The number is the same on every architecture (Linux 6.6).
const SYS_FCHMODAT2: i64 = 452;

/// The calls that ordinary programs need. Deliberately left out: System V IPC and `memfd_secret`, whose memory is attributed to
/// no process; `io_uring`, whose operations bypass the filter; and calls that only administrators need.
#[rustfmt::skip]
const ALLOWED: &[i64] = &[
    SYS_FCHMODAT2, libc::SYS_accept, libc::SYS_accept4, libc::SYS_bind, libc::SYS_brk, libc::SYS_capget, libc::SYS_capset,
    libc::SYS_chdir, libc::SYS_clock_getres, libc::SYS_clock_gettime, libc::SYS_clock_nanosleep, libc::SYS_clone,
    libc::SYS_close, libc::SYS_close_range, libc::SYS_connect, libc::SYS_copy_file_range, libc::SYS_dup,
    libc::SYS_dup3, libc::SYS_epoll_create1, libc::SYS_epoll_ctl, libc::SYS_epoll_pwait, libc::SYS_epoll_pwait2,
    libc::SYS_eventfd2, libc::SYS_execve, libc::SYS_execveat, libc::SYS_exit, libc::SYS_exit_group,
    libc::SYS_faccessat, libc::SYS_faccessat2, libc::SYS_fadvise64, libc::SYS_fallocate, libc::SYS_fchdir,
    libc::SYS_fchmod, libc::SYS_fchmodat, libc::SYS_fchown, libc::SYS_fchownat, libc::SYS_fcntl, libc::SYS_fdatasync,
    libc::SYS_fgetxattr, libc::SYS_flistxattr, libc::SYS_flock, libc::SYS_fremovexattr, libc::SYS_fsetxattr,
    libc::SYS_fstat, libc::SYS_fstatfs, libc::SYS_fsync, libc::SYS_ftruncate, libc::SYS_futex, libc::SYS_futex_waitv,
    libc::SYS_get_mempolicy, libc::SYS_get_robust_list, libc::SYS_getcpu, libc::SYS_getcwd, libc::SYS_getdents64,
    libc::SYS_getegid, libc::SYS_geteuid, libc::SYS_getgid, libc::SYS_getgroups, libc::SYS_getitimer,
    libc::SYS_getpeername, libc::SYS_getpgid, libc::SYS_getpid, libc::SYS_getppid, libc::SYS_getpriority,
    libc::SYS_getrandom, libc::SYS_getresgid, libc::SYS_getresuid, libc::SYS_getrusage, libc::SYS_getsid,
    libc::SYS_getsockname, libc::SYS_getsockopt, libc::SYS_gettid, libc::SYS_gettimeofday, libc::SYS_getuid,
    libc::SYS_getxattr, libc::SYS_inotify_add_watch, libc::SYS_inotify_init1, libc::SYS_inotify_rm_watch,
    libc::SYS_io_cancel, libc::SYS_io_destroy, libc::SYS_io_getevents, libc::SYS_io_setup, libc::SYS_io_submit,
    libc::SYS_ioctl, libc::SYS_ioprio_get, libc::SYS_ioprio_set, libc::SYS_kill, libc::SYS_landlock_add_rule,
    libc::SYS_landlock_create_ruleset, libc::SYS_landlock_restrict_self, libc::SYS_lgetxattr, libc::SYS_linkat,
    libc::SYS_listen, libc::SYS_listxattr, libc::SYS_llistxattr, libc::SYS_lremovexattr, libc::SYS_lseek,
    libc::SYS_lsetxattr, libc::SYS_madvise, libc::SYS_mbind, libc::SYS_membarrier, libc::SYS_memfd_create,
    libc::SYS_mincore, libc::SYS_mkdirat, libc::SYS_mknodat, libc::SYS_mlock, libc::SYS_mlock2, libc::SYS_mlockall,
    libc::SYS_mmap, libc::SYS_mprotect, libc::SYS_mremap, libc::SYS_mseal, libc::SYS_msync, libc::SYS_munlock,
    libc::SYS_munlockall, libc::SYS_munmap, libc::SYS_nanosleep, libc::SYS_newfstatat, libc::SYS_openat,
    libc::SYS_openat2, libc::SYS_personality, libc::SYS_pidfd_open, libc::SYS_pidfd_send_signal, libc::SYS_pipe2,
    libc::SYS_pkey_alloc, libc::SYS_pkey_free, libc::SYS_pkey_mprotect, libc::SYS_ppoll, libc::SYS_prctl,
    libc::SYS_pread64, libc::SYS_preadv, libc::SYS_preadv2, libc::SYS_prlimit64, libc::SYS_pselect6,
    libc::SYS_pwrite64, libc::SYS_pwritev, libc::SYS_pwritev2, libc::SYS_read, libc::SYS_readahead,
    libc::SYS_readlinkat, libc::SYS_readv, libc::SYS_recvfrom, libc::SYS_recvmmsg, libc::SYS_recvmsg,
    libc::SYS_remap_file_pages, libc::SYS_removexattr, libc::SYS_renameat2, libc::SYS_restart_syscall, libc::SYS_rseq,
    libc::SYS_rt_sigaction, libc::SYS_rt_sigpending, libc::SYS_rt_sigprocmask, libc::SYS_rt_sigqueueinfo,
    libc::SYS_rt_sigreturn, libc::SYS_rt_sigsuspend, libc::SYS_rt_sigtimedwait, libc::SYS_rt_tgsigqueueinfo,
    libc::SYS_sched_get_priority_max, libc::SYS_sched_get_priority_min, libc::SYS_sched_getaffinity,
    libc::SYS_sched_getattr, libc::SYS_sched_getparam, libc::SYS_sched_getscheduler, libc::SYS_sched_rr_get_interval,
    libc::SYS_sched_setaffinity, libc::SYS_sched_setattr, libc::SYS_sched_setparam, libc::SYS_sched_setscheduler,
    libc::SYS_sched_yield, libc::SYS_seccomp, libc::SYS_sendfile, libc::SYS_sendmmsg, libc::SYS_sendmsg,
    libc::SYS_sendto, libc::SYS_set_mempolicy, libc::SYS_set_robust_list, libc::SYS_set_tid_address,
    libc::SYS_setfsgid, libc::SYS_setfsuid, libc::SYS_setgid, libc::SYS_setgroups, libc::SYS_setitimer,
    libc::SYS_setpgid, libc::SYS_setpriority, libc::SYS_setregid, libc::SYS_setresgid, libc::SYS_setresuid,
    libc::SYS_setreuid, libc::SYS_setsid, libc::SYS_setsockopt, libc::SYS_setuid, libc::SYS_setxattr,
    libc::SYS_shutdown, libc::SYS_sigaltstack, libc::SYS_signalfd4, libc::SYS_socket, libc::SYS_socketpair,
    libc::SYS_splice, libc::SYS_statfs, libc::SYS_statx, libc::SYS_symlinkat, libc::SYS_sync, libc::SYS_syncfs,
    libc::SYS_sysinfo, libc::SYS_tee, libc::SYS_tgkill, libc::SYS_timer_create, libc::SYS_timer_delete,
    libc::SYS_timer_getoverrun, libc::SYS_timer_gettime, libc::SYS_timer_settime, libc::SYS_timerfd_create,
    libc::SYS_timerfd_gettime, libc::SYS_timerfd_settime, libc::SYS_times, libc::SYS_tkill, libc::SYS_truncate,
    libc::SYS_umask, libc::SYS_uname, libc::SYS_unlinkat, libc::SYS_utimensat, libc::SYS_vmsplice, libc::SYS_wait4,
    libc::SYS_waitid, libc::SYS_write, libc::SYS_writev,
];
/// Calls of x86-64 that newer architectures lack.
#[cfg(target_arch = "x86_64")]
#[rustfmt::skip]
const LEGACY: &[i64] = &[
    libc::SYS_access, libc::SYS_alarm, libc::SYS_arch_prctl, libc::SYS_chmod, libc::SYS_chown, libc::SYS_creat,
    libc::SYS_dup2, libc::SYS_epoll_create, libc::SYS_epoll_wait, libc::SYS_eventfd,
    libc::SYS_fork, libc::SYS_futimesat, libc::SYS_getdents, libc::SYS_getpgrp, libc::SYS_getrlimit,
    libc::SYS_inotify_init, libc::SYS_lchown, libc::SYS_link, libc::SYS_lstat, libc::SYS_mkdir, libc::SYS_mknod,
    libc::SYS_open, libc::SYS_pause, libc::SYS_pipe, libc::SYS_poll, libc::SYS_readlink, libc::SYS_rename,
    libc::SYS_renameat, libc::SYS_rmdir, libc::SYS_select, libc::SYS_setrlimit, libc::SYS_signalfd, libc::SYS_stat,
    libc::SYS_symlink, libc::SYS_sync_file_range, libc::SYS_time, libc::SYS_unlink, libc::SYS_utime, libc::SYS_utimes,
    libc::SYS_vfork,
];
#[cfg(not(target_arch = "x86_64"))]
const LEGACY: &[i64] = &[];

/// Calls that would lead out of the sandbox, refused with a clear errno.
#[rustfmt::skip]
const REFUSED: &[i64] = &[
    libc::SYS_acct, libc::SYS_add_key, libc::SYS_adjtimex, libc::SYS_bpf, libc::SYS_chroot, libc::SYS_clock_adjtime,
    libc::SYS_clock_settime, libc::SYS_delete_module, libc::SYS_fanotify_init, libc::SYS_fanotify_mark,
    libc::SYS_finit_module, libc::SYS_fsconfig, libc::SYS_fsmount, libc::SYS_fsopen, libc::SYS_fspick,
    libc::SYS_init_module, libc::SYS_kcmp, libc::SYS_kexec_file_load, libc::SYS_kexec_load, libc::SYS_keyctl,
    libc::SYS_migrate_pages, libc::SYS_mount, libc::SYS_mount_setattr, libc::SYS_move_mount, libc::SYS_move_pages,
    libc::SYS_name_to_handle_at, libc::SYS_open_by_handle_at, libc::SYS_open_tree, libc::SYS_perf_event_open,
    libc::SYS_pidfd_getfd, libc::SYS_pivot_root, libc::SYS_process_madvise, libc::SYS_process_mrelease,
    libc::SYS_process_vm_readv, libc::SYS_process_vm_writev, libc::SYS_ptrace, libc::SYS_quotactl,
    libc::SYS_quotactl_fd, libc::SYS_reboot, libc::SYS_request_key, libc::SYS_setdomainname, libc::SYS_sethostname,
    libc::SYS_setns, libc::SYS_settimeofday, libc::SYS_swapoff, libc::SYS_swapon, libc::SYS_syslog, libc::SYS_umount2,
    libc::SYS_unshare, libc::SYS_userfaultfd, libc::SYS_vhangup,
];
/// Calls of x86-64 that newer architectures lack.
#[cfg(target_arch = "x86_64")]
#[rustfmt::skip]
const REFUSED_LEGACY: &[i64] = &[
    libc::SYS_ioperm, libc::SYS_iopl, libc::SYS_modify_ldt,
];
#[cfg(not(target_arch = "x86_64"))]
const REFUSED_LEGACY: &[i64] = &[];

/// Calls that change modes, owners and extended attributes.
#[rustfmt::skip]
const ATTRIBUTES: &[i64] = &[
    SYS_FCHMODAT2, libc::SYS_fchmod, libc::SYS_fchmodat, libc::SYS_fchown, libc::SYS_fchownat, libc::SYS_fremovexattr,
    libc::SYS_fsetxattr, libc::SYS_lremovexattr, libc::SYS_lsetxattr, libc::SYS_removexattr, libc::SYS_setxattr,
];
/// Calls of x86-64 that newer architectures lack.
#[cfg(target_arch = "x86_64")]
#[rustfmt::skip]
const ATTRIBUTES_LEGACY: &[i64] = &[
    libc::SYS_chmod, libc::SYS_chown, libc::SYS_futimesat, libc::SYS_lchown, libc::SYS_utime,
    libc::SYS_utimes,
];
#[cfg(not(target_arch = "x86_64"))]
const ATTRIBUTES_LEGACY: &[i64] = &[];
