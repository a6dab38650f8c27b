//! What of a home goes into its backup: everything but what belongs to the running program alone.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::manifest::{self, FIRST};

/// The files and folders that a home may have; more is a mistake.
const LIMIT: usize = 1_000_000;

/// Names at the top of the home that are made anew, or copied in their own way. What begins with one of the second list
/// is left out, too: the database's own files, and what was moved aside.
const LEFT_OUT: [&str; 6] = ["daoyou.lock", "daoyou.sock", "daoyou.mark", "daoyou.flight", "daoyou.suspect", "tmp"];
const FAMILIES: [&str; 3] = ["daoyou.db", "daoyou.before-restore-", "daoyou.restoring"];

/// One thing in the home.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    Folder,
    File,
    Link(PathBuf),
}

/// The things of a home by their path in it, a folder before what is in it; and what cannot be taken along, in words.
#[derive(Debug, Default)]
pub struct Contents {
    pub items: Vec<(PathBuf, Item)>,
    pub left_out: Vec<String>,
}

/// Walks through the home at `dir`.
///
/// # Errors
/// A folder cannot be read, or there is no end of it.
pub fn of(dir: &Path) -> io::Result<Contents> {
    let mut contents = Contents::default();
    let mut folders = vec![PathBuf::new()];
    while let Some(folder) = folders.pop() {
        let mut names =
            fs::read_dir(dir.join(&folder))?.map(|entry| Ok(entry?.file_name())).collect::<io::Result<Vec<_>>>()?;
        names.sort_unstable();
        for name in names {
            let path = folder.join(&name);
            if folder.as_os_str().is_empty() && is_left_out(&name.to_string_lossy()) {
                continue;
            }
            if contents.items.len() >= LIMIT {
                return Err(io::Error::other(format!("the home holds more than {LIMIT} files")));
            }
            match item(dir, &path)? {
                Ok(item) => {
                    if item == Item::Folder {
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

fn is_left_out(name: &str) -> bool {
    LEFT_OUT.contains(&name) || FAMILIES.iter().any(|family| name.starts_with(family))
}

/// What stands at `path`; the inner error says why it is left out, if that is worth a word.
fn item(dir: &Path, path: &Path) -> io::Result<Result<Item, Option<String>>> {
    let full = dir.join(path);
    let kind = match fs::symlink_metadata(&full) {
        Ok(metadata) => metadata.file_type(),
        // It was there a moment ago.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Err(None)),
        Err(error) => return Err(error),
    };
    if kind.is_dir() {
        return Ok(Ok(Item::Folder));
    }
    if kind.is_symlink() {
        let target = fs::read_link(&full)?;
        if manifest::link_stays(path, &target) {
            return Ok(Ok(Item::Link(target)));
        }
        return Ok(Err(Some(format!("the link leads out of the home, to {}", target.display()))));
    }
    if !kind.is_file() {
        return Ok(Err(Some("it is neither a file nor a folder".to_owned())));
    }
    if is_backup(&full)? {
        return Ok(Err(Some("it is a backup itself".to_owned())));
    }
    Ok(Ok(Item::File))
}

/// Whether a file is an archive that this program made.
fn is_backup(path: &Path) -> io::Result<bool> {
    let mut name = [0; FIRST.len() + 1];
    let length = File::open(path)?.read(&mut name)?;
    Ok(length == name.len() && name.starts_with(FIRST.as_bytes()) && name.ends_with(&[0]))
}
