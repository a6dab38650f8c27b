//! The packages that skills are installed from: a folder, a ZIP archive, or a Git repository, read into memory within limits.
//! Nothing of a package is run, and its files are not written to the workspace.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Cursor, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path};
use std::process::Stdio;
use std::time::Duration;

use daoyou_channels::text::hex;
use rustix::process::{Pid, Signal, kill_process_group};
use sha2::{Digest, Sha256};
use tokio::process::Command;
use zip::ZipArchive;

use crate::text::{one_line, truncate};

/// The maximum number of files of a package, and their maximum total size in bytes.
const MAX_FILES: usize = 5_000;
pub(super) const MAX_BYTES: u64 = 50_000_000;
/// The maximum depth of folders.
const MAX_LEVELS: usize = 10;
/// The time limit for fetching a repository.
const GIT_TIMEOUT: Duration = Duration::from_secs(180);
/// The maximum size of a file that Git may write, in blocks of 512 bytes: 200 MB.
const GIT_BLOCKS: &str = "400000";
/// The folder of a repository.
const GIT_FOLDER: &str = ".git";
/// Disables the attributes by which a repository changes its archive, including filters of the user.
const PLAIN_ATTRIBUTES: &str = "* -filter -text -ident -export-ignore -export-subst -working-tree-encoding\n";
/// The maximum size of the end of Git's output that is read, in bytes.
const MAX_OUTPUT: u64 = 64 << 10;
/// The allowed protocols of repositories.
const GIT_PROTOCOLS: &str = "https:ssh:file";

/// A file of a package.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackageFile {
    pub bytes: Vec<u8>,
    pub is_executable: bool,
}

impl PackageFile {
    /// Returns the digest of content and mode: SHA-256 in hexadecimal digits, and ` x` for an executable file.
    pub fn digest(&self) -> String {
        digest_of(&self.bytes, self.is_executable)
    }
}

/// Returns the digest of a file with this content, in the form of [`PackageFile::digest`].
pub(in crate::skills) fn digest_of(bytes: &[u8], is_executable: bool) -> String {
    format!("{}{}", hex(&Sha256::digest(bytes)), if is_executable { " x" } else { "" })
}

/// The files of a package by their paths. A path has no `..`, `.` or empty component.
#[derive(Debug, Default)]
pub struct SkillPackage {
    pub files: BTreeMap<String, PackageFile>,
    /// The paths of what a skill may not hold: links, special files, and the folders of repositories.
    pub others: BTreeSet<String>,
    /// The commit, if the source is a repository.
    pub revision: Option<String>,
    bytes: u64,
}

impl SkillPackage {
    /// Reads what `source` names: the path of a folder or a ZIP archive, or the address of a repository. `reference` is a branch,
    /// a tag or a commit of a repository.
    ///
    /// # Errors
    /// The source is none of these, cannot be read, or is too large; the text is for people.
    pub async fn read(source: &str, reference: Option<&str>) -> Result<Self, String> {
        if let Some(address) = git_address(source)? {
            return Self::of_repository(address, reference).await;
        }
        if reference.is_some() {
            return Err(format!(
                "{source} is a path, and --ref is for repositories: leave it out, or write file://{source}"
            ));
        }
        let path = Path::new(source);
        let kind = fs::metadata(path).map_err(|error| format!("{source}: {error}"))?;
        if kind.is_dir() {
            return Self::of_folder(path);
        }
        let mut bytes = Vec::new();
        if kind.is_file() {
            let file = File::open(path).and_then(|file| file.take(MAX_BYTES + 1).read_to_end(&mut bytes));
            file.map_err(|error| format!("{source}: {error}"))?;
        }
        if !bytes.starts_with(b"PK") {
            return Err(format!("{source} is neither a folder, a ZIP archive nor the address of a repository"));
        }
        Self::of_archive(&bytes).map_err(|reason| format!("{source}: {reason}"))
    }

