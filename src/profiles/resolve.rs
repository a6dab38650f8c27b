//! Finds profiles, and converts them to agents.

use std::collections::{BTreeMap, HashSet};
use std::fs::File;
use std::io::Read;
use std::path::{Component, Path};
use std::sync::Arc;

use super::built_in::{FOREIGN_AGENT_NAMES, built_in_text};
use super::definition::{AgentDefinition, AgentOrchestrator};
use super::manifest::{PROFILE_FILE, ProfileFileError, ProfileManifest, PromptSource, canonical_tool_name};
use super::profile::{AgentProfile, DEFAULT_AGENT};
use super::prompt::AgentPrompt;
use super::workflow::{WORKFLOW_FILE, Workflow};
use crate::guard::{AccessRules, Jail};
use crate::skills::{SkillFile, SkillProblem, SkillSource, SourceScan};
use crate::tools::TOOL_NAMES;

/// The prefix of a prompt in the configuration that names a file.
const FILE_PREFIX: &str = "file:";
/// The maximum size of a prompt file, in bytes.
const MAX_PROMPT: u64 = 32 << 10;
/// The maximum length of a chain of profiles that use each other's prompts.
const MAX_BASES: usize = 8;

/// A profile that was found.
pub(super) struct FoundProfile {
    pub manifest: ProfileManifest,
    /// `built-in`, or the path of the file.
    pub source: String,
    pub files: ProfileFiles,
}

/// The profiles by their names.
type ProfilesByName = BTreeMap<String, FoundProfile>;

