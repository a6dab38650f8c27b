//! Truncated files, and full or read-only disks at startup. The gateway starts nevertheless, reports the problem, and
//! recovers automatically.

use std::fs;

use serde_json::Value;

use crate::database_damage::{SmallDisk, file_length, send_large_messages, truncate};
use crate::support::gateway::{HttpAnswer, Message};
use crate::support::invariants::{open, wait_settled};
use crate::support::{Gateway, Hook, Setup, until};

const MESSAGES: u64 = 30;
const FILES: [&str; 3] = ["daoyou.db", "daoyou.db-wal", "daoyou.mark"];

async fn used_gateway() -> Gateway {
    let gateway = Gateway::start(Setup::new().hook(Hook::bearer("in"))).await;
    send_large_messages(&gateway, MESSAGES).await;
    gateway
}

/// Reads the files of a stopped gateway's store.
fn read_store_files(gateway: &Gateway) -> Vec<(&'static str, Option<Vec<u8>>)> {
    FILES.map(|name| (name, fs::read(gateway.home().join(name)).ok())).into()
}

fn write_store_files(gateway: &Gateway, files: &[(&'static str, Option<Vec<u8>>)]) {
    for entry in fs::read_dir(gateway.home()).unwrap() {
        let entry = entry.unwrap();
        if entry.file_name().to_string_lossy().starts_with("daoyou.") {
            fs::remove_file(entry.path()).unwrap();
        }
    }
    for (name, bytes) in files {
        if let Some(bytes) = bytes {
            fs::write(gateway.home().join(name), bytes).unwrap();
        }
    }
}

/// Adds unused pages at the end. No start reads them, but the first message that needs space does.
fn with_free_pages(gateway: &Gateway) {
    let connection = rusqlite::Connection::open(gateway.database()).unwrap();
    let free = "CREATE TABLE gone (x); INSERT INTO gone VALUES (zeroblob(40000)); DROP TABLE gone";
    connection.execute_batch(free).unwrap();
    connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
}

/// Returns positions at which to cut a file of `length` bytes: the header, the first pages with the schema, the
/// middle, the last page.
fn cut_positions(length: u64) -> Vec<u64> {
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut cuts = vec![
        1,
        50,
        100,
        4_095,
        4_097,
        3 * 4_096 + 17,
        length / 2,
        length - 4_096,
        length - 4_096 - 1_000,
        length - 4_095,
        length - 1,
    ];
    cuts.extend((0..4).map(|_| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % length
    }));
    cuts
}

/// Wherever the database is cut, the first start answers a message, keeps the file, and reports the exact number of lost messages.
#[tokio::test(flavor = "multi_thread")]
async fn a_truncated_database_starts_and_reports_exact_losses() {
    for state in ["stopped", "killed", "free pages"] {
        let mut gateway = used_gateway().await;
        match state {
            "killed" => gateway.kill9().await,
            _ => gateway.stop().await,
        }
        if state == "free pages" {
            with_free_pages(&gateway);
        }
        let sound = read_store_files(&gateway);
        for keep in cut_positions(file_length(&gateway.database())) {
            let what = format!("{state}, cut to {keep}");
            write_store_files(&gateway, &sound);
            truncate(&gateway.database(), keep);
            let damaged = fs::read(gateway.database()).unwrap();
            gateway.up().await;
            assert!(gateway.ask("in", "new", "/help").await.contains("/new"), "{what}");
            let status = gateway.json(&["status"]).await;
            let losses = status["losses"].as_array().unwrap();
            let lost: u64 = losses.iter().map(|loss| loss["messages"].as_u64().unwrap()).sum();
            let left: u64 = open(&gateway.database())
                .unwrap()
                .query_row("SELECT count(*) FROM inbox", [], |row| row.get(0))
                .unwrap();
            assert_eq!(left, MESSAGES - lost + 1, "{what}: {losses:?}");
            for loss in losses {
                let words = loss["what"].as_str().unwrap();
                assert!(gateway.logs().contains(words), "{what}: the log is silent on {words}");
                let aside = loss["aside"][0].as_str().map(|name| fs::read(gateway.home().join(name)).unwrap());
                assert!(aside.is_none_or(|aside| aside == damaged), "{what}: kept as it was");
            }
            // With a WAL, pages that the WAL replaces are not lost.
            assert!(!losses.is_empty() || state == "killed", "{what}: nothing is said");
            gateway.stop().await;
        }
    }
}

async fn get(gateway: &Gateway, path: &str) -> HttpAnswer {
    Gateway::try_send(gateway.client.get(gateway.url(path))).await.expect("an answer")
}

/// Runs a command without rewriting `config.toml`, which would need disk space.
async fn run_command(gateway: &Gateway, args: &[&str]) -> (Option<i32>, String) {
    let output = gateway.command(args).output().await.expect("the program starts");
    (output.status.code(), String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap())
}

/// Asserts that the gateway is alive, reports `why` everywhere, and accepts no message.
async fn check_read_only(gateway: &mut Gateway, why: &str) {
    gateway.wait_alive().await;
    let alive = get(gateway, "/healthz").await;
    assert_eq!((alive.status, alive.text("status"), alive.text("reason")), (200, "read-only", why), "{alive:?}");
    let ready = get(gateway, "/readyz").await;
    assert_eq!((ready.status, ready.text("status"), ready.text("reason")), (503, "read-only", why), "{ready:?}");
    let refused = gateway.post("in", "", &Message::new("/help").id("early")).await;
    assert_eq!((refused.status, refused.retry_after.is_some()), (503, true), "{refused:?}");
    assert!(refused.body["error"]["message"].as_str().unwrap().contains(why), "{refused:?}");
    let (code, doctor) = run_command(gateway, &["doctor"]).await;
    assert!(
        code == Some(1) && ["is full", "no free inodes", "read-only"].iter().any(|expected| doctor.contains(expected)),
        "{doctor}"
    );
    assert!(gateway.logs().contains(why), "the log is silent");
}

/// Asserts that the same process accepts and answers messages again without help. Until then, each sender is asked to retry.
async fn check_recovers(gateway: &Gateway, pid: u32) {
    let accepted = until("a message to be accepted", async || {
        let sent = gateway.try_post("in", "", &Message::new("/help").id("early")).await;
        // A connection that is open while one server takes over from the other may break.
        let sent = sent?;
        assert!(matches!(sent.status, 202 | 503), "{sent:?}");
        (sent.status == 202).then_some(sent)
    });
    let accepted = accepted.await;
    assert_eq!(gateway.wait_done("in", accepted.text("id")).await.text("status"), "done");
    assert_eq!((get(gateway, "/readyz").await.status, gateway.pid()), (200, pid));
    assert_eq!(get(gateway, "/healthz").await.text("status"), "ok");
    assert_eq!(run_command(gateway, &["queue", "list"]).await.0, Some(0));
}

/// Creates a gateway whose home is a separate small disk. `before` names what exists before the disk is full.
async fn gateway_on_small_disk(before: &str) -> Option<(Gateway, SmallDisk)> {
    let mut gateway = Gateway::new(Setup::new().hook(Hook::bearer("in")).set("store.reserve", "0B"));
    gateway.write_config();
    let disk = SmallDisk::mount(&gateway.home())?;
    if before != "nothing" {
        gateway.up().await;
        for n in 0..20 {
            gateway.accept("in", &Message::new(&format!("/help {}", "x".repeat(9_000))).id(&format!("m{n}"))).await;
        }
        wait_settled(&gateway.database()).await;
        match before {
            "a killed gateway" => gateway.kill9().await,
            _ => gateway.stop().await,
        }
    }
    gateway.write_config();
    Some((gateway, disk))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_at_startup_is_waited_out() {
    const FULL: &str = "the disk that holds the home is full";
    for before in ["nothing", "a database", "a killed gateway", "a damaged database"] {
        let Some((mut gateway, disk)) = gateway_on_small_disk(before).await else { return };
        if before == "a damaged database" {
            truncate(&gateway.database(), file_length(&gateway.database()) - 4_095);
        }
        // Repairing a database needs far more space than a normal start.
        disk.fill(if before == "a damaged database" { 100_000 } else { 0 });
        gateway.launch();
        if before == "a killed gateway" {
            // Its files have enough space at first; it then refuses messages as usual.
            gateway.wait_alive().await;
            let refused = gateway.post("in", "", &Message::new(&"/help ".repeat(20_000)).id("large")).await;
            assert_eq!((refused.status, refused.retry_after.is_some()), (503, true), "{refused:?}");
        } else {
            check_read_only(&mut gateway, FULL).await;
            let (code, status) = run_command(&gateway, &["status"]).await;
            assert!(code == Some(0) && status.contains("takes no messages") && status.contains(FULL), "{status}");
            // No other gateway can start in this home, and commands get an explanation.
            let (code, second) = run_command(&gateway, &["gateway", "--no-cli"]).await;
            let pid = format!("(pid {})", gateway.pid());
            assert!(code == Some(75) && (before == "nothing" || second.contains(&pid)), "{second}");
            let (code, list) = run_command(&gateway, &["queue", "list"]).await;
            assert!(code == Some(1) && list.contains(FULL) && list.lines().count() == 1, "{list}");
        }
        let pid = gateway.pid();
        disk.clear();
        check_recovers(&gateway, pid).await;
        let status = gateway.json(&["status"]).await;
        let expected =
            status["losses"].as_array().unwrap().iter().any(|loss| loss["what"].to_string().contains("damaged"));
        assert_eq!(expected, before == "a damaged database", "{status}");
        gateway.stop().await;
    }
}

/// Without a gateway, commands read a home on a full disk, back it up to another disk, and name the full one.
#[tokio::test(flavor = "multi_thread")]
async fn commands_read_a_home_on_a_full_disk() {
    const FULL: &str = "the disk that holds the home is full";
    for before in ["a database", "a killed gateway"] {
        let Some((gateway, disk)) = gateway_on_small_disk(before).await else { return };
        disk.fill(0);
        for args in [&["status"][..], &["queue", "list"], &["sessions", "list"]] {
            let (code, said) = run_command(&gateway, args).await;
            assert!(code == Some(0) && !said.contains("I/O"), "{before}, {args:?}: {said}");
        }
        let other = tempfile::tempdir().unwrap();
        let (code, said) = run_command(&gateway, &["backup", other.path().join("b.tar").to_str().unwrap()]).await;
        assert_eq!(code, Some(0), "{before}: {said}");
        let target = gateway.home().join("b.tar");
        let (code, said) = run_command(&gateway, &["backup", target.to_str().unwrap()]).await;
        let expected = format!("{} cannot be written", target.display());
        assert!(code == Some(1) && said.contains(&expected) && !said.contains("daoyou.db"), "{before}: {said}");
        if before == "a database" {
            let (code, said) = run_command(&gateway, &["memory", "add", "The cat is called Momo"]).await;
            assert!(code == Some(1) && said.contains(FULL), "{said}");
        }
    }
}

/// No file can be created: no lock, no token, no socket.
#[tokio::test(flavor = "multi_thread")]
async fn a_disk_without_free_inodes_is_waited_out() {
    for inodes in [3, 4, 5, 6] {
        let Some((mut gateway, disk)) = gateway_on_small_disk("nothing").await else { return };
        disk.remount(&format!("nr_inodes={inodes}"));
        gateway.launch();
        check_read_only(&mut gateway, "the disk that holds the home is full").await;
        let pid = gateway.pid();
        disk.remount("nr_inodes=1000");
        check_recovers(&gateway, pid).await;
        gateway.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_only_home_is_waited_out() {
    for before in ["nothing", "a database"] {
        let Some((mut gateway, disk)) = gateway_on_small_disk(before).await else { return };
        disk.remount("ro");
        gateway.launch();
        check_read_only(&mut gateway, "the home is on a read-only file system").await;
        // There is neither lock nor socket: the gateway is found by its address.
        let (code, status) = run_command(&gateway, &["status"]).await;
        assert!(code == Some(0) && status.contains("up, read-only") && !status.contains("down"), "{status}");
        let (_, doctor) = run_command(&gateway, &["doctor"]).await;
        let line = format!("it answers at {}, but takes no messages: the home is on a read-only", gateway.address());
        assert!(doctor.contains(&line) && !doctor.contains("already in use"), "{doctor}");
        let pid = gateway.pid();
        disk.remount("rw");
        check_recovers(&gateway, pid).await;
        let status: Value = gateway.json(&["status"]).await;
        assert_eq!(status["losses"], serde_json::json!([]));
        gateway.stop().await;
    }
}

/// The gateway stops on request while it waits.
#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_that_waits_for_disk_space_stops_on_request() {
    let Some((mut gateway, disk)) = gateway_on_small_disk("nothing").await else { return };
    disk.fill(0);
    gateway.launch();
    gateway.wait_alive().await;
    gateway.stop().await;
    assert!(!gateway.home().join("daoyou.sock").exists() && !gateway.home().join("daoyou.trial").exists());
    drop(disk);
}