    /// Reads the files of a folder.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub(super) fn of_folder(folder: &Path) -> Result<Self, String> {
        let mut package = Self::default();
        package.add_folder(folder, "", 1, true)?;
        Ok(package)
    }

    /// Reads all files of an installed skill.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn of_installed(folder: &Path) -> Result<Self, String> {
        let mut package = Self::default();
        package.add_folder(folder, "", 1, false)?;
        Ok(package)
    }

    /// Adds the files of a folder. The folder `.git` of a source is left out. Anywhere else no skill may hold one, because programs
    /// that find it run the commands in its configuration.
    fn add_folder(&mut self, folder: &Path, prefix: &str, level: usize, is_source: bool) -> Result<(), String> {
        let failed = |error: io::Error| format!("{}: {error}", folder.display());
        if level > MAX_LEVELS {
            return Err(format!("{}: folders are nested deeper than {MAX_LEVELS} levels", folder.display()));
        }
        for entry in fs::read_dir(folder).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name().into_string();
            let name = name.map_err(|name| format!("{}: {name:?} is not UTF-8", folder.display()))?;
            let path = format!("{prefix}{name}");
            let kind = entry.file_type().map_err(failed)?;
            if name.eq_ignore_ascii_case(GIT_FOLDER) {
                if level == 1 && is_source {
                    continue;
                }
                self.add_other(path)?;
            } else if kind.is_dir() {
                self.add_folder(&entry.path(), &format!("{path}/"), level + 1, is_source)?;
            } else if kind.is_file() {
                let file = File::open(entry.path()).map_err(failed)?;
                let mode = file.metadata().map_err(failed)?.permissions().mode();
                self.add_file(path, file, mode)?;
            } else {
                self.add_other(path)?;
            }
        }
        Ok(())
    }

    /// Unpacks an archive.
    fn of_archive(bytes: &[u8]) -> Result<Self, String> {
        let broken = |error| format!("the ZIP archive is broken: {error}");
        let mut archive = ZipArchive::new(Cursor::new(bytes)).map_err(broken)?;
        // The reader keeps only the last entry of a name, and other programs may take the first.
        if archive.has_duplicate_names() {
            return Err("two entries of the archive have the same name, so nothing of it is unpacked".to_owned());
        }
        let mut package = Self::default();
        for at in 0..archive.len() {
            let file = archive.by_index(at).map_err(broken)?;
            let name = file.name().map_err(broken)?.into_owned();
            let path = plain_path(&name).ok_or_else(|| {
                format!(
                    "{:?} is not a path within the archive, so nothing of it is unpacked",
                    truncate(&one_line(&name), 80)
                )
            })?;
            if let Some(repository) = git_folder_of(&path) {
                package.add_other(repository)?;
                continue;
            }
            if file.is_dir() {
                continue;
            }
            if package.files.contains_key(&path) {
                return Err(format!("{path:?} is in the archive twice"));
            }
            match file.unix_mode() {
                _ if file.is_symlink() => package.add_other(path)?,
                mode => package.add_file(path, file, mode.unwrap_or(0o644))?,
            }
        }
        Ok(package)
    }

    /// Fetches one commit of a repository and reads its files, without hooks, filters or submodules.
    async fn of_repository(address: &str, reference: Option<&str>) -> Result<Self, String> {
        let reference = reference.unwrap_or("HEAD");
        if reference.is_empty() || reference.starts_with(['-', '+']) || reference.contains([':', '*', ' ']) {
            return Err(format!("{reference:?} is not a branch, tag or commit"));
        }
        let folder = tempfile::tempdir().map_err(|error| format!("no temporary folder: {error}"))?;
        let archive = folder.path().join("archive.zip");
        git(folder.path(), &["init", "-q", "--bare", "."]).await?;
        git(folder.path(), &["fetch", "-q", "--depth=1", "--no-tags", "--", address, reference]).await?;
        let revision = git(folder.path(), &["rev-parse", "FETCH_HEAD^{commit}"]).await?.trim().to_owned();
        fs::create_dir_all(folder.path().join("info")).map_err(|error| error.to_string())?;
        fs::write(folder.path().join("info/attributes"), PLAIN_ATTRIBUTES).map_err(|error| error.to_string())?;
        git(folder.path(), &["archive", "--format=zip", "--output", "archive.zip", &revision]).await?;
        let size = fs::metadata(&archive).map_err(|error| error.to_string())?.len();
        if size > MAX_BYTES {
            return Err(too_large());
        }
        let bytes = fs::read(&archive).map_err(|error| error.to_string())?;
        Ok(Self { revision: Some(revision), ..Self::of_archive(&bytes)? })
    }

    fn add_file(&mut self, path: String, file: impl Read, mode: u32) -> Result<(), String> {
        self.check_count()?;
        let mut bytes = Vec::new();
        let room = MAX_BYTES - self.bytes;
        file.take(room + 1).read_to_end(&mut bytes).map_err(|error| format!("{path}: {error}"))?;
        self.bytes += bytes.len() as u64;
        if self.bytes > MAX_BYTES {
            return Err(too_large());
        }
        self.files.insert(path, PackageFile { bytes, is_executable: mode & 0o111 != 0 });
        Ok(())
    }

    fn add_other(&mut self, path: String) -> Result<(), String> {
        self.check_count()?;
        self.others.insert(path);
        Ok(())
    }

    fn check_count(&self) -> Result<(), String> {
        if self.files.len() + self.others.len() >= MAX_FILES {
            return Err(format!("it has more than {MAX_FILES} files; install the folder of one skill"));
        }
        Ok(())
    }
}

