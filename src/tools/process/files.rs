//! Where what is printed in the background goes: files in the workspace, which `read_file` pages.

use std::collections::HashSet;
use std::io::{self, ErrorKind, Read, Seek, SeekFrom};
use std::path::Path;
use std::time::SystemTime;

use cap_std::ambient_authority;
use cap_std::fs::{Dir, File, MetadataExt, OpenOptions, OpenOptionsExt, Permissions, PermissionsExt};

/// Below the workspace.
const FOLDER: &str = ".daoyou/background";
/// The newest files that are kept.
const KEEP_FILES: usize = 50;
/// What is looked at of a file's end, in bytes.
const LOOK: u64 = 64 * 1_024;

/// The end of what a process printed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tail {
    /// The last lines, without a line break at the end.
    pub text: String,
    /// Not all that was printed stands in `text`.
    pub is_cut: bool,
    /// The file with all that is kept, relative to the workspace, and its size in bytes.
    pub path: String,
    pub bytes: u64,
}

/// The folder of these files in one workspace.
#[derive(Debug)]
pub(super) struct OutputFiles {
    workspace: Dir,
}

impl OutputFiles {
    /// # Errors
    /// When the workspace cannot be opened.
    pub(super) fn open(workspace: &Path) -> io::Result<Self> {
        Ok(Self { workspace: Dir::open_ambient_dir(workspace, ambient_authority())? })
    }

    /// Relative to the workspace.
    pub(super) fn path_of(id: &str) -> String {
        format!("{FOLDER}/{}", name_of(id))
    }

    /// Makes the file of a process, and removes the oldest of too many, but for those of `running`.
    ///
    /// # Errors
    /// When the disk does not take it, or the folder leads out of the workspace.
    pub(super) fn create(&self, id: &str, running: &HashSet<String>) -> io::Result<std::fs::File> {
        self.workspace.create_dir_all(FOLDER)?;
        let folder = self.workspace.open_dir(FOLDER)?;
        let name = name_of(id);
        // What stands there may be a link.
        remove(&folder, &name)?;
        let running: HashSet<String> = running.iter().map(|id| name_of(id)).collect();
        prune(&folder, &running)?;
        let file = folder.open_with(&name, OpenOptions::new().write(true).create_new(true))?;
        file.set_permissions(Permissions::from_mode(0o600))?;
        Ok(file.into_std())
    }

    /// The last `lines` lines of a process, of at most `chars` characters.
    ///
    /// # Errors
    /// When there is no such file any more, or it is no plain file: commands can write there.
    pub(super) fn tail(&self, id: &str, lines: usize, chars: usize) -> io::Result<Tail> {
        let path = Self::path_of(id);
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY);
        let mut file: File = self.workspace.open_with(&path, &options)?;
        let metadata = file.metadata()?;
        if !metadata.is_file() || metadata.nlink() != 1 {
            return Err(io::Error::other("it is not the plain file that it was"));
        }
        let bytes = metadata.len();
        let from = bytes.saturating_sub(LOOK);
        file.seek(SeekFrom::Start(from))?;
        let mut end = Vec::new();
        file.take(LOOK).read_to_end(&mut end)?;
        let end = String::from_utf8_lossy(&end);
        let (text, is_cut) = last_of(&end, lines, chars);
        Ok(Tail { text: text.to_owned(), is_cut: is_cut || from > 0, path, bytes })
    }
}

fn name_of(id: &str) -> String {
    format!("{id}.txt")
}

/// The last lines of a text, and whether there are more.
fn last_of(text: &str, lines: usize, chars: usize) -> (&str, bool) {
    let text = text.trim_end_matches(['\n', '\r']);
    let by_lines = text.rmatch_indices('\n').nth(lines.max(1) - 1).map_or(0, |(at, _)| at + 1);
    let by_chars = text.char_indices().rev().nth(chars.max(1) - 1).map_or(0, |(at, _)| at);
    let from = by_lines.max(by_chars);
    (&text[from..], from > 0)
}

fn remove(folder: &Dir, name: &str) -> io::Result<()> {
    match folder.remove_file(name) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Removes the oldest files until one more fits.
fn prune(folder: &Dir, running: &HashSet<String>) -> io::Result<()> {
    let mut files = Vec::new();
    for entry in folder.entries()? {
        let entry = entry?;
        let name = entry.file_name();
        if name.to_str().is_some_and(|name| running.contains(name)) {
            continue;
        }
        let metadata = match entry.metadata() {
            Ok(metadata) => metadata,
            // Somebody has removed it meanwhile.
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        if metadata.is_file() {
            let modified = metadata.modified().map_or(SystemTime::UNIX_EPOCH, cap_std::time::SystemTime::into_std);
            files.push((modified, name));
        }
    }
    files.sort_by(|one, other| other.cmp(one));
    for (_, name) in files.iter().skip(KEEP_FILES - 1) {
        match folder.remove_file(name) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn the_last_lines_within_their_bounds() {
        for (text, lines, chars, expected) in [
            ("", 5, 5, ("", false)),
            ("a\nb\nc\n", 2, 99, ("b\nc", true)),
            ("a\nb\nc", 3, 99, ("a\nb\nc", false)),
            ("a\n\n\n", 2, 99, ("a", false)),
            ("道友你好", 9, 2, ("你好", true)),
            ("道友", 9, 2, ("道友", false)),
        ] {
            assert_eq!(last_of(text, lines, chars), expected, "{text:?}");
        }
    }

    #[test]
    fn files_are_few_and_only_plain_ones_are_read() {
        let workspace = tempfile::tempdir().unwrap();
        let files = OutputFiles::open(workspace.path()).unwrap();
        let running = HashSet::from(["p0".to_owned()]);
        for n in 0..KEEP_FILES + 5 {
            let mut file = files.create(&format!("p{n}"), &running).unwrap();
            write!(file, "first\nof {n}\n").unwrap();
        }
        let folder = workspace.path().join(FOLDER);
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), KEEP_FILES + 1);
        let tail = files.tail("p0", 1, 99).unwrap();
        let path = ".daoyou/background/p0.txt".to_owned();
        assert_eq!(tail, Tail { text: "of 0".to_owned(), is_cut: true, path, bytes: 11 });
        std::fs::hard_link(folder.join("p0.txt"), workspace.path().join("other")).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", folder.join("link.txt")).unwrap();
        for id in ["p0", "link", "none"] {
            assert!(files.tail(id, 1, 99).is_err(), "{id}");
        }
    }
}
