//! Folders of the workspace that belong to some turns alone: `memory` is the owner's, and each conversation has a folder for
//! long outputs and for what its commands print in the background.
//!
//! File tools and `exec` ask [`PrivateFolders::covered_for`], so that both close and open the same.

use std::collections::HashSet;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use cap_std::ambient_authority;
use cap_std::fs::{Dir, File, OpenOptions, OpenOptionsExt};
use daoyou_channels::Trust;
use rustix::fs::OFlags;
use sha2::{Digest, Sha256};

use super::ToolContext;
use crate::guard::{make_folder_beneath, open_beneath};
use crate::origin::{TurnCause, TurnOrigin};

/// What the gateway keeps in the workspace; closed to every turn but for the conversation's own folder.
const FOLDER: &str = ".daoyou";
/// Below it: a folder for each conversation, and one for the turns of its owner.
const CONVERSATIONS: &str = ".daoyou/conversations";
const OF_OWNER: &str = "-owner";
/// Where earlier versions kept long outputs of the owner's turns.
const FORMER_OF_OWNER: &str = ".daoyou-own";

/// Held while folders are made, pruned and removed.
static CHANGING: Mutex<()> = Mutex::new(());

/// Folders below the workspace that a turn may not see.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Covered {
    pub hidden: Vec<PathBuf>,
    /// Parts of the hidden ones that are open to it.
    pub shown: Vec<PathBuf>,
}

impl Covered {
    /// Returns the same folders as absolute paths, as a command in `workspace` must find them. A folder to hide is made where there
    /// is none; where a link stands in its place, the folder of the workspace that the link leads to is hidden. What is shown is
    /// there, and no link.
    ///
    /// # Errors
    /// A folder to hide can be neither made nor looked at.
    pub(super) fn for_command(&self, workspace: &Path) -> io::Result<Self> {
        let dir = Dir::open_ambient_dir(workspace, ambient_authority())?;
        // What an earlier version left is hidden where it is there, and not made.
        let is_used = |folder: &&PathBuf| {
            folder.as_path() != Path::new(FORMER_OF_OWNER) || workspace.join(folder).symlink_metadata().is_ok()
        };
        let hidden =
            self.hidden.iter().filter(is_used).filter_map(|folder| to_hide(workspace, &dir, folder).transpose());
        let hidden = hidden.collect::<io::Result<_>>()?;
        let is_there = |folder: &&PathBuf| open_beneath(&dir, folder, OFlags::RDONLY | OFlags::DIRECTORY).is_ok();
        let shown = self.shown.iter().filter(is_there).map(|folder| workspace.join(folder)).collect();
        Ok(Self { hidden, shown })
    }
}

/// Returns the folder that a command must not see where `folder` is private; `None` where the gateway could keep nothing private.
fn to_hide(workspace: &Path, dir: &Dir, folder: &Path) -> io::Result<Option<PathBuf>> {
    let path = workspace.join(folder);
    let error = match make_folder_beneath(dir, folder) {
        Ok(_) => return Ok(Some(path)),
        Err(error) => error,
    };
    if !matches!(error.raw_os_error(), Some(libc::ELOOP | libc::EXDEV | libc::ENOTDIR)) {
        return Err(error);
    }
    tracing::error!(path = %path.display(), "a private folder is a link, a mount or a file, and is not used");
    let Ok(real) = std::fs::canonicalize(&path) else { return Ok(None) };
    Ok((real != workspace && real.starts_with(workspace) && real.is_dir()).then_some(real))
}

/// The private folders of a workspace.
#[derive(Clone, Copy, Debug, Default)]
pub struct PrivateFolders {
    /// Open to the owner's own turns alone.
    owners: &'static [&'static str],
}

