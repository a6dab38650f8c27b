//! The home: the folder that holds all files of a gateway, its lock, and its token.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use daoyou_channels::settings::Secret;
use daoyou_channels::text::hex;
use rustix::fs::{Access, StatVfs, access, statvfs};
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};

pub mod modes;
mod socket_path;

pub use socket_path::SocketPath;

/// The number of random bytes in the token.
const TOKEN_BYTES: usize = 32;

/// A holder writes its pid right after it takes the lock. A reader that finds no pid retries this many times, with this pause.
const PID_ATTEMPTS: u32 = 10;
const PID_WAIT: Duration = Duration::from_millis(20);
/// The second line of the lock file if its holder soon releases the home without being asked.
const TEMPORARY: &str = "temporary";
/// The length of the lock's file. It stays, so that the pid of the next holder needs no space on a disk that is full then.
const LOCK_BYTES: usize = 32;

/// The workspace's folder in the home, unless the configuration names another.
pub const WORKSPACE: &str = "workspace";

/// The pause between attempts to take a held lock.
const LOCK_WAIT: Duration = Duration::from_millis(20);

/// A problem with the home; its one-line text includes the remedy.
#[derive(Debug, thiserror::Error)]
pub enum HomeError {
    #[error("there is no home: neither --home, nor DAOYOU_HOME, nor HOME is set")]
    Unknown,
    #[error("{}: {what}: {error}; {advice}", path.display())]
    Io { path: PathBuf, what: &'static str, error: io::Error, advice: &'static str },
    #[error("{}: it is not a folder; choose another with --home or DAOYOU_HOME", _0.display())]
    NotAFolder(PathBuf),
    #[error("{}: it holds no token; delete it, and a new one is made", _0.display())]
    BadToken(PathBuf),
}

impl HomeError {
    /// Returns the kind of the error if the home cannot be written.
    pub fn unwritable(&self) -> Option<ErrorKind> {
        match self {
            Self::Io { error, .. } => Some(error.kind()).filter(|kind| is_unwritable(*kind)),
            _ => None,
        }
    }
}

/// Returns a new secret: 256 random bits in hexadecimal.
///
/// # Errors
/// The system provides no random numbers.
pub fn new_secret() -> io::Result<Secret> {
    let mut bytes = [0; TOKEN_BYTES];
    getrandom::fill(&mut bytes)?;
    Ok(Secret::new(hex(&bytes)))
}

/// Returns true if an error means that nothing can be written at present: the disk is full or read-only.
pub fn is_unwritable(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::ReadOnlyFilesystem)
}

/// The reason why the lock was not taken.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another process holds the lock. The pid is absent only if that process has not written it yet. `is_temporary`: the process
    /// releases the lock without being asked (see [`Home::lock_for_command`]).
    #[error("{}{} {} {}; {}, or choose another home with --home",
        if *is_temporary { "another daoyou command" } else { "another gateway" },
        pid.map(|pid| format!(" (pid {pid})")).unwrap_or_default(),
        if *is_temporary { "uses" } else { "holds" }, home.display(),
        if *is_temporary { "wait for its end" } else { "stop it first" })]
    Held { home: PathBuf, pid: Option<u32>, is_temporary: bool },
    #[error(transparent)]
    Home(#[from] HomeError),
}

/// The home folder, and the paths in it.
#[derive(Clone, Debug)]
pub struct Home {
    dir: PathBuf,
    warnings: Vec<String>,
}

impl Home {
    /// Locates the home without accessing it: `dir` (the value of `--home`), else `$DAOYOU_HOME`, else `~/.daoyou`.
    ///
    /// # Errors
    /// None of the three is known, or the current folder, where a relative path starts, cannot be determined.
    pub fn locate(dir: Option<PathBuf>) -> Result<Self, HomeError> {
        Self::choose(dir, std::env::var_os("DAOYOU_HOME").map(PathBuf::from), std::env::home_dir())
    }

    /// Locates the home, creates its folder if it is missing, private to its owner, and checks that it can be used.
    ///
    /// # Errors
    /// Those of [`Self::locate`]; or the path is not a folder, the folder cannot be created, or this user may not read
    /// and write it.
    pub fn open(dir: Option<PathBuf>) -> Result<Self, HomeError> {
        let mut home = Self::locate(dir)?;
        home.prepare()?;
        Ok(home)
    }

