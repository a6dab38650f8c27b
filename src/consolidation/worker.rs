//! Looks for due sessions at the start and after each turn, and consolidates them in the background.

use std::collections::HashSet;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use daoyou_channels::SessionKey;
use daoyou_channels::settings::size;
use futures_util::future::OptionFuture;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::commit::{CommitResult, ConsolidationCommit, MAX_TRIES, SummaryOutcome, begin, close, tokens_today};
use super::part::{ConsolidationTask, ConversationPart, PartLimits, next};
use super::summarizer::{Summarizer, Summary, SummaryError};
use crate::crash;
use crate::live::LivePart;
use crate::llm::Models;
use crate::memory::{MemoryConfig, MemoryService, MemorySettings};
use crate::origin::TurnOrigin;
use crate::postprocess::ModelUse;
use crate::session::session_ownership::is_conversation;
use crate::store::{Connection, Durability, Store, StoreError, messages, now_ms, ownership, session_memory};
use crate::turn::context::conversation_context::wanted_model;
use crate::turn::token_budget::TokenBudget;

/// The maximum number of due sessions that are read at once.
const MAX_DUE: u32 = 32;
/// The minimum number of messages of an idle conversation that gets a summary.
const MIN_IDLE_MESSAGES: i64 = 4;
/// The period before the start that the search for idle conversations covers, in milliseconds.
const IDLE_LOOKBACK_MS: i64 = 7 * 86_400_000;
/// The maximum number of tokens that a model reads at once.
const INPUT_TOKENS: usize = 24_000;
/// The pause after a failed write.
const STORE_PAUSE: Duration = Duration::from_secs(5);
/// The minimum pause between two searches for idle conversations.
const MIN_PAUSE: Duration = Duration::from_secs(1);

/// The pause after a turn, so that turns that end at the same time are handled together.
const SETTLE: Duration = Duration::from_millis(300);
/// The pause after a turn in a process that runs a single conversation. Such a process often ends with its turn, before a
/// consolidation could finish.
const FINAL_SETTLE: Duration = Duration::from_secs(1);

/// The worker that consolidates sessions.
pub struct Consolidator {
    summarizer: Box<dyn Fn() -> Summarizer + Send + Sync>,
    memory: LivePart<MemoryService>,
    /// The conversation of a process that runs no other; `None` for all conversations.
    only: Option<SessionKey>,
    running: RunningConsolidations,
    /// All sessions that were last used before this time have been examined; in UTC milliseconds.
    idle_from: i64,
}

impl Consolidator {
    /// Creates a worker for all conversations, or for `only` one.
    pub fn new(
        summarizer: impl Fn() -> Summarizer + Send + Sync + 'static,
        memory: LivePart<MemoryService>,
        only: Option<SessionKey>,
    ) -> Self {
        Self {
            summarizer: Box::new(summarizer),
            memory,
            only,
            running: RunningConsolidations::default(),
            idle_from: now_ms() - IDLE_LOOKBACK_MS,
        }
    }

    /// Runs until `shutdown`; unfinished summaries are written after the next start.
    pub async fn run(mut self, shutdown: CancellationToken) {
        let mut messages = self.memory.get().subscribe_to_messages();
        let settle = if self.only.is_some() { FINAL_SETTLE } else { SETTLE };
        loop {
            let wake = match self.start_due().await {
                Ok(wake) => wake,
                Err(StoreError::Closed) => return,
                Err(error) => {
                    tracing::warn!(%error, "the due consolidations could not be read");
                    Some(STORE_PAUSE)
                }
            };
            let gathered = async {
                let changed = messages.changed().await;
                tokio::time::sleep(settle).await;
                changed
            };
            tokio::select! {
                () = shutdown.cancelled() => break,
                gathered = gathered => {
                    if gathered.is_err() {
                        return;
                    }
                    messages.mark_unchanged();
                }
                Some(()) = self.running.next_end() => {}
                Some(()) = OptionFuture::from(wake.map(tokio::time::sleep)) => {}
            }
        }
        self.running.shut_down().await;
    }

    /// Starts due consolidations as far as there is room; returns the time until the next check if nothing changes.
    async fn start_due(&mut self) -> Result<Option<Duration>, StoreError> {
        let memory = self.memory.get();
        let (settings, store) = (memory.settings.clone(), memory.store.clone());
        if !settings.config.enabled {
            return Ok(None);
        }
        let rest = self.note_idle_sessions(&store, &settings).await?;
        let (now, only) = (now_ms(), self.only.clone());
        let read = move |connection: &Connection| {
            let due = match &only {
                Some(only) => session_memory::due_of(connection, only.as_str(), now)?,
                None => session_memory::due(connection, now, MAX_DUE)?,
            };
            Ok((due, session_memory::next_retry(connection, now)?))
        };
        let (due, next_try) = store.read(read).await?;
        for (session, epoch, state) in due {
            if !self.running.has_room() {
                break;
            }
            let (summarizer, epoch_key) = ((self.summarizer)(), (session.clone(), epoch));
            let task = ConsolidationTask { session, epoch, state };
            self.running.begin(epoch_key, async move { consolidate(&summarizer, task).await });
        }
        let next_try = next_try.map(|at| until(at, now));
        Ok([rest, next_try].into_iter().flatten().min())
    }

