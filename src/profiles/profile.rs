//! An agent that is ready for use.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use serde::Serialize;
use serde_json::{Value, json};

use super::definition::{AgentBranch, AgentOrchestrator, MemoryScope};
use super::prompt::AgentPrompt;
use super::workflow::Workflow;
use crate::guard::{AccessRules, AccessSettings};
use crate::text::BoundedTemplate;
use crate::tools::TOOL_NAMES;

/// The agent that answers if no other is chosen.
pub const DEFAULT_AGENT: &str = "assistant";

/// The tools of the memory.
pub const MEMORY_TOOLS: [&str; 4] = ["remember", "recall", "forget", "search_history"];
/// The tools that run commands. Path rules do not restrict them.
const RUNS_COMMANDS: [&str; 2] = ["exec", "process"];
/// The tools that run Git, which reads files itself.
const READS_BY_GIT: [&str; 4] = ["git_status", "git_diff", "git_log", "git_commit"];
/// The tools that run code of the project. No rules restrict that code.
const RUNS_PROJECT: [&str; 7] = [
    "run_test", "lsp_diagnostics", "lsp_definition", "lsp_references", "lsp_symbols", "lsp_rename", "lsp_code_actions",
];
const MCP_READ: &str = "mcp_read";

/// A validated agent. It stays the same until the next reload.
#[derive(Debug, Default)]
pub struct AgentProfile {
    pub name: String,
    pub description: String,
    /// Where the agent is defined: `built-in`, `configuration`, or the path of a `skill.yaml`.
    pub source: String,
    pub version: Option<String>,
    pub model: Option<String>,
    pub temperature: Option<f64>,
    pub max_tokens: Option<u32>,
    pub max_iterations: Option<u32>,
    pub orchestrator: AgentOrchestrator,
    /// The prompt; `None` for that of the assistant.
    pub prompt: Option<AgentPrompt>,
    /// The tools that the agent may use, by their canonical names; `None` for all.
    pub tools: Option<Vec<String>>,
    /// The skills that the agent sees; `None` for all.
    pub skills: Option<BTreeSet<String>>,
    /// The agents that this agent leads.
    pub team: Vec<String>,
    /// The part of the agent's prompt about the agents that it leads.
    pub guidance: Option<String>,
    pub branches: Vec<AgentBranch>,
    /// The compiled `branches`.
    pub choices: Vec<BranchChoice>,
    /// The steps, if the agent is a workflow.
    pub workflow: Option<Arc<Workflow>>,
    pub access: Option<(AccessSettings, Arc<AccessRules>)>,
    pub rounds: Option<u32>,
    pub memory: MemoryScope,
    /// The real path of the folder in which the agent's tools work; `None` for the workspace.
    pub workspace: Option<PathBuf>,
}

/// A branch of an agent that chooses.
#[derive(Debug)]
pub struct BranchChoice {
    /// The condition; `None` for always.
    pub when: Option<BoundedTemplate>,
    /// The description for the model that chooses. If empty, a model does not choose this branch, unless it is the last one.
    pub about: String,
    pub agent: String,
}

/// The agent that answers a message in place of this agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChosenAgent<'a> {
    /// This agent itself answers.
    Itself,
    Other(&'a str),
    /// A model chooses among the options.
    ByModel,
}

/// The values of the variables in `when`.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct BranchValues<'a> {
    pub user_input: &'a str,
    pub channel: &'a str,
    pub chat: &'a str,
    pub sender: &'a str,
    pub files: &'a [String],
}

