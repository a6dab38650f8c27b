//! The files of a home that go into its backup: all files except those of the running program.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use cap_std::fs::Dir;
use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::manifest::{self, FIRST_ENTRY};
use crate::guard::open_beneath_on_any_mount;

/// The maximum number of entries of a backup from each folder at the top of the home, such as the workspace. Further
/// ones are left out.
const MAX_ENTRIES: usize = 1_000_000;

/// The longest path in the home, in bytes. A restore adds the path of the home, and the kernel takes paths up to 4,096 bytes.
const MAX_PATH: usize = 2_048;

/// How a file is opened. If a pipe or a device has replaced it since its folder was read, the flags prevent a wait.
const READ_FLAGS: OFlags = OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOCTTY);

/// Names at the top of the home that are not archived directly, because they are recreated or copied separately. `EXCLUDED_PREFIXES`
/// covers the database's own files and files that were moved aside.
const EXCLUDED: [&str; 7] =
    ["skills.json.lock", "daoyou.lock", "daoyou.sock", "daoyou.mark", "daoyou.flight", "daoyou.suspect", "tmp"];
const EXCLUDED_PREFIXES: [&str; 4] = ["daoyou.db", "daoyou.before-restore-", "daoyou.restoring", "code-cache.db"];

/// Names at the top of the home that a backup must not take, in addition to the excluded ones, even if no such file exists yet.
const RESERVED: [&str; 10] = [
    "config.toml", "token", "history", "skills.json", "workspace", "cache", "mcp", "daoyou.log", "daoyou.log.1",
    "daoyou.trial",
];

/// An entry of the home.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HomeEntry {
    Folder,
    File,
    Link(PathBuf),
}

/// The entries of a home by their path in it, a folder before its entries, and descriptions of what cannot be archived.
#[derive(Debug, Default)]
pub struct HomeContents {
    pub items: Vec<(PathBuf, HomeEntry)>,
    pub left_out: Vec<String>,
}

impl HomeContents {
    /// Adds an entry, or the reason why it is omitted. Returns true if the entry is a folder of the backup.
    fn add(&mut self, path: PathBuf, entry: Result<HomeEntry, Option<String>>) -> bool {
        let is_folder = entry == Ok(HomeEntry::Folder);
        match entry {
            Ok(item) => self.items.push((path, item)),
            Err(why) => self.left_out.extend(why.map(|why| describe(&path, &why))),
        }
        is_folder
    }

    /// Adds what the folder `top` of the home contains, near entries first, and at most `limit` entries. Commands can write there at any
    /// time, so no fault of an entry is an error.
    fn add_tree(&mut self, home: &OwnedFd, top: &Path, limit: usize) {
        let (mut folders, mut remaining) = (VecDeque::from([top.to_owned()]), limit);
        let most = format!("a backup takes at most {limit} entries of {}", shown(top));
        while let Some(path) = folders.pop_front() {
            if remaining == 0 {
                let first = shown(&path);
                self.left_out
                    .push(describe(top, &format!("the contents of its last folders, from {first} on: {most}")));
                return;
            }
            let (folder, names) = match open_folder(home, &path) {
                Ok(opened) => opened,
                Err(error) => {
                    let why = omission(&error).map(|why| format!("the folder, with all that is in it: {why}"));
                    self.add(path, Err(why));
                    continue;
                }
            };
            // Of a folder that exceeds the limit, the backup takes fewer entries, so that other folders follow.
            let taken = if names.len() > remaining { remaining.div_ceil(2) } else { names.len() };
            remaining -= taken;
            if let Some(first) = names.get(taken) {
                let (count, all, first) = (names.len() - taken, names.len(), shown(Path::new(first)));
                let why = format!("{count} of its {all} entries, from {first} on: {most}");
                self.left_out.push(describe(&path, &why));
            }
            for name in names.into_iter().take(taken) {
                let path = path.join(name);
                let entry = read_entry(&folder, &path).unwrap_or_else(|error| Err(omission(&error)));
                if self.add(path.clone(), entry) {
                    folders.push_back(path);
                }
            }
        }
    }
}

/// Lists the entries of the home behind an open handle.
///
/// # Errors
/// The home itself, or an entry at its top, cannot be read.
pub fn list(home: &OwnedFd) -> io::Result<HomeContents> {
    list_up_to(home, MAX_ENTRIES)
}

