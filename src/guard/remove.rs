//! Removes the files of a command, however deep the tree is and whatever its access modes are.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Removes a folder with its content, without following links.
///
/// `std::fs::remove_dir_all` recurses, so that a deeply nested tree could overflow the stack. This function moves deep folders up
/// level by level instead, and makes inaccessible folders accessible.
///
/// # Errors
/// An entry cannot be removed.
pub fn remove_tree(root: &Path) -> io::Result<()> {
    make_accessible(root)?;
    loop {
        let mut folders = Vec::new();
        for entry in fs::read_dir(root)? {
            let entry = entry?;
            match entry.file_type()?.is_dir() {
                true => folders.push(entry.path()),
                false => fs::remove_file(entry.path())?,
            }
        }
        if folders.is_empty() {
            return fs::remove_dir(root);
        }
        for folder in folders {
            make_accessible(&folder)?;
            for entry in fs::read_dir(&folder)? {
                let entry = entry?;
                if entry.file_type()?.is_dir() {
                    make_accessible(&entry.path())?;
                    fs::rename(entry.path(), root.join(daoyou_channels::new_id().to_string()))?;
                } else {
                    fs::remove_file(entry.path())?;
                }
            }
            fs::remove_dir(&folder)?;
        }
    }
}

/// Gives the owner full access to a folder.
fn make_accessible(folder: &Path) -> io::Result<()> {
    fs::set_permissions(folder, Permissions::from_mode(0o700))
}

#[cfg(test)]
mod tests {
    use rustix::fs::{Mode, OFlags, mkdirat, openat};

    use super::*;

    #[test]
    fn a_tree_is_removed_however_deep_and_closed_it_is() {
        let temp = tempfile::tempdir().unwrap();
        let (root, outside) = (temp.path().join("root"), temp.path().join("outside"));
        fs::create_dir_all(root.join("closed/inner")).unwrap();
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("kept"), "x").unwrap();
        fs::write(root.join("closed/file"), "x").unwrap();
        std::os::unix::fs::symlink(&outside, root.join("link")).unwrap();
        std::os::unix::fs::symlink(&outside, root.join("closed/inner/link")).unwrap();
        fs::set_permissions(root.join("closed/inner"), Permissions::from_mode(0o000)).unwrap();
        fs::set_permissions(root.join("closed"), Permissions::from_mode(0o000)).unwrap();
        // The tree is far deeper than a path can express, and than a test thread could recurse.
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        let mut at = rustix::fs::open(&root, flags, Mode::empty()).unwrap();
        for _ in 0..20_000 {
            mkdirat(&at, "d", Mode::RWXU).unwrap();
            at = openat(&at, "d", flags, Mode::empty()).unwrap();
        }
        drop(at);
        remove_tree(&root).unwrap();
        assert!(!root.exists() && outside.join("kept").exists());
    }
}