impl PrivateFolders {
    pub const fn new(owners: &'static [&'static str]) -> Self {
        Self { owners }
    }

    /// Returns what is hidden from the turn of `context`.
    pub fn covered_for(&self, context: &ToolContext) -> Covered {
        let mut covered = self.covered_for_all();
        if context.trust == Trust::Owner {
            covered.hidden.retain(|folder| folder == Path::new(FOLDER));
        }
        covered.shown = ConversationFolder::of(context).seen();
        covered
    }

    /// Returns what is hidden from every turn that is not known.
    pub fn covered_for_all(&self) -> Covered {
        let hidden = self.owners.iter().copied().chain([FORMER_OF_OWNER, FOLDER]);
        Covered { hidden: hidden.map(PathBuf::from).collect(), shown: Vec::new() }
    }

    /// Returns what is wrong with those of `workspace`, one line each: a link or a mount in the place of a private folder is not
    /// used.
    pub fn faults(&self, workspace: &Path) -> io::Result<Vec<String>> {
        let dir = Dir::open_ambient_dir(workspace, ambient_authority())?;
        let fault = |folder: &str| {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY;
            let error = open_beneath(&dir, Path::new(folder), flags).err()?;
            let shown = workspace.join(folder);
            let shown = shown.display();
            match error.raw_os_error() {
                Some(libc::ENOENT) => None,
                Some(libc::ELOOP) => Some(format!("{shown} is a link; put the folder itself there")),
                Some(libc::EXDEV) => Some(format!("{shown} is another mount; put the folder itself there")),
                Some(libc::ENOTDIR) => Some(format!("{shown} is not a folder; move it away")),
                _ => Some(format!("{shown}: {error}")),
            }
        };
        Ok(self.owners.iter().copied().chain([FOLDER, CONVERSATIONS]).filter_map(fault).collect())
    }
}

/// The folder of one conversation, for one kind of turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConversationFolder {
    /// 16 hexadecimal digits of the hash of its session's key.
    conversation: String,
    is_owner: bool,
}

impl ConversationFolder {
    /// Returns the folder of the turn of `context`.
    pub fn of(context: &ToolContext) -> Self {
        Self::of_turn(context.session.as_str(), &context.origin, context.trust)
    }

    /// Returns the folder of a turn of this origin in `session`. A sub-agent shares that of the turn that made it, and the run of a
    /// job that of its chat: they read each other's outputs.
    pub fn of_turn(session: &str, origin: &TurnOrigin, trust: Trust) -> Self {
        let session = match &origin.cause {
            TurnCause::SubAgent(task) => task.session.as_str(),
            TurnCause::Job(job) => job.chat.as_str(),
            TurnCause::Person | TurnCause::Heartbeat | TurnCause::Note(_) => session,
        };
        let digest = Sha256::digest(session.as_bytes());
        let conversation = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        Self { conversation, is_owner: trust == Trust::Owner }
    }

    /// Relative to the workspace.
    fn path(&self) -> PathBuf {
        let ending = if self.is_owner { OF_OWNER } else { "" };
        Path::new(CONVERSATIONS).join(format!("{}{ending}", self.conversation))
    }

    /// What its turns may see: the owner also what others of the conversation made.
    fn seen(&self) -> Vec<PathBuf> {
        let others = Self { is_owner: false, ..self.clone() };
        if self.is_owner { vec![self.path(), others.path()] } else { vec![self.path()] }
    }

    /// Returns the path of a file, relative to the workspace.
    pub(super) fn file(&self, kind: &str, name: &str) -> String {
        self.path().join(kind).join(name).display().to_string()
    }

    /// Makes the file `name` among its files of one kind, anew where there is one, and removes the oldest of too many.
    ///
    /// # Errors
    /// When the disk does not take it, or a link or mount stands in the place of a folder.
    pub(super) fn create(&self, workspace: &Dir, kind: &str, name: &str, keep: &Keep<'_>) -> io::Result<std::fs::File> {
        let _changing = CHANGING.lock().unwrap_or_else(PoisonError::into_inner);
        let refused = |error: io::Error| match error.raw_os_error() {
            Some(libc::ELOOP | libc::EXDEV) => io::Error::new(
                error.kind(),
                format!("{FOLDER} or a folder in it is a link or a mount, and is not used"),
            ),
            _ => error,
        };
        make_folder_beneath(workspace, Path::new(CONVERSATIONS)).map_err(refused)?;
        prune(workspace, kind, self.is_owner, keep).map_err(refused)?;
        let folder = make_folder_beneath(workspace, &self.path().join(kind)).map_err(refused)?;
        // Removed first: what stands there may be a link.
        match folder.remove_file(name) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let file = folder.open_with(name, OpenOptions::new().write(true).create_new(true).mode(0o600))?;
        Ok(file.into_std())
    }

