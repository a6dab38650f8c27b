//! The folders that are searched for skills, and the files `SKILL.md` in them: `NAME/SKILL.md` and `GROUP/NAME/SKILL.md`.
//!
//! Commands of the agent can write into some of these folders, so no link is followed below the root of a source.

use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use cap_std::fs::Dir;
use rustix::fs::{AtFlags, statat};
use rustix::io::Errno;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

use crate::guard::{FileVersion, Jail, JailError};

/// The folder of the workspace into which skills are installed.
pub const INSTALL_FOLDER: &str = "skills";
/// The maximum size of a `SKILL.md`, in bytes.
pub(super) const MAX_FILE: u64 = 1_000_000;
/// The maximum number of skills of a source.
const MAX_SKILLS: usize = 1_000;
/// The maximum number of folder entries that one scan of a source examines.
const MAX_ENTRIES: usize = 10_000;
/// The maximum number of faults of a source that are listed.
const MAX_FAULTS: usize = 100;
/// The accepted names of the file. Existing skills also use the second one.
pub(super) const FILE_NAMES: [&str; 2] = ["SKILL.md", "skill.md"];

/// `[skills]`.
#[derive(Clone, Debug, SmartDefault, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SkillsConfig {
    /// Further folders of skills. `~/` is the home of the user; other relative paths begin at the workspace.
    pub paths: Vec<String>,
    /// The skills that are part of the program are used.
    #[default = true]
    pub built_in: bool,
    /// The names of skills that are not used.
    pub disabled: Vec<String>,
    /// The maximum number of tokens of the list of skills in the system prompt, estimated.
    #[schemars(range(max = 100_000))]
    #[default = 2_000]
    pub prompt_tokens: u32,
}

/// A folder of skills.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkillSource {
    /// The name of the source, as shown to people.
    pub label: Arc<str>,
    /// The root. Its path may contain links.
    root: PathBuf,
    /// The folder of skills, relative to the root. No link is followed on this path.
    folder: String,
    /// Folders from which nothing is read, relative to the root.
    closed: Arc<[PathBuf]>,
    /// True if the user has named this folder. It must then exist, and may be a skill itself.
    is_named: bool,
}

impl SkillSource {
    /// Returns the source for a folder that the user has named.
    pub(super) fn named(label: &str, root: PathBuf) -> Self {
        Self { label: label.into(), root, folder: ".".to_owned(), closed: Arc::default(), is_named: true }
    }

    /// Returns the sources in order of precedence: those of the workspace, of the user's home, and of the configuration. Nothing
    /// is read from the folders `closed`, which are relative to the workspace.
    pub fn all(config: &SkillsConfig, workspace: &Path, user_home: Option<&Path>, closed: &[PathBuf]) -> Vec<Self> {
        let closed: Arc<[PathBuf]> = closed.into();
        let below = |folder: &str, is_named: bool| Self {
            label: folder.into(),
            root: workspace.to_owned(),
            folder: folder.to_owned(),
            closed: closed.clone(),
            is_named,
        };
        let in_workspace = [INSTALL_FOLDER, ".claude/skills", ".agents/skills"].map(|folder| below(folder, false));
        let in_home = user_home.into_iter().flat_map(|home| {
            [".claude/skills", ".agents/skills"]
                .map(|folder| Self { is_named: false, ..Self::named(&format!("~/{folder}"), home.join(folder)) })
        });
        let configured = config.paths.iter().map(|path| {
            if let (Some(of_home), Some(home)) = (path.strip_prefix("~/"), user_home) {
                return Self::named(path, home.join(of_home));
            }
            // Commands of the agent can create links below the workspace, so no link is followed there, and closed folders stay
            // closed.
            let root = without_dots(&workspace.join(path));
            match root.strip_prefix(without_dots(workspace)).ok().and_then(Path::to_str) {
                Some("") => below(".", true),
                Some(folder) => below(folder, true),
                None => Self::named(path, root),
            }
        });
        in_workspace.into_iter().chain(in_home).chain(configured).collect()
    }

