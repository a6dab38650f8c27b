//! The path jail: the only way from a path that a model wrote to a file.
//!
//! Inside the workspace, cap-std opens each component (`openat2` with `RESOLVE_BENEATH` on Linux), so that neither `..` nor a symbolic link
//! leads outside, even if it is replaced during the call. The opened file itself is checked as well: it must be a regular file with one
//! name, not too large, and not in `/proc`.
//!
//! Folders can be closed to a turn, and parts of them reopened. They are known by name and by identity (device and inode), so that neither a
//! link nor another mount leads into them. For the gateway's own reads and writes, no link is followed and no mount is crossed
//! ([`Jail::open_strict`]).

use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use cap_std::ambient_authority;
use cap_std::fs::{Dir, File, MetadataExt, OpenOptions, OpenOptionsExt};
use parking_lot::Mutex;
use rustix::fs::OFlags;

use super::access_rules::{AccessKind, AccessRules};
use super::beneath::open_beneath;
use super::closed_folders::ClosedFolders;
use super::jail_error::JailError;
use super::path_rules::{absolute_link_target, resolve_links};

/// The longest accepted path, in bytes.
const PATH_BYTES: usize = 4_096;
/// The `statfs` numbers of kernel file systems, whose files are not served: proc, sysfs, debugfs, cgroup2 (statfs(2)).
const KERNEL_FILE_SYSTEMS: [i128; 4] = [0x9fa0, 0x6265_6572, 0x6462_6720, 0x6367_7270];

/// The content of a file.
#[derive(Debug)]
pub struct FileContent {
    pub bytes: Vec<u8>,
    /// The path relative to the workspace, or the absolute path where those are allowed.
    pub shown: String,
}

/// The workspace, opened once, and the rules for the paths in it.
#[derive(Clone, Debug)]
pub struct Jail {
    /// The workspace as configured, and with its symbolic links resolved: models write either.
    roots: [PathBuf; 2],
    pub(super) dir: Arc<Dir>,
    restricted: bool,
    /// Links that stay inside are followed, and mounts are crossed.
    pub(super) follows_links: bool,
    pub(super) protected: Vec<PathBuf>,
    pub(super) closed: ClosedFolders,
    /// The rules of the turn's agents, and the kind of access that they are checked for.
    rules: (Arc<[Arc<AccessRules>]>, AccessKind),
    max_bytes: u64,
    /// Held while a file is read, changed and replaced, so that two calls of one response do not overwrite each other's changes.
    pub(super) writing: Arc<Mutex<()>>,
}

/// A path that was checked, relative to an open folder.
pub(super) struct JailPath {
    /// The open folder; `None` for the workspace.
    pub(super) base: Option<Dir>,
    pub(super) relative: PathBuf,
    pub(super) shown: String,
}

/// A file that was opened and checked.
#[derive(Debug)]
pub struct OpenFile {
    pub file: std::fs::File,
    /// In bytes.
    pub size: u64,
    /// The path without links.
    pub real: PathBuf,
    /// The path as shown to the model.
    pub shown: String,
}

/// A folder that was opened and checked.
#[derive(Debug)]
pub struct OpenFolder {
    pub dir: Dir,
    /// The path without links.
    pub real: PathBuf,
    /// The path as shown to the model.
    pub shown: String,
}

/// The result of an attempt to replace a file.
#[derive(Debug)]
pub struct WrittenFile {
    /// As [`FileContent::shown`].
    pub shown: String,
    /// The modification time; `None` if the file was not replaced.
    pub modified: Option<SystemTime>,
    /// True if the file did not exist before.
    pub is_new: bool,
}

impl Jail {
    /// Opens the workspace. With `restricted = false`, the jail also serves paths outside the workspace, except `protected`.
    ///
    /// # Errors
    /// The workspace is not a folder that can be opened.
    pub fn open(workspace: &Path, restricted: bool, protected: Vec<PathBuf>, max_bytes: u64) -> io::Result<Self> {
        let real = std::fs::canonicalize(workspace)?;
        let dir = Dir::open_ambient_dir(&real, ambient_authority())?;
        Ok(Self {
            closed: ClosedFolders::new(&real, &dir)?,
            roots: [std::path::absolute(workspace)?, real],
            dir: Arc::new(dir),
            restricted,
            follows_links: true,
            protected,
            rules: (Arc::default(), AccessKind::Read),
            max_bytes,
            writing: Arc::default(),
        })
    }

