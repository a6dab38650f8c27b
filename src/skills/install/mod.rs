//! Installs skills into the folder `skills/` of a workspace. The owner reviews the files first, and nothing of a skill is run.
//! The files are pinned: an installed skill whose files have changed is not used until the owner accepts the change.

mod package;
mod pins;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use cap_std::ambient_authority;
use cap_std::fs::Dir;
use jiff::Timestamp;
use rustix::fs::{Mode, OFlags, openat};
use serde::Serialize;

pub(super) use package::digest_of;
use package::refusal_of;
pub use package::{PackageFile, SkillPackage};
pub use pins::{FileDigests, FolderListing, PinsByFolder, SkillPin, SkillPins, differences};

use super::catalog::{SkillCatalog, manifest_problems, problems_of_all, sort_problems};
use super::discovery::{FILE_NAMES, INSTALL_FOLDER, SkillSource, SkillsConfig};
use super::frontmatter::{SkillManifest, parse_manifest};
use super::requirements::{ProgramSearch, SkillHost};
use super::skill::{Skill, SkillLocation, SkillProblem};
use crate::guard::{create_dir_beneath, rename_to_new, sync_folder};
use crate::text::is_hidden;

/// The maximum number of files of one skill, and their maximum total size in bytes.
const MAX_FILES: usize = 1_000;
const MAX_BYTES: usize = 20_000_000;
/// The maximum size of a `SKILL.md`, in bytes.
const MAX_SKILL_FILE: usize = 1_000_000;
/// The name prefix of folders whose files are still being written. The catalog ignores names that begin with a dot.
const INCOMING: &str = ".installing-";
/// The file extensions of scripts.
const SCRIPT_ENDINGS: &[&str] =
    &["sh", "bash", "zsh", "fish", "py", "js", "mjs", "cjs", "ts", "rb", "pl", "php", "lua", "ps1", "bat", "cmd"];

/// A skill in a package that can be installed.
#[derive(Debug)]
pub struct SkillCandidate {
    pub manifest: SkillManifest,
    /// The skill's folder in the package; empty for the package itself.
    pub folder: String,
    /// The files by their paths in the folder of the skill.
    files: BTreeMap<String, PackageFile>,
}

/// The information that the owner needs before installing a skill or accepting its change.
#[derive(Debug, Serialize)]
pub struct SkillReview {
    pub name: String,
    pub description: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub license: Option<String>,
    pub source: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    /// The tools to which the skill limits a turn; empty for no limit.
    pub allowed_tools: Vec<String>,
    /// The reason why the skill could not be used on this machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unmet: Option<String>,
    pub files: Vec<ReviewedFile>,
    pub warnings: Vec<String>,
    /// How the files differ from the files that are installed under this name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub changes: Option<String>,
}

/// A file of a skill, as shown to the owner.
#[derive(Debug, Serialize)]
pub struct ReviewedFile {
    pub path: String,
    pub bytes: usize,
    pub kind: ReviewedFileKind,
}

/// The kind of a reviewed file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ReviewedFileKind {
    Text,
    Script,
    Binary,
}

impl PackageFile {
    fn kind(&self, path: &str) -> ReviewedFileKind {
        let ending = Path::new(path).extension().and_then(|ending| ending.to_str()).unwrap_or_default();
        let is_script = self.is_executable || self.bytes.starts_with(b"#!") || SCRIPT_ENDINGS.contains(&ending);
        match std::str::from_utf8(&self.bytes) {
            Ok(text) if text.contains('\0') => ReviewedFileKind::Binary,
            Ok(_) if is_script => ReviewedFileKind::Script,
            Ok(_) => ReviewedFileKind::Text,
            Err(_) => ReviewedFileKind::Binary,
        }
    }
}