    /// Opens the home, as [`Self::open`] does, for a command that only reads: the home need not be writable.
    ///
    /// # Errors
    /// Those of [`Self::open`], if the folder cannot be read either.
    pub fn open_to_read(dir: Option<PathBuf>) -> Result<Self, HomeError> {
        Self::open(dir.clone()).or_else(|error| {
            let home = Self::locate(dir)?;
            let is_readable = home.dir.is_dir() && access(&home.dir, Access::READ_OK | Access::EXEC_OK).is_ok();
            if is_readable { Ok(home) } else { Err(error) }
        })
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub fn config(&self) -> PathBuf {
        self.dir.join("config.toml")
    }

    pub fn database(&self) -> PathBuf {
        self.dir.join("daoyou.db")
    }

    /// Returns the agent's own folder: the value of `agent.workspace` (`~/` is the user's folder, a relative path starts at the
    /// home), or else `workspace` in the home.
    pub fn workspace(&self, configured: &str) -> PathBuf {
        match configured {
            "" => self.dir.join(WORKSPACE),
            path => expand(path, &self.dir, std::env::home_dir().as_deref()),
        }
    }

    pub fn lock_file(&self) -> PathBuf {
        self.dir.join("daoyou.lock")
    }

    pub fn socket(&self) -> PathBuf {
        self.dir.join("daoyou.sock")
    }

    pub fn token_file(&self) -> PathBuf {
        self.dir.join("token")
    }

    /// Returns the path of the flight record, which tells the next process what each running turn was doing.
    pub fn flight(&self) -> PathBuf {
        self.dir.join("daoyou.flight")
    }

    /// Returns the path of the terminal's input history.
    pub fn history(&self) -> PathBuf {
        self.dir.join("history")
    }

    /// Returns problems that are not errors but should be fixed, one line each.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Takes the lock as [`Self::lock`] does. While another process holds it, retries for up to `timeout`: a killed
    /// process keeps its lock until the system has ended it, and a service manager restarts a service at once.
    ///
    /// # Errors
    /// The errors of [`Self::lock`].
    pub fn lock_within(&self, timeout: Duration) -> Result<HomeLock, LockError> {
        let start = Instant::now();
        loop {
            match self.lock() {
                Err(LockError::Held { .. }) if start.elapsed() < timeout => thread::sleep(LOCK_WAIT),
                result => return result,
            }
        }
    }

    /// Locks the home for this process until the guard is dropped or the process ends. Locks the folder, so that
    /// deleting the lock file releases nothing, and `lock_file`, which names the holder.
    ///
    /// # Errors
    /// [`LockError::Held`] if another process holds the home; [`LockError::Home`] if the lock file cannot be opened,
    /// locked or written. A full or read-only disk is not an error: the file then does not name the holder.
    pub fn lock(&self) -> Result<HomeLock, LockError> {
        self.lock_as("")
    }

    /// Takes the lock for a command, which releases the home as soon as its work has ended: other processes wait for that.
    ///
    /// # Errors
    /// Those of [`Self::lock`].
    pub fn lock_for_command(&self) -> Result<HomeLock, LockError> {
        self.lock_as(TEMPORARY)
    }

    /// Takes the lock and writes the pid of this process and `mark` into its file.
    fn lock_as(&self, mark: &str) -> Result<HomeLock, LockError> {
        let path = self.lock_file();
        let folder = self.lock_folder()?;
        let failed = io_error(&path, "cannot be locked", "the home must be a folder of this user on a local disk");
        let mut options = OpenOptions::new();
        let file =
            options.read(true).write(true).create(true).truncate(false).mode(0o600).open(&path).map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(self.held()),
            Err(TryLockError::Error(error)) => return Err(failed(error).into()),
        }
        let mut holder = format!("{}\n{mark}", std::process::id()).into_bytes();
        holder.resize(LOCK_BYTES, b'\n');
        match file.write_all_at(&holder, 0).and_then(|()| file.set_len(LOCK_BYTES as u64)) {
            // The lock works nevertheless; only its holder cannot be named.
            Err(error) if is_unwritable(error.kind()) => {
                tracing::warn!(path = %path.display(), %error, "the lock is taken, but its file cannot record the pid of this process");
                file.set_len(0).map_err(failed)?;
            }
            written => written.map_err(failed)?,
        }
        Ok(HomeLock { file: Some(file), folder })
    }

    /// Takes the lock for a command that only reads. In a home that cannot be written, it does not record the pid of
    /// this process.
    ///
    /// # Errors
    /// Those of [`Self::lock`], except that the lock file need not be writable.
    pub fn lock_to_read(&self) -> Result<HomeLock, LockError> {
        match self.lock_for_command() {
            Err(LockError::Home(HomeError::Io { error, .. }))
                if matches!(error.kind(), ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem) => {}
            result => return result,
        }
        let folder = self.lock_folder()?;
        let file = File::open(self.lock_file()).ok();
        match file.as_ref().map(File::try_lock) {
            Some(Err(TryLockError::WouldBlock)) => Err(self.held()),
            _ => Ok(HomeLock { file, folder }),
        }
    }