    /// Opens the workspace for the gateway's own reads and writes: no link is followed, not even one that stays inside,
    /// and no mount is crossed. `protected` files are not served.
    ///
    /// # Errors
    /// As [`Jail::open`].
    pub fn open_strict(workspace: &Path, protected: Vec<PathBuf>, max_bytes: u64) -> io::Result<Self> {
        Ok(Self { follows_links: false, ..Self::open(workspace, true, protected, max_bytes)? })
    }

    /// Returns the same jail with these folders closed as well. The paths are relative to the workspace.
    #[must_use]
    pub fn with_closed<P: AsRef<Path>>(&self, folders: &[P]) -> Self {
        let mut jail = self.clone();
        folders.iter().for_each(|folder| jail.closed.close(folder.as_ref()));
        jail
    }

    /// Returns the same jail with these parts of closed folders reopened. The paths are relative to the workspace.
    #[must_use]
    pub fn with_reopened<P: AsRef<Path>>(&self, folders: &[P]) -> Self {
        let mut jail = self.clone();
        folders.iter().for_each(|folder| jail.closed.reopen(folder.as_ref()));
        jail
    }

    /// Returns the same jail, restricted to the files that these rules allow.
    #[must_use]
    pub fn with_rules(&self, rules: Arc<[Arc<AccessRules>]>, kind: AccessKind) -> Self {
        Self { rules: (rules, kind), ..self.clone() }
    }

    /// Refuses a file that the rules do not allow.
    pub(super) fn check_rules(&self, real: &Path, shown: &str) -> Result<(), JailError> {
        let (rules, kind) = &self.rules;
        let path = real.strip_prefix(self.root()).unwrap_or(real);
        match rules.iter().all(|rules| rules.allows_path(path, *kind)) {
            true => Ok(()),
            false => Err(JailError::NotPermitted(shown.to_owned())),
        }
    }

    /// Returns true if the rules may refuse a path.
    pub(super) fn has_path_rules(&self) -> bool {
        self.rules.0.iter().any(|rules| rules.limits_paths())
    }

    /// Returns the workspace with its symbolic links resolved.
    pub fn root(&self) -> &Path {
        &self.roots[1]
    }

    /// Returns the largest file that is read or written, in bytes.
    pub fn max_bytes(&self) -> u64 {
        self.max_bytes
    }

