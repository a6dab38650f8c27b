//! Spill files: outputs that are too long for a model, stored in the workspace, where `read_file` pages through them. Also
//! stores the images of results.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, Write};
use std::path::Path;
use std::sync::Arc;

use cap_std::ambient_authority;
use cap_std::fs::Dir;
use daoyou_channels::text::hex;
use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::private_folders::{ConversationFolder, RetentionLimits, open_plain_file, remove_files};
use super::tool::ToolContext;
use super::tool_result::{StoredOutput, StoredPart};

/// The subfolder of a conversation's folder.
const SUBFOLDER: &str = "spill";
/// The number of newest files that are kept, and their total size in bytes.
const MAX_FILES: usize = 100;
const MAX_TOTAL_BYTES: u64 = 200_000_000;
/// The maximum size of one file, in bytes: `read_file` must be able to page through it.
const MAX_FILE_BYTES: u64 = 10_000_000;
/// The same settings for images of results.
const IMAGES: &str = "images";
const MAX_IMAGES: usize = 200;
/// The suffix of a file name, before the extension, that marks foreign content (content from anyone but the owner).
const FOREIGN_MARK: &str = "-others";
/// The maximum length of the part of a call's id in a file name.
const NAME_CHARS: usize = 48;

/// The spill files of one workspace.
#[derive(Debug)]
pub struct SpillStore {
    workspace: Dir,
    max_bytes: u64,
}

/// A spill file that is being written.
#[derive(Debug)]
pub struct SpillFile {
    file: File,
    path: String,
    room: u64,
    /// The number of bytes in the file, and of those that it had no room for.
    written: u64,
    missing: u64,
}

impl SpillStore {
    /// Opens the spill files of a workspace. The part of a file beyond `max_bytes`, or 10 MB, is dropped.
    ///
    /// # Errors
    /// The workspace cannot be opened.
    pub fn open(workspace: &Path, max_bytes: u64) -> io::Result<Self> {
        Ok(Self {
            workspace: Dir::open_ambient_dir(workspace, ambient_authority())?,
            max_bytes: max_bytes.min(MAX_FILE_BYTES),
        })
    }

    /// Removes the spill files and images of these turns.
    ///
    /// # Errors
    /// The workspace or a folder cannot be opened, or a file cannot be removed.
    pub fn remove(workspace: &Path, turns: &[Uuid]) -> io::Result<()> {
        let of_turns: Vec<String> = turns.iter().map(|turn| format!("{}-", turn.simple())).collect();
        let workspace = Dir::open_ambient_dir(workspace, ambient_authority())?;
        let is_of_turn = |name: &str| of_turns.iter().any(|turn| name.starts_with(turn.as_str()));
        let removed = remove_files(&workspace, SUBFOLDER, is_of_turn);
        remove_files(&workspace, IMAGES, is_of_turn).and(removed)
    }

    /// Creates the file of a call, replaces an existing one, and removes the oldest files if there are too many. The name marks
    /// foreign content.
    ///
    /// # Errors
    /// The disk refuses the file, or a folder is a link or a mount.
    pub fn create(
        &self,
        folder: &ConversationFolder,
        turn: Uuid,
        call_id: &str,
        is_foreign: bool,
    ) -> io::Result<SpillFile> {
        // The id comes from a model, so unsafe characters are replaced.
        let safe = |c: char| if c.is_ascii_alphanumeric() || c == '-' || c == '_' { c } else { '_' };
        let mut call: String = call_id.chars().take(NAME_CHARS).map(safe).collect();
        if call != call_id {
            // Two concurrent calls may differ only in the part of the id that the name omits.
            let digest = Sha256::digest(call_id.as_bytes());
            call.push_str(&format!("-{}", hex(&digest[..4])));
        }
        let name = format!("{}-{call}{}.txt", turn.simple(), foreign_mark(is_foreign));
        let limits = RetentionLimits { files: MAX_FILES, bytes: MAX_TOTAL_BYTES, spared: &HashSet::new() };
        let file = folder.create(&self.workspace, SUBFOLDER, &name, &limits)?;
        Ok(SpillFile { file, path: folder.file(SUBFOLDER, &name), room: self.max_bytes, written: 0, missing: 0 })
    }

