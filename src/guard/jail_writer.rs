//! Writes of the jail, and several reads and changes of files as one unit: no other call of the same workspace runs in between.

use std::ffi::OsStr;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use cap_std::fs::{Dir, File, OpenOptions, PermissionsExt};
use parking_lot::MutexGuard;
use rustix::io::Errno;
use uuid::Uuid;

use super::beneath::{create_dir_beneath, normalize, rename_to_new, sync_folder};
use super::jail::{FileContent, Jail, JailPath, WrittenFile, check_metadata};
use super::jail_error::JailError;
use super::path_rules::resolve_links;

/// The exclusive writer of a workspace: while it exists, no other call changes files.
pub struct JailWriter<'a> {
    jail: &'a Jail,
    _writing: MutexGuard<'a, ()>,
}

impl Jail {
    /// Waits until no other call writes, and returns the exclusive writer of the workspace.
    pub fn writer(&self) -> JailWriter<'_> {
        JailWriter { jail: self, _writing: self.writing.lock() }
    }

    /// Replaces a file. With `is_unchanged`, the file is replaced only if that returns true and no file appears where there was
    /// none. With `mode` the file gets this mode; otherwise it keeps its own.
    pub(super) fn replace(
        &self,
        path: &str,
        bytes: &[u8],
        mode: Option<u32>,
        is_unchanged: Option<&mut dyn FnMut() -> bool>,
    ) -> Result<WrittenFile, JailError> {
        // In a jail without the restriction, the links of a path may not be resolved.
        let resolved = self.resolve(path).map_err(|error| dangling(error, &self.root().join(path)))?;
        if path.ends_with('/') || path.ends_with("/.") {
            return Err(JailError::Invalid("it names a folder; give the path of a file"));
        }
        let failed = |error| self.refusal(&resolved, error);
        self.check_size(&resolved.shown, bytes.len() as u64)?;
        let target = self.target(&resolved)?;
        let (Some(name), Some(parent)) = (target.file_name(), target.parent()) else {
            return Err(JailError::Folder(resolved.shown));
        };
        let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
        let folder = self.make_folder(&resolved, parent, Some(name))?;
        let real = self.check_real_path(&resolved, &folder)?;
        // A file in the place of a closed folder would keep the gateway from creating that folder.
        self.check_usable(&real.join(name), &resolved.shown)?;
        let own_mode = match folder.symlink_metadata(name) {
            Ok(metadata) => {
                check_metadata(&resolved.shown, &metadata, true)?;
                self.check_size(&resolved.shown, metadata.len())?;
                Some(metadata.permissions().mode() & 0o777)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(failed(error)),
        };
        let temp = format!(".daoyou-{}.tmp", Uuid::new_v4().simple());
        let done = write_new(&folder, &temp, bytes, mode.or(own_mode)).and_then(|modified| {
            let is_new = is_unchanged.is_some() && own_mode.is_none();
            let is_changed = is_unchanged.is_some_and(|is_unchanged| !is_unchanged());
            if is_changed {
                return Ok(None);
            }
            if !is_new {
                folder.rename(&temp, &folder, name)?;
                return Ok(Some(modified));
            }
            match rename_to_new(&folder, temp.as_ref(), &folder, name) {
                Err(Errno::EXIST) => Ok(None),
                renamed => Ok(renamed.map(|()| Some(modified))?),
            }
        });
        if !matches!(done, Ok(Some(_))) {
            // The error of the write is the one to report.
            drop(folder.remove_file(&temp));
        }
        let modified = done.map_err(failed)?;
        sync_folder(&folder);
        Ok(WrittenFile { shown: resolved.shown, modified, is_new: own_mode.is_none() })
    }

    /// Returns the path to write to, relative to the open folder.
    fn target(&self, resolved: &JailPath) -> Result<PathBuf, JailError> {
        if !self.follows_links {
            return Ok(resolved.relative.clone());
        }
        let base = self.base_of(resolved);
        // If a link stays inside, the write goes to its target; the link itself stays.
        match base.canonicalize(&resolved.relative) {
            Ok(real) => Ok(real),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                if base.symlink_metadata(&resolved.relative).is_ok() {
                    return Err(JailError::DanglingLink(resolved.shown.clone()));
                }
                Ok(resolved.relative.clone())
            }
            Err(error) => Err(self.refusal(resolved, error)),
        }
    }

    /// Creates and opens a folder, for the file `name` in it if there is one. A path that is refused leaves no folders behind.
    pub(super) fn make_folder(&self, resolved: &JailPath, path: &Path, name: Option<&OsStr>) -> Result<Dir, JailError> {
        let failed = |error| self.refusal(resolved, error);
        let strict = |error| JailError::from_strict_io(&resolved.shown, error);
        let mut real = if self.follows_links {
            let base = if resolved.base.is_none() { self.root() } else { Path::new("/") };
            let path = base.join(path);
            resolve_links(&path).map_err(|error| dangling(failed(error), &path))?
        } else {
            self.root().join(normalize(path).map_err(strict)?)
        };
        real.extend(name);
        self.check_usable(&real.components().collect::<PathBuf>(), &resolved.shown)?;
        if !self.follows_links {
            return create_dir_beneath(&*self.dir, path).map_err(strict);
        }
        let base = self.base_of(resolved);
        base.create_dir_all(path).map_err(failed)?;
        base.open_dir(path).map_err(failed)
    }
}