    /// Reads a whole file.
    ///
    /// # Errors
    /// The file is not served; see [`JailError`].
    pub fn read(&self, path: &str) -> Result<FileContent, JailError> {
        let OpenFile { file, size, shown, .. } = self.open_file(path)?;
        self.check_size(&shown, size)?;
        let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or(0));
        let read = (&file).take(self.max_bytes + 1).read_to_end(&mut bytes);
        read.map_err(|error| JailError::from_io(&shown, error))?;
        self.check_size(&shown, bytes.len() as u64)?;
        Ok(FileContent { bytes, shown })
    }

    /// Opens a file of any size, which is read from its start.
    ///
    /// # Errors
    /// As [`Jail::read`].
    pub fn open_file(&self, path: &str) -> Result<OpenFile, JailError> {
        let resolved = self.resolve(path)?;
        // Checked before opening as well: opening a device can have an effect.
        let metadata = self.metadata(&resolved)?;
        check_metadata(&resolved.shown, &metadata, resolved.base.is_none())?;
        let file = self.open_at(&resolved)?;
        let metadata = file.metadata().map_err(|error| JailError::from_io(&resolved.shown, error))?;
        check_metadata(&resolved.shown, &metadata, resolved.base.is_none())?;
        let real = self.check_real_path(&resolved, &file)?;
        self.check_rules(&real, &resolved.shown)?;
        Ok(OpenFile { file: file.into_std(), size: metadata.len(), real, shown: resolved.shown })
    }

    pub(super) fn metadata(&self, resolved: &JailPath) -> Result<cap_std::fs::Metadata, JailError> {
        let failed = |error| self.refusal(resolved, error);
        if self.follows_links {
            return self.base_of(resolved).metadata(&resolved.relative).map_err(failed);
        }
        let handle = self.open_strictly(resolved, OFlags::PATH)?;
        cap_std::fs::Metadata::from_file(&std::fs::File::from(handle)).map_err(failed)
    }

    fn open_at(&self, resolved: &JailPath) -> Result<File, JailError> {
        // Without O_NONBLOCK, opening a pipe would wait for its writer.
        let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
        if !self.follows_links {
            return Ok(File::from_std(self.open_strictly(resolved, OFlags::RDONLY | flags)?.into()));
        }
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(flags.bits().cast_signed());
        let opened = self.base_of(resolved).open_with(&resolved.relative, &options);
        opened.map_err(|error| self.refusal(resolved, error))
    }

    /// Converts an I/O error of a jail that follows links. cap-std refuses an absolute link as if it led outside; the error says
    /// so if the link leads into the workspace.
    pub(super) fn refusal(&self, resolved: &JailPath, error: io::Error) -> JailError {
        match JailError::from_io(&resolved.shown, error) {
            JailError::Outside(path) if resolved.base.is_none() => {
                match absolute_link_target(&self.roots, &resolved.relative) {
                    Some(target) => {
                        JailError::AbsoluteLink { path, target: quote_controls(&target.display().to_string()) }
                    }
                    None => JailError::Outside(path),
                }
            }
            error => error,
        }
    }

    /// Returns the folder to which the path is relative.
    pub(super) fn base_of<'a>(&'a self, path: &'a JailPath) -> &'a Dir {
        path.base.as_ref().unwrap_or(&self.dir)
    }

    /// Opens a path of a strict jail.
    fn open_strictly(&self, resolved: &JailPath, flags: OFlags) -> Result<OwnedFd, JailError> {
        open_beneath(&*self.dir, &resolved.relative, flags)
            .map_err(|error| JailError::from_strict_io(&resolved.shown, error))
    }

    /// Replaces a file, or creates it with the folders above it. After a crash the file has either its old or its
    /// complete new content. Returns the path as shown to the model.
    ///
    /// # Errors
    /// As [`Jail::read`], or the disk refuses the write.
    pub fn write(&self, path: &str, bytes: &[u8]) -> Result<String, JailError> {
        let _writing = self.writing.lock();
        Ok(self.replace(path, bytes, None, None)?.shown)
    }

    /// Replaces a file like [`Jail::write`], with mode 0600, if nobody has changed it.
    ///
    /// `is_unchanged` is called when everything but the name is written. Nothing is written if it returns false, or if a file
    /// appears where there was none. Returns the modification time of the written file (a later time means that another program
    /// changed it), or `None` if nothing was written.
    ///
    /// # Errors
    /// As [`Jail::write`].
    pub fn write_private_if(
        &self,
        path: &str,
        bytes: &[u8],
        mut is_unchanged: impl FnMut() -> bool,
    ) -> Result<Option<SystemTime>, JailError> {
        let _writing = self.writing.lock();
        Ok(self.replace(path, bytes, Some(0o600), Some(&mut is_unchanged))?.modified)
    }

    /// Reads a file, applies `change` to it, and replaces it. If `change` fails, nothing is written.
    ///
    /// # Errors
    /// The error of `change`, or the jail's own as text.
    pub fn edit<T>(
        &self,
        path: &str,
        change: impl FnOnce(&FileContent) -> Result<(Vec<u8>, T), String>,
    ) -> Result<T, String> {
        let _writing = self.writing.lock();
        let opened = self.read(path).map_err(|error| error.to_string())?;
        let (bytes, output) = change(&opened)?;
        self.replace(path, &bytes, None, None).map_err(|error| error.to_string())?;
        Ok(output)
    }

    /// Opens a folder. Returns it with the path as shown to the model.
    ///
    /// # Errors
    /// As [`Jail::read`].
    pub fn folder(&self, path: &str) -> Result<(Dir, String), JailError> {
        self.open_folder(path).map(|OpenFolder { dir, shown, .. }| (dir, shown))
    }

    /// Opens a folder like [`Jail::folder`], and returns it with the real path.
    ///
    /// # Errors
    /// As [`Jail::read`].
    pub(super) fn open_folder(&self, path: &str) -> Result<OpenFolder, JailError> {
        let resolved = self.resolve(path)?;
        let (dir, real) = self.open_resolved_folder(&resolved)?;
        Ok(OpenFolder { dir, real, shown: resolved.shown })
    }

    /// Opens a folder. Returns it with its real path.
    pub(super) fn open_resolved_folder(&self, resolved: &JailPath) -> Result<(Dir, PathBuf), JailError> {
        let folder = if self.follows_links {
            let folder = self.base_of(resolved).open_dir(&resolved.relative);
            folder.map_err(|error| self.refusal(resolved, error))?
        } else {
            Dir::from_std_file(self.open_strictly(resolved, OFlags::RDONLY | OFlags::DIRECTORY)?.into())
        };
        let real = self.check_real_path(resolved, &folder)?;
        Ok((folder, real))
    }

    /// Returns the folder of the root, for listing what lies below it. Callers must not open anything through it.
    pub fn root_folder(&self) -> &Dir {
        &self.dir
    }

    /// Returns the real path of a file or folder of the workspace, for a command that works on it. Nothing is opened, because the
    /// sandbox of the command limits what the command can access.
    ///
    /// # Errors
    /// As [`Jail::read`]; a path outside the workspace is refused even if file tools may use it.
    pub fn locate(&self, path: &str) -> Result<PathBuf, JailError> {
        let resolved = self.resolve(path)?;
        if resolved.base.is_some() {
            return Err(JailError::Outside(resolved.shown));
        }
        let real = self.dir.canonicalize(&resolved.relative);
        let real = self.root().join(real.map_err(|error| self.refusal(&resolved, error))?);
        self.check_protected(&real, &resolved.shown)?;
        self.check_closed(&real, &resolved.shown)?;
        Ok(real)
    }

    /// Checks a path that a model wrote. Nothing is opened in the workspace yet.
    pub(super) fn resolve(&self, path: &str) -> Result<JailPath, JailError> {
        check_written(path)?;
        let written = Path::new(path);
        let inside = if written.is_absolute() {
            self.roots.iter().find_map(|root| written.strip_prefix(root).ok())
        } else {
            Some(written)
        };
        if self.restricted {
            let relative = inside.ok_or_else(|| JailError::Outside(quote_controls(path)))?;
            return resolve_inside(relative).ok_or_else(|| JailError::Outside(quote_controls(path)));
        }
        self.resolve_anywhere(&self.root().join(written), &quote_controls(path))
    }

    /// Checks a path where paths outside the workspace are allowed. Links are resolved first; the result is then opened from the
    /// root without following any link.
    fn resolve_anywhere(&self, path: &Path, shown: &str) -> Result<JailPath, JailError> {
        let real = resolve_links(path).map_err(|error| JailError::from_io(shown, error))?;
        if let Some(resolved) = real.strip_prefix(self.root()).ok().and_then(resolve_inside) {
            return Ok(resolved);
        }
        self.check_protected(&real, shown)?;
        let relative = real.strip_prefix("/").map_err(|_| JailError::Outside(shown.to_owned()))?;
        let relative = if relative.as_os_str().is_empty() { PathBuf::from(".") } else { relative.to_owned() };
        let root = Dir::open_ambient_dir("/", ambient_authority()).map_err(|error| JailError::from_io(shown, error))?;
        Ok(JailPath { base: Some(root), relative, shown: quote_controls(&real.display().to_string()) })
    }

    /// Refuses protected paths. A workspace that lies inside a protected folder (daoyou's own) is open, but a protected path
    /// inside the workspace stays closed.
    pub(super) fn check_protected(&self, real: &Path, shown: &str) -> Result<(), JailError> {
        let open = |secret: &Path| self.root().starts_with(secret) && real.starts_with(self.root());
        if self.protected.iter().any(|secret| real.starts_with(secret) && !open(secret)) {
            return Err(JailError::Protected(shown.to_owned()));
        }
        Ok(())
    }

    /// Refuses a path that lies in a closed folder. Only the path is compared, not the identity.
    pub(super) fn check_closed(&self, real: &Path, shown: &str) -> Result<(), JailError> {
        match self.closed.covers_path(real) {
            true => Err(JailError::Protected(shown.to_owned())),
            false => Ok(()),
        }
    }

    /// Refuses a path that is protected, that the rules do not allow, or that lies in a closed folder.
    pub(super) fn check_usable(&self, real: &Path, shown: &str) -> Result<(), JailError> {
        self.check_protected(real, shown)?;
        self.check_rules(real, shown)?;
        self.check_closed(real, shown)
    }

    pub(super) fn check_size(&self, shown: &str, size: u64) -> Result<(), JailError> {
        if size > self.max_bytes {
            return Err(JailError::TooLarge { path: shown.to_owned(), size, limit: self.max_bytes });
        }
        Ok(())
    }

    /// Checks the opened file rather than the requested path, since the path may have changed. Returns its real path.
    pub(super) fn check_real_path(
        &self,
        resolved: &JailPath,
        opened: &(impl AsFd + AsRawFd),
    ) -> Result<PathBuf, JailError> {
        let failed = |error: io::Error| JailError::from_io(&resolved.shown, error);
        let system = rustix::fs::fstatfs(opened).map_err(|error| failed(error.into()))?;
        // The type of the field differs between platforms.
        if KERNEL_FILE_SYSTEMS.contains(&i128::from(system.f_type)) {
            return Err(JailError::Special(resolved.shown.clone()));
        }
        let real = std::fs::read_link(format!("/proc/self/fd/{}", opened.as_raw_fd())).map_err(failed)?;
        self.check_protected(&real, &resolved.shown)?;
        if self.closed.covers(&real, opened).map_err(failed)? {
            return Err(JailError::Protected(resolved.shown.clone()));
        }
        Ok(real)
    }
}

