//! Backs up a whole home into one file while the gateway runs, and restores it.

use std::fs;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_json::json;

use crate::support::gateway::Message;
use crate::support::invariants::{open, wait_settled};
use crate::support::{Gateway, Hook, Setup};

async fn accept_messages(gateway: &Gateway, range: std::ops::Range<usize>) {
    for n in range {
        gateway.accept("in", &Message::new("/help").id(&format!("m{n}"))).await;
    }
    wait_settled(&gateway.database()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_home_is_backed_up_and_restored() {
    let mut gateway = Gateway::start(Setup::new().hook(Hook::bearer("in"))).await;
    accept_messages(&gateway, 0..3).await;
    fs::write(gateway.workspace().join("note.md"), "as it was").unwrap();
    std::os::unix::fs::symlink("note.md", gateway.workspace().join("link.md")).unwrap();
    std::os::unix::fs::symlink("/etc", gateway.workspace().join("out")).unwrap();
    let token = gateway.token();
    let made = gateway.json(&["backup", "b.tar"]).await;
    assert_eq!((&made["accepted"], made["left_out"].as_array().map(Vec::len)), (&json!(3), Some(1)), "{made}");
    let file = gateway.home().with_file_name("b.tar");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let again = gateway.run(&["backup", "b.tar"]).await;
    assert!(again.code == Some(1) && again.stderr.contains("--force"), "{again:?}");
    assert_eq!(gateway.run(&["backup", "b.tar", "--force"]).await.code, Some(0));
    let beside = fs::read_dir(file.parent().unwrap()).unwrap().map(|entry| entry.unwrap().file_name());
    let beside: Vec<_> = beside.filter(|name| name.to_string_lossy().starts_with(".b.tar")).collect();
    assert!(beside.is_empty(), "{beside:?}");

    // A configuration outside of the home is not in the backup, and the command says so.
    let config = gateway.home().with_file_name("other.toml");
    fs::write(&config, "[agent]\nworkspace = \"/srv/desk\"\n").unwrap();
    let made = gateway.json(&["--config", config.to_str().unwrap(), "backup", "other.tar"]).await;
    let left_out = made["left_out"].to_string();
    assert!(left_out.contains("other.toml: the configuration is not in the home"), "{made}");
    assert!(left_out.contains("/srv/desk: the workspace is not in the home"), "{made}");

    // Later messages are not in the backup, and the restore says so. The high-water mark raises no false alarm, and no number repeats.
    accept_messages(&gateway, 3..5).await;
    fs::write(gateway.workspace().join("note.md"), "changed since").unwrap();
    let held = gateway.run(&["restore", "b.tar"]).await;
    assert!(held.code == Some(75) && held.stderr.contains(&format!("(pid {})", gateway.pid())), "{held:?}");
    gateway.stop().await;
    let restored = gateway.run(&["restore", "b.tar"]).await;
    assert_eq!(restored.code, Some(0), "{restored:?}");
    let says = "2 messages accepted after the backup are not in it (seq 4–5)";
    assert!(restored.stdout.contains(says) && restored.stdout.contains("what was there before is in "), "{restored:?}");
    assert_eq!(fs::read_to_string(gateway.workspace().join("link.md")).unwrap(), "as it was");
    assert_eq!(gateway.token(), token);
    let kept = fs::read_dir(gateway.home()).unwrap().map(|entry| entry.unwrap().path());
    let kept: Vec<_> = kept.filter(|path| path.to_string_lossy().contains("daoyou.before-restore-")).collect();
    assert_eq!(fs::read_to_string(kept[0].join("workspace/note.md")).unwrap(), "changed since");
    assert!(kept.len() == 1 && kept[0].join("daoyou.db").exists());

    gateway.up().await;
    assert_eq!(gateway.json(&["status"]).await["losses"], json!([]));
    for (n, status) in [(2, "duplicate"), (3, "accepted")] {
        let sent = gateway.post("in", "", &Message::new("/help").id(&format!("m{n}"))).await;
        assert_eq!(sent.text("status"), status, "m{n}");
    }
    wait_settled(&gateway.database()).await;
    let seqs =
        open(&gateway.database()).unwrap().query_row("SELECT max(seq) FROM inbox", [], |row| row.get::<_, i64>(0));
    assert_eq!(seqs.unwrap(), 6);

    // With a stopped gateway, and into a new home.
    gateway.stop().await;
    assert_eq!(gateway.run(&["backup", "c.tar"]).await.code, Some(0));
    let fresh = gateway.home().with_file_name("fresh");
    let elsewhere = gateway.run(&["--home", fresh.to_str().unwrap(), "restore", "c.tar"]).await;
    assert!(elsewhere.code == Some(0) && !elsewhere.stdout.contains("before"), "{elsewhere:?}");
    let listed = gateway.run(&["--home", fresh.to_str().unwrap(), "turns", "list", "--json"]).await;
    assert_eq!(serde_json::from_str::<Vec<serde_json::Value>>(&listed.stdout).unwrap().len(), 4, "{listed:?}");
}

/// Copies an archive with one entry changed.
fn with_entry(from: &Path, to: &Path, path: &str, kind: tar::EntryType, link: &str) {
    let mut builder = tar::Builder::new(fs::File::create(to).unwrap());
    let mut archive = tar::Archive::new(fs::File::open(from).unwrap());
    for (number, entry) in archive.entries().unwrap().enumerate() {
        let mut entry = entry.unwrap();
        if number == 1 {
            let mut header = tar::Header::new_gnu();
            header.set_entry_type(kind);
            header.set_size(0);
            header.set_mode(0o644);
            // The name goes into the header unchanged, as no honest program would write it.
            header.as_gnu_mut().unwrap().name[..path.len()].copy_from_slice(path.as_bytes());
            header.as_gnu_mut().unwrap().linkname[..link.len()].copy_from_slice(link.as_bytes());
            header.set_cksum();
            builder.append(&header, std::io::empty()).unwrap();
        }
        let mut content = Vec::new();
        entry.read_to_end(&mut content).unwrap();
        builder.append(&entry.header().clone(), content.as_slice()).unwrap();
    }
    builder.finish().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_backup_changes_nothing() {
    let mut gateway = Gateway::start(Setup::new().hook(Hook::bearer("in"))).await;
    accept_messages(&gateway, 0..2).await;
    gateway.stop().await;
    assert_eq!(gateway.run(&["backup", "good.tar"]).await.code, Some(0));
    let good = gateway.home().with_file_name("good.tar");
    let bad = gateway.home().with_file_name("bad.tar");
    let bytes = fs::read(&good).unwrap();
    let before = fs::read(gateway.database()).unwrap();
    let token = bytes.windows(64).position(|window| window == gateway.token().as_bytes()).unwrap();
    let mut flipped = bytes.clone();
    flipped[token] ^= 1;
    let mut newer = bytes.clone();
    newer[512] = b'9';
    let gz = [0x1f, 0x8b, 8, 0, 0xff, 0xfe, b'\n', 0x1b].repeat(200);
    let files: [(&[u8], &str); 7] = [
        (&bytes[..bytes.len() / 2], "it is damaged"),
        (&bytes[..bytes.len() / 512 / 3 * 512], "cannot be restored"),
        (&flipped, "token is damaged in it"),
        (&newer, "newer daoyou"),
        (b"", "it is not a backup of daoyou"),
        (b"no archive at all", "it is not a backup of daoyou (it is not a tar archive)\n"),
        (&gz, "it is not a backup of daoyou (it is not a tar archive)\n"),
    ];
    let check = async |says: &str| {
        let ran = gateway.run(&["restore", "bad.tar"]).await;
        assert_eq!((ran.code, ran.stdout.as_str(), ran.stderr.lines().count()), (Some(1), "", 1), "{says}: {ran:?}");
        assert!(ran.stderr.contains("nothing was changed"), "{says}: {ran:?}");
        assert!(ran.stderr.contains(says), "{says}: {ran:?}");
        assert!(fs::read(gateway.database()).unwrap() == before, "{says}");
        let strays = fs::read_dir(gateway.home()).unwrap().map(|entry| entry.unwrap().file_name());
        assert!(strays.into_iter().all(|name| !name.to_string_lossy().contains("restor")), "{says}");
    };
    for (bytes, says) in files {
        fs::write(&bad, bytes).unwrap();
        check(says).await;
    }
    use tar::EntryType::{Block, Link, Regular, Symlink};
    for (path, kind, link) in [
        ("home/../../escaped", Regular, ""),
        ("/tmp/escaped", Regular, ""),
        ("elsewhere/escaped", Regular, ""),
        ("home/link", Symlink, "/etc/passwd"),
        ("home/workspace/link", Symlink, "../../escaped"),
        ("home/link", Link, "home/token"),
        ("home/device", Block, ""),
        ("home/more", Regular, ""),
    ] {
        with_entry(&good, &bad, path, kind, link);
        check("cannot be restored").await;
    }
    assert!(!gateway.home().with_file_name("escaped").exists() && !Path::new("/tmp/escaped").exists());
    assert_eq!(gateway.run(&["restore", "good.tar"]).await.code, Some(0));
    gateway.up().await;
}