/// The folder of a profile.
pub(super) enum ProfileFiles {
    BuiltIn(&'static Path),
    Folder { jail: Arc<Jail>, folder: String },
}

impl ProfileFiles {
    fn read(&self, file: &str) -> Result<String, String> {
        let is_plain =
            Path::new(file).components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
        if !is_plain || file.trim().is_empty() {
            return Err(format!("{file:?} is not a file of the profile's folder"));
        }
        match self {
            Self::BuiltIn(folder) => {
                built_in_text(folder, file).map(str::to_owned).ok_or_else(|| format!("{file}: no such file"))
            }
            Self::Folder { jail, folder } => {
                let content = jail.read(&format!("{folder}/{file}")).map_err(|error| error.to_string())?;
                String::from_utf8(content.bytes).map_err(|_| format!("{file}: is not valid UTF-8"))
            }
        }
    }
}

/// Finds the profiles in the folders of skills. If several have the same name, the first one is used.
pub(super) fn profiles_of(sources: &[SkillSource]) -> (Vec<FoundProfile>, Vec<SkillProblem>) {
    let (mut profiles, mut problems) = (Vec::<FoundProfile>::new(), Vec::new());
    let mut seen = HashSet::new();
    for source in sources {
        // A fault of a whole source is reported with its skills.
        let Ok(Some(jail)) = source.open() else { continue };
        let jail = Arc::new(jail);
        let SourceScan { files, .. } = source.scan_for(&jail, &[PROFILE_FILE]);
        for file in files {
            let path = jail.root().join(file.path());
            if is_left_out(&file) || !seen.insert(path.clone()) {
                continue;
            }
            let shown = path.display().to_string();
            let problem = |(line, problem): ProfileFileError| SkillProblem { path: shown.clone(), line, problem };
            let read = jail.read(&file.path()).map_err(|error| (None, error.to_string()));
            let manifest = match read.and_then(|content| ProfileManifest::parse(&content.bytes)) {
                Ok(manifest) => manifest,
                Err(fault) => {
                    problems.push(problem(fault));
                    continue;
                }
            };
            problems.extend(manifest.warnings.iter().cloned().map(problem));
            let name = &manifest.name;
            if let Some(first) = profiles.iter().find(|other| other.manifest.name == *name) {
                let reason = format!("has the name {name}, as {} has: only the first is used", first.source);
                problems.push(problem((None, reason)));
            } else if name == DEFAULT_AGENT {
                let reason = format!(
                    "the name {DEFAULT_AGENT} is that of the default agent; give the profile another name, and set \
                     profile = \"NAME\" in [agents.{DEFAULT_AGENT}] of config.toml"
                );
                problems.push(problem((None, reason)));
            } else {
                let files = ProfileFiles::Folder { jail: jail.clone(), folder: file.folder };
                profiles.push(FoundProfile { manifest, source: shown, files });
            }
        }
    }
    (profiles, problems)
}

/// Returns true for a folder whose name begins with `_` or `.`.
fn is_left_out(file: &SkillFile) -> bool {
    file.folder
        .split('/')
        .any(|name| name.starts_with(['_', '.']) && name != "." && !matches!(name, ".claude" | ".agents"))
}

/// Converts a profile to an agent. `all` are the profiles by name.
pub(super) fn agent_of(profile: &FoundProfile, all: &ProfilesByName) -> Result<AgentProfile, ProfileFileError> {
    let FoundProfile { manifest, source, .. } = profile;
    let prompt = prompt_of(profile, all, 0)?;
    let prompt = prompt.as_deref().map(AgentPrompt::new).transpose().map_err(|wrong| (None, wrong))?;
    let (name, version) = (manifest.name.clone(), Some(manifest.version.clone()));
    let base = AgentProfile { name, version, source: source.clone(), prompt, ..AgentProfile::default() };
    // A manifest's settings name no files, so that no folder is needed.
    let (agent, faults) = override_by(&manifest.settings, base, Path::new(""));
    match faults.into_iter().next() {
        Some((key, wrong)) => Err((None, format!("{key}: {wrong}"))),
        None => Ok(AgentProfile { workflow: workflow_of(profile)?, ..agent }),
    }
}

/// Returns the steps of a profile that is a workflow or names a workflow file.
fn workflow_of(profile: &FoundProfile) -> Result<Option<Arc<Workflow>>, ProfileFileError> {
    let ProfileManifest { settings, workflow, .. } = &profile.manifest;
    let file = match (workflow, settings.orchestrator) {
        (Some(file), _) => file.as_str(),
        (None, Some(AgentOrchestrator::Workflow)) => WORKFLOW_FILE,
        (None, _) => return Ok(None),
    };
    let read = profile.files.read(file).map_err(|wrong| format!("workflow: {wrong}"));
    let workflow = read.and_then(|text| Workflow::parse(&text).map_err(|wrong| format!("{file}, {wrong}")));
    workflow.map(|workflow| Some(Arc::new(workflow))).map_err(|wrong| (None, wrong))
}

/// Returns the text of a profile's prompt; `None` for that of the assistant.
fn prompt_of(profile: &FoundProfile, all: &ProfilesByName, depth: usize) -> Result<Option<String>, ProfileFileError> {
    match &profile.manifest.prompt {
        PromptSource::Inline(text) => Ok(Some(text.clone())),
        PromptSource::File(file) => {
            profile.files.read(file).map(Some).map_err(|wrong| (None, format!("prompt.file: {wrong}")))
        }
        PromptSource::OfAgent => {
            let Some(name) = profile.manifest.agent.as_deref().filter(|name| *name != profile.manifest.name) else {
                return Ok(None);
            };
            let other = all.get(name).or_else(|| all.get(replacement_of(name)?));
            let other = other.ok_or_else(|| (None, format!("agent: Agent '{name}' not found")))?;
            if depth >= MAX_BASES {
                return Err((None, "agent: the prompts of the agents refer to each other".to_owned()));
            }
            prompt_of(other, all, depth + 1)
        }
    }
}

/// Returns the built-in agent that replaces an agent of another system.
pub(super) fn replacement_of(name: &str) -> Option<&'static str> {
    FOREIGN_AGENT_NAMES.iter().find(|(other, _)| other.eq_ignore_ascii_case(name)).map(|(_, name)| *name)
}

