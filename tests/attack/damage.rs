//! Files that are cut anywhere, and disks that are full, or cannot be written, when the gateway starts: it starts all the
//! same, says what is wrong, and goes on by itself.

use std::fs::{self, File};
use std::path::Path;

use serde_json::Value;

use crate::damage::SmallDisk;
use crate::support::gateway::{Answered, Message};
use crate::support::invariants::{open, wait_settled};
use crate::support::{Gateway, Hook, Setup, until};

const MESSAGES: u64 = 30;
const FILES: [&str; 3] = ["daoyou.db", "daoyou.db-wal", "daoyou.mark"];

async fn lived() -> Gateway {
    let gateway = Gateway::start(Setup::new().hook(Hook::bearer("in"))).await;
    for n in 0..MESSAGES {
        let said = format!("/help {}", "x".repeat(3_000));
        gateway.accept("in", &Message::new(&said).chat(&format!("c{}", n % 5)).id(&format!("m{n}"))).await;
    }
    wait_settled(&gateway.database()).await;
    gateway
}

fn length(path: &Path) -> u64 {
    fs::metadata(path).unwrap().len()
}

fn cut(path: &Path, keep: u64) {
    File::options().write(true).open(path).unwrap().set_len(keep).unwrap();
}

/// The files of a stopped gateway's store.
fn saved(gateway: &Gateway) -> Vec<(&'static str, Option<Vec<u8>>)> {
    FILES.map(|name| (name, fs::read(gateway.home().join(name)).ok())).into()
}

