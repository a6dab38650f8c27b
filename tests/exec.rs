//! Commands, through the real supervisor and the real kernel.

use std::fs;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use daoyou::chat::ToolCall;
use daoyou::guard::{self, SandboxMode};
use daoyou::tools::{ExecConfig, ToolContext, ToolDeps, ToolExecutor, ToolsConfig, build};
use daoyou_channels::Trust;
use daoyou_channels::settings::HumanDuration;
use futures_util::future::join_all;
use seccompiler::{SeccompAction, SeccompFilter};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::support::processes::{is_running, peak_bytes, unique_sleep};
use crate::support::requirements::{bubblewrap_is_missing, is_missing, sandbox_is_missing, skip_story};
use crate::support::{PATIENCE, POLL, tool_context, until, write_file};

mod escape;

const BINARY: &str = env!("CARGO_BIN_EXE_daoyou");
const CANARY: &str = "canary-51b2";

/// A home with a secret, the workspace inside it, and the tools.
struct Harness {
    home: tempfile::TempDir,
    executor: ToolExecutor,
}

impl Harness {
    fn new(exec: ExecConfig) -> Self {
        let home = tempfile::tempdir().unwrap();
        fs::write(home.path().join("token"), CANARY).unwrap();
        let workspace = home.path().join("workspace");
        fs::create_dir(&workspace).unwrap();
        let config = ToolsConfig { exec, ..ToolsConfig::default() };
        let executor = build(&config, &workspace, home.path(), PathBuf::from(BINARY), ToolDeps::default()).unwrap();
        Self { home, executor }
    }

    fn workspace(&self) -> PathBuf {
        fs::canonicalize(self.home.path().join("workspace")).unwrap()
    }

    async fn run(&self, command: &str) -> String {
        self.call(json!({ "command": command }), &CancellationToken::new()).await
    }

    async fn call(&self, arguments: Value, cancel: &CancellationToken) -> String {
        let call = ToolCall { id: "call-1".to_owned(), name: "exec".to_owned(), arguments: arguments.to_string() };
        self.executor.run(&call, &context(cancel)).await.result.render()
    }
}

fn context(cancel: &CancellationToken) -> ToolContext {
    ToolContext { cancel: cancel.clone(), ..tool_context(Trust::Owner) }
}

fn unprotected() -> ExecConfig {
    ExecConfig { sandbox: SandboxMode::Off, ..ExecConfig::default() }
}

/// Returns a harness with a sandbox; skips the story if there is none.
fn sandboxed() -> Option<Harness> {
    (!sandbox_is_missing()).then(|| Harness::new(ExecConfig::default()))
}

/// Waits for a state, with a deadline, in a test without a runtime.
fn wait_for(what: &str, reached: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !reached() {
        assert!(Instant::now() < deadline, "never: {what}");
        std::thread::sleep(POLL);
    }
}

#[tokio::test]
async fn a_command_returns_its_output_in_order_and_its_exit_code() {
    let harness = Harness::new(unprotected());
    let workspace = harness.workspace().display().to_string();
    for (command, expected) in [
        ("echo out; echo err >&2; echo out", "out\nerr\nout\n".to_owned()),
        ("true", "(done, no output)".to_owned()),
        ("echo broken; exit 3", "Error: Exit code: 3\nbroken\n".to_owned()),
        ("echo gone; kill -9 $$", "Error: Killed by signal 9\ngone\n".to_owned()),
        ("pwd; echo $HOME", format!("{workspace}\n{workspace}\n")),
        ("cat; echo end", "end\n".to_owned()),
        ("echo x > f; cat f; echo $TMPDIR | grep -c /tmp/exec-", "x\n1\n".to_owned()),
    ] {
        assert_eq!(harness.run(command).await, expected, "{command}");
    }
    assert_eq!(fs::read_dir(harness.home.path().join("tmp")).unwrap().count(), 0, "private temp folders are removed");
}

