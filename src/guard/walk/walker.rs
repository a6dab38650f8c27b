//! The walk itself.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime};

use rustix::fs::{AtFlags, FileType, OFlags, RawDir, Stat};
use rustix::io::Errno;
use tokio_util::sync::CancellationToken;

use super::ignore_rules::IgnoreRules;
use super::queue::WorkQueue;
use crate::guard::beneath::{FileIdentity, identity_at, identity_of, open_beneath};
use crate::guard::entries::modified_at;
use crate::guard::jail::{Jail, OpenFolder, show_listed};
use crate::guard::jail_error::JailError;

/// The maximum number of threads. More threads would only wait for the same disk.
const MAX_THREADS: usize = 4;
/// The maximum number of entries of a walk, since their names are in memory.
const MAX_ENTRIES: usize = 1_000_000;
/// The maximum depth below the first folder, since each folder on the way is open.
const MAX_DEPTH: usize = 100;
/// The files of one job.
const FILES_PER_JOB: usize = 64;
/// If more jobs than these wait, a thread visits files at once instead of adding jobs.
const MAX_WAITING: usize = 4_096;
/// The size of the buffer for reading a folder, in bytes.
const LISTING_BYTES: usize = 32 << 10;

/// Why a walk ended early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WalkStop {
    Cancelled,
    Deadline,
    /// The visitor has enough.
    Enough,
    /// There are more entries than a walk visits.
    TooMany,
}

/// A signal that ends a walk early: after a time limit, when the turn is cancelled, or when the visitor has enough.
#[derive(Debug)]
pub struct StopSignal {
    deadline: Instant,
    cancel: CancellationToken,
    reason: OnceLock<WalkStop>,
}

impl StopSignal {
    /// Returns a signal that stops after `limit`, or when `cancel` is cancelled.
    pub fn new(limit: Duration, cancel: CancellationToken) -> Self {
        Self { deadline: Instant::now() + limit, cancel, reason: OnceLock::new() }
    }

    /// Stops the work. Only the first reason is kept.
    pub fn stop(&self, reason: WalkStop) {
        // Another thread may have set a reason first.
        let _ = self.reason.set(reason);
    }

    pub fn reason(&self) -> Option<WalkStop> {
        self.reason.get().copied()
    }

    /// Returns true if the work must end now.
    pub fn is_stopped(&self) -> bool {
        if self.reason.get().is_none() {
            if self.cancel.is_cancelled() {
                self.stop(WalkStop::Cancelled);
            } else if Instant::now() >= self.deadline {
                self.stop(WalkStop::Deadline);
            }
        }
        self.reason.get().is_some()
    }
}

/// The decision of a visitor about an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WalkSelection {
    /// The usual rules decide: hidden entries and entries that `.gitignore` names are left out.
    Usual,
    /// The entry is visited although it is hidden or ignored.
    Always,
    /// A file is left out; a folder is not entered.
    Never,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryKind {
    File,
    Folder,
}

/// The numbers of entries that were left out, by reason.
#[derive(Debug, Default)]
pub struct SkipCounts {
    special: AtomicUsize,
    hard_links: AtomicUsize,
    too_large: AtomicUsize,
    mounts: AtomicUsize,
    too_deep: AtomicUsize,
    unreadable: AtomicUsize,
}

impl SkipCounts {
    /// Returns each number that is not 0, with its reason.
    pub fn list(&self) -> Vec<(usize, &'static str)> {
        let all = [
            (&self.special, "special"),
            (&self.hard_links, "with several hard links"),
            (&self.too_large, "too large"),
            (&self.mounts, "on other mounts"),
            (&self.too_deep, "too deep"),
            (&self.unreadable, "unreadable"),
        ];
        let all = all.map(|(count, what)| (count.load(Ordering::Relaxed), what));
        all.into_iter().filter(|(count, _)| *count > 0).collect()
    }

