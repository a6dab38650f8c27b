//! Many kinds of damage to a database of 300 messages, and the messages that are recovered.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::losses::{self, Loss, LossKind};
use super::messages;
use super::{
    Connection, Durability, Store, StoreError, files, inbox, meta, migrations, outbox, salvage_rows, turn_steps,
};
use uuid::Uuid;

const MESSAGES: usize = 300;

/// Accepts a message, and adds a step, a history entry and a reply for it.
fn add_message(connection: &Connection, number: usize) -> Result<(), StoreError> {
    let id = Uuid::now_v7();
    let text = |text: &str| text.to_owned();
    let session = format!("s{}", number % 7);
    let message = inbox::NewInboxRow {
        external_id: format!("m{number}"),
        content: format!("message {number} {}", "x".repeat(300)),
        ..inbox::NewInboxRow::sample(id, &session)
    };
    inbox::insert(connection, &message)?;
    turn_steps::append(connection, id, "note", &format!("{{\"text\":\"{}\"}}", "y".repeat(300)))?;
    messages::append(connection, &session, id, [("user", "{}".to_owned())].into_iter())?;
    let (slot, channel, chat_id, body) = (text("reply"), text("webhook:in"), text("c"), text("{}"));
    outbox::insert(connection, &outbox::NewOutbound { turn: id, slot, channel, chat_id, body })?;
    Ok(())
}

/// Creates a database with half of the messages in the file and half in the log, as a killed process leaves it.
async fn killed_database(folder: &Path) -> PathBuf {
    let path = folder.join("daoyou.db");
    let store = Store::open(&path).unwrap();
    let by_hand = |connection: &Connection| Ok(connection.pragma_update(None, "wal_autocheckpoint", 0)?);
    store.write_alone(by_hand).await.unwrap();
    for number in 0..MESSAGES {
        store.write(Durability::Synced, move |connection| add_message(connection, number)).await.unwrap();
        if number == MESSAGES / 2 {
            store
                .write_alone(|connection| {
                    connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
                    Ok(())
                })
                .await
                .unwrap();
        }
    }
    let killed = folder.join("killed");
    fs::create_dir(&killed).unwrap();
    for name in ["daoyou.db", "daoyou.db-wal", "daoyou.mark"] {
        fs::copy(folder.join(name), killed.join(name)).unwrap();
    }
    store.close().await;
    killed.join("daoyou.db")
}

/// Returns the number of recovered messages after `damage`, and the recorded losses. Asserts that later messages are accepted.
async fn after(sound: &Path, damage: impl Fn(&Path)) -> (usize, Vec<Loss>) {
    let folder = tempfile::tempdir().unwrap();
    for file in fs::read_dir(sound.parent().unwrap()).unwrap() {
        let file = file.unwrap();
        fs::copy(file.path(), folder.path().join(file.file_name())).unwrap();
    }
    let path = folder.path().join("daoyou.db");
    damage(&path);
    let damaged = fs::read(&path).unwrap_or_default();
    let store = Store::open_to_serve(&path, Box::new(|_| {})).unwrap();
    let (left, losses) = store
        .write(Durability::Synced, |connection| {
            let left = inbox::newest(connection, 1_000)?;
            add_message(connection, MESSAGES)?;
            assert!(inbox::last_seq(connection)? > i64::try_from(MESSAGES).unwrap(), "no seq is used again");
            Ok((left.len(), losses::all(connection)?))
        })
        .await
        .unwrap();
    store.check().await.unwrap();
    store.close().await;
    for loss in losses.iter().filter(|loss| loss.kind == LossKind::Salvaged) {
        let kept = fs::read(folder.path().join(&loss.saved_files[0])).unwrap_or_default();
        let first = kept.iter().zip(&damaged).position(|(a, b)| a != b);
        assert!(kept == damaged, "kept as it was: {} {} {first:?} {loss:?}", kept.len(), damaged.len());
    }
    let again = Store::open_to_serve(&path, Box::new(|_| {})).unwrap();
    let recorded = again.read(losses::all).await.unwrap();
    assert_eq!(recorded.len(), losses.len(), "recorded once: {recorded:?}");
    let strays = fs::read_dir(folder.path()).unwrap().map(|file| files::file_name(&file.unwrap().path()));
    let strays: Vec<_> = strays.filter(|name| name.contains(".mend") || name.contains(".fresh")).collect();
    assert!(strays.is_empty(), "{strays:?}");
    (left, losses)
}

