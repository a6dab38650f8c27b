//! Damage to a database from outside: its WAL is gone, a bit flips, a block is overwritten, the disk is full. The gateway
//! starts, reports the losses, keeps everything readable, and accepts new messages.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::support::gateway::Message;
use crate::support::invariants::{open, wait_settled};
use crate::support::requirements::skip_story;
use crate::support::{Gate, Gateway, Hook, Model, Reply, Setup, Sink, until};

const MESSAGES: usize = 40;

/// Starts a gateway that has answered [`MESSAGES`] messages named `m0` and so on. It reports losses to the sink.
async fn used_gateway(sink: &Sink) -> Gateway {
    let setup = Setup::new().hook(Hook::bearer("in")).hook(Hook::bearer("notes").callback(sink));
    let mut gateway = Gateway::start(setup.set("owner.notify", "webhook:notes:owner")).await;
    send_large_messages(&gateway, MESSAGES as u64).await;
    gateway.setup().args = vec!["--log".to_owned(), "info".to_owned()];
    gateway
}

/// Sends `count` large messages named `m0` and so on, which fill pages, and waits until they are answered.
pub async fn send_large_messages(gateway: &Gateway, count: u64) {
    for n in 0..count {
        let message = format!("/help {}", "x".repeat(3_000));
        gateway.accept("in", &Message::new(&message).chat(&format!("c{}", n % 5)).id(&format!("m{n}"))).await;
    }
    wait_settled(&gateway.database()).await;
}

fn log_of(gateway: &Gateway) -> PathBuf {
    gateway.home().join("daoyou.db-wal")
}

pub fn file_length(path: &Path) -> u64 {
    fs::metadata(path).unwrap().len()
}

fn write_at(path: &Path, at: u64, bytes: &[u8]) {
    File::options().write(true).open(path).unwrap().write_all_at(bytes, at).unwrap();
}

pub fn truncate(path: &Path, to: u64) {
    File::options().write(true).open(path).unwrap().set_len(to).unwrap();
}

/// Returns how many of the messages are known. Unknown messages are accepted again, and all are answered.
async fn count_known(gateway: &Gateway) -> usize {
    let mut known = 0;
    for n in 0..MESSAGES {
        let sent = gateway.post("in", "", &Message::new("/help").chat("c").id(&format!("m{n}"))).await;
        assert_eq!(sent.status, 202, "{sent:?}");
        known += usize::from(sent.text("status") == "duplicate");
        assert_eq!(gateway.wait_done("in", sent.text("id")).await.text("status"), "done");
    }
    known
}

/// Returns the losses that `status` reports: the number of messages, and the text.
async fn losses(gateway: &Gateway) -> (usize, String) {
    let status = gateway.json(&["status"]).await;
    let losses = status["losses"].as_array().unwrap();
    let count = losses.iter().map(|loss| loss["messages"].as_u64().unwrap()).sum::<u64>();
    let words = losses.iter().map(|loss| loss["what"].as_str().unwrap()).collect::<Vec<_>>().join("\n");
    (usize::try_from(count).unwrap(), words)
}