/// Returns the folder `.git` in a path of an archive.
fn git_folder_of(path: &str) -> Option<String> {
    let parts: Vec<&str> = path.split('/').collect();
    let at = parts.iter().position(|part| part.eq_ignore_ascii_case(GIT_FOLDER))?;
    Some(parts[..=at].join("/"))
}

/// Returns why a skill may not hold `path`, which is one of [`SkillPackage::others`].
pub(super) fn refusal_of(path: &str) -> String {
    match git_folder_of(path) {
        Some(_) => {
            format!("{path}: a skill may not hold a Git repository, whose settings name programs to run; remove it")
        }
        None => format!("{path}: is a link or no file, and a skill has to consist of files alone"),
    }
}

fn too_large() -> String {
    format!("it is larger than {} MB; install the folder of one skill", MAX_BYTES / 1_000_000)
}

/// Returns a path of an archive with `/` between its components; `None` if it leads outside.
pub(super) fn plain_path(name: &str) -> Option<String> {
    if name.contains(['\\', '\0']) {
        return None;
    }
    let parts: Option<Vec<&str>> = Path::new(name)
        .components()
        .filter(|part| *part != Component::CurDir)
        .map(|part| match part {
            Component::Normal(part) => part.to_str(),
            _ => None,
        })
        .collect();
    parts.filter(|parts| !parts.is_empty() && parts.len() <= MAX_LEVELS).map(|parts| parts.join("/"))
}

/// Returns the address if `source` is the address of a repository: `https://…`, `ssh://…`, `git@HOST:PATH` or `file://…`.
///
/// # Errors
/// The source is an address of another kind.
fn git_address(source: &str) -> Result<Option<&str>, String> {
    let scheme = source.split_once("://").map(|(scheme, _)| scheme);
    match scheme {
        Some("https" | "ssh" | "file") => Ok(Some(source)),
        Some(other) => Err(format!("repositories are fetched by https, ssh and file, not by {other}")),
        None if source.starts_with("git@") && source.contains(':') => Ok(Some(source)),
        None => Ok(None),
    }
}

/// Runs Git within limits and returns its output.
async fn git(folder: &Path, arguments: &[&str]) -> Result<String, String> {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", "ulimit -f \"$0\"; exec git -c core.hooksPath=/dev/null \"$@\"", GIT_BLOCKS]).args(arguments);
    command.current_dir(folder).process_group(0).kill_on_drop(true).stdin(Stdio::null());
    // `cause_of` reads English messages.
    command.env("LC_ALL", "C").env_remove("LANGUAGE");
    command.env("GIT_TERMINAL_PROMPT", "0").env("GIT_ALLOW_PROTOCOL", GIT_PROTOCOLS);
    for inherited in ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_CONFIG"] {
        command.env_remove(inherited);
    }
    let failed = |error: io::Error| format!("git cannot be started: {error}");
    // The output goes to files, because the size limit for files applies to them.
    let [stdout, stderr] = ["stdout", "stderr"].map(|name| folder.join(name));
    command.stdout(File::create(&stdout).map_err(failed)?).stderr(File::create(&stderr).map_err(failed)?);
    let mut child = command.spawn().map_err(failed)?;
    let group = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
    let Ok(status) = tokio::time::timeout(GIT_TIMEOUT, child.wait()).await else {
        if let Some(group) = group {
            // This also ends Git's helper processes. They may have ended by themselves.
            let _ = kill_process_group(group, Signal::KILL);
        }
        return Err(format!("git took longer than {} s", GIT_TIMEOUT.as_secs()));
    };
    let read = |path: &Path| {
        let mut text = Vec::new();
        File::open(path).and_then(|file| file.take(MAX_OUTPUT).read_to_end(&mut text)).map_err(failed)?;
        Ok::<_, String>(String::from_utf8_lossy(&text).into_owned())
    };
    if status.map_err(failed)?.success() {
        return read(&stdout);
    }
    Err(format!("git: {}", truncate(&one_line(cause_of(&read(&stderr)?)), 300)))
}

/// Returns the line of Git's error output that names the cause. Advice may follow it.
fn cause_of(errors: &str) -> &str {
    let is_cause = |line: &&str| line.starts_with("fatal:") || line.starts_with("error:");
    let last = || errors.lines().rev().find(|line| !line.trim().is_empty());
    errors.lines().find(is_cause).or_else(last).unwrap_or("it failed")
}
