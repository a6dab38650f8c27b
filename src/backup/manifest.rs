//! The manifest of an archive, and the checks of the names in it.

use std::io::{self, Read};
use std::path::{Component, Path, PathBuf};

use daoyou_channels::text::hex;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::store::backup::DatabaseFacts;

/// The format of the archives that this program writes.
pub const FORMAT: u32 = 1;

/// The name of the first entry, which identifies a backup.
pub const FIRST_ENTRY: &str = "daoyou-backup";

/// The name of the last entry. An archive without this entry is truncated.
pub const MANIFEST: &str = "manifest.json";

/// The folder of the home's own files in an archive.
pub const ROOT: &str = "home";

/// The name of the database in the home.
pub const DATABASE: &str = "daoyou.db";

/// The list of an archive's contents.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Manifest {
    pub format: u32,
    /// The program's version.
    pub version: String,
    /// The time of creation, RFC 3339.
    pub created_at: String,
    /// Absent if the home had no database yet.
    #[serde(default)]
    pub database: Option<DatabaseFacts>,
    /// The files, by their path in the home.
    pub files: Vec<ArchivedFile>,
}

/// A file in an archive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArchivedFile {
    pub path: PathBuf,
    pub size: u64,
    /// The SHA-256, in hexadecimal.
    pub sha256: String,
}

/// A reader that computes the SHA-256 and the length of the data that passes through it.
pub struct HashingReader<R> {
    inner: R,
    sum: Sha256,
    pub length: u64,
}

impl<R: Read> HashingReader<R> {
    pub fn new(inner: R) -> Self {
        Self { inner, sum: Sha256::new(), length: 0 }
    }

    /// Returns the SHA-256 of the data, in hexadecimal.
    pub fn finish(self) -> String {
        hex(&self.sum.finalize())
    }
}

impl<R: Read> Read for HashingReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.inner.read(buffer)?;
        self.sum.update(&buffer[..length]);
        self.length += length as u64;
        Ok(length)
    }
}

/// Returns the path in the home for an entry's name; `None` if the name leads out of the home or is the home itself.
pub fn in_home(name: &Path) -> Option<PathBuf> {
    let rest = name.strip_prefix(ROOT).ok()?;
    let plain = rest.components().all(|part| matches!(part, Component::Normal(_)));
    (plain && rest.components().next().is_some()).then(|| rest.to_owned())
}

/// Returns true if a link at `path` in the home to `target` stays in the home.
pub fn link_stays(path: &Path, target: &Path) -> bool {
    let mut depth = path.components().count().saturating_sub(1);
    for part in target.components() {
        match part {
            Component::Normal(_) => depth += 1,
            Component::CurDir => {}
            Component::ParentDir if depth > 0 => depth -= 1,
            _ => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_links_must_stay_in_the_home() {
        for (name, expected) in [
            ("home/config.toml", Some("config.toml")),
            ("home/workspace/a/b", Some("workspace/a/b")),
            ("home/./a", Some("a")),
            ("home", None),
            ("home/", None),
            ("home/..", None),
            ("home/../etc/passwd", None),
            ("home/a/../../b", None),
            ("/home/a", None),
            ("/etc/passwd", None),
            ("elsewhere/a", None),
            ("", None),
        ] {
            assert_eq!(in_home(Path::new(name)), expected.map(PathBuf::from), "{name}");
        }
        for (path, target, stays) in [
            ("workspace/a", "b", true),
            ("workspace/a", "../config.toml", true),
            ("workspace/a", "../../etc", false),
            ("a", "..", false),
            ("a", "/etc/passwd", false),
            ("workspace/a", "b/../../../x", false),
        ] {
            assert_eq!(link_stays(Path::new(path), Path::new(target)), stays, "{path} -> {target}");
        }
    }
}
