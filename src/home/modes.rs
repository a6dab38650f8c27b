//! The modes of the home and its entries, which must be private to the owner. They are checked and repaired at start, at each reload
//! and every hour, because a command or a careless `chmod -R` may change them while the gateway is running.

use std::fs::{self, Permissions};
use std::io::{self, ErrorKind};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, OFlags, RawMode, Stat, fstat, openat};
use rustix::process::geteuid;

use super::{Home, WORKSPACE};

/// The permission bits of everyone except the owner.
const OF_OTHERS: RawMode = 0o077;
/// The entries that the gateway creates in its home.
const OWN: [&str; 12] = [
    "cache", "code-cache.db", "code-cache.db-shm", "code-cache.db-wal", "config.toml", "history", "mcp", "outgoing",
    "skills.json", "skills.json.lock", "tmp", "token",
];
const OWN_PREFIX: &str = "daoyou.";
/// The ends of the names of secrets that `daoyou init` writes.
const SECRET_SUFFIXES: [&str; 3] = [".key", ".password", ".secret"];

/// An entry of the home that other users can access or own.
#[derive(Debug)]
pub struct ModeFault {
    pub path: PathBuf,
    pub kind: ModeFaultKind,
}

/// The kind of fault.
#[derive(Debug)]
pub enum ModeFaultKind {
    /// Other users can access the entry.
    Open { mode: u32, right: u32 },
    /// The entry belongs to the other user with this id.
    Foreign { owner: u32 },
    /// The entry is a link, whose target is not checked.
    Link,
    /// The entry cannot be examined.
    Unknown(io::Error),
}

/// Returns the faults in the modes and owners of a home, the home itself first.
pub fn faults(home: &Home) -> Vec<ModeFault> {
    let dir = home.dir();
    // The owner chooses the path of the home, which may be a link.
    let mut found = Vec::from_iter(fault_of(dir, OFlags::PATH | OFlags::DIRECTORY));
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) => {
            found.push(ModeFault { path: dir.to_owned(), kind: ModeFaultKind::Unknown(error) });
            return found;
        }
    };
    let is_own = |name: &str| OWN.contains(&name) || name.starts_with(OWN_PREFIX) || is_secret(name);
    let mut paths: Vec<_> = entries
        .flatten()
        .filter(|entry| entry.file_name().to_str().is_some_and(is_own))
        .map(|entry| entry.path())
        .collect();
    paths.sort();
    found.extend(paths.iter().filter_map(|path| fault_of(path, OFlags::PATH | OFlags::NOFOLLOW)));
    found
}

fn is_secret(name: &str) -> bool {
    SECRET_SUFFIXES.iter().any(|suffix| name.ends_with(suffix))
}

fn fault_of(path: &Path, flags: OFlags) -> Option<ModeFault> {
    let kind = match open(path, flags) {
        Ok((_, found)) => kind_of(path, &found)?,
        // The entry was removed since the folder was read: a temporary file, or a journal of the database.
        Err(error) if error.kind() == ErrorKind::NotFound => return None,
        Err(error) => ModeFaultKind::Unknown(error),
    };
    Some(ModeFault { path: path.to_owned(), kind })
}

fn kind_of(path: &Path, found: &Stat) -> Option<ModeFaultKind> {
    let kind = FileType::from_raw_mode(found.st_mode);
    // The configuration and its secrets may be managed elsewhere.
    let is_managed =
        path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name == "config.toml" || is_secret(name));
    if kind == FileType::Symlink {
        return (!is_managed).then_some(ModeFaultKind::Link);
    }
    let mode = found.st_mode & 0o7777;
    if found.st_uid != geteuid().as_raw() {
        // An administrator may own such a file and let the gateway's group read it.
        let is_given = is_managed && found.st_uid == 0 && mode & 0o027 == 0;
        return (!is_given).then_some(ModeFaultKind::Foreign { owner: found.st_uid });
    }
    let right = if kind == FileType::Directory { 0o700 } else { 0o600 };
    (mode & OF_OTHERS != 0).then_some(ModeFaultKind::Open { mode, right })
}

fn open(path: &Path, flags: OFlags) -> io::Result<(OwnedFd, Stat)> {
    let handle = openat(CWD, path, flags | OFlags::CLOEXEC, Mode::empty())?;
    let found = fstat(&handle)?;
    Ok((handle, found))
}

/// Sets the mode of the entry at `path`, without following links.
///
/// # Errors
/// The entry is a link or belongs to another user, or the file system rejects the change.
pub fn set_mode(path: &Path, mode: u32) -> io::Result<()> {
    let (handle, found) = open(path, OFlags::PATH | OFlags::NOFOLLOW)?;
    if FileType::from_raw_mode(found.st_mode) == FileType::Symlink {
        return Err(io::Error::other("it is a link; put the file itself there"));
    }
    // The handle is path-only, the only kind that a socket or a file without permissions allows. It is therefore changed through its
    // name in /proc.
    fs::set_permissions(format!("/proc/self/fd/{}", handle.as_raw_fd()), Permissions::from_mode(mode))
}

