//! Folders of the workspace that only some turns may use. `memory` belongs to the owner. Each conversation has a folder for long
//! outputs and for the output of its background commands.
//!
//! File tools and `exec` both use [`PrivateFolders::visibility_for`], so that they hide the same folders. A command sees the
//! conversation's folder only if it names it.

use std::collections::HashSet;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use cap_std::ambient_authority;
use cap_std::fs::{Dir, File, OpenOptions, OpenOptionsExt};
use daoyou_channels::Trust;
use daoyou_channels::text::hex;
use parking_lot::Mutex;
use rustix::fs::OFlags;
use sha2::{Digest, Sha256};

use super::tool::ToolContext;
use crate::guard::{create_dir_beneath, open_beneath};
use crate::origin::{TurnCause, TurnOrigin};

/// The folder of the memory files in the workspace, which belongs to the owner.
pub const MEMORY_FOLDER: &str = "memory";
/// The log of summaries in the workspace. It holds the summaries of conversations that have read foreign content, too.
pub const HISTORY: &str = "memory/HISTORY.md";
/// The gateway's folder in the workspace. It is hidden from every turn, except for the conversation's own folder in it.
pub const GATEWAY_FOLDER: &str = ".daoyou";
/// The folder that holds one folder for each conversation, and a separate one for the turns of the owner in it.
pub const CONVERSATIONS: &str = ".daoyou/conversations";
/// The folder of the trash, which holds deleted files.
pub(super) const TRASH_FOLDER: &str = ".daoyou/trash";
const OWNER_SUFFIX: &str = "-owner";
/// The folder in which earlier versions kept long outputs of the owner's turns.
const FORMER_OWNER_FOLDER: &str = ".daoyou-own";

/// The maximum number of folders that the error of a removal names.
const MAX_FAILURES: usize = 5;

/// Held while folders are created, pruned and removed.
static CHANGE_LOCK: Mutex<()> = Mutex::new(());

/// The folders of the workspace that a turn may not see, relative to the workspace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FolderVisibility {
    pub hidden: Vec<PathBuf>,
    /// Parts of the hidden folders that the turn may see: folders or files.
    pub shown: Vec<PathBuf>,
}

impl FolderVisibility {
    /// Returns the same folders as absolute paths, for a command in `workspace`. A missing folder to hide is created. If such a
    /// folder is a link, its target inside the workspace is hidden. Every shown folder or file exists and is not a link.
    ///
    /// # Errors
    /// A folder to hide can be neither created nor read.
    pub(super) fn for_command(&self, workspace: &Path) -> io::Result<Self> {
        let dir = Dir::open_ambient_dir(workspace, ambient_authority())?;
        // The folder of earlier versions is hidden if it exists, but never created.
        let is_used = |folder: &&PathBuf| {
            folder.as_path() != Path::new(FORMER_OWNER_FOLDER) || workspace.join(folder).symlink_metadata().is_ok()
        };
        let hidden =
            self.hidden.iter().filter(is_used).filter_map(|folder| folder_to_hide(workspace, &dir, folder).transpose());
        let hidden = hidden.collect::<io::Result<_>>()?;
        let exists = |path: &&PathBuf| open_folder(&dir, path).is_ok() || open_plain_file(&dir, path).is_ok();
        let shown = self.shown.iter().filter(exists).map(|folder| workspace.join(folder)).collect();
        Ok(Self { hidden, shown })
    }
}

/// Returns the folder to hide from a command if `folder` is private. Returns `None` if the gateway cannot store anything private
/// in `folder`.
fn folder_to_hide(workspace: &Path, dir: &Dir, folder: &Path) -> io::Result<Option<PathBuf>> {
    let path = workspace.join(folder);
    let error = match create_dir_beneath(dir, folder) {
        Ok(_) => return Ok(Some(path)),
        Err(error) => error,
    };
    if !is_replaced(&error) {
        let remedy = match error.kind() {
            ErrorKind::PermissionDenied => format!("; the owner can chmod u+rwx {}", workspace.display()),
            _ => String::new(),
        };
        return Err(io::Error::new(error.kind(), format!("{}: {error}{remedy}", folder.display())));
    }
    tracing::warn!(path = %path.display(), "a folder that commands must not see is a link, a mount or a file");
    let Ok(real) = std::fs::canonicalize(&path) else { return Ok(None) };
    Ok((real != workspace && real.starts_with(workspace) && real.is_dir()).then_some(real))
}