    /// Marks idle conversations as due; returns the time until the next conversation may become idle.
    async fn note_idle_sessions(
        &mut self,
        store: &Store,
        settings: &MemorySettings,
    ) -> Result<Option<Duration>, StoreError> {
        let Ok(idle) = i64::try_from(settings.config.idle.0.as_millis()) else { return Ok(None) };
        if idle == 0 {
            return Ok(None);
        }
        let now = now_ms();
        let (from, to) = (self.idle_from, now - idle);
        let read = move |connection: &Connection| {
            let idle_sessions = session_memory::idle_sessions(connection, (from, to), MIN_IDLE_MESSAGES, MAX_DUE)?;
            Ok((idle_sessions, session_memory::next_use_after(connection, to)?))
        };
        let (idle_sessions, next) = store.read(read).await?;
        let is_all = idle_sessions.len() < usize::try_from(MAX_DUE).unwrap_or(usize::MAX);
        let next_from = if is_all { to + 1 } else { idle_sessions.last().map_or(to, |(.., at)| *at) };
        if !idle_sessions.is_empty() {
            let note = move |connection: &Connection| {
                for (session, epoch, _) in &idle_sessions {
                    let last = ownership::last_writer(connection, session)?;
                    if last.is_some_and(|row| is_conversation(&row)) {
                        session_memory::set_due(connection, session, *epoch, "idle")?;
                    }
                }
                Ok(())
            };
            store.write(Durability::Logged, note).await?;
        }
        // This is set only after the write, so that after an error the same conversations are examined again.
        self.idle_from = next_from;
        Ok(if is_all { next.map(|used| until(used + idle, now)) } else { Some(MIN_PAUSE) })
    }
}

fn until(at: i64, now: i64) -> Duration {
    Duration::from_millis(u64::try_from(at - now).unwrap_or(0)).max(MIN_PAUSE)
}

/// Consolidates an epoch, part by part.
async fn consolidate(summarizer: &Summarizer, mut task: ConsolidationTask) {
    loop {
        let (session, epoch) = (task.session.clone(), task.epoch);
        let before = task.state.clone();
        match consolidate_next(summarizer, task).await {
            Ok(Some(state)) if state.due_reason.is_some() && state.retry_at <= now_ms() && state != before => {
                task = ConsolidationTask { session, epoch, state };
            }
            Ok(_) | Err(StoreError::Closed) => return,
            Err(error) => {
                tracing::warn!(session, %error, "a conversation could not be consolidated");
                // The failure is not recorded, so without a pause the same part would be tried in a tight loop.
                return tokio::time::sleep(STORE_PAUSE).await;
            }
        }
    }
}

/// Consolidates the next part; returns the epoch's new state, or `None` if nothing was left.
async fn consolidate_next(
    summarizer: &Summarizer,
    task: ConsolidationTask,
) -> Result<Option<session_memory::SessionMemory>, StoreError> {
    let (store, settings) = (summarizer.memory.store.clone(), summarizer.memory.settings.clone());
    let (of_limits, of_read) = (PartSizing::of(summarizer, &settings), settings.clone());
    let (session, epoch, state) = (task.session.clone(), task.epoch, task.state.clone());
    let read = move |connection: &Connection| {
        let limits = of_limits.limits(connection, &task.session)?;
        let part = next(connection, task, &limits, &of_read.identities)?;
        Ok((part, tokens_today(connection, &of_read.zone)?))
    };
    let (part, spent) = store.read(read).await?;
    let Some(mut part) = part else {
        store.write(Durability::Logged, move |connection| close(connection, &session, epoch, &state)).await?;
        return Ok(None);
    };
    crash::point("consolidation_begun", &session);
    let (outcome, used) = summarise_part(summarizer, &mut part, &settings, spent).await?;
    crash::point("consolidation_answered", &session);
    let messages = part.to - part.from;
    let commit = ConsolidationCommit { part, result: outcome, used, settings };
    let kept = store.write(Durability::Logged, move |connection| commit.write(connection)).await?;
    crash::point("consolidation_committed", &session);
    match kept {
        CommitResult::Summarised { noticed } => {
            tracing::info!(session, epoch, messages, noticed, "a part of the conversation was summarised");
            summarizer.memory.notify_changes();
        }
        CommitResult::Changed => tracing::info!(session, "the summarised part has changed meanwhile and is read again"),
        CommitResult::Postponed => {}
    }
    Ok(Some(store.read(move |connection| session_memory::get(connection, &session, epoch)).await?))
}

