//! `[agents.NAME]`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::guard::AccessSettings;
use crate::turn::orchestrators::Orchestrator;

/// How an agent is led to an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AgentOrchestrator {
    /// As `agent.orchestrator` says; the name in profiles of other systems is `simple`.
    #[default]
    Simple,
    Auto,
    Tools,
    React,
    Plain,
    /// The same as `tools`: independent calls of one response always run side by side.
    Parallel,
    /// The agent leads those of `agents`: it hands tasks to them and gathers their answers.
    MultiAgent,
    /// As `multi_agent`, for questions that several explorers answer in parts.
    ParallelExplore,
    /// The agent answers nothing itself: the first of `branches` that fits the message names who does.
    Conditional,
    /// The steps of `workflow`, in their order; no model is asked which one is next.
    Workflow,
}

/// An agent, and when it answers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AgentBranch {
    /// A Jinja expression over `user_input`, `channel`, `chat`, `sender` and `files`; empty: always.
    pub when: String,
    /// What the messages for it are about: a model chooses among the branches with `about`, and the last one.
    pub about: String,
    /// The name of the agent.
    pub agent: String,
}

impl AgentOrchestrator {
    /// Returns the orchestrator for the agent's model; `None` for the configured one.
    pub fn of_model(self) -> Option<Orchestrator> {
        match self {
            Self::Simple | Self::MultiAgent | Self::ParallelExplore | Self::Conditional | Self::Workflow => None,
            Self::Auto => Some(Orchestrator::Auto),
            Self::Tools | Self::Parallel => Some(Orchestrator::Tools),
            Self::React => Some(Orchestrator::React),
            Self::Plain => Some(Orchestrator::Plain),
        }
    }
}

/// What an agent knows of the person who writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum MemoryScope {
    /// What all agents know of this person.
    #[default]
    Shared,
    /// What this agent itself has learned of this person.
    Own,
    /// Nothing; nothing is remembered either.
    None,
}

/// An agent of the configuration. What is absent is that of its profile.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AgentDefinition {
    /// What the agent is for, in a line.
    pub description: String,
    /// The name of a profile; empty: the one of the agent's name, if there is one.
    pub profile: String,
    /// `PROVIDER/MODEL`; empty: the profile's, else `agent.model`.
    pub model: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub orchestrator: Option<AgentOrchestrator>,
    /// The agent's prompt, or `file:PATH`, from the folder of the configuration file.
    pub prompt: String,
    /// The folder in which its tools work: below the workspace, or absolute; empty: the workspace.
    pub workspace: String,
    /// The tools that it has, by name; absent: the profile's, else all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<String>>,
    /// The skills that it sees, by name; absent: the profile's, else all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skills: Option<Vec<String>>,
    /// With `multi_agent` and `parallel_explore`: the agents that it leads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agents: Option<Vec<String>>,
    /// With `conditional`: who answers; the first that fits.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub branches: Vec<AgentBranch>,
    /// With `workflow`: its steps in YAML, or `file:PATH`, from the folder of the configuration file.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub workflow: String,
    /// What its tools may read, write and run; only narrows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub permissions: Option<AccessSettings>,
    /// The maximum number of messages of people, with what followed each, that it is given of the conversation; absent:
    /// `agent.memory_window`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_000))]
    pub rounds: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<MemoryScope>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0.0, max = 2.0))]
    pub temperature: Option<f64>,
    /// The longest answer in tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub max_tokens: Option<u32>,
    /// Model calls with tools in one turn; absent: `agent.max_iterations`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_000))]
    pub max_iterations: Option<u32>,
}