/// Lists the entries of the home, and at most `limit` of each folder at its top.
fn list_up_to(home: &OwnedFd, limit: usize) -> io::Result<HomeContents> {
    let mut contents = HomeContents::default();
    let (top, names) = open_folder(home, Path::new("."))?;
    let mut folders = Vec::new();
    for name in names.into_iter().filter(|name| !is_excluded(&name.to_string_lossy())) {
        let path = PathBuf::from(name);
        if contents.add(path.clone(), read_entry(&top, &path)?) {
            folders.push(path);
        }
    }
    for folder in folders {
        contents.add_tree(home, &folder, limit);
    }
    Ok(contents)
}

/// Opens a folder of the home without following a link; returns it with the sorted names of its entries.
fn open_folder(home: &OwnedFd, path: &Path) -> io::Result<(OwnedFd, Vec<OsString>)> {
    let folder = open_beneath_on_any_mount(home, path, OFlags::RDONLY | OFlags::DIRECTORY)?;
    let entries = Dir::from_std_file(folder.try_clone()?.into()).entries()?;
    let mut names = entries.map(|entry| Ok(entry?.file_name())).collect::<io::Result<Vec<_>>>()?;
    names.sort_unstable();
    Ok((folder, names))
}

/// Opens a file that was listed, without following a link: a command may have replaced it, or a folder above it, since.
///
/// # Errors
/// The file cannot be opened, or is not a regular file.
pub fn open_file(home: &OwnedFd, path: &Path) -> io::Result<File> {
    let file = File::from(open_beneath_on_any_mount(home, path, READ_FLAGS)?);
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it was changed during the backup; run the backup again"));
    }
    Ok(file)
}

/// Returns the reason why an entry is omitted after `error`; `None` if the entry was removed.
pub fn omission(error: &io::Error) -> Option<String> {
    match Errno::from_io_error(error) {
        Some(Errno::NOENT) => None,
        Some(Errno::LOOP) => Some("it has become a link".to_owned()),
        _ => Some(format!("it cannot be read: {error}")),
    }
}

/// Describes an omitted entry.
pub fn describe(path: &Path, why: &str) -> String {
    format!("{}: {why}", shown(path))
}

/// Returns a path as text, quoted and escaped if it is not UTF-8.
fn shown(path: &Path) -> String {
    path.to_str().map_or_else(|| format!("{path:?}"), str::to_owned)
}

/// Returns true if `file`, which need not exist, is an entry of the home at `dir`, or has a name that the home reserves. An earlier backup
/// in the home is not such an entry.
///
/// # Errors
/// The file or the home cannot be read.
pub fn is_own(dir: &Path, file: &Path) -> io::Result<bool> {
    let dir = fs::canonicalize(dir)?;
    let folder = file.parent().and_then(|folder| fs::canonicalize(folder).ok()).unwrap_or_default();
    let Some(name) = file.file_name() else { return Ok(fs::canonicalize(file)?.starts_with(&dir)) };
    if !folder.starts_with(&dir) {
        return Ok(false);
    }
    let name = name.to_string_lossy();
    if folder == dir && (is_excluded(&name) || RESERVED.contains(&&*name)) {
        return Ok(true);
    }
    match fs::symlink_metadata(file) {
        Ok(metadata) if metadata.is_file() => Ok(!is_backup(File::open(file)?)?),
        Ok(_) => Ok(true),
        Err(_) => Ok(false),
    }
}

fn is_excluded(name: &str) -> bool {
    EXCLUDED.contains(&name) || EXCLUDED_PREFIXES.iter().any(|family| name.starts_with(family))
}

/// Returns the entry at `path` in the home, which lies in the open folder `folder`. The inner error is the reason why the entry is
/// omitted, if the owner should know it.
fn read_entry(folder: &OwnedFd, path: &Path) -> io::Result<Result<HomeEntry, Option<String>>> {
    let name = path.file_name().unwrap_or_default();
    let kind = match rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(found) => FileType::from_raw_mode(found.st_mode),
        // The entry was removed since the folder was read.
        Err(Errno::NOENT) => return Ok(Err(None)),
        Err(error) => return Err(error.into()),
    };
    let what = if kind == FileType::Directory { "the folder, with all that is in it: its" } else { "its" };
    if path.to_str().is_none() {
        return Ok(Err(Some(format!("{what} name is not UTF-8"))));
    }
    if path.as_os_str().len() > MAX_PATH {
        return Ok(Err(Some(format!("{what} path is too long"))));
    }
    match kind {
        FileType::Directory => Ok(Ok(HomeEntry::Folder)),
        FileType::Symlink => {
            let target = rustix::fs::readlinkat(folder, name, Vec::new())?;
            let target = PathBuf::from(OsString::from_vec(target.into_bytes()));
            if manifest::link_stays(path, &target) {
                return Ok(Ok(HomeEntry::Link(target)));
            }
            let kind = if target.is_absolute() { "is absolute" } else { "points outside of the home" };
            Ok(Err(Some(format!("the link {kind}, to {}", shown(&target)))))
        }
        FileType::RegularFile => {
            let file = rustix::fs::openat(folder, name, READ_FLAGS | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty());
            let is_backup = is_backup(File::from(file?))?;
            Ok(if is_backup { Err(Some("it is a backup itself".to_owned())) } else { Ok(HomeEntry::File) })
        }
        _ => Ok(Err(Some("it is neither a file nor a folder".to_owned()))),
    }
}

