//! The high-water mark: the highest accepted `seq`, in a small file beside the database. A database with a lower `seq` has lost
//! messages. SQLite does not notice such a loss if its log is missing, truncated or damaged.
//!
//! The writer thread writes the mark in place after each commit, without a sync: the content survives the process, and a power
//! failure can only make the mark too low.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use daoyou_channels::text::hex;
use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::files;

const MAGIC: &str = "daoyou mark 1";

/// `MAGIC`, the id of the database, the seq in 20 digits, 16 digits of a checksum, separated by spaces, and a line feed.
const LENGTH: usize = MAGIC.len() + 1 + 36 + 1 + 20 + 1 + CHECK + 1;
const CHECK: usize = 16;

/// The content of a mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MarkRecord {
    /// The id of the database that the mark belongs to.
    pub database: Uuid,
    /// The highest seq that this database has accepted.
    pub seq: i64,
}

/// The result of reading a mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoredMark {
    Missing,
    /// The file's content is not a valid mark.
    Damaged,
    Valid(MarkRecord),
}

/// The mark of an open database.
#[derive(Debug)]
pub struct HighWaterMark {
    path: PathBuf,
    file: File,
    record: MarkRecord,
    has_failed: bool,
}

/// Returns the path of a database's mark.
pub fn path_of(database: &Path) -> PathBuf {
    database.with_extension("mark")
}

/// Returns the mark of a database, if there is a valid one.
pub fn valid(database: &Path) -> Option<MarkRecord> {
    match read(&path_of(database)) {
        Ok(StoredMark::Valid(record)) => Some(record),
        _ => None,
    }
}

/// Reads the mark at `path`.
///
/// # Errors
/// The file exists and cannot be read.
pub fn read(path: &Path) -> io::Result<StoredMark> {
    let Some(file) = files::if_exists(File::open(path))? else { return Ok(StoredMark::Missing) };
    let mut text = Vec::with_capacity(LENGTH + 1);
    file.take(LENGTH as u64 + 1).read_to_end(&mut text)?;
    Ok(match parse(&text) {
        Some(record) => StoredMark::Valid(record),
        // The file was created just before a power failure.
        None if text.is_empty() => StoredMark::Missing,
        None => StoredMark::Damaged,
    })
}

impl HighWaterMark {
    /// Writes `record` to the mark at `path` with a sync, unless the file has it already, and keeps the file open.
    ///
    /// # Errors
    /// The file cannot be opened, written or synced.
    pub fn set(path: &Path, record: MarkRecord) -> io::Result<Self> {
        let is_set = read(path).is_ok_and(|found| found == StoredMark::Valid(record));
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
        if !is_set {
            file.write_all_at(&render(record), 0)?;
            file.set_len(LENGTH as u64)?;
            file.sync_all()?;
            files::sync_folder(path)?;
        }
        Ok(Self { path: path.to_owned(), file, record, has_failed: false })
    }

    /// Records that messages up to `seq` are accepted.
    pub fn raise(&mut self, seq: i64) {
        if seq <= self.record.seq {
            return;
        }
        self.record.seq = seq;
        // A mark that is too low raises no false alarm, so the failure need not stop the write.
        if let Err(error) = self.file.write_all_at(&render(self.record), 0)
            && !std::mem::replace(&mut self.has_failed, true)
        {
            let path = self.path.display();
            tracing::warn!(%path, %error, "the high-water mark cannot be written; a lost log may go unnoticed");
        }
    }

    /// Syncs the mark, at an orderly stop.
    pub fn sync(&self) {
        if let Err(error) = self.file.sync_data() {
            tracing::warn!(%error, "the high-water mark could not be synced");
        }
    }
}

fn render(record: MarkRecord) -> [u8; LENGTH] {
    let mut line = [b' '; LENGTH];
    let mut rest = &mut line[..];
    // The line is as long as the buffer, so the write always fits.
    let _ = write!(rest, "{MAGIC} {} {:020} ", record.database.as_hyphenated(), record.seq.max(0));
    let checked = LENGTH - CHECK - 1;
    let check = hex(&Sha256::digest(&line[..checked])[..CHECK / 2]);
    line[checked..LENGTH - 1].copy_from_slice(check.as_bytes());
    line[LENGTH - 1] = b'\n';
    line
}

fn parse(text: &[u8]) -> Option<MarkRecord> {
    let words = std::str::from_utf8(text).ok()?.strip_prefix(MAGIC)?;
    let mut words = words.split_whitespace();
    let record = MarkRecord { database: words.next()?.parse().ok()?, seq: words.next()?.parse().ok()? };
    (render(record) == text).then_some(record)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_raised_mark_is_read_back_and_a_damaged_one_is_rejected() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("daoyou.mark");
        let database = Uuid::from_u128(7);
        assert_eq!(read(&path).unwrap(), StoredMark::Missing);
        let mut mark = HighWaterMark::set(&path, MarkRecord { database, seq: 3 }).unwrap();
        for (seq, expected) in [(5, 5), (4, 5), (i64::MAX, i64::MAX)] {
            mark.raise(seq);
            assert_eq!(read(&path).unwrap(), StoredMark::Valid(MarkRecord { database, seq: expected }));
        }
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let good = std::fs::read(&path).unwrap();
        assert_eq!(good.len(), LENGTH);
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 1;
            std::fs::write(&path, bad).unwrap();
            assert_eq!(read(&path).unwrap(), StoredMark::Damaged, "a flipped bit in byte {at}");
        }
        for (bytes, found) in
            [(&good[..LENGTH - 1], StoredMark::Damaged), (b"", StoredMark::Missing), (b"hi", StoredMark::Damaged)]
        {
            std::fs::write(&path, bytes).unwrap();
            assert_eq!(read(&path).unwrap(), found);
        }
    }
}
