//! The arguments of bubblewrap, which runs a command in namespaces: a new file system, and separate processes, users,
//! network and IPC.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};

use super::protocol::ExecRequest;

/// The program that creates the namespaces.
const PROGRAM: &str = "bwrap";
/// The path of a command's private temp folder in its namespaces, which is also its `TMPDIR`.
pub(super) const TEMP: &str = "/tmp";
/// The path of the memory that processes share by name. In the namespaces it is a folder on disk, so that the disk limit counts
/// its content.
pub(super) const SHARED: &str = "/dev/shm";

/// Finds bubblewrap in the `PATH` of this process.
pub fn find_bwrap() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).filter(|folder| folder.is_absolute()).map(|folder| folder.join(PROGRAM)).find(|file| {
        fs::metadata(file).is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
    })
}

/// The two subfolders of a command's private temp folder.
pub(super) struct PrivateTemp {
    /// The folder that is mounted as [`TEMP`].
    pub temp: PathBuf,
    /// The folder that is mounted as [`SHARED`].
    pub shared: PathBuf,
}

impl PrivateTemp {
    /// Creates both folders in `folder`.
    ///
    /// # Errors
    /// A folder cannot be created.
    pub(super) fn create(folder: &Path) -> io::Result<Self> {
        let folders = Self { temp: folder.join("tmp"), shared: folder.join("shm") };
        fs::create_dir(&folders.temp)?;
        fs::create_dir(&folders.shared)?;
        Ok(folders)
    }
}

