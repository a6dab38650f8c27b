//! The agent of a turn: which agent answers, and which settings of the turn it changes.

use std::collections::BTreeSet;
use std::sync::Arc;

use daoyou_channels::Trust;

use crate::chat::ChatMessage;
use crate::memory::{MemoryKind, Owner, RUNTIME_CONTEXT, sender_of, written};
use crate::origin::TurnOrigin;
use crate::profiles::{
    AgentDirectory, AgentOrchestrator, AgentProfile, BranchValues, ChosenAgent, DEFAULT_AGENT, MemoryScope,
    PastMessage, PastTask, PromptValues, UserPreference,
};
use crate::store::inbox::InboxRow;
use crate::store::{Store, StoreError, memories};
use crate::text::{one_line, truncate};
use crate::tools::AgentScope;
use crate::turn::context::attachments;
use crate::turn::context::conversation_context::{AgentContext, AgentMemory};
use crate::turn::context::system_prompt::PromptAgent;
use crate::turn::error::{ErrorCode, TurnError};

/// The most rounds of earlier messages, the most tasks and the most preferences that a template receives.
const PAST_ROUNDS: usize = 3;
const PAST_TASKS: u32 = 5;
const PREFERENCES: u32 = 50;
/// The most characters of each earlier message.
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
    /// Returns the agent that answers the message `last`: the agent that the message names, or else the session's `chosen` agent, or
    /// else that of the chat. Regardless of the choice, an outside sender gets the agent of the chat, and a known sender that of a
    /// route.
    ///
    /// # Errors
    /// The agent no longer exists.
    pub fn of_message(agents: &AgentDirectory, last: &InboxRow, chosen: Option<&str>) -> Result<Self, TurnError> {
        let settings = TurnOrigin::parse(&last.origin).settings;
        let routed = agents.routed(&last.channel, &last.chat_id, &sender_of(last));
        let chosen = chosen.filter(|_| match Trust::parse(&last.trust) {
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

    /// Returns the agent with which a turn began.
    ///
    /// # Errors
    /// The agent no longer exists.
    pub fn resumed(agents: &AgentDirectory, last: &InboxRow, name: Option<&str>) -> Result<Self, TurnError> {
        let within = TurnOrigin::parse(&last.origin).settings.within;
        Self::new(agents, find(agents, name.unwrap_or(DEFAULT_AGENT))?, &within)
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
    /// replaces it. `text` is the message with its runtime context, `owners` are the owners whose memories the prompt may contain.
    ///
    /// # Errors
    /// The store cannot be read.
    pub fn message_text(
        &self,
        text: &str,
        (store, owners, history, files): (&Store, &[Owner], &[ChatMessage], &[String]),
    ) -> Result<Option<String>, StoreError> {
        let Some(prompt) = self.profile.prompt.as_ref().filter(|prompt| !prompt.needed().is_empty()) else {
            return Ok(None);
        };
        let at = text.rfind(RUNTIME_CONTEXT).unwrap_or(text.len());
        let (written, added) = text.split_at(at);
        let needs = |name: &str| prompt.needed().iter().any(|needed| needed == name);
        let owner = owners.first().filter(|owner| **owner != Owner::everyone());
        let rows = |kind: MemoryKind, limit: u32| match owner {
            Some(owner) => {
                store.read_here(|connection| memories::current(connection, owner.as_str(), kind.as_str(), limit))
            }
            None => Ok(Vec::new()),
        };
        let mut values =
            PromptValues { user_input: written.to_owned(), files: files.to_vec(), ..PromptValues::default() };
        if needs("conversation_history") {
            values.conversation_history = past_messages(history);
        }
        if needs("user_preferences") {
            let rows = rows(MemoryKind::Preference, PREFERENCES)?;
            values.user_preferences =
                rows.into_iter().map(|row| UserPreference { key: row.name, value: row.text }).collect();
        }
        if needs("recent_tasks") {
            values.recent_tasks = rows(MemoryKind::Task, PAST_TASKS)?.into_iter().map(past_task).collect();
        }
        Ok(prompt.render(&values).map(|rendered| format!("{rendered}{added}")))
    }
}

fn find(agents: &AgentDirectory, name: &str) -> Result<Arc<AgentProfile>, TurnError> {
    let found = agents.find(name).cloned();
    found.ok_or_else(|| TurnError::new(ErrorCode::NoAgent, "turn").with([agents.unknown(name)]))
}

/// Returns the messages of people and of the agent in the last rounds.
fn past_messages(history: &[ChatMessage]) -> Vec<PastMessage> {
    let begins: Vec<usize> = history
        .iter()
        .enumerate()
        .filter(|(_, message)| matches!(message, ChatMessage::User { .. }))
        .map(|(at, _)| at)
        .collect();
    let first = begins.len().checked_sub(PAST_ROUNDS).and_then(|at| begins.get(at)).copied().unwrap_or(0);
    let past = history.iter().skip(first).filter_map(|message| {
        let content = match message {
            ChatMessage::User { content, .. } => written(content).to_owned(),
            ChatMessage::Assistant { content, .. } => content.clone(),
            ChatMessage::Tool { .. } => return None,
        };
        let (role, content) = (message.role().to_owned(), truncate(content.trim(), MAX_PAST));
        (!content.is_empty()).then_some(PastMessage { role, content })
    });
    past.collect()
}

fn past_task(row: memories::MemoryRow) -> PastTask {
    let detail: serde_json::Value = serde_json::from_str(&row.detail).unwrap_or_default();
    PastTask {
        input: row.text,
        result: one_line(detail["result"].as_str().unwrap_or_default()),
        success: detail["success"].as_bool().unwrap_or_default(),
    }
}
