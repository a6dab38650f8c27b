//! What skills are installed from: a folder, a ZIP archive, or a Git repository, read into memory with bounds. Nothing of it is
//! run, and nothing is written anywhere.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Cursor, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path};
use std::time::Duration;

use daoyou_channels::text::hex;
use sha2::{Digest, Sha256};
use tokio::process::Command;
use zip::ZipArchive;

use crate::text::{one_line, truncate};

/// The most files of a package, and their bytes together.
const MAX_FILES: usize = 5_000;
pub(super) const MAX_BYTES: u64 = 50_000_000;
/// The deepest folder.
const MAX_LEVELS: usize = 10;
/// How long a repository may take to arrive.
const GIT_TIMEOUT: Duration = Duration::from_secs(180);
/// The largest file that Git may write, in blocks of 512 bytes: 200 MB.
const GIT_BLOCKS: &str = "400000";
/// The protocols of repositories.
const GIT_PROTOCOLS: &str = "https:ssh:file";

/// A file of a package.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackageFile {
    pub bytes: Vec<u8>,
    pub is_executable: bool,
}

impl PackageFile {
    /// Returns the digest of content and mode: SHA-256 in hexadecimal digits, and ` x` for a file that can be run.
    pub fn digest(&self) -> String {
        digest_of(&self.bytes, self.is_executable)
    }
}

/// Returns the digest of a file with this content, as [`PackageFile::digest`].
pub(super) fn digest_of(bytes: &[u8], is_executable: bool) -> String {
    format!("{}{}", hex(&Sha256::digest(bytes)), if is_executable { " x" } else { "" })
}

/// Files by their paths, which have no `..`, `.` or empty part.
#[derive(Debug, Default)]
pub struct SkillPackage {
    pub files: BTreeMap<String, PackageFile>,
    /// The paths of links and of what is neither file nor folder.
    pub others: Vec<String>,
    /// The commit of a repository.
    pub revision: Option<String>,
    bytes: u64,
}

impl SkillPackage {
    /// Reads what `source` names: the path of a folder or of a ZIP archive, or the address of a repository. `reference` is a branch, a
    /// tag or a commit of a repository.
    ///
    /// # Errors
    /// In words for people: it is none of these, cannot be read, or is too large.
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
            let mut package = Self::default();
            package.add_folder(path, "", 1)?;
            return Ok(package);
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

    /// Adds the files of a folder. Those of Git itself are left out.
    fn add_folder(&mut self, folder: &Path, prefix: &str, level: usize) -> Result<(), String> {
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
            if kind.is_dir() && name != ".git" {
                self.add_folder(&entry.path(), &format!("{path}/"), level + 1)?;
            } else if kind.is_file() {
                let file = File::open(entry.path()).map_err(failed)?;
                let mode = file.metadata().map_err(failed)?.permissions().mode();
                self.add_file(path, file, mode)?;
            } else if !kind.is_dir() {
                self.add_other(path)?;
            }
        }
        Ok(())
    }

    /// Unpacks an archive.
    fn of_archive(bytes: &[u8]) -> Result<Self, String> {
        let broken = |error| format!("the ZIP archive is broken: {error}");
        let mut archive = ZipArchive::new(Cursor::new(bytes)).map_err(broken)?;
        let mut package = Self::default();
        for at in 0..archive.len() {
            let file = archive.by_index(at).map_err(broken)?;
            let name = file.name().map_err(broken)?.into_owned();
            let path = plain_path(&name).ok_or_else(|| {
                format!(
                    "{:?} is no path within the archive, so nothing of it is unpacked",
                    truncate(&one_line(&name), 80)
                )
            })?;
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
            return Err(format!("{reference:?} is no branch, tag or commit"));
        }
        let folder = tempfile::tempdir().map_err(|error| format!("no temporary folder: {error}"))?;
        let archive = folder.path().join("archive.zip");
        git(folder.path(), &["init", "-q", "--bare", "."]).await?;
        git(folder.path(), &["fetch", "-q", "--depth=1", "--no-tags", "--", address, reference]).await?;
        let revision = git(folder.path(), &["rev-parse", "FETCH_HEAD"]).await?.trim().to_owned();
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
        self.others.push(path);
        Ok(())
    }

    fn check_count(&self) -> Result<(), String> {
        if self.files.len() + self.others.len() >= MAX_FILES {
            return Err(format!("it has more than {MAX_FILES} files; install the folder of one skill"));
        }
        Ok(())
    }
}

fn too_large() -> String {
    format!("it is larger than {} MB; install the folder of one skill", MAX_BYTES / 1_000_000)
}

/// Returns a path of an archive with `/` between its parts; `None` if it leads outside.
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

/// Returns the address if `source` is one of a repository: `https://…`, `ssh://…`, `git@HOST:PATH` or `file://…`.
///
/// # Errors
/// It is an address of another kind.
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
    command.current_dir(folder).kill_on_drop(true).stdin(std::process::Stdio::null());
    command.env("GIT_TERMINAL_PROMPT", "0").env("GIT_ALLOW_PROTOCOL", GIT_PROTOCOLS);
    for inherited in ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_CONFIG"] {
        command.env_remove(inherited);
    }
    let done = tokio::time::timeout(GIT_TIMEOUT, command.output()).await;
    let done = done.map_err(|_| format!("git took longer than {} s", GIT_TIMEOUT.as_secs()))?;
    let done = done.map_err(|error| format!("git cannot be started: {error}"))?;
    if done.status.success() {
        return Ok(String::from_utf8_lossy(&done.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&done.stderr);
    let last = said.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it failed");
    Err(format!("git: {}", truncate(&one_line(last), 300)))
}
