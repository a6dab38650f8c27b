//! The catalog of skills. Each turn consults it, and it parses only files that have changed.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;

use super::discovery::{FILE_NAMES, SkillFile, SkillSource, SkillsConfig, SourceScan, reason_of};
use super::frontmatter::{SkillManifest, SkillManifestError, parse_manifest};
use super::install::{FileDigests, FolderListing, PinsByFolder, SkillPins, differences};
use super::requirements::{ProgramSearch, SkillHost};
use super::skill::{ShadowedSkill, Skill, SkillList, SkillLocation, SkillProblem};
use crate::guard::{FileVersion, Jail, JailError};
use crate::tools::allow_rule_fault;

/// For how long later turns use the result of a scan without examining the disk, unless a tool may have changed a file since the scan
/// began.
const MAX_AGE: Duration = Duration::from_millis(10);
/// For how long they use it while the scanned folders and files are unchanged. A program may have been installed since, and file
/// systems with coarse times do not show every change.
const UNCHANGED_MAX_AGE: Duration = Duration::from_secs(1);
/// The maximum number of folders and files whose versions a turn compares instead of a scan.
const MAX_COMPARED: usize = 64;
/// A folder that changed so shortly before a scan may have changed again during it, at the same time of its file system.
const CLOCK_TICK: Duration = Duration::from_millis(50);

/// The source of the skills that are part of the program.
const BUILT_IN_SOURCE: &str = "built-in";

/// The maximum number of file names in a reason.
const MAX_NAMES: usize = 3;
/// The maximum length of a description, in characters (Agent Skills).
const MAX_DESCRIPTION: usize = 1_024;

/// The skills that are part of the program: their names and files. Each costs tokens in every request, so their descriptions are
/// short and there are few of them.
pub const BUILT_IN_SKILLS: &[BuiltInSkill] = &[
    ("scheduling", include_str!("built_in/scheduling.md")),
    ("memory-care", include_str!("built_in/memory-care.md")),
    ("research", include_str!("built_in/research.md")),
    ("email-manners", include_str!("built_in/email-manners.md")),
    ("github", include_str!("built_in/github.md")),
    ("home-server", include_str!("built_in/home-server.md")),
    ("skill-writing", include_str!("built_in/skill-writing.md")),
];

/// The name of a skill and the text of its `SKILL.md`.
pub type BuiltInSkill = (&'static str, &'static str);

/// The parsed content of a file, or why it is not a skill.
type ParsedSkill = Result<Arc<SkillManifest>, SkillManifestError>;

/// The parsed files, by their paths.
type ParsedFiles = HashMap<PathBuf, (FileVersion, ParsedSkill)>;

/// The skills of all sources.
pub struct SkillCatalog {
    sources: Vec<Arc<SkillSource>>,
    built_in: Vec<(BuiltInSkill, ParsedSkill)>,
    disabled: BTreeSet<String>,
    pins: Option<SkillPins>,
    host: SkillHost,
    state: Mutex<CatalogState>,
    /// How often a tool may have changed a file.
    changes: AtomicUsize,
    parses: AtomicUsize,
}

#[derive(Default)]
struct CatalogState {
    parsed: ParsedFiles,
    pins: KnownPins,
    list: Arc<SkillList>,
    last_scan: Option<ScanStart>,
    scanned: Option<ScannedVersions>,
}

impl CatalogState {
    /// Returns true if the last scan would have the same result now.
    fn is_unchanged(&self) -> bool {
        self.scanned.as_ref().is_some_and(ScannedVersions::are_current)
    }
}

/// The time and the count of changes at which a scan of the sources began.
#[derive(Clone, Copy)]
struct ScanStart {
    began: Instant,
    changes: usize,
    /// The last time at which the sources were examined.
    examined: Instant,
}

/// The versions of all folders and files that a scan examined. A missing one has none.
struct ScannedVersions(Vec<(PathBuf, Option<FileVersion>)>);

