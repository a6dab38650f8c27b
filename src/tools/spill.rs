//! Where output goes whole that is too long for a model: files in the workspace, which `read_file` pages.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use cap_std::ambient_authority;
use cap_std::fs::Dir;
use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::private_folders::{ConversationFolder, Keep, remove_files};

/// In the folder of a conversation.
const KIND: &str = "spill";
/// The newest files that are kept, and the bytes of all of them.
const KEEP_FILES: usize = 100;
const KEEP_BYTES: u64 = 200_000_000;
/// The longest part of a call's id that its file's name takes.
const NAME_CHARS: usize = 48;

/// The spill files of one workspace.
#[derive(Debug)]
pub struct Spill {
    workspace: Dir,
    max_bytes: u64,
}

/// One file being filled.
#[derive(Debug)]
pub struct SpillFile {
    file: File,
    path: String,
    room: u64,
}

impl Spill {
    /// `max_bytes` of one file; what comes after is dropped.
    ///
    /// # Errors
    /// When the workspace cannot be opened.
    pub fn open(workspace: &Path, max_bytes: u64) -> io::Result<Self> {
        Ok(Self { workspace: Dir::open_ambient_dir(workspace, ambient_authority())?, max_bytes })
    }

    /// Removes the files of these turns.
    ///
    /// # Errors
    /// The workspace cannot be opened, or a file cannot be removed.
    pub fn remove(workspace: &Path, turns: &[Uuid]) -> io::Result<()> {
        let of_turns: Vec<String> = turns.iter().map(|turn| format!("{}-", turn.simple())).collect();
        let workspace = Dir::open_ambient_dir(workspace, ambient_authority())?;
        remove_files(&workspace, KIND, |name| of_turns.iter().any(|turn| name.starts_with(turn.as_str())))
    }

    /// Starts the file of a call, anew when there is one, and removes the oldest of too many.
    ///
    /// # Errors
    /// When the disk does not take it, or a link or mount stands in the place of a folder.
    pub fn create(&self, folder: &ConversationFolder, turn: Uuid, call_id: &str) -> io::Result<SpillFile> {
        // A model chose the id.
        let safe = |c: char| if c.is_ascii_alphanumeric() || c == '-' || c == '_' { c } else { '_' };
        let mut call: String = call_id.chars().take(NAME_CHARS).map(safe).collect();
        if call != call_id {
            // Two calls may differ only in what is not in the name, and run at the same time.
            let digest = Sha256::digest(call_id.as_bytes());
            call.push_str(&format!("-{:02x}{:02x}{:02x}{:02x}", digest[0], digest[1], digest[2], digest[3]));
        }
        let name = format!("{}-{call}.txt", turn.simple());
        let keep = Keep { files: KEEP_FILES, bytes: KEEP_BYTES, spared: &HashSet::new() };
        let file = folder.create(&self.workspace, KIND, &name, &keep)?;
        Ok(SpillFile { file, path: folder.file(KIND, &name), room: self.max_bytes })
    }

    /// Keeps `text` and returns the path of its file, relative to the workspace.
    ///
    /// # Errors
    /// As [`Spill::create`].
    pub fn keep(&self, folder: &ConversationFolder, turn: Uuid, call_id: &str, text: &str) -> io::Result<String> {
        let mut file = self.create(folder, turn, call_id)?;
        file.write(text.as_bytes())?;
        Ok(file.path)
    }
}

impl SpillFile {
    /// Relative to the workspace.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Appends what still has room.
    ///
    /// # Errors
    /// When the disk does not take it.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let fitting = usize::try_from(self.room).unwrap_or(usize::MAX).min(bytes.len());
        self.file.write_all(&bytes[..fitting])?;
        self.room -= fitting as u64;
        Ok(())
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
        let spill = Spill::open(workspace.path(), 10).unwrap();
        let keep = |session: &str, trust, turn, call: &str, text: &str| {
            spill.keep(&folder(session, trust), turn, call, text).unwrap()
        };
        let own = keep("a", Trust::Owner, Uuid::nil(), "call", "mine");
        for n in 0..KEEP_FILES + 5 {
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
            let files = fs::read_dir(conversation.unwrap().path().join(KIND)).unwrap();
            sizes.extend(files.map(|entry| entry.unwrap().metadata().unwrap().len()));
        }
        assert_eq!((sizes.len(), sizes.iter().max()), (KEEP_FILES + 1, Some(&10)));
    }

    #[test]
    fn the_files_of_a_turn_are_removed_wherever_they_lie() {
        let workspace = tempfile::tempdir().unwrap();
        let spill = Spill::open(workspace.path(), 10).unwrap();
        let keep =
            |session: &str, trust, turn| spill.keep(&folder(session, trust), Uuid::from_u128(turn), "1", "x").unwrap();
        let kept = keep("a", Trust::Known, 1);
        let gone = [keep("a", Trust::Known, 2), keep("b", Trust::Owner, 2), keep("c", Trust::Known, 3)];
        Spill::remove(workspace.path(), &[2, 3].map(Uuid::from_u128)).unwrap();
        let is_there = |path: &String| workspace.path().join(path).exists();
        assert!(is_there(&kept) && !gone.iter().any(is_there), "{kept} {gone:?}");
        assert_eq!(fs::read_dir(workspace.path().join(".daoyou/conversations")).unwrap().count(), 1);
    }

    #[test]
    fn a_folder_that_leads_away_is_not_used() {
        let workspace = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(outside.path(), workspace.path().join(".daoyou")).unwrap();
        let spill = Spill::open(workspace.path(), 10).unwrap();
        assert!(spill.keep(&folder("a", Trust::Known), Uuid::nil(), "call", "text").is_err());
        assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0);
    }
}
