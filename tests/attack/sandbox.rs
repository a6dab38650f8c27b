//! Commands that try to escape the sandbox, outlive it, exhaust the machine or read foreign data, with namespaces and
//! without, as root and as another user.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};

use daoyou::guard;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::support::gateway::binary;
use crate::support::model::last_text;
use crate::support::processes::unique_sleep;
use crate::support::requirements::{NOBODY, executable_by_all, has_namespaces, is_root, skip_story};
use crate::support::{Gateway, Model, Reply, Setup, until};

/// A prefix for commands of a gateway whose own PATH has no programs.
const COMMAND_PATH: &str = "PATH=/usr/local/bin:/usr/bin:/bin; export PATH; ";

pub(super) struct Harness {
    model: Model,
    pub(super) gateway: Gateway,
}

impl Harness {
    pub(super) async fn start(change: impl FnOnce(Setup) -> Setup) -> Self {
        let model = Model::start().await;
        let setup = Setup::scripted(&model);
        let gateway = Gateway::start(change(setup.set("owner.identities", vec!["webhook:in:ann"]))).await;
        Self { model, gateway }
    }

    /// Sends a message to which the agent responds with this command.
    async fn start_command(&self, trust: &str, arguments: &Value) -> (String, String) {
        let word = format!("please {}", self.model.count());
        self.model.on(&word, [Reply::tool("exec", arguments), Reply::text("done")]);
        let message = json!({
            "channel": "webhook:in", "external_id": word, "chat_id": trust, "sender": trust, "trust": trust,
            "content": word, "attachments": [], "received_at": jiff::Timestamp::now(),
        });
        let id = self.gateway.deliver(&message).await;
        (word, id)
    }

    /// Returns the result of the command, as the model receives it.
    pub(super) async fn exec(&self, trust: &str, command: &str) -> String {
        let command = format!("{COMMAND_PATH}{command}");
        let (word, id) = self.start_command(trust, &json!({ "command": command })).await;
        self.gateway.wait_done("in", &id).await;
        let requests = self.model.requests_about(&word);
        last_text(requests.last().expect("a request about the command")).to_owned()
    }

    pub(super) async fn own(&self, command: &str) -> String {
        self.exec("owner", command).await
    }

    /// Runs a Python script and returns what it printed.
    async fn python(&self, script: &str) -> String {
        self.own(&format!("python3 - 2>&1 <<'END'\n{script}\nEND")).await
    }

    pub(super) async fn sandbox(&self) -> Value {
        self.gateway.json(&["status"]).await["sandbox"]["in_force"].clone()
    }

    /// Asserts that the gateway still answers.
    async fn check(&self) {
        assert_eq!(self.own("echo alive").await, "alive\n");
        assert_eq!(self.model.refused(), Vec::<String>::new());
    }
}

/// Returns the users that can start the program: the current one, and as root also another one.
pub(super) fn users() -> Vec<Option<u32>> {
    match is_root() {
        true => vec![None, Some(NOBODY)],
        false => vec![None],
    }
}

fn as_user(setup: Setup, user: Option<u32>) -> Setup {
    match user {
        Some(user) => setup.user(user).program(Some(executable_by_all(binary()))),
        None => setup,
    }
}

/// Sets a PATH without bubblewrap.
fn without_bwrap(setup: Setup) -> Setup {
    setup.env("PATH", "/nonexistent")
}

/// Returns the environments with a sandbox, with namespaces and without, for each user. Without namespaces, root has no
/// sandbox in a folder that only root may enter; another story covers that case.
async fn environments(change: impl Fn(Setup) -> Setup) -> Vec<(String, Harness)> {
    let mut harnesses = Vec::new();
    for user in users() {
        if has_namespaces() {
            let harness = Harness::start(|setup| as_user(change(setup), user)).await;
            assert_eq!(harness.sandbox().await, "namespaces");
            harnesses.push((format!("namespaces {user:?}"), harness));
        }
        if guard::status().is_enough() && (user.is_some() || !is_root()) {
            let harness = Harness::start(|setup| without_bwrap(as_user(change(setup), user))).await;
            assert_eq!(harness.sandbox().await, "landlock");
            harnesses.push((format!("landlock {user:?}"), harness));
        }
    }
    harnesses
}