/// Gives the user of the gateway access to its own folder `path` again, and logs this: a command can take the rights away by
/// `chmod 000 .`. A link and a folder of another user stay as they are.
pub fn restore_access(path: &Path) {
    const OF_OWNER: RawMode = 0o700;
    let Ok((_, found)) = open(path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::DIRECTORY) else { return };
    let (mode, user) = (found.st_mode & 0o7777, geteuid());
    if mode & OF_OWNER == OF_OWNER || !user.is_root() && found.st_uid != user.as_raw() {
        return;
    }
    let (shown, right) = (path.display(), mode | OF_OWNER);
    match set_mode(path, right) {
        Ok(()) => tracing::warn!(
            path = %shown,
            "the gateway or its commands could not use the folder (mode {mode:03o}): repaired, mode {right:03o}"
        ),
        Err(error) => tracing::error!(
            path = %shown, %error,
            "the gateway or its commands cannot use the folder (mode {mode:03o}), and it could not be repaired"
        ),
    }
}

/// Repairs the faults of a home as far as possible, and logs each.
pub fn repair(home: &Home) {
    restore_access(&home.dir().join(WORKSPACE));
    for ModeFault { path, kind } in faults(home) {
        let shown = path.display();
        match kind {
            ModeFaultKind::Open { mode, right } => {
                // Only the home itself may be reached through a link.
                let target = if path == home.dir() { fs::canonicalize(&path) } else { Ok(path.clone()) };
                match target.and_then(|target| set_mode(&target, right)) {
                    Ok(()) => tracing::warn!(
                        path = %shown,
                        "other users of this machine could use it (mode {mode:03o}): repaired, mode {right:03o}{}",
                        if path == home.token_file() { "; they may know the token: delete it for a new one" } else { "" }
                    ),
                    Err(error) => tracing::error!(
                        path = %shown, %error,
                        "other users of this machine can use it (mode {mode:03o}), and it could not be repaired"
                    ),
                }
            }
            ModeFaultKind::Foreign { owner } => tracing::error!(
                path = %shown, owner,
                "it belongs to another user, who can read and change it: chown it to the gateway's user"
            ),
            ModeFaultKind::Link => {
                tracing::error!(path = %shown, "it is a link, whose target is not protected: put the file itself there");
            }
            ModeFaultKind::Unknown(error) => tracing::error!(path = %shown, %error, "its mode cannot be read"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o7777
    }

    #[test]
    fn open_modes_are_repaired_and_links_are_not_followed() {
        let temp = tempfile::tempdir().unwrap();
        let home = Home::open(Some(temp.path().join("home"))).unwrap();
        let at = |name: &str| home.dir().join(name);
        fs::write(temp.path().join("outside"), "").unwrap();
        let folders = ["cache", "mcp", "outgoing", "workspace"];
        let files = [
            "token", "config.toml", "daoyou.db", "daoyou.db-wal", "daoyou.lock", "skills.json", "skills.json.lock",
            "groq.key", "mail.password", "webhook-in.secret", "other",
        ];
        for name in folders {
            fs::create_dir(at(name)).unwrap();
        }
        for name in files {
            fs::write(at(name), "").unwrap();
        }
        let _socket = std::os::unix::net::UnixListener::bind(home.socket()).unwrap();
        std::os::unix::fs::symlink(temp.path().join("outside"), at("daoyou.flight")).unwrap();
        std::os::unix::fs::symlink(temp.path().join("outside"), at("managed.key")).unwrap();
        for name in folders.iter().chain(&files).chain(&["daoyou.sock", ".", "../outside"]) {
            fs::set_permissions(at(name), Permissions::from_mode(0o777)).unwrap();
        }
        assert_eq!(faults(&home).len(), 16);
        repair(&home);
        for (name, expected) in [
            (".", 0o700),
            ("cache", 0o700),
            ("mcp", 0o700),
            ("outgoing", 0o700),
            ("skills.json", 0o600),
            ("skills.json.lock", 0o600),
            ("token", 0o600),
            ("config.toml", 0o600),
            ("daoyou.db", 0o600),
            ("daoyou.db-wal", 0o600),
            ("daoyou.lock", 0o600),
            ("daoyou.sock", 0o600),
            ("groq.key", 0o600),
            ("mail.password", 0o600),
            ("webhook-in.secret", 0o600),
            // The gateway has not created this entry.
            ("other", 0o777),
            ("workspace", 0o777),
            ("../outside", 0o777),
        ] {
            assert_eq!(mode(&at(name)), expected, "{name}");
        }
        let left = faults(&home);
        assert!(matches!(&left[..], [ModeFault { kind: ModeFaultKind::Link, .. }]), "{left:?}");
        assert!(set_mode(&at("daoyou.flight"), 0o600).is_err());
    }
}
