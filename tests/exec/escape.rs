//! Fault 32, other ways out: programs that call the kernel themselves, and daemons. There is no list of forbidden words
//! that could be switched off. Each row would work without the sandbox, and runs without it to prove that.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};

use super::*;

/// Returns true if Python works inside the sandbox; the default Python may be in a user's home.
async fn has_python(harness: &Harness) -> bool {
    let found = harness.run("python3 -c 'import ctypes; print(1)'").await == "1\n";
    if !found {
        skip_story("no python3 that runs in the sandbox");
    }
    found
}

/// Returns a command that prints `out` if the script escapes. Every failing system call raises an error.
fn python(script: &str) -> String {
    let head = "import ctypes, os, socket, struct\n\
                libc = ctypes.CDLL(None, use_errno=True)\n\
                def call(number, *args):\n \
                r = libc.syscall(number, *args)\n \
                if r < 0: raise OSError(ctypes.get_errno(), 'syscall')\n \
                return r\n";
    format!("cat > escape.py <<'END'\n{head}{script}\nEND\npython3 escape.py 2>&1 | tail -n 1")
}

/// Helper programs try to read forbidden files, such as a user's keys and the gateway's memory.
#[tokio::test]
async fn helper_programs_are_sandboxed_too() {
    let Some(harness) = sandboxed() else { return };
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("secret"), CANARY).unwrap();
    let secret = outside.path().join("secret").display().to_string();
    let corpus = [
        format!("LD_PRELOAD=libm.so.6 /bin/cat {secret}"),
        format!("LD_LIBRARY_PATH=. /bin/cat {secret}"),
        format!("$(ls /lib64/ld-linux-*.so.* /lib/ld-linux-*.so.* 2>/dev/null | head -n 1) /bin/cat {secret}"),
        format!("printf 'X := $(shell cat {secret})\\nall:\\n\\t@echo $(X)\\n' > Makefile; make -s || cat {secret}"),
        format!("awk '1' {secret}"),
        format!("perl -e 'open F, \"{secret}\"; print <F>'"),
        format!("IFS=,; set -- cat,{secret}; $1"),
        format!("c=ca; t=t; $c$t {secret}"),
        format!("printf '#!/bin/cat\\n' > s; head -c 99 {secret} >> s; chmod +x s; ./s"),
        format!("find {secret} -exec cat {{}} \\;"),
        format!("echo {secret} | xargs cat"),
        format!("nohup cat {secret} 2>/dev/null"),
        format!("(trap 'cat {secret}' EXIT)"),
        format!("unshare -Ur cat {secret} 2>/dev/null || cat {secret}"),
        format!(
            "mkdir -p m; mount --bind {} m 2>/dev/null && cat m/secret; umount m 2>/dev/null",
            outside.path().display()
        ),
        format!("chroot / /bin/cat {secret} 2>/dev/null"),
        format!("cat /proc/{}/environ /proc/{0}/root{secret} /proc/{0}/cwd/Cargo.toml", std::process::id()),
    ];
    let free = Harness::new(unprotected());
    let mut leaks = 0;
    for command in &corpus {
        let got = harness.run(command).await;
        assert!(
            !got.contains(CANARY) && !got.contains("CARGO_PKG_NAME") && !got.contains("[workspace]"),
            "{command}: {got}"
        );
        leaks += usize::from(free.run(command).await.contains(CANARY));
    }
    assert!(leaks >= 10, "only {leaks} of the ways work without a sandbox: the others prove nothing");
    // The environment that one command sets is gone for the next.
    harness
        .run("export LD_PRELOAD=/tmp/x.so PATH=/tmp BASH_ENV=./x ENV=./x; echo 'export PLANTED=1' > x; cp x .profile")
        .await;
    let env = harness.run("env").await;
    assert!(!env.contains("LD_PRELOAD") && !env.contains("PLANTED") && !env.contains("ENV="), "{env}");
}