/// Returns the processes with `mark` in their command line, except this one.
fn processes_with(mark: &str) -> Vec<u32> {
    let found = fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        let line = fs::read(entry.path().join("cmdline")).ok()?;
        (pid != std::process::id() && String::from_utf8_lossy(&line).contains(mark)).then_some(pid)
    });
    found.collect()
}

fn parent_of(pid: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

async fn wait_gone(mark: &str) {
    until(&format!("{mark} to end"), async || processes_with(mark).is_empty().then_some(())).await;
}

/// Returns mode and owner of a file or folder as one line, and for a file its time.
fn attributes(path: &Path) -> String {
    let metadata = fs::metadata(path).unwrap();
    let (mode, owner) = (metadata.permissions().mode(), (metadata.uid(), metadata.gid()));
    // The gateway itself creates and removes files in its home.
    let time = if metadata.is_dir() { 0 } else { metadata.mtime() };
    format!("{}: {mode:o} {owner:?} {time}", path.display())
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_cannot_change_attributes_of_outside_files() {
    for (name, harness) in environments(|setup| setup).await {
        let home = harness.gateway.home();
        let files: Vec<PathBuf> = vec![home.clone(), home.join("token"), home.join("config.toml")];
        let before: Vec<_> = files.iter().map(|file| attributes(file)).collect();
        let shown = |path: &Path| path.display().to_string();
        for path in &files {
            let file = shown(path);
            let script = format!(
                "import os, ctypes\n\
                 def tried(what, *args):\n    try: what(*args); print('done', what.__name__)\n    except OSError as e: print(e.errno)\n\
                 tried(os.chmod, '{file}', 0o777); tried(os.chown, '{file}', os.getuid(), 0)\n\
                 tried(os.lchown, '{file}', 0, 0); tried(os.setxattr, '{file}', 'user.x', b'x'); tried(os.utime, '{file}', (1, 1))\n\
                 def by_handle():\n    f = os.open('{file}', os.O_PATH); os.chmod('/proc/self/fd/%d' % f, 0o777)\n\
                 tried(by_handle)\n\
                 def fchmodat2():\n    c = ctypes.CDLL(None, use_errno=True)\n    if c.syscall(452, -100, b'{file}', 0o777, 0) < 0: raise OSError(ctypes.get_errno(), '')\n\
                 tried(fchmodat2); print('end')"
            );
            let printed = harness.python(&script).await;
            // With namespaces, the folders above the workspace exist but belong to the namespace's own file system.
            let is_other = name.starts_with("namespaces") && path == &home;
            assert!(printed.contains("end") && (is_other || !printed.contains("done")), "{name} {file}: {printed}");
            harness.own(&format!("chmod 777 {file}; chmod -R 777 $(dirname {file}); touch -d @1 {file}")).await;
        }
        let after: Vec<_> = files.iter().map(|file| attributes(file)).collect();
        assert_eq!(after, before, "{name}");
        // Where it has its own file system, it may change its own files.
        let own = harness.own("echo '#!/bin/sh\necho ran' > s && chmod 755 s && ./s").await;
        assert_eq!(own.contains("ran\n") && !own.contains("Error"), name.starts_with("namespaces"), "{name}: {own}");
        assert!(harness.own("echo x > new && touch new && cat new").await.ends_with("x\n"), "{name}");
        harness.check().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_cannot_change_limits_or_priorities_of_other_processes() {
    for (name, harness) in environments(|setup| setup).await {
        let pid = harness.gateway.pid();
        let of = |file: &str| fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap();
        let nice = || of("stat").rsplit_once(')').unwrap().1.split_whitespace().nth(16).unwrap().to_owned();
        let (limits, priority) = (of("limits"), nice());
        let script = format!(
            "import os, resource, signal\n\
             def tried(name, what, *args):\n    try: what(*args); print('done', name)\n    except (OSError, PermissionError) as e: pass\n\
             for pid in [{pid}, os.getppid(), 1]:\n\
             \x20   tried('prlimit', resource.prlimit, pid, resource.RLIMIT_NOFILE, (0, 0))\n\
             \x20   tried('setpriority', os.setpriority, os.PRIO_PROCESS, pid, 19)\n\
             \x20   tried('affinity', os.sched_setaffinity, pid, [0])\n\
             \x20   tried('scheduler', os.sched_setscheduler, pid, os.SCHED_IDLE, os.sched_param(0))\n\
             tried('user', os.setpriority, os.PRIO_USER, os.getuid(), 19)\n\
             tried('kill', os.kill, {pid}, signal.SIGKILL)\n\
             os.setpriority(os.PRIO_PROCESS, 0, 5); resource.getrlimit(resource.RLIMIT_NOFILE); print('end')"
        );
        assert_eq!(harness.python(&script).await, "end\n", "{name}");
        harness.own(&format!("renice -n 19 -p {pid}; prlimit --pid {pid} --nofile=0")).await;
        assert_eq!((of("limits"), nice()), (limits, priority), "{name}");
        harness.check().await;
    }
}

/// Processes started to outlive their command end with the command, with the gateway, and with the supervisor.
#[tokio::test(flavor = "multi_thread")]
async fn no_process_outlives_its_command_gateway_or_supervisor() {
    for (name, mut harness) in environments(|setup| setup).await {
        let mark = unique_sleep(9861);
        let lowers = "import resource\nfor r in (resource.RLIMIT_NPROC, resource.RLIMIT_FSIZE):\n    resource.setrlimit(r, (0, 0))";
        let result = harness
            .own(&format!("setsid sleep {mark} & (setsid sleep {mark} &) & python3 -c '{lowers}'; echo x"))
            .await;
        assert_eq!(result, "x\n", "{name}");
        wait_gone(&mark).await;
        for victims in [&["gateway"][..], &["gateway", "supervisor"], &["supervisor"]] {
            // Without namespaces, nothing ends the processes of a dead supervisor.
            if victims.contains(&"supervisor") && !name.starts_with("namespaces") {
                continue;
            }
            let command = format!("{COMMAND_PATH}setsid sleep {mark} & trap '' TERM HUP; sleep {mark}; sleep {mark}");
            harness.start_command("owner", &json!({ "command": command })).await;
            until("the command to run", async || (processes_with(&format!("sleep\0{mark}")).len() >= 2).then_some(()))
                .await;
            let gateway = harness.gateway.pid();
            let supervisor = processes_with("__exec").into_iter().find(|pid| parent_of(*pid) == Some(gateway)).unwrap();
            if victims.contains(&"gateway") {
                harness.gateway.kill9().await;
            }
            if victims.contains(&"supervisor") {
                let pid = Pid::from_raw(i32::try_from(supervisor).unwrap()).unwrap();
                // The process may have noticed the gateway's death and ended already.
                let _ = kill_process(pid, Signal::KILL);
            }
            wait_gone(&mark).await;
            if victims.contains(&"gateway") {
                harness.gateway.up().await;
            }
        }
        harness.check().await;
    }
}

/// A pair of datagram sockets under any name could be reconnected to `/dev/log` and similar.
#[tokio::test(flavor = "multi_thread")]
async fn commands_cannot_reach_foreign_sockets() {
    for (name, harness) in environments(|setup| setup).await {
        let path = harness.gateway.workspace().join("log");
        let listener = UnixDatagram::bind(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
        listener.set_nonblocking(true).unwrap();
        let script = "import socket, ctypes, os\n\
             def tried(what):\n    try: what(); print('done')\n    except OSError as e: pass\n\
             for kind in (socket.SOCK_DGRAM, socket.SOCK_RAW, socket.SOCK_RDM, 10):\n\
             \x20   def send():\n        a, b = socket.socketpair(socket.AF_UNIX, kind); a.connect('log'); a.send(b'x')\n\
             \x20   tried(send)\n\
             def plain():\n    s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM); s.sendto(b'x', 'log')\n\
             tried(plain)\n\
             a, b = socket.socketpair(); a.send(b'y'); print(b.recv(1).decode())";
        assert_eq!(harness.python(script).await, "y\n", "{name}");
        assert!(listener.recv(&mut [0; 8]).is_err(), "{name}: something arrived");
        harness.check().await;
    }
}

/// System calls that create or enter namespaces and mounts, or that bypass the system call filter.
#[tokio::test(flavor = "multi_thread")]
async fn system_calls_cannot_escape_the_namespaces() {
    if std::env::consts::ARCH != "x86_64" {
        return skip_story("the numbers of system calls are those of x86-64");
    }
    // From syscalls(2): the number, and arguments that would work for root.
    let script = "import ctypes\n\
         libc = ctypes.CDLL(None, use_errno=True)\n\
         calls = {\n\
         'unshare user': (272, 0x10000000), 'unshare mounts': (272, 0x20000), 'clone user': (56, 0x10000011, 0, 0, 0, 0),\n\
         'clone3': (435, 0, 0), 'setns': (308, 0, 0), 'mount': (165, b'none', b'.', b'tmpfs', 0, 0), 'umount2': (166, b'/', 2),\n\
         'open_tree': (428, -100, b'.', 1), 'move_mount': (429, -100, b'.', -100, b'.', 0), 'fsopen': (430, b'tmpfs', 0),\n\
         'chroot': (161, b'.'), 'pivot_root': (155, b'.', b'.'), 'bpf': (321, 0, 0, 0), 'keyctl': (250, 0, -3, 0),\n\
         'add_key': (248, b'user', b'x', b'x', 1, -3), 'userfaultfd': (323, 1), 'io_uring_setup': (425, 1, 0),\n\
         'perf_event_open': (298, 0, 0, -1, -1, 0), 'ptrace': (101, 0, 0, 0, 0), 'shmget': (29, 0, 4096, 0o1600),\n\
         'x32 getpid': (0x40000000 + 39,), 'name_to_handle_at': (303, -100, b'.', 0, 0, 0), 'memfd_secret': (447, 0),\n\
         'process_vm_readv': (310, 1, 0, 0, 0, 0, 0), 'pidfd_getfd': (438, 0, 0, 0), 'ioctl TIOCSTI': (16, 0, 0x5412, b'x'),\n\
         'personality': (135, 0x40000), 'socketpair raw': (53, 1, 3, 0, b'12345678'), 'socket unix': (41, 1, 1, 0)}\n\
         for name, call in calls.items():\n\
         \x20   if libc.syscall(*call) >= 0: print('done', name)\n\
         \x20   elif ctypes.get_errno() not in (1, 38): print(name, ctypes.get_errno())\n\
         print('end')";
    for (name, harness) in environments(|setup| setup).await {
        assert_eq!(harness.python(script).await, "end\n", "{name}");
        harness.check().await;
    }
    // Without a sandbox, several of them work, or fail only because of their arguments.
    let free = Harness::start(|setup| setup.set("tools.exec.sandbox", "off")).await;
    let result = free.python(script).await;
    assert!(result.lines().count() > 8, "{result}");
}

/// A fork bomb and a thread bomb are ended at once, and the gateway answers the next message.
#[tokio::test(flavor = "multi_thread")]
async fn a_fork_bomb_is_stopped() {
    for (name, harness) in environments(|setup| setup.set("tools.exec.max_processes", 40)).await {
        let mark = unique_sleep(9862);
        for bomb in [
            format!("bomb() {{ sleep {mark} & bomb | bomb & }}; bomb; wait; sleep 30"),
            format!("python3 -c 'import os\nwhile True:\n    try: os.fork()\n    except OSError: pass\n# {mark}'"),
            format!(
                "python3 -c 'import threading, time\nwhile True: threading.Thread(target=lambda: time.sleep(99), daemon=True).start()\n# {mark}'"
            ),
        ] {
            let result = harness.own(&bomb).await;
            let ended = result.contains("more processes than tools.exec.max_processes (40)");
            // Exceeding the thread limit of the kernel ends Python.
            assert!(ended || result.contains("can't start new thread"), "{name} {bomb}: {result}");
            wait_gone(&mark).await;
        }
        harness.check().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_is_limited_per_process_and_in_total() {
    for (name, harness) in environments(|setup| setup.set("tools.exec.max_memory", "300MB")).await {
        let alone = harness
            .python("try: x = bytearray(3_000_000_000); print('got it')\nexcept MemoryError: print('refused')")
            .await;
        assert_eq!(alone, "refused\n", "{name}");
        for (what, script) in [
            (
                "children",
                "import os, time\nfor n in range(9):\n    if os.fork() == 0:\n        x = bytearray(b'x') * 80_000_000; time.sleep(60)\ntime.sleep(60)",
            ),
            (
                "files in memory",
                "import os, time\nfor n in range(9):\n    f = os.memfd_create('m'); os.write(f, b'x' * 80_000_000)\ntime.sleep(60)",
            ),
        ] {
            let result = harness.python(script).await;
            assert!(result.contains("more memory than tools.exec.max_memory (300MB)"), "{name} {what}: {result}");
        }
        harness.check().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_cannot_fill_the_disk() {
    for user in users() {
        if !has_namespaces() {
            return;
        }
        let harness = Harness::start(|setup| as_user(setup, user).set("tools.exec.max_disk", "30MB")).await;
        for (place, name) in [("workspace", "f"), ("temp", "$TMPDIR/f"), ("shared", "/dev/shm/f")] {
            let result = harness
                .own(&format!("n=0; while :; do n=$((n+1)); head -c 8000000 /dev/urandom > {name}$n; done"))
                .await;
            assert!(result.contains("wrote more to the disk than tools.exec.max_disk (30MB)"), "{place}: {result}");
            harness.own("rm -f f*").await;
        }
        let result = harness.own("head -c 40000000 /dev/zero > one; ls -l one | cut -d' ' -f5").await;
        assert!(!result.contains("40000000"), "{result}");
        let result = harness.python("import os, time\nfor n in range(9):\n    f = open('gone', 'wb'); os.remove('gone'); os.set_inheritable(f.fileno(), True); f.write(os.urandom(8_000_000)); f.flush(); globals()[f'f{n}'] = f\ntime.sleep(60)").await;
        assert!(result.contains("tools.exec.max_disk"), "{result}");
        harness.own("rm -f one").await;
        // Empty files use no block, but they count.
        let result = harness
            .python(
                "import os\nos.mkdir('many')\nfor n in range(200_000):\n    os.close(os.open(f'many/{n}', os.O_CREAT))",
            )
            .await;
        assert!(result.contains("wrote more to the disk than tools.exec.max_disk (30MB)"), "{result}");
        harness.own("rm -rf many").await;
        harness.check().await;
    }
}

/// Only the owner's commands can read the owner's files in the workspace.
#[tokio::test(flavor = "multi_thread")]
async fn the_memory_is_hidden_from_commands_of_others() {
    if !has_namespaces() {
        return;
    }
    for user in users() {
        // What the owner reads in `memory/` by a command taints the chat; the later commands there would wait for approval.
        let harness = Harness::start(|setup| as_user(setup, user).set("approval.tools.exec", "never")).await;
        let memory = harness.gateway.workspace().join("memory");
        until("MEMORY.md", async || memory.join("MEMORY.md").exists().then_some(())).await;
        assert_eq!(harness.own("echo 'the PIN is 4711' > memory/pin && cat memory/pin").await, "the PIN is 4711\n");
        let result = harness
            .exec(
                "known",
                "cat memory/pin; ls -A memory; find / -name pin 2>/dev/null; echo x > memory/x; rm -rf memory; mv memory m; \
                 ln -s memory l; cat l/pin /proc/1/root/$PWD/memory/pin /proc/1/cwd/memory/pin; umount memory; echo end",
            )
            .await;
        assert!(
            result.ends_with("end\n") && !result.contains("4711") && !result.contains("/pin\n"),
            "{user:?}: {result}"
        );
        let result = harness.own("cat memory/pin; ls memory/x").await;
        assert!(result.contains("the PIN is 4711\n") && result.contains("No such file"), "{user:?}: {result}");
        // If a link replaces the folder, the target of the link is hidden.
        fs::rename(&memory, harness.gateway.workspace().join("elsewhere")).unwrap();
        std::os::unix::fs::symlink("elsewhere", &memory).unwrap();
        let result = harness.exec("known", "cat memory/pin elsewhere/pin").await;
        assert!(result.contains("No such file") && !result.contains("4711"), "{result}");
        harness.check().await;
    }
}

/// Without namespaces, the owner's commands run under Landlock, and others may run none. If namespaces are required, nobody
/// may run commands. `status`, `doctor` and the tool report each case.
#[tokio::test(flavor = "multi_thread")]
async fn without_namespaces_only_the_owner_may_run_commands() {
    let user = is_root().then_some(NOBODY);
    if !guard::status().is_enough() {
        return skip_story(&guard::status().to_string());
    }
    let harness = Harness::start(|setup| without_bwrap(as_user(setup, user))).await;
    let result = harness.exec("known", "echo ran > ran; echo ran").await;
    assert!(
        result.contains("only the owner's turns can run commands") && result.contains("apt install bubblewrap"),
        "{result}"
    );
    assert!(!harness.gateway.workspace().join("ran").exists());
    let result = harness.own("echo x > mine; cat ../token; chmod 600 mine && echo changed; cat mine").await;
    assert!(result.contains("x\n") && result.contains("Permission denied") && !result.contains("changed"), "{result}");
    assert_eq!(harness.sandbox().await, "landlock");
    let doctor = harness.gateway.run(&["doctor"]).await;
    assert!(doctor.stdout.contains("landlock; Landlock: ABI") && doctor.stdout.contains("bubblewrap"), "{doctor:?}");
    let asked = harness.model.requests()[0].to_string();
    assert!(asked.contains("Sandboxed (landlock)"), "{asked}");
    assert!(harness.gateway.run(&["status"]).await.stdout.contains("sandbox   landlock\n"));

    let harness =
        Harness::start(|setup| without_bwrap(as_user(setup, user)).set("tools.exec.sandbox", "require")).await;
    for trust in ["owner", "known"] {
        let result = harness.exec(trust, "echo ran > ran").await;
        assert!(
            result.contains("sandbox = \"require\" needs namespaces") && result.contains("apt install"),
            "{trust}: {result}"
        );
    }
    assert!(!harness.gateway.workspace().join("ran").exists());
    assert_eq!(harness.sandbox().await, Value::Null);
    let doctor = harness.gateway.run(&["doctor"]).await;
    assert!(doctor.stdout.contains("exec is refused") && doctor.code != Some(0), "{doctor:?}");

    let harness = Harness::start(|setup| setup.set("tools.exec.sandbox", "off")).await;
    let result = harness.exec("known", "echo ran > ran").await;
    assert!(result.contains("only the owner's turns can run commands"), "{result}");
    assert_eq!(harness.own("echo ran").await, "ran\n");
    assert_eq!(harness.sandbox().await, "off");
}

/// With namespaces, `status`, `doctor` and the tool report them, and the file system contains only granted paths.
#[tokio::test(flavor = "multi_thread")]
async fn namespaces_contain_only_granted_paths() {
    if !has_namespaces() {
        return;
    }
    for user in users() {
        let harness = Harness::start(|setup| as_user(setup, user)).await;
        assert!(harness.gateway.run(&["status"]).await.stdout.contains("sandbox   namespaces\n"));
        let doctor = harness.gateway.run(&["doctor"]).await;
        assert!(doctor.stdout.contains("namespaces; Landlock: ABI"), "{doctor:?}");
        let home = harness.gateway.home();
        let result = harness
            .own(&format!(
                "ls /proc | grep -c '^[0-9]'; ls -A {}; touch /x /usr/x /dev/x 2>/dev/null; ls /home /root /run /var 2>/dev/null; \
                 cat /proc/net/unix 2>/dev/null | wc -l; readlink /proc/1/exe; id -u; ls /proc/self/fd | wc -l",
                home.display()
            ))
            .await;
        let lines: Vec<&str> = result.lines().collect();
        assert_eq!(lines.get(1), Some(&"workspace"), "{result}");
        let id = user.unwrap_or_else(|| if is_root() { NOBODY } else { rustix::process::geteuid().as_raw() });
        assert!(lines.contains(&id.to_string().as_str()), "{result}");
        assert!(harness.model.requests().iter().any(|body| body.to_string().contains("Sandboxed (namespaces)")));
        // Ordinary programs.
        let script = "import threading, select, tempfile, subprocess, os, mmap\n\
             from multiprocessing import Pool, Semaphore\n\
             t = threading.Thread(target=lambda: None); t.start(); t.join()\n\
             e = select.epoll(); e.close(); s = Semaphore(); s.acquire()\n\
             print(subprocess.run(['true']).returncode, os.memfd_create('x') > 0, tempfile.mkdtemp().startswith('/tmp'))\n\
             if __name__ == '__main__':\n    with Pool(2) as p: print(p.map(len, ['ab', 'c']))";
        let result = harness.own(&format!("cat > p.py <<'END'\n{script}\nEND\npython3 p.py")).await;
        assert_eq!(result, "0 True True\n[2, 1]\n", "{user:?}");
        let git = "git init -q r 2>&1 && cd r && git config user.email a@b && git config user.name n && echo x > f && git add f && \
                   git commit -qm one 2>&1 && git log --format=%s";
        if harness.own("git --version").await.starts_with("git version") {
            assert_eq!(harness.own(git).await, "one\n", "{user:?}");
        }
        assert_eq!(harness.own("echo out > /dev/stdout; echo err > /dev/stderr").await, "out\nerr\n", "{user:?}");
        harness.check().await;
    }
}

/// As root, commands run as nobody. Files written by the gateway's tools and by commands are usable by both.
#[tokio::test(flavor = "multi_thread")]
async fn commands_of_a_root_gateway_run_unprivileged() {
    if !is_root() {
        return skip_story("the tests do not run as root");
    }
    if !has_namespaces() {
        return;
    }
    let harness = Harness::start(|setup| setup).await;
    assert!(harness.gateway.logs().contains("the gateway runs as root"), "{}", harness.gateway.logs());
    let doctor = harness.gateway.run(&["doctor"]).await;
    assert!(doctor.stdout.contains("runs as root"), "{doctor:?}");
    let workspace = harness.gateway.workspace();
    let outside = harness.gateway.home().join("outside");
    fs::write(&outside, "outside").unwrap();
    fs::hard_link(&outside, workspace.join("hard")).unwrap();
    std::os::unix::fs::symlink(&outside, workspace.join("link")).unwrap();
    fs::write(workspace.join("theirs"), "from the gateway\n").unwrap();
    let result =
        harness.own("id -u; echo more >> theirs; echo made > made; cat theirs; echo x > hard; echo x > link").await;
    assert!(result.contains("65534\nfrom the gateway\nmore\n"), "{result}");
    assert_eq!((fs::read_to_string(&outside).unwrap().as_str(), fs::metadata(&outside).unwrap().uid()), ("outside", 0));
    assert_eq!(fs::read_to_string(workspace.join("made")).unwrap(), "made\n");
    let mark = unique_sleep(9863);
    let command = format!("{COMMAND_PATH}sleep {mark}");
    harness.start_command("owner", &json!({ "command": command })).await;
    let running = until("the command", async || processes_with(&format!("sleep\0{mark}")).first().copied()).await;
    assert_eq!(fs::metadata(format!("/proc/{running}")).unwrap().uid(), NOBODY, "outside its namespaces, too");
    // Without namespaces, that user cannot enter root's home.
    let harness = Harness::start(without_bwrap).await;
    let result = harness.own("echo ran").await;
    assert!(result.contains("the gateway runs as root") && result.contains("Install bubblewrap"), "{result}");
}