fn write_at(path: &Path, at: u64, bytes: &[u8]) {
    File::options().write(true).open(path).unwrap().write_all_at(bytes, at).unwrap();
}

fn length(path: &Path) -> u64 {
    fs::metadata(path).unwrap().len()
}

fn flip(path: &Path, at: u64) {
    let mut byte = [0];
    File::open(path).unwrap().read_exact_at(&mut byte, at).unwrap();
    write_at(path, at, &[byte[0] ^ 4]);
}

#[tokio::test]
async fn a_lost_or_shortened_log_is_counted() {
    let folder = tempfile::tempdir().unwrap();
    let sound = killed_database(folder.path()).await;
    assert_eq!(after(&sound, |_| {}).await, (MESSAGES, Vec::new()));
    let gone = |path: &Path| fs::remove_file(files::log_path(path)).unwrap();
    let (left, losses) = after(&sound, gone).await;
    assert_eq!((left, losses.len(), losses[0].kind), (MESSAGES / 2 + 1, 1, LossKind::Missing));
    assert_eq!((losses[0].messages, &losses[0].seqs[..]), (149, &[(152, 300)][..]));
    assert!(losses[0].description.starts_with("149 accepted messages are missing from the database (seq 152–300): "));
    let half = |path: &Path| {
        let log = files::log_path(path);
        File::options().write(true).open(&log).unwrap().set_len(length(&log) / 2).unwrap();
    };
    let (left, losses) = after(&sound, half).await;
    assert!((170..290).contains(&left) && losses[0].messages == (MESSAGES - left) as u64, "{left} {losses:?}");
    let (left, losses) = after(&sound, |path| {
        gone(path);
        fs::remove_file(path).unwrap();
    })
    .await;
    assert_eq!((left, losses[0].messages), (0, 300));
}

#[tokio::test]
async fn readable_rows_are_recovered() {
    let folder = tempfile::tempdir().unwrap();
    let sound = killed_database(folder.path()).await;
    let into_file = |path: &Path| {
        let connection = Connection::open(path).unwrap();
        connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
    };
    // The damage, and the fewest messages that must be recovered.
    type Damage<'a> = Box<dyn Fn(&Path) + 'a>;
    // While the log contains the first page, that page of the file is not read.
    assert_eq!(after(&sound, |path| write_at(path, 0, &[0x5a; 100])).await, (MESSAGES, Vec::new()));
    let table: Vec<(&str, Damage<'_>, usize)> = vec![
        ("a flipped bit in the log", Box::new(|path| flip(&files::log_path(path), 32 + 100 * 4_120 + 500)), 300),
        ("an empty file", Box::new(|path| File::options().write(true).open(path).unwrap().set_len(0).unwrap()), 140),
        (
            "a garbage header",
            Box::new(|path| {
                into_file(path);
                write_at(path, 0, &[0x5a; 100]);
            }),
            300,
        ),
        (
            "a garbage first page",
            Box::new(|path| {
                into_file(path);
                write_at(path, 0, &[0x5a; 4_096]);
            }),
            300,
        ),
        (
            "the middle overwritten",
            Box::new(|path| {
                into_file(path);
                write_at(path, length(path) / 8 * 4, &[0xa5; 5 * 4_096]);
                fs::write(path.with_extension("suspect"), "damaged\n").unwrap();
            }),
            250,
        ),
        (
            "cut to two thirds",
            Box::new(|path| {
                into_file(path);
                File::options().write(true).open(path).unwrap().set_len(length(path) / 3 * 2).unwrap();
            }),
            100,
        ),
        ("nothing of ours", Box::new(|path| fs::write(path, "my notes\n".repeat(2_000)).unwrap()), 0),
    ];
    for (what, damage, least) in table {
        let (left, losses) = after(&sound, damage).await;
        assert!(left >= least, "{what}: {left}");
        let lost: u64 = losses.iter().map(|loss| loss.messages).sum();
        assert_eq!(lost, (MESSAGES - left) as u64, "{what}: {losses:?}");
        assert!(losses.iter().all(|loss| !loss.description.contains('\n')), "{losses:?}");
        assert!(losses.len() == 1 && losses[0].kind == LossKind::Salvaged, "{what}: {losses:?}");
    }
}

