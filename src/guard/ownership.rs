//! The user of commands where the gateway runs as root, and the files that this user must own.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Dir, FileType, Gid, OFlags, Uid, chownat, fchown, fstat};
use serde::{Deserialize, Serialize};

use super::beneath::open_beneath;

/// The user and group id of nobody.
const NOBODY: u32 = 65_534;
/// The maximum number of folders that a walk visits, so that every walk ends.
const FOLDERS: usize = 100_000;
/// The minimum depth of a folder whose owner may change, in components with the root included. It excludes `/`, `/usr` and
/// `/root`.
const LEAST_DEPTH: usize = 3;

/// The user and group ids with which a command runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct CommandUser {
    pub uid: u32,
    pub gid: u32,
}

impl CommandUser {
    /// Returns the user for commands in `workspace` if this process is root: the workspace's owner, or nobody if root owns the
    /// workspace. Returns `None` if this process is not root; commands then run as its own user.
    ///
    /// # Errors
    /// The workspace cannot be read.
    pub(super) fn for_workspace(workspace: &Path) -> io::Result<Option<Self>> {
        if !rustix::process::geteuid().is_root() {
            return Ok(None);
        }
        let owner = fs::symlink_metadata(workspace)?;
        let nobody = Self { uid: NOBODY, gid: NOBODY };
        Ok(Some(if owner.uid() == 0 { nobody } else { Self { uid: owner.uid(), gid: owner.gid() } }))
    }

    /// Changes this process to this user permanently. A process of this user has no capabilities.
    ///
    /// # Errors
    /// The kernel refuses the change.
    pub(super) fn drop_root(self) -> Result<(), String> {
        use nix::unistd::{Gid, Uid, setgid, setgroups, setuid};
        let failed = |error| format!("the user {} for commands of root: {error}", self.uid);
        setgroups(&[]).map_err(failed)?;
        setgid(Gid::from_raw(self.gid)).map_err(failed)?;
        setuid(Uid::from_raw(self.uid)).map_err(failed)
    }

    /// Changes the owner of root's files and folders in `folder` to this user, since the gateway's own tools wrote them as root.
    /// No link is followed, no mount is entered, and a file with several hard links keeps its owner, since it may lie outside.
    ///
    /// # Errors
    /// The folder is a system folder, a mount or a link, or its owner cannot be changed. A file inside it whose owner cannot be
    /// changed stays as it is, and so do files beyond 100,000 folders.
    pub(super) fn chown_tree(self, folder: &Path) -> io::Result<()> {
        // A mistake here would hand system folders to the user. Callers pass only folders that daoyou created, and none of those
        // lies so high.
        if !folder.is_absolute() || folder.components().count() < LEAST_DEPTH {
            return Err(io::Error::other(format!("{} is not a folder of daoyou's own", folder.display())));
        }
        let (Some(parent), Some(name)) = (folder.parent(), folder.file_name()) else {
            return Err(io::Error::from(io::ErrorKind::InvalidInput));
        };
        // daoyou did not create a mount at this path, so the mount's owner must not change.
        let root = open_beneath(fs::File::open(parent)?, Path::new(name), DIRECTORY)?;
        self.chown_if_roots(&root)?;
        // The walk keeps paths instead of handles: there may be more folders than a process can open.
        let mut pending = vec![PathBuf::from(".")];
        let mut walked = 0;
        while let Some(path) = pending.pop() {
            walked += 1;
            // The command cannot write the files that keep their owner, and reports that itself.
            if walked > FOLDERS {
                break;
            }
            let Ok(folder) = open_beneath(&root, &path, DIRECTORY) else { continue };
            let Ok(entries) = Dir::read_from(&folder) else { continue };
            for entry in entries {
                let Ok(entry) = entry else { break };
                let name = OsString::from_vec(entry.file_name().to_bytes().to_vec());
                if name == "." || name == ".." {
                    continue;
                }
                let is_folder = entry.file_type() == FileType::Directory;
                // The entry is a link or on another mount, or the file was removed in the meantime.
                let Ok(opened) = open_beneath(&folder, Path::new(&name), ENTRY) else { continue };
                if self.chown_if_roots(&opened).is_ok() && is_folder {
                    pending.push(path.join(name));
                }
            }
        }
        Ok(())
    }

    /// Changes the owner of a command's output pipe to this user. A file of another kind keeps its owner.
    ///
    /// # Errors
    /// The system refuses the change.
    pub(super) fn chown_pipe(self, output: BorrowedFd<'_>) -> io::Result<()> {
        if FileType::from_raw_mode(fstat(output)?.st_mode) == FileType::Fifo {
            fchown(output, Some(Uid::from_raw(self.uid)), Some(Gid::from_raw(self.gid)))?;
        }
        Ok(())
    }

    fn chown_if_roots(self, opened: &OwnedFd) -> io::Result<()> {
        let stat = fstat(opened)?;
        let kind = FileType::from_raw_mode(stat.st_mode);
        let is_alone = kind == FileType::RegularFile && stat.st_nlink == 1;
        if stat.st_uid == 0 && (is_alone || kind == FileType::Directory) {
            let (uid, gid) = (Uid::from_raw(self.uid), Gid::from_raw(self.gid));
            chownat(opened, "", Some(uid), Some(gid), AtFlags::EMPTY_PATH)?;
        }
        Ok(())
    }
}

const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::NONBLOCK).union(OFlags::CLOEXEC);
const ENTRY: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs only as root, since only root can change owners.
    #[test]
    fn root_gives_away_files_and_folders_but_nothing_that_leads_outside() {
        let folder = tempfile::tempdir().unwrap();
        let (inside, outside) = (folder.path().join("in"), folder.path().join("out"));
        fs::create_dir_all(inside.join("sub")).unwrap();
        fs::create_dir(&outside).unwrap();
        for file in [inside.join("f"), inside.join("sub/f"), outside.join("f"), outside.join("hard")] {
            fs::write(file, "x").unwrap();
        }
        fs::hard_link(outside.join("hard"), inside.join("hard")).unwrap();
        std::os::unix::fs::symlink(outside.join("f"), inside.join("link")).unwrap();
        std::os::unix::fs::symlink(&outside, inside.join("folder")).unwrap();
        let Some(user) = CommandUser::for_workspace(&inside).unwrap() else { return };
        assert_eq!(user, CommandUser { uid: NOBODY, gid: NOBODY });
        user.chown_tree(&inside).unwrap();
        // The test uses names that do not exist: a bug must not change the owner of a real folder.
        for refused in ["/none-there", "relative/none/there"] {
            let error = user.chown_tree(Path::new(refused)).unwrap_err().to_string();
            assert!(error.contains("not a folder of daoyou's own"), "{refused}: {error}");
        }
        let owner = |path: &Path| fs::symlink_metadata(path).unwrap().uid();
        for given in [inside.clone(), inside.join("f"), inside.join("sub"), inside.join("sub/f")] {
            assert_eq!(owner(&given), NOBODY, "{}", given.display());
        }
        for kept in [outside.clone(), outside.join("f"), outside.join("hard"), inside.join("link")] {
            assert_eq!(owner(&kept), 0, "{}", kept.display());
        }
        assert_eq!(CommandUser::for_workspace(&inside).unwrap(), Some(user));
    }
}