    fn add(counter: &AtomicUsize) {
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts an entry that could not be opened. An entry that changed in the meantime is not counted.
    fn add_error(&self, error: &io::Error) {
        let gone = [Errno::NOENT, Errno::LOOP, Errno::NOTDIR].map(Errno::raw_os_error);
        if !error.raw_os_error().is_some_and(|code| gone.contains(&code)) {
            Self::add(&self.unreadable);
        }
    }
}

/// An open folder of the walk.
struct WalkedFolder {
    handle: OwnedFd,
    /// Relative to the first folder.
    path: PathBuf,
    rules: Option<Arc<IgnoreRules>>,
    depth: usize,
}

enum FolderJob {
    /// Lists a folder that is open.
    List(Arc<WalkedFolder>),
    /// Opens a folder and lists it.
    Enter(Arc<WalkedFolder>, OsString),
    /// Visits files.
    Visit(Arc<WalkedFolder>, Vec<OsString>),
}

/// A walk over a folder of a jail.
pub struct Walk<'a> {
    jail: &'a Jail,
    stop: &'a StopSignal,
    first: OpenFolder,
    /// The path of the first folder relative to the workspace, if it lies there.
    inside: Option<PathBuf>,
    /// Closed and protected folders and files below the first folder, by path and by identity.
    closed_paths: Vec<PathBuf>,
    closed: HashSet<FileIdentity>,
    entries: AtomicUsize,
    pub skipped: SkipCounts,
}

/// An entry that a visitor sees.
pub struct WalkedEntry<'a> {
    walk: &'a Walk<'a>,
    folder: &'a WalkedFolder,
    name: &'a OsStr,
    pub kind: EntryKind,
}

impl WalkedEntry<'_> {
    /// Returns the path relative to the first folder.
    pub fn path(&self) -> PathBuf {
        self.folder.path.join(self.name)
    }

    /// Returns the path as shown to the model.
    pub fn shown(&self) -> String {
        let shown = Path::new(&self.walk.first.shown).join(self.path());
        let shown = shown.strip_prefix(".").unwrap_or(&shown);
        show_listed(shown)
    }

    /// Returns the path relative to the workspace, if the entry lies there.
    pub fn workspace_path(&self) -> Option<PathBuf> {
        self.walk.inside.as_ref().map(|inside| inside.join(self.path()))
    }

    /// Returns the facts of the entry without opening it.
    pub fn stat(&self) -> Option<Stat> {
        rustix::fs::statat(&self.folder.handle, self.name, AtFlags::SYMLINK_NOFOLLOW).ok()
    }

    /// Returns when the entry was modified.
    pub fn modified(&self) -> Option<SystemTime> {
        self.stat().as_ref().and_then(modified_at)
    }

    /// Opens the file and checks it as [`Jail::read`] does. Returns `None` for a file that is left out, and counts it.
    pub fn open(&self) -> Option<File> {
        let real = self.walk.first.real.join(self.path());
        if self.walk.jail.check_rules(&real, "").is_err() {
            return None;
        }
        let skipped = &self.walk.skipped;
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        let handle = match open_beneath(&self.folder.handle, Path::new(self.name), flags) {
            Ok(handle) => handle,
            Err(error) if error.raw_os_error() == Some(libc::EXDEV) => return self.walk.open_elsewhere(&self.path()),
            Err(error) => {
                skipped.add_error(&error);
                return None;
            }
        };
        let found = rustix::fs::fstat(&handle).ok()?;
        if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile {
            SkipCounts::add(&skipped.special);
        } else if self.walk.inside.is_some() && found.st_nlink > 1 {
            SkipCounts::add(&skipped.hard_links);
        } else if u64::try_from(found.st_size).unwrap_or(u64::MAX) > self.walk.jail.max_bytes() {
            SkipCounts::add(&skipped.too_large);
        } else if !self.walk.closed.contains(&identity_of(&found)) {
            return Some(File::from(handle));
        }
        None
    }
}

impl<'a> Walk<'a> {
    /// Opens the folder `path` for a walk, which ends early at `stop`.
    ///
    /// # Errors
    /// As [`Jail::folder`].
    pub fn new(jail: &'a Jail, path: &str, stop: &'a StopSignal) -> Result<Self, JailError> {
        let first = jail.open_folder(path)?;
        let failed = |error| JailError::from_io(&first.shown, error);
        let (mut closed_paths, mut closed) = jail.closed.known().map_err(failed)?;
        for path in &jail.protected {
            closed.extend(identity_at(path).map_err(failed)?);
            closed_paths.push(path.clone());
        }
        closed_paths.retain(|path| path.starts_with(&first.real) && *path != first.real);
        let inside = first.real.strip_prefix(jail.root()).ok().map(Path::to_owned);
        let (entries, skipped) = (AtomicUsize::new(0), SkipCounts::default());
        Ok(Self { jail, stop, first, inside, closed_paths, closed, entries, skipped })
    }

    /// Returns the folder without links.
    pub fn folder(&self) -> &Path {
        &self.first.real
    }