/// Asserts that after a start the losses are in the log, in `status` until acknowledged, and in one message to the owner;
/// that all other messages are known; and that no number repeats.
async fn check_losses_reported(gateway: &mut Gateway, sink: &Sink, expected: Option<usize>) -> String {
    let (missing, words) = losses(gateway).await;
    let notices = sink.wait_posts(1).await;
    assert!(notices[0].data("content").contains(words.as_str()), "{:?}: {words}", notices[0].data("content"));
    assert!(gateway.logs().contains(words.as_str()), "the log is silent on: {words}");
    assert_eq!(count_known(gateway).await, MESSAGES - missing, "{words}");
    assert!(expected.is_none_or(|expected| expected == missing), "{missing} lost: {words}");
    let seqs = "SELECT min(seq) FROM inbox WHERE seq > ?1";
    let first: Option<usize> =
        open(&gateway.database()).unwrap().query_row(seqs, [MESSAGES], |row| row.get(0)).unwrap();
    assert_eq!(first, (missing > 0).then_some(MESSAGES + 1), "{words}");
    let human = gateway.run(&["status"]).await;
    let label = human.stdout.contains("LOST ") || missing == 0 && human.stdout.contains("repaired ");
    assert!(label && human.stdout.contains(&words), "{human:?}");

    let put_away = gateway.json(&["status", "--acknowledge"]).await;
    assert_eq!(put_away, json!({"acknowledged": 1}));
    gateway.stop().await;
    gateway.up().await;
    assert_eq!(losses(gateway).await.1, "", "said once");
    assert_eq!(sink.posts().len(), 1, "told once");
    words
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_truncated_or_damaged_wal_is_detected_and_counted() {
    type Damage = fn(&Path);
    let table: [(&str, Damage, Option<usize>, &str); 3] = [
        (
            "gone",
            |log| fs::remove_file(log).unwrap(),
            Some(40),
            "40 accepted messages are missing from the database (seq 1–40): ",
        ),
        ("cut short", |log| truncate(log, file_length(log) / 2), None, "accepted messages are missing"),
        // SQLite would drop everything after it; daoyou reads on.
        (
            "a flipped bit",
            |log| {
                let at = file_length(log) / 3 / 4_120 * 4_120 + 32 + 24 + 1_000;
                let mut byte = [0];
                File::open(log).unwrap().read_exact_at(&mut byte, at).unwrap();
                write_at(log, at, &[byte[0] ^ 16]);
            },
            Some(0),
            "no accepted message is missing",
        ),
    ];
    for (what, damage, expected, words) in table {
        let sink = Sink::signed().await;
        let mut gateway = used_gateway(&sink).await;
        gateway.kill9().await;
        damage(&log_of(&gateway));
        gateway.up().await;
        let text = check_losses_reported(&mut gateway, &sink, expected).await;
        println!("{what}: {text}");
        assert!(text.contains(words), "{what}: {text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_database_is_moved_aside_and_salvaged() {
    type Damage = fn(&Path);
    let table: [(&str, Damage, Option<usize>); 5] = [
        (
            "the second half overwritten",
            |path| write_at(path, file_length(path) / 8 * 4, &vec![0xa5; 30 * 4_096]),
            None,
        ),
        ("cut by a sixth", |path| truncate(path, file_length(path) / 6 * 5), None),
        ("a garbage header", |path| write_at(path, 0, &[0x5a; 100]), Some(0)),
        ("a garbage first page", |path| write_at(path, 0, &[0x5a; 4_096]), Some(0)),
        ("notes", |path| fs::write(path, "these are my notes, not a database\n".repeat(200)).unwrap(), Some(40)),
    ];
    for (what, damage, expected) in table {
        let sink = Sink::signed().await;
        let mut gateway = used_gateway(&sink).await;
        gateway.stop().await;
        damage(&gateway.database());
        let damaged = fs::read(gateway.database()).unwrap();
        gateway.up().await;
        let status = gateway.json(&["status"]).await;
        let aside = status["losses"][0]["aside"][0].as_str().expect("a name").to_owned();
        assert!(aside.starts_with("daoyou.db.corrupt-"), "{aside}");
        assert!(fs::read(gateway.home().join(&aside)).unwrap() == damaged, "{what}: kept as it was");
        assert!(expected != Some(0) || status["losses"][0]["whole"] == true, "{what}: nothing is missing: {status}");
        let text = check_losses_reported(&mut gateway, &sink, expected).await;
        println!("{what}: {text}");
        let all = expected.is_none() && text.contains(&format!("{MESSAGES} accepted messages are missing"));
        assert!(!all, "{what}: something can be read: {text}");
    }
    // An empty file without a WAL is a database that was deleted.
    let sink = Sink::signed().await;
    let mut gateway = used_gateway(&sink).await;
    gateway.stop().await;
    truncate(&gateway.database(), 0);
    gateway.up().await;
    check_losses_reported(&mut gateway, &sink, Some(40)).await;
}

/// Damage found by a running gateway ends the gateway, and the next start repairs the database.
#[tokio::test(flavor = "multi_thread")]
async fn damage_found_at_run_time_is_repaired_at_the_next_start() {
    let sink = Sink::signed().await;
    let mut gateway = used_gateway(&sink).await;
    gateway.stop().await;
    gateway.up().await;
    let path = gateway.database();
    write_at(&path, file_length(&path) / 8 * 4, &vec![0xa5; 30 * 4_096]);
    let listed = gateway.run(&["turns", "list"]).await;
    assert_eq!(listed.code, Some(1), "{listed:?}");
    assert_eq!(gateway.wait_exit().await.code(), Some(1), "{}", gateway.logs());
    gateway.up().await;
    check_losses_reported(&mut gateway, &sink, None).await;
}

/// Read-only commands change nothing and say what to do.
#[tokio::test(flavor = "multi_thread")]
async fn a_command_leaves_a_damaged_database_unchanged() {
    let sink = Sink::signed().await;
    let mut gateway = used_gateway(&sink).await;
    gateway.stop().await;
    write_at(&gateway.database(), 0, &[0x5a; 100]);
    let damaged = fs::read(gateway.database()).unwrap();
    for args in [&["queue", "list"][..], &["status"], &["backup", "b.tar"]] {
        let ran = gateway.run(args).await;
        assert_eq!((ran.code, ran.stderr.lines().count()), (Some(1), 1), "{args:?}: {ran:?}");
        assert!(ran.stderr.contains("is damaged") && ran.stderr.contains("daoyou restore FILE"), "{ran:?}");
        assert!(fs::read(gateway.database()).unwrap() == damaged, "{args:?} changed it");
    }
}

/// A separate small file system, removed when dropped.
pub struct SmallDisk(PathBuf);

impl SmallDisk {
    /// Mounts the file system; if mounting is not permitted, skips the story and returns `None`.
    pub fn mount(at: &Path) -> Option<Self> {
        let mut mount = Command::new("mount");
        let mounted = mount.args(["-t", "tmpfs", "-o", "size=8m,mode=700", "tmpfs"]).arg(at).output();
        if !mounted.is_ok_and(|mounted| mounted.status.success()) {
            skip_story("nothing may be mounted here (needs root)");
            return None;
        }
        Some(Self(at.to_owned()))
    }

    /// Changes the mount options.
    pub fn remount(&self, options: &str) {
        let mounted = Command::new("mount").args(["-o", &format!("remount,{options}")]).arg(&self.0).status();
        assert!(mounted.is_ok_and(|status| status.success()), "remount,{options}");
    }

    /// Fills the disk up to `free` bytes.
    pub fn fill(&self, free: u64) {
        let stat = rustix::fs::statvfs(&self.0).unwrap();
        let room = (stat.f_bavail * stat.f_frsize).saturating_sub(free);
        let written = fs::write(self.ballast(), vec![1; usize::try_from(room).unwrap()]);
        // The gateway may write at the same time, so less may remain.
        assert!(
            written.as_ref().err().is_none_or(|error| error.kind() == std::io::ErrorKind::StorageFull),
            "{written:?}"
        );
    }

    fn ballast(&self) -> PathBuf {
        self.0.join("ballast")
    }

    pub fn clear(&self) {
        fs::remove_file(self.ballast()).unwrap();
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        if !Command::new("umount").arg("-l").arg(&self.0).status().is_ok_and(|status| status.success()) {
            println!("{} stays mounted", self.0.display());
        }
    }
}

/// Below the reserve nothing is accepted, and accepted messages are answered from the reserve. With no space at all the
/// gateway waits, and recovers automatically when there is space again.
#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_refuses_new_messages_and_keeps_accepted_ones() {
    for (reserve, free) in [("2MB", 1_000_000), ("0B", 0)] {
        let model = Model::start().await;
        let gate = Gate::new();
        model.on("held", [Reply::text("answered all the same").held_by(&gate)]);
        let setup = Setup::scripted(&model).set("store.reserve", reserve);
        let mut gateway = Gateway::new(setup);
        gateway.write_config();
        let Some(disk) = SmallDisk::mount(&gateway.home()) else { return };
        gateway.up().await;
        gateway.ask("in", "a", "before").await;
        let held = gateway.accept("in", &Message::new("held").chat("b")).await;
        gate.wait_arrived(1).await;
        disk.fill(free);
        let refused = until("a message to be refused", async || {
            let sent = gateway.post("in", "", &Message::new(&"more ".repeat(2_000)).chat("c")).await;
            (sent.status != 202).then_some(sent)
        });
        let refused = refused.await;
        assert_eq!((refused.status, refused.retry_after.is_some()), (503, true), "{refused:?}");
        if reserve != "0B" {
            let ready = Gateway::try_send(gateway.client.get(gateway.url("/readyz"))).await.unwrap();
            assert_eq!((ready.status, ready.text("status")), (503, "degraded"), "{ready:?}");
        } else {
            let prompt = "x".repeat(20_000);
            for args in
                [&["cron", "add", "--every", "1h", "--prompt", &prompt][..], &["sessions", "clear", "webhook:in:a"]]
            {
                let output = gateway.command(args).output().await.unwrap();
                let said = String::from_utf8(output.stderr).unwrap();
                assert!(
                    !output.status.success() && said.contains("the disk that holds the home is full"),
                    "{args:?}: {said}"
                );
            }
        }
        gate.open();
        if reserve == "0B" {
            let waits = || gateway.logs().contains("could not be");
            until("the end to wait for room", async || waits().then_some(())).await;
            disk.clear();
        }
        let done = gateway.wait_done("in", &held).await;
        assert_eq!(done.body["reply"], Value::from("answered all the same"), "{done:?}");
        if reserve != "0B" {
            disk.clear();
        }
        gateway.ask("in", "d", "after").await;
        gateway.restart().await;
        wait_settled(&gateway.database()).await;
        assert_eq!(losses(&gateway).await.1, "");
        let ready = Gateway::try_send(gateway.client.get(gateway.url("/readyz"))).await.unwrap();
        assert_eq!(ready.status, 200, "{ready:?}");
        gateway.stop().await;
    }
}

/// A database file that is deleted under a running gateway: nothing more is accepted, the owner is told, no backup replaces a good
/// one, and everything that was accepted is in a copy that can take the place of the file.
#[tokio::test(flavor = "multi_thread")]
async fn a_database_deleted_under_the_gateway_is_noticed_and_rescued() {
    const GONE: &str = "the database file was deleted or replaced while the gateway runs";
    let sink = Sink::signed().await;
    let setup = Setup::new().hook(Hook::bearer("in")).hook(Hook::bearer("notes").callback(&sink));
    // The gateway looks at its database as often as at its heartbeat.
    let setup = setup.set("owner.notify", "webhook:notes:owner").set("heartbeat.every", "1s");
    let mut gateway = Gateway::start(setup).await;
    send_large_messages(&gateway, 3).await;
    assert_eq!(gateway.run(&["backup", "b.tar"]).await.code, Some(0));
    let archive = gateway.home().with_file_name("b.tar");
    let good = fs::read(&archive).unwrap();
    for name in ["daoyou.db", "daoyou.db-wal", "daoyou.db-shm"] {
        fs::remove_file(gateway.home().join(name)).unwrap();
    }
    let sent = gateway.post("in", "", &Message::new("/help").id("late")).await;
    assert_eq!((sent.status, sent.body["error"]["code"].as_str()), (503, Some("store")), "{sent:?}");
    let ready = Gateway::try_send(gateway.client.get(gateway.url("/readyz"))).await.unwrap();
    assert_eq!((ready.status, &ready.body["parts"]["intake"]), (503, &json!(GONE)));
    assert!(gateway.run(&["status"]).await.stdout.contains(GONE));
    let doctor = gateway.run(&["doctor", "--json"]).await;
    let report: Value = serde_json::from_str(&doctor.stdout).unwrap();
    let is_failed = |name: &str| {
        report["checks"].as_array().unwrap().iter().any(|check| check["name"] == name && check["state"] == "fail")
    };
    assert!(is_failed("gateway") && is_failed("database"), "{report:#}");
    gateway.run(&["backup", "b.tar", "--force"]).await.assert_refused("no backup was written");
    assert!(fs::read(&archive).unwrap() == good, "the former backup was left alone");
    // `doctor` calls the address as well.
    let notices = || sink.posts().iter().filter(|post| post.data("content").contains("daoyou.db.rescued-")).count();
    until("the notice", async || (notices() == 1).then_some(())).await;

    gateway.stop().await;
    let names = fs::read_dir(gateway.home()).unwrap().map(|entry| entry.unwrap().path());
    let copies: Vec<_> = names.filter(|path| path.display().to_string().contains(".rescued-")).collect();
    assert!(matches!(&copies[..], [_]), "{copies:?}");
    fs::rename(&copies[0], gateway.database()).unwrap();
    gateway.up().await;
    assert_eq!(losses(&gateway).await, (0, String::new()));
    for n in 0..3 {
        let sent = gateway.post("in", "", &Message::new("/help").chat("c").id(&format!("m{n}"))).await;
        assert_eq!(sent.text("status"), "duplicate", "m{n}: {sent:?}");
    }
    assert_eq!(notices(), 1, "told once");
}

/// How the owner deals with a deleted database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DeletedDatabase {
    /// The owner stops the gateway and does what the notice says.
    Stopped,
    /// The gateway is killed, and the owner does what the notice says.
    Killed,
    /// The gateway is killed, and the owner leaves the log of the deleted database beside the renamed copy.
    LogLeft,
}

/// The copy of a deleted database takes its place as the notice says: sessions, jobs, memories and messages are complete, and the log
/// of the deleted file changes nothing in it.
#[tokio::test(flavor = "multi_thread")]
async fn the_copy_of_a_deleted_database_takes_its_place_as_the_notice_says() {
    const LOGS: [&str; 2] = ["daoyou.db-wal", "daoyou.db-shm"];
    for case in [DeletedDatabase::Stopped, DeletedDatabase::Killed, DeletedDatabase::LogLeft] {
        let sink = Sink::signed().await;
        let setup = Setup::new().hook(Hook::bearer("in")).hook(Hook::bearer("notes").callback(&sink));
        let setup = setup.set("owner.notify", "webhook:notes:owner").set("heartbeat.every", "1s");
        let mut gateway = Gateway::start(setup).await;
        send_large_messages(&gateway, 30).await;
        gateway.json(&["memory", "add", "The cat is called Momo"]).await;
        let job = ["cron", "add", "--every", "12h", "--prompt", "x", "--channel", "webhook:notes", "--chat", "c0"];
        gateway.json(&job).await;
        let before = contents(&gateway).await;
        fs::remove_file(gateway.database()).unwrap();
        let posts = || sink.posts().into_iter().map(|post| post.data("content").to_owned());
        let notice = until("the notice", async || posts().find(|text| text.contains("daoyou.db.rescued-"))).await;
        assert!(LOGS.iter().all(|log| notice.contains(log)), "{notice}");

        if case == DeletedDatabase::Stopped {
            gateway.stop().await;
        } else {
            gateway.kill9().await;
        }
        for log in LOGS.map(|log| gateway.home().join(log)) {
            assert_eq!(log.exists(), case != DeletedDatabase::Stopped, "{case:?}: {}", log.display());
            if case == DeletedDatabase::Killed {
                fs::remove_file(log).unwrap();
            }
        }
        let home = gateway.home();
        let names = || fs::read_dir(&home).unwrap().map(|entry| entry.unwrap().path());
        let found = |word: &str| names().filter(|path| path.display().to_string().contains(word)).collect::<Vec<_>>();
        let copies = found(".rescued-");
        assert!(matches!(&copies[..], [_]), "{copies:?}");
        fs::rename(&copies[0], gateway.database()).unwrap();
        let doctor = gateway.run(&["doctor"]).await.stdout;
        assert!(doctor.contains("ok    database  "), "{case:?}: {doctor}");
        gateway.up().await;
        assert_eq!(contents(&gateway).await, before, "{case:?}");
        assert_eq!(losses(&gateway).await, (0, String::new()), "{case:?}");
        let left = (found(".corrupt-").len(), found("daoyou.db-wal.stale-").len());
        assert_eq!(left, (0, usize::from(case != DeletedDatabase::Killed)), "{case:?}");
        gateway.stop().await;
    }
}

/// Returns the sessions, jobs and memories of a gateway.
async fn contents(gateway: &Gateway) -> [Value; 3] {
    [
        gateway.json(&["sessions", "list"]).await,
        gateway.json(&["cron", "list"]).await,
        gateway.json(&["memory", "show"]).await,
    ]
}