/// Returns true if a file is an archive of this program.
fn is_backup(mut file: File) -> io::Result<bool> {
    let mut name = [0; FIRST_ENTRY.len() + 1];
    let length = file.read(&mut name)?;
    Ok(length == name.len() && name.starts_with(FIRST_ENTRY.as_bytes()) && name.ends_with(&[0]))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn open_home(dir: &Path) -> OwnedFd {
        File::open(dir).unwrap().into()
    }

    #[test]
    fn a_folder_that_became_a_link_is_not_entered() {
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path().join("home");
        fs::create_dir_all(home.join("workspace")).unwrap();
        fs::create_dir(folder.path().join("outside")).unwrap();
        fs::write(folder.path().join("outside/secret"), "secret").unwrap();
        symlink(folder.path().join("outside"), home.join("workspace/zz")).unwrap();
        let home = open_home(&home);
        // Each of these was a folder when the folder above it was read.
        for path in ["workspace/zz", "workspace/none"] {
            let mut contents = HomeContents::default();
            contents.add_tree(&home, Path::new(path), MAX_ENTRIES);
            assert_eq!(contents.items, [], "{path}");
            let expected = format!("{path}: the folder, with all that is in it: it has become a link");
            let expected: &[String] = if path.ends_with("none") { &[] } else { &[expected] };
            assert_eq!(contents.left_out, expected, "{path}");
        }
        assert!(open_file(&home, Path::new("workspace/zz/secret")).is_err());
    }

    #[test]
    fn a_folder_with_too_many_entries_leaves_the_others_in_the_backup() {
        let folder = tempfile::tempdir().unwrap();
        let write = |path: &str| {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        };
        let files = ["a", "b", "c", "config.toml", "d", "deep/a/1", "deep/a/2", "deep/a/3", "deep/b/4", "token"];
        let many = ["many/1", "many/2", "many/3", "many/4", "many/5", "many/6", "workspace/note.md"];
        files.into_iter().chain(many).for_each(write);
        let contents = list_up_to(&open_home(folder.path()), 5).unwrap();
        let listed: Vec<_> = contents.items.iter().map(|(path, _)| path.to_str().unwrap()).collect();
        let top = ["a", "b", "c", "config.toml", "d", "deep", "many", "token", "workspace"];
        let below = ["deep/a", "deep/b", "deep/a/1", "deep/a/2", "deep/a/3", "many/1", "many/2", "many/3"];
        assert_eq!(listed, [&top[..], &below, &["workspace/note.md"]].concat());
        let expected = [
            "deep: the contents of its last folders, from deep/b on: a backup takes at most 5 entries of deep",
            "many: 3 of its 6 entries, from 4 on: a backup takes at most 5 entries of many",
        ];
        assert_eq!(contents.left_out, expected);
    }

    #[test]
    fn a_path_that_is_too_long_is_left_out() {
        let folder = tempfile::tempdir().unwrap();
        let name = "d".repeat(200);
        let mut at = open_home(folder.path());
        // The tree is deeper than a path can express.
        for _ in 0..25 {
            rustix::fs::mkdirat(&at, &name, Mode::RWXU).unwrap();
            at = open_beneath_on_any_mount(&at, Path::new(&name), OFlags::RDONLY | OFlags::DIRECTORY).unwrap();
        }
        let contents = list(&open_home(folder.path())).unwrap();
        assert_eq!(contents.items.len(), 10);
        let [left_out] = &contents.left_out[..] else { panic!("{:?}", contents.left_out) };
        assert!(left_out.ends_with("d: the folder, with all that is in it: its path is too long"), "{left_out}");
    }
}