#[tokio::test]
async fn only_listed_environment_variables_reach_a_command() {
    let harness = Harness::new(ExecConfig { env: vec!["CARGO_MANIFEST_DIR".to_owned()], ..unprotected() });
    let got = harness.run("env | cut -d= -f1 | sort").await;
    let allowed = [
        "CARGO_MANIFEST_DIR", "HOME", "LANG", "PATH", "PWD", "PYTHONDONTWRITEBYTECODE", "SHLVL", "TERM", "TMPDIR",
        "TZ", "USER", "_", "OLDPWD",
    ];
    let extra: Vec<_> = got.lines().filter(|name| !allowed.contains(name) && !name.starts_with("LC_")).collect();
    assert_eq!(extra, Vec::<&str>::new());
    assert!(got.contains("CARGO_MANIFEST_DIR\n") && !got.contains("CARGO_PKG_NAME"), "{got}");
}

#[tokio::test]
async fn a_timeout_ends_every_process_of_a_command() {
    let long = unique_sleep(9871);
    let harnesses: Vec<_> = std::iter::once(Harness::new(unprotected())).chain(sandboxed()).collect();
    for command in [
        "echo started; sleep LONG & sleep LONG",
        "trap '' TERM; echo started; (trap '' TERM HUP; setsid sleep LONG) & while :; do sleep LONG; done",
        "echo started; setsid sh -c 'setsid sleep LONG & sleep LONG' & sleep LONG",
    ] {
        let command = command.replace("LONG", &long);
        // On a busy machine, a command may take more than a second to begin.
        join_all(harnesses.iter().map(async |harness| {
            let got = harness.call(json!({ "command": command, "timeout": 3 }), &CancellationToken::new()).await;
            assert_eq!(got, "Error: Command timed out after 3 seconds\nstarted\n", "{command}");
        }))
        .await;
        assert!(!is_running(&long), "{command}");
    }
}

#[tokio::test]
async fn background_children_end_with_their_command() {
    let harness = Harness::new(unprotected());
    let begun = Instant::now();
    let long = unique_sleep(9873);
    assert_eq!(harness.run(&format!("setsid sleep {long} & nohup sleep {long} & echo done")).await, "done\n");
    assert!(begun.elapsed() < Duration::from_secs(20) && !is_running(&long));
}

#[tokio::test]
async fn cancelled_and_dropped_commands_are_ended() {
    let harness = Harness::new(unprotected());
    let cancel = CancellationToken::new();
    let (first, other) = (unique_sleep(9874), unique_sleep(9875));
    let running = harness.call(json!({ "command": format!("echo begun; touch begun; sleep {first}") }), &cancel);
    let begun = harness.workspace().join("begun");
    let cancelling = async {
        until("the command to begin", async || begun.exists().then_some(())).await;
        cancel.cancel();
    };
    let (got, ()) = tokio::join!(running, cancelling);
    assert_eq!(got, "Error: Cancelled; the command was killed\nbegun\n");
    assert!(!is_running(&first));

    let second = harness.workspace().join("second");
    let cancel = CancellationToken::new();
    let running =
        harness.call(json!({ "command": format!("touch second; setsid sleep {other}; sleep {other}") }), &cancel);
    tokio::select! {
        got = running => panic!("{got}"),
        () = until("the command to run", async || (second.exists() && is_running(&other)).then_some(())) => {}
    }
    until("the dropped command to end", async || (!is_running(&other)).then_some(())).await;
}

#[tokio::test]
async fn endless_output_is_bounded_in_memory_and_on_disk() {
    let harness = Harness::new(unprotected());
    let got = harness.call(json!({ "command": "yes", "timeout": 1 }), &CancellationToken::new()).await;
    assert!(got.starts_with("Error: Command timed out after 1 seconds\ny\ny\n"), "{got}");
    assert!(got.chars().count() <= 8_000 && got.lines().count() <= 500);
    let note = got.split("lines cut; the first 10000000 of ").nth(1).unwrap().split(" ...]").next().unwrap();
    let (whole, path) = note.split_once(" bytes: ").unwrap();
    assert!(whole.parse::<u64>().unwrap() > 10_000_000, "{note}");
    assert_eq!(fs::metadata(harness.workspace().join(path)).unwrap().len(), 10_000_000);
    let peak = peak_bytes(std::process::id());
    assert!(peak < 200_000 * 1_024, "peak of {peak} bytes");
}