impl ScannedVersions {
    /// Returns the versions; `None` if there are too many, or if one changed during the scan, which began at `began`.
    fn of(folders: Vec<PathBuf>, files: &ParsedFiles, began: SystemTime) -> Option<Self> {
        if folders.len() + files.len() > MAX_COMPARED {
            return None;
        }
        let folders = folders.into_iter().map(|path| (FileVersion::of_target(&path), path));
        let files = files.iter().map(|(path, (version, _))| (Some(*version), path.clone()));
        let versions: Vec<_> = folders.chain(files).map(|(version, path)| (path, version)).collect();
        let since = began - CLOCK_TICK;
        let is_certain =
            versions.iter().all(|(_, version)| version.is_none_or(|version| !version.changed_since(since)));
        is_certain.then_some(Self(versions))
    }

    fn are_current(&self) -> bool {
        self.0.iter().all(|(path, version)| FileVersion::of_target(path) == *version)
    }
}

impl SkillCatalog {
    /// Creates a catalog. Nothing is read before the first scan.
    pub fn new(config: &SkillsConfig, sources: Vec<SkillSource>, built_in: &[BuiltInSkill], host: SkillHost) -> Self {
        let parse = |(name, text): &BuiltInSkill| ((*name, *text), parse_manifest(text.as_bytes(), name).map(Arc::new));
        Self {
            sources: sources.into_iter().map(Arc::new).collect(),
            built_in: built_in.iter().filter(|_| config.built_in).map(parse).collect(),
            disabled: config.disabled.iter().cloned().collect(),
            pins: None,
            host,
            state: Mutex::default(),
            changes: AtomicUsize::new(0),
            parses: AtomicUsize::new(0),
        }
    }

    /// Returns the same catalog with pins: a pinned skill is used only if its files have not changed.
    pub fn with_pins(self, pins: SkillPins) -> Self {
        Self { pins: Some(pins), ..self }
    }

    /// Reads all files of a pinned skill, and returns its pinned digests; `None` without a pin. The list itself relies on the
    /// times of files.
    ///
    /// # Errors
    /// A file differs or cannot be read; the text is for the model.
    pub fn verify(&self, skill: &Skill) -> Result<Option<FileDigests>, String> {
        let (Some(file), SkillLocation::File { source, folder, .. }) = (&self.pins, &skill.location) else {
            return Ok(None);
        };
        let Some(name) = source.installed_name(folder) else { return Ok(None) };
        let mut pins = file.read().map_err(|error| format!("{}: {error}", file.path().display()))?;
        let Some(pin) = pins.remove(name) else { return Ok(None) };
        let jail = source.open_unbounded().ok_or("its folder cannot be opened")?;
        let (digests, _) = FolderListing::of(&jail, folder).digests(&jail, folder);
        match differences(&pin.files, &digests, MAX_NAMES) {
            None => Ok(Some(pin.files)),
            Some(differences) => Err(difference_text(name, &differences)),
        }
    }

    /// Returns how many files were parsed.
    pub fn parses(&self) -> usize {
        self.parses.load(Ordering::Relaxed)
    }

    /// Returns true if a turn may use the last scan because nothing on disk has changed.
    #[cfg(test)]
    pub(super) fn is_unchanged(&self) -> bool {
        self.state.lock().is_unchanged()
    }

    /// Returns the skills that are on disk now. If nothing has changed, returns the same list as before.
    pub fn scan(&self) -> Arc<SkillList> {
        self.scan_with(&mut self.state.lock(), Instant::now())
    }

    /// Ends the sharing of scans that began before this call. It is called after a tool may have changed files.
    pub fn expire(&self) {
        self.changes.fetch_add(1, Ordering::AcqRel);
    }

    /// Returns the skills, if the disk was examined just now. Does not block.
    pub fn recent(&self) -> Option<Arc<SkillList>> {
        self.examined_before(&*self.state.try_lock()?, Instant::now())
    }

    /// Returns the skills that are on disk now. Compares the versions of a few paths, and scans the sources if one has changed.
    pub fn recent_or_scan(&self) -> Arc<SkillList> {
        self.recent_or_scan_at(Instant::now())
    }

    pub(super) fn recent_or_scan_at(&self, now: Instant) -> Arc<SkillList> {
        let mut state = self.state.lock();
        // Another turn may have examined the disk while this one waited.
        let list = self.examined_before(&state, now).or_else(|| self.unchanged_since_scan(&mut state, now));
        list.unwrap_or_else(|| self.scan_with(&mut state, now))
    }

    fn examined_before(&self, state: &CatalogState, now: Instant) -> Option<Arc<SkillList>> {
        let start = state.last_scan.filter(|start| start.changes == self.changes.load(Ordering::Acquire))?;
        (now.saturating_duration_since(start.examined) < MAX_AGE).then(|| state.list.clone())
    }

