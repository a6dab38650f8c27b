//! The files of a project that a server must learn of: which of them changed since the last call. Servers that do not watch files
//! themselves rely on their client for this.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use lsp_types::FileChangeType;

use super::languages::ServerKind;

/// The limits of one listing of a project.
const MAX_ENTRIES: usize = 20_000;
const MAX_DEPTH: usize = 16;
/// Folders with build results or downloads.
const EXCLUDED_FOLDERS: [&str; 5] = ["target", "node_modules", "__pycache__", "dist", "build"];

/// The modification time of a file, and its size in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DiskStamp(SystemTime, u64);

impl DiskStamp {
    /// Returns the stamp of a file; `None` if the file does not exist.
    pub(super) fn of(path: &Path) -> Option<Self> {
        let metadata = fs::symlink_metadata(path).ok().filter(fs::Metadata::is_file)?;
        Some(Self(metadata.modified().ok()?, metadata.len()))
    }
}

/// The files of a project, with their stamps.
pub(super) type ProjectFiles = HashMap<PathBuf, DiskStamp>;

/// Lists the files below `root` that the server watches. `hidden` are folders that the server does not see. Links are not
/// followed.
pub(super) fn list_files(kind: &ServerKind, root: &Path, hidden: &[PathBuf]) -> ProjectFiles {
    let (mut found, mut seen) = (ProjectFiles::new(), 0);
    let mut folders = vec![(root.to_owned(), 0)];
    while let Some((folder, depth)) = folders.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            seen += 1;
            if seen > MAX_ENTRIES {
                return found;
            }
            let (path, name) = (entry.path(), entry.file_name());
            let Some(name) = name.to_str() else { continue };
            let Ok(file_type) = entry.file_type() else { continue };
            let is_excluded = name.starts_with('.') || EXCLUDED_FOLDERS.contains(&name) || hidden.contains(&path);
            if file_type.is_dir() && !is_excluded && depth < MAX_DEPTH {
                folders.push((path, depth + 1));
            } else if file_type.is_file()
                && kind.watches(name)
                && let Some(stamp) = DiskStamp::of(&path)
            {
                found.insert(path, stamp);
            }
        }
    }
    found
}

/// Returns the files that differ, sorted by path.
pub(super) fn changes(before: &ProjectFiles, after: &ProjectFiles) -> Vec<(PathBuf, FileChangeType)> {
    let kind_of = |path: &PathBuf, stamp| match before.get(path) {
        None => Some(FileChangeType::CREATED),
        Some(known) if known != stamp => Some(FileChangeType::CHANGED),
        Some(_) => None,
    };
    let there = after.iter().filter_map(|(path, stamp)| Some((path.clone(), kind_of(path, stamp)?)));
    let gone = before.keys().filter(|path| !after.contains_key(*path));
    let mut all: Vec<_> = there.chain(gone.map(|path| (path.clone(), FileChangeType::DELETED))).collect();
    all.sort_by(|(one, _), (other, _)| one.cmp(other));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_files_are_found() {
        let temp = tempfile::tempdir().unwrap();
        let root = temp.path();
        let write = |path: &str, text: &str| {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        for path in ["a.py", "b/c.py", "pyproject.toml", "notes.txt", "secret/d.py", ".git/e.py", "node_modules/f.py"] {
            write(path, "x");
        }
        std::os::unix::fs::symlink("/etc", root.join("link")).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", root.join("link.py")).unwrap();
        let kind = ServerKind::of_file(Path::new("a.py")).unwrap();
        let list = || list_files(kind, root, &[root.join("secret")]);
        let before = list();
        let mut names: Vec<_> = before.keys().map(|path| path.strip_prefix(root).unwrap().to_owned()).collect();
        names.sort();
        assert_eq!(names, ["a.py", "b/c.py", "pyproject.toml"].map(PathBuf::from));
        write("a.py", "longer");
        write("new.py", "");
        fs::remove_file(root.join("b/c.py")).unwrap();
        let after = list();
        let found = changes(&before, &after);
        let expected = [
            ("a.py", FileChangeType::CHANGED),
            ("b/c.py", FileChangeType::DELETED),
            ("new.py", FileChangeType::CREATED),
        ];
        assert_eq!(found, expected.map(|(path, kind)| (root.join(path), kind)));
        assert_eq!(changes(&after, &list()), []);
        let many =
            after.values().next().map(|stamp| (0..3_000).map(|n| (root.join(format!("{n}.py")), *stamp)).collect());
        assert_eq!(
            changes(&ProjectFiles::new(), &many.unwrap()).len(),
            3_000,
            "none is left out: the listing is stored"
        );
    }
}
