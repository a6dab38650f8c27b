//! The cached lists of the servers on disk, so that a gateway is ready without starting any server.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::listing::ServerListing;

/// The format version of the files. Files of other versions are ignored.
const VERSION: u32 = 2;
/// The largest file that is read, in bytes.
const MAX_BYTES: u64 = 32_000_000;

/// A cached list on disk.
#[derive(Serialize, Deserialize)]
struct CachedListing {
    version: u32,
    /// When the list was made, in milliseconds since 1970.
    listed_at: i64,
    listing: ServerListing,
}

/// The folder of the cached lists.
pub(super) struct ListingCache {
    folder: PathBuf,
}

impl ListingCache {
    /// Returns the cache in a home folder. The folder is created on the first write.
    pub(super) fn of_home(home: &Path) -> Self {
        Self { folder: home.join("cache").join("mcp") }
    }

    fn path(&self, server: &str, fingerprint: &str) -> PathBuf {
        self.folder.join(format!("{server}-{fingerprint}.json"))
    }

    /// Returns a list, and when it was made. An unreadable file counts as missing.
    pub(super) fn read(&self, server: &str, fingerprint: &str) -> Option<(ServerListing, i64)> {
        let path = self.path(server, fingerprint);
        let read = || -> io::Result<CachedListing> {
            let mut text = String::new();
            File::open(&path)?.take(MAX_BYTES).read_to_string(&mut text)?;
            Ok(serde_json::from_str(&text)?)
        };
        match read() {
            Ok(cached) if cached.version == VERSION => Some((cached.listing, cached.listed_at)),
            Ok(_) => None,
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => {
                tracing::warn!(server, %error, "the cached list of an MCP server cannot be read: it is made again");
                None
            }
        }
    }

    /// Replaces a list, and removes the lists of the same server with other settings.
    ///
    /// # Errors
    /// The disk refuses the write.
    pub(super) fn write(&self, server: &str, fingerprint: &str, listing: &ServerListing, at: i64) -> io::Result<()> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.folder)?;
        let cached = CachedListing { version: VERSION, listed_at: at, listing: listing.clone() };
        let mut file = tempfile::NamedTempFile::new_in(&self.folder)?;
        file.write_all(&serde_json::to_vec(&cached)?)?;
        let path = self.path(server, fingerprint);
        file.persist(&path).map_err(|error| error.error)?;
        for entry in fs::read_dir(&self.folder)?.flatten() {
            let name = entry.file_name();
            let rest =
                name.to_str().and_then(|name| name.strip_prefix(server)?.strip_prefix('-')?.strip_suffix(".json"));
            // The files of a server called `a-0123456789abcdef` have the same prefix as those of the server `a`.
            let is_old =
                rest.is_some_and(|rest| rest != fingerprint && rest.len() == fingerprint.len() && !rest.contains('-'));
            if is_old {
                fs::remove_file(entry.path())?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_of_the_present_settings_is_kept() {
        let home = tempfile::tempdir().unwrap();
        let cache = ListingCache::of_home(home.path());
        assert!(cache.read("a", "0011").is_none());
        let listing = ServerListing { protocol: "2025-11-25".to_owned(), ..ServerListing::default() };
        cache.write("a-b", "0011", &listing, 1).unwrap();
        cache.write("a", "0011", &listing, 1).unwrap();
        cache.write("a", "2233", &listing, 2).unwrap();
        assert!(cache.read("a", "0011").is_none());
        assert_eq!(cache.read("a", "2233").unwrap(), (listing.clone(), 2));
        assert!(cache.read("a-b", "0011").is_some());
        fs::write(cache.path("a", "2233"), "{").unwrap();
        assert!(cache.read("a", "2233").is_none());
        let count = fs::read_dir(&cache.folder).unwrap().count();
        assert_eq!(count, 2, "no temporary file is left");
    }
}
