//! Entries of folders that are not opened themselves: their facts, the creation of folders, and the targets of moves.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use cap_std::fs::Dir;
use rustix::fs::{AtFlags, FileType, Stat};

use super::jail::{Jail, OpenFolder, check_written, quote_controls};
use super::jail_error::JailError;

/// An entry of a folder that was opened and checked. The entry itself is not opened: it may be a link or a device, or not exist.
#[derive(Debug)]
pub struct JailEntry {
    pub folder: Dir,
    pub name: OsString,
    /// The path of the entry. No folder in it is a link.
    pub real: PathBuf,
    /// The path as shown to the model.
    pub shown: String,
}

/// The facts of an entry, read without opening it.
#[derive(Debug)]
pub struct EntryFacts {
    pub kind: FileType,
    pub size: u64,
    /// The permissions and the bits above them.
    pub mode: u32,
    pub hard_links: u64,
    pub modified: Option<SystemTime>,
    /// The target of a link, as written in the link.
    pub target: Option<String>,
    /// The path as shown to the model.
    pub shown: String,
}

impl JailEntry {
    /// Returns the facts of the entry.
    ///
    /// # Errors
    /// The entry does not exist, or its folder cannot be read.
    pub fn facts(&self) -> Result<EntryFacts, JailError> {
        let failed = |error: rustix::io::Errno| JailError::from_io(&self.shown, error.into());
        let found = rustix::fs::statat(&self.folder, &self.name, AtFlags::SYMLINK_NOFOLLOW).map_err(failed)?;
        let facts = facts_of(&found, &self.shown);
        if facts.kind != FileType::Symlink {
            return Ok(facts);
        }
        let target = rustix::fs::readlinkat(&self.folder, &self.name, Vec::new()).map_err(failed)?;
        Ok(EntryFacts { target: Some(quote_controls(&target.to_string_lossy())), ..facts })
    }
}

impl Jail {
    /// Returns the entry that `path` names. A link at its end is not followed.
    ///
    /// # Errors
    /// As [`Jail::folder`] for the folder of the entry, and for a path without a name, such as `.`.
    pub fn entry(&self, path: &str) -> Result<JailEntry, JailError> {
        check_written(path)?;
        let (above, name) = split(path)?;
        let OpenFolder { dir, real, shown } = self.open_folder(&above).map_err(|error| match error {
            // The error names the path as written, not the folder above it.
            JailError::Outside(_) => JailError::Outside(quote_controls(path)),
            error => error,
        })?;
        let shown = Path::new(&shown).join(&name);
        let shown = quote_controls(&shown.strip_prefix(".").unwrap_or(&shown).display().to_string());
        let real = real.join(&name);
        self.check_protected(&real, &shown)?;
        self.check_closed(&real, &shown)?;
        Ok(JailEntry { folder: dir, name, real, shown })
    }

    /// Returns the facts of the entry that `path` names. A link at its end is not followed, and only folders are opened.
    ///
    /// # Errors
    /// As [`Jail::entry`].
    pub fn facts(&self, path: &str) -> Result<EntryFacts, JailError> {
        match self.entry(path) {
            Err(JailError::Invalid(NO_NAME)) => {
                let OpenFolder { dir, shown, .. } = self.open_folder(path)?;
                let found = rustix::fs::fstat(&dir).map_err(|error| JailError::from_io(&shown, error.into()))?;
                Ok(facts_of(&found, &shown))
            }
            entry => entry?.facts(),
        }
    }

    /// Returns true if a closed or protected path lies at or below the entry, or if the rules may forbid a part of it.
    pub fn holds_protected(&self, entry: &JailEntry) -> bool {
        let lies_below = |path: &PathBuf| path.starts_with(&entry.real);
        // The rules name files. Whether they forbid a file inside a folder is unknown, so a folder counts as protected.
        let is_folder = || entry.facts().is_ok_and(|facts| facts.kind == FileType::Directory);
        self.protected.iter().any(lies_below)
            || self.closed.paths().any(lies_below)
            || self.check_rules(&entry.real, "").is_err()
            || self.has_path_rules() && is_folder()
    }

    /// Creates a folder and the folders above it. Returns its path as shown to the model, and false if it existed already.
    ///
    /// # Errors
    /// As [`Jail::write`].
    pub fn create_folder(&self, path: &str) -> Result<(String, bool), JailError> {
        let resolved = self.resolve(path)?;
        match self.open_folder(path) {
            Ok(folder) => return Ok((folder.shown, false)),
            Err(JailError::Missing(_)) => {}
            Err(error) => return Err(error),
        }
        let folder = self.make_folder(&resolved, &resolved.relative, None)?;
        self.check_real_path(&resolved, &folder)?;
        Ok((resolved.shown, true))
    }
}

const NO_NAME: &str = "it names no entry of a folder";

/// Splits a path into its folder and the name there.
fn split(path: &str) -> Result<(String, OsString), JailError> {
    let written = Path::new(path);
    let is_named = !matches!(path.trim_end_matches('/').rsplit('/').next(), Some("." | ".."));
    let (Some(name), Some(above)) = (written.file_name().filter(|_| is_named), written.parent()) else {
        return Err(JailError::Invalid(NO_NAME));
    };
    let above = if above.as_os_str().is_empty() { Path::new(".") } else { above };
    Ok((above.display().to_string(), name.to_owned()))
}

/// Returns the modification time from the result of stat(2).
pub(super) fn modified_at(found: &Stat) -> Option<SystemTime> {
    let since = Duration::new(u64::try_from(found.st_mtime).ok()?, u32::try_from(found.st_mtime_nsec).ok()?);
    SystemTime::UNIX_EPOCH.checked_add(since)
}

fn facts_of(found: &Stat, shown: &str) -> EntryFacts {
    EntryFacts {
        kind: FileType::from_raw_mode(found.st_mode),
        size: u64::try_from(found.st_size).unwrap_or(0),
        mode: found.st_mode & 0o7777,
        hard_links: found.st_nlink,
        modified: modified_at(found),
        target: None,
        shown: shown.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_split_before_its_last_name() {
        for (path, expected) in [
            ("a", Some((".", "a"))),
            ("a/b/", Some(("a", "b"))),
            ("./a", Some((".", "a"))),
            ("/a", Some(("/", "a"))),
            ("a/../b", Some(("a/..", "b"))),
            (".", None),
            ("./", None),
            ("a/.", None),
            ("a/..", None),
            ("/", None),
        ] {
            let expected = expected.map(|(above, name)| (above.to_owned(), OsString::from(name)));
            assert_eq!(split(path).ok(), expected, "{path}");
        }
    }
}
