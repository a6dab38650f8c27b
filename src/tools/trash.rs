//! The trash of a workspace. `delete_file` moves files here, until the owner restores them or their retention time ends.
//!
//! Each entry is a folder with a record and the moved file or folder. The entries lie below the gateway's own folder, which no
//! tool and no command sees. They are on the file system of the workspace, so that a move is one atomic step.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cap_std::ambient_authority;
use cap_std::fs::{Dir, OpenOptions, OpenOptionsExt};
use jiff::Timestamp;
use rustix::fs::{AtFlags, FileType, OFlags, renameat, statat};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use thiserror::Error;
use uuid::Uuid;

use super::private_folders::{GATEWAY_FOLDER, TRASH_FOLDER, open_folder};
use crate::guard::{
    Jail, JailEntry, JailError, create_dir_beneath, open_beneath, remove_tree, rename_to_new, sync_folder,
};

/// The names in the folder of an entry.
const RECORD: &str = "record.json";
const CONTENT: &str = "content";
const RECORD_BYTES: u64 = 64 << 10;
/// The maximum number of entries that are read.
const MAX_ENTRIES: usize = 100_000;
/// The minimum length of an id prefix that names an entry.
const ID_CHARS: usize = 4;
/// The age at which an entry without content is removed, since its move was interrupted.
const INTERRUPTED: Duration = Duration::from_secs(3_600);

/// The reason why something could not be moved or removed.
#[derive(Debug, Error)]
pub enum TrashError {
    #[error(transparent)]
    Jail(#[from] JailError),
    #[error("there is no entry {0} in the trash; daoyou trash list shows them")]
    Unknown(String),
    #[error("several entries of the trash begin with {0}; write more of the id")]
    Ambiguous(String),
    #[error("{0}: there is something already; restore it to another path: daoyou trash restore ID --to PATH")]
    Occupied(String),
    #[error("{0}: lies on another mount than the trash, so it cannot be moved")]
    OtherMount(String),
    #[error("{path}: {error}")]
    Io { path: String, error: io::Error },
}

impl TrashError {
    fn io(path: impl AsRef<Path>, error: impl Into<io::Error>) -> Self {
        let (path, error) = (path.as_ref().display().to_string(), error.into());
        match error.raw_os_error() {
            Some(libc::EXDEV) => Self::OtherMount(path),
            _ => Self::Io { path, error },
        }
    }
}

/// The record of an entry.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrashRecord {
    pub id: Uuid,
    /// The former path, relative to the workspace.
    pub path: String,
    /// `file`, `folder`, `link` or `special`.
    pub kind: String,
    /// The size of a file, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    pub deleted_at: Timestamp,
    pub session: String,
    pub turn: Uuid,
    /// The id of the call that deleted the file.
    pub call: String,
}

/// The trash of one workspace.
pub struct Trash {
    workspace: Dir,
}

impl Trash {
    /// Opens the trash of a workspace. The trash folder need not exist yet.
    ///
    /// # Errors
    /// The workspace cannot be opened.
    pub fn open(workspace: &Path) -> io::Result<Self> {
        Ok(Self { workspace: Dir::open_ambient_dir(workspace, ambient_authority())? })
    }

    /// Moves an entry of the workspace into the trash, with `record` as its record. A link is moved itself, not its target.
    ///
    /// # Errors
    /// The entry does not exist, or cannot be moved.
    pub fn take(&self, entry: &JailEntry, record: &TrashRecord) -> Result<(), TrashError> {
        let path = Path::new(TRASH_FOLDER).join(record.id.to_string());
        let folder = create_dir_beneath(&self.workspace, &path).map_err(|error| TrashError::io(&path, error))?;
        let written = serde_json::to_vec(record).map_err(io::Error::other).and_then(|bytes| {
            let mut file =
                folder.open_with(RECORD, OpenOptions::new().write(true).create_new(true).mode(0o600))?.into_std();
            file.write_all(&bytes)?;
            file.sync_all()
        });
        let moved = written.and_then(|()| Ok(renameat(&entry.folder, &entry.name, &folder, CONTENT)?));
        if let Err(error) = moved {
            // The error of the move is the one to report.
            drop(self.remove(&record.id.to_string()));
            return Err(match error.raw_os_error() {
                Some(libc::ENOENT) => JailError::Missing(entry.shown.clone()).into(),
                _ => TrashError::io(&entry.shown, error),
            });
        }
        sync_folder(&entry.folder);
        sync_folder(&folder);
        Ok(())
    }