    fn unchanged_since_scan(&self, state: &mut CatalogState, now: Instant) -> Option<Arc<SkillList>> {
        let start = state.last_scan.filter(|start| start.changes == self.changes.load(Ordering::Acquire))?;
        if now.saturating_duration_since(start.began) >= UNCHANGED_MAX_AGE || !state.is_unchanged() {
            return None;
        }
        state.last_scan = Some(ScanStart { examined: now, ..start });
        Some(state.list.clone())
    }

    fn scan_with(&self, state: &mut CatalogState, began: Instant) -> Arc<SkillList> {
        let start = ScanStart { began, changes: self.changes.load(Ordering::Acquire), examined: began };
        let time = SystemTime::now();
        let before = std::mem::take(&mut state.parsed);
        if let Some(pins) = &self.pins {
            state.pins.refresh(pins);
        }
        let mut scan = CatalogScan {
            catalog: self,
            before,
            parsed: HashMap::new(),
            programs: ProgramSearch::new(&self.host),
            pins: std::mem::take(&mut state.pins),
            pinned_seen: HashSet::new(),
            used: HashMap::new(),
            folders: Vec::new(),
            list: SkillList::default(),
        };
        let mut seen = HashSet::new();
        for source in &self.sources {
            scan.add_source(source, &mut seen);
        }
        scan.add_built_in();
        scan.add_missing();
        let CatalogScan { mut list, parsed, pins, folders, used, .. } = scan;
        // A skill that cannot be read may be the one that is named, and its problem may be temporary.
        let is_complete = list.problems.is_empty();
        // The files of pinned skills are not in the list.
        let is_comparable = is_complete && pins.names().next().is_none();
        state.scanned = if is_comparable { ScannedVersions::of(folders, &parsed, time) } else { None };
        let unknown = self.disabled.iter().filter(|name| is_complete && !used.contains_key(*name));
        let problem =
            |name: &String| SkillProblem::new("skills.disabled", format!("names {name:?}, which is not a skill"));
        list.problems.extend(unknown.map(problem));
        (state.parsed, state.pins) = (parsed, pins);
        if *state.list != list {
            log_changes(&state.list, &list);
            state.list = Arc::new(list);
        }
        state.last_scan = Some(start);
        state.list.clone()
    }
}

/// A scan of all sources, which builds a new list.
struct CatalogScan<'a> {
    catalog: &'a SkillCatalog,
    before: ParsedFiles,
    parsed: ParsedFiles,
    programs: ProgramSearch<'a>,
    pins: KnownPins,
    /// The folders of the installed skills that were found.
    pinned_seen: HashSet<String>,
    /// The path of the skill that is used for each name.
    used: HashMap<String, String>,
    /// The folders of skills and groups; some are missing.
    folders: Vec<PathBuf>,
    list: SkillList,
}