/// Wherever the file is truncated, with its log and without it, exactly the missing messages are counted.
#[tokio::test]
async fn a_file_truncated_anywhere_is_recovered() {
    let folder = tempfile::tempdir().unwrap();
    let sound = killed_database(folder.path()).await;
    // The last pages are free: nothing is missing without them, and a start does not read them.
    let with_free_pages = |path: &Path| {
        let connection = Connection::open(path).unwrap();
        connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
        connection
            .execute_batch("CREATE TABLE gone (x); INSERT INTO gone VALUES (zeroblob(40000)); DROP TABLE gone")
            .unwrap();
    };
    let cut = |path: &Path, keep: &dyn Fn(u64) -> u64| {
        let length = length(path);
        File::options().write(true).open(path).unwrap().set_len(keep(length)).unwrap();
    };
    for less in [1, 4_095, 4_096, 3 * 4_096 + 100] {
        let (left, losses) = after(&sound, |path| {
            with_free_pages(path);
            cut(path, &|length| length - less);
        })
        .await;
        assert_eq!((left, losses.len(), losses[0].messages), (MESSAGES, 1, 0), "{less}: {losses:?}");
    }
    let mut random = 0x2545_f491_4f6c_dd1d_u64;
    let mut keeps: Vec<u64> = vec![1, 17, 99, 100, 101, 4_095, 4_096, 4_097, 3 * 4_096 - 1, 5 * 4_096];
    keeps.extend((0..4).map(|_| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % 400_000
    }));
    for keep in keeps {
        for has_log in [false, true] {
            let (left, losses) = after(&sound, |path| {
                if !has_log {
                    with_free_pages(path);
                }
                cut(path, &|length| keep % length);
            })
            .await;
            let lost: u64 = losses.iter().map(|loss| loss.messages).sum();
            assert_eq!(lost, (MESSAGES - left) as u64, "{keep}, {has_log}: {losses:?}");
        }
    }
}

#[tokio::test]
async fn an_interrupted_exchange_is_completed_and_one_not_begun_is_discarded() {
    let folder = tempfile::tempdir().unwrap();
    let sound = killed_database(folder.path()).await;
    let mended = |path: &Path| files::with_suffix(path, ".mended");
    let whole = |path: &Path| {
        let connection = Connection::open(path).unwrap();
        connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
    };
    // The database was moved aside but its log was not: combined with the repaired database, the log would corrupt it.
    let (left, losses) = after(&sound, |path| {
        let log = fs::read(files::log_path(path)).unwrap();
        whole(path);
        fs::rename(path, mended(path)).unwrap();
        fs::write(files::log_path(path), log).unwrap();
    })
    .await;
    assert_eq!((left, losses), (MESSAGES, Vec::new()));
    let (left, losses) = after(&sound, |path| fs::write(mended(path), "not yet synced").unwrap()).await;
    assert_eq!((left, losses), (MESSAGES, Vec::new()));
}

/// A damaged database of the first version is recovered into the current format.
#[test]
fn a_damaged_database_of_the_first_version_is_recovered() {
    let folder = tempfile::tempdir().unwrap();
    let source = Connection::open(folder.path().join("old.db")).unwrap();
    source.execute_batch(include_str!("migrations/0001_spine.sql")).unwrap();
    source.execute_batch("INSERT INTO usage VALUES ('t1', 's', 'openai/gpt-4o', 100, 20, 60, 5)").unwrap();
    let target = folder.path().join("new.db");
    File::create(&target).unwrap();
    source.pragma_update(None, "user_version", 1).unwrap();
    assert!(super::salvage_rows::recover_rows(&source, &target, false).unwrap().is_whole(), "it had no more tables");
    let spent =
        super::usage::total(&Connection::open(target).unwrap(), super::usage::UsageScope::Session("s")).unwrap();
    assert_eq!((spent.tokens.input, spent.models[0].provider.as_str()), (100, "openai"));
}

/// A table that is missing from the list of tables counts as a hole.
#[test]
fn a_missing_table_counts_as_a_hole() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("source.db");
    for (damage, is_whole, words) in [
        ("", true, "none"),
        ("DROP TABLE jobs", false, "not all could be read of jobs"),
        ("PRAGMA user_version = 0; DROP TABLE jobs", false, "not all could be read of jobs"),
    ] {
        File::create(&path).unwrap();
        let source = super::salvage_rows::create_fresh(&path).unwrap();
        source.execute_batch(damage).unwrap();
        let target = folder.path().join("target.db");
        File::create(&target).unwrap();
        let taken = super::salvage_rows::recover_rows(&source, &target, false).unwrap();
        assert!(taken.is_whole() == is_whole && taken.describe().contains(words), "{damage}: {}", taken.describe());
    }
}

