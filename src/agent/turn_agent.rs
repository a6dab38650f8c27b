//! The agent of a turn: which agent answers, which settings of the turn it changes, and which tools the turn has.

use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::Arc;

use daoyou_channels::Trust;

use super::sub_agents::SPAWN;
use super::turn_start::StartedTurn;
use crate::chat::ChatMessage;
use crate::memory::{MemoryEntry, MemoryKind, MemoryOwner, RUNTIME_CONTEXT, list, recent_tasks, sender_of, written};
use crate::origin::TurnOrigin;
use crate::profiles::{
    AgentDirectory, AgentOrchestrator, AgentProfile, BranchValues, ChosenAgent, DEFAULT_AGENT, MEMORY_TOOLS,
    MemoryScope, PastMessage, PastTask, PromptValues, UserPreference,
};
use crate::store::inbox::InboxRow;
use crate::store::{Store, StoreError};
use crate::text::{one_line, truncate};
use crate::tools::{AgentScope, ToolExecutor};
use crate::turn::context::attachments;
use crate::turn::context::conversation_context::{AgentContext, AgentMemory, ConversationContext};
use crate::turn::context::system_prompt::PromptAgent;
use crate::turn::error::{ErrorCode, TurnError};

/// The maximum number of rounds of earlier messages and the maximum number of preferences that a template receives.
const PAST_ROUNDS: usize = 3;
const PREFERENCES: u32 = 50;
/// The maximum length, in characters, of each earlier message.
const MAX_PAST: usize = 2_000;

/// The agent of a turn.
#[derive(Clone, Debug)]
pub struct TurnAgent {
    pub profile: Arc<AgentProfile>,
    /// The agents that this agent works for; their limits apply as well.
    within: Vec<Arc<AgentProfile>>,
    /// The name that is recorded; `None` for the assistant without limits that nobody chose.
    name: Option<String>,
    /// The skills that both this agent and the agents that it works for see; `None` means all.
    skills: Option<BTreeSet<String>>,
}

impl TurnAgent {
    /// Returns the agent that answers: the agent that the message names, or else the agent chosen for the session, or else that of
    /// the chat. Regardless of the choice, an outside sender gets the agent of the chat, and a known sender that of a
    /// route.
    ///
    /// # Errors
    /// The agent no longer exists.
    pub fn of_turn(agents: &AgentDirectory, started: &StartedTurn) -> Result<Self, TurnError> {
        let StartedTurn { last, origin, agent: chosen, .. } = started;
        let settings = &origin.settings;
        let routed = agents.routed(&last.channel, &last.chat_id, &sender_of(last));
        let chosen = chosen.as_deref().filter(|_| match Trust::parse(&last.trust) {
            Trust::Owner => true,
            Trust::Known => routed.is_none(),
            Trust::Untrusted => false,
        });
        let profile = match settings.agent.as_deref().or(chosen) {
            Some(name) => find(agents, name)?,
            None => routed.unwrap_or_else(|| agents.default_agent()).clone(),
        };
        if profile.choices.is_empty() {
            return Self::new(agents, profile, &settings.within);
        }
        let files = attachments::paths(std::slice::from_ref(last));
        let values = BranchValues {
            user_input: &last.content,
            channel: &last.channel,
            chat: &last.chat_id,
            sender: &sender_of(last),
            files: &files,
        };
        let profile = match profile.chosen(values) {
            ChosenAgent::Other(name) => find(agents, name)?,
            ChosenAgent::Itself | ChosenAgent::ByModel => profile,
        };
        Self::new(agents, profile, &settings.within)
    }

    /// Returns the agent `name` with which a turn of this `origin` began.
    ///
    /// # Errors
    /// The agent no longer exists.
    pub fn resumed(agents: &AgentDirectory, origin: &TurnOrigin, name: Option<&str>) -> Result<Self, TurnError> {
        Self::new(agents, find(agents, name.unwrap_or(DEFAULT_AGENT))?, &origin.settings.within)
    }

    /// Returns true if a model has to choose the agent that answers.
    pub fn is_undecided(&self) -> bool {
        self.profile.orchestrator == AgentOrchestrator::Conditional
    }

    /// Returns the agent `name`, which replaces this one.
    ///
    /// # Errors
    /// The agent no longer exists.
    pub fn replaced_by(self, agents: &AgentDirectory, name: &str) -> Result<Self, TurnError> {
        Self::within(agents, find(agents, name)?, self.within)
    }

    fn new(agents: &AgentDirectory, profile: Arc<AgentProfile>, within: &[String]) -> Result<Self, TurnError> {
        let within = within.iter().map(|name| find(agents, name)).collect::<Result<_, _>>()?;
        Self::within(agents, profile, within)
    }

