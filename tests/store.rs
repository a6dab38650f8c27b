//! The store from outside: accepted messages are on disk, only one gateway holds a home, and a foreign file stays unchanged.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::process::{Child, Command};

use crate::support::exposition::scrape;
use crate::support::gateway::Message;
use crate::support::invariants::{Witness, check, open, wait_settled};
use crate::support::requirements::skip_story;
use crate::support::{Gateway, Hook, Setup, deadline, until};

/// `strace` on a running gateway, which writes its lines to a file: one line for each call, or two if another thread
/// interrupted the call.
struct Trace {
    strace: Child,
    file: PathBuf,
}

impl Trace {
    /// Attaches strace; returns `None` if there is no strace, or if it may not trace.
    async fn attach(gateway: &Gateway) -> Option<Self> {
        let file = gateway.home().join("trace");
        let calls = "trace=read,recvfrom,pwrite64,fsync,fdatasync,write,writev,sendto";
        let mut strace = Command::new("strace");
        strace.args(["-f", "-y", "-s", "48", "-e", calls, "-o"]).arg(&file).args(["-p", &gateway.pid().to_string()]);
        let mut strace = strace.stderr(Stdio::piped()).kill_on_drop(true).spawn().ok()?;
        let mut output = tokio::io::BufReader::new(strace.stderr.take()?);
        let mut line = String::new();
        let attached = tokio::io::AsyncBufReadExt::read_line(&mut output, &mut line);
        deadline("strace to attach", attached).await.ok()?;
        line.contains("attached").then_some(())?;
        // All threads are traced, including the writer's.
        let threads = || std::fs::read_dir(format!("/proc/{}/task", gateway.pid())).map_or(0, Iterator::count);
        let traced = |task: &Path| {
            let status = std::fs::read_to_string(task.join("status")).unwrap_or_default();
            !status.contains("TracerPid:\t0\n")
        };
        until("all threads to be traced", async || {
            let tasks = std::fs::read_dir(format!("/proc/{}/task", gateway.pid())).ok()?;
            let traced = tasks.flatten().filter(|task| traced(&task.path())).count();
            (traced == threads()).then_some(())
        })
        .await;
        tokio::spawn(async move { tokio::io::copy(&mut output, &mut tokio::io::sink()).await });
        Some(Self { strace, file })
    }

    async fn lines(mut self) -> Vec<String> {
        let pid = self.strace.id().and_then(|pid| rustix::process::Pid::from_raw(i32::try_from(pid).ok()?)).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        deadline("strace to end", self.strace.wait()).await.unwrap();
        std::fs::read_to_string(&self.file).unwrap().lines().map(str::to_owned).collect()
    }
}

/// The event that one line of the trace shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seen {
    ModelRequest,
    Written,
    Synced,
    HttpAnswer,
}

/// Returns the relevant calls in order. A sync counts at its return, an answer at its begin.
fn relevant_calls(lines: &[String]) -> Vec<Seen> {
    let mut syncing: Vec<&str> = Vec::new();
    let mut all = Vec::new();
    for line in lines {
        let (thread, call) = line.split_once(char::is_whitespace).unwrap_or(("", line));
        let call = call.trim_start();
        let is_sync = call.starts_with("fdatasync(") || call.starts_with("fsync(");
        if is_sync && call.contains("-wal>") {
            if call.contains("unfinished") {
                syncing.push(thread);
            } else if call.ends_with("= 0") {
                all.push(Seen::Synced);
            }
        } else if call.contains("sync resumed") && syncing.contains(&thread) {
            syncing.retain(|other| *other != thread);
            if call.ends_with("= 0") {
                all.push(Seen::Synced);
            }
        } else if call.starts_with("pwrite64(") && call.contains("-wal>") {
            all.push(Seen::Written);
        } else if call.contains("\"POST /webhook/in") {
            all.push(Seen::ModelRequest);
        } else if call.contains("\"HTTP/1.1 202") {
            all.push(Seen::HttpAnswer);
        }
    }
    all
}

/// `kill -9` cannot show whether a commit reached the disk, because the kernel keeps written data. Therefore this test
/// checks the system calls: between a message and its 202, the WAL is written and then synced.
#[tokio::test(flavor = "multi_thread")]
async fn a_message_is_synced_before_its_202_is_written() {
    let gateway = Gateway::start(Setup::new().hook(Hook::bearer("in"))).await;
    let Some(trace) = Trace::attach(&gateway).await else {
        return skip_story("strace cannot be run here (package strace)");
    };
    for n in 0..5 {
        gateway.accept("in", &Message::new("/help").chat(&n.to_string())).await;
        // The writes of the turn are done before the next message arrives.
        wait_settled(&gateway.database()).await;
    }
    let lines = trace.lines().await;
    let seen = relevant_calls(&lines);
    let mut answers = 0;
    for (at, _) in seen.iter().enumerate().filter(|(_, one)| **one == Seen::HttpAnswer) {
        let asked = seen[..at].iter().rposition(|one| *one == Seen::ModelRequest).expect("a message before its answer");
        let synced = seen[asked..at].iter().rposition(|one| *one == Seen::Synced).map(|sync| asked + sync);
        let is_safe = synced.is_some_and(|synced| seen[asked..synced].contains(&Seen::Written));
        assert!(is_safe, "a 202 before its sync: {:?}\n{}", &seen[asked..=at], lines.join("\n"));
        answers += 1;
    }
    assert_eq!(answers, 5, "{}", lines.join("\n"));
    let mode = open(&gateway.database()).unwrap().query_row("PRAGMA journal_mode", [], |row| row.get::<_, String>(0));
    assert_eq!(mode.unwrap(), "wal");
}