    /// Reads a spill file. If it has more than `most` bytes, returns its start and its end, with a note between them about the
    /// size of the gap. Both consist of whole lines if they contain a line break: a cut within a line could leave a part of a
    /// secret.
    ///
    /// # Errors
    /// The file does not exist, or is not a plain file any more: commands can write there.
    pub fn read(&self, path: &str, most: u64) -> io::Result<String> {
        let mut file = open_plain_file(&self.workspace, Path::new(path))?;
        let length = file.metadata()?.len();
        let (mut start, mut end) = (Vec::new(), Vec::new());
        if length <= most {
            file.take(most).read_to_end(&mut start)?;
            return Ok(String::from_utf8_lossy(&start).into_owned());
        }
        let half = most / 2;
        Read::by_ref(&mut file).take(half).read_to_end(&mut start)?;
        let is_break = |byte: &u8| *byte == b'\n';
        start.truncate(start.iter().rposition(is_break).map_or(start.len(), |at| at + 1));
        file.seek(io::SeekFrom::Start(start.len() as u64))?;
        let mut middle = length - half - start.len() as u64;
        let mut lines = count_breaks(Read::by_ref(&mut file).take(middle))?;
        file.take(half).read_to_end(&mut end)?;
        if let Some(at) = end.iter().position(is_break) {
            end.drain(..=at);
            (middle, lines) = (middle + at as u64 + 1, lines + 1);
        }
        let [start, end] = [start, end].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        let start = start.trim_end_matches('\n');
        Ok(format!("{start}\n[... {middle} bytes, {lines} lines are not searched ...]\n{end}"))
    }

    /// Writes `text` to a spill file.
    ///
    /// # Errors
    /// As [`SpillStore::create`].
    pub fn save(
        &self,
        folder: &ConversationFolder,
        turn: Uuid,
        call_id: &str,
        text: &str,
        is_foreign: bool,
    ) -> io::Result<StoredOutput> {
        let mut file = self.create(folder, turn, call_id, is_foreign)?;
        file.write(text.as_bytes())?;
        Ok(file.stored())
    }

    /// Writes the output of a call to its spill file, on a thread that may block. Returns `None` if the disk refuses it.
    pub async fn save_output(
        self: &Arc<Self>,
        text: String,
        is_foreign: bool,
        context: &ToolContext,
    ) -> Option<StoredOutput> {
        let (spill, turn, call) = (Arc::clone(self), context.turn, context.call_id.clone());
        let folder = ConversationFolder::of(context);
        let saved = tokio::task::spawn_blocking(move || spill.save(&folder, turn, &call, &text, is_foreign)).await;
        let saved = saved.map_err(io::Error::other).flatten();
        saved.inspect_err(|error| tracing::warn!(%error, "a long output could not be kept whole")).ok()
    }
}

impl SpillFile {
    /// Returns where the file is, and which part of the bytes so far it holds.
    pub fn stored(&self) -> StoredOutput {
        let part = match self.missing {
            0 => StoredPart::Whole,
            missing => StoredPart::Start { bytes: self.written, of: self.written + missing },
        };
        StoredOutput { path: self.path.clone(), part }
    }

    /// Appends as many bytes as the file may still take, and counts the others.
    ///
    /// # Errors
    /// The disk refuses the write.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let fitting = usize::try_from(self.room).unwrap_or(usize::MAX).min(bytes.len());
        self.file.write_all(&bytes[..fitting])?;
        self.room -= fitting as u64;
        self.written += fitting as u64;
        self.missing += (bytes.len() - fitting) as u64;
        Ok(())
    }
}