/// The private folders of a workspace.
#[derive(Clone, Copy, Debug, Default)]
pub struct PrivateFolders {
    /// The folders that only the owner's turns may see.
    owners: &'static [&'static str],
}

impl PrivateFolders {
    pub const fn new(owners: &'static [&'static str]) -> Self {
        Self { owners }
    }

    /// Returns the visibility for the turn of `context`.
    pub fn visibility_for(&self, context: &ToolContext) -> FolderVisibility {
        let mut covered = self.default_visibility();
        if context.is_for_owner_alone() && context.agent.knows_owner {
            covered.hidden.retain(|folder| folder == Path::new(GATEWAY_FOLDER));
        }
        covered.shown = ConversationFolder::of(context).visible();
        covered
    }

    /// Returns the visibility for a turn that nothing is known about.
    pub fn default_visibility(&self) -> FolderVisibility {
        let hidden = self.owners.iter().copied().chain([FORMER_OWNER_FOLDER, GATEWAY_FOLDER]);
        FolderVisibility { hidden: hidden.map(PathBuf::from).collect(), shown: Vec::new() }
    }

    /// Returns the faults of the private folders of `workspace`, one line each. A link or a mount in place of a private folder is
    /// a fault, and is not used.
    ///
    /// # Errors
    /// The workspace cannot be opened.
    pub fn faults(&self, workspace: &Path) -> io::Result<Vec<String>> {
        let dir = Dir::open_ambient_dir(workspace, ambient_authority())?;
        let fault = |folder: &str| {
            let error = open_folder(&dir, Path::new(folder)).err()?;
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
        Ok(self.owners.iter().copied().chain([GATEWAY_FOLDER, CONVERSATIONS, TRASH_FOLDER]).filter_map(fault).collect())
    }
}

/// The folder of one conversation. The owner's turns have a separate folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConversationFolder {
    /// 16 hexadecimal digits of the hash of the session key.
    conversation: String,
    is_owner: bool,
}

impl ConversationFolder {
    /// Returns the folder of the turn of `context`.
    pub fn of(context: &ToolContext) -> Self {
        Self::of_turn(context.session.as_str(), &context.origin, context.trust)
    }

    /// Returns the folder for a turn of this origin in `session`. A sub-agent shares the folder of the turn that started it, and
    /// a job's run shares that of its chat, so that they can read each other's outputs.
    pub fn of_turn(session: &str, origin: &TurnOrigin, trust: Trust) -> Self {
        let session = match &origin.cause {
            TurnCause::SubAgent(task) => task.session.as_str(),
            TurnCause::Job(job) => job.chat.as_str(),
            TurnCause::Person | TurnCause::Heartbeat | TurnCause::Note(_) => session,
        };
        let digest = Sha256::digest(session.as_bytes());
        let conversation = hex(&digest[..8]);
        Self { conversation, is_owner: trust == Trust::Owner }
    }

    /// Returns the path relative to the workspace.
    fn path(&self) -> PathBuf {
        let ending = if self.is_owner { OWNER_SUFFIX } else { "" };
        Path::new(CONVERSATIONS).join(format!("{}{ending}", self.conversation))
    }

    /// Returns the folders that the conversation's turns may see. The owner also sees the folder of other senders in the
    /// conversation.
    pub(super) fn visible(&self) -> Vec<PathBuf> {
        let others = Self { is_owner: false, ..self.clone() };
        if self.is_owner { vec![self.path(), others.path()] } else { vec![self.path()] }
    }

    /// Returns the path of a file, relative to the workspace.
    pub(super) fn file(&self, subfolder: &str, name: &str) -> String {
        self.path().join(subfolder).join(name).display().to_string()
    }