/// A newer or foreign database stays unchanged, and every command reports it.
#[tokio::test(flavor = "multi_thread")]
async fn a_newer_or_foreign_database_is_refused_unchanged() {
    let newer = tempfile::NamedTempFile::new().unwrap();
    let store = rusqlite::Connection::open(newer.path()).unwrap();
    store.execute_batch("CREATE TABLE tomorrow (x); PRAGMA user_version = 99").unwrap();
    drop(store);
    let newer = std::fs::read(newer.path()).unwrap();
    let foreign = tempfile::NamedTempFile::new().unwrap();
    let store = rusqlite::Connection::open(foreign.path()).unwrap();
    store.execute_batch("CREATE TABLE songs (x); PRAGMA user_version = 1").unwrap();
    drop(store);
    let foreign = std::fs::read(foreign.path()).unwrap();
    for (bytes, words) in [(newer, "newer daoyou (format 99"), (foreign, "database of another program")] {
        let gateway = Gateway::new(Setup::new());
        gateway.write_config();
        std::fs::write(gateway.database(), &bytes).unwrap();
        for args in [&["gateway", "--no-cli", "--log", "off"][..], &["agent", "-m", "hi"], &["queue", "list"]] {
            let ran = gateway.run(args).await;
            assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), ""), "{args:?}: {ran:?}");
            let path = gateway.database().display().to_string();
            assert!(ran.stderr.contains(words) && ran.stderr.contains(&path), "{args:?}: {ran:?}");
            assert_eq!(ran.stderr.lines().count(), 1, "{args:?}: {ran:?}");
        }
        assert!(std::fs::read(gateway.database()).unwrap() == bytes, "{words}: the file was changed");
        assert!(!gateway.home().join("daoyou.sock").exists(), "{words}: half started");
    }
}

/// One gateway holds a home, and a second one names the first. The remains of a killed gateway are not a lock.
#[tokio::test(flavor = "multi_thread")]
async fn a_second_gateway_in_a_home_is_refused() {
    let mut gateway = Gateway::start(Setup::new().hook(Hook::bearer("in"))).await;
    let pid = gateway.pid();
    let second = gateway.run(&["gateway", "--no-cli", "--log", "off"]).await;
    assert_eq!((second.code, second.stderr.lines().count()), (Some(75), 1), "{second:?}");
    assert!(second.stderr.contains(&format!("(pid {pid})")), "{second:?}");
    let id = gateway.accept("in", &Message::new("/help")).await;
    assert_eq!(gateway.wait_done("in", &id).await.text("status"), "done", "the first one was not disturbed");

    gateway.kill9().await;
    let left = std::fs::read_to_string(gateway.home().join("daoyou.lock")).unwrap();
    assert_eq!(left.trim(), pid.to_string());
    assert!(gateway.home().join("daoyou.sock").exists());
    gateway.recover().await;
    assert_ne!(gateway.pid(), pid);
    check(&gateway.database(), &Witness { accepted: &[id], ..Witness::default() });

    // The removal of the lock's file opens the home to nobody.
    std::fs::remove_file(gateway.home().join("daoyou.lock")).unwrap();
    let second = gateway.run(&["gateway", "--no-cli", "--log", "off"]).await;
    assert_eq!((second.code, second.stderr.lines().count()), (Some(75), 1), "{second:?}");
    assert!(second.stderr.contains("another gateway holds "), "{second:?}");
    gateway.stop().await;
    gateway.up().await;
}

/// An occupied port is reported in one line, and nothing stays half started.
#[tokio::test(flavor = "multi_thread")]
async fn an_occupied_port_ends_the_start() {
    let mut gateway = Gateway::new(Setup::new());
    let taken = std::net::TcpListener::bind(gateway.address()).unwrap();
    let ran = gateway.run(&["gateway", "--no-cli", "--log", "off"]).await;
    assert_eq!((ran.code, ran.stdout.as_str(), ran.stderr.lines().count()), (Some(1), "", 1), "{ran:?}");
    let words = ["gateway.listen", &gateway.address(), "another program listens there"];
    assert!(words.iter().all(|words| ran.stderr.contains(words)), "{ran:?}");
    assert!(!gateway.home().join("daoyou.sock").exists());
    assert_eq!(gateway.json(&["sessions", "list"]).await, serde_json::json!([]), "the home is free");
    drop(taken);
    gateway.up().await;
}

/// A plain turn waits for the disk when its message is accepted and when it ends. Its start and the mark `sending` do not wait.
#[tokio::test(flavor = "multi_thread")]
async fn a_turn_without_tools_waits_for_the_disk_twice() {
    let gateway = Gateway::start(Setup::new().hook(Hook::bearer("in"))).await;
    let synced_after_turns = async |count: usize| {
        for _ in 0..count {
            gateway.ask("in", "chat", "hello").await;
            wait_settled(&gateway.database()).await;
        }
        let page = scrape(&gateway).await;
        page.value("daoyou_store_commit_duration_seconds_count", &[("commit", "synced")]).unwrap()
    };
    let before = synced_after_turns(1).await;
    assert_eq!(synced_after_turns(3).await - before, 6.0);
}
