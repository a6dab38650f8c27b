//! The agents of a configuration.

use std::sync::Arc;

use super::settings::PRIVATE;
use crate::config::{ConfigFault, ConfigFaults, LoadedConfig};
use crate::home::Home;
use crate::llm::Models;
use crate::profiles::{AgentDirectory, AgentSources};
use crate::skills::{SkillProblem, SkillSource};

/// Reads all agents; returns them together with the faults of the configuration.
pub(super) fn load_agents(loaded: &LoadedConfig, home: &Home) -> (AgentDirectory, Vec<ConfigFault>) {
    let config = &loaded.config;
    let workspace = home.workspace(&config.agent.workspace);
    let closed = PRIVATE.default_visibility().hidden;
    let base = loaded.file.as_deref().and_then(|file| file.parent()).unwrap_or(home.dir());
    let (directory, faults) = AgentDirectory::load(&AgentSources {
        definitions: &config.agents,
        routes: &config.routes,
        skills: SkillSource::all(&config.skills, &workspace, std::env::home_dir().as_deref(), &closed),
        base: base.to_owned(),
        workspace,
        home: home.dir().to_owned(),
    });
    (directory, faults.into_iter().map(|fault| loaded.fault_of(fault)).collect())
}

/// Reads all agents, and logs rejected profiles and profiles whose models are unavailable.
///
/// # Errors
/// All faults of the configuration.
pub(super) fn agent_directory(
    loaded: &LoadedConfig,
    home: &Home,
    models: &Models,
) -> Result<Arc<AgentDirectory>, ConfigFaults> {
    let (mut directory, faults) = load_agents(loaded, home);
    if !faults.is_empty() {
        return Err(ConfigFaults(faults));
    }
    directory.check_models(|model| models.check(model).err().map(|error| error.to_string()));
    for SkillProblem { path, line, problem } in &directory.problems {
        tracing::error!(path, line, problem, "a profile has a problem");
    }
    Ok(Arc::new(directory))
}