    /// Returns the entries, the newest first.
    ///
    /// # Errors
    /// The trash cannot be read.
    pub fn list(&self) -> Result<Vec<TrashRecord>, TrashError> {
        let mut records: Vec<_> = self.ids()?.iter().filter_map(|id| self.record(id)).collect();
        records.sort_by_key(|record| std::cmp::Reverse((record.deleted_at, record.id)));
        Ok(records)
    }

    /// Returns the entry that the same call has already made from the same path.
    pub fn entry_of_call(&self, record: &TrashRecord) -> Option<TrashRecord> {
        let is_it =
            |made: &TrashRecord| made.turn == record.turn && made.call == record.call && made.path == record.path;
        self.list().ok()?.into_iter().find(is_it)
    }

    /// Moves the entry whose id begins with `id` back, or to the path `to`, and creates missing folders. Nothing is overwritten.
    /// Returns the record, and the path in the form of [`TrashRecord::path`].
    ///
    /// # Errors
    /// The entry does not exist, something exists at the path, or the jail of the workspace does not serve the path.
    pub fn restore(&self, jail: &Jail, id: &str, to: Option<&str>) -> Result<(TrashRecord, String), TrashError> {
        let record = self.find(id)?;
        let path = to.unwrap_or(&record.path);
        let jail = jail.with_closed(&[GATEWAY_FOLDER]);
        let folder = Path::new(path).parent().filter(|folder| !folder.as_os_str().is_empty());
        if let Some(folder) = folder {
            jail.create_folder(&folder.display().to_string())?;
        }
        let target = jail.entry(path)?;
        let from = open_folder(&self.workspace, &entry_path(&record.id.to_string()));
        let from = from.map_err(|error| TrashError::io(TRASH_FOLDER, error))?;
        match rename_to_new(&from, CONTENT.as_ref(), &target.folder, &target.name) {
            Ok(()) => {}
            Err(Errno::EXIST) => return Err(TrashError::Occupied(target.shown)),
            Err(error) => return Err(TrashError::io(&target.shown, error)),
        }
        self.remove(&record.id.to_string())?;
        let path = target.real.strip_prefix(jail.root()).unwrap_or(&target.real).display().to_string();
        Ok((record, path))
    }

    /// Permanently removes all entries. Returns how many there were.
    ///
    /// # Errors
    /// An entry cannot be removed.
    pub fn empty(&self) -> Result<usize, TrashError> {
        self.remove_those(|_, _| true)
    }

    /// Permanently removes the entries that are older than `age`. Returns how many there were.
    ///
    /// # Errors
    /// An entry cannot be removed.
    pub fn remove_older(&self, age: Duration) -> Result<usize, TrashError> {
        let now = Timestamp::now();
        // A clock may have been set back, so an entry from the future counts as new.
        let age_of = |at: Timestamp| Duration::try_from(now.duration_since(at)).unwrap_or_default();
        self.remove_those(|made, record| match record {
            Some(record) => age_of(record.deleted_at) > age,
            None => age_of(made) > INTERRUPTED,
        })
    }

    fn remove_those(&self, is_meant: impl Fn(Timestamp, Option<&TrashRecord>) -> bool) -> Result<usize, TrashError> {
        let mut removed = 0;
        for id in self.ids()? {
            let record = self.record(&id);
            if is_meant(made_at(&id), record.as_ref()) {
                self.remove(&id)?;
                removed += usize::from(record.is_some());
            }
        }
        Ok(removed)
    }

    fn find(&self, id: &str) -> Result<TrashRecord, TrashError> {
        let wanted = id.trim().to_ascii_lowercase();
        let is_meant = |record: &TrashRecord| wanted.len() >= ID_CHARS && record.id.to_string().starts_with(&wanted);
        let mut found = self.list()?.into_iter().filter(is_meant);
        match (found.next(), found.next()) {
            (Some(record), None) => Ok(record),
            (Some(_), Some(_)) => Err(TrashError::Ambiguous(id.to_owned())),
            (None, _) => Err(TrashError::Unknown(id.to_owned())),
        }
    }