/// A running turn whose last step is lost must not repeat its call, although the steps before it form a chain.
#[test]
fn a_turn_without_its_last_step_does_not_continue() {
    let folder = tempfile::tempdir().unwrap();
    let turn = Uuid::now_v7();
    for (damage, ends) in [
        ("", false),
        ("UPDATE turn_steps SET body = x'ff' WHERE seq = 1", true),
        ("UPDATE turn_steps SET body = x'ff'", true),
        ("DROP TABLE turn_steps", true),
        ("DROP TABLE turn_steps; PRAGMA user_version = 30", true),
    ] {
        let [from, to] = ["source.db", "target.db"].map(|name| folder.path().join(name));
        for path in [&from, &to] {
            File::create(path).unwrap();
        }
        let source = salvage_rows::create_fresh(&from).unwrap();
        inbox::insert(&source, &inbox::NewInboxRow::sample(turn, "s")).unwrap();
        inbox::mark_running(&source, 1).unwrap();
        turn_steps::append_all(&source, turn, [("response", "{}"), ("tool_started", "{}")]).unwrap();
        source.execute_batch(damage).unwrap();
        salvage_rows::recover_rows(&source, &to, false).unwrap();
        let steps = turn_steps::of_turn(&Connection::open(&to).unwrap(), turn).unwrap();
        assert_eq!(!turn_steps::chain_holds(&steps), ends, "{damage:?}: {steps:?}");
    }
}

/// A damaged database of an earlier format keeps the rows of the tables and columns that have another name now.
#[test]
fn rows_under_names_of_an_earlier_format_are_recovered() {
    let source = migrations::tests::database_of_format(29);
    source
        .execute_batch(
            "INSERT INTO skipped VALUES ('email', 'INBOX', '1:1', 'too large', 1);
             INSERT INTO point_names VALUES ('s', 'draft', 't', 1);
             INSERT INTO memory_codes (owner, held, codes) VALUES ('owner', 1, zeroblob(72));
             INSERT INTO jobs (id, name, body, paused, created_at, updated_at) VALUES ('j', 'n', '{}', 'it failed', 1, 1);
             INSERT INTO job_runs (job, name, due, at, outcome, ended) VALUES ('j', 'n', 1, 1, 'ok', 2);
             INSERT INTO processes (id, turn, session, channel, chat_id, trust, metadata, command, detached, birth, started_at, ending)
                 VALUES ('p', 't', 's', 'cli', 'direct', 'owner', '{}', 'make', 0, 'boot/7', 1, 'exit 0');
             INSERT INTO page_logins VALUES (x'01', NULL, x'02', 1, 1);
             INSERT INTO session_memory (session, epoch, due, updated_at) VALUES ('s', 0, 'new', 1);
             INSERT INTO sessions (session, created_at, updated_at, read_by) VALUES ('s', 1, 1, 'ann');
             INSERT INTO meta VALUES ('forgets', '3');",
        )
        .unwrap();
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("fresh.db");
    File::create(&target).unwrap();
    assert!(salvage_rows::recover_rows(&source, &target, false).unwrap().is_whole());
    let fresh = Connection::open(&target).unwrap();
    for (sql, expected) in [
        ("SELECT reason FROM skipped_messages", "too large"),
        ("SELECT name FROM checkpoint_names", "draft"),
        ("SELECT '' || live_count FROM memory_codes", "1"),
        ("SELECT pause_reason FROM jobs", "it failed"),
        ("SELECT '' || ended_at FROM job_runs", "2"),
        ("SELECT start_identity || ' ' || outcome FROM processes", "boot/7 exit 0"),
        ("SELECT hex(token_binding) FROM page_logins", "02"),
        ("SELECT due_reason FROM session_memory", "new"),
        ("SELECT identities_digest FROM sessions", "ann"),
    ] {
        assert_eq!(fresh.query_row(sql, [], |row| row.get::<_, String>(0)).unwrap(), expected, "{sql}");
    }
    assert_eq!(meta::get(&fresh, meta::FORGET_COUNT).unwrap().unwrap(), "3");
}
