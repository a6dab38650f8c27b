//! The pins of installed skills: the digests of the files that the owner has reviewed. They are stored in the home folder, which
//! the agent's commands cannot write. A skill whose files differ is not used.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use rustix::fs::{AtFlags, FileType, fstat, statat};
use serde::{Deserialize, Serialize};

use super::package::{MAX_BYTES, digest_of};
use crate::guard::{FileVersion, Jail, JailError, OpenFile};
use crate::skills::discovery::join;

/// The name of the pin file in the home folder.
const FILE: &str = "skills.json";
/// The maximum size of the pin file, in bytes.
const MAX_FILE: u64 = 10_000_000;
/// The maximum number of entries of an installed skill's folder that are examined, and the maximum depth.
const MAX_ENTRIES: usize = 2_000;
const MAX_LEVELS: usize = 12;
/// The file whose lock is held while the pins are read, changed and written.
const LOCK_FILE: &str = "skills.json.lock";

/// The pin of an installed skill.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SkillPin {
    /// The source that the skill was installed from.
    pub source: String,
    /// The commit, if the source was a repository.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    pub installed_at: Timestamp,
    /// The digest of each file.
    pub files: FileDigests,
}

/// The digests of the files in a folder, by their relative paths.
pub type FileDigests = BTreeMap<String, String>;

/// The pins of all installed skills, by the names of their folders in `skills/`.
pub type PinsByFolder = BTreeMap<String, SkillPin>;

/// The pin file.
#[derive(Clone, Debug)]
pub struct SkillPins {
    path: PathBuf,
}

impl SkillPins {
    pub fn in_home(home: &Path) -> Self {
        Self { path: home.join(FILE) }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the version of the file; `None` if the file does not exist.
    pub(crate) fn version(&self) -> Option<FileVersion> {
        FileVersion::of_entry(&self.path)
    }

    /// Reads the pins. Without a file there are none.
    ///
    /// # Errors
    /// The file cannot be read, or its content is not valid.
    pub fn read(&self) -> io::Result<PinsByFolder> {
        match fs::metadata(&self.path) {
            Ok(found) if found.len() > MAX_FILE => Err(io::Error::other("the file is too large")),
            Ok(_) => serde_json::from_slice(&fs::read(&self.path)?).map_err(io::Error::other),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(PinsByFolder::new()),
            Err(error) => Err(error),
        }
    }

    /// Waits for other programs that change the pins, and locks them out. Dropping the returned file releases the lock.
    ///
    /// # Errors
    /// The lock file cannot be created.
    pub fn lock(&self) -> io::Result<fs::File> {
        let path = self.path.with_file_name(LOCK_FILE);
        // Other users of this machine must not be able to hold the lock.
        let file = fs::File::options().create(true).append(true).mode(0o600).open(path)?;
        file.lock()?;
        Ok(file)
    }

    /// Replaces the pins atomically.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&self, pins: &PinsByFolder) -> io::Result<()> {
        let folder = self.path.parent().unwrap_or(Path::new("."));
        let mut file = tempfile::NamedTempFile::new_in(folder)?;
        serde_json::to_writer_pretty(&mut file, pins)?;
        file.write_all(b"\n")?;
        file.as_file().sync_all()?;
        file.persist(&self.path).map_err(|error| error.error)?;
        fs::File::open(folder)?.sync_all()
    }
}

/// The files of a folder with their versions, but without their content.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FolderListing {
    files: Vec<(String, FileVersion)>,
    /// The folder itself, as an empty path, and the folders in it. The version of a folder changes with the names in it.
    folders: Vec<(String, FileVersion)>,
    /// Links, pipes and other special files, and entries that could not be read.
    others: Vec<String>,
}

impl FolderListing {
    /// Lists all files below `folder`, hidden ones included.
    pub fn of(jail: &Jail, folder: &str) -> Self {
        let mut listing = Self::default();
        let mut left = MAX_ENTRIES;
        if let Err(error) = listing.add(jail, folder, "", 1, &mut left) {
            listing.others.push(error.to_string());
        }
        listing.files.sort();
        listing.folders.sort();
        listing.others.sort();
        listing
    }

