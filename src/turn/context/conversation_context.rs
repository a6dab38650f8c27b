//! The context of a turn: the window of its session's log, the summary of the messages before the window, and the long-term memory
//! about the writer.

use std::sync::Arc;

use daoyou_channels::settings::size;
use daoyou_channels::text::hex;
use daoyou_channels::{SessionKey, TurnSettings};
use moka::policy::EvictionPolicy;
use moka::sync::Cache;
use sha2::{Digest, Sha256};

use super::private_memory;
use super::system_prompt::{SystemPrompt, SystemText, with_memory};
use super::window::{self, HistoryCache, HistorySlice, HistoryWindow};
use crate::chat::{ChatMessage, ToolSpec};
use crate::guard::Taint;
use crate::llm::{Models, TokenFactor, estimate_tokens};
use crate::memory::{self, AnsweredTurn, MemoryOwner, MemoryService, MemorySettings};
use crate::origin::TurnOrigin;
use crate::store::approvals;
use crate::store::inbox::InboxRow;
use crate::store::messages::{self, SessionHead};
use crate::store::session_memory::{self, SessionMemory};
use crate::store::{Connection, Durability, Store, StoreError, forgetting, memories};
use crate::turn::progress::ContextStep;
use crate::turn::token_budget::{self, RequestParts, TokenBudget};

/// The maximum memory for the kept system prompts, in bytes.
const SYSTEM_TEXT_CAPACITY: u64 = 4 << 20;

/// The context of a turn.
pub struct ConversationContext {
    pub head: SessionHead,
    pub messages: Vec<Arc<ChatMessage>>,
    /// The seq of the first message.
    pub from: i64,
    /// The history fills its window, or nearly.
    pub is_full: bool,
    pub memory: PromptMemory,
    /// The owners whose memories the prompt may contain, the sender first; empty for an untrusted sender.
    pub owners: Vec<MemoryOwner>,
    /// People other than the sender read the answer.
    pub is_read_by_others: bool,
    /// The count of forgotten memories when this context was read.
    pub forget_count: i64,
    /// The names of the foreign content in the conversation; see [`Taint`].
    pub taint: Taint,
}

/// The long-term memory in the system prompt.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PromptMemory {
    pub snapshot: Option<MemorySnapshot>,
    /// The id and the text of the summary of the messages before the window.
    pub summary: Option<(i64, String)>,
}

/// A snapshot of the long-term memory, which all prompts of an epoch share.
#[derive(Clone, Debug, PartialEq)]
pub struct MemorySnapshot {
    pub hash: String,
    pub owner: String,
    /// The text for the prompt; empty if the memory is empty.
    pub text: String,
    /// The store holds the snapshot for its epoch.
    pub is_stored: bool,
    /// The snapshot replaces an earlier one, because each turn of a fresh session takes a new snapshot.
    pub is_replacement: bool,
}

impl MemorySnapshot {
    fn new(owner: &str, text: String) -> Self {
        let hash = hash_of(owner, &text);
        Self { hash, owner: owner.to_owned(), text, is_stored: false, is_replacement: false }
    }

    /// Stores the snapshot for an epoch, unless a memory was forgotten since the snapshot was taken: the snapshot may contain that
    /// memory.
    fn keep(
        &self,
        connection: &Connection,
        (session, epoch): (&str, i64),
        forget_count: i64,
    ) -> Result<(), StoreError> {
        if forgetting::count(connection)? != forget_count {
            return Ok(());
        }
        if self.is_replacement {
            session_memory::release_snapshot(connection, session, epoch)?;
        }
        session_memory::keep_snapshot(connection, &self.hash, &self.owner, &self.text)?;
        session_memory::set_snapshot(connection, session, epoch, &self.hash)
    }
}

impl PromptMemory {
    /// Estimates the tokens of this memory in a prompt.
    fn tokens(&self) -> usize {
        let known = self.snapshot.as_ref().map_or(0, |snapshot| estimate_tokens(&snapshot.text));
        known + self.summary.as_ref().map_or(0, |(_, text)| estimate_tokens(text))
    }
}

/// The most recently used system prompts with memory, which most turns of a session share. The key is the hash of the prompt without
/// memory, the text of the snapshot, and the summary.
pub struct SystemTextCache(Cache<(Arc<str>, String, String), SystemText>);

impl Default for SystemTextCache {
    fn default() -> Self {
        let texts = Cache::builder().max_capacity(SYSTEM_TEXT_CAPACITY).eviction_policy(EvictionPolicy::lru());
        // A text is kept in its JSON form as well, and the key repeats a part of it.
        let bytes = |_: &_, system: &SystemText| u32::try_from(system.text.len() * 3).unwrap_or(u32::MAX);
        Self(texts.weigher(bytes).build())
    }
}