    /// Opens one of its files for reading.
    ///
    /// # Errors
    /// There is none, or it is not the plain file that was made.
    pub(super) fn open(&self, workspace: &Dir, kind: &str, name: &str) -> io::Result<File> {
        let path = self.path().join(kind).join(name);
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = File::from_std(open_beneath(workspace, &path, flags)?.into());
        let metadata = file.metadata()?;
        if !metadata.is_file() || cap_std::fs::MetadataExt::nlink(&metadata) != 1 {
            return Err(io::Error::other("it is not the plain file that it was"));
        }
        Ok(file)
    }
}

/// How much of one kind of file stays in all conversations together.
pub(super) struct Keep<'a> {
    pub files: usize,
    pub bytes: u64,
    /// Names of files that stay whatever their age.
    pub spared: &'a HashSet<String>,
}

/// A file that may be removed.
struct Kept {
    modified: SystemTime,
    size: u64,
    folder: PathBuf,
    name: std::ffi::OsString,
}

/// Removes the oldest files of a kind until one more fits, and the folders that it leaves empty. The owner's turns and the others
/// have each their own room.
fn prune(workspace: &Dir, kind: &str, is_owner: bool, keep: &Keep<'_>) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    let open = |path: &Path| open_beneath(workspace, path, flags).map(|handle| Dir::from_std_file(handle.into()));
    let mut files = Vec::new();
    for conversation in open(Path::new(CONVERSATIONS))?.entries()? {
        let name = conversation?.file_name();
        if name.to_string_lossy().ends_with(OF_OWNER) != is_owner {
            continue;
        }
        let path = Path::new(CONVERSATIONS).join(name).join(kind);
        match open(&path) {
            Ok(folder) => files_of(&folder, &path, keep, &mut files)?,
            // It has none of this kind; or something else stands there, which is left alone.
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {}
            Err(error) if matches!(error.raw_os_error(), Some(libc::ELOOP | libc::EXDEV)) => {}
            Err(error) => return Err(error),
        }
    }
    files.sort_by(|one, other| other.modified.cmp(&one.modified).then_with(|| other.name.cmp(&one.name)));
    let mut bytes = 0;
    for (place, file) in files.iter().enumerate() {
        bytes += file.size;
        if place + 1 < keep.files && bytes <= keep.bytes {
            continue;
        }
        match open(&file.folder)?.remove_file(&file.name) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => remove_empty(workspace, &file.folder)?,
        }
    }
    Ok(())
}

