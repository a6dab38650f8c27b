//! The agent's own folder, and the template that fills it.

use std::fs::{self, DirBuilder, File};
use std::io::{Error, ErrorKind, Result, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use include_dir::{Dir, DirEntry, include_dir};

use crate::memory::MEMORY_FILE;

static TEMPLATE: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/workspace");

/// The file that marks a filled workspace.
const MARKER: &str = ".daoyou-template";
const MARKER_TEXT: &str = "The template was written here once: what you delete stays deleted. Remove this file, and the \
                           next start adds the template's missing files again.\n";

/// Prepares the workspace: creates the folder, and fills it from the template at the first start. Returns the written
/// files in the template's order.
///
/// Existing files stay as they are, even if empty, a link, or of another kind. A file that the user deletes later does
/// not come back: the marker file `.daoyou-template` records that the folder was filled, and nothing is written until
/// the marker or the whole folder is gone. The marker is written last, so an interrupted first start is completed by
/// the next; each file appears whole or not at all. Several processes may do this at the same time. New folders have mode
/// 0700, new files 0600.
///
/// # Errors
/// The first folder or file that cannot be created; the message names it, and the remedy for missing rights.
pub fn prepare(dir: &Path) -> Result<Vec<PathBuf>> {
    prepare_accessible(dir).map_err(|error| match error.kind() {
        ErrorKind::PermissionDenied => Error::new(error.kind(), format!("{error}; chmod u+rwx {}", dir.display())),
        _ => error,
    })
}

fn prepare_accessible(dir: &Path) -> Result<Vec<PathBuf>> {
    make_dir(dir)?;
    let marker = dir.join(MARKER);
    if exists(&marker)? {
        return Ok(Vec::new());
    }
    // One process after the other: their drafts have the same names.
    let lock = File::open(dir).map_err(|error| naming(dir, &error))?;
    lock.lock().map_err(|error| naming(dir, &error))?;
    if exists(&marker)? {
        return Ok(Vec::new());
    }
    let mut written = Vec::new();
    fill(dir, &TEMPLATE, &mut written)?;
    write_new(&marker, MARKER_TEXT.as_bytes())?;
    drop(lock);
    Ok(written)
}

/// Returns true if [`prepare`] has filled `dir`.
pub fn is_prepared(dir: &Path) -> bool {
    dir.join(MARKER).symlink_metadata().is_ok()
}

/// Writes the missing files of a template folder, recursively.
fn fill(dir: &Path, template: &Dir<'_>, written: &mut Vec<PathBuf>) -> Result<()> {
    for entry in template.entries() {
        let path = dir.join(entry.path());
        let is_there = exists(&path)?;
        match entry {
            // The user has a file or a link where the template has a folder; it stays.
            DirEntry::Dir(_) if is_there && !is_folder(&path)? => {}
            DirEntry::Dir(folder) => {
                make_dir(&path)?;
                fill(dir, folder, written)?;
            }
            // The memory service writes MEMORY.md from the store if it is missing. With the template's file, every fact would seem to
            // have been removed by a person.
            DirEntry::File(file) if is_there || file.path() == Path::new(MEMORY_FILE) => {}
            DirEntry::File(file) => {
                if write_new(&path, file.contents())? {
                    written.push(path);
                }
            }
        }
    }
    Ok(())
}

/// Returns true if anything has this name, including a dangling link.
fn exists(path: &Path) -> Result<bool> {
    match path.symlink_metadata() {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(naming(path, &error)),
    }
}

/// Returns true for a folder, false for a link to one: the agent's commands can create links, and nothing may be written to their
/// targets.
fn is_folder(path: &Path) -> Result<bool> {
    Ok(path.symlink_metadata().map_err(|error| naming(path, &error))?.is_dir())
}

fn make_dir(path: &Path) -> Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(|error| naming(path, &error))
}

/// Writes a file as the draft `.NAME.new`, which is renamed once it is on disk. Returns false if somebody has created the file
/// meanwhile, which stays.
fn write_new(path: &Path, contents: &[u8]) -> Result<bool> {
    let (folder, name) = (path.parent().unwrap_or(Path::new(".")), path.file_name().unwrap_or_default());
    let draft = format!(".{}.new", name.to_string_lossy());
    let write = || {
        // The draft of an interrupted start.
        match fs::remove_file(folder.join(&draft)) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut draft = tempfile::Builder::new().prefix(&draft).rand_bytes(0).tempfile_in(folder)?;
        draft.write_all(contents)?;
        draft.as_file().sync_all()?;
        match draft.persist_noclobber(path) {
            Ok(_) => Ok(true),
            Err(failed) if failed.error.kind() == ErrorKind::AlreadyExists => Ok(false),
            Err(failed) => Err(failed.error),
        }
    };
    write().map_err(|error: Error| naming(path, &error))
}