impl CatalogScan<'_> {
    /// Adds the skills of a source. A folder in `seen` already belongs to another source.
    fn add_source(&mut self, source: &Arc<SkillSource>, seen: &mut HashSet<PathBuf>) {
        let jail = match source.open() {
            Ok(Some(jail)) => jail,
            Ok(None) => return self.folders.push(source.path()),
            Err(error) => {
                let path = source.path().display().to_string();
                return self.list.problems.push(SkillProblem::new(path, error.to_string()));
            }
        };
        if !seen.insert(source.real_path(&jail)) {
            return;
        }
        let SourceScan { files, folders, faults } = source.scan_for(&jail, &FILE_NAMES);
        self.folders.extend(folders.iter().map(|folder| jail.root().join(folder)));
        let shown = |path: &str| jail.root().join(path).display().to_string();
        let problems = faults.iter().map(|(path, reason)| SkillProblem::new(shown(path), reason));
        self.list.problems.extend(problems);
        for file in files {
            let path = jail.root().join(file.path());
            // Sources may overlap, so a file may already be known.
            if self.parsed.contains_key(&path) {
                continue;
            }
            let parsed = self.parse(&jail, &file, &path);
            let SkillFile { folder, name, .. } = file;
            let location = SkillLocation::File { path, source: source.clone(), folder, file: name };
            self.add(parsed, source.label.clone(), location, Some(&jail));
        }
    }

    /// Adds a problem for each installed skill that is gone.
    fn add_missing(&mut self) {
        let Some(file) = &self.catalog.pins else { return };
        for name in self.pins.names().filter(|name| !self.pinned_seen.contains(*name)) {
            let problem = format!(
                "the installed skill {name} is gone from skills/{name}; daoyou skills remove {name} forgets it"
            );
            self.list.problems.push(SkillProblem::new(file.path().display().to_string(), problem));
        }
    }

    fn add_built_in(&mut self) {
        for ((name, text), parsed) in &self.catalog.built_in {
            let location = SkillLocation::BuiltIn { name, text };
            self.add(parsed.clone(), BUILT_IN_SOURCE.into(), location, None);
        }
    }

    /// Returns the parsed content of a file. A file that has not changed is not read again.
    fn parse(&mut self, jail: &Jail, file: &SkillFile, path: &Path) -> ParsedSkill {
        let parsed = match self.before.remove(path) {
            Some((version, parsed)) if version == file.version => parsed,
            _ => {
                self.catalog.parses.fetch_add(1, Ordering::Relaxed);
                match jail.read(&file.path()) {
                    Ok(content) => parse_manifest(&content.bytes, &file.folder_name(jail)).map(Arc::new),
                    // The error may be temporary, so the result is not stored.
                    Err(error @ (JailError::Io { .. } | JailError::Missing(_))) => {
                        return Err(SkillManifestError::new(None, reason_of(&error)));
                    }
                    Err(error) => Err(SkillManifestError::new(None, reason_of(&error))),
                }
            }
        };
        self.parsed.insert(path.to_owned(), (file.version, parsed.clone()));
        parsed
    }

    /// Adds a skill, or its problem.
    fn add(&mut self, parsed: ParsedSkill, source: Arc<str>, location: SkillLocation, jail: Option<&Jail>) {
        let path = location.shown();
        let pinned = self.pins.name_of(&location);
        self.pinned_seen.extend(pinned.clone());
        let manifest = match parsed {
            Ok(manifest) => manifest,
            Err(fault) => return self.list.problems.push(SkillProblem::of_fault(path, &fault)),
        };
        let warnings = manifest.warnings.iter().map(|warning| SkillProblem::of_fault(path.as_str(), warning));
        self.list.problems.extend(warnings);
        if path.ends_with(FILE_NAMES[1]) {
            self.list
                .problems
                .push(SkillProblem::new(path.as_str(), "is better named SKILL.md: others do not find it"));
        }
        if jail.is_some() && pinned.as_ref() != Some(&manifest.name) && self.pins.has(&manifest.name) {
            let problem =
                format!("has the name of the installed skill {}, so it is not used; rename it", manifest.name);
            return self.list.problems.push(SkillProblem::new(path, problem));
        }
        if let Some(by) = self.used.get(&manifest.name) {
            let (name, by) = (manifest.name.clone(), by.clone());
            return self.list.shadowed.push(ShadowedSkill { name, path, by });
        }
        self.used.insert(manifest.name.clone(), path);
        let is_disabled = self.catalog.disabled.contains(&manifest.name);
        let unavailable = if is_disabled {
            Some("disabled by skills.disabled in the configuration".to_owned())
        } else {
            let unmet = self.programs.unmet(&manifest.requirements, &manifest.install_hints);
            unmet.or_else(|| {
                let difference = self.pins.difference(&location, jail?)?;
                let path = location.shown();
                self.list.problems.push(SkillProblem::new(path, difference.as_str()));
                Some(difference)
            })
        };
        self.list.skills.push(Skill { manifest, source, location, unavailable, is_disabled });
    }
}

/// The pins, and the differences of pinned skills at the last scan.
struct KnownPins {
    version: Option<FileVersion>,
    /// The pins, or why they cannot be read.
    pins: Result<PinsByFolder, String>,
    folders: HashMap<String, (FolderListing, Option<String>)>,
}

impl Default for KnownPins {
    fn default() -> Self {
        Self { version: None, pins: Ok(PinsByFolder::new()), folders: HashMap::new() }
    }
}