    /// Creates the file `name` in a subfolder, replaces an existing one, and removes the oldest files if there are too many.
    ///
    /// # Errors
    /// The disk refuses the file, or a folder is a link or a mount.
    pub(super) fn create(
        &self,
        workspace: &Dir,
        subfolder: &str,
        name: &str,
        limits: &RetentionLimits<'_>,
    ) -> io::Result<std::fs::File> {
        let _changing = CHANGE_LOCK.lock();
        let refused = |error: io::Error| match error.raw_os_error() {
            Some(libc::ELOOP | libc::EXDEV) => io::Error::new(
                error.kind(),
                format!("{GATEWAY_FOLDER} or a folder in it is a link or a mount, and is not used"),
            ),
            _ => error,
        };
        create_dir_beneath(workspace, Path::new(CONVERSATIONS)).map_err(refused)?;
        prune(workspace, subfolder, self.is_owner, limits).map_err(refused)?;
        let folder = create_dir_beneath(workspace, &self.path().join(subfolder)).map_err(refused)?;
        // The old entry is removed first, since it may be a link.
        remove_if_present(&folder, name.as_ref())?;
        let file = folder.open_with(name, OpenOptions::new().write(true).create_new(true).mode(0o600))?;
        Ok(file.into_std())
    }

    /// Opens a file for reading.
    ///
    /// # Errors
    /// The file does not exist, or is not the regular file that [`Self::create`] created.
    pub(super) fn open(&self, workspace: &Dir, subfolder: &str, name: &str) -> io::Result<File> {
        open_plain_file(workspace, &self.path().join(subfolder).join(name))
    }
}

/// The limits for the files of one kind in all conversations together.
pub(super) struct RetentionLimits<'a> {
    pub files: usize,
    pub bytes: u64,
    /// Names of files that are kept whatever their age is.
    pub spared: &'a HashSet<String>,
}

/// A file that may be removed.
struct RemovableFile {
    modified: SystemTime,
    size: u64,
    folder: PathBuf,
    name: std::ffi::OsString,
}

/// Removes the oldest files of a kind until one more fits, and then the folders that are empty. The owner's turns and other turns
/// have separate limits. A folder that a command removed or made inaccessible is left out, since it must not keep all other
/// conversations from storing files.
fn prune(workspace: &Dir, subfolder: &str, is_owner: bool, limits: &RetentionLimits<'_>) -> io::Result<()> {
    let mut files = Vec::new();
    for conversation in open_folder(workspace, Path::new(CONVERSATIONS))?.entries()? {
        let name = conversation?.file_name();
        if name.to_string_lossy().ends_with(OWNER_SUFFIX) != is_owner {
            continue;
        }
        let path = Path::new(CONVERSATIONS).join(name).join(subfolder);
        // Often the conversation has no such subfolder.
        if let Err(error) =
            open_folder(workspace, &path).and_then(|folder| collect_files(&folder, &path, limits, &mut files))
            && error.kind() != ErrorKind::NotFound
        {
            tracing::debug!(path = %path.display(), %error, "a folder of outputs cannot be cleaned up");
        }
    }
    files.sort_by(|one, other| other.modified.cmp(&one.modified).then_with(|| other.name.cmp(&one.name)));
    let mut bytes = 0;
    for (place, file) in files.iter().enumerate() {
        bytes += file.size;
        if place + 1 < limits.files && bytes <= limits.bytes {
            continue;
        }
        let removed = open_folder(workspace, &file.folder)
            .and_then(|folder| remove_if_present(&folder, file.name.as_ref()))
            .and_then(|()| remove_empty(workspace, &file.folder));
        if let Err(error) = removed {
            tracing::debug!(path = %file.folder.display(), %error, "an old output cannot be removed");
        }
    }
    Ok(())
}

/// Removes the files of a kind whose names match, in all conversations. A link in place of a folder stays untouched. A folder
/// that fails does not keep the others from being cleaned.
///
/// # Errors
/// A folder cannot be read, or a file cannot be removed. The error names the first folders that failed.
pub(super) fn remove_files(workspace: &Dir, subfolder: &str, matches: impl Fn(&str) -> bool) -> io::Result<()> {
    let _changing = CHANGE_LOCK.lock();
    let conversations = open_folder(workspace, Path::new(CONVERSATIONS));
    let conversations = match conversations.and_then(|folder| folder.entries()?.collect::<io::Result<Vec<_>>>()) {
        Ok(conversations) => conversations,
        Err(error) if holds_no_files(&error) => return Ok(()),
        Err(error) => return Err(io::Error::other(format!("{CONVERSATIONS}: {error}"))),
    };
    let mut failures = Vec::new();
    for conversation in conversations {
        let path = Path::new(CONVERSATIONS).join(conversation.file_name()).join(subfolder);
        let removed = open_folder(workspace, &path).and_then(|folder| remove_matching(&folder, &matches));
        match removed.and_then(|()| remove_empty(workspace, &path)) {
            Err(error) if !holds_no_files(&error) => failures.push(format!("{}: {error}", path.display())),
            _ => {}
        }
    }
    failures.truncate(MAX_FAILURES);
    if failures.is_empty() { Ok(()) } else { Err(io::Error::other(failures.join("; "))) }
}

