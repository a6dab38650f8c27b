//! The output files of background commands in the workspace, which `read_file` pages through.

use std::collections::HashSet;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use cap_std::ambient_authority;
use cap_std::fs::Dir;

use crate::tools::private_folders::{ConversationFolder, RetentionLimits};
use crate::tools::spill::foreign_mark;
use crate::tools::truncation::suffix;

/// The subfolder of a conversation's folder.
const SUBFOLDER: &str = "background";
/// The number of newest files that are kept.
const MAX_FILES: usize = 50;
/// The size of the part that is read from the end of a file, in bytes.
const TAIL_BYTES: u64 = 64 * 1_024;

/// The end of a process's output.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OutputTail {
    /// The last lines, without a line break at the end.
    pub text: String,
    /// True if `text` is not the whole output.
    pub is_cut: bool,
    /// The file with the kept output, relative to the workspace, and its size in bytes.
    pub path: String,
    pub bytes: u64,
}

/// The output files of one workspace.
#[derive(Debug)]
pub(super) struct OutputFiles {
    workspace: Dir,
}

impl OutputFiles {
    /// Opens the output files of a workspace.
    ///
    /// # Errors
    /// The workspace cannot be opened.
    pub(super) fn open(workspace: &Path) -> io::Result<Self> {
        Ok(Self { workspace: Dir::open_ambient_dir(workspace, ambient_authority())? })
    }

    /// Returns the path of a process's file relative to the workspace.
    pub(super) fn path_of(folder: &ConversationFolder, id: &str, is_foreign: bool) -> String {
        folder.file(SUBFOLDER, &file_name(id, is_foreign))
    }

    /// Creates the file of a process, and removes the oldest files if there are too many, except those of `running`. The name
    /// marks foreign content.
    ///
    /// # Errors
    /// The disk refuses the file, or a folder is a link or a mount.
    pub(super) fn create(
        &self,
        folder: &ConversationFolder,
        id: &str,
        is_foreign: bool,
        running: &HashSet<String>,
    ) -> io::Result<std::fs::File> {
        let spared = running.iter().flat_map(|id| [true, false].map(|is_foreign| file_name(id, is_foreign))).collect();
        let limits = RetentionLimits { files: MAX_FILES, bytes: u64::MAX, spared: &spared };
        folder.create(&self.workspace, SUBFOLDER, &file_name(id, is_foreign), &limits)
    }

    /// Returns the last `lines` lines of a process's output, with at most `chars` characters.
    ///
    /// # Errors
    /// The file is gone, or is not a regular file: commands can write there.
    pub(super) fn tail(
        &self,
        folder: &ConversationFolder,
        id: &str,
        lines: usize,
        chars: usize,
    ) -> io::Result<OutputTail> {
        let open = |is_foreign| folder.open(&self.workspace, SUBFOLDER, &file_name(id, is_foreign));
        let (mut file, is_foreign) = match open(true) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => (open(false)?, false),
            opened => (opened?, true),
        };
        let path = Self::path_of(folder, id, is_foreign);
        let metadata = file.metadata()?;
        let bytes = metadata.len();
        let from = bytes.saturating_sub(TAIL_BYTES);
        file.seek(SeekFrom::Start(from))?;
        let mut end = Vec::new();
        file.take(TAIL_BYTES).read_to_end(&mut end)?;
        let end = String::from_utf8_lossy(&end);
        let (text, is_cut) = last_lines(&end, lines, chars);
        Ok(OutputTail { text: text.to_owned(), is_cut: is_cut || from > 0, path, bytes })
    }
}

fn file_name(id: &str, is_foreign: bool) -> String {
    format!("{id}{}.txt", foreign_mark(is_foreign))
}

/// Returns the last lines of a text, and whether the text has more.
fn last_lines(text: &str, lines: usize, chars: usize) -> (&str, bool) {
    let text = text.trim_end_matches(['\n', '\r']);
    let end = suffix(text, chars.max(1), lines.max(1));
    (end, end.len() < text.len())
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use daoyou_channels::Trust;

    use super::*;

    #[test]
    fn the_last_lines_stay_within_their_bounds() {
        for (text, lines, chars, expected) in [
            ("", 5, 5, ("", false)),
            ("a\nb\nc\n", 2, 99, ("b\nc", true)),
            ("a\nb\nc", 3, 99, ("a\nb\nc", false)),
            ("a\n\n\n", 2, 99, ("a", false)),
            ("道友你好", 9, 2, ("你好", true)),
            ("道友", 9, 2, ("道友", false)),
        ] {
            assert_eq!(last_lines(text, lines, chars), expected, "{text:?}");
        }
    }

    #[test]
    fn old_files_are_removed_and_only_plain_ones_are_read() {
        let workspace = tempfile::tempdir().unwrap();
        let files = OutputFiles::open(workspace.path()).unwrap();
        let running = HashSet::from(["p0".to_owned()]);
        let own = ConversationFolder::of_turn("a", &crate::origin::TurnOrigin::default(), Trust::Known);
        for n in 0..MAX_FILES + 5 {
            let mut file = files.create(&own, &format!("p{n}"), false, &running).unwrap();
            write!(file, "first\nof {n}\n").unwrap();
        }
        let path = OutputFiles::path_of(&own, "p0", false);
        let folder = workspace.path().join(&path).parent().unwrap().to_owned();
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), MAX_FILES + 1);
        let tail = files.tail(&own, "p0", 1, 99).unwrap();
        assert_eq!(tail, OutputTail { text: "of 0".to_owned(), is_cut: true, path, bytes: 11 });
        write!(files.create(&own, "foreign", true, &running).unwrap(), "x").unwrap();
        let marked = files.tail(&own, "foreign", 1, 99).unwrap();
        assert!(marked.text == "x" && crate::tools::spill::is_foreign(marked.path.as_ref()), "{marked:?}");
        std::fs::hard_link(folder.join("p0.txt"), workspace.path().join("other")).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", folder.join("link.txt")).unwrap();
        for id in ["p0", "link", "none"] {
            assert!(files.tail(&own, id, 1, 99).is_err(), "{id}");
        }
    }
}