impl SystemTextCache {
    /// Returns the system prompt `system` with this memory added.
    pub fn add_memory(&self, system: SystemText, memory: &PromptMemory) -> SystemText {
        let known = memory.snapshot.as_ref().map_or("", |snapshot| snapshot.text.as_str());
        let summary = memory.summary.as_ref().map_or("", |(_, text)| text.as_str());
        if known.is_empty() && summary.is_empty() {
            return system;
        }
        let key = (system.hash.clone(), known.to_owned(), summary.to_owned());
        self.0.get_with(key, || SystemText::new(with_memory(&system.text, known, summary)))
    }
}

/// Settings of the context.
#[derive(Clone, Debug)]
pub struct ContextSettings {
    /// `agent.model`.
    pub model: String,
    /// `agent.memory_window`.
    pub memory_window: u32,
    /// `agent.context_tokens`.
    pub context_tokens: u32,
    /// `agent.max_tokens`.
    pub max_tokens: Option<u32>,
}

/// The settings by which a turn's agent changes the context.
#[derive(Clone, Copy, Debug, Default)]
pub struct AgentContext<'a> {
    /// The agent's own model.
    pub model: Option<&'a str>,
    /// The agent's longest answer, in tokens.
    pub max_tokens: Option<u32>,
    /// The agent's limit of the history; see [`HistoryWindow::rounds`].
    pub rounds: Option<u32>,
    pub memory: AgentMemory<'a>,
}

/// The parts of a prompt that the agent of a turn decides.
#[derive(Clone, Copy)]
pub struct PromptParts<'a> {
    /// The system prompt.
    pub system: &'a SystemText,
    pub tools: &'a Arc<[ToolSpec]>,
    pub agent: AgentContext<'a>,
}

/// The memory that an agent has about the person who writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AgentMemory<'a> {
    #[default]
    Shared,
    /// The facts that the agent of this name itself has learned.
    Own(&'a str),
    None,
}

impl AgentMemory<'_> {
    /// Returns the owner of the memories that the agent has about `person`.
    pub fn owner(self, person: MemoryOwner) -> Option<MemoryOwner> {
        match self {
            Self::Shared => Some(person),
            Self::Own(name) => Some(person.of_agent(name)),
            Self::None => None,
        }
    }
}

/// Composes the contexts of turns.
pub struct ContextBuilder {
    pub store: Store,
    pub memory: Arc<MemoryService>,
    pub models: Arc<Models>,
    pub tokens: Arc<TokenBudget>,
    pub system: SystemPrompt,
    pub system_texts: SystemTextCache,
    pub history: HistoryCache,
    pub settings: ContextSettings,
}

impl ContextBuilder {
    /// Composes the context for the message `last` with its `origin` in a prompt with these `parts`. A turn that resumes from `context`
    /// gets the same context again.
    ///
    /// # Errors
    /// The store cannot be read.
    pub fn load(
        &self,
        session: &SessionKey,
        last: &InboxRow,
        origin: &TurnOrigin,
        parts: PromptParts<'_>,
        context: Option<&ContextStep>,
    ) -> Result<ConversationContext, StoreError> {
        let key = session.to_string();
        let settings = self.memory.settings.clone();
        let person = settings.identities.owner_of_row(last);
        let owner = person.clone().and_then(|person| parts.agent.memory.owner(person));
        let is_fresh = origin.settings.fresh;
        self.store.read_here(|connection| {
            let head = messages::session(connection, &key)?;
            let (is_shared, channel, chat_id) = (head.ownership.is_shared, &*last.channel, &*last.chat_id);
            let turn = AnsweredTurn { session: &key, is_shared, channel, chat_id, origin };
            let is_read_by_others = turn.is_read_by_others(connection, person.as_ref(), &settings.identities)?;
            let state = session_memory::get(connection, &key, head.epoch)?;
            let query = PromptMemoryQuery {
                connection,
                key: &key,
                settings: &settings,
                owner: owner.as_ref(),
                is_read_by_others,
            };
            let memory = match context {
                Some(context) => query.load_again(context)?,
                None => query.load(&state, is_fresh)?,
            };
            let (from, log, is_full) = match context {
                Some(context) => (context.from, window::choose_again(connection, &key, context)?, false),
                None if is_fresh => (head.next_seq, Vec::new(), false),
                None => {
                    let covered = if settings.config.enabled { state.cursor - state.overlap } else { 0 };
                    let first_seq = covered.clamp(head.first_seq, head.next_seq);
                    let uncovered = SessionHead { first_seq, ..head.clone() };
                    let memory = memory.tokens() + size(settings.config.hit_tokens);
                    let configured = parts.agent.model.unwrap_or(&self.settings.model);
                    let model = wanted_model(&origin.settings, head.model.as_deref(), configured);
                    let window = self.window(&model, &last.content, parts, memory);
                    let HistorySlice { from, messages, is_full } =
                        window::choose(&self.history, connection, &key, &uncovered, window)?;
                    (from, messages, is_full)
                }
            };
            let mut messages: Vec<_> = log.iter().map(|logged| logged.message.clone()).collect();
            if is_read_by_others {
                private_memory::strip(messages.iter_mut().map(Arc::make_mut));
            }
            Ok(ConversationContext {
                taint: approvals::taint_of_epoch(connection, &key, head.epoch)?,
                head,
                messages,
                from,
                is_full,
                memory,
                owners: query.owners(),
                is_read_by_others,
                forget_count: forgetting::count(connection)?,
            })
        })
    }