/// Fault 3: the gateway is killed while a command runs.
#[test]
fn a_killed_gateway_leaves_no_command_behind() {
    const ROLE: &str = "DAOYOU_TEST_GATEWAY_HOME";
    if let Some(home) = std::env::var_os(ROLE) {
        return hold_a_command(Path::new(&home));
    }
    let long = unique_sleep(9876);
    let home = tempfile::tempdir().unwrap();
    fs::create_dir(home.path().join("workspace")).unwrap();
    let name = "exec::a_killed_gateway_leaves_no_command_behind";
    let mut gateway = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env(ROLE, home.path())
        .env("LONG", &long)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    wait_for("the command runs", || is_running(&long));
    gateway.kill().unwrap();
    gateway.wait().unwrap();
    wait_for("the command is gone", || !is_running(&long));
    wait_for("its temp folder is gone", || fs::read_dir(home.path().join("tmp")).unwrap().count() == 0);
}

fn hold_a_command(home: &Path) {
    let config = ToolsConfig { exec: unprotected(), ..ToolsConfig::default() };
    let executor = build(&config, &home.join("workspace"), home, PathBuf::from(BINARY), ToolDeps::default()).unwrap();
    let command = "trap '' TERM HUP; setsid sleep LONG & sleep LONG; sleep LONG";
    let command = command.replace("LONG", &std::env::var("LONG").unwrap());
    let arguments = json!({ "command": command }).to_string();
    let call = ToolCall { id: "c".to_owned(), name: "exec".to_owned(), arguments };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(executor.run(&call, &context(&CancellationToken::new())));
}

#[tokio::test]
async fn the_sandbox_allows_normal_work() {
    if bubblewrap_is_missing() {
        return;
    }
    let Some(harness) = sandboxed() else { return };
    for (command, expected) in [
        ("echo a > a && mkdir d && mv a d/a && cat d/a && rm -r d", "a\n"),
        ("echo t > $TMPDIR/t && cat $TMPDIR/t", "t\n"),
        ("printf '#!/bin/sh\\necho ran\\n' > s && chmod +x s && ./s", "ran\n"),
        ("printf 'b\\na\\n' | sort | tr a-z A-Z", "A\nB\n"),
        ("head -c 3 /dev/zero | wc -c; echo gone > /dev/null", "3\n"),
        ("ls /usr > /dev/null && test -r /etc/passwd && echo ok", "ok\n"),
    ] {
        assert_eq!(harness.run(command).await, expected, "{command}");
    }
}

