//! Where output goes whole that is too long for a model: files in the workspace, which `read_file` pages.

use std::fs::Permissions;
use std::io::{self, Write};
use std::path::Path;
use std::time::SystemTime;

use cap_std::ambient_authority;
use cap_std::fs::{Dir, File, OpenOptions};
use daoyou_channels::Trust;
use sha2::{Digest, Sha256};
use uuid::Uuid;

/// Below the workspace: of turns that others may have a part in, and of the owner's own.
const FOLDER: &str = ".daoyou/spill";
/// At the top, so that a command from which it is hidden cannot move it away together with its parent.
pub const OWNERS: &str = ".daoyou-own";
/// The newest files that are kept, and the bytes of all of them.
const KEEP_FILES: usize = 100;
const KEEP_BYTES: u64 = 200_000_000;
/// The longest part of a call's id that its file's name takes.
const NAME_CHARS: usize = 48;

/// The spill folder of one workspace.
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

    /// Starts the file of a call, anew when there is one, and removes the oldest of too many.
    ///
    /// # Errors
    /// When the disk does not take it, or the folder leads out of the workspace.
    pub fn create(&self, trust: Trust, turn: Uuid, call_id: &str) -> io::Result<SpillFile> {
        let place = if trust == Trust::Owner { OWNERS } else { FOLDER };
        self.workspace.create_dir_all(place)?;
        let folder = self.workspace.open_dir(place)?;
        // A model chose the id.
        let safe = |c: char| if c.is_ascii_alphanumeric() || c == '-' || c == '_' { c } else { '_' };
        let mut call: String = call_id.chars().take(NAME_CHARS).map(safe).collect();
        if call != call_id {
            // Two calls may differ only in what is not in the name, and run at the same time.
            let digest = Sha256::digest(call_id.as_bytes());
            call.push_str(&format!("-{:02x}{:02x}{:02x}{:02x}", digest[0], digest[1], digest[2], digest[3]));
        }
        let name = format!("{}-{call}.txt", turn.simple());
        // Removed first: what stands there may be a link.
        match folder.remove_file(&name) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        prune(&folder)?;
        let file = folder.open_with(&name, OpenOptions::new().write(true).create_new(true))?;
        file.set_permissions(cap_std::fs::Permissions::from_std(private()))?;
        Ok(SpillFile { file, path: format!("{place}/{name}"), room: self.max_bytes })
    }

    /// Keeps `text` and returns the path of its file, relative to the workspace.
    ///
    /// # Errors
    /// As [`Spill::create`].
    pub fn keep(&self, trust: Trust, turn: Uuid, call_id: &str, text: &str) -> io::Result<String> {
        let mut file = self.create(trust, turn, call_id)?;
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

fn private() -> Permissions {
    std::os::unix::fs::PermissionsExt::from_mode(0o600)
}

/// Removes the oldest files until one more fits.
fn prune(folder: &Dir) -> io::Result<()> {
    let mut files = Vec::new();
    for entry in folder.entries()? {
        let entry = entry?;
        let metadata = match entry.metadata() {
            Ok(metadata) => metadata,
            // Another call has removed it meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        if metadata.is_file() {
            let modified = metadata.modified().map_or(SystemTime::UNIX_EPOCH, cap_std::time::SystemTime::into_std);
            files.push((modified, metadata.len(), entry.file_name()));
        }
    }
    files.sort_by(|one, other| other.cmp(one));
    let mut bytes = 0;
    for (place, (_, size, name)) in files.iter().enumerate() {
        bytes += size;
        if place + 1 >= KEEP_FILES || bytes > KEEP_BYTES {
            match folder.remove_file(name) {
                // Another call was faster.
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn files_are_bounded_in_size_and_number_and_named_safely() {
        let workspace = tempfile::tempdir().unwrap();
        let spill = Spill::open(workspace.path(), 10).unwrap();
        for n in 0..KEEP_FILES + 5 {
            spill.keep(Trust::Known, Uuid::from_u128(7), &format!("call/../{n}"), "0123456789abc").unwrap();
        }
        let path = spill.keep(Trust::Known, Uuid::nil(), &"x/".repeat(200), "short").unwrap();
        assert_eq!(fs::read_to_string(workspace.path().join(&path)).unwrap(), "short");
        assert_eq!(path, spill.keep(Trust::Known, Uuid::nil(), &"x/".repeat(200), "again").unwrap());
        assert_ne!(path, spill.keep(Trust::Known, Uuid::nil(), &"x/".repeat(201), "other").unwrap());
        let own = spill.keep(Trust::Owner, Uuid::nil(), "call", "mine").unwrap();
        assert!(own.starts_with(OWNERS), "{own}");
        let folder = fs::read_dir(workspace.path().join(FOLDER)).unwrap();
        let sizes: Vec<u64> = folder.map(|entry| entry.unwrap().metadata().unwrap().len()).collect();
        assert_eq!((sizes.len(), sizes.iter().max()), (KEEP_FILES, Some(&10)));
    }

    #[test]
    fn a_folder_that_leads_out_is_not_used() {
        let workspace = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(outside.path(), workspace.path().join(".daoyou")).unwrap();
        let spill = Spill::open(workspace.path(), 10).unwrap();
        assert!(spill.keep(Trust::Known, Uuid::nil(), "call", "text").is_err());
        assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0);
    }
}