    /// Returns true if a process holds the lock, or if that cannot be found out. It creates no file.
    pub fn is_locked(&self) -> bool {
        let is_folder_free = self.lock_folder().is_ok();
        !is_folder_free || (self.lock_file().exists() && self.lock_to_read().is_err())
    }

    /// Returns true if no file can be created in the home because its file system is full or read-only. It creates none.
    pub fn is_full_or_read_only(&self) -> bool {
        let is_full = |stat: StatVfs| stat.f_bavail == 0 || (stat.f_files > 0 && stat.f_favail == 0);
        access(&self.dir, Access::WRITE_OK) == Err(Errno::ROFS) || statvfs(&self.dir).is_ok_and(is_full)
    }

    /// Returns the pid of the process that holds the home and will release it without being asked (see [`Home::lock_for_command`]).
    pub fn temporary_holder(&self) -> Option<u32> {
        // Held for a moment if the home is free, which must not look like a gateway.
        match self.lock_to_read() {
            Err(LockError::Held { pid, is_temporary: true, .. }) => pid,
            _ => None,
        }
    }

    fn held(&self) -> LockError {
        let (pid, is_temporary) = holder(&self.lock_file()).unzip();
        LockError::Held { home: self.dir.clone(), pid, is_temporary: is_temporary.unwrap_or_default() }
    }

    /// Locks the folder itself; returns `None` where the file system cannot do that, such as NFS.
    fn lock_folder(&self) -> Result<Option<File>, LockError> {
        let Ok(folder) = File::open(&self.dir) else { return Ok(None) };
        match folder.try_lock() {
            Ok(()) => Ok(Some(folder)),
            Err(TryLockError::WouldBlock) => Err(self.held()),
            Err(TryLockError::Error(error)) => {
                tracing::debug!(%error, "the folder of the home cannot be locked; its lock file is");
                Ok(None)
            }
        }
    }

    /// Returns the token that callers of the API present. The first call creates it: 256 random bits in hexadecimal.
    ///
    /// # Errors
    /// The token file is empty, or it cannot be read or created.
    pub fn token(&self) -> Result<Secret, HomeError> {
        if let Some(token) = self.read_token()? {
            return Ok(token);
        }
        self.make_token()?;
        self.read_token()?.ok_or_else(|| HomeError::BadToken(self.token_file()))
    }

    fn choose(dir: Option<PathBuf>, named: Option<PathBuf>, user: Option<PathBuf>) -> Result<Self, HomeError> {
        let set = |dir: &PathBuf| !dir.as_os_str().is_empty();
        let dir = dir
            .filter(set)
            .or_else(|| named.filter(set))
            .or_else(|| user.filter(set).map(|user| user.join(".daoyou")))
            .ok_or(HomeError::Unknown)?;
        let dir = std::path::absolute(&dir).map_err(unusable(&dir))?;
        Ok(Self { dir, warnings: Vec::new() })
    }

    fn prepare(&mut self) -> Result<(), HomeError> {
        match DirBuilder::new().recursive(true).mode(0o700).create(&self.dir) {
            Err(_) if self.dir.exists() && !self.dir.is_dir() => return Err(HomeError::NotAFolder(self.dir.clone())),
            made => {
                let advice = "make it, or choose another with --home or DAOYOU_HOME";
                made.map_err(io_error(&self.dir, "cannot be made", advice))?;
            }
        }
        let mode = fs::metadata(&self.dir).map_err(unusable(&self.dir))?.permissions().mode() & 0o777;
        let usable = access(&self.dir, Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK);
        usable.map_err(io::Error::from).map_err(unusable(&self.dir))?;
        if mode & 0o077 != 0 {
            let dir = self.dir.display();
            self.warnings.push(format!("{dir}: other users of this machine can read it: chmod 700 {dir}"));
        }
        Ok(())
    }