impl AgentProfile {
    /// Returns the agent that answers in place of this agent. A condition that cannot be evaluated counts as false, and is
    /// logged.
    pub fn chosen(&self, values: BranchValues<'_>) -> ChosenAgent<'_> {
        let asks_model = self.choices.iter().any(|choice| !choice.about.is_empty());
        let fits = |choice: &&BranchChoice| match &choice.when {
            None => !asks_model,
            Some(when) => when.render(values).map(|text| !text.is_empty()).unwrap_or_else(|error| {
                tracing::error!(
                    agent = self.name,
                    error,
                    "the condition of a branch could not be evaluated; it does not fit"
                );
                false
            }),
        };
        match self.choices.iter().find(fits) {
            Some(choice) => ChosenAgent::Other(&choice.agent),
            None if asks_model => ChosenAgent::ByModel,
            None => ChosenAgent::Itself,
        }
    }

    /// Returns the branches among which a model chooses. The last one is for messages that match no other.
    pub fn options(&self) -> Vec<&BranchChoice> {
        let last = self.choices.len().saturating_sub(1);
        let options = self.choices.iter().enumerate().filter(|(at, choice)| *at == last || !choice.about.is_empty());
        options.map(|(_, choice)| choice).collect()
    }

    /// Returns true if the agent's turns may do less than those of the assistant. Turns that they start must then not do more.
    pub fn is_restricted(&self) -> bool {
        self.tools.is_some()
            || self.skills.is_some()
            || self.access.is_some()
            || self.workspace.is_some()
            || self.memory != MemoryScope::Shared
    }

    /// Returns true if the agent's tools have limits on files, folders or commands. Programs outside of daoyou do not know these
    /// limits.
    pub fn is_bound_to_files(&self) -> bool {
        let has_limits = |rules: &AccessRules| rules.limits_paths() || rules.limits_commands();
        self.workspace.is_some() || self.access.as_ref().is_some_and(|(_, rules)| has_limits(rules))
    }

    /// Returns true if the agent does not have this tool although its list may name it: the agent's rules could not restrict the
    /// tool, or the agent has no memory.
    pub fn denies_tool(&self, tool: &str) -> bool {
        let (limits_paths, limits_commands, names_commands) = match &self.access {
            Some((_, rules)) => (rules.limits_paths(), rules.limits_commands(), rules.names_commands()),
            None => (false, false, false),
        };
        // Rules that name the commands are the owner's decision about what `exec` may run.
        limits_paths && !names_commands && RUNS_COMMANDS.contains(&tool)
            || limits_paths && READS_BY_GIT.contains(&tool)
            || (limits_paths || limits_commands) && RUNS_PROJECT.contains(&tool)
            || self.memory == MemoryScope::None && MEMORY_TOOLS.contains(&tool)
            // MCP servers are not restricted by an agent's rules: an agent with such rules has only the server tools that it names.
            || self.is_bound_to_files() && is_of_server(tool) && !self.names(tool)
    }

    fn names(&self, tool: &str) -> bool {
        self.tools.as_ref().is_some_and(|tools| tools.iter().any(|named| named == tool))
    }

    /// Returns the names of the tools that the agent has, without those of MCP servers that its list does not name; `None` for all.
    pub fn own_tools(&self) -> Option<Vec<&str>> {
        let known: Vec<&str> = match &self.tools {
            Some(tools) => tools.iter().map(String::as_str).collect(),
            None => TOOL_NAMES.iter().map(|(name, ..)| *name).collect(),
        };
        let own: Vec<&str> = known.iter().copied().filter(|tool| !self.denies_tool(tool)).collect();
        (self.tools.is_some() || own.len() < known.len()).then_some(own)
    }

    /// Returns the agent as JSON, for people and programs.
    pub fn to_json(&self) -> Value {
        let mut shown = json!({
            "name": self.name,
            "description": self.description,
            "source": self.source,
            "orchestrator": self.orchestrator,
            "memory": self.memory,
            "version": self.version,
            "model": self.model,
            "temperature": self.temperature,
            "max_tokens": self.max_tokens,
            "max_iterations": self.max_iterations,
            "rounds": self.rounds,
            "tools": self.own_tools(),
            "skills": self.skills,
            "agents": (!self.team.is_empty()).then_some(&self.team),
            "branches": (!self.branches.is_empty()).then_some(&self.branches),
            "workflow": self.workflow.as_ref().map(|workflow| workflow.to_json()),
            "permissions": self.access.as_ref().map(|(settings, _)| settings),
            "workspace": self.workspace.as_ref().map(|path| path.display().to_string()),
        });
        if let Value::Object(fields) = &mut shown {
            fields.retain(|_, value| !value.is_null());
        }
        shown
    }
}

/// Returns true for a tool that reaches an MCP server.
fn is_of_server(name: &str) -> bool {
    name == MCP_READ || name.contains("__")
}
