//! An agent, ready to be used.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use serde_json::{Value, json};

use super::definition::{AgentOrchestrator, MemoryScope};
use super::prompt::AgentPrompt;
use crate::guard::{AccessRules, AccessSettings};

/// The agent that answers where no other is chosen.
pub const DEFAULT_AGENT: &str = "assistant";

/// An agent: validated, and the same until the next reload.
#[derive(Debug, Default)]
pub struct AgentProfile {
    pub name: String,
    pub description: String,
    /// Where it comes from: `built-in`, `configuration`, or the path of a `skill.yaml`.
    pub source: String,
    pub version: Option<String>,
    pub model: Option<String>,
    pub temperature: Option<f64>,
    pub max_tokens: Option<u32>,
    pub max_iterations: Option<u32>,
    pub orchestrator: AgentOrchestrator,
    /// `None`: the prompt of the assistant.
    pub prompt: Option<AgentPrompt>,
    /// The tools that it has, by their own names; `None`: all.
    pub tools: Option<Vec<String>>,
    /// The skills that it sees; `None`: all.
    pub skills: Option<BTreeSet<String>>,
    pub access: Option<(AccessSettings, Arc<AccessRules>)>,
    pub rounds: Option<u32>,
    pub memory: MemoryScope,
    /// The real path of the folder in which its tools work; `None`: the workspace.
    pub workspace: Option<PathBuf>,
}

impl AgentProfile {
    /// Returns true if its turns may do less than those of the assistant, so that what they start may not do more.
    pub fn is_restricted(&self) -> bool {
        self.tools.is_some()
            || self.skills.is_some()
            || self.access.is_some()
            || self.workspace.is_some()
            || self.memory != MemoryScope::Shared
    }

    /// Returns the agent for people and programs.
    pub fn to_json(&self) -> Value {
        let mut shown = json!({
            "name": self.name,
            "description": self.description,
            "source": self.source,
            "orchestrator": self.orchestrator,
            "memory": self.memory,
        });
        let optional = [
            ("version", self.version.as_ref().map(|version| json!(version))),
            ("model", self.model.as_ref().map(|model| json!(model))),
            ("temperature", self.temperature.map(|number| json!(number))),
            ("max_tokens", self.max_tokens.map(|number| json!(number))),
            ("max_iterations", self.max_iterations.map(|number| json!(number))),
            ("rounds", self.rounds.map(|number| json!(number))),
            ("tools", self.tools.as_ref().map(|tools| json!(tools))),
            ("skills", self.skills.as_ref().map(|skills| json!(skills))),
            ("permissions", self.access.as_ref().map(|(settings, _)| json!(settings))),
            ("workspace", self.workspace.as_ref().map(|path| json!(path.display().to_string()))),
        ];
        for (key, value) in optional {
            if let Some(value) = value {
                shown[key] = value;
            }
        }
        shown
    }
}
