//! Reads a write-ahead log from the disk. SQLite stops at the first frame with a wrong checksum and ignores all later frames, most
//! of which are intact. The file format: <https://www.sqlite.org/fileformat2.html#walformat>

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, BufReader, ErrorKind, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::files;

const HEADER: usize = 32;
const FRAME_HEADER: usize = 24;
/// The least significant bit says that checksums use big-endian words.
const MAGIC: u32 = 0x377f_0682;
/// The page size of this program's databases.
pub const PAGE: usize = 4_096;

/// The valid frames of a log.
#[derive(Debug, Default)]
pub struct WalFrames {
    page: usize,
    /// The offset of each page's newest committed content in the log.
    pages: BTreeMap<u32, u64>,
    /// The size of the database after the last commit, in pages.
    size: u32,
    /// The number of frames with a wrong checksum before valid ones.
    pub damaged: usize,
    /// The number of commits after the first damaged frame, which SQLite ignores.
    pub behind: usize,
    /// The number of pages whose newest content was, or may have been, in a damaged frame.
    pub outdated: usize,
}

/// A checksum of two words; the next checksum continues from it.
type WalChecksum = (u32, u32);

struct WalReader<R> {
    frames: R,
    is_big_endian: bool,
    salts: [u8; 8],
    /// The two possible seeds of the next frame's checksum: the checksum stored in the previous frame, and the one computed from its
    /// content.
    seeds: [WalChecksum; 2],
    page: usize,
}

/// The header of a frame, and the result of its checksum.
struct WalFrame {
    number: u32,
    /// The size of the database in pages if the frame ends a commit; else 0.
    commit: u32,
    is_whole: bool,
}

/// Reads the log at `path`; a missing log, or one that is too short, is empty.
///
/// # Errors
/// The log cannot be read.
pub fn read_frames(path: &Path) -> io::Result<WalFrames> {
    let Some(file) = files::if_exists(File::open(path))? else { return Ok(WalFrames::default()) };
    let mut reader = BufReader::with_capacity(1 << 18, file);
    let mut header = [0; HEADER];
    if !fill(&mut reader, &mut header)? {
        return Ok(WalFrames::default());
    }
    let mut log = WalReader::begin(reader, &header);
    let mut frames = WalFrames { page: log.page, ..WalFrames::default() };
    // The frames of a commit count once its last frame is found. A damaged frame may or may not belong to the same commit.
    let (mut waiting, mut doubtful) = (Vec::new(), Vec::new());
    let (mut lost, mut at) = (BTreeSet::new(), HEADER as u64);
    let mut content = vec![0; log.page];
    while let Some(frame) = log.next(&mut content)? {
        let place = at + FRAME_HEADER as u64;
        at = place + log.page as u64;
        if !frame.is_whole {
            doubtful.push(frame.number);
            continue;
        }
        frames.damaged += doubtful.len();
        lost.extend(doubtful.drain(..));
        waiting.push((frame.number, place));
        if frame.commit > 0 {
            for (number, place) in waiting.drain(..) {
                lost.remove(&number);
                frames.pages.insert(number, place);
            }
            frames.size = frame.commit;
            frames.behind += usize::from(frames.damaged > 0);
        }
    }
    frames.outdated = lost.len();
    Ok(frames)
}

impl WalFrames {
    /// Returns true if SQLite would ignore commits that the log contains.
    pub fn has_ignored_commits(&self) -> bool {
        self.damaged > 0 && self.behind > 0
    }

    /// Returns true if page `number` of the file does not matter: the log has a newer version, or the page is no longer part of the
    /// database.
    pub fn replaces(&self, number: u32) -> bool {
        !self.is_empty() && (number > self.size || self.pages.contains_key(&number))
    }

    pub fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }

    /// Writes the newest pages of `log` into `database`, as a checkpoint does.
    ///
    /// # Errors
    /// The log cannot be read, or the database cannot be written.
    pub fn apply(&self, log: &Path, database: &File) -> io::Result<()> {
        if self.is_empty() {
            return Ok(());
        }
        let log = File::open(log)?;
        let mut content = vec![0; self.page];
        for (number, place) in self.pages.iter().filter(|(number, _)| (1..=self.size).contains(*number)) {
            log.read_exact_at(&mut content, *place)?;
            database.write_all_at(&content, (u64::from(*number) - 1) * self.page as u64)?;
        }
        database.set_len(u64::from(self.size) * self.page as u64)
    }
}

impl<R: Read> WalReader<R> {
    fn begin(frames: R, header: &[u8; HEADER]) -> Self {
        let magic = word(header, 0);
        let is_big_endian = if magic | 1 == MAGIC | 1 { magic & 1 == 1 } else { cfg!(target_endian = "big") };
        let stored = (word(header, 24), word(header, 28));
        let is_whole = magic | 1 == MAGIC | 1 && checksum(is_big_endian, (0, 0), &header[..24]) == stored;
        let page = usize::try_from(word(header, 8)).unwrap_or(0);
        let is_size = page.is_power_of_two() && (512..=65_536).contains(&page);
        let mut salts = [0; 8];
        salts.copy_from_slice(&header[16..24]);
        Self {
            frames,
            is_big_endian,
            salts,
            seeds: [stored; 2],
            // An invalid header gives no page size; the first frame may be lost together with it.
            page: if is_whole && is_size { page } else { PAGE },
        }
    }

