//! The ZIP archive that most documents are, with bounds on what it unpacks to.

use std::io::{Cursor, Read};

use encoding_rs::UTF_8;
use zip::ZipArchive;

/// The most files in an archive.
const MAX_FILES: usize = 20_000;
/// What is unpacked of an archive, in bytes.
const MAX_UNPACKED: u64 = 100_000_000;

/// The files of a document.
pub(super) struct DocumentArchive<'a> {
    archive: ZipArchive<Cursor<&'a [u8]>>,
    /// The bytes that may still be unpacked.
    room: u64,
}

impl<'a> DocumentArchive<'a> {
    /// # Errors
    /// The archive is broken, or unpacks to too much.
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
        // Images and videos are not unpacked; the sizes of the rest are checked again while they are read.
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
    /// It is missing, broken or encrypted, or the archive unpacks to too much.
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