impl SkillCandidate {
    /// Finds the skills of a package: each folder with a `SKILL.md` that is not inside another skill. An unusable skill becomes
    /// an error in the result, and so does each of several different skills with one name.
    pub fn find(package: &SkillPackage, fallback_name: &str) -> Vec<Result<Self, String>> {
        let folders: BTreeSet<&str> = package.files.keys().filter_map(|path| skill_folder(path)).collect();
        let is_within = |folder: &str, outer: &str| folder != outer && below(folder, outer).is_some();
        let outermost: Vec<&str> =
            folders.iter().filter(|folder| !folders.iter().any(|outer| is_within(folder, outer))).copied().collect();
        let mut found: Vec<Result<Self, String>> = Vec::new();
        for candidate in outermost.into_iter().map(|folder| Self::of_folder(package, folder, fallback_name)) {
            // Many repositories have one skill several times, for different programs.
            let is_copy = |other: &Self| {
                candidate.as_ref().is_ok_and(|skill| skill.name() == other.name() && skill.files == other.files)
            };
            if !found.iter().flatten().any(is_copy) {
                found.push(candidate);
            }
        }
        let mut counts: HashMap<String, usize> = HashMap::new();
        for skill in found.iter().flatten() {
            *counts.entry(skill.name().to_owned()).or_default() += 1;
        }
        let unique = found.into_iter().map(|found| match found {
            Ok(skill) if counts.get(skill.name()).is_some_and(|count| *count > 1) => Err(format!(
                "{}: another skill of the package, which differs, is also named {}; clone the repository or unpack the archive, \
                 and install the right folder",
                skill.folder,
                skill.name()
            )),
            found => found,
        });
        unique.collect()
    }

    /// Reads the skill in a folder of a package.
    fn of_folder(package: &SkillPackage, folder: &str, fallback_name: &str) -> Result<Self, String> {
        let files: BTreeMap<String, PackageFile> = package
            .files
            .iter()
            .filter_map(|(path, file)| Some((below(path, folder)?.to_owned(), file.clone())))
            .collect();
        let name = folder.rsplit('/').next().filter(|name| !name.is_empty()).unwrap_or(fallback_name);
        let shown = if folder.is_empty() { FILE_NAMES[0].to_owned() } else { format!("{folder}/{}", FILE_NAMES[0]) };
        let skill_file =
            FILE_NAMES.iter().find_map(|name| files.get(*name)).ok_or_else(|| format!("{shown}: missing"))?;
        if skill_file.bytes.len() > MAX_SKILL_FILE {
            return Err(format!("{shown}: larger than {} MB", MAX_SKILL_FILE / 1_000_000));
        }
        let manifest = parse_manifest(&skill_file.bytes, name).map_err(|fault| {
            let line = fault.line.map(|line| format!(":{line}")).unwrap_or_default();
            format!("{shown}{line}: {}", fault.reason)
        })?;
        if let Some(other) = package.others.iter().find(|path| below(path, folder).is_some()) {
            return Err(refusal_of(other));
        }
        let bytes: usize = files.values().map(|file| file.bytes.len()).sum();
        if files.len() > MAX_FILES || bytes > MAX_BYTES {
            let limits = format!("{MAX_FILES} files and {} MB", MAX_BYTES / 1_000_000);
            return Err(format!("{shown}: the skill has {} files of {bytes} bytes, more than {limits}", files.len()));
        }
        if let Some(path) = files.keys().find(|path| path.chars().any(char::is_control)) {
            return Err(format!("{path:?}: has control characters in its name"));
        }
        Ok(Self { manifest, folder: folder.to_owned(), files })
    }

    pub fn name(&self) -> &str {
        &self.manifest.name
    }

    /// Returns the digests of the skill's files.
    pub fn digests(&self) -> FileDigests {
        self.files.iter().map(|(path, file)| (path.clone(), file.digest())).collect()
    }