/// Checks the text of a path that a model wrote.
pub(super) fn check_written(path: &str) -> Result<(), JailError> {
    if path.trim().is_empty() {
        return Err(JailError::Empty);
    }
    if path.len() > PATH_BYTES {
        return Err(JailError::Invalid("it is too long"));
    }
    if path.contains('\0') {
        return Err(JailError::Invalid("it holds a NUL"));
    }
    if path == "~" || path.starts_with("~/") {
        return Err(JailError::Invalid("~ is not expanded; write it relative to the workspace"));
    }
    Ok(())
}

/// Checks that a file is of a kind that the jail serves.
pub(super) fn check_metadata(shown: &str, metadata: &cap_std::fs::Metadata, inside: bool) -> Result<(), JailError> {
    if metadata.is_dir() {
        return Err(JailError::Folder(shown.to_owned()));
    }
    if metadata.is_symlink() {
        return Err(JailError::Link(shown.to_owned()));
    }
    if !metadata.is_file() {
        return Err(JailError::Special(shown.to_owned()));
    }
    if inside && metadata.nlink() > 1 {
        return Err(JailError::HardLink(shown.to_owned()));
    }
    Ok(())
}

/// Removes `.` from a path relative to the workspace; `..` is left to cap-std. Returns `None` for a path that starts
/// above the workspace.
fn resolve_inside(relative: &Path) -> Option<JailPath> {
    let mut depth = 0_i32;
    let mut clean = PathBuf::new();
    for part in relative.components() {
        match part {
            Component::CurDir => continue,
            Component::ParentDir => depth -= 1,
            Component::Normal(_) => depth += 1,
            Component::RootDir | Component::Prefix(_) => return None,
        }
        if depth < 0 {
            return None;
        }
        clean.push(part);
    }
    if clean.as_os_str().is_empty() {
        clean.push(".");
    }
    let shown = quote_controls(&clean.display().to_string());
    Some(JailPath { base: None, relative: clean, shown })
}

/// Formats a path or name for the model. A name with a control character is quoted: a line break in it could pass for a line of
/// the tool's own output.
pub(crate) fn quote_controls(path: &str) -> String {
    if path.chars().any(char::is_control) { format!("{path:?}") } else { path.to_owned() }
}

/// Formats a path or name of a listing like [`quote_controls`]. One that is not UTF-8 is marked, and its other bytes have the form
/// `\xNN`: the arguments of a call are UTF-8, so no call can name it.
pub(crate) fn show_listed(path: &Path) -> String {
    match path.to_str() {
        Some(path) => quote_controls(path),
        None => format!("{path:?} (not UTF-8: no file tool can name it)"),
    }
}