/// Removes the files of a folder whose names match. A file that fails does not keep the others.
fn remove_matching(folder: &Dir, matches: impl Fn(&str) -> bool) -> io::Result<()> {
    let mut outcome = Ok(());
    for entry in folder.entries()? {
        let name = entry?.file_name();
        if name.to_str().is_some_and(&matches) {
            outcome = outcome.and(remove_if_present(folder, name.as_ref()));
        }
    }
    outcome
}

/// Returns true if a folder could not be opened because it does not exist, or because a link, a mount or a file is in its place.
fn holds_no_files(error: &io::Error) -> bool {
    error.kind() == ErrorKind::NotFound || is_replaced(error)
}

/// Returns true if a folder could not be opened because a link, a mount or a file is in its place.
fn is_replaced(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ELOOP | libc::EXDEV | libc::ENOTDIR))
}

/// Opens a file for reading that the gateway created in the workspace. No link is followed.
///
/// # Errors
/// The file does not exist, or something else is in its place: commands can write there.
pub(super) fn open_plain_file(workspace: &Dir, path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = File::from_std(open_beneath(workspace, path, flags)?.into());
    let metadata = file.metadata()?;
    if !metadata.is_file() || cap_std::fs::MetadataExt::nlink(&metadata) != 1 {
        return Err(io::Error::other("it is not the plain file that it was"));
    }
    Ok(file)
}

/// Opens a folder of the workspace. No link is followed.
///
/// # Errors
/// The path is not a folder, or a part of it is a link or a mount.
pub(super) fn open_folder(workspace: &Dir, path: &Path) -> io::Result<Dir> {
    let handle = open_beneath(workspace, path, OFlags::RDONLY | OFlags::DIRECTORY)?;
    Ok(Dir::from_std_file(handle.into()))
}