    /// Visits every entry below the folder that `select` accepts, in any order and with up to four threads. `select` gets paths
    /// relative to the folder. Each thread has a visitor of its own, which `visitor` returns.
    pub fn run<V: FnMut(&WalkedEntry<'_>)>(
        &self,
        select: &(dyn Fn(&Path, EntryKind) -> WalkSelection + Sync),
        visitor: impl Fn() -> V + Sync,
    ) {
        // The handle of the jail is opened with `O_PATH`, which cannot be listed.
        let Ok(handle) = reopened(&self.first.dir) else {
            return SkipCounts::add(&self.skipped.unreadable);
        };
        let rules = self.rules_above();
        let rules = IgnoreRules::load(handle.as_fd(), &self.below_top(Path::new("")), rules.as_ref());
        let first = WalkedFolder { handle, path: PathBuf::new(), rules, depth: 0 };
        let queue = WorkQueue::new(FolderJob::List(Arc::new(first)));
        let work = || {
            let mut worker = Worker { walk: self, queue: &queue, select, visitor: visitor(), listing: Vec::new() };
            worker.listing.resize(LISTING_BYTES, MaybeUninit::uninit());
            queue.run(|| self.stop.is_stopped(), |job| worker.work(job));
        };
        let threads = std::thread::available_parallelism().map_or(1, NonZeroUsize::get).min(MAX_THREADS);
        std::thread::scope(|scope| {
            for _ in 1..threads {
                // If a thread cannot start, the others do its work.
                let _ = std::thread::Builder::new().spawn_scoped(scope, work);
            }
            work();
        });
    }

    /// Returns `path` as the ignore rules expect it: relative to the workspace, if the walk began there.
    fn below_top(&self, path: &Path) -> PathBuf {
        match &self.inside {
            Some(inside) if path.as_os_str().is_empty() => inside.clone(),
            Some(inside) => inside.join(path),
            None => path.to_owned(),
        }
    }

    /// Reads the ignore rules of the workspace's folders above the first folder.
    fn rules_above(&self) -> Option<Arc<IgnoreRules>> {
        let mut rules = None;
        let mut at = PathBuf::new();
        for name in self.inside.iter().flat_map(|inside| inside.iter()) {
            let opened = open_beneath(&*self.jail.dir, &at, OFlags::RDONLY | OFlags::DIRECTORY);
            rules = IgnoreRules::load(opened.ok()?.as_fd(), &at, rules.as_ref());
            at.push(name);
        }
        rules
    }

    /// Opens a folder of the walk. Returns `None` for a folder that is left out, and counts it.
    fn enter(&self, above: &WalkedFolder, name: &OsStr) -> Option<WalkedFolder> {
        let path = above.path.join(name);
        if above.depth >= MAX_DEPTH {
            SkipCounts::add(&self.skipped.too_deep);
            return None;
        }
        if self.is_closed(&path) {
            return None;
        }
        let handle = match open_beneath(&above.handle, Path::new(name), OFlags::RDONLY | OFlags::DIRECTORY) {
            Ok(handle) => handle,
            Err(error) if error.raw_os_error() == Some(libc::EXDEV) => self.enter_elsewhere(&path)?,
            Err(error) => {
                self.skipped.add_error(&error);
                return None;
            }
        };
        if self.closed.contains(&identity_of(&rustix::fs::fstat(&handle).ok()?)) {
            return None;
        }
        let rules = IgnoreRules::load(handle.as_fd(), &self.below_top(&path), above.rules.as_ref());
        Some(WalkedFolder { handle, path, rules, depth: above.depth + 1 })
    }

    fn is_closed(&self, path: &Path) -> bool {
        !self.closed_paths.is_empty() && self.closed_paths.contains(&self.first.real.join(path))
    }

    /// Opens a folder on another mount, with all checks of the jail.
    fn enter_elsewhere(&self, path: &Path) -> Option<OwnedFd> {
        let opened = self.on_other_mount(path).map(|path| self.jail.open_folder(&path))?;
        let reopened = opened.ok().and_then(|folder| reopened(&folder.dir).ok());
        if reopened.is_none() {
            SkipCounts::add(&self.skipped.mounts);
        }
        reopened
    }

    /// Opens a file on another mount, with all checks of the jail.
    fn open_elsewhere(&self, path: &Path) -> Option<File> {
        let opened = self.on_other_mount(path).map(|path| self.jail.open_file(&path))?;
        match opened {
            Ok(file) if file.size <= self.jail.max_bytes() => Some(file.file),
            Ok(_) | Err(_) => {
                SkipCounts::add(&self.skipped.mounts);
                None
            }
        }
    }

