//! The log file. It is replaced when it is long, so that a process that runs for months does not fill the disk.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use rustix::io::Errno;

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
        log.check_length();
        Ok(log)
    }

    /// Replaces a long file. If that fails, the file says so and stays in use.
    fn check_length(&mut self) {
        let replaced = match self.file.try_lock() {
            // Another process replaces the file; the next check finds the new one.
            Err(TryLockError::WouldBlock) => return,
            Err(TryLockError::Error(error)) => Err(error),
            Ok(()) => {
                let next = self.open_next();
                self.file.unlock().and(next)
            }
        };
        match replaced {
            Ok(None) => {}
            Ok(Some(next)) => self.file = next,
            Err(error) => {
                let path = self.path.display();
                // If the file takes no line, there is no place for the report either.
                let _ = writeln!(self.file, "the long log file {path} cannot be replaced: {error}");
            }
        }
    }

    /// Returns the file that continues a long one, or one that is no longer at its path.
    fn open_next(&self) -> io::Result<Option<File>> {
        let (own, current) = (self.file.metadata()?, fs::metadata(&self.path));
        // Otherwise, another process has replaced the file, or somebody has removed it.
        let is_current = current.is_ok_and(|current| (current.dev(), current.ino()) == (own.dev(), own.ino()));
        if is_current && own.len() < self.max {
            return Ok(None);
        }
        if is_current {
            fs::rename(&self.path, self.path.with_added_extension("1"))?;
        }
        open_file(&self.path).map(Some)
    }
}

impl Write for LogFile {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        let written = self.file.write(text)?;
        self.unchecked += written;
        if self.unchecked >= CHECK_BYTES {
            self.unchecked = 0;
            self.check_length();
        }
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Opens the log file at its end. A new file is private, since log lines can contain texts of messages.
///
/// # Errors
/// The file cannot be opened, or a symbolic link is in its place: log lines must not change another file.
pub fn open_file(path: &Path) -> io::Result<File> {
    let no_follow = OFlags::NOFOLLOW.bits().cast_signed();
    let opened = OpenOptions::new().create(true).append(true).mode(0o600).custom_flags(no_follow).open(path);
    opened.map_err(|error| match Errno::from_io_error(&error) {
        Some(Errno::LOOP) => {
            io::Error::new(ErrorKind::InvalidInput, "it is a symbolic link, which is not followed: remove it")
        }
        _ => error,
    })
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
        logs[0].check_length();
        assert_eq!(fs::read(&earlier).unwrap(), [b'b'; 100], "only one earlier file is kept");
        for path in [path, earlier] {
            assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o600);
        }
    }

    #[test]
    fn a_file_that_cannot_be_replaced_says_so_and_stays_in_use() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("daoyou.log");
        let mut log = LogFile { max: 1, ..LogFile::open(&path).unwrap() };
        // A file cannot take the place of a folder.
        fs::create_dir(folder.path().join("daoyou.log.1")).unwrap();
        log.write_all(&[b'a'; CHECK_BYTES]).unwrap();
        log.write_all(b"more").unwrap();
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains("cannot be replaced: ") && text.ends_with("\nmore"), "{}", &text[CHECK_BYTES..]);
    }

    #[test]
    fn a_link_in_place_of_the_file_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let (path, other) = (folder.path().join("daoyou.log"), folder.path().join("other"));
        fs::write(&other, "kept").unwrap();
        std::os::unix::fs::symlink(&other, &path).unwrap();
        let error = open_file(&path).unwrap_err();
        assert_eq!(error.to_string(), "it is a symbolic link, which is not followed: remove it");
        assert_eq!(fs::read_to_string(&other).unwrap(), "kept");
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
