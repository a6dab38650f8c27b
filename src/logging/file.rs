//! The log file. It is replaced when it is long, so that a process that runs for months does not fill the disk.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The length in bytes from which on the file is replaced.
const MAX_BYTES: u64 = 10_000_000;
/// The number of bytes after which the length is checked again.
const CHECK_BYTES: usize = 64 * 1024;

/// A log file. When it is long, it gets the extension `.1`, in place of an earlier one, and a new file begins. Several processes may
/// write to the same file.
pub(super) struct LogFile {
    path: PathBuf,
    file: File,
    /// The bytes that were written since the last check.
    unchecked: usize,
    max: u64,
}

impl LogFile {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let mut log = Self { path: path.to_owned(), file: open_file(path)?, unchecked: 0, max: MAX_BYTES };
        log.replace_if_long()?;
        Ok(log)
    }

    fn replace_if_long(&mut self) -> io::Result<()> {
        let (own, current) = (self.file.metadata()?, fs::metadata(&self.path));
        // Otherwise, another process has replaced the file, or somebody has removed it.
        let is_current = current.is_ok_and(|current| (current.dev(), current.ino()) == (own.dev(), own.ino()));
        if is_current && own.len() < self.max {
            return Ok(());
        }
        if is_current {
            fs::rename(&self.path, self.path.with_added_extension("1"))?;
        }
        self.file = open_file(&self.path)?;
        Ok(())
    }
}

impl Write for LogFile {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        let written = self.file.write(text)?;
        self.unchecked += written;
        if self.unchecked >= CHECK_BYTES {
            self.unchecked = 0;
            if let Err(error) = self.replace_if_long() {
                writeln!(self.file, "the long log file {} cannot be replaced: {error}", self.path.display())?;
            }
        }
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Opens the log file at its end. A new file is private, since log lines can contain texts of messages.
pub fn open_file(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).mode(0o600).open(path)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_long_file_is_replaced_and_every_process_writes_to_the_new_one() {
        let folder = tempfile::tempdir().unwrap();
        let (path, earlier) = (folder.path().join("daoyou.log"), folder.path().join("daoyou.log.1"));
        let mut logs = [(), ()].map(|()| LogFile { max: 100, ..LogFile::open(&path).unwrap() });
        for log in &mut logs {
            log.write_all(&[b'a'; CHECK_BYTES]).unwrap();
            log.write_all(b"new").unwrap();
        }
        assert_eq!(fs::read_to_string(&path).unwrap(), "newnew");
        assert_eq!(fs::metadata(&earlier).unwrap().len(), 2 * CHECK_BYTES as u64);
        fs::write(&path, [b'b'; 100]).unwrap();
        logs[0].replace_if_long().unwrap();
        assert_eq!(fs::read(&earlier).unwrap(), [b'b'; 100], "only one earlier file is kept");
        for path in [path, earlier] {
            assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o600);
        }
    }

    #[test]
    fn a_file_that_was_long_at_the_start_is_replaced_and_a_short_one_is_continued() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("daoyou.log");
        for (before, expected) in [(MAX_BYTES, "new"), (3, "\0\0\0new")] {
            File::create(&path).unwrap().set_len(before).unwrap();
            LogFile::open(&path).unwrap().write_all(b"new").unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), expected);
        }
    }
}
