//! The folders that commands may read, and the folders that no tool may touch.

use std::path::{Component, Path, PathBuf};
use std::{fs, io};

/// The files of a Linux system that programs need to run. `/etc` is limited to files without secrets, and `/proc` to files about
/// the machine instead of other processes. `/home`, `/root`, `/var` and `/run` are excluded.
const SYSTEM_PATHS: &[&str] = &[
    "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store", "/gnu/store", "/etc/alternatives",
    "/etc/ca-certificates", "/etc/bash.bashrc", "/etc/debian_version", "/etc/fonts", "/etc/gai.conf", "/etc/group",
    "/etc/host.conf", "/etc/hosts", "/etc/inputrc", "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d",
    "/etc/ld.so.preload", "/etc/locale.alias", "/etc/localtime", "/etc/magic", "/etc/mime.types", "/etc/nsswitch.conf",
    "/etc/os-release", "/etc/passwd", "/etc/pki/ca-trust", "/etc/pki/tls/certs", "/etc/profile", "/etc/protocols",
    "/etc/resolv.conf", "/etc/services", "/etc/shells", "/etc/ssl/cert.pem", "/etc/ssl/certs", "/etc/ssl/openssl.cnf",
    "/etc/terminfo", "/etc/timezone", "/proc/cpuinfo", "/proc/filesystems", "/proc/loadavg", "/proc/meminfo",
    "/proc/stat", "/proc/uptime", "/proc/version", "/sys/devices/system/cpu",
];

/// Folders and files of a user that contain keys.
const KEY_PATHS: &[&str] = &[
    ".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker", ".netrc", ".git-credentials", ".npmrc", ".pypirc",
    ".password-store", ".cargo/credentials.toml", ".config/gcloud", ".config/gh", ".local/share/keyrings",
];

/// How deep [`readable_paths`] searches for protected paths.
const SEARCH_DEPTH: usize = 8;

/// Returns the paths that no tool may read or write, whatever the configuration allows: daoyou's own folder and the user's keys,
/// with symbolic links resolved. Paths that do not exist are included, since they may be created later.
pub fn protected_paths(home: &Path) -> Vec<PathBuf> {
    protected_paths_of(home, &std::env::home_dir().unwrap_or_default())
}

fn protected_paths_of(home: &Path, user: &Path) -> Vec<PathBuf> {
    let keys = KEY_PATHS.iter().filter(|_| user.is_absolute()).map(|name| user.join(name));
    std::iter::once(home.to_owned()).chain(keys).map(|path| resolve_links(&path).unwrap_or(path)).collect()
}

/// Resolves the links of the existing part of a path, and appends the rest.
///
/// # Errors
/// A link is dangling or part of a cycle, a folder cannot be entered, or a part of the path is not a folder.
pub fn resolve_links(path: &Path) -> io::Result<PathBuf> {
    let mut missing = Vec::new();
    let mut existing = path;
    loop {
        match fs::canonicalize(existing) {
            Ok(real) => return Ok(missing.iter().rev().fold(real, |path, part| path.join(part))),
            // A dangling link is not a missing file.
            Err(error) if error.kind() == io::ErrorKind::NotFound && existing.symlink_metadata().is_err() => {
                let (Some(parent), Some(name)) = (existing.parent(), existing.file_name()) else { return Err(error) };
                missing.push(name);
                existing = parent;
            }
            Err(error) => return Err(error),
        }
    }
}

/// Returns where `path` leads inside a folder, if the first link in it is absolute and names a file or folder there, which may not
/// exist. `path` is relative to the folder, and `roots` are names of the folder; the last one has no links.
pub(super) fn absolute_link_target(roots: &[PathBuf; 2], path: &Path) -> Option<PathBuf> {
    let mut parts: Vec<&Path> = path.ancestors().collect();
    parts.reverse();
    let read = |part: &Path| Some((part.to_owned(), fs::read_link(roots[1].join(part)).ok()?));
    let (link, target) = parts.into_iter().find_map(read)?;
    let inside = roots.iter().find_map(|root| target.strip_prefix(root).ok())?;
    let is_inside = !inside.components().any(|part| part == Component::ParentDir);
    let target = || Some(Path::new(".").join(inside).join(path.strip_prefix(&link).ok()?).components().collect());
    is_inside.then(target).flatten()
}