    fn within(
        agents: &AgentDirectory,
        profile: Arc<AgentProfile>,
        within: Vec<Arc<AgentProfile>>,
    ) -> Result<Self, TurnError> {
        let is_outside = |limit: &&Arc<AgentProfile>| limit.workspace != profile.workspace;
        if let Some(limit) = within.iter().find(is_outside) {
            let reason =
                format!("Agent '{}' works in another folder than {}, whose limits hold here", profile.name, limit.name);
            return Err(TurnError::new(ErrorCode::NoAgent, "turn").with([reason]));
        }
        // An agent with limits needs a name, so that the limits also apply to the turns that it starts.
        let is_usual = profile.name == DEFAULT_AGENT && !agents.has_routes() && !profile.is_restricted();
        let name = (!is_usual).then(|| profile.name.clone());
        let skills = std::iter::once(&profile).chain(&within).filter_map(|agent| agent.skills.as_ref());
        let skills = skills.cloned().reduce(|seen, others| seen.intersection(&others).cloned().collect());
        Ok(Self { profile, within, name, skills })
    }

    /// Returns the name that the journal and the started turns record.
    pub fn recorded_name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// Returns this agent and the agents that it works for.
    pub fn all(&self) -> impl Iterator<Item = &Arc<AgentProfile>> {
        std::iter::once(&self.profile).chain(&self.within)
    }

    /// Returns the memory that the agent has about the writer: no more than the memory of the agents that it works for.
    pub fn memory(&self) -> AgentMemory<'_> {
        let hides = |agent: &Arc<AgentProfile>| agent.memory != MemoryScope::Shared && agent.name != self.profile.name;
        if self.profile.memory == MemoryScope::None || self.within.iter().any(hides) {
            return AgentMemory::None;
        }
        match self.profile.memory {
            MemoryScope::Own => AgentMemory::Own(&self.profile.name),
            MemoryScope::Shared | MemoryScope::None => AgentMemory::Shared,
        }
    }

    /// Returns the part of the agent's settings that tools receive.
    pub fn scope(&self) -> AgentScope {
        let rules = self.all().filter_map(|agent| agent.access.as_ref()).map(|(_, rules)| rules.clone());
        AgentScope {
            name: self.name.clone().unwrap_or_default(),
            rules: rules.collect(),
            skills: self.skills.clone(),
            has_own_memory: matches!(self.memory(), AgentMemory::Own(_)),
            knows_owner: self.memory() == AgentMemory::Shared,
            within: self.within.iter().map(|agent| agent.name.clone()).collect(),
            team: self.profile.team.clone(),
            is_restricted: self.profile.is_restricted(),
        }
    }

    /// Returns the agent's changes to the system prompt.
    pub fn prompt(&self) -> PromptAgent<'_> {
        let AgentProfile { name, prompt, guidance, workspace, .. } = self.profile.as_ref();
        PromptAgent {
            name,
            text: prompt.as_ref().map(|prompt| prompt.fixed().unwrap_or_default()),
            guidance: guidance.as_deref(),
            skills: self.skills.as_ref(),
            workspace: workspace.as_deref(),
            is_without_memory: self.memory() == AgentMemory::None,
        }
    }

    /// Returns the agent's changes to the context.
    pub fn context(&self) -> AgentContext<'_> {
        let AgentProfile { model, max_tokens, rounds, .. } = self.profile.as_ref();
        AgentContext { model: model.as_deref(), max_tokens: *max_tokens, rounds: *rounds, memory: self.memory() }
    }

    /// Returns the message as this agent's model reads it, if that differs from the message as written: a per-message template
    /// replaces it. `text` is the message `rows` with its runtime context.
    ///
    /// # Errors
    /// The store cannot be read.
    pub fn message_text(
        &self,
        text: &str,
        store: &Store,
        context: &ConversationContext,
        rows: &[InboxRow],
    ) -> Result<Option<String>, StoreError> {
        let Some(prompt) = self.profile.prompt.as_ref().filter(|prompt| !prompt.needed().is_empty()) else {
            return Ok(None);
        };
        let at = text.rfind(RUNTIME_CONTEXT).unwrap_or(text.len());
        let (written, added) = text.split_at(at);
        let needs = |name: &str| prompt.needed().iter().any(|needed| needed == name);
        let owner = context.owners.first().filter(|owner| **owner != MemoryOwner::everyone());
        let files = attachments::paths(rows).to_vec();
        let mut values = PromptValues { user_input: written.to_owned(), files, ..PromptValues::default() };
        if needs("conversation_history") {
            values.conversation_history = past_messages(&context.messages);
        }
        if let Some(owner) = owner.filter(|_| needs("user_preferences")) {
            let entries = store.read_here(|connection| list(connection, owner, MemoryKind::Preference, PREFERENCES))?;
            values.user_preferences =
                entries.into_iter().map(|entry| UserPreference { key: entry.name, value: entry.text }).collect();
        }
        if let Some(owner) = owner.filter(|_| needs("recent_tasks")) {
            let tasks = store.read_here(|connection| recent_tasks(connection, owner))?;
            values.recent_tasks = tasks.into_iter().map(past_task).collect();
        }
        Ok(prompt.render(&values).map(|rendered| format!("{rendered}{added}")))
    }
}

fn find(agents: &AgentDirectory, name: &str) -> Result<Arc<AgentProfile>, TurnError> {
    let found = agents.find(name).cloned();
    found.ok_or_else(|| TurnError::new(ErrorCode::NoAgent, "turn").with([agents.unknown(name)]))
}