    /// Returns the names of the entries' folders.
    fn ids(&self) -> Result<Vec<String>, TrashError> {
        let failed = |error: io::Error| TrashError::io(TRASH_FOLDER, error);
        let folder = match open_folder(&self.workspace, Path::new(TRASH_FOLDER)) {
            Ok(folder) => folder,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(failed(error)),
        };
        let mut ids = Vec::new();
        for entry in folder.entries().map_err(failed)?.take(MAX_ENTRIES) {
            let name = entry.map_err(failed)?.file_name().into_string();
            ids.extend(name.ok().filter(|name| Uuid::try_parse(name).is_ok()));
        }
        Ok(ids)
    }

    /// Returns the record of an entry that has content.
    fn record(&self, id: &str) -> Option<TrashRecord> {
        let folder = open_folder(&self.workspace, &entry_path(id)).ok()?;
        statat(&folder, CONTENT, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        let found = statat(&folder, RECORD, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile {
            return None;
        }
        let mut bytes = Vec::new();
        let file = File::from(open_beneath(&folder, Path::new(RECORD), OFlags::RDONLY | OFlags::NONBLOCK).ok()?);
        file.take(RECORD_BYTES).read_to_end(&mut bytes).ok()?;
        let record: TrashRecord = serde_json::from_slice(&bytes).ok()?;
        (record.id.to_string() == id).then_some(record)
    }

    /// Removes the folder of an entry with its content.
    fn remove(&self, id: &str) -> Result<(), TrashError> {
        let failed = |error: io::Error| TrashError::io(entry_path(id), error);
        let trash = open_folder(&self.workspace, Path::new(TRASH_FOLDER)).map_err(failed)?;
        // The path goes through the open folder, so that a link in place of the folder is not followed.
        match remove_tree(&PathBuf::from(format!("/proc/self/fd/{}/{id}", trash.as_raw_fd()))) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed(error)),
            _ => Ok(()),
        }
    }
}

fn entry_path(id: &str) -> PathBuf {
    Path::new(TRASH_FOLDER).join(id)
}