/// Fault 32: there is no pattern matching; the kernel is the boundary.
#[tokio::test]
async fn the_sandbox_cannot_be_bypassed_by_rewriting_a_command() {
    let Some(harness) = sandboxed() else { return };
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("secret"), CANARY).unwrap();
    let out = outside.path().display();
    let home = fs::canonicalize(harness.home.path()).unwrap();
    let home = home.display();
    let encoded = "base64 -d | sh";
    let corpus = [
        format!("cat {out}/secret"),
        format!("cat {home}/token"),
        "cat ../token".to_owned(),
        format!("echo $(cat {out}/secret)"),
        format!("true; cat {out}/secret # harmless"),
        format!("printf 'cat {out}/secret' | base64 | {encoded}"),
        format!("printf 'all:\\n\\tcat {out}/secret\\n' > Makefile; make; sh -c 'cat {out}/secret'"),
        format!("ln -s {out}/secret link; cat link"),
        format!("ln {out}/secret hard; cat hard"),
        format!("cp {out}/secret here; cat here"),
        format!("exec 3< {out}/secret; cat <&3"),
        format!("env -i /bin/cat {out}/secret"),
        format!("setsid cat {out}/secret"),
        format!("(cd {out} && cat secret)"),
        format!("tar cf - {out} 2>/dev/null | tar xf - ; find . -type f | xargs cat"),
        "cat /proc/$PPID/environ /proc/1/environ".to_owned(),
        "cat /proc/$PPID/root/etc/shadow ~root/.ssh/id_rsa /etc/shadow".to_owned(),
        "cat /dev/mem /proc/kcore /dev/tty".to_owned(),
    ];
    let free = Harness::new(unprotected());
    let mut leaks = 0;
    for command in &corpus {
        let got = harness.run(command).await;
        assert!(!got.contains(CANARY), "{command}: {got}");
        leaks += usize::from(free.run(command).await.contains(CANARY));
    }
    assert!(leaks >= 12, "only {leaks} of the ways work without a sandbox: the others prove nothing");
    for command in [
        format!("echo x > {out}/new"),
        format!("echo x >> {out}/secret"),
        format!(": > {out}/secret"),
        format!("rm {out}/secret"),
        format!("mv {out}/secret ."),
        format!("truncate -s 0 {out}/secret"),
        format!("mkdir {out}/d"),
        format!("touch {home}/config.toml"),
        format!("rm {home}/token"),
        "touch /tmp/daoyou-test-escape /usr/daoyou-test-escape".to_owned(),
    ] {
        let got = harness.run(&command).await;
        assert!(got.starts_with("Error: Exit code: "), "{command}: {got}");
        assert_eq!(fs::read_to_string(outside.path().join("secret")).unwrap(), CANARY, "{command}");
        assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 1, "{command}");
    }
    // The first process of a namespace receives no signal from inside it.
    assert!(harness.run("kill -9 $PPID; echo alive").await.ends_with("alive\n"));
    assert_eq!(fs::read_to_string(harness.home.path().join("token")).unwrap(), CANARY);
    assert!(!harness.home.path().join("config.toml").exists() && !Path::new("/tmp/daoyou-test-escape").exists());
}

#[tokio::test]
async fn the_sandbox_has_no_network_by_default() {
    let Some(closed) = sandboxed() else { return };
    let has_python = Command::new("python3").arg("-V").output().is_ok_and(|output| output.status.success());
    if !has_python {
        return skip_story("no python3");
    }
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let open = Harness::new(ExecConfig { network: true, ..ExecConfig::default() });
    let socket = closed.home.path().join("daoyou.sock");
    let _control = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let python = |script: &str| format!("python3 -c 'import socket; {script}; print(\"open\")' 2>&1 | tail -n 1");
    let tcp = format!("socket.create_connection((\"127.0.0.1\", {port}))");
    let unix = format!("s = socket.socket(socket.AF_UNIX); s.connect(\"{}\")", socket.display());
    let pair = "socket.socketpair()";
    let datagrams = "socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)";
    let udp = "socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b\"x\", (\"127.0.0.1\", 9))";
    for (script, in_closed, in_open) in [
        (tcp.as_str(), false, true),
        (udp, false, true),
        (unix.as_str(), false, false),
        (datagrams, false, false),
        (pair, true, true),
    ] {
        for (harness, expected) in [(&closed, in_closed), (&open, in_open)] {
            let got = harness.run(&python(script)).await;
            assert_eq!(got == "open\n", expected, "{script}: {got}");
        }
    }
}

#[tokio::test]
async fn the_owner_can_allow_further_readable_folders() {
    if sandboxed().is_none() {
        return;
    }
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("tool"), "useful").unwrap();
    let read_paths = vec![outside.path().display().to_string()];
    let harness = Harness::new(ExecConfig { read_paths, ..ExecConfig::default() });
    let path = outside.path().join("tool");
    assert_eq!(harness.run(&format!("cat {}", path.display())).await, "useful");
    assert!(harness.run(&format!("echo x > {}", path.display())).await.starts_with("Error: Exit code: "));
}