/// Stores an image of a call's result in the folder of the conversation, and returns its path relative to the workspace. Removes
/// the oldest images if there are too many. The name marks foreign content. Blocks the thread.
///
/// # Errors
/// As [`SpillStore::create`].
pub fn save_image(
    workspace: &Path,
    context: &ToolContext,
    (number, extension): (usize, &str),
    bytes: &[u8],
    is_foreign: bool,
) -> io::Result<String> {
    let workspace = Dir::open_ambient_dir(workspace, ambient_authority())?;
    let folder = ConversationFolder::of(context);
    let call = hex(&Sha256::digest(context.call_id.as_bytes())[..6]);
    let name = format!("{}-{call}-{number}{}.{extension}", context.turn.simple(), foreign_mark(is_foreign));
    let limits = RetentionLimits { files: MAX_IMAGES, bytes: MAX_TOTAL_BYTES, spared: &HashSet::new() };
    folder.create(&workspace, IMAGES, &name, &limits)?.write_all(bytes)?;
    Ok(folder.file(IMAGES, &name))
}

/// Returns the part of a file name that marks foreign content.
pub(super) fn foreign_mark(is_foreign: bool) -> &'static str {
    if is_foreign { FOREIGN_MARK } else { "" }
}

/// Returns true if the name of a spill file or an image marks its content as foreign.
pub(super) fn is_foreign(path: &Path) -> bool {
    path.file_stem().is_some_and(|stem| stem.to_string_lossy().ends_with(FOREIGN_MARK))
}

