//! Opens files and folders below a folder without following a link, and without leaving the folder's mount unless the caller allows it.
//!
//! `openat2` (Linux 5.6) does this in one call. Where the kernel or a container's filter lacks it, the path is walked
//! component by component with `O_NOFOLLOW`, and the mount of each component is compared.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use cap_std::fs::Dir;
use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, RenameFlags, ResolveFlags, StatxFlags, linkat, renameat, renameat_with, statat,
    unlinkat,
};
use rustix::io::Errno;

/// How often an open is attempted if a concurrent rename disturbs it (`EAGAIN`, openat2(2)).
const TRIES: usize = 16;

/// The identity of a file or folder, independent of the name and mount that led to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct FileIdentity {
    pub device: u64,
    pub inode: u64,
}

/// The file or folder behind an open handle.
#[derive(Clone, Copy, Debug)]
pub(super) struct HandleInfo {
    pub identity: FileIdentity,
    /// The mount's id, unknown before Linux 5.8.
    pub mount: Option<u64>,
    /// True for a file with several hard links. Always false for a folder.
    pub has_second_name: bool,
}

/// Opens `path`, which is relative to `folder`.
///
/// # Errors
/// `ELOOP` for a link, `EXDEV` for a path that leads outside or to another mount, otherwise as open(2).
pub(crate) fn open_beneath(folder: impl AsFd, path: &Path, flags: OFlags) -> io::Result<OwnedFd> {
    open_without_links(folder, path, flags, MountRule::Same)
}

/// Opens `path` as [`open_beneath`] does, also on another mount below `folder`, such as the volume of a container.
///
/// # Errors
/// As [`open_beneath`], but not for another mount.
pub(crate) fn open_beneath_on_any_mount(folder: impl AsFd, path: &Path, flags: OFlags) -> io::Result<OwnedFd> {
    open_without_links(folder, path, flags, MountRule::Any)
}

/// The mounts on which a path may lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MountRule {
    Same,
    Any,
}

fn open_without_links(folder: impl AsFd, path: &Path, flags: OFlags, mounts: MountRule) -> io::Result<OwnedFd> {
    let path = normalize(path)?;
    let flags = flags | OFlags::CLOEXEC;
    let links = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let resolve = if mounts == MountRule::Same { links | ResolveFlags::NO_XDEV } else { links };
    for _ in 0..TRIES {
        match rustix::fs::openat2(&folder, &path, flags, Mode::empty(), resolve) {
            Err(Errno::AGAIN) => {}
            Err(Errno::NOSYS) => return open_by_walking(folder, &path, flags, mounts),
            opened => return Ok(opened?),
        }
    }
    Err(Errno::AGAIN.into())
}