/// Waits in the sandbox until the story has written files into folders that did not exist when the command started.
#[tokio::test]
async fn folders_of_others_that_appear_while_a_command_runs_stay_hidden() {
    if bubblewrap_is_missing() {
        return;
    }
    let harness = Harness::new(ExecConfig::default());
    let workspace = harness.workspace();
    let write = async {
        until("the start", async || workspace.join("started").exists().then_some(())).await;
        for name in ["mail/of-others.txt", "scratch/of-others.txt", "go"] {
            write_file(workspace.join(name), CANARY);
        }
    };
    let command = "touch started; until [ -e go ]; do sleep 0.05; done; cat */* 2>/dev/null; echo end";
    let (got, ()) = tokio::join!(harness.run(command), write);
    assert_eq!(got, "end\n");
    assert!(harness.run("cat mail/*").await.contains(CANARY));
}

#[tokio::test]
async fn a_command_sees_of_a_folder_of_others_only_the_own_files_that_it_names() {
    if bubblewrap_is_missing() {
        return;
    }
    let harness = Harness::new(ExecConfig::default());
    for (name, text) in [("ab/own.txt", "own\n"), ("ab/x.txt", "x\n"), ("cd/y.txt", "y\n")] {
        write_file(harness.workspace().join("mail").join(name), text);
    }
    let files = ["mail/ab/own.txt".to_owned()].into();
    let context = ToolContext { files, ..context(&CancellationToken::new()) };
    for (command, expected, sources) in [
        ("cat mail/ab/own.txt", "own\n", &[][..]),
        ("cat $(dirname mail/ab/own.txt)/../*/*", "own\n", &[]),
        ("cat mail/*/*", "own\nx\ny\n", &["file:mail"]),
    ] {
        let arguments = json!({ "command": command }).to_string();
        let call = ToolCall { id: "call-1".to_owned(), name: "exec".to_owned(), arguments };
        let result = harness.executor.run(&call, &context).await.result;
        let found: Vec<&str> = result.taint.iter().map(String::as_str).collect();
        assert_eq!((result.render().as_str(), &found[..]), (expected, sources), "{command}");
    }
}

/// The file with the rest of a long output stays hidden from commands that do not name it. If its content comes from others, the
/// output of a command that reads it does, too.
#[tokio::test]
async fn a_command_sees_the_long_outputs_of_its_conversation_by_name_only() {
    if bubblewrap_is_missing() || is_missing("make", "make") {
        return;
    }
    let harness = Harness::new(ExecConfig::default());
    let run = async |name: &str, arguments: Value| {
        let call = ToolCall { id: "call-1".to_owned(), name: name.to_owned(), arguments: arguments.to_string() };
        harness.executor.run(&call, &context(&CancellationToken::new())).await.result
    };
    let stored = async |command: &str| run("exec", json!({ "command": command })).await.spill.unwrap().path;
    let own = stored("seq 20000; echo own").await;
    let others = stored("ls mail; seq 20000; echo of others").await;
    assert!(others.ends_with("-others.txt"), "{others}");
    let reads_both = "tail -qn1 .daoyou/*/*/spill/*";
    for (command, expected, is_foreign) in [
        ("tail -qn1 .[d]aoyou/*/*/*/* 2>&1", "", false),
        ("grep -rh '^o' . | sort", "", false),
        (&format!("tail -n1 {own}"), "own\n", false),
        (&format!("tail -qn1 $(dirname {own})/*"), "own\n", false),
        (&format!("tail -n1 {others}"), "of others\n", true),
        (reads_both, "of others\nown\n", true),
    ] {
        let result = run("exec", json!({ "command": command })).await;
        let sources: Vec<_> = result.taint.iter().collect();
        assert_eq!(!sources.is_empty(), is_foreign, "{command}: {sources:?}");
        let lines = |text: &str| {
            text.lines().filter(|line| line.starts_with('o')).map(|line| format!("{line}\n")).collect::<String>()
        };
        assert_eq!(lines(&result.content), expected, "{command}: {}", result.render());
    }
    fs::write(harness.workspace().join("Makefile"), format!("test:\n\t{reads_both}\n")).unwrap();
    let tested = run("run_test", json!({})).await;
    assert!(tested.taint.is_empty() && !tested.render().contains("of others"), "{}", tested.render());
}