    /// Opens the root. Returns `None` if it does not exist and need not exist.
    ///
    /// # Errors
    /// The root is not a folder that can be opened.
    pub fn open(&self) -> io::Result<Option<Jail>> {
        match Jail::open_strict(&self.root, Vec::new(), MAX_FILE) {
            Ok(jail) if self.closed.is_empty() => Ok(Some(jail)),
            Ok(jail) => Ok(Some(jail.with_closed(&self.closed))),
            Err(error) if error.kind() == io::ErrorKind::NotFound && !self.is_named => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns the name under which the skill in `folder` was installed, if skills are installed into this source.
    pub fn installed_name<'a>(&self, folder: &'a str) -> Option<&'a str> {
        (self.label.as_ref() == INSTALL_FOLDER)
            .then(|| folder.strip_prefix(INSTALL_FOLDER)?.strip_prefix('/'))
            .flatten()
    }

    /// Opens the root like [`Self::open`], for files of any size. Returns `None` if that fails.
    pub(super) fn open_unbounded(&self) -> Option<Jail> {
        let jail = Jail::open_strict(&self.root, Vec::new(), u64::MAX).ok()?;
        Some(jail.with_closed(&self.closed))
    }

    /// Returns the path of the folder, for messages.
    pub fn path(&self) -> PathBuf {
        if self.folder == "." { self.root.clone() } else { self.root.join(&self.folder) }
    }

    /// Returns the path of the folder with the links of the root resolved. Neither the root nor the folder need exist.
    pub fn resolved_path(&self) -> Option<PathBuf> {
        let resolve = |above: &Path| Some(above.canonicalize().ok()?.join(self.root.strip_prefix(above).ok()?));
        let root = self.root.ancestors().find_map(resolve)?;
        Some(without_dots(&root.join(&self.folder)))
    }

    /// Returns the real path of the folder of skills.
    pub(super) fn real_path(&self, jail: &Jail) -> PathBuf {
        if self.folder == "." { jail.root().to_owned() } else { jail.root().join(&self.folder) }
    }

    /// Finds the folders that contain a file with one of these names. Each result has the first name that exists. No file is
    /// opened.
    pub fn scan_for(&self, jail: &Jail, names: &'static [&'static str]) -> SourceScan {
        let scan = SourceScan { folders: vec![self.folder.clone()], ..SourceScan::default() };
        let mut scanner = Scanner { jail, names, scan, entries_left: MAX_ENTRIES };
        match jail.folder(&self.folder) {
            Ok((dir, _)) if self.is_named && scanner.add_skill(&dir, &self.folder, "") => {}
            Ok((dir, _)) => scanner.scan_folder(&dir, &self.folder, true),
            Err(JailError::Missing(_)) if !self.is_named => {}
            Err(error) => scanner.fault(&self.folder, reason_of(&error)),
        }
        scanner.scan
    }
}

/// A `SKILL.md` that was found. It is unchecked, and may be a link or a pipe.
#[derive(Debug)]
pub struct SkillFile {
    /// The folder, relative to the root of the source.
    pub folder: String,
    pub name: &'static str,
    pub version: FileVersion,
}

impl SkillFile {
    /// Returns the path relative to the root of the source.
    pub fn path(&self) -> String {
        join(&self.folder, self.name)
    }

    /// Returns the name of the folder.
    pub fn folder_name(&self, jail: &Jail) -> String {
        let name = Path::new(&self.folder).file_name().or_else(|| jail.root().file_name());
        name.unwrap_or_default().to_string_lossy().into_owned()
    }
}

/// The result of scanning a source.
#[derive(Debug, Default)]
pub struct SourceScan {
    pub files: Vec<SkillFile>,
    /// The folder of skills, and the folders in it that are not skills, relative to the root. The first may be missing.
    pub(super) folders: Vec<String>,
    /// The paths that were left out, relative to the root, and why.
    pub faults: Vec<(String, String)>,
}

struct Scanner<'a> {
    jail: &'a Jail,
    names: &'static [&'static str],
    scan: SourceScan,
    entries_left: usize,
}

