//! The files of a home that go into its backup: all files except those of the running program.

use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::manifest::{self, FIRST_ENTRY};

/// The most files and folders in a home; a larger number is an error.
const LIMIT: usize = 1_000_000;

/// Names at the top of the home that are not archived directly, because they are recreated or copied separately. `EXCLUDED_PREFIXES`
/// covers the database's own files and files that were moved aside.
const EXCLUDED: [&str; 7] =
    ["skills.json.lock", "daoyou.lock", "daoyou.sock", "daoyou.mark", "daoyou.flight", "daoyou.suspect", "tmp"];
const EXCLUDED_PREFIXES: [&str; 4] = ["daoyou.db", "daoyou.before-restore-", "daoyou.restoring", "code-cache.db"];

/// Names at the top of the home that belong to the running program, in addition to `EXCLUDED`, even if no such file exists yet.
const RESERVED: [&str; 8] =
    ["config.toml", "token", "history", "skills.json", "workspace", "daoyou.db", "daoyou.db-wal", "daoyou.db-shm"];

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

/// Lists the entries of the home at `dir`.
///
/// # Errors
/// A folder cannot be read, or there are too many entries.
pub fn list(dir: &Path) -> io::Result<HomeContents> {
    let mut contents = HomeContents::default();
    let mut folders = vec![PathBuf::new()];
    while let Some(folder) = folders.pop() {
        let mut names =
            fs::read_dir(dir.join(&folder))?.map(|entry| Ok(entry?.file_name())).collect::<io::Result<Vec<_>>>()?;
        names.sort_unstable();
        for name in names {
            let path = folder.join(&name);
            if folder.as_os_str().is_empty() && is_excluded(&name.to_string_lossy()) {
                continue;
            }
            if contents.items.len() >= LIMIT {
                return Err(io::Error::other(format!("the home holds more than {LIMIT} files")));
            }
            match read_entry(dir, &path)? {
                Ok(item) => {
                    if item == HomeEntry::Folder {
                        folders.push(path.clone());
                    }
                    contents.items.push((path, item));
                }
                Err(why) => contents.left_out.extend(why.map(|why| format!("{}: {why}", shown(&path)))),
            }
        }
    }
    Ok(contents)
}

/// Returns a path as text, quoted and escaped if it is not UTF-8.
fn shown(path: &Path) -> String {
    path.to_str().map_or_else(|| format!("{path:?}"), str::to_owned)
}

/// Returns true if `file`, which need not exist, is one of the files that the home at `dir` consists of, under any name: it has a
/// reserved name, or it is an entry of the home, or a link to one. An earlier backup in the home is none of them.
///
/// # Errors
/// The file or the home cannot be read.
pub fn is_own(dir: &Path, file: &Path) -> io::Result<bool> {
    let dir = fs::canonicalize(dir)?;
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let folder = file.parent().and_then(|folder| fs::canonicalize(folder).ok()).unwrap_or_default();
    if folder == dir && (EXCLUDED.contains(&&*name) || RESERVED.contains(&&*name)) {
        return Ok(true);
    }
    if folder.starts_with(&dir) && fs::symlink_metadata(file).is_ok_and(|metadata| metadata.is_symlink()) {
        return Ok(true);
    }
    let Ok(metadata) = fs::metadata(file) else { return Ok(false) };
    if metadata.is_file() && is_backup(file)? {
        return Ok(false);
    }
    if fs::canonicalize(file)?.starts_with(&dir) {
        return Ok(true);
    }
    holds(&dir, &metadata)
}

/// Returns true if an entry of the home is this same file, under another name.
fn holds(dir: &Path, file: &Metadata) -> io::Result<bool> {
    let is_same = |path: &Path| {
        fs::symlink_metadata(path).is_ok_and(|other| (other.dev(), other.ino()) == (file.dev(), file.ino()))
    };
    // The list lacks the files of the running program, which are at the top.
    let top = fs::read_dir(dir)?.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
    Ok(top.iter().any(|path| is_same(path)) || list(dir)?.items.iter().any(|(path, _)| is_same(&dir.join(path))))
}

fn is_excluded(name: &str) -> bool {
    EXCLUDED.contains(&name) || EXCLUDED_PREFIXES.iter().any(|family| name.starts_with(family))
}

/// Returns the entry at `path`. The inner error is the reason why the entry is omitted, if the owner should know it.
fn read_entry(dir: &Path, path: &Path) -> io::Result<Result<HomeEntry, Option<String>>> {
    let full = dir.join(path);
    let kind = match fs::symlink_metadata(&full) {
        Ok(metadata) => metadata.file_type(),
        // The entry was removed since the folder was read.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Err(None)),
        Err(error) => return Err(error),
    };
    if path.to_str().is_none() {
        let what = if kind.is_dir() { "the folder, with all that is in it: its" } else { "its" };
        return Ok(Err(Some(format!("{what} name is not UTF-8"))));
    }
    if kind.is_dir() {
        return Ok(Ok(HomeEntry::Folder));
    }
    if kind.is_symlink() {
        let target = fs::read_link(&full)?;
        if manifest::link_stays(path, &target) {
            return Ok(Ok(HomeEntry::Link(target)));
        }
        let kind = if target.is_absolute() { "is absolute" } else { "points outside of the home" };
        return Ok(Err(Some(format!("the link {kind}, to {}", shown(&target)))));
    }
    if !kind.is_file() {
        return Ok(Err(Some("it is neither a file nor a folder".to_owned())));
    }
    if is_backup(&full)? {
        return Ok(Err(Some("it is a backup itself".to_owned())));
    }
    Ok(Ok(HomeEntry::File))
}

/// Returns true if a file is an archive of this program.
fn is_backup(path: &Path) -> io::Result<bool> {
    let mut name = [0; FIRST_ENTRY.len() + 1];
    let length = File::open(path)?.read(&mut name)?;
    Ok(length == name.len() && name.starts_with(FIRST_ENTRY.as_bytes()) && name.ends_with(&[0]))
}