    /// Returns the review for the owner. `before` are the files that were accepted under this name.
    pub fn review(
        &self,
        source: &str,
        revision: Option<&str>,
        host: &SkillHost,
        before: Option<&FileDigests>,
    ) -> SkillReview {
        let manifest = &self.manifest;
        let mut warnings: Vec<String> = manifest.warnings.iter().map(|warning| warning.reason.clone()).collect();
        warnings.extend(manifest_problems(manifest));
        for (path, file) in &self.files {
            // Emoji contain variation selectors, which are harmless.
            let hides = |c: char| {
                is_hidden(c) && !matches!(c, '\u{fe00}'..='\u{fe0f}')
                    || matches!(c, '\u{200b}' | '\u{202a}'..='\u{202e}')
            };
            if std::str::from_utf8(&file.bytes).is_ok_and(|text| text.chars().any(hides)) {
                warnings.push(format!("{path} has characters that are not shown, which can hide text"));
            }
        }
        let file = |(path, file): (&String, &PackageFile)| ReviewedFile {
            path: path.clone(),
            bytes: file.bytes.len(),
            kind: file.kind(path),
        };
        SkillReview {
            name: manifest.name.clone(),
            description: manifest.description.clone(),
            version: manifest.version.clone(),
            license: manifest.license.clone(),
            source: source.to_owned(),
            revision: revision.map(str::to_owned),
            allowed_tools: manifest.allowed_tools.clone(),
            unmet: ProgramSearch::new(host).unmet(&manifest.requirements, &manifest.install_hints),
            files: self.files.iter().map(file).collect(),
            warnings,
            changes: before.and_then(|before| differences(before, &self.digests(), MAX_FILES)),
        }
    }
}

/// Returns the problems of the skills below `folder`, or of the skill that `folder` itself is, with the reasons why they cannot be
/// installed. The paths are absolute.
///
/// # Errors
/// `folder` is not a folder that can be read.
pub fn check_skills(folder: &Path) -> io::Result<Vec<SkillProblem>> {
    std::fs::read_dir(folder)?;
    let source = SkillSource::named("checked", folder.to_owned());
    // A skill is not at fault for requirements that this machine does not meet.
    let host = SkillHost::new(Vec::new(), |_| false, "");
    let list = SkillCatalog::new(&SkillsConfig::default(), vec![source], &[], host).scan();
    let mut problems = problems_of_all(&list);
    problems.extend(list.skills.iter().filter_map(install_problem));
    sort_problems(&mut problems);
    if list.skills.is_empty() && problems.is_empty() {
        problems.push(SkillProblem::new(folder.display().to_string(), "has no skill: no NAME/SKILL.md is in it"));
    }
    Ok(problems)
}

/// Returns the reason why a skill cannot be installed.
fn install_problem(skill: &Skill) -> Option<SkillProblem> {
    let SkillLocation::File { path, folder, .. } = &skill.location else { return None };
    let place = path.parent()?;
    // A package may be a repository, and a skill in it may not.
    let package = if folder == "." { SkillPackage::of_folder(place) } else { SkillPackage::of_installed(place) };
    let reason = package.and_then(|package| SkillCandidate::of_folder(&package, "", skill.name())).err()?;
    Some(SkillProblem::new(skill.path(), format!("cannot be installed: {reason}")))
}

/// Returns the folder of a skill if `path` is its `SKILL.md`.
fn skill_folder(path: &str) -> Option<&str> {
    let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
    FILE_NAMES.contains(&name).then_some(folder)
}

/// Returns `path` relative to `folder`, if it lies below the folder.
fn below<'a>(path: &'a str, folder: &str) -> Option<&'a str> {
    if folder.is_empty() { Some(path) } else { path.strip_prefix(folder)?.strip_prefix('/') }
}

/// The installed skills of a workspace.
pub struct InstalledSkills {
    workspace: PathBuf,
    pins: SkillPins,
}

impl InstalledSkills {
    pub fn new(workspace: &Path, home: &Path) -> Self {
        Self { workspace: workspace.to_owned(), pins: SkillPins::in_home(home) }
    }

    /// Returns the pins.
    ///
    /// # Errors
    /// The pin file cannot be read.
    pub fn pins(&self) -> Result<PinsByFolder, String> {
        self.pins.read().map_err(|error| format!("{}: {error}", self.pins.path().display()))
    }

    /// Returns true if the path of this skill is taken.
    pub fn is_taken(&self, name: &str) -> bool {
        self.workspace.join(INSTALL_FOLDER).join(name).symlink_metadata().is_ok()
    }

    /// Reads the current files of an installed skill.
    ///
    /// # Errors
    /// The files cannot be read, or are not a skill.
    pub fn candidate(&self, name: &str) -> Result<SkillCandidate, String> {
        let package = SkillPackage::of_installed(&self.workspace.join(INSTALL_FOLDER).join(name))?;
        SkillCandidate::of_folder(&package, "", name)
    }