/// Opens the folder `path`. Creates it and the folders above it with mode 0700 if they are missing.
///
/// # Errors
/// As [`open_beneath`], and as mkdir(2).
pub(crate) fn create_dir_beneath(folder: impl AsFd, path: &Path) -> io::Result<Dir> {
    let path = normalize(path)?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    let mut at = open_beneath(&folder, Path::new("."), flags)?;
    for name in path.iter() {
        match rustix::fs::mkdirat(&at, name, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        at = open_beneath(&at, Path::new(name), flags)?;
    }
    Ok(Dir::from_std_file(File::from(at)))
}

/// Syncs a folder, so that the names in it are on disk. A folder that cap-std opened can be synced only through another handle.
/// Some file systems cannot sync folders; the error is ignored, since the change itself is done.
pub(crate) fn sync_folder(folder: impl AsFd) {
    let reopened = open_beneath(folder, Path::new("."), OFlags::RDONLY | OFlags::DIRECTORY);
    drop(reopened.and_then(|folder| File::from(folder).sync_all()));
}

/// Renames a file or folder unless the new name is taken, which is `EEXIST`.
pub(crate) fn rename_to_new(from: &Dir, name: &OsStr, to: &Dir, new: &OsStr) -> Result<(), Errno> {
    match renameat_with(from, name, to, new, RenameFlags::NOREPLACE) {
        // Some file systems cannot rename without replacing.
        Err(Errno::INVAL | Errno::NOSYS) => {}
        done => return done,
    }
    if statat(to, new, AtFlags::SYMLINK_NOFOLLOW).is_ok() {
        return Err(Errno::EXIST);
    }
    let found = statat(from, name, AtFlags::SYMLINK_NOFOLLOW)?;
    // A plain rename replaces at most an empty folder.
    if FileType::from_raw_mode(found.st_mode) != FileType::Directory {
        match linkat(from, name, to, new, AtFlags::empty()) {
            // Some file systems have no hard links.
            Err(Errno::PERM | Errno::OPNOTSUPP) => {}
            linked => return linked.and_then(|()| unlinkat(from, name, AtFlags::empty())),
        }
    }
    renameat(from, name, to, new)
}

/// Returns the file or folder behind `handle`.
pub(super) fn handle_info(handle: impl AsFd) -> io::Result<HandleInfo> {
    let found = rustix::fs::fstat(&handle)?;
    let is_folder = FileType::from_raw_mode(found.st_mode) == FileType::Directory;
    let has_second_name = !is_folder && found.st_nlink > 1;
    Ok(HandleInfo { identity: identity_of(&found), mount: mount_of(handle)?, has_second_name })
}

/// Returns the identity of the file at `path`, without following a link, or `None` if there is none.
pub(super) fn identity_at(path: &Path) -> io::Result<Option<FileIdentity>> {
    match rustix::fs::lstat(path) {
        Ok(found) => Ok(Some(identity_of(&found))),
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Returns the identity from the result of stat(2).
pub(super) fn identity_of(found: &rustix::fs::Stat) -> FileIdentity {
    FileIdentity { device: found.st_dev, inode: found.st_ino }
}

/// Returns the id of the mount of `handle`, or `None` if the kernel does not report it.
pub(super) fn mount_of(handle: impl AsFd) -> io::Result<Option<u64>> {
    match rustix::fs::statx(handle, "", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID) {
        Ok(found) if found.stx_mask & StatxFlags::MNT_ID.bits() != 0 => Ok(Some(found.stx_mnt_id)),
        Ok(_) | Err(Errno::NOSYS) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Removes `.` and `..` from `path`, which is safe because no link is followed.
pub(super) fn normalize(path: &Path) -> io::Result<PathBuf> {
    let mut normalized = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::Normal(name) => normalized.push(name),
            Component::ParentDir if normalized.pop() => {}
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => return Err(Errno::XDEV.into()),
        }
    }
    if normalized.as_os_str().is_empty() {
        normalized.push(".");
    }
    Ok(normalized)
}

/// Implements [`open_without_links`] for kernels without `openat2`.
fn open_by_walking(folder: impl AsFd, path: &Path, flags: OFlags, mounts: MountRule) -> io::Result<OwnedFd> {
    let is_same_mount = |from: &HandleInfo, to: &HandleInfo| {
        from.mount == to.mount && (from.mount.is_some() || from.identity.device == to.identity.device)
    };
    let root = handle_info(&folder)?;
    let through = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut at = rustix::fs::openat(&folder, ".", through, Mode::empty())?;
    let mut names = path.iter().peekable();
    while let Some(name) = names.next() {
        let flags = if names.peek().is_some() { through } else { flags | OFlags::NOFOLLOW };
        let next = match rustix::fs::openat(&at, name, flags, Mode::empty()) {
            // With O_DIRECTORY, opening a link fails with ENOTDIR.
            Err(Errno::NOTDIR) if is_link(&at, name) => return Err(Errno::LOOP.into()),
            opened => opened?,
        };
        if FileType::from_raw_mode(rustix::fs::fstat(&next)?.st_mode) == FileType::Symlink {
            return Err(Errno::LOOP.into());
        }
        if mounts == MountRule::Same && !is_same_mount(&root, &handle_info(&next)?) {
            return Err(Errno::XDEV.into());
        }
        at = next;
    }
    Ok(at)
}

fn is_link(folder: &OwnedFd, name: &std::ffi::OsStr) -> bool {
    let found = rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW);
    found.is_ok_and(|found| FileType::from_raw_mode(found.st_mode) == FileType::Symlink)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn the_walk_refuses_what_openat2_refuses_with_the_same_error() {
        let temp = tempfile::tempdir().unwrap();
        let root = temp.path().join("ws");
        std::fs::create_dir_all(root.join("sub/deep")).unwrap();
        std::fs::write(root.join("a"), "a").unwrap();
        std::fs::write(root.join("sub/b"), "b").unwrap();
        std::fs::write(temp.path().join("out"), "out").unwrap();
        symlink("a", root.join("link")).unwrap();
        symlink("sub", root.join("way")).unwrap();
        symlink("../out", root.join("away")).unwrap();
        let folder = File::open(&root).unwrap();
        let read = OFlags::RDONLY | OFlags::NONBLOCK;
        let listing = read | OFlags::DIRECTORY;
        for (path, flags, expected) in [
            ("a", read, None),
            ("./sub/../a", read, None),
            ("sub/b", read, None),
            ("sub/deep", listing, None),
            (".", listing, None),
            ("link", read, Some(Errno::LOOP)),
            ("link", OFlags::PATH, Some(Errno::LOOP)),
            ("way/b", read, Some(Errno::LOOP)),
            ("way", listing, Some(Errno::LOOP)),
            ("away", read, Some(Errno::LOOP)),
            ("../out", read, Some(Errno::XDEV)),
            ("/etc/passwd", read, Some(Errno::XDEV)),
            ("none", read, Some(Errno::NOENT)),
            ("a/b", read, Some(Errno::NOTDIR)),
            ("a", listing, Some(Errno::NOTDIR)),
        ] {
            let expected = expected.map(Errno::raw_os_error);
            let code = |opened: io::Result<OwnedFd>| opened.err().and_then(|error| error.raw_os_error());
            assert_eq!(code(open_beneath(&folder, Path::new(path), flags)), expected, "{path}");
            let anywhere = open_beneath_on_any_mount(&folder, Path::new(path), flags);
            assert_eq!(code(anywhere), expected, "{path}, on any mount");
            for mounts in [MountRule::Same, MountRule::Any] {
                let flags = flags | OFlags::CLOEXEC;
                let walked = normalize(Path::new(path)).and_then(|path| open_by_walking(&folder, &path, flags, mounts));
                assert_eq!(code(walked), expected, "{path}, walked");
            }
        }
        create_dir_beneath(&folder, Path::new("new/one")).unwrap();
        assert!(root.join("new/one").is_dir());
        assert!(create_dir_beneath(&folder, Path::new("way/new")).is_err());
        assert!(!root.join("sub/new").exists());
    }
}