    /// Returns the bounds of the history, which shares the context of `model` with the new message and everything else.
    fn window(&self, model: &str, message: &str, parts: PromptParts<'_>, memory: usize) -> HistoryWindow {
        let PromptParts { system, tools, agent } = parts;
        let most = size(self.settings.context_tokens);
        let parts = RequestParts {
            context: self.tokens.context(&self.models, model).map_or(most, |held| size(held).min(most)),
            answer: agent.max_tokens.or(self.settings.max_tokens).map(size),
            system: system.tokens,
            tools: self.tokens.tools(tools),
            memory,
            message: estimate_tokens(message),
        };
        let known = self.models.known_name(model);
        let factor = known.map_or_else(TokenFactor::default, |name| self.tokens.factor(&name));
        HistoryWindow {
            messages: self.settings.memory_window,
            rounds: agent.rounds,
            tokens: token_budget::remaining_for_history(parts, factor),
        }
    }

    /// Stores a new snapshot for all later turns of its epoch; an empty one is stored in the background.
    pub async fn keep_snapshot(&self, session: &SessionKey, context: &ConversationContext) {
        let Some(snapshot) = context.memory.snapshot.clone().filter(|snapshot| !snapshot.is_stored) else { return };
        let (key, store, is_empty) = (session.to_string(), self.store.clone(), snapshot.text.is_empty());
        let (epoch, forget_count) = (context.head.epoch, context.forget_count);
        let write = async move {
            let write = move |connection: &Connection| snapshot.keep(connection, (&key, epoch), forget_count);
            match store.write(Durability::Logged, write).await {
                Ok(()) | Err(StoreError::Closed) => {}
                // The next turn takes the snapshot again; it is the same unless a fact was learned meanwhile.
                Err(error) => tracing::warn!(%error, "the memory snapshot of a prompt could not be stored"),
            }
        };
        if is_empty {
            tokio::spawn(write);
        } else {
            write.await;
        }
    }
}

/// Returns the model for a message with these `settings`. The first of these that is set counts: the model that the message names, the
/// model that `/model` has `chosen` for the session, the channel's model, the `configured` one.
pub fn wanted_model(settings: &TurnSettings, chosen: Option<&str>, configured: &str) -> String {
    let requested = settings.requested_model.as_deref().filter(|model| !model.is_empty());
    requested.or(chosen).or(settings.model.as_deref()).unwrap_or(configured).to_owned()
}

/// Reads the memory for a prompt.
struct PromptMemoryQuery<'a> {
    connection: &'a Connection,
    key: &'a str,
    settings: &'a MemorySettings,
    owner: Option<&'a MemoryOwner>,
    is_read_by_others: bool,
}

