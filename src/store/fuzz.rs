//! The entry point of the fuzz target `wal_salvage`.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use rusqlite::{Connection, OpenFlags};
use uuid::Uuid;

use super::salvage_rows::create_fresh;
use super::{database, inbox, repair, wal};

const MESSAGES: u128 = 8;

/// A database with messages in its log, as a killed process leaves it.
struct Killed {
    database: Vec<u8>,
    log: Vec<u8>,
}

static KILLED: LazyLock<Killed> = LazyLock::new(|| {
    let folder = fresh_folder("sound");
    let path = folder.join("daoyou.db");
    File::create(&path).expect("a file in a folder of ours");
    let connection = create_fresh(&path).expect("an empty database");
    connection.pragma_update(None, "journal_mode", "WAL").expect("a database can have a log");
    connection.pragma_update(None, "wal_autocheckpoint", 0).expect("a log can stay as it is");
    for number in 0..MESSAGES {
        insert(&connection, number);
    }
    let read = |name: &str| fs::read(folder.join(name)).expect("a database and its log");
    let killed = Killed { database: read("daoyou.db"), log: read("daoyou.db-wal") };
    drop(connection);
    fs::remove_dir_all(&folder).expect("a folder of ours");
    killed
});

fn content(number: u128) -> String {
    format!("message {number} {}", "x".repeat(200))
}

fn insert(connection: &Connection, number: u128) {
    let message = inbox::NewInboxRow {
        external_id: format!("m{number}"),
        content: content(number),
        ..inbox::NewInboxRow::sample(Uuid::from_u128(number + 1), "s")
    };
    inbox::insert(connection, &message).expect("a message that is new");
}

/// Creates an empty folder of this process.
fn fresh_folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("daoyou-fuzz-{}-{name}", std::process::id()));
    if folder.exists() {
        fs::remove_dir_all(&folder).expect("a folder of ours");
    }
    fs::create_dir_all(&folder).expect("temporary files can be made");
    folder
}

/// Damages a database and recovers it. The first byte selects the damage: any bytes instead of the log, or changed bytes in the log
/// or in the database. Asserts that the readable rows end up in a sound database, and that a damaged log adds no message that was
/// never written.
pub fn wal(data: &[u8]) {
    let Some((mode, rest)) = data.split_first() else { return };
    let (mut database, mut log) = (KILLED.database.clone(), KILLED.log.clone());
    match mode % 4 {
        0 => log = rest.to_vec(),
        1 => change(&mut log, rest),
        2 => change(&mut database, rest),
        _ => {
            let (cut, changes) = rest.split_at(rest.len().min(3));
            let length = number(cut) % (log.len() + 1);
            change(&mut log, changes);
            log.truncate(length);
        }
    }
    let folder = fresh_folder("damaged");
    let path = folder.join("daoyou.db");
    fs::write(&path, &database).expect("a file in a folder of ours");
    fs::write(folder.join("daoyou.db-wal"), &log).expect("a file in a folder of ours");
    apply_log(&folder);
    // The complete repair is slow, so it runs for one of four inputs.
    if mode & 0b1100 == 0 {
        let is_log_alone = mode % 4 != 2;
        mend_and_check(&path, is_log_alone);
    }
    fs::remove_dir_all(&folder).expect("a folder of ours");
}

/// Changes bytes: reads `changes` as positions of three bytes, each with a mask for the byte at that position.
fn change(bytes: &mut [u8], changes: &[u8]) {
    for change in changes.chunks_exact(4) {
        let place = number(&change[..3]) % bytes.len();
        bytes[place] ^= change[3];
    }
}

fn number(bytes: &[u8]) -> usize {
    bytes.iter().fold(0, |number, byte| number << 8 | usize::from(*byte))
}

/// Applies the log's frames to a copy of the database, which is padded to whole pages.
fn apply_log(folder: &Path) {
    let (log, copy) = (folder.join("daoyou.db-wal"), folder.join("copy.db"));
    let frames = wal::read_frames(&log).expect("a log that is there can be read");
    fs::copy(folder.join("daoyou.db"), &copy).expect("a file in a folder of ours");
    let file = File::options().write(true).open(&copy).expect("a file in a folder of ours");
    frames.apply(&log, &file).expect("frames that were found are there");
    assert!(frames.is_empty() || file.metadata().expect("an open file").len().is_multiple_of(512));
}

fn mend_and_check(path: &Path, is_log_alone: bool) {
    repair(path, "fuzzed").expect("what can be read is taken over");
    let connection = database::open(path, OpenFlags::SQLITE_OPEN_READ_WRITE).expect("a mended database opens");
    assert_eq!(database::find_fault(&connection).expect("a mended database can be checked"), None);
    let mut statement = connection.prepare("SELECT content FROM inbox").expect("a mended database has messages");
    let found: Vec<String> =
        statement.query_map([], |row| row.get(0)).and_then(Iterator::collect).expect("messages can be read");
    if is_log_alone {
        let written: BTreeSet<String> = (0..MESSAGES).map(content).collect();
        assert!(found.len() <= written.len() && found.iter().all(|content| written.contains(content)), "{found:?}");
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_seeds_of_wal_salvage_pass() {
        crate::seeds::run("wal_salvage", super::wal);
    }
}