/// Returns the time in an id; the start of 1970 for an id without a time.
fn made_at(id: &str) -> Timestamp {
    let time = Uuid::try_parse(id).ok().and_then(|id| id.get_timestamp());
    let seconds = time.and_then(|time| i64::try_from(time.to_unix().0).ok());
    seconds.and_then(|seconds| Timestamp::from_second(seconds).ok()).unwrap_or(Timestamp::UNIX_EPOCH)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    struct TrashFixture {
        folder: tempfile::TempDir,
        jail: Jail,
        trash: Trash,
    }

    impl TrashFixture {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let jail = Jail::open_strict(folder.path(), Vec::new(), 1_000).unwrap();
            let trash = Trash::open(folder.path()).unwrap();
            Self { folder, jail, trash }
        }

        fn at(&self, path: &str) -> PathBuf {
            self.folder.path().join(path)
        }

        fn take(&self, path: &str, deleted_at: Timestamp) -> Result<TrashRecord, TrashError> {
            let record = TrashRecord {
                id: daoyou_channels::new_id(),
                path: path.to_owned(),
                kind: "file".to_owned(),
                size: None,
                deleted_at,
                session: "cli:direct".to_owned(),
                turn: Uuid::nil(),
                call: path.to_owned(),
            };
            self.trash.take(&self.jail.entry(path)?, &record)?;
            Ok(record)
        }
    }

    #[test]
    fn what_was_deleted_comes_back_and_overwrites_nothing() {
        let fixture = TrashFixture::new();
        fs::create_dir_all(fixture.at("a/b")).unwrap();
        fs::write(fixture.at("a/b/file"), "one").unwrap();
        std::os::unix::fs::symlink("/nowhere", fixture.at("link")).unwrap();
        let now = Timestamp::now();
        let folder = fixture.take("a", now - Duration::from_secs(2)).unwrap();
        let link = fixture.take("link", now - Duration::from_secs(1)).unwrap();
        assert!(!fixture.at("a").exists() && fixture.at("link").symlink_metadata().is_err());
        assert_eq!(fixture.trash.list().unwrap(), [link.clone(), folder.clone()]);
        assert_eq!(fixture.trash.entry_of_call(&folder), Some(folder.clone()));

        fs::write(fixture.at("a"), "in the way").unwrap();
        let restore = |id: &str, to| fixture.trash.restore(&fixture.jail, id, to).map_err(|error| error.to_string());
        let id = folder.id.to_string();
        for (id, to, expected) in [
            (id.as_str(), None, "there is something already"),
            (&id, Some("../a"), "outside the workspace"),
            (&id, Some(".daoyou/x"), "off limits"),
            (&id, Some("a/x"), "is not a folder"),
            (&id[..8], Some("x"), "several entries"),
            ("01", None, "no entry 01"),
            ("zzzz", None, "no entry zzzz"),
        ] {
            let error = restore(id, to).unwrap_err();
            assert!(error.contains(expected), "{id} {to:?}: {error}");
        }
        assert_eq!(fs::read_to_string(fixture.at("a")).unwrap(), "in the way");
        assert_eq!(restore(&id, Some("new/place")).unwrap().1, "new/place");
        assert_eq!(fs::read_to_string(fixture.at("new/place/b/file")).unwrap(), "one");
        restore(&link.id.to_string(), None).unwrap();
        assert_eq!(fs::read_link(fixture.at("link")).unwrap(), Path::new("/nowhere"));
        assert_eq!(fixture.trash.list().unwrap(), []);
        assert_eq!(fs::read_dir(fixture.at(TRASH_FOLDER)).unwrap().count(), 0);
    }

    #[test]
    fn old_and_interrupted_entries_are_removed() {
        let fixture = TrashFixture::new();
        let day = Duration::from_secs(86_400);
        let now = Timestamp::now();
        for (name, at) in [("old", now - 31 * day), ("new", now - 29 * day), ("future", now + 99 * day)] {
            fs::write(fixture.at(name), name).unwrap();
            fixture.take(name, at).unwrap();
        }
        // Moves that were interrupted: a moment ago, and years ago.
        for id in [daoyou_channels::new_id(), Uuid::nil()] {
            fs::create_dir(fixture.at(TRASH_FOLDER).join(id.to_string())).unwrap();
        }
        fs::create_dir(fixture.at(TRASH_FOLDER).join("not an id")).unwrap();
        assert_eq!(fixture.trash.remove_older(30 * day).unwrap(), 1);
        let left: Vec<_> = fixture.trash.list().unwrap().into_iter().map(|record| record.path).collect();
        assert_eq!(left, ["future", "new"]);
        assert_eq!(fs::read_dir(fixture.at(TRASH_FOLDER)).unwrap().count(), 4);
        assert_eq!(fixture.trash.empty().unwrap(), 2);
        assert_eq!(fs::read_dir(fixture.at(TRASH_FOLDER)).unwrap().count(), 1);
    }

    #[test]
    fn a_link_in_the_place_of_the_trash_is_not_followed() {
        let fixture = TrashFixture::new();
        let outside = tempfile::tempdir().unwrap();
        fs::write(fixture.at("file"), "x").unwrap();
        std::os::unix::fs::symlink(outside.path(), fixture.at(".daoyou")).unwrap();
        assert!(fixture.take("file", Timestamp::now()).is_err());
        assert!(fixture.trash.list().is_err() && fixture.trash.empty().is_err());
        assert!(fixture.at("file").exists());
        assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0);
        let taken = fixture.take("none", Timestamp::now());
        assert!(matches!(taken, Err(TrashError::Io { .. })), "the trash is not a folder");
    }

    #[test]
    fn a_missing_file_leaves_no_entry() {
        let fixture = TrashFixture::new();
        let error = fixture.take("none", Timestamp::now()).unwrap_err();
        assert_eq!(error.to_string(), "none: no such file or folder");
        assert_eq!(fs::read_dir(fixture.at(TRASH_FOLDER)).unwrap().count(), 0);
    }
}
