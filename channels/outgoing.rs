//! Copies of the files that are sent with messages. The copy is made outside the workspace when the message is written, so
//! that later changes in the workspace do not alter the delivery.

use std::collections::HashSet;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::fs::OFlags;
use uuid::Uuid;

use crate::message::Attachment;
use crate::text::sha256_hex;

/// The folder of the copies in the gateway's home.
pub const FOLDER: &str = "outgoing";
/// The suffix of an unfinished copy.
const DRAFT: &str = ".part";

/// The folder of the copies. Each copy is named by the SHA-256 of its bytes. The functions block.
#[derive(Clone, Debug)]
pub struct OutgoingFiles {
    folder: PathBuf,
}

impl OutgoingFiles {
    /// Returns the folder of copies in the gateway home `home`.
    pub fn of_home(home: &Path) -> Self {
        Self { folder: home.join(FOLDER) }
    }

    /// Stores a copy of `bytes`, which is on disk when this returns. Returns the digest for [`Attachment::digest`].
    ///
    /// # Errors
    /// Writing fails.
    pub fn keep(&self, bytes: &[u8]) -> io::Result<String> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.folder)?;
        let digest = digest_of(bytes);
        let path = self.folder.join(&digest);
        if self.read(&path, &digest, bytes.len() as u64).is_ok() {
            // `sweep` measures the age since the last use.
            OpenOptions::new().write(true).open(&path)?.set_modified(SystemTime::now())?;
            return Ok(digest);
        }
        let draft = self.folder.join(format!("{}{DRAFT}", Uuid::new_v4().simple()));
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
        let written =
            file.write_all(bytes).and_then(|()| file.sync_all()).and_then(|()| std::fs::rename(&draft, &path));
        if let Err(error) = written {
            // The caller needs the write error; `sweep` removes the unfinished copy.
            drop(std::fs::remove_file(&draft));
            return Err(error);
        }
        File::open(&self.folder)?.sync_all()?;
        Ok(digest)
    }

    /// Reads the copy of an attachment.
    ///
    /// # Errors
    /// The copy is missing, is larger than `limit` bytes, or does not match its digest.
    pub fn load(&self, attachment: &Attachment, limit: u64) -> io::Result<Vec<u8>> {
        let digest = attachment.digest.as_str();
        let is_digest = digest.len() == 64 && digest.bytes().all(|byte| byte.is_ascii_hexdigit());
        if !is_digest {
            let reason = format!("{:?} has no copy that was made when the message was written", attachment.name);
            return Err(io::Error::new(ErrorKind::NotFound, reason));
        }
        self.read(&self.folder.join(digest), digest, limit)
    }

    fn read(&self, path: &Path, digest: &str, limit: u64) -> io::Result<Vec<u8>> {
        let wrong = |what: String| io::Error::new(ErrorKind::InvalidData, format!("{}: {what}", path.display()));
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let file = OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(path)?;
        if !file.metadata()?.is_file() {
            return Err(wrong("it is not a regular file".to_owned()));
        }
        let mut bytes = Vec::new();
        file.take(limit.saturating_add(1)).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > limit {
            return Err(wrong(format!("it is larger than {limit} bytes, which is the maximum that can be sent")));
        }
        if digest_of(&bytes) != digest {
            return Err(wrong("its bytes are not those that were kept".to_owned()));
        }
        Ok(bytes)
    }

    /// Removes the copies that are not `in_use` and were last used longer than `age` ago. Returns their number.
    ///
    /// # Errors
    /// The folder cannot be read or changed.
    pub fn sweep(&self, in_use: &HashSet<String>, age: Duration) -> io::Result<usize> {
        let entries = match std::fs::read_dir(&self.folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(0),
            Err(error) => return Err(error),
        };
        let mut removed = 0;
        for entry in entries {
            let entry = entry?;
            if entry.file_name().to_str().is_some_and(|name| in_use.contains(name)) {
                continue;
            }
            // After the clock was set back, the modification time may be in the future. Such a file counts as just used until that time.
            let unused = entry.metadata()?.modified()?.elapsed().unwrap_or_default();
            if unused >= age {
                std::fs::remove_file(entry.path())?;
                removed += 1;
            }
        }
        Ok(removed)
    }
}

/// Returns the value of [`Attachment::digest`] for these bytes.
pub fn digest_of(bytes: &[u8]) -> String {
    sha256_hex(&[bytes])
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn attachment(digest: &str) -> Attachment {
        Attachment { name: "a.txt".to_owned(), digest: digest.to_owned(), ..Attachment::default() }
    }

    #[test]
    fn prepared_messages_stay_the_same_until_they_are_released() {
        let home = tempfile::tempdir().unwrap();
        let files = OutgoingFiles::of_home(home.path());
        let digest = files.keep(b"one").unwrap();
        assert_eq!(files.keep(b"one").unwrap(), digest);
        let path = home.path().join(FOLDER).join(&digest);
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&path), mode(&home.path().join(FOLDER))), (0o600, 0o700));
        assert_eq!(files.load(&attachment(&digest), 3).unwrap(), b"one");
        assert!(files.load(&attachment(&digest), 2).is_err());
        for wrong in ["", "../token", &"0".repeat(64), &format!("../{}", &digest[3..])] {
            assert!(files.load(&attachment(wrong), 9).is_err(), "{wrong}");
        }
        assert_eq!(files.sweep(&HashSet::from([digest.clone()]), Duration::ZERO).unwrap(), 0);
        assert_eq!(files.sweep(&HashSet::new(), Duration::from_secs(60)).unwrap(), 0);
        // A damaged copy is not sent, and the same bytes replace it later.
        std::fs::write(&path, "two").unwrap();
        assert!(files.load(&attachment(&digest), 3).is_err());
        assert_eq!(files.keep(b"one").unwrap(), digest);
        assert_eq!(files.load(&attachment(&digest), 3).unwrap(), b"one");
        assert_eq!(files.sweep(&HashSet::new(), Duration::ZERO).unwrap(), 1);
        assert!(files.load(&attachment(&digest), 3).is_err());
    }
}
