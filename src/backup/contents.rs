//! The files of a home that go into its backup: all files except those of the running program.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::manifest::{self, FIRST_ENTRY};

/// The most files and folders in a home; a larger number is an error.
const LIMIT: usize = 1_000_000;

/// Names at the top of the home that are not archived directly, because they are recreated or copied separately. `EXCLUDED_PREFIXES`
/// covers the database's own files and files that were moved aside.
const EXCLUDED: [&str; 7] =
    ["skills.json.lock", "daoyou.lock", "daoyou.sock", "daoyou.mark", "daoyou.flight", "daoyou.suspect", "tmp"];
const EXCLUDED_PREFIXES: [&str; 4] = ["daoyou.db", "daoyou.before-restore-", "daoyou.restoring", "code-cache.db"];

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
                Err(why) => contents.left_out.extend(why.map(|why| format!("{}: {why}", path.display()))),
            }
        }
    }
    Ok(contents)
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
    if kind.is_dir() {
        return Ok(Ok(HomeEntry::Folder));
    }
    if kind.is_symlink() {
        let target = fs::read_link(&full)?;
        if manifest::link_stays(path, &target) {
            return Ok(Ok(HomeEntry::Link(target)));
        }
        return Ok(Err(Some(format!("the link points outside of the home, to {}", target.display()))));
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
