//! The commands' access to installed skills. It needs no store and no running gateway: a gateway sees changed files in its next
//! turn.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, bail};
use daoyou_channels::new_id;
use jiff::Timestamp;
use uuid::Uuid;

use super::runtime::skill_catalog;
use crate::agent::prepare_workspace;
use crate::config::Config;
use crate::guard::{Jail, mask_url, protected_paths};
use crate::home::Home;
use crate::skills::{
    INSTALL_FOLDER, InstalledSkills, Skill, SkillCandidate, SkillHost, SkillList, SkillLocation, SkillPackage,
    SkillReview,
};
use crate::tools::{Trash, TrashRecord};

/// The session name in the trash for files that a command removes.
const COMMAND_SESSION: &str = "cli:skills";

/// Installs, accepts and removes skills of a workspace.
pub struct SkillInstaller {
    config: Config,
    home: PathBuf,
    workspace: PathBuf,
    installed: InstalledSkills,
}

/// The skills of a package.
pub struct FoundSkills {
    source: String,
    revision: Option<String>,
    pub skills: Vec<SkillCandidate>,
    /// The reasons why other skills of the package cannot be installed.
    pub faults: Vec<String>,
    /// The skills of the agent before anything is installed.
    existing: Arc<SkillList>,
}

impl SkillInstaller {
    /// Creates an installer for the workspace of `config`.
    ///
    /// # Errors
    /// The workspace cannot be prepared.
    pub fn new(home: &Home, config: &Config) -> anyhow::Result<Self> {
        let workspace = home.workspace(&config.agent.workspace);
        prepare_workspace(&workspace)
            .with_context(|| format!("the workspace {} cannot be prepared", workspace.display()))?;
        let installed = InstalledSkills::new(&workspace, home.dir());
        Ok(Self { config: config.clone(), home: home.dir().to_owned(), workspace, installed })
    }

    /// Reads the skills of a folder, a ZIP archive or a repository.
    ///
    /// # Errors
    /// The source cannot be read, or has no skill that can be installed.
    pub async fn find(&self, source: &str, reference: Option<&str>) -> anyhow::Result<FoundSkills> {
        let package = SkillPackage::read(source, reference).await.map_err(anyhow::Error::msg)?;
        let path = Path::new(source);
        let name = path.canonicalize().ok().and_then(|path| Some(path.file_stem()?.to_str()?.to_owned()));
        let name = name.or_else(|| Some(path.file_stem()?.to_str()?.to_owned())).unwrap_or_default();
        let (mut skills, mut faults) = (Vec::new(), Vec::new());
        for found in SkillCandidate::find(&package, &name) {
            match found {
                Ok(skill) => skills.push(skill),
                Err(fault) => faults.push(fault),
            }
        }
        if skills.is_empty() {
            let reasons =
                if faults.is_empty() { "no folder in it has a SKILL.md".to_owned() } else { faults.join("\n") };
            bail!("{source} has no skill that can be installed: {reasons}");
        }
        let source = path.canonicalize().map_or_else(|_| mask_url(source), |path| path.display().to_string());
        let existing = skill_catalog(&self.config, &self.workspace, &self.home).scan();
        Ok(FoundSkills { source, revision: package.revision, skills, faults, existing })
    }

    /// Returns what the owner must know before `skill` is installed.
    ///
    /// # Errors
    /// The pins cannot be read.
    pub fn review(&self, found: &FoundSkills, skill: &SkillCandidate) -> anyhow::Result<SkillReview> {
        let pins = self.installed.pins().map_err(anyhow::Error::msg)?;
        let before = pins.get(skill.name()).map(|pin| &pin.files);
        let mut review = skill.review(&found.source, found.revision.as_deref(), &SkillHost::of_process(), before);
        let mut others = found.existing.skills.iter();
        if let Some(other) = others.find(|other| other.name() == skill.name() && !is_installed(other)) {
            // An installed skill has precedence over every other one of its name.
            let path = other.path();
            review.warnings.push(format!("{path} has the same name, and is not used once this one is installed"));
        }
        Ok(review)
    }

    /// Returns true if the workspace has a file or folder at the place of this skill.
    pub fn is_taken(&self, name: &str) -> bool {
        self.installed.is_taken(name)
    }