    fn add(
        &mut self,
        jail: &Jail,
        folder: &str,
        prefix: &str,
        level: usize,
        left: &mut usize,
    ) -> Result<(), JailError> {
        let (dir, shown) = jail.folder(folder)?;
        let failed = |error| JailError::Io { path: shown.clone(), error };
        let itself = fstat(&dir).map_err(|error| failed(error.into()))?;
        self.folders.push((prefix.trim_end_matches('/').to_owned(), FileVersion::of(&itself)));
        for entry in dir.entries().map_err(failed)? {
            let name = entry.map_err(failed)?.file_name();
            let shown_name = format!("{prefix}{}", name.to_string_lossy());
            *left = left.saturating_sub(1);
            let (Some(name), true) = (name.to_str(), *left > 0 && level <= MAX_LEVELS) else {
                self.others.push(shown_name);
                return Ok(());
            };
            let found = statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW).map_err(|error| failed(error.into()))?;
            match FileType::from_raw_mode(found.st_mode) {
                FileType::RegularFile => self.files.push((shown_name, FileVersion::of(&found))),
                FileType::Directory => {
                    self.add(jail, &join(folder, name), &format!("{shown_name}/"), level + 1, left)?;
                }
                _ => self.others.push(shown_name),
            }
        }
        Ok(())
    }

    /// Returns true if `folder` still has the same entries in the same versions. This costs far less than a new listing.
    pub fn is_current(&self, jail: &Jail, folder: &str) -> bool {
        let is_same = |(path, version): &(String, FileVersion)| {
            let path = if path.is_empty() { folder.to_owned() } else { join(folder, path) };
            let found = statat(jail.root_folder(), path, AtFlags::SYMLINK_NOFOLLOW);
            found.is_ok_and(|found| FileVersion::of(&found) == *version)
        };
        // Entries that could not be read may be readable the next time, so such a listing is never current.
        self.others.is_empty() && !self.folders.is_empty() && self.folders.iter().chain(&self.files).all(is_same)
    }

    /// Reads the files and returns their digests, and whether all could be read. A special or unreadable file gets a digest that
    /// no regular file has.
    pub fn digests(&self, jail: &Jail, folder: &str) -> (FileDigests, bool) {
        let mut is_complete = true;
        let mut digests: FileDigests = self.others.iter().map(|path| (path.clone(), "no file".to_owned())).collect();
        for (path, _) in &self.files {
            let digest = file_digest(jail, &join(folder, path)).unwrap_or_else(|reason| {
                is_complete = false;
                reason
            });
            digests.insert(path.clone(), digest);
        }
        (digests, is_complete)
    }
}

fn file_digest(jail: &Jail, path: &str) -> Result<String, String> {
    let OpenFile { mut file, size, .. } = jail.open_file(path).map_err(|error| error.to_string())?;
    if size > MAX_BYTES {
        return Err("too large".to_owned());
    }
    let mode = file.metadata().map_err(|error| error.to_string())?.permissions().mode();
    let mut bytes = Vec::new();
    (&mut file).take(MAX_BYTES).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    Ok(digest_of(&bytes, mode & 0o111 != 0))
}

/// Returns how files differ from the reviewed ones, such as `changed: a.sh; new: b`, with at most `limit` names of each kind.
/// Returns `None` if they are the same.
pub fn differences(reviewed: &FileDigests, now: &FileDigests, limit: usize) -> Option<String> {
    let changed: Vec<&String> = now
        .iter()
        .filter(|(path, digest)| reviewed.get(*path).is_some_and(|old| old != *digest))
        .map(|(path, _)| path)
        .collect();
    let new: Vec<&String> = now.keys().filter(|path| !reviewed.contains_key(*path)).collect();
    let missing: Vec<&String> = reviewed.keys().filter(|path| !now.contains_key(*path)).collect();
    let parts: Vec<String> = [("changed", changed), ("new", new), ("missing", missing)]
        .into_iter()
        .filter(|(_, paths)| !paths.is_empty())
        .map(|(what, paths)| {
            let more = if paths.len() > limit { format!(" and {} more", paths.len() - limit) } else { String::new() };
            let names: Vec<&str> = paths.iter().take(limit).map(|path| path.as_str()).collect();
            format!("{what}: {}{more}", names.join(", "))
        })
        .collect();
    (!parts.is_empty()).then(|| parts.join("; "))
}