    /// Returns the next frame, with its page in `content`; `None` at the end.
    fn next(&mut self, content: &mut [u8]) -> io::Result<Option<WalFrame>> {
        let mut header = [0; FRAME_HEADER];
        if !fill(&mut self.frames, &mut header)? || !fill(&mut self.frames, content)? {
            return Ok(None);
        }
        let stored = (word(&header, 16), word(&header, 20));
        let summed = self.seeds.map(|seed| {
            let begun = checksum(self.is_big_endian, seed, &header[..8]);
            checksum(self.is_big_endian, begun, content)
        });
        let is_whole = header[8..16] == self.salts && summed.contains(&stored);
        self.seeds = [stored, summed[0]];
        Ok(Some(WalFrame { number: word(&header, 0), commit: word(&header, 4), is_whole }))
    }
}

/// Fills `buffer`; returns false at the end of the file.
fn fill(reader: &mut impl Read, buffer: &mut [u8]) -> io::Result<bool> {
    match reader.read_exact(buffer) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

fn word(bytes: &[u8], at: usize) -> u32 {
    bytes[at..at + 4].iter().fold(0, |word, byte| word << 8 | u32::from(*byte))
}

/// Continues a checksum over `bytes`, which are a whole number of word pairs.
fn checksum(is_big_endian: bool, (mut first, mut second): WalChecksum, bytes: &[u8]) -> WalChecksum {
    for pair in bytes.chunks_exact(8) {
        let [mut left, mut right] = [word(pair, 0), word(pair, 4)];
        if !is_big_endian {
            (left, right) = (left.swap_bytes(), right.swap_bytes());
        }
        first = first.wrapping_add(left).wrapping_add(second);
        second = second.wrapping_add(right).wrapping_add(first);
    }
    (first, second)
}

#[cfg(test)]
mod tests {
    use rusqlite::Connection;

    use super::*;

    /// Creates a database with 40 commits in its log and only the first pages in its file.
    fn logged_database(folder: &Path) -> Connection {
        let connection = Connection::open(folder.join("a.db")).unwrap();
        connection
            .execute_batch("PRAGMA journal_mode = WAL; CREATE TABLE lines (n INTEGER PRIMARY KEY, word TEXT NOT NULL)")
            .unwrap();
        connection.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
        for n in 0..40 {
            connection.execute("INSERT INTO lines VALUES (?, ?)", (n, "x".repeat(900))).unwrap();
        }
        connection
    }

    fn rows(path: &Path) -> i64 {
        let connection = Connection::open(path).unwrap();
        connection.query_row("SELECT count(*) FROM lines", [], |row| row.get(0)).unwrap()
    }

    /// Returns the content of `log` applied to the database's file, and what SQLite itself reads.
    fn both(folder: &Path, log: &[u8]) -> (WalFrames, i64, i64) {
        let copy = folder.join("copy.db");
        let wal = folder.join("copy.db-wal");
        std::fs::copy(folder.join("a.db"), &copy).unwrap();
        std::fs::write(&wal, log).unwrap();
        let frames = read_frames(&wal).unwrap();
        let ours = folder.join("ours.db");
        std::fs::copy(&copy, &ours).unwrap();
        frames.apply(&wal, &File::options().write(true).open(&ours).unwrap()).unwrap();
        let sqlite = rows(&copy);
        for left in ["copy.db-wal", "copy.db-shm"] {
            std::fs::remove_file(folder.join(left)).ok();
        }
        (frames, rows(&ours), sqlite)
    }

    #[test]
    fn frames_after_a_damaged_one_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let open = logged_database(folder.path());
        let log = std::fs::read(folder.path().join("a.db-wal")).unwrap();
        let frame = FRAME_HEADER + PAGE;
        let count = (log.len() - HEADER) / frame;
        assert!(count >= 40);
        let (frames, ours, sqlite) = both(folder.path(), &log);
        assert_eq!((frames.damaged, frames.outdated, ours, sqlite), (0, 0, 40, 40));
        // A flipped bit at each position of a frame: page, commit, salt, checksum, content.
        for (what, offset) in [("number", 3), ("salt", 9), ("sum", 17), ("content", FRAME_HEADER + 100)] {
            let mut log = log.clone();
            log[HEADER + 11 * frame + offset] ^= 4;
            let (frames, ours, sqlite) = both(folder.path(), &log);
            assert!(frames.has_ignored_commits() && sqlite < 15, "{what}: {frames:?}, SQLite reads {sqlite}");
            // Later frames contain the page again.
            assert_eq!((frames.damaged, frames.outdated, ours), (1, 0, 40), "{what}");
        }
        // A damaged header: all frames but the first are still read.
        let mut headless = log.clone();
        headless[9] ^= 4;
        let (_, ours, _) = both(folder.path(), &headless);
        assert_eq!(ours, 40);
        // A truncated log ends there.
        let (frames, ours, sqlite) = both(folder.path(), &log[..HEADER + count / 2 * frame + 77]);
        assert_eq!((frames.damaged, ours), (0, sqlite));
        for rest in [&[][..], &log[..20], b"nonsense, and more of it than a header is long, but not a frame"] {
            assert!(both(folder.path(), rest).0.is_empty());
        }
        drop(open);
    }
}