/// Returns the folders and files that commands may read in addition to workspace and temp folder: the system's folders and
/// `extra` (`~/` is the user's home), without `protected`. Landlock can only allow, so the entries of a folder replace the folder
/// if it contains a protected path.
pub fn readable_paths(extra: &[String], protected: &[PathBuf]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for path in configured_paths(extra) {
        if let Ok(path) = fs::canonicalize(path) {
            collect_readable(&path, protected, SEARCH_DEPTH, &mut found);
        }
    }
    found.sort();
    found.dedup();
    found
}

/// Returns the links among these folders with their targets, such as `/bin` to `/usr/bin`.
pub fn readable_links(extra: &[String]) -> Vec<(PathBuf, PathBuf)> {
    let links = configured_paths(extra).filter_map(|path| {
        let real = fs::canonicalize(&path).ok()?;
        (real != path).then_some((path, real))
    });
    links.collect()
}

/// Returns the system folders and `extra` as paths.
fn configured_paths(extra: &[String]) -> impl Iterator<Item = PathBuf> {
    let user = std::env::home_dir().unwrap_or_default();
    let extra = extra.iter().map(move |path| match path.strip_prefix("~/") {
        Some(rest) => user.join(rest),
        None if path == "~" => user.clone(),
        None => PathBuf::from(path),
    });
    SYSTEM_PATHS.iter().map(PathBuf::from).chain(extra.filter(|path| path.is_absolute()))
}

fn collect_readable(path: &Path, protected: &[PathBuf], depth: usize, found: &mut Vec<PathBuf>) {
    if protected.iter().any(|secret| path.starts_with(secret)) {
        return;
    }
    if !protected.iter().any(|secret| secret.starts_with(path)) {
        found.push(path.to_owned());
        return;
    }
    if depth == 0 {
        return;
    }
    for entry in fs::read_dir(path).into_iter().flatten().flatten() {
        // A link is checked by its target.
        if let Ok(entry) = fs::canonicalize(entry.path())
            && entry.starts_with(path)
        {
            collect_readable(&entry, protected, depth - 1, found);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_do_not_exist_yet_are_protected() {
        let user = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(user.path()).unwrap();
        fs::create_dir_all(root.join("dotfiles/aws")).unwrap();
        std::os::unix::fs::symlink("dotfiles/aws", root.join(".aws")).unwrap();
        std::os::unix::fs::symlink("nowhere", root.join(".kube")).unwrap();
        let found = protected_paths_of(&root.join("home"), &root);
        for expected in ["home", ".ssh", ".config/gh", "dotfiles/aws", ".kube"] {
            assert!(found.contains(&root.join(expected)), "{expected}: {found:?}");
        }
        assert_eq!(protected_paths_of(&root, Path::new("")), [root]);
    }

    #[test]
    fn a_folder_with_keys_is_replaced_by_its_other_entries() {
        let user = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(user.path()).unwrap();
        for folder in ["src", "keys", "config/app", "config/secret"] {
            fs::create_dir_all(root.join(folder)).unwrap();
        }
        std::os::unix::fs::symlink(root.join("keys"), root.join("link")).unwrap();
        let protected = [root.join("keys"), root.join("config/secret")];
        let found = readable_paths(&[root.display().to_string()], &protected);
        let ours: Vec<_> = found.iter().filter_map(|path| path.strip_prefix(&root).ok()).collect();
        assert_eq!(ours, [Path::new("config/app"), Path::new("src")]);
        assert!(readable_paths(&["relative".to_owned()], &[]).iter().all(|path| path.is_absolute()));
    }
}