/// Writes a new file. Returns its modification time.
fn write_new(folder: &Dir, name: &str, bytes: &[u8], mode: Option<u32>) -> io::Result<SystemTime> {
    let mut file: File = folder.open_with(name, OpenOptions::new().write(true).create_new(true))?;
    if let Some(mode) = mode {
        file.set_permissions(cap_std::fs::Permissions::from_mode(mode))?;
    }
    file.write_all(bytes)?;
    file.sync_all()?;
    Ok(file.metadata()?.modified()?.into_std())
}

impl JailWriter<'_> {
    /// Reads a file like [`Jail::read`].
    ///
    /// # Errors
    /// As [`Jail::read`].
    pub fn read(&self, path: &str) -> Result<FileContent, JailError> {
        self.jail.read(path)
    }

    /// Returns the mode of a file; `None` if there is none.
    ///
    /// # Errors
    /// As [`Jail::read`].
    pub fn mode(&self, path: &str) -> Result<Option<u32>, JailError> {
        match self.jail.metadata(&self.jail.resolve(path)?) {
            Ok(metadata) => Ok(Some(metadata.permissions().mode() & 0o777)),
            Err(JailError::Missing(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Writes a file like [`Jail::write`]. Without `mode`, the file keeps its own mode.
    ///
    /// # Errors
    /// As [`Jail::write`].
    pub fn write(&self, path: &str, bytes: &[u8], mode: Option<u32>) -> Result<WrittenFile, JailError> {
        self.jail.replace(path, bytes, mode, None)
    }

    /// Removes a file. Returns the path as shown to the model.
    ///
    /// # Errors
    /// As [`Jail::read`]; a link is not removed.
    pub fn remove(&self, path: &str) -> Result<String, JailError> {
        let resolved = self.jail.resolve(path)?;
        let shown = resolved.shown;
        let (Some(name), Some(parent)) = (resolved.relative.file_name(), resolved.relative.parent()) else {
            return Err(JailError::Folder(shown));
        };
        let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
        let parent = JailPath { base: resolved.base, relative: parent.to_owned(), shown: shown.clone() };
        let (folder, real) = self.jail.open_resolved_folder(&parent)?;
        let file = real.join(name);
        self.jail.check_usable(&file, &shown)?;
        let failed = |error: io::Error| match error.kind() {
            io::ErrorKind::NotFound => JailError::Missing(shown.clone()),
            _ => JailError::Io { path: shown.clone(), error },
        };
        let metadata = folder.symlink_metadata(name).map_err(failed)?;
        check_metadata(&shown, &metadata, true)?;
        folder.remove_file(name).map_err(failed)?;
        sync_folder(&folder);
        Ok(shown)
    }
}

/// Returns the error of a path that cannot be found: a link in it that leads nowhere is named as such.
fn dangling(error: JailError, path: &Path) -> JailError {
    match error {
        JailError::Missing(shown) if path.ancestors().any(|part| part.is_symlink() && !part.exists()) => {
            JailError::DanglingLink(shown)
        }
        error => error,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn only_regular_files_of_the_workspace_are_removed() {
        let temp = tempfile::tempdir().unwrap();
        let root = temp.path().join("ws");
        std::fs::create_dir_all(root.join("sub")).unwrap();
        std::fs::create_dir(root.join("closed")).unwrap();
        for file in ["ws/a", "ws/sub/b", "ws/closed/c", "out"] {
            std::fs::write(temp.path().join(file), "x").unwrap();
        }
        symlink("a", root.join("link")).unwrap();
        symlink("..", root.join("up")).unwrap();
        std::fs::hard_link(temp.path().join("out"), root.join("hard")).unwrap();
        let jail = Jail::open(&root, true, Vec::new(), 100).unwrap().with_closed(&["closed"]);
        let writer = jail.writer();
        for (path, expected) in [
            ("a", None),
            ("sub/b", None),
            ("a", Some("no such file")),
            ("sub", Some("is a folder")),
            (".", Some("is a folder")),
            ("link", Some("is a link")),
            ("hard", Some("hard link")),
            ("closed/c", Some("off limits")),
            ("../out", Some("outside the workspace")),
            ("up/out", Some("outside the workspace")),
        ] {
            let error = writer.remove(path).err().map(|error| error.to_string());
            assert_eq!(error.is_some(), expected.is_some(), "{path}: {error:?}");
            assert!(error.unwrap_or_default().contains(expected.unwrap_or_default()), "{path}");
        }
        assert!(root.join("closed/c").exists() && temp.path().join("out").exists());
    }
}