/// Returns the arguments of bubblewrap up to the program to run. If this process is root (`is_root`), the kernel needs
/// no user namespace, and the process inside changes its user.
///
/// # Errors
/// A folder to hide is not a real folder.
pub(super) fn bwrap_arguments(
    request: &ExecRequest,
    private: &PrivateTemp,
    is_root: bool,
) -> Result<Vec<OsString>, String> {
    let policy = request.sandbox.as_ref().ok_or("namespaces need a policy")?;
    let mut mounts = BwrapArguments::default();
    mounts.push(&["--unshare-pid", "--unshare-ipc", "--unshare-uts"]);
    mounts.push(&["--die-with-parent", "--new-session", "--cap-drop", "ALL"]);
    if is_root {
        mounts.push(&["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]);
    } else {
        mounts.push(&["--unshare-user"]);
    }
    if !policy.network {
        mounts.push(&["--unshare-net"]);
    }
    // Later mounts cover earlier ones: the temp folder comes first, as other mounts may lie in it.
    mounts.bind("--bind", &private.temp, Path::new(TEMP));
    for path in policy.read.iter().filter(|path| !path.starts_with("/proc") && !path.starts_with("/dev")) {
        mounts.bind("--ro-bind-try", path, path);
    }
    for (link, target) in &policy.links {
        mounts.link(link, target);
    }
    mounts.push(if request.shares_proc { &["--ro-bind", "/proc", "/proc"] } else { &["--proc", "/proc"] });
    mounts.push(&["--dev", "/dev"]);
    mounts.bind("--bind", &private.shared, Path::new(SHARED));
    for path in &policy.write {
        mounts.bind("--bind", path, path);
    }
    let is_inside = |path: &Path| request.read_only.iter().any(|outer| path != outer && path.starts_with(outer));
    for path in request.read_only.iter().filter(|path| !is_inside(path)) {
        pin_parents(request, path, &mut mounts);
        mounts.bind("--ro-bind-try", path, path);
    }
    hide_folders(request, &mut mounts)?;
    // The process inside enters the workspace after it has changed its user: root without capabilities may not enter a
    // folder that is private to another user.
    mounts.push(&["--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/", "--"]);
    Ok(mounts.arguments)
}

/// Covers the hidden folders with empty ones, and mounts the shown folders inside them again.
fn hide_folders(request: &ExecRequest, mounts: &mut BwrapArguments) -> Result<(), String> {
    let is_inside = |path: &Path| request.hidden.iter().any(|hidden| path != hidden && path.starts_with(hidden));
    let hidden: Vec<&PathBuf> = request.hidden.iter().filter(|hidden| !is_inside(hidden)).collect();
    for hidden in &hidden {
        // If a component were a link, the mount would cover a folder other than the named one.
        let real = fs::canonicalize(hidden).map_err(|error| format!("the folder {}: {error}", hidden.display()))?;
        if real != **hidden || !real.is_dir() {
            return Err(format!(
                "{} must be a folder and no link: what is not for this conversation could not be hidden",
                hidden.display()
            ));
        }
        pin_parents(request, hidden, mounts);
        mounts.push(&["--tmpfs"]);
        mounts.arguments.push((*hidden).into());
    }
    for shown in &request.shown {
        let Some(hidden) = hidden.iter().find(|hidden| shown.starts_with(hidden)) else { continue };
        let between: Vec<_> = shown.ancestors().skip(1).take_while(|above| above != hidden).collect();
        for folder in between.into_iter().rev() {
            mounts.push(&["--perms", "0755", "--dir"]);
            mounts.arguments.push(folder.into());
        }
        mounts.bind("--bind", shown, shown);
    }
    for hidden in hidden {
        mounts.push(&["--remount-ro"]);
        mounts.arguments.push(hidden.into());
    }
    Ok(())
}

/// Turns the folders between a writable folder and `path` into mount points, which cannot be renamed. Otherwise a command could
/// move `path` away together with its parent folder.
fn pin_parents(request: &ExecRequest, path: &Path, mounts: &mut BwrapArguments) {
    let writable = request.sandbox.iter().flat_map(|policy| &policy.write);
    let Some(root) = writable.into_iter().find(|root| path.starts_with(root)) else { return };
    let above: Vec<_> = path.ancestors().skip(1).take_while(|above| above != root && above.starts_with(root)).collect();
    for above in above.into_iter().rev() {
        // A read-only folder cannot be changed anyway, and binding it again would make it writable.
        let is_read_only = request.read_only.iter().any(|fixed| above.starts_with(fixed));
        if !is_read_only && mounts.pinned.insert(above.to_owned()) {
            mounts.bind("--bind", above, above);
        }
    }
}

#[derive(Default)]
struct BwrapArguments {
    arguments: Vec<OsString>,
    /// Folders that exist for certain.
    created: BTreeSet<PathBuf>,
    bound: Vec<PathBuf>,
    pinned: BTreeSet<PathBuf>,
}

impl BwrapArguments {
    fn push(&mut self, arguments: &[&str]) {
        self.arguments.extend(arguments.iter().map(OsString::from));
    }

    fn bind(&mut self, how: &str, from: &Path, to: &Path) {
        self.create_parents(to);
        self.push(&[how]);
        self.arguments.extend([from.into(), to.into()]);
        self.bound.push(to.to_owned());
    }

    /// Creates a link, unless its path is in a bound folder, which then contains it.
    fn link(&mut self, link: &Path, target: &Path) {
        if !self.bound.iter().any(|bound| link.starts_with(bound) && bound != Path::new(TEMP)) {
            self.create_parents(link);
            self.push(&["--symlink"]);
            self.arguments.extend([target.into(), link.into()]);
        }
    }

    /// Creates the folders above a mount point, readable for every user. The folders that bubblewrap creates itself may be
    /// readable for root alone.
    fn create_parents(&mut self, path: &Path) {
        let mut at = PathBuf::from("/");
        for part in path.parent().into_iter().flat_map(Path::components) {
            if !matches!(part, Component::Normal(_)) {
                continue;
            }
            at.push(part);
            let exists = self.bound.iter().any(|bound| at.starts_with(bound) && bound != Path::new(TEMP));
            if !exists && at != Path::new(TEMP) && at != Path::new("/dev") && self.created.insert(at.clone()) {
                self.push(&["--perms", "0755", "--dir"]);
                self.arguments.push(at.clone().into());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guard::protocol::SandboxPolicy;

    fn request(folder: &Path, hidden: &[&str], shown: &[&str]) -> ExecRequest {
        let inside = |names: &[&str]| names.iter().map(|name| folder.join(name)).collect();
        let links = vec![("/bin".into(), "/usr/bin".into())];
        let policy = SandboxPolicy { read: vec!["/usr".into()], links, write: vec![folder.to_owned()], network: false };
        ExecRequest {
            command: "true".to_owned(),
            folder: folder.to_owned(),
            temp: "/t".into(),
            sandbox: Some(policy),
            bwrap: Some("/usr/bin/bwrap".into()),
            hidden: inside(hidden),
            shown: inside(shown),
            ..ExecRequest::default()
        }
    }

    fn line(request: &ExecRequest) -> Result<String, String> {
        let private = PrivateTemp { temp: "/t/tmp".into(), shared: "/t/shm".into() };
        let words = bwrap_arguments(request, &private, false)?;
        Ok(words.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn hidden_folders_are_covered_and_shown_ones_are_mounted_again() {
        let folder = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(folder.path()).unwrap();
        fs::create_dir_all(root.join("a/b/mine")).unwrap();
        let found = line(&request(&root, &["a/b"], &["a/b/mine", "else"])).unwrap();
        let root = root.display().to_string();
        let expected = format!(
            "--bind {root} {root} --bind {root}/a {root}/a --tmpfs {root}/a/b --bind {root}/a/b/mine {root}/a/b/mine \
             --remount-ro {root}/a/b --remount-ro /dev --remount-ro / --chdir / --"
        );
        assert!(found.ends_with(&expected), "{found}");
        for part in ["--unshare-user", "--unshare-net", "--symlink /usr/bin /bin", "--ro-bind-try /usr /usr"] {
            assert!(found.contains(part), "{part}: {found}");
        }
    }

    #[test]
    fn read_only_folders_cannot_be_moved_away_with_their_parents() {
        let folder = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(folder.path()).unwrap();
        fs::create_dir_all(root.join("a/b")).unwrap();
        fs::create_dir_all(root.join("c/hidden")).unwrap();
        let read_only = ["a/b/skills", "c", "c/skills"].map(|path| root.join(path)).to_vec();
        let found = line(&ExecRequest { read_only, ..request(&root, &["c/hidden"], &[]) }).unwrap();
        let root = root.display().to_string();
        let expected = format!(
            "--bind {root} {root} --bind {root}/a {root}/a --bind {root}/a/b {root}/a/b \
             --ro-bind-try {root}/a/b/skills {root}/a/b/skills --ro-bind-try {root}/c {root}/c --tmpfs {root}/c/hidden \
             --remount-ro {root}/c/hidden"
        );
        assert!(found.contains(&expected), "{found}");
    }

    #[test]
    fn a_link_in_the_place_of_a_hidden_folder_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(folder.path()).unwrap();
        fs::create_dir(root.join("real")).unwrap();
        fs::write(root.join("file"), "").unwrap();
        std::os::unix::fs::symlink(root.join("real"), root.join("link")).unwrap();
        assert!(line(&request(&root, &["real"], &[])).is_ok());
        for hidden in ["link", "file", "none", "link/x"] {
            assert!(line(&request(&root, &[hidden], &[])).is_err(), "{hidden}");
        }
    }
}