fn put_back(gateway: &Gateway, files: &[(&'static str, Option<Vec<u8>>)]) {
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

/// The last pages belong to nothing: no start reads them, and the first message that needs room does.
fn with_free_pages(gateway: &Gateway) {
    let connection = rusqlite::Connection::open(gateway.database()).unwrap();
    let free = "CREATE TABLE gone (x); INSERT INTO gone VALUES (zeroblob(40000)); DROP TABLE gone";
    connection.execute_batch(free).unwrap();
    connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
}

/// Places to cut a file of `length` bytes: the header, the first pages with the schema, the middle, the last page.
fn cuts(length: u64) -> Vec<u64> {
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

/// Wherever the database ends: the first start answers a message, keeps the file, and says how many are lost, exactly.
#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_is_cut_anywhere_starts_answers_and_says_what_is_lost() {
    for world in ["stopped", "killed", "free pages"] {
        let mut gateway = lived().await;
        match world {
            "killed" => gateway.kill9().await,
            _ => gateway.stop().await,
        }
        if world == "free pages" {
            with_free_pages(&gateway);
        }
        let sound = saved(&gateway);
        for keep in cuts(length(&gateway.database())) {
            let what = format!("{world}, cut to {keep}");
            put_back(&gateway, &sound);
            cut(&gateway.database(), keep);
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
                let kept = loss["aside"][0].as_str().map(|name| fs::read(gateway.home().join(name)).unwrap());
                assert!(kept.is_none_or(|kept| kept == damaged), "{what}: kept as it was");
            }
            // With its log, pages of the file that the log replaces are no loss.
            assert!(!losses.is_empty() || world == "killed", "{what}: nothing is said");
            gateway.stop().await;
        }
    }
}

async fn get(gateway: &Gateway, path: &str) -> Answered {
    Gateway::try_send(gateway.client.get(gateway.url(path))).await.expect("an answer")
}

/// A command that leaves `config.toml` as it is: no room must be made on the disk by writing it anew.
async fn ran(gateway: &Gateway, args: &[&str]) -> (Option<i32>, String) {
    let output = gateway.command(args).output().await.expect("the program starts");
    (output.status.code(), String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap())
}

/// The gateway lives, says `why` wherever one asks, and takes nothing.
async fn check_read_only(gateway: &mut Gateway, why: &str) {
    gateway.wait_alive().await;
    let alive = get(gateway, "/healthz").await;
    assert_eq!((alive.status, alive.text("status"), alive.text("reason")), (200, "read-only", why), "{alive:?}");
    let ready = get(gateway, "/readyz").await;
    assert_eq!((ready.status, ready.text("status"), ready.text("reason")), (503, "read-only", why), "{ready:?}");
    let refused = gateway.post("in", "", &Message::new("/help").id("early")).await;
    assert_eq!((refused.status, refused.retry_after.is_some()), (503, true), "{refused:?}");
    assert!(refused.body["error"]["message"].as_str().unwrap().contains(why), "{refused:?}");
    let (code, doctor) = ran(gateway, &["doctor"]).await;
    assert!(
        code == Some(1) && ["is full", "no free inodes", "read-only"].iter().any(|said| doctor.contains(said)),
        "{doctor}"
    );
    assert!(gateway.logs().contains(why), "the log is silent");
}

/// The same process takes and answers a message by itself; until then each sender is told to come again.
async fn check_goes_on(gateway: &Gateway, pid: u32) {
    let accepted = until("a message to be accepted", async || {
        let sent = gateway.try_post("in", "", &Message::new("/help").id("early")).await;
        // A connection that is just being made while one server takes over from the other may be cut.
        let sent = sent?;
        assert!(matches!(sent.status, 202 | 503), "{sent:?}");
        (sent.status == 202).then_some(sent)
    });
    let accepted = accepted.await;
    assert_eq!(gateway.wait_done("in", accepted.text("id")).await.text("status"), "done");
    assert_eq!((get(gateway, "/readyz").await.status, gateway.pid()), (200, pid));
    assert_eq!(get(gateway, "/healthz").await.text("status"), "ok");
    assert_eq!(ran(gateway, &["queue", "list"]).await.0, Some(0));
}

/// A gateway whose home is a small disk of its own, and what there is before the disk is full.
async fn small(before: &str) -> Option<(Gateway, SmallDisk)> {
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
async fn a_disk_that_is_full_at_the_start_is_waited_for() {
    const FULL: &str = "the disk that holds the home is full";
    for before in ["nothing", "a database", "a killed gateway", "a damaged database"] {
        let Some((mut gateway, disk)) = small(before).await else { return };
        if before == "a damaged database" {
            cut(&gateway.database(), length(&gateway.database()) - 4_095);
        }
        // To be mended, a database needs far more than a start writes otherwise.
        disk.fill(if before == "a damaged database" { 100_000 } else { 0 });
        gateway.launch();
        if before == "a killed gateway" {
            // Its files have room enough to begin in; it refuses then as it does at any time.
            gateway.wait_alive().await;
            let refused = gateway.post("in", "", &Message::new(&"/help ".repeat(20_000)).id("large")).await;
            assert_eq!((refused.status, refused.retry_after.is_some()), (503, true), "{refused:?}");
        } else {
            check_read_only(&mut gateway, FULL).await;
            let (code, status) = ran(&gateway, &["status"]).await;
            assert!(code == Some(0) && status.contains("takes no messages") && status.contains(FULL), "{status}");
            // Nothing else can start in this home meanwhile, and commands are told why they get nothing.
            assert_eq!(ran(&gateway, &["gateway", "--no-cli"]).await.0, Some(75));
            let (code, list) = ran(&gateway, &["queue", "list"]).await;
            assert!(code == Some(1) && list.contains(FULL) && list.lines().count() == 1, "{list}");
        }
        let pid = gateway.pid();
        disk.clear();
        check_goes_on(&gateway, pid).await;
        let status = gateway.json(&["status"]).await;
        let said = status["losses"].as_array().unwrap().iter().any(|loss| loss["what"].to_string().contains("damaged"));
        assert_eq!(said, before == "a damaged database", "{status}");
        gateway.stop().await;
    }
}

/// No file can be made: neither lock, nor token, nor socket.
#[tokio::test(flavor = "multi_thread")]
async fn a_disk_without_room_for_files_is_waited_for() {
    for inodes in [3, 4, 5, 6] {
        let Some((mut gateway, disk)) = small("nothing").await else { return };
        disk.remount(&format!("nr_inodes={inodes}"));
        gateway.launch();
        check_read_only(&mut gateway, "the disk that holds the home is full").await;
        let pid = gateway.pid();
        disk.remount("nr_inodes=1000");
        check_goes_on(&gateway, pid).await;
        gateway.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_home_that_may_only_be_read_is_waited_for() {
    for before in ["nothing", "a database"] {
        let Some((mut gateway, disk)) = small(before).await else { return };
        disk.remount("ro");
        gateway.launch();
        check_read_only(&mut gateway, "the home is on a read-only file system").await;
        let pid = gateway.pid();
        disk.remount("rw");
        check_goes_on(&gateway, pid).await;
        let status: Value = gateway.json(&["status"]).await;
        assert_eq!(status["losses"], serde_json::json!([]));
        gateway.stop().await;
    }
}

/// Asked to stop while it waits, it stops.
#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_that_waits_for_room_stops_when_asked_to() {
    let Some((mut gateway, disk)) = small("nothing").await else { return };
    disk.fill(0);
    gateway.launch();
    gateway.wait_alive().await;
    gateway.stop().await;
    assert!(!gateway.home().join("daoyou.sock").exists() && !gateway.home().join("daoyou.trial").exists());
    drop(disk);
}