/// A command that closes the workspace keeps no later call from working.
#[tokio::test]
async fn a_command_cannot_close_the_workspace_for_others() {
    if bubblewrap_is_missing() {
        return;
    }
    let harness = Harness::new(ExecConfig::default());
    let closed = harness.workspace();
    for (command, expected) in
        [("echo text > a.txt; chmod 000 .", "(done, no output)"), ("cat a.txt; chmod 500 .", "text\n")]
    {
        assert_eq!(harness.run(command).await, expected);
        assert_eq!(fs::metadata(&closed).unwrap().permissions().mode() & 0o700, 0o700, "{command}");
    }
    // A command in the background, or one that was killed, may leave the workspace closed.
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o000)).unwrap();
    assert_eq!(harness.run("cat a.txt").await, "text\n");
}

/// Runs in a process from which Landlock's system calls are hidden.
#[test]
fn without_landlock_commands_are_refused_with_a_reason() {
    const ROLE: &str = "DAOYOU_TEST_NO_LANDLOCK";
    if std::env::var_os(ROLE).is_none() {
        let name = "exec::without_landlock_commands_are_refused_with_a_reason";
        let mut child = Command::new(std::env::current_exe().unwrap());
        let output =
            child.args(["--exact", name, "--nocapture"]).env(ROLE, "1").env("PATH", "/nonexistent").output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        return;
    }
    let hidden = [(libc::SYS_landlock_create_ruleset, Vec::new())].into_iter().collect();
    let arch = std::env::consts::ARCH.try_into().unwrap();
    let missing = SeccompAction::Errno(libc::ENOSYS.unsigned_abs());
    let filter = SeccompFilter::new(hidden, SeccompAction::Allow, missing, arch).unwrap();
    let program: seccompiler::BpfProgram = filter.try_into().unwrap();
    seccompiler::apply_filter(&program).unwrap();
    assert_eq!((guard::status().landlock, guard::status().is_enough()), (0, false));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let got = Harness::new(ExecConfig::default()).run("echo ran > ran; echo ran").await;
        assert!(
            got.contains("Commands are off") && got.contains("sandbox = \"off\"") && !got.contains("ran\n"),
            "{got}"
        );
        assert_eq!(Harness::new(unprotected()).run("echo ran").await, "ran\n");
    });
    // A supervisor that cannot sandbox a command although it must, starts nothing.
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().join("workspace");
    fs::create_dir(&folder).unwrap();
    // A supervisor that runs as root changes the owner of this folder, so the folder must be the test's own.
    let (mut child, mut stream) = supervisor(&json!({
        "command": "echo ran", "folder": folder, "temp": home.path(), "hands_over": true,
        "sandbox": { "read": ["/usr"], "write": [], "network": true },
    }));
    let mut report = String::new();
    stream.read_to_string(&mut report).unwrap();
    child.wait().unwrap();
    assert!(report.contains("refused") && report.contains("no Landlock"), "{report}");
}

/// Starts a supervisor directly and sends it an order.
fn supervisor(order: &Value) -> (Child, UnixStream) {
    let (mut ours, theirs) = UnixStream::pair().unwrap();
    let mut child = Command::new(BINARY);
    let child = child.arg(guard::EXEC_COMMAND).stdin(OwnedFd::from(theirs)).stdout(Stdio::null()).spawn().unwrap();
    ours.write_all(format!("{order}\n").as_bytes()).unwrap();
    (child, ours)
}

#[tokio::test]
async fn a_command_may_shorten_its_timeout_but_not_extend_it() {
    let harness = Harness::new(ExecConfig { timeout: HumanDuration::from_secs(1), ..unprotected() });
    let got = harness.call(json!({ "command": "sleep 987", "timeout": 500 }), &CancellationToken::new()).await;
    assert!(got.starts_with("Error: Command timed out after 1 seconds"), "{got}");
    for (command, words) in [("", "empty"), ("a\0b", "no NUL"), (&"x".repeat(100_001), "at most 100000 bytes")] {
        let got = harness.run(command).await;
        assert!(got.contains(words), "{got}");
    }
}