    /// Writes the files of a skill into the workspace and pins them. Once the new files are written, `discard` moves an existing
    /// skill of this name away, and returns how it can be restored.
    ///
    /// # Errors
    /// The workspace or the pins cannot be written.
    pub fn install(
        &self,
        skill: &SkillCandidate,
        (source, revision): (&str, Option<&str>),
        discard: impl FnOnce() -> Result<String, String>,
    ) -> Result<(), String> {
        let name = skill.name();
        let place = self.workspace.join(INSTALL_FOLDER).join(name);
        let failed = |error: io::Error| format!("{}: {error}", place.display());
        let _lock = self.pins.lock().map_err(failed)?;
        let workspace = Dir::open_ambient_dir(&self.workspace, ambient_authority()).map_err(failed)?;
        let skills = create_dir_beneath(&workspace, Path::new(INSTALL_FOLDER)).map_err(failed)?;
        // An interrupted installation has left these. The lock is held, so no other installation is running.
        for entry in skills.entries().map_err(failed)?.flatten() {
            let name = entry.file_name();
            if name.to_str().is_some_and(|name| name.starts_with(INCOMING)) {
                skills.remove_dir_all(&name).map_err(failed)?;
            }
        }
        let incoming = format!("{INCOMING}{}", daoyou_channels::new_id());
        let mut hint = String::new();
        let written = self.write_files(skill, &skills, &incoming).map_err(failed).and_then(|()| {
            if self.is_taken(name) {
                hint = format!("; the earlier one: {}", discard()?);
            }
            self.pin(name, skill.digests(), source, revision).map_err(failed)?;
            rename_to_new(&skills, incoming.as_ref(), &skills, name.as_ref()).map_err(|error| failed(error.into()))?;
            sync_folder(&skills);
            Ok(())
        });
        written.map_err(|error| {
            // The error of the installation is the one to report.
            drop(skills.remove_dir_all(&incoming));
            error + &hint
        })
    }

    fn write_files(&self, skill: &SkillCandidate, skills: &Dir, incoming: &str) -> io::Result<()> {
        let folder = create_dir_beneath(skills, Path::new(incoming))?;
        for (path, content) in &skill.files {
            let path = Path::new(path);
            let parent = create_dir_beneath(&folder, path.parent().unwrap_or(Path::new("")))?;
            let name = path.file_name().ok_or_else(|| io::Error::other("a file without a name"))?;
            let mode = if content.is_executable { 0o700 } else { 0o600 };
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let mut file = std::fs::File::from(openat(parent.as_fd(), name, flags, Mode::from_bits_truncate(mode))?);
            file.write_all(&content.bytes)?;
            file.sync_all()?;
        }
        Ok(())
    }

    /// Pins files, or replaces their pin.
    fn pin(&self, name: &str, files: FileDigests, source: &str, revision: Option<&str>) -> io::Result<()> {
        let mut pins = self.pins.read()?;
        let pin = SkillPin {
            source: source.to_owned(),
            revision: revision.map(str::to_owned),
            installed_at: Timestamp::now(),
            files,
        };
        pins.insert(name.to_owned(), pin);
        self.pins.write(&pins)
    }

    /// Accepts the current files of an installed skill.
    ///
    /// # Errors
    /// The pins cannot be written, or there is no pin.
    pub fn accept(&self, name: &str, skill: &SkillCandidate) -> Result<(), String> {
        let _lock = self.pins.lock().map_err(|error| error.to_string())?;
        let pin = self.pins()?.remove(name).ok_or_else(|| format!("{name} is not pinned"))?;
        self.pin(name, skill.digests(), &pin.source, pin.revision.as_deref()).map_err(|error| error.to_string())
    }

    /// Removes the pin of a skill that has been removed. Returns false if there was none.
    ///
    /// # Errors
    /// The pins cannot be written.
    pub fn unpin(&self, name: &str) -> Result<bool, String> {
        let _lock = self.pins.lock().map_err(|error| error.to_string())?;
        let mut pins = self.pins()?;
        let was_pinned = pins.remove(name).is_some();
        if was_pinned {
            self.pins.write(&pins).map_err(|error| error.to_string())?;
        }
        Ok(was_pinned)
    }
}