    /// Returns the path of an entry on another mount in the form that the jail checks as a whole; `None` if the jail crosses no
    /// mounts.
    fn on_other_mount(&self, path: &Path) -> Option<String> {
        let real = self.first.real.join(path);
        let real = real.to_str().filter(|_| self.jail.follows_links).map(str::to_owned);
        if real.is_none() {
            SkipCounts::add(&self.skipped.mounts);
        }
        real
    }
}

/// The state of one thread of a walk.
struct Worker<'a, V> {
    walk: &'a Walk<'a>,
    queue: &'a WorkQueue<FolderJob>,
    select: &'a (dyn Fn(&Path, EntryKind) -> WalkSelection + Sync),
    visitor: V,
    listing: Vec<MaybeUninit<u8>>,
}

impl<V: FnMut(&WalkedEntry<'_>)> Worker<'_, V> {
    fn work(&mut self, job: FolderJob) {
        match job {
            FolderJob::List(folder) => self.list(&folder),
            FolderJob::Enter(above, name) => {
                if let Some(folder) = self.walk.enter(&above, &name) {
                    self.list(&Arc::new(folder));
                }
            }
            FolderJob::Visit(folder, names) => {
                for name in &names {
                    if self.walk.stop.is_stopped() {
                        return;
                    }
                    self.visit(&folder, name, EntryKind::File);
                }
            }
        }
    }

    fn visit(&mut self, folder: &WalkedFolder, name: &OsStr, kind: EntryKind) {
        (self.visitor)(&WalkedEntry { walk: self.walk, folder, name, kind });
    }

    fn list(&mut self, folder: &Arc<WalkedFolder>) {
        let walk = self.walk;
        let mut listing = std::mem::take(&mut self.listing);
        let mut files = Vec::new();
        let mut folders = Vec::new();
        let mut entries = RawDir::new(&folder.handle, &mut listing);
        while let Some(entry) = entries.next() {
            if walk.stop.is_stopped() {
                break;
            }
            let Ok(entry) = entry else {
                SkipCounts::add(&walk.skipped.unreadable);
                break;
            };
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name == "." || name == ".." {
                continue;
            }
            if walk.entries.fetch_add(1, Ordering::Relaxed) >= MAX_ENTRIES {
                walk.stop.stop(WalkStop::TooMany);
                break;
            }
            let Some(kind) = self.selected(folder, name, entry.file_type()) else { continue };
            match kind {
                EntryKind::Folder => folders.push(name.to_owned()),
                EntryKind::File => files.push(name.to_owned()),
            }
            if files.len() >= FILES_PER_JOB && self.queue.len() < MAX_WAITING {
                self.queue.extend([FolderJob::Visit(Arc::clone(folder), std::mem::take(&mut files))]);
            }
        }
        self.listing = listing;
        for name in &folders {
            self.visit(folder, name, EntryKind::Folder);
        }
        self.queue.extend(folders.into_iter().map(|name| FolderJob::Enter(Arc::clone(folder), name)));
        self.work(FolderJob::Visit(Arc::clone(folder), files));
    }

    /// Returns the kind of an entry if it is visited or entered.
    fn selected(&self, folder: &WalkedFolder, name: &OsStr, kind: FileType) -> Option<EntryKind> {
        let walk = self.walk;
        let kind = match kind {
            // Some file systems do not report the type in the listing.
            FileType::Unknown => {
                let found = rustix::fs::statat(&folder.handle, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
                FileType::from_raw_mode(found.st_mode)
            }
            known => known,
        };
        let (kind, is_special) = match kind {
            FileType::Directory => (EntryKind::Folder, false),
            FileType::RegularFile => (EntryKind::File, false),
            // Links are not followed, as in ripgrep.
            FileType::Symlink => return None,
            _ => (EntryKind::File, true),
        };
        let path = folder.path.join(name);
        match (self.select)(&path, kind) {
            WalkSelection::Never => return None,
            WalkSelection::Always => {}
            WalkSelection::Usual if name.as_bytes().starts_with(b".") => return None,
            WalkSelection::Usual => {
                let is_folder = kind == EntryKind::Folder;
                if folder.rules.as_ref().is_some_and(|rules| rules.is_ignored(&walk.below_top(&path), is_folder)) {
                    return None;
                }
            }
        }
        if walk.is_closed(&path) {
            return None;
        }
        if is_special {
            SkipCounts::add(&walk.skipped.special);
            return None;
        }
        Some(kind)
    }
}

/// Opens the same folder for listing.
fn reopened(folder: impl AsFd) -> io::Result<OwnedFd> {
    open_beneath(folder, Path::new("."), OFlags::RDONLY | OFlags::DIRECTORY)
}