/// Returns the canonical names of tools, each once.
fn tool_names(names: &[String]) -> Result<Vec<String>, String> {
    let mut own: Vec<String> = Vec::new();
    for name in names {
        let known = canonical_tool_name(name).map_err(|wrong| {
            let names = TOOL_NAMES.iter().map(|(name, ..)| *name).collect::<Vec<_>>().join(", ");
            format!("{name:?} {wrong}; there are {names}")
        })?;
        if !own.contains(&known) {
            own.push(known);
        }
    }
    Ok(own)
}

/// Applies the configured overrides to an agent. `base` is the folder of the configuration file. Also returns all invalid keys, and
/// why; an agent with such a key must not be used.
pub(super) fn override_by(
    definition: &AgentDefinition,
    mut agent: AgentProfile,
    base: &Path,
) -> (AgentProfile, Vec<(String, String)>) {
    let mut faults = Vec::new();
    let mut fault = |key: &str, wrong: String| faults.push((key.to_owned(), wrong));
    if !definition.description.trim().is_empty() {
        definition.description.trim().clone_into(&mut agent.description);
    }
    if !definition.model.is_empty() {
        agent.model = Some(definition.model.clone());
    }
    if !definition.prompt.is_empty() {
        let prompt = prompt_text(&definition.prompt, base).and_then(|text| AgentPrompt::new(&text));
        agent.prompt = prompt.map_err(|wrong| fault("prompt", wrong)).ok();
    }
    if let Some(tools) = &definition.tools {
        agent.tools = tool_names(tools).map_err(|wrong| fault("tools", wrong)).ok();
    }
    if let Some(skills) = &definition.skills {
        agent.skills = Some(skills.iter().cloned().collect());
    }
    if let Some(permissions) = &definition.permissions {
        let access = AccessRules::new(permissions).map(|rules| (permissions.clone(), Arc::new(rules)));
        agent.access = access.map_err(|(list, wrong)| fault(&format!("permissions.{list}"), wrong)).ok();
    }
    if !definition.workflow.is_empty() {
        let file =
            definition.workflow.strip_prefix(FILE_PREFIX).map_or_else(String::new, |file| format!("{}, ", file.trim()));
        let workflow = prompt_text(&definition.workflow, base)
            .and_then(|text| Workflow::parse(&text).map_err(|wrong| format!("{file}{wrong}")));
        agent.workflow = workflow.map(Arc::new).map_err(|wrong| fault("workflow", wrong)).ok();
    }
    if let Some(team) = &definition.agents {
        agent.team.clone_from(team);
    }
    if !definition.branches.is_empty() {
        agent.branches.clone_from(&definition.branches);
    }
    agent.orchestrator = definition.orchestrator.unwrap_or(agent.orchestrator);
    agent.rounds = definition.rounds.or(agent.rounds);
    agent.memory = definition.memory.unwrap_or(agent.memory);
    agent.temperature = definition.temperature.or(agent.temperature);
    agent.max_tokens = definition.max_tokens.or(agent.max_tokens);
    agent.max_iterations = definition.max_iterations.or(agent.max_iterations);
    (agent, faults)
}

/// Returns the configured prompt, or the content of the file that it names.
fn prompt_text(written: &str, base: &Path) -> Result<String, String> {
    let Some(path) = written.strip_prefix(FILE_PREFIX) else { return Ok(written.to_owned()) };
    let path = base.join(path.trim());
    let failed = |error: std::io::Error| format!("{}: {error}", path.display());
    let found = path.metadata().map_err(failed)?;
    if !found.is_file() {
        return Err(format!("{}: is not a file", path.display()));
    }
    let mut bytes = Vec::new();
    File::open(&path).map_err(failed)?.take(MAX_PROMPT + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > MAX_PROMPT {
        return Err(format!("{}: is larger than {MAX_PROMPT} bytes", path.display()));
    }
    String::from_utf8(bytes).map_err(|_| format!("{}: is not valid UTF-8", path.display()))
}