/// Asks a model for the summary, if one may be asked.
async fn summarise_part(
    summarizer: &Summarizer,
    part: &mut ConversationPart,
    settings: &MemorySettings,
    spent: u64,
) -> Result<(SummaryOutcome, Option<ModelUse>), StoreError> {
    let session = part.task.session.clone();
    if spent >= settings.config.tokens_per_day {
        tracing::info!(
            session,
            spent,
            "the tokens for summaries are used up for today; an extract replaces the summary"
        );
        return Ok((SummaryOutcome::Extract, None));
    }
    if part.is_backlog || !part.has_person_message() || part.task.state.failures >= MAX_TRIES {
        return Ok((SummaryOutcome::Extract, None));
    }
    let (key, epoch) = (session.clone(), part.task.epoch);
    summarizer.memory.store.write(Durability::Logged, move |connection| begin(connection, &key, epoch)).await?;
    match summarizer.summarise(part).await {
        Ok(Summary { answer, used }) => Ok((SummaryOutcome::Written(answer), Some(used))),
        Err(failed) => {
            let used = failed.used().cloned();
            if failed.may_be_tried_again() {
                tracing::warn!(session, error = %failed, "a conversation could not be summarised");
                return Ok((SummaryOutcome::Failed, used));
            }
            if let SummaryError::Call(error) = &failed {
                tracing::info!(session, %error, "an extract replaces the summary");
            }
            Ok((SummaryOutcome::Extract, used))
        }
    }
}

/// Computes the limits of a conversation's parts.
struct PartSizing {
    models: Arc<Models>,
    budget: Arc<TokenBudget>,
    /// `agent.model`, and `agent.context_tokens`.
    model: String,
    most: u32,
    config: MemoryConfig,
}

impl PartSizing {
    fn of(summarizer: &Summarizer, memory: &MemorySettings) -> Self {
        let Summarizer { chains, tokens, model, context_tokens, .. } = summarizer;
        let (models, budget, config) = (chains.models.clone(), tokens.clone(), memory.config.clone());
        Self { models, budget, model: model.clone(), most: *context_tokens, config }
    }

    /// Returns the limits: the kept messages must fit the model of the conversation, the part must fit the model that
    /// writes the summary.
    fn limits(&self, connection: &Connection, session: &str) -> Result<PartLimits, StoreError> {
        let chosen = messages::session(connection, session)?.model;
        let talks = match ownership::last_writer(connection, session)? {
            Some(row) => wanted_model(&TurnOrigin::parse(&row.origin).settings, chosen.as_deref(), &self.model),
            None => chosen.clone().unwrap_or_else(|| self.model.clone()),
        };
        let writes = match self.config.model.as_str() {
            "" => chosen.as_deref().unwrap_or(&self.model),
            model => model,
        };
        // With a small context, more space must be free, or the next summary would be due after a few turns.
        let window = self.window(&talks);
        let kept_tokens = (window / 4).saturating_sub(4_000).max(window / 16);
        let input_tokens = self.window(writes).clamp(1_000, INPUT_TOKENS);
        Ok(PartLimits { keep: i64::from(self.config.keep), kept_tokens, input_tokens })
    }

    /// Estimates how many tokens of a conversation fit into a request to the model.
    fn window(&self, model: &str) -> usize {
        let held = self.budget.context(&self.models, model).map(|tokens| size(tokens / 2));
        held.unwrap_or(usize::MAX).min(size(self.most))
    }
}

/// The maximum number of consolidations at the same time.
const MAX_RUNNING: usize = 2;

/// A session and its epoch.
type SessionEpoch = (String, i64);

/// The consolidations that run now. Their number is bounded, and no epoch is consolidated twice at a time.
#[derive(Default)]
struct RunningConsolidations {
    /// The epochs that are being consolidated, and those that panicked.
    taken: HashSet<SessionEpoch>,
    tasks: JoinSet<SessionEpoch>,
}

impl RunningConsolidations {
    /// Returns true if another consolidation may begin. A consolidation that panicked takes no room; it only blocks its own
    /// epoch.
    fn has_room(&self) -> bool {
        self.tasks.len() < MAX_RUNNING
    }

