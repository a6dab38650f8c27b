//! Several reads and changes of files as one unit: no other call of the same workspace runs in between.

use parking_lot::MutexGuard;
use std::io;
use std::path::Path;

use cap_std::fs::PermissionsExt;

use super::beneath::sync_folder;
use super::jail::{FileContent, Jail, JailPath, WrittenFile, check_metadata};
use super::jail_error::JailError;

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