fn naming(path: &Path, error: &Error) -> Error {
    Error::new(error.kind(), format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn names(dir: &Path, written: &[PathBuf]) -> Vec<String> {
        let mut names: Vec<String> =
            written.iter().map(|path| path.strip_prefix(dir).expect("inside").display().to_string()).collect();
        names.sort();
        names
    }

    const FILES: [&str; 6] = ["AGENTS.md", "HEARTBEAT.md", "SOUL.md", "TOOLS.md", "USER.md", "skills/README.md"];

    #[test]
    fn a_new_folder_is_filled_once() {
        let home = tempfile::tempdir().expect("a temp folder");
        let dir = home.path().join("a/workspace");
        let written = prepare(&dir).expect("it can be made");
        assert_eq!(names(&dir, &written), FILES);
        for (path, mode) in [("", 0o700), ("memory", 0o700), ("skills", 0o700), ("AGENTS.md", 0o600), (MARKER, 0o600)] {
            let found = fs::metadata(dir.join(path)).expect("it is there").permissions().mode();
            assert_eq!(found & 0o777, mode, "{path}");
        }
        fs::remove_file(dir.join("SOUL.md")).expect("it is there");
        assert_eq!(prepare(&dir).expect("it is made"), Vec::<PathBuf>::new());
        assert!(!dir.join("SOUL.md").exists(), "what was deleted stays deleted");

        fs::remove_file(dir.join(MARKER)).expect("it is there");
        assert_eq!(names(&dir, &prepare(&dir).expect("it can be filled")), ["SOUL.md"]);
    }

    #[test]
    fn existing_files_are_not_touched() {
        let home = tempfile::tempdir().expect("a temp folder");
        let dir = home.path();
        fs::write(dir.join("AGENTS.md"), "mine").expect("writable");
        fs::write(dir.join("USER.md"), "").expect("writable");
        fs::write(dir.join(".TOOLS.md.new"), "the draft of a start that was killed").expect("writable");
        fs::write(dir.join("skills"), "a file of mine").expect("writable");
        std::os::unix::fs::symlink("/nowhere/at/all", dir.join("SOUL.md")).expect("linkable");
        fs::set_permissions(dir, fs::Permissions::from_mode(0o750)).expect("ours");

        let written = prepare(dir).expect("it can be filled");
        assert_eq!(names(dir, &written), ["HEARTBEAT.md", "TOOLS.md"]);
        assert!(!dir.join(".TOOLS.md.new").exists(), "drafts do not stay");
        assert_eq!(fs::read_to_string(dir.join("AGENTS.md")).expect("readable"), "mine");
        assert_eq!(fs::read_to_string(dir.join("USER.md")).expect("readable"), "");
        assert_eq!(fs::read_link(dir.join("SOUL.md")).expect("a link"), Path::new("/nowhere/at/all"));
        assert_eq!(fs::metadata(dir).expect("it is there").permissions().mode() & 0o777, 0o750);
    }

    #[test]
    fn several_processes_fill_a_new_folder_together() {
        let home = tempfile::tempdir().expect("a temp folder");
        let dir = home.path().join("workspace");
        let mut written: Vec<String> = std::thread::scope(|scope| {
            let each: Vec<_> = (0..8).map(|_| scope.spawn(|| prepare(&dir).expect("it can be filled"))).collect();
            each.into_iter().flat_map(|one| names(&dir, &one.join().expect("no panic"))).collect()
        });
        written.sort();
        assert_eq!(written, FILES, "each file is written once");
        let hidden = fs::read_dir(&dir).expect("readable").flatten().map(|entry| entry.file_name());
        let hidden: Vec<_> = hidden.filter(|name| name.to_string_lossy().starts_with('.')).collect();
        assert_eq!(hidden, [MARKER], "no draft is left");
    }

    #[test]
    fn an_error_names_the_file() {
        let home = tempfile::tempdir().expect("a temp folder");
        let dir = home.path().join("workspace");
        fs::write(&dir, "a file").expect("writable");
        let error = prepare(&dir).expect_err("a file is in the way");
        assert!(error.to_string().contains("workspace: "), "{error}");
    }

    #[test]
    fn the_bootstrap_files_are_short() {
        let sent = ["AGENTS.md", "SOUL.md", "USER.md", "TOOLS.md"];
        let length: usize =
            sent.iter().map(|name| TEMPLATE.get_file(name).map_or(0, |file| file.contents().len())).sum();
        assert!((500..2_500).contains(&length), "{length} bytes");
    }
}