/// Counts the line breaks of a text.
fn count_breaks(text: impl Read) -> io::Result<usize> {
    let (mut reader, mut count) = (BufReader::new(text), 0);
    loop {
        let buffer = reader.fill_buf()?;
        if buffer.is_empty() {
            return Ok(count);
        }
        count += buffer.iter().filter(|byte| **byte == b'\n').count();
        let length = buffer.len();
        reader.consume(length);
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use daoyou_channels::Trust;

    use super::*;

    fn folder(session: &str, trust: Trust) -> ConversationFolder {
        ConversationFolder::of_turn(session, &crate::origin::TurnOrigin::default(), trust)
    }

    #[test]
    fn files_are_bounded_in_size_and_number_and_named_safely() {
        let workspace = tempfile::tempdir().unwrap();
        let spill = SpillStore::open(workspace.path(), 10).unwrap();
        let keep = |session: &str, trust, turn, call: &str, text: &str| {
            spill.save(&folder(session, trust), turn, call, text, false).unwrap().path
        };
        let own = keep("a", Trust::Owner, Uuid::nil(), "call", "mine");
        for n in 0..MAX_FILES + 5 {
            let session = if n % 2 == 0 { "a" } else { "b" };
            keep(session, Trust::Known, Uuid::from_u128(7), &format!("call/../{n}"), "0123456789abc");
        }
        let path = keep("c", Trust::Known, Uuid::nil(), &"x/".repeat(200), "short");
        assert_eq!(fs::read_to_string(workspace.path().join(&path)).unwrap(), "short");
        assert_eq!(path, keep("c", Trust::Known, Uuid::nil(), &"x/".repeat(200), "again"));
        assert_ne!(path, keep("c", Trust::Known, Uuid::nil(), &"x/".repeat(201), "other"));
        assert_eq!(fs::read_to_string(workspace.path().join(&own)).unwrap(), "mine", "others do not push it out");
        let mut sizes = Vec::new();
        for conversation in fs::read_dir(workspace.path().join(".daoyou/conversations")).unwrap() {
            let files = fs::read_dir(conversation.unwrap().path().join(SUBFOLDER)).unwrap();
            sizes.extend(files.map(|entry| entry.unwrap().metadata().unwrap().len()));
        }
        assert_eq!((sizes.len(), sizes.iter().max()), (MAX_FILES + 1, Some(&10)));
    }

    #[test]
    fn of_a_long_file_start_and_end_are_read_in_whole_lines_and_the_rest_is_counted() {
        let workspace = tempfile::tempdir().unwrap();
        let spill = SpillStore::open(workspace.path(), 100_000).unwrap();
        let lines: String = (0..1_000).map(|at| format!("line {at:05}\n")).collect();
        let one_line = "x".repeat(5_000);
        for (text, most, expected) in [
            (lines.as_str(), 20_000, lines.clone()),
            (
                &lines,
                50,
                "line 00000\nline 00001\n[... 10956 bytes, 996 lines are not searched ...]\nline 00998\nline 00999\n"
                    .to_owned(),
            ),
            (&one_line, 8, "xxxx\n[... 4992 bytes, 0 lines are not searched ...]\nxxxx".to_owned()),
        ] {
            let path = spill.save(&folder("a", Trust::Known), Uuid::nil(), "call", text, false).unwrap().path;
            assert_eq!(spill.read(&path, most).unwrap(), expected);
        }
    }

    #[test]
    fn a_link_or_a_pipe_in_the_place_of_a_file_is_not_read() {
        let workspace = tempfile::tempdir().unwrap();
        let spill = SpillStore::open(workspace.path(), 100).unwrap();
        let path = spill.save(&folder("a", Trust::Known), Uuid::nil(), "call", "text", false).unwrap().path;
        assert_eq!(spill.read(&path, 50).unwrap(), "text");
        let (file, memory) = (workspace.path().join(&path), workspace.path().join("memory"));
        fs::write(&memory, "of the owner").unwrap();
        let replace = |make: &dyn Fn()| {
            fs::remove_file(&file).unwrap();
            make();
            assert!(spill.read(&path, 50).is_err());
        };
        replace(&|| std::os::unix::fs::symlink("../../../../memory", &file).unwrap());
        replace(&|| fs::hard_link(&memory, &file).unwrap());
        replace(&|| {
            rustix::fs::mknodat(rustix::fs::CWD, &file, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        });
    }

    #[test]
    fn the_files_of_a_turn_are_removed_from_all_conversations() {
        let workspace = tempfile::tempdir().unwrap();
        let spill = SpillStore::open(workspace.path(), 10).unwrap();
        let keep = |session: &str, trust, turn| {
            spill.save(&folder(session, trust), Uuid::from_u128(turn), "1", "x", false).unwrap().path
        };
        let kept = keep("a", Trust::Known, 1);
        let image = |turn| {
            let context = ToolContext { turn: Uuid::from_u128(turn), ..crate::tools::testing::context() };
            save_image(workspace.path(), &context, (1, "png"), b"x", true).unwrap()
        };
        let kept_image = image(1);
        assert!(is_foreign(Path::new(&kept_image)) && !is_foreign(Path::new(&kept)), "{kept_image}");
        let [gone_image, ..] = [2, 3].map(image);
        let gone = [keep("a", Trust::Known, 2), keep("b", Trust::Owner, 2), keep("c", Trust::Known, 3), gone_image];
        SpillStore::remove(workspace.path(), &[2, 3].map(Uuid::from_u128)).unwrap();
        let is_there = |path: &String| workspace.path().join(path).exists();
        assert!(is_there(&kept) && is_there(&kept_image) && !gone.iter().any(is_there), "{kept} {gone:?}");
        assert_eq!(fs::read_dir(workspace.path().join(".daoyou/conversations")).unwrap().count(), 2);
    }

    #[test]
    fn a_folder_that_is_a_link_is_not_used() {
        let workspace = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(outside.path(), workspace.path().join(".daoyou")).unwrap();
        let spill = SpillStore::open(workspace.path(), 10).unwrap();
        assert!(spill.save(&folder("a", Trust::Known), Uuid::nil(), "call", "text", false).is_err());
        assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0);
    }
}
