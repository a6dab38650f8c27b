//! A stamp of the files of a tree, which is much cheaper than reading them.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

use daoyou_channels::text::hex;
use parking_lot::Mutex;
use sha2::{Digest, Sha256};

use crate::guard::{EntryKind, Jail, StopSignal, Walk, WalkSelection, WalkedEntry};

/// The time limit for computing a stamp.
pub(super) const STAMP_LIMIT: Duration = Duration::from_secs(1);
/// The minimum number of files, or of bytes, that makes a stamp worthwhile. Reading a smaller tree takes about as long as the
/// stamp.
const MIN_FILES: usize = 1_000;
const MIN_BYTES: u64 = 16 << 20;
/// How long a changed file counts as unsettled, in seconds. File systems store times in steps, so another change in this time
/// could leave the stamp the same.
const SETTLING_SECS: u64 = 2;

/// The facts that the threads of a walk have collected.
#[derive(Default)]
struct TreeFacts {
    /// One hash for each file, of its path, position on the disk, size, mode and times.
    files: Vec<[u8; 32]>,
    bytes: u64,
    /// The time of the latest change, in seconds.
    latest: Option<u64>,
    /// True if a file disappeared before its facts were read.
    has_vanished: bool,
}

/// Adds the facts of a file.
fn add_facts(facts: &Mutex<TreeFacts>, entry: &WalkedEntry<'_>) {
    if entry.kind != EntryKind::File {
        return;
    }
    let Some(stat) = entry.stat() else {
        facts.lock().has_vanished = true;
        return;
    };
    let place = (stat.st_dev, stat.st_ino, stat.st_mode, stat.st_nlink, stat.st_size);
    let times = (stat.st_mtime, stat.st_mtime_nsec, stat.st_ctime, stat.st_ctime_nsec);
    let mut hasher = Sha256::new_with_prefix(format!("{place:?}{times:?}"));
    hasher.update(OsStr::as_bytes(entry.path().as_os_str()));
    let latest = u64::try_from(stat.st_mtime.max(stat.st_ctime)).ok();
    let mut facts = facts.lock();
    facts.files.push(hasher.finalize().into());
    facts.bytes = facts.bytes.saturating_add(u64::try_from(stat.st_size).unwrap_or(0));
    facts.latest = facts.latest.max(latest);
}

/// Returns a stamp, at the time `now`, of the files below the folder `path` that `select` accepts. The stamp changes whenever one
/// of the files does.
///
/// Returns `None` if reading the files is no more expensive, if a file has changed too recently, or if there are too many files.
pub(super) fn tree_stamp(
    jail: &Jail,
    path: &str,
    select: &(dyn Fn(&Path, EntryKind) -> WalkSelection + Sync),
    stop: &StopSignal,
    now: SystemTime,
) -> Option<String> {
    let walk = Walk::new(jail, path, stop).ok()?;
    let facts = Mutex::new(TreeFacts::default());
    let add = |entry: &WalkedEntry<'_>| add_facts(&facts, entry);
    walk.run(select, || add);
    let TreeFacts { mut files, bytes, latest, has_vanished } = facts.into_inner();
    let now = now.duration_since(SystemTime::UNIX_EPOCH).ok()?.as_secs();
    let is_settled = !has_vanished && latest.is_none_or(|latest| latest + SETTLING_SECS < now);
    if stop.is_stopped() || !is_settled || (files.len() < MIN_FILES && bytes < MIN_BYTES) {
        return None;
    }
    files.sort_unstable();
    let mut hasher = Sha256::new_with_prefix(format!("{:?}", walk.skipped.list()));
    files.iter().for_each(|file| hasher.update(file));
    Some(hex(&hasher.finalize()[..]))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tokio_util::sync::CancellationToken;

    use super::*;

    #[test]
    fn every_change_of_a_file_changes_the_stamp() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        fs::create_dir(root.join("src")).unwrap();
        for number in 0..MIN_FILES + 10 {
            fs::write(root.join(format!("src/{number}.rs")), "fn f() {}\n").unwrap();
        }
        fs::write(root.join(".gitignore"), "ignored\n").unwrap();
        let jail = Jail::open(root, true, Vec::new(), 1 << 20).unwrap();
        let stamp_at = |path: &str, after: u64| {
            let stop = StopSignal::new(Duration::from_secs(60), CancellationToken::new());
            let now = SystemTime::now() + Duration::from_secs(after);
            tree_stamp(&jail, path, &|_, _| WalkSelection::Usual, &stop, now)
        };
        let stamp = || stamp_at(".", 60);
        assert_eq!(stamp_at(".", 0), None, "the files are too new");
        let first = stamp();
        assert!(first.is_some() && first == stamp());
        // Changes of files that are not searched do not matter.
        fs::write(root.join("ignored"), "x").unwrap();
        fs::write(root.join(".hidden"), "x").unwrap();
        assert_eq!(stamp(), first);
        let mut seen = vec![first];
        let time = fs::metadata(root.join("src/1.rs")).unwrap().modified().unwrap();
        let changes: [&dyn Fn(); 6] = [
            // The new content has the same size, and the modification time is restored.
            &|| {
                fs::write(root.join("src/1.rs"), "fn g() {}\n").unwrap();
                fs::File::options().write(true).open(root.join("src/1.rs")).unwrap().set_modified(time).unwrap();
            },
            &|| fs::write(root.join("src/new.rs"), "").unwrap(),
            &|| fs::rename(root.join("src/2.rs"), root.join("src/two.rs")).unwrap(),
            &|| fs::hard_link(root.join("src/3.rs"), root.join(".link")).unwrap(),
            &|| fs::write(root.join(".gitignore"), "ignored\nsrc/4.rs\n").unwrap(),
            &|| fs::remove_file(root.join("src/5.rs")).unwrap(),
        ];
        for (number, change) in changes.iter().enumerate() {
            change();
            let stamp = stamp();
            assert!(stamp.is_some() && !seen.contains(&stamp), "{number}");
            seen.push(stamp);
        }
        assert_eq!(stamp_at("src/1.rs", 60), None, "one file is read as fast");
        fs::create_dir(root.join("small")).unwrap();
        fs::write(root.join("small/1"), "").unwrap();
        assert_eq!(stamp_at("small", 60), None);
    }
}
