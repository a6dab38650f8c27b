//! Where what is printed in the background goes: files in the workspace, which `read_file` pages.

use std::collections::HashSet;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use cap_std::ambient_authority;
use cap_std::fs::Dir;

use crate::tools::private_folders::{ConversationFolder, Keep};

/// In the folder of a conversation.
const KIND: &str = "background";
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

/// These files in one workspace.
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
    pub(super) fn path_of(folder: &ConversationFolder, id: &str) -> String {
        folder.file(KIND, &name_of(id))
    }

    /// Makes the file of a process, and removes the oldest of too many, but for those of `running`.
    ///
    /// # Errors
    /// When the disk does not take it, or a link or mount stands in the place of a folder.
    pub(super) fn create(
        &self,
        folder: &ConversationFolder,
        id: &str,
        running: &HashSet<String>,
    ) -> io::Result<std::fs::File> {
        let spared = running.iter().map(|id| name_of(id)).collect();
        let keep = Keep { files: KEEP_FILES, bytes: u64::MAX, spared: &spared };
        folder.create(&self.workspace, KIND, &name_of(id), &keep)
    }

    /// The last `lines` lines of a process, of at most `chars` characters.
    ///
    /// # Errors
    /// When there is no such file any more, or it is no plain file: commands can write there.
    pub(super) fn tail(&self, folder: &ConversationFolder, id: &str, lines: usize, chars: usize) -> io::Result<Tail> {
        let path = Self::path_of(folder, id);
        let mut file = folder.open(&self.workspace, KIND, &name_of(id))?;
        let metadata = file.metadata()?;
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

#[cfg(test)]
mod tests {
    use std::io::Write;

    use daoyou_channels::Trust;

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
        let own = ConversationFolder::of_turn("a", &crate::origin::TurnOrigin::default(), Trust::Known);
        for n in 0..KEEP_FILES + 5 {
            let mut file = files.create(&own, &format!("p{n}"), &running).unwrap();
            write!(file, "first\nof {n}\n").unwrap();
        }
        let path = OutputFiles::path_of(&own, "p0");
        let folder = workspace.path().join(&path).parent().unwrap().to_owned();
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), KEEP_FILES + 1);
        let tail = files.tail(&own, "p0", 1, 99).unwrap();
        assert_eq!(tail, Tail { text: "of 0".to_owned(), is_cut: true, path, bytes: 11 });
        std::fs::hard_link(folder.join("p0.txt"), workspace.path().join("other")).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", folder.join("link.txt")).unwrap();
        for id in ["p0", "link", "none"] {
            assert!(files.tail(&own, id, 1, 99).is_err(), "{id}");
        }
    }
}
