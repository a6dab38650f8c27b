//! What stands in an archive, and what is asked of the names in it.

use std::io::{self, Read};
use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::store::backup::Facts;

/// The form of the archives that this program writes.
pub const FORMAT: u32 = 1;

/// The first entry, by which a backup is known.
pub const FIRST: &str = "daoyou-backup";

/// The last entry: an archive without it was cut short.
pub const MANIFEST: &str = "manifest.json";

/// What the home's own files stand under.
pub const ROOT: &str = "home";

/// The database's name in the home.
pub const DATABASE: &str = "daoyou.db";

/// The list of all that an archive holds.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Manifest {
    pub format: u32,
    /// The program's version.
    pub version: String,
    /// RFC 3339.
    pub created_at: String,
    /// Absent where the home had no database yet.
    #[serde(default)]
    pub database: Option<Facts>,
    /// The files, by their path in the home.
    pub files: Vec<Entry>,
}

/// One file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    pub path: PathBuf,
    pub size: u64,
    /// In hexadecimal.
    pub sha256: String,
}

/// Reads on from `inner`, and sums up what passes.
pub struct Summing<R> {
    inner: R,
    sum: Sha256,
    pub length: u64,
}

impl<R: Read> Summing<R> {
    pub fn new(inner: R) -> Self {
        Self { inner, sum: Sha256::new(), length: 0 }
    }

    /// SHA-256 of what has passed, in hexadecimal.
    pub fn finish(self) -> String {
        self.sum.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

impl<R: Read> Read for Summing<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.inner.read(buffer)?;
        self.sum.update(&buffer[..length]);
        self.length += length as u64;
        Ok(length)
    }
}

/// The path in the home that an entry's name stands for; `None` of one that leads out of it, or is the home itself.
pub fn in_home(name: &Path) -> Option<PathBuf> {
    let rest = name.strip_prefix(ROOT).ok()?;
    let plain = rest.components().all(|part| matches!(part, Component::Normal(_)));
    (plain && rest.components().next().is_some()).then(|| rest.to_owned())
}

/// Whether a link at `path` in the home that says `target` stays in the home.
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
    fn names_and_links_stay_in_the_home() {
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