impl PromptMemoryQuery<'_> {
    /// Returns the owner whose private memory the prompt may contain; `None` if others read the chat.
    fn private(&self) -> Option<&MemoryOwner> {
        self.owner.filter(|_| !self.is_read_by_others)
    }

    fn owners(&self) -> Vec<MemoryOwner> {
        if self.owner.is_none() || !self.settings.config.enabled {
            return Vec::new();
        }
        self.private().cloned().into_iter().chain([MemoryOwner::everyone()]).collect()
    }

    fn load(&self, state: &SessionMemory, is_fresh: bool) -> Result<PromptMemory, StoreError> {
        if !self.settings.config.enabled {
            return Ok(PromptMemory::default());
        }
        let summary = if is_fresh { None } else { state.summary };
        let snapshot = match self.owner {
            Some(_) if is_fresh => {
                let taken = self.snapshot(None)?;
                Some(MemorySnapshot {
                    is_stored: state.snapshot.as_ref() == Some(&taken.hash),
                    is_replacement: true,
                    ..taken
                })
            }
            Some(_) => Some(self.snapshot(state.snapshot.as_deref())?),
            None => None,
        };
        Ok(PromptMemory { snapshot, summary: self.summary(summary)? })
    }

    fn load_again(&self, context: &ContextStep) -> Result<PromptMemory, StoreError> {
        // A consolidation may have removed the snapshot while the turn waited; then it is taken again.
        let snapshot = context.snapshot.as_deref().map(|hash| self.snapshot(Some(hash))).transpose()?;
        Ok(PromptMemory { snapshot, summary: self.summary(context.summary)? })
    }

    fn snapshot(&self, kept: Option<&str>) -> Result<MemorySnapshot, StoreError> {
        if let Some(hash) = kept
            && let Some(snapshot) = self.stored_snapshot(hash)?
        {
            return Ok(snapshot);
        }
        let MemorySettings { config, zone, .. } = self.settings;
        let tokens = size(config.snapshot_tokens);
        let text = memory::prompt_snapshot(self.connection, self.private(), tokens, zone, estimate_tokens)?;
        Ok(MemorySnapshot::new(self.owner_key(), text))
    }

    /// Returns a stored snapshot if it belongs to the same owner.
    fn stored_snapshot(&self, hash: &str) -> Result<Option<MemorySnapshot>, StoreError> {
        let text = session_memory::snapshot(self.connection, hash)?;
        let owner = self.owner_key();
        let snapshot = text.filter(|text| hash_of(owner, text) == hash);
        Ok(snapshot.map(|text| MemorySnapshot { is_stored: true, ..MemorySnapshot::new(owner, text) }))
    }

    fn owner_key(&self) -> &str {
        self.private().map_or("everyone", MemoryOwner::as_str)
    }

    fn summary(&self, id: Option<i64>) -> Result<Option<(i64, String)>, StoreError> {
        let Some(id) = id else { return Ok(None) };
        let row = memories::find(self.connection, id)?;
        if row.is_none() {
            tracing::debug!(session = self.key, id, "the summary of a conversation was forgotten");
        }
        Ok(row.map(|row| (id, row.text)))
    }
}

fn hash_of(owner: &str, text: &str) -> String {
    hex(&Sha256::digest(format!("{owner}\n{text}").as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_system_prompt_with_memory_is_composed_once() {
        let cache = SystemTextCache::default();
        let system =
            SystemText { tools: ["recall".to_owned()].into(), ..SystemText::new("You are daoyou.".to_owned()) };
        let memory = |known: &str, summary: &str| PromptMemory {
            snapshot: Some(MemorySnapshot::new("owner", known.to_owned())),
            summary: (!summary.is_empty()).then(|| (1, summary.to_owned())),
        };
        let text = |known: &str, summary: &str| cache.add_memory(system.clone(), &memory(known, summary));
        assert_eq!(text("", "").tools, system.tools, "without memory it stays the same");
        let [first, again] = [text("- a cat", "a talk"), text("- a cat", "a talk")];
        assert!(Arc::ptr_eq(&first.hash, &again.hash));
        assert!(
            first.text.starts_with(&*system.text) && first.text.contains("- a cat") && first.text.contains("a talk")
        );
        for (known, summary) in [("- a dog", "a talk"), ("- a cat", "another"), ("- a cat", ""), ("", "a talk")] {
            let other = text(known, summary);
            assert!(other.text.contains(known) && other.text.contains(summary) && other.hash != first.hash);
        }
        let other = cache.add_memory(SystemText::new("You are a coder.".to_owned()), &memory("- a cat", "a talk"));
        assert!(other.text.starts_with("You are a coder."));
    }

    #[tokio::test]
    async fn a_snapshot_is_not_kept_if_something_was_forgotten_since() {
        let (_folder, store) = Store::temporary();
        let work = |connection: &Connection| {
            let mut kept = Vec::new();
            for is_forgotten in [false, true] {
                let snapshot = MemorySnapshot::new("owner", format!("- my cat is Momo {is_forgotten}"));
                let read = forgetting::count(connection)?;
                if is_forgotten {
                    forgetting::record(connection)?;
                }
                let epoch = i64::from(is_forgotten);
                snapshot.keep(connection, ("s", epoch), read)?;
                let named = session_memory::get(connection, "s", epoch)?.snapshot.is_some();
                kept.push((session_memory::snapshot(connection, &snapshot.hash)?.is_some(), named));
            }
            Ok(kept)
        };
        assert_eq!(store.write(Durability::Logged, work).await.unwrap(), [(true, true), (false, false)]);
    }
}
