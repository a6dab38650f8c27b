//! The ZIP archive that most document formats consist of, with a limit on the unpacked size.

use std::io::{Cursor, Read};

use encoding_rs::UTF_8;
use zip::ZipArchive;

/// The maximum number of files in an archive.
const MAX_FILES: usize = 20_000;
/// The maximum unpacked size of an archive, in bytes.
const MAX_UNPACKED: u64 = 100_000_000;

/// The files in a document's archive.
pub(super) struct DocumentArchive<'a> {
    archive: ZipArchive<Cursor<&'a [u8]>>,
    /// The number of bytes that may still be unpacked.
    room: u64,
}

impl<'a> DocumentArchive<'a> {
    /// Opens the archive of a document.
    ///
    /// # Errors
    /// The archive is broken, or its unpacked size is too large.
    pub(super) fn open(bytes: &'a [u8]) -> Result<Self, String> {
        let broken = |error| format!("the ZIP archive is broken: {error}");
        let mut archive = ZipArchive::new(Cursor::new(bytes)).map_err(broken)?;
        if archive.len() > MAX_FILES {
            return Err(format!("the archive has {} files, more than {MAX_FILES}", archive.len()));
        }
        let mut unpacked = 0_u64;
        for at in 0..archive.len() {
            unpacked = unpacked.saturating_add(archive.by_index_raw(at).map_err(broken)?.size());
        }
        // Images and videos are never unpacked, so the total may exceed the limit here. The sizes of the other files are checked
        // again when they are read.
        if unpacked / 8 > MAX_UNPACKED {
            return Err(too_large());
        }
        Ok(Self { archive, room: MAX_UNPACKED })
    }

    /// Returns the names of all files.
    pub(super) fn names(&self) -> Vec<String> {
        self.archive.file_names().filter_map(|name| Some(name.ok()?.into_owned())).collect()
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.archive.file_names().any(|known| known.is_ok_and(|known| known == name))
    }

    /// Unpacks a file.
    ///
    /// # Errors
    /// The file is missing, broken or encrypted, or the unpacked size is too large.
    pub(super) fn read(&mut self, name: &str) -> Result<Vec<u8>, String> {
        let file = self.archive.by_name(name).map_err(|error| format!("{name}: {error}"))?;
        let mut bytes = Vec::new();
        file.take(self.room + 1).read_to_end(&mut bytes).map_err(|error| format!("{name} is broken: {error}"))?;
        self.room = self.room.checked_sub(bytes.len() as u64).ok_or_else(too_large)?;
        Ok(bytes)
    }

    /// Unpacks a file of text.
    ///
    /// # Errors
    /// As [`DocumentArchive::read`].
    pub(super) fn read_text(&mut self, name: &str) -> Result<String, String> {
        Ok(UTF_8.decode(&self.read(name)?).0.into_owned())
    }
}

fn too_large() -> String {
    format!("the archive unpacks to more than {} MB, which is not read", MAX_UNPACKED / 1_000_000)
}