impl Scanner<'_> {
    fn fault(&mut self, path: &str, reason: impl Into<String>) {
        match self.scan.faults.len() {
            0..MAX_FAULTS => self.scan.faults.push((path.to_owned(), reason.into())),
            MAX_FAULTS => {
                let reason = format!("{}; further faults are not listed", reason.into());
                self.scan.faults.push((path.to_owned(), reason));
            }
            _ => {}
        }
    }

    /// Finds the skills in a folder. With `has_groups`, also searches the folders in it that are not skills.
    fn scan_folder(&mut self, dir: &Dir, path: &str, has_groups: bool) {
        let entries = match self.entries(dir, path) {
            Ok(entries) => entries,
            Err(error) => return self.fault(path, error.to_string()),
        };
        for (name, is_link) in entries {
            let inner = join(path, &name);
            if self.scan.files.len() >= MAX_SKILLS {
                return self.fault(path, format!("has more than {MAX_SKILLS} skills; the others are left out"));
            }
            if is_link {
                self.fault(&inner, "is a link, and daoyou follows none here; put the folder itself there");
            } else if !self.add_skill(dir, &inner, &name) {
                self.scan.folders.push(inner.clone());
                if !has_groups || Self::is_skill(dir, &name) {
                    continue;
                }
                match self.jail.folder(&inner) {
                    Ok((group, _)) => self.scan_folder(&group, &inner, false),
                    // The folder was removed in the meantime.
                    Err(JailError::Missing(_) | JailError::NotFolder(_)) => {}
                    Err(error) => self.fault(&inner, reason_of(&error)),
                }
            }
        }
    }

    /// Adds the wanted file in the folder `path`, which is `name` in `dir`. Returns false if there is none.
    fn add_skill(&mut self, dir: &Dir, path: &str, name: &str) -> bool {
        for file in self.names {
            // If a component is a link, reading the file fails later.
            match statat(dir, Path::new(name).join(file), AtFlags::SYMLINK_NOFOLLOW) {
                Ok(found) => {
                    let version = FileVersion::of(&found);
                    self.scan.files.push(SkillFile { folder: path.to_owned(), name: file, version });
                    return true;
                }
                Err(Errno::NOENT | Errno::NOTDIR) => {}
                Err(error) => {
                    self.fault(path, io::Error::from(error).to_string());
                    return true;
                }
            }
        }
        false
    }

    /// Returns true if the folder `name` of `dir` is a skill, and therefore not a group. Opening the folder to find out would
    /// cost far more.
    fn is_skill(dir: &Dir, name: &str) -> bool {
        let is_there = |file: &&str| statat(dir, Path::new(name).join(file), AtFlags::SYMLINK_NOFOLLOW).is_ok();
        FILE_NAMES.iter().any(is_there)
    }

    /// Returns the names of folders and links in a folder, sorted, and whether they are links. Hidden entries are left out.
    fn entries(&mut self, dir: &Dir, path: &str) -> io::Result<Vec<(String, bool)>> {
        let mut names = Vec::new();
        for entry in dir.entries()? {
            let Some(left) = self.entries_left.checked_sub(1) else {
                self.fault(path, format!("has more than {MAX_ENTRIES} entries; the others are left out"));
                break;
            };
            self.entries_left = left;
            let entry = entry?;
            let Ok(kind) = entry.file_type() else { continue };
            if !kind.is_dir() && !kind.is_symlink() {
                continue;
            }
            match entry.file_name().into_string() {
                Ok(name) if name.starts_with('.') => {}
                Ok(name) => names.push((name, kind.is_symlink())),
                Err(name) => self.fault(&join(path, &name.to_string_lossy()), "has a name that is not UTF-8"),
            }
        }
        names.sort();
        Ok(names)
    }
}

/// Resolves `.` and `..` lexically.
fn without_dots(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => drop(plain.pop()),
            other => plain.push(other),
        }
    }
    plain
}

/// Joins a folder of a source and a name.
pub(super) fn join(folder: &str, name: &str) -> String {
    if folder == "." { name.to_owned() } else { format!("{folder}/{name}") }
}

/// Returns why the jail does not serve a path, without the path.
pub(super) fn reason_of(error: &JailError) -> String {
    let text = error.to_string();
    match text.rsplit_once(": ") {
        Some((_, reason)) if !matches!(error, JailError::Io { .. }) => reason.to_owned(),
        _ => text,
    }
}