/// Returns the messages of people and of the agent in the last rounds.
fn past_messages(history: &[Arc<ChatMessage>]) -> Vec<PastMessage> {
    let begins: Vec<usize> = history
        .iter()
        .enumerate()
        .filter(|(_, message)| matches!(***message, ChatMessage::User { .. }))
        .map(|(at, _)| at)
        .collect();
    let first = begins.len().checked_sub(PAST_ROUNDS).and_then(|at| begins.get(at)).copied().unwrap_or(0);
    let past = history.iter().skip(first).filter_map(|message| {
        let content = match &**message {
            ChatMessage::User { content, .. } => written(content).to_owned(),
            ChatMessage::Assistant { content, .. } => content.clone(),
            ChatMessage::Tool { .. } => return None,
        };
        let (role, content) = (message.role().to_owned(), truncate(content.trim(), MAX_PAST));
        (!content.is_empty()).then_some(PastMessage { role, content })
    });
    past.collect()
}

fn past_task(task: MemoryEntry) -> PastTask {
    PastTask {
        input: task.text,
        result: one_line(task.detail["result"].as_str().unwrap_or_default()),
        success: task.detail["success"].as_bool().unwrap_or_default(),
    }
}

/// All tools, from which each turn gets a selection.
pub struct TurnTools {
    pub all: Arc<ToolExecutor>,
    /// The tools for each agent folder other than the workspace.
    pub elsewhere: HashMap<PathBuf, Arc<ToolExecutor>>,
    /// `agent.spawn.depth`.
    pub spawn_depth: u32,
}

impl TurnTools {
    /// Returns the tools of a turn of this `origin` for its agent.
    pub fn of_turn(&self, origin: &TurnOrigin, agent: &TurnAgent) -> Arc<ToolExecutor> {
        let is_deep = origin.depth() >= self.spawn_depth;
        // The tools of all agent folders are created at the start.
        let elsewhere = agent.profile.workspace.as_ref().and_then(|path| self.elsewhere.get(path));
        let mut tools = elsewhere.unwrap_or(&self.all).clone();
        for listed in agent.all().filter_map(|agent| agent.tools.as_ref()).chain(&origin.settings.tools) {
            tools = Arc::new(only(&tools, listed));
        }
        let is_withheld = |name: &str| {
            is_deep && name == SPAWN
                || agent.memory() == AgentMemory::None && MEMORY_TOOLS.contains(&name)
                || agent.all().any(|agent| agent.denies_tool(name))
        };
        // A selection composes its specifications anew, so an agent without limits shares those of all turns.
        let has_withheld = tools.registry().all().any(|(tool, _)| is_withheld(&tool.spec().name));
        if has_withheld { Arc::new(tools.filtered(|name| !is_withheld(name))) } else { tools }
    }
}

/// Returns the tools that `listed` names, by name or alias.
fn only(tools: &ToolExecutor, listed: &[String]) -> ToolExecutor {
    let names = listed.iter().filter_map(|name| Some(tools.registry().get(name)?.spec().name.clone()));
    let names: Vec<_> = names.collect();
    tools.filtered(|name| names.iter().any(|listed| listed == name)).offering_all()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::json;

    use super::*;
    use crate::chat::ToolCall;
    use crate::tools::ToolsConfig;
    use crate::tools::testing::{ToolFixture, context};

    #[tokio::test]
    async fn a_turn_has_only_the_listed_tools_also_in_a_plan() {
        let fixture = ToolFixture::new(&ToolsConfig::default());
        std::fs::write(fixture.path("a.txt"), "one").unwrap();
        let listed = ["READ_FILE", "parallel", "no_such"].map(str::to_owned);
        let tools = only(&fixture.executor, &listed);
        let names: Vec<_> = tools.specs(&BTreeSet::new()).iter().map(|spec| spec.name.clone()).collect();
        assert_eq!(names, ["read_file", "parallel"]);
        let plan = |tool: &str| json!({"calls": [{"tool": tool, "arguments": {"path": "a.txt"}}]});
        for (name, arguments, expected) in [
            ("read_file", json!({"path": "a.txt"}), "one"),
            ("cat", json!({"path": "a.txt"}), "one"),
            (
                "exec",
                json!({"command": "id"}),
                "\"exec\" is not available in this turn. Available tools: read_file, parallel",
            ),
            ("shell", json!({"command": "id"}), "is not available in this turn"),
            ("no_such", json!({}), "not found"),
            ("parallel", plan("read_file"), "one"),
            ("parallel", plan("list_dir"), "\"list_dir\" is not available in this turn"),
        ] {
            let call = ToolCall { id: "c".to_owned(), name: name.to_owned(), arguments: arguments.to_string() };
            let rendered = tools.run(&call, &context()).await.result.render();
            assert!(rendered.contains(expected), "{name} {arguments}: {rendered}");
        }
        assert!(only(&fixture.executor, &[]).specs(&BTreeSet::new()).is_empty());
    }
}
