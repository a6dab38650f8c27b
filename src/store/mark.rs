//! The high-water mark: the highest `seq` accepted, in a small file beside the database. A database that knows less has
//! lost something, which SQLite itself does not notice when its log is gone, cut short or damaged.
//!
//! Written in place by the writer thread after each commit, and not synced: what was written outlives the process, and a
//! power cut can only make it lower than the truth.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::turn_steps::hex;

const MAGIC: &str = "daoyou mark 1";

/// `MAGIC`, the database's id, the seq in 20 digits, 16 digits of the check; spaces between them and a line feed.
const LENGTH: usize = MAGIC.len() + 1 + 36 + 1 + 20 + 1 + CHECK + 1;
const CHECK: usize = 16;

/// What a mark says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// The id of the database it was written for.
    pub database: Uuid,
    /// The highest seq that was accepted there.
    pub seq: i64,
}

/// What stands where the mark should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    Nothing,
    /// Something that no mark is.
    Damaged,
    Mark(Record),
}

/// The mark of an open database.
#[derive(Debug)]
pub struct Mark {
    path: PathBuf,
    file: File,
    record: Record,
    has_failed: bool,
}

/// Where the mark of a database stands.
pub fn path_of(database: &Path) -> PathBuf {
    database.with_extension("mark")
}

/// Reads the mark at `path`.
///
/// # Errors
/// There is a file, and it cannot be read.
pub fn read(path: &Path) -> io::Result<Found> {
    let mut text = Vec::with_capacity(LENGTH + 1);
    match File::open(path) {
        Ok(file) => file.take(LENGTH as u64 + 1).read_to_end(&mut text)?,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Found::Nothing),
        Err(error) => return Err(error),
    };
    Ok(match parse(&text) {
        Some(record) => Found::Mark(record),
        // A file that was made just before a power cut.
        None if text.is_empty() => Found::Nothing,
        None => Found::Damaged,
    })
}

impl Mark {
    /// Sets the mark at `path` to `record`, on the disk itself where it says otherwise, and keeps it open.
    pub fn set(path: &Path, record: Record) -> io::Result<Self> {
        let is_set = read(path).is_ok_and(|found| found == Found::Mark(record));
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
        if is_set {
            return Ok(Self { path: path.to_owned(), file, record, has_failed: false });
        }
        file.write_all_at(&render(record), 0)?;
        file.set_len(LENGTH as u64)?;
        file.sync_all()?;
        if let Some(folder) = path.parent() {
            File::open(folder)?.sync_all()?;
        }
        Ok(Self { path: path.to_owned(), file, record, has_failed: false })
    }

    /// Messages up to `seq` are accepted.
    pub fn raise(&mut self, seq: i64) {
        if seq <= self.record.seq {
            return;
        }
        self.record.seq = seq;
        // A mark that stays too low raises no false alarm, so nobody has to wait for a better one.
        if let Err(error) = self.file.write_all_at(&render(self.record), 0)
            && !std::mem::replace(&mut self.has_failed, true)
        {
            let path = self.path.display();
            tracing::warn!(%path, %error, "the mark of what was accepted cannot be written; a lost log might go unnoticed");
        }
    }

    /// Brings the mark to the disk itself, at an orderly end.
    pub fn sync(&self) {
        if let Err(error) = self.file.sync_data() {
            tracing::warn!(%error, "the mark of what was accepted could not be synced");
        }
    }
}

fn render(record: Record) -> [u8; LENGTH] {
    let mut line = [b' '; LENGTH];
    let mut rest = &mut line[..];
    // The line is as long as what is written, so there is always room.
    let _ = write!(rest, "{MAGIC} {} {:020} ", record.database.as_hyphenated(), record.seq.max(0));
    let said = LENGTH - CHECK - 1;
    let check = hex(&Sha256::digest(&line[..said])[..CHECK / 2]);
    line[said..LENGTH - 1].copy_from_slice(check.as_bytes());
    line[LENGTH - 1] = b'\n';
    line
}

fn parse(text: &[u8]) -> Option<Record> {
    let words = std::str::from_utf8(text).ok()?.strip_prefix(MAGIC)?;
    let mut words = words.split_whitespace();
    let record = Record { database: words.next()?.parse().ok()?, seq: words.next()?.parse().ok()? };
    (render(record) == text).then_some(record)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn what_is_raised_is_read_back_and_what_is_damaged_is_not_believed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("daoyou.mark");
        let database = Uuid::from_u128(7);
        assert_eq!(read(&path).unwrap(), Found::Nothing);
        let mut mark = Mark::set(&path, Record { database, seq: 3 }).unwrap();
        for (seq, expected) in [(5, 5), (4, 5), (i64::MAX, i64::MAX)] {
            mark.raise(seq);
            assert_eq!(read(&path).unwrap(), Found::Mark(Record { database, seq: expected }));
        }
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let good = std::fs::read(&path).unwrap();
        assert_eq!(good.len(), LENGTH);
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 1;
            std::fs::write(&path, bad).unwrap();
            assert_eq!(read(&path).unwrap(), Found::Damaged, "a flipped bit in byte {at}");
        }
        for (bytes, found) in [(&good[..LENGTH - 1], Found::Damaged), (b"", Found::Nothing), (b"hi", Found::Damaged)] {
            std::fs::write(&path, bytes).unwrap();
            assert_eq!(read(&path).unwrap(), found);
        }
    }
}