    /// Returns the token if there is one.
    ///
    /// # Errors
    /// The token file is empty, or cannot be read as text.
    pub fn read_token(&self) -> Result<Option<Secret>, HomeError> {
        /// The largest token file, in bytes. A token that the owner chose may be longer than a generated one.
        const MAX_BYTES: u64 = 4_096;
        let path = self.token_file();
        let advice = "make it a file of this user, or delete it and a new one is created";
        let wrong = io_error(&path, "cannot be read", advice);
        let mut text = String::new();
        match File::open(&path) {
            Ok(file) => file.take(MAX_BYTES).read_to_string(&mut text).map_err(wrong)?,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(wrong(error)),
        };
        match text.trim() {
            "" => Err(HomeError::BadToken(path)),
            token => Ok(Some(Secret::new(token))),
        }
    }

    /// Writes a new token to a temporary file and links it to its name. The token file is therefore never incomplete, and never
    /// replaces a token that another process created meanwhile.
    fn make_token(&self) -> Result<(), HomeError> {
        let path = self.token_file();
        let wrong = io_error(&path, "cannot be written", "the home must be writable, with space left");
        let token = new_secret().map_err(wrong)?.expose().to_owned() + "\n";
        let fresh = self.dir.join(format!("token.{}", &token[..16]));
        let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&fresh).and_then(|mut file| {
            file.write_all(token.as_bytes())?;
            file.sync_all()?;
            match fs::hard_link(&fresh, &path) {
                Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(error),
                _ => Ok(()),
            }
        });
        // The file may not exist, and a leftover file does no harm.
        let removed = fs::remove_file(&fresh);
        made.and(removed).map_err(wrong)?;
        File::open(&self.dir).and_then(|dir| dir.sync_all()).map_err(wrong)
    }
}

/// The lock of a home. Dropping it releases the home.
#[derive(Debug)]
pub struct HomeLock {
    file: Option<File>,
    folder: Option<File>,
}

impl Drop for HomeLock {
    fn drop(&mut self) {
        // The next holder must not be reported with this pid.
        if let Some(Err(error)) = self.file.as_ref().map(|file| file.write_all_at(&[b'\n'; LOCK_BYTES], 0)) {
            tracing::debug!(%error, "the lock file was not cleared");
        }
        // Closing ends a lock only if no child that is just being started has a copy of the descriptor.
        for file in self.file.iter().chain(&self.folder) {
            if let Err(error) = file.unlock() {
                tracing::debug!(%error, "a lock of the home ends when its file is closed");
            }
        }
    }
}

/// Returns the pid of the living process that holds the lock, and whether it marked the lock as temporary.
fn holder(path: &Path) -> Option<(u32, bool)> {
    for attempt in 0..PID_ATTEMPTS {
        if attempt > 0 {
            thread::sleep(PID_WAIT);
        }
        let text = fs::read_to_string(path).unwrap_or_default();
        let mut lines = text.lines();
        let pid = lines.next().and_then(|pid| pid.parse::<i32>().ok());
        if let Some(pid) = pid.and_then(Pid::from_raw)
            // A process of another user may reject the signal, but it exists.
            && test_kill_process(pid) != Err(Errno::SRCH)
        {
            return Some((u32::try_from(pid.as_raw_nonzero().get()).ok()?, lines.next() == Some(TEMPORARY)));
        }
    }
    None
}

/// Returns a function that converts an error at `path`: `what` failed, and `advice` says what to do.
fn io_error(path: &Path, what: &'static str, advice: &'static str) -> impl Fn(io::Error) -> HomeError + Copy {
    move |error| HomeError::Io { path: path.to_owned(), what, error, advice }
}

fn unusable(dir: &Path) -> impl Fn(io::Error) -> HomeError + Copy {
    let advice = "make it readable and writable for this user, or choose another with --home or DAOYOU_HOME";
    io_error(dir, "cannot be used", advice)
}

/// Returns true if a real path is a folder of the system, in which no agent may work.
pub fn is_system_folder(real: &Path) -> bool {
    const WITH_CONTENT: &[&str] = &[
        "/bin", "/boot", "/etc", "/lib", "/lib32", "/lib64", "/proc", "/sbin", "/sys", "/usr/bin", "/usr/lib",
        "/usr/sbin",
    ];
    const ALONE: &[&str] = &["/dev", "/run", "/usr", "/var"];
    WITH_CONTENT.iter().any(|folder| real.starts_with(folder)) || ALONE.iter().any(|folder| real == Path::new(folder))
}