fn remove_if_present(folder: &Dir, name: &Path) -> io::Result<()> {
    match folder.remove_file(name) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn collect_files(
    folder: &Dir,
    path: &Path,
    limits: &RetentionLimits<'_>,
    files: &mut Vec<RemovableFile>,
) -> io::Result<()> {
    for entry in folder.entries()? {
        let entry = entry?;
        let name = entry.file_name();
        if name.to_str().is_some_and(|name| limits.spared.contains(name)) {
            continue;
        }
        let metadata = match entry.metadata() {
            Ok(metadata) => metadata,
            // A command has removed the folder in the meantime.
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        if metadata.is_file() {
            let modified = metadata.modified().map_or(SystemTime::UNIX_EPOCH, cap_std::time::SystemTime::into_std);
            files.push(RemovableFile { modified, size: metadata.len(), folder: path.to_owned(), name });
        }
    }
    Ok(())
}

/// Removes a folder and the conversation's folder above it if they are empty.
fn remove_empty(workspace: &Dir, folder: &Path) -> io::Result<()> {
    for folder in folder.ancestors().take(2) {
        let (Some(parent), Some(name)) = (folder.parent(), folder.file_name()) else { return Ok(()) };
        let parent = open_beneath(workspace, parent, OFlags::RDONLY | OFlags::DIRECTORY)?;
        match rustix::fs::unlinkat(&parent, name, rustix::fs::AtFlags::REMOVEDIR) {
            Ok(()) => {}
            // The folder is not empty.
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
    fn each_turn_sees_its_own_folders() {
        let folders = PrivateFolders::new(&["memory"]);
        let owner = folders.visibility_for(&context());
        let known = folders.visibility_for(&ToolContext { trust: Trust::Known, ..context() });
        let other =
            folders.visibility_for(&ToolContext { trust: Trust::Known, session: "cli:other".into(), ..context() });
        assert_eq!(owner.hidden, [Path::new(".daoyou")]);
        assert_eq!(known.hidden, ["memory", ".daoyou-own", ".daoyou"].map(PathBuf::from));
        assert_eq!((owner.shown.len(), known.shown.len()), (2, 1));
        assert_eq!(owner.shown[1], known.shown[0]);
        assert_ne!(known.shown, other.shown);
    }

    #[test]
    fn a_sub_agent_shares_the_folder_of_its_parent() {
        let errand = r#"{"cause":{"kind":"sub_agent","session":"cli:direct","turn":"00000000-0000-0000-0000-000000000000",
            "label":"x","depth":1,"waits":true}}"#;
        let own = ConversationFolder::of_turn("cli:direct", &TurnOrigin::default(), Trust::Known);
        assert_eq!(ConversationFolder::of_turn("spawn:1", &TurnOrigin::parse(errand), Trust::Known), own);
        assert_ne!(ConversationFolder::of_turn("spawn:1", &TurnOrigin::default(), Trust::Known), own);
    }

    #[test]
    fn a_folder_that_a_command_made_inaccessible_does_not_block_other_conversations() {
        use std::os::unix::fs::PermissionsExt;
        let temp = tempfile::tempdir().unwrap();
        let dir = Dir::open_ambient_dir(temp.path(), ambient_authority()).unwrap();
        let limits = RetentionLimits { files: 1, bytes: 9, spared: &HashSet::new() };
        let of = |session: &str| ConversationFolder::of_turn(session, &TurnOrigin::default(), Trust::Known);
        of("a").create(&dir, "spill", "old", &limits).unwrap();
        for mode in [0o000, 0o400, 0o500] {
            let closed = temp.path().join(of("a").path()).join("spill");
            std::fs::set_permissions(&closed, PermissionsExt::from_mode(mode)).unwrap();
            let made = of("b").create(&dir, "spill", "new", &limits);
            // As root, the first round removes the folder.
            let _ = std::fs::set_permissions(&closed, PermissionsExt::from_mode(0o700));
            made.unwrap();
            if !closed.exists() {
                break;
            }
        }
    }

    #[test]
    fn a_folder_that_cannot_be_cleaned_is_reported_and_does_not_block_others() {
        let temp = tempfile::tempdir().unwrap();
        let dir = Dir::open_ambient_dir(temp.path(), ambient_authority()).unwrap();
        let limits = RetentionLimits { files: 9, bytes: 9, spared: &HashSet::new() };
        let of = |session: &str| ConversationFolder::of_turn(session, &TurnOrigin::default(), Trust::Known);
        let remove = |subfolder: &str| remove_files(&dir, subfolder, |name| name == "old");
        remove("spill").unwrap();
        for session in ["a", "b", "c"] {
            of(session).create(&dir, "spill", "old", &limits).unwrap();
        }
        // A file of this name cannot be removed.
        let stuck = temp.path().join(of("b").file("spill", "old"));
        std::fs::remove_file(&stuck).unwrap();
        std::fs::create_dir(&stuck).unwrap();
        let error = remove("spill").unwrap_err().to_string();
        assert!(error.contains(of("b").path().to_str().unwrap()) && !error.contains(';'), "{error}");
        assert!(["a", "c"].iter().all(|session| !temp.path().join(of(session).path()).exists()));
        // Not even root can open a folder with such a name.
        let error = remove(&"x".repeat(300)).unwrap_err().to_string();
        assert!(error.contains(of("b").path().to_str().unwrap()), "{error}");
        std::fs::rename(stuck.parent().unwrap(), temp.path().join("moved")).unwrap();
        std::os::unix::fs::symlink(temp.path().join("moved"), stuck.parent().unwrap()).unwrap();
        remove("spill").unwrap();
    }

    #[test]
    fn a_link_in_the_place_of_a_folder_is_reported_and_not_used() {
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
        let limits = RetentionLimits { files: 9, bytes: 9, spared: &HashSet::new() };
        let folder = ConversationFolder::of(&context());
        let error = folder.create(&dir, "spill", "a", &limits).unwrap_err().to_string();
        assert!(error.contains("a link or a mount"), "{error}");
        assert_eq!(std::fs::read_dir(workspace.join("elsewhere")).unwrap().count(), 0);
    }
}
