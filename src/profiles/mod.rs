//! Agents: which agent answers a message, and its prompt, model, tools and limits.
//!
//! A profile is a `skill.yaml`. `[agents.NAME]` in the configuration names a profile and overrides it. `[[routes]]` choose an
//! agent for a chat. All of this is read and checked at the start and at each reload, never in a turn.

mod built_in;
mod definition;
mod directory;
mod manifest;
mod profile;
mod prompt;
mod resolve;
mod routes;
mod team;
mod workflow;

pub use definition::{AgentBranch, AgentDefinition, AgentOrchestrator, MemoryScope};
pub use directory::{AgentDirectory, AgentSources};
pub use manifest::PROFILE_FILE;
pub use profile::{AgentProfile, BranchChoice, BranchValues, ChosenAgent, DEFAULT_AGENT, MEMORY_TOOLS};
pub use prompt::{AgentPrompt, PastMessage, PastTask, PromptValues, UserPreference};
pub use routes::RouteConfig;
pub use workflow::{CallEnd, CallResult, StepCall, Workflow, WorkflowNext, WorkflowStop, next_step};