/// System calls that reach objects without a path: another process, a socket without a file, io_uring, a file by its handle.
#[tokio::test]
async fn system_calls_cannot_escape_the_sandbox() {
    let Some(harness) = sandboxed() else { return };
    if !has_python(&harness).await {
        return;
    }
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("secret"), CANARY).unwrap();
    let secret = outside.path().join("secret").display().to_string();
    // A substitute for the gateway: a process of the same user outside the sandbox.
    let mut other = Command::new("sleep").arg(unique_sleep(9877)).spawn().unwrap();
    let pid = other.id();
    let name = format!("daoyou-test-{pid}");
    let _abstract = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
    // Numbers by syscalls(2) for x86-64 and, where they differ, aarch64.
    let (ptrace, vm_read, kill, handle) = match std::env::consts::ARCH {
        "aarch64" => (117, 270, 129, (264, 265)),
        _ => (101, 310, 62, (303, 304)),
    };
    let rows = [
        ("ptrace", format!("call({ptrace}, 0x4206, {pid}, 0, 0)")),
        (
            "process_vm_readv",
            format!(
                "start = int(open('/proc/{pid}/maps').readline().split('-')[0], 16) if os.access('/proc/{pid}/maps', 4) else 4096\n\
                 b = ctypes.create_string_buffer(8)\n\
                 local = (ctypes.c_size_t * 2)(ctypes.addressof(b), 8); there = (ctypes.c_size_t * 2)(start, 8)\n\
                 call({vm_read}, {pid}, local, 1, there, 1, 0)"
            ),
        ),
        ("memory", format!("open('/proc/{pid}/mem', 'rb')")),
        ("environment", format!("open('/proc/{pid}/environ', 'rb').read()")),
        ("pidfd_getfd", format!("call(438, call(434, {pid}, 0), 0, 0)")),
        ("signal", format!("call({kill}, {pid}, 0)")),
        ("abstract socket", format!("socket.socket(socket.AF_UNIX).connect('\\0{name}')")),
        ("io_uring", "b = ctypes.create_string_buffer(120); call(425, 4, b)".to_owned()),
        (
            "file handle",
            format!(
                "b = ctypes.create_string_buffer(136); struct.pack_into('I', b, 0, 128); m = ctypes.c_int()\n\
                 call({}, -100, b'{secret}', b, ctypes.byref(m), 0)\n\
                 os.read(call({}, os.open('.', 0), b, 0), 9)",
                handle.0, handle.1
            ),
        ),
    ];
    let free = Harness::new(unprotected());
    let mut works = Vec::new();
    for (what, script) in &rows {
        let command = python(&format!("{script}\nprint('out')"));
        let got = harness.run(&command).await;
        assert!(got.trim_end() != "out" && got.contains("Error"), "{what}: {got}");
        if free.run(&command).await == "out\n" {
            works.push(*what);
        }
    }
    println!("without the sandbox these lead out here: {works:?}");
    assert!(works.len() >= 3, "only {works:?} work without a sandbox: the others prove nothing");
    assert_eq!(other.try_wait().unwrap(), None, "it lives and is not stopped");
    other.kill().unwrap();
    other.wait().unwrap();
}

/// Processes that are started to outlive their command end with it.
#[tokio::test]
async fn daemonised_children_end_with_their_command() {
    let long = unique_sleep(9878);
    let harnesses: Vec<_> = std::iter::once(Harness::new(unprotected())).chain(sandboxed()).collect();
    for command in [
        "nohup sleep LONG >/dev/null 2>&1 & echo done",
        "setsid sleep LONG >/dev/null 2>&1 & echo done",
        "(setsid sh -c '(trap \"\" HUP TERM; sleep LONG) &' &) >/dev/null 2>&1; echo done",
        "sh -c 'sh -c \"sleep LONG &\" &' >/dev/null 2>&1; echo done",
        "nohup setsid nohup sh -c 'while :; do sleep LONG; done' >/dev/null 2>&1 & echo done",
    ] {
        for harness in &harnesses {
            let got = harness.run(&command.replace("LONG", &long)).await;
            assert_eq!((got.as_str(), is_running(&long)), ("done\n", false), "{command}");
        }
    }
}