/// Removes the files of a kind whose names `is_of` knows, in all conversations. A link in the place of a folder is left alone.
///
/// # Errors
/// A file cannot be removed.
pub(super) fn remove_files(workspace: &Dir, kind: &str, is_of: impl Fn(&str) -> bool) -> io::Result<()> {
    let _changing = CHANGING.lock().unwrap_or_else(PoisonError::into_inner);
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    let open = |path: &Path| open_beneath(workspace, path, flags).map(|handle| Dir::from_std_file(handle.into()));
    let Ok(conversations) = open(Path::new(CONVERSATIONS)) else { return Ok(()) };
    for conversation in conversations.entries()? {
        let path = Path::new(CONVERSATIONS).join(conversation?.file_name()).join(kind);
        let Ok(folder) = open(&path) else { continue };
        for entry in folder.entries()? {
            let name = entry?.file_name();
            if !name.to_str().is_some_and(&is_of) {
                continue;
            }
            match folder.remove_file(&name) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        remove_empty(workspace, &path)?;
    }
    Ok(())
}

fn files_of(folder: &Dir, path: &Path, keep: &Keep<'_>, files: &mut Vec<Kept>) -> io::Result<()> {
    for entry in folder.entries()? {
        let entry = entry?;
        let name = entry.file_name();
        if name.to_str().is_some_and(|name| keep.spared.contains(name)) {
            continue;
        }
        let metadata = match entry.metadata() {
            Ok(metadata) => metadata,
            // A command has removed it meanwhile.
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        if metadata.is_file() {
            let modified = metadata.modified().map_or(SystemTime::UNIX_EPOCH, cap_std::time::SystemTime::into_std);
            files.push(Kept { modified, size: metadata.len(), folder: path.to_owned(), name });
        }
    }
    Ok(())
}

/// Removes a folder and the conversation's above it, as far as they are empty.
fn remove_empty(workspace: &Dir, folder: &Path) -> io::Result<()> {
    for folder in folder.ancestors().take(2) {
        let (Some(parent), Some(name)) = (folder.parent(), folder.file_name()) else { return Ok(()) };
        let parent = open_beneath(workspace, parent, OFlags::RDONLY | OFlags::DIRECTORY)?;
        match rustix::fs::unlinkat(&parent, name, rustix::fs::AtFlags::REMOVEDIR) {
            Ok(()) => {}
            // Something lies in it.
            Err(rustix::io::Errno::NOTEMPTY | rustix::io::Errno::EXIST) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::testing::context;
    use super::*;

    #[test]
    fn each_turn_sees_what_is_its_own() {
        let folders = PrivateFolders::new(&["memory"]);
        let owner = folders.covered_for(&context());
        let known = folders.covered_for(&ToolContext { trust: Trust::Known, ..context() });
        let other = folders.covered_for(&ToolContext { trust: Trust::Known, session: "cli:other".into(), ..context() });
        assert_eq!(owner.hidden, [Path::new(".daoyou")]);
        assert_eq!(known.hidden, ["memory", ".daoyou-own", ".daoyou"].map(PathBuf::from));
        assert_eq!((owner.shown.len(), known.shown.len()), (2, 1));
        assert_eq!(owner.shown[1], known.shown[0]);
        assert_ne!(known.shown, other.shown);
    }

    #[test]
    fn a_sub_agent_shares_the_folder_of_its_maker() {
        let errand = r#"{"cause":{"kind":"sub_agent","session":"cli:direct","turn":"00000000-0000-0000-0000-000000000000",
            "label":"x","depth":1,"waits":true}}"#;
        let own = ConversationFolder::of_turn("cli:direct", &TurnOrigin::default(), Trust::Known);
        assert_eq!(ConversationFolder::of_turn("spawn:1", &TurnOrigin::parse(errand), Trust::Known), own);
        assert_ne!(ConversationFolder::of_turn("spawn:1", &TurnOrigin::default(), Trust::Known), own);
    }

    #[test]
    fn a_link_in_the_place_of_a_folder_is_told_and_not_used() {
        let temp = tempfile::tempdir().unwrap();
        let workspace = temp.path().join("ws");
        std::fs::create_dir_all(workspace.join("elsewhere")).unwrap();
        let folders = PrivateFolders::new(&["memory"]);
        assert_eq!(folders.faults(&workspace).unwrap(), Vec::<String>::new());
        for name in ["memory", ".daoyou"] {
            std::os::unix::fs::symlink("elsewhere", workspace.join(name)).unwrap();
        }
        let faults = folders.faults(&workspace).unwrap();
        assert!(faults.len() >= 2 && faults.iter().all(|fault| fault.contains("is a link")), "{faults:?}");
        let dir = Dir::open_ambient_dir(&workspace, ambient_authority()).unwrap();
        let keep = Keep { files: 9, bytes: 9, spared: &HashSet::new() };
        let folder = ConversationFolder::of(&context());
        let error = folder.create(&dir, "spill", "a", &keep).unwrap_err().to_string();
        assert!(error.contains("a link or a mount"), "{error}");
        assert_eq!(std::fs::read_dir(workspace.join("elsewhere")).unwrap().count(), 0);
    }
}