    /// Begins `consolidation`, unless this epoch is being consolidated or has panicked.
    fn begin(&mut self, epoch_key: SessionEpoch, consolidation: impl Future<Output = ()> + Send + 'static) {
        if self.taken.insert(epoch_key.clone()) {
            self.tasks.spawn(async move {
                consolidation.await;
                epoch_key
            });
        }
    }

    /// Waits until a consolidation ends; returns `None` if none runs.
    async fn next_end(&mut self) -> Option<()> {
        match self.tasks.join_next().await? {
            Ok(epoch_key) => drop(self.taken.remove(&epoch_key)),
            // The epoch stays blocked until the next start, since the panic would occur again.
            Err(error) => tracing::error!(%error, "a consolidation ended unexpectedly"),
        }
        Some(())
    }

    /// Aborts all running consolidations.
    async fn shut_down(&mut self) {
        self.tasks.shutdown().await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use indexmap::IndexMap;

    use super::*;
    use crate::llm::{ProviderConfig, ProviderKind};
    use crate::store::session_memory::SessionMemory;

    #[tokio::test]
    async fn kept_messages_fit_the_conversations_model_and_parts_fit_the_summarizer() {
        let (_folder, store) = Store::temporary();
        let config = |context_tokens| ProviderConfig {
            kind: Some(ProviderKind::Openai),
            base_url: Some("http://127.0.0.1:1/v1".to_owned()),
            model: "m".to_owned(),
            context_tokens: Some(context_tokens),
            ..ProviderConfig::default()
        };
        let all = [("small", 8_000), ("middle", 16_000), ("large", 32_000)];
        let configs: IndexMap<String, ProviderConfig> =
            all.into_iter().map(|(name, tokens)| (name.to_owned(), config(tokens))).collect();
        let models = Arc::new(Models::build(&configs, |_| None).unwrap());
        let budget = Arc::new(TokenBudget::new(store.clone()));
        let read = move |connection: &Connection| {
            let mut found = Vec::new();
            for (of_memory, of_session) in
                [("", None), ("", Some("small")), ("middle", Some("small")), ("small", None), ("small", Some("middle"))]
            {
                messages::set_model(connection, "s", of_session)?;
                let config = MemoryConfig { model: of_memory.to_owned(), ..MemoryConfig::default() };
                let sizes = PartSizing {
                    models: models.clone(),
                    budget: budget.clone(),
                    model: "large".to_owned(),
                    most: 100_000,
                    config,
                };
                let PartLimits { kept_tokens, input_tokens, .. } = sizes.limits(connection, "s")?;
                found.push((kept_tokens, input_tokens));
            }
            Ok(found)
        };
        let expected = [(1_000, 16_000), (250, 4_000), (250, 8_000), (1_000, 4_000), (500, 4_000)];
        assert_eq!(store.write(Durability::Logged, read).await.unwrap(), expected);
    }

    #[tokio::test]
    async fn a_single_session_finds_its_row_after_many_others() {
        let (_folder, store) = Store::temporary();
        let read = |connection: &Connection| {
            for n in 0..MAX_DUE {
                session_memory::set_due(connection, &format!("other{n}"), 0, "full")?;
            }
            session_memory::set_due(connection, "own", 3, "idle")?;
            session_memory::set_due(connection, "own", 4, "full")?;
            let later =
                SessionMemory { due_reason: Some("new".to_owned()), retry_at: i64::MAX, ..SessionMemory::default() };
            session_memory::put(connection, "own", 5, &later)?;
            let due = session_memory::due_of(connection, "own", now_ms())?;
            Ok(due.into_iter().map(|(session, epoch, _)| (session, epoch)).collect::<Vec<_>>())
        };
        let own = |epoch| ("own".to_owned(), epoch);
        assert_eq!(store.write(Durability::Logged, read).await.unwrap(), [own(3), own(4)]);
    }

    #[tokio::test]
    async fn a_panicked_consolidation_is_not_repeated_and_blocks_no_other() {
        let mut running = RunningConsolidations::default();
        let epoch_key = |n: i64| (format!("s{n}"), 0);
        for n in 0..2 {
            assert!(running.has_room());
            running.begin(epoch_key(n), async { panic!("as the test wants it") });
        }
        assert!(!running.has_room());
        while running.next_end().await.is_some() {}
        let runs = Arc::new(AtomicU32::new(0));
        for n in [0, 1, 2, 2] {
            assert!(running.has_room(), "{n}");
            let runs = runs.clone();
            running.begin(epoch_key(n), async move {
                runs.fetch_add(1, Ordering::Relaxed);
            });
        }
        while running.next_end().await.is_some() {}
        assert_eq!(runs.load(Ordering::Relaxed), 1, "a panicked epoch is blocked, and none runs twice at once");
        running.begin(epoch_key(2), async {});
        assert_eq!(running.next_end().await, Some(()));
    }
}
