//! Folders of the workspace that are closed to a turn, and the parts of them that are reopened.

use std::collections::HashSet;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use super::beneath::{FileIdentity, handle_info, identity_at, mount_of};

/// How many entries of closed folders are compared with a file that was reached through another mount or another name.
const COMPARED: usize = 20_000;

/// Closed folders, known by name and by identity.
#[derive(Clone, Debug)]
pub(super) struct ClosedFolders {
    root: PathBuf,
    /// The mount of the workspace, if the kernel reports it.
    mount: Option<u64>,
    closed: Vec<ClosedFolder>,
    reopened: Vec<PathBuf>,
}

#[derive(Clone, Debug)]
struct ClosedFolder {
    path: PathBuf,
    /// The identity of the folder when it was closed, so that renaming the folder does not open it.
    identity: Option<FileIdentity>,
}

impl ClosedFolders {
    /// Creates an empty set for the workspace `root`, which is open as `folder`.
    pub(super) fn new(root: &Path, folder: impl AsFd) -> io::Result<Self> {
        Ok(Self { root: root.to_owned(), mount: mount_of(folder)?, closed: Vec::new(), reopened: Vec::new() })
    }

    pub(super) fn close(&mut self, folder: &Path) {
        let path = self.root.join(folder);
        // A folder whose identity cannot be read now is known by its name; `covers` reads its identity each time.
        let identity = identity_at(&path).ok().flatten();
        self.closed.push(ClosedFolder { path, identity });
    }

    pub(super) fn reopen(&mut self, folder: &Path) {
        self.reopened.push(self.root.join(folder));
    }

    /// Returns true if `real`, a path without links, lies in a closed folder.
    pub(super) fn covers_path(&self, real: &Path) -> bool {
        self.closed.iter().any(|folder| folder.contains(real, &self.root) && !self.is_reopened(folder, real))
    }

    /// Returns true if the open `handle`, which lies at `real`, belongs to a closed folder. The check compares its path and the
    /// identities of the folders above it. If the handle was reached through another mount, or has several hard links, the check
    /// also compares its own identity.
    ///
    /// # Errors
    /// The closed folders cannot be read. The opened file must not be served then.
    pub(super) fn covers(&self, real: &Path, handle: impl AsFd) -> io::Result<bool> {
        if self.closed.is_empty() {
            return Ok(false);
        }
        if self.covers_path(real) {
            return Ok(true);
        }
        let found = handle_info(handle)?;
        let is_elsewhere = found.mount != self.mount;
        let mut above = vec![found.identity];
        for folder in real.ancestors().skip(1) {
            above.extend(identity_at(folder)?);
        }
        for folder in &self.closed {
            let now = identity_at(&folder.path)?;
            if self.is_reopened(folder, real) && !is_elsewhere {
                continue;
            }
            let is_it = |identity: &FileIdentity| Some(*identity) == now || Some(*identity) == folder.identity;
            if above.iter().any(is_it) {
                return Ok(true);
            }
            let on_its_disk = now.is_some_and(|now| now.device == found.identity.device);
            if (is_elsewhere || found.has_second_name) && on_its_disk {
                let within = identities_below(&folder.path)?;
                if above.iter().any(|identity| within.contains(identity)) {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// Returns the paths of the closed folders.
    pub(super) fn paths(&self) -> impl Iterator<Item = &PathBuf> {
        self.closed.iter().map(|folder| &folder.path)
    }

    /// Returns the closed folders by path and by identity. If a link has replaced a closed folder and leads inside the workspace,
    /// its target is included.
    ///
    /// # Errors
    /// A closed folder cannot be read.
    pub(super) fn known(&self) -> io::Result<(Vec<PathBuf>, HashSet<FileIdentity>)> {
        let mut identities = HashSet::new();
        let mut paths = Vec::new();
        for folder in &self.closed {
            identities.extend(folder.identity);
            identities.extend(identity_at(&folder.path)?);
            paths.push(folder.path.clone());
            if let Some(target) = folder.link_target(&self.root) {
                identities.extend(identity_at(&target)?);
                paths.push(target);
            }
        }
        Ok((paths, identities))
    }

    /// Returns true if `real` lies in a reopened part of `folder`.
    fn is_reopened(&self, folder: &ClosedFolder, real: &Path) -> bool {
        self.reopened.iter().any(|open| open.starts_with(&folder.path) && real.starts_with(open))
    }
}

impl ClosedFolder {
    /// Returns true if `real` lies in the folder, or, if a link has replaced the folder, in the link's target inside the
    /// workspace.
    fn contains(&self, real: &Path, root: &Path) -> bool {
        real.starts_with(&self.path) || self.link_target(root).is_some_and(|target| real.starts_with(target))
    }

    /// Returns the folder of the workspace to which the path leads, if it is a link.
    fn link_target(&self, root: &Path) -> Option<PathBuf> {
        let target = std::fs::canonicalize(&self.path).ok()?;
        (target != root && target.starts_with(root)).then_some(target)
    }
}

/// Returns the identities of everything in `folder`, without following links.
fn identities_below(folder: &Path) -> io::Result<HashSet<FileIdentity>> {
    let mut found = HashSet::new();
    let mut pending = vec![folder.to_owned()];
    while let Some(folder) = pending.pop() {
        let entries = match std::fs::read_dir(&folder) {
            Ok(entries) => entries,
            // The folder was removed in the meantime, or is not a folder.
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => continue,
            Err(error) => return Err(error),
        };
        for entry in entries {
            let entry = entry?;
            found.extend(identity_at(&entry.path())?);
            if found.len() > COMPARED {
                return Err(io::Error::other("too many private files to compare with; move some of them away"));
            }
            if entry.file_type()?.is_dir() {
                pending.push(entry.path());
            }
        }
    }
    Ok(found)
}