    /// Installs a skill. A file or folder at its place is moved to the trash.
    ///
    /// # Errors
    /// The workspace or the pins cannot be written.
    pub fn install(&self, found: &FoundSkills, skill: &SkillCandidate) -> anyhow::Result<()> {
        let discard = || {
            let id = self.discard(skill.name()).map_err(|error| format!("{error:#}"))?;
            Ok(format!("daoyou trash restore {id}"))
        };
        let origin = (found.source.as_str(), found.revision.as_deref());
        self.installed.install(skill, origin, discard).map_err(anyhow::Error::msg)
    }

    /// Returns an installed skill in its current state, and what the owner must know before accepting its change.
    ///
    /// # Errors
    /// The skill is not installed, or cannot be read.
    pub fn installed(&self, name: &str) -> anyhow::Result<(SkillCandidate, SkillReview)> {
        let pins = self.installed.pins().map_err(anyhow::Error::msg)?;
        let Some(pin) = pins.get(name) else {
            let known: Vec<&str> = pins.keys().map(String::as_str).collect();
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            bail!("{name} was not installed by daoyou skills install; installed are: {known}");
        };
        let skill = self.installed.candidate(name).map_err(anyhow::Error::msg)?;
        let host = SkillHost::of_process();
        let review = skill.review(&pin.source, pin.revision.as_deref(), &host, Some(&pin.files));
        Ok((skill, review))
    }

    /// Accepts an installed skill in the state that [`Self::installed`] has read.
    ///
    /// # Errors
    /// The pins cannot be written.
    pub fn accept(&self, name: &str, skill: &SkillCandidate) -> anyhow::Result<()> {
        self.installed.accept(name, skill).map_err(anyhow::Error::msg)
    }

    /// Moves the folder of a skill to the trash and removes its pin. Returns the id of the trash entry; `None` if only the pin
    /// existed.
    ///
    /// # Errors
    /// There is no such skill in the workspace's folder of skills, or it cannot be moved.
    pub fn remove(&self, name: &str) -> anyhow::Result<Option<Uuid>> {
        let list = skill_catalog(&self.config, &self.workspace, &self.home).scan();
        let folder = match removable_folder(&list, name) {
            Ok(folder) => folder,
            // A broken skill is not in the list.
            Err(_) if !name.is_empty() && !name.starts_with('.') && !name.contains('/') && self.is_taken(name) => {
                name.to_owned()
            }
            Err(_) if self.installed.unpin(name).map_err(anyhow::Error::msg)? => return Ok(None),
            Err(reason) => bail!(reason),
        };
        let id = self.discard(&folder)?;
        self.installed.unpin(&folder).map_err(anyhow::Error::msg)?;
        Ok(Some(id))
    }

    fn discard(&self, folder: &str) -> anyhow::Result<Uuid> {
        let path = format!("{INSTALL_FOLDER}/{folder}");
        let jail = Jail::open_strict(&self.workspace, protected_paths(&self.home), u64::MAX)?;
        let record = TrashRecord {
            id: new_id(),
            path: path.clone(),
            kind: "folder".to_owned(),
            size: None,
            deleted_at: Timestamp::now(),
            session: COMMAND_SESSION.to_owned(),
            turn: Uuid::nil(),
            call: String::new(),
        };
        Trash::open(&self.workspace)?.take(&jail.entry(&path)?, &record)?;
        Ok(record.id)
    }
}

/// Returns true for a skill at the place of an installed one.
fn is_installed(skill: &Skill) -> bool {
    match &skill.location {
        SkillLocation::File { source, folder, .. } => source.installed_name(folder) == Some(skill.name()),
        SkillLocation::BuiltIn { .. } => false,
    }
}

/// Returns the folder of a skill below the workspace's folder of skills.
fn removable_folder(list: &SkillList, name: &str) -> Result<String, String> {
    let Some(skill) = list.find(name) else {
        let names: Vec<&str> = list.skills.iter().map(Skill::name).collect();
        return Err(format!("there is no skill {name:?}; there are: {}", names.join(", ")));
    };
    match &skill.location {
        SkillLocation::BuiltIn { .. } => {
            Err(format!("{name} is part of daoyou; skills.disabled = [{name:?}] in config.toml switches it off"))
        }
        SkillLocation::File { source, folder, path, .. } => {
            let folder = source.installed_name(folder).map(str::to_owned);
            folder.ok_or_else(|| {
                format!("{name} is at {}, where other programs use it too; remove its folder yourself", path.display())
            })
        }
    }
}