impl KnownPins {
    /// Reads the pins again if their file has changed.
    fn refresh(&mut self, file: &SkillPins) {
        let version = file.version();
        if self.version != version || self.pins.is_err() {
            let pins = file.read().map_err(|error| format!("{}: {error}", file.path().display()));
            *self = Self { version, pins, folders: HashMap::new() };
        }
    }

    fn has(&self, name: &str) -> bool {
        self.pins.as_ref().is_ok_and(|pins| pins.contains_key(name))
    }

    fn names(&self) -> impl Iterator<Item = &String> {
        self.pins.iter().flat_map(PinsByFolder::keys)
    }

    /// Returns the name under which a skill is pinned.
    fn name_of(&self, location: &SkillLocation) -> Option<String> {
        let SkillLocation::File { source, folder, .. } = location else { return None };
        source.installed_name(folder).filter(|name| self.has(name)).map(str::to_owned)
    }

    /// Returns why a pinned skill is not used: its files differ from the files that the owner has accepted.
    fn difference(&mut self, location: &SkillLocation, jail: &Jail) -> Option<String> {
        let SkillLocation::File { source, folder, .. } = location else { return None };
        let name = source.installed_name(folder)?;
        let pin = match &self.pins {
            Ok(pins) => pins.get(name)?,
            Err(error) => return Some(format!("it may have changed since it was installed: {error}")),
        };
        if let Some((known, difference)) = self.folders.get(name)
            && known.is_current(jail, folder)
        {
            return difference.clone();
        }
        let listing = FolderListing::of(jail, folder);
        if let Some((known, difference)) = self.folders.get(name)
            && *known == listing
        {
            return difference.clone();
        }
        let Some(jail) = source.open_unbounded() else { return Some("its folder cannot be opened".to_owned()) };
        let (digests, is_complete) = listing.digests(&jail, folder);
        let difference = differences(&pin.files, &digests, MAX_NAMES).map(|text| difference_text(name, &text));
        // An unreadable file may be readable the next time, so the result is stored only if it is complete.
        if is_complete {
            self.folders.insert(name.to_owned(), (listing, difference.clone()));
        }
        difference
    }
}

fn difference_text(name: &str, differences: &str) -> String {
    format!("differs from what was installed ({differences}); daoyou skills accept {name} accepts it as it is now")
}

/// Logs the problems that are new since the last scan.
fn log_changes(before: &SkillList, now: &SkillList) {
    let known: HashSet<_> = before.problems.iter().collect();
    for problem in now.problems.iter().filter(|problem| !known.contains(problem)) {
        let SkillProblem { path, line, problem } = problem;
        tracing::warn!(path, line, problem, "a skill has a problem");
    }
    let known: HashSet<_> = before.shadowed.iter().collect();
    for ShadowedSkill { name, path, by } in now.shadowed.iter().filter(|skill| !known.contains(skill)) {
        tracing::info!(name, path, by, "a skill is not used: an earlier one has its name");
    }
}

/// Returns all problems, sorted by path: of files, of skills that can be used nevertheless, and of names that occur twice.
pub fn problems_of_all(list: &SkillList) -> Vec<SkillProblem> {
    let SkillList { skills, problems, shadowed } = list;
    let mut problems = problems.clone();
    for skill in skills {
        let found = manifest_problems(&skill.manifest).into_iter();
        problems.extend(found.map(|problem| SkillProblem::new(skill.path(), problem)));
    }
    for skill in shadowed {
        let problem = format!("has the name {}, as {} has: only the first is used", skill.name, skill.by);
        problems.push(SkillProblem::new(skill.path.as_str(), problem));
    }
    sort_problems(&mut problems);
    problems
}

/// Sorts problems by path and line.
pub(super) fn sort_problems(problems: &mut [SkillProblem]) {
    problems.sort_by(|one, other| (&one.path, one.line).cmp(&(&other.path, other.line)));
}

/// Returns the problems of a skill that can be used.
pub(super) fn manifest_problems(manifest: &SkillManifest) -> Vec<String> {
    let mut problems = Vec::new();
    let length = manifest.description_length;
    if length > MAX_DESCRIPTION {
        problems
            .push(format!("its description has {length} characters, more than the {MAX_DESCRIPTION} that are usual"));
    }
    problems.extend(manifest.allowed_tools.iter().filter_map(|entry| allow_rule_fault(entry)));
    if manifest.is_empty {
        problems.push("has no instructions".to_owned());
    }
    problems
}