/// Expands `path`: `~/` is `home`, and a relative path starts at `base`.
pub fn expand(path: &str, base: &Path, home: Option<&Path>) -> PathBuf {
    let rest = path.strip_prefix("~/").or_else(|| (path == "~").then_some(""));
    match (rest, home) {
        (Some(rest), Some(home)) => home.join(rest),
        _ => base.join(path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn the_home_is_located_by_argument_then_variable_then_default() {
        let path = |text: &str| Some(PathBuf::from(text));
        let table = [
            (path("/a"), path("/b"), path("/c"), Some("/a")),
            (None, path("/b"), path("/c"), Some("/b")),
            (None, path(""), path("/c"), Some("/c/.daoyou")),
            (None, None, path(""), None),
            (None, None, None, None),
        ];
        for (dir, named, user, expected) in table {
            let home = Home::choose(dir, named, user).ok();
            assert_eq!(home.as_ref().map(Home::dir), expected.map(Path::new));
        }
        assert!(Home::choose(path("here"), None, None).unwrap().dir().is_absolute());
    }

    #[test]
    fn the_workspace_follows_the_configuration() {
        let home = Home::choose(Some("/h".into()), None, None).unwrap();
        for (configured, expected) in [("", "/h/workspace"), ("/w", "/w"), ("mine", "/h/mine")] {
            assert_eq!(home.workspace(configured), Path::new(expected));
        }
    }

    #[test]
    fn a_new_home_is_private_and_an_open_one_gives_a_warning() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("deep/home");
        let home = Home::open(Some(path.clone())).unwrap();
        assert_eq!((mode(&path), home.warnings().len()), (0o700, 0));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        let home = Home::open(Some(path.clone())).unwrap();
        assert!(home.warnings()[0].contains("chmod 700"), "{:?}", home.warnings());
        assert_eq!(mode(&path), 0o755);
    }

    #[test]
    fn a_home_that_cannot_be_used_says_what_to_do() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        fs::write(&file, "").unwrap();
        for (path, part) in [
            (file.clone(), "file: it is not a folder; choose another with --home"),
            (file.join("home"), "file/home: cannot be made: "),
            ("/proc/daoyou".into(), "/proc/daoyou: cannot be made: "),
            ("/proc/self/fdinfo".into(), "cannot be used: "),
        ] {
            // The last path tests a permission that root does not need.
            match Home::open(Some(path.clone())) {
                Err(error) => {
                    let text = error.to_string();
                    assert!(text.contains(part) && !text.contains('\n'), "{text}");
                }
                Ok(_) => assert!(path.starts_with("/proc/self"), "{}", path.display()),
            }
        }
    }

    #[test]
    fn the_lock_is_exclusive_and_names_its_holder() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::open(Some(dir.path().to_owned())).unwrap();
        // The file of a killed gateway is not a lock.
        fs::write(home.lock_file(), "4194304\n").unwrap();
        let lock = home.lock().unwrap();
        let error = home.lock().unwrap_err();
        let text = error.to_string();
        assert!(matches!(error, LockError::Held { pid: Some(pid), .. } if pid == std::process::id()), "{text}");
        assert!(text.contains(&format!("(pid {})", std::process::id())), "{text}");
        // Without its file, the lock still holds; only the pid is no longer known.
        fs::remove_file(home.lock_file()).unwrap();
        assert!(matches!(home.lock(), Err(LockError::Held { pid: None, .. })) && home.is_locked());
        assert!(!home.lock_file().exists());
        drop(lock);
        assert!(!home.is_locked() && !home.lock_file().exists());
        let lock = home.lock_for_command().unwrap();
        let error = home.lock().unwrap_err();
        let text = error.to_string();
        assert!(matches!(error, LockError::Held { pid: Some(_), is_temporary: true, .. }), "{text}");
        assert!(text.starts_with("another daoyou command (pid ") && text.contains(" uses "), "{text}");
        drop(lock);
        let left = fs::read(home.lock_file()).unwrap();
        assert_eq!(left, [b'\n'; LOCK_BYTES], "it keeps its place on a disk that is full later");
    }

    #[test]
    fn the_token_is_created_once_and_private() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::open(Some(dir.path().to_owned())).unwrap();
        let tokens: Vec<String> = thread::scope(|scope| {
            let each: Vec<_> = (0..8).map(|_| scope.spawn(|| home.token().unwrap().expose().to_owned())).collect();
            each.into_iter().map(|one| one.join().unwrap()).collect()
        });
        assert!(tokens.iter().all(|token| *token == tokens[0]));
        assert!(tokens[0].len() == 64 && tokens[0].chars().all(|c| c.is_ascii_hexdigit()));
        assert_eq!(mode(&home.token_file()), 0o600);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        fs::write(home.token_file(), " \n").unwrap();
        assert!(home.token().unwrap_err().to_string().contains("delete it"));
        fs::write(home.token_file(), "my own\n").unwrap();
        assert_eq!(home.token().unwrap().expose(), "my own");
    }
}
