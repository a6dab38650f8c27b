//! Looks at what is due, at the start and whenever a turn has ended, and has it told.

use std::sync::Arc;
use std::time::Duration;

use daoyou_channels::SessionKey;
use tokio_util::sync::CancellationToken;

use super::asking::{Asked, Failed, Used};
use super::keeping::{Keeping, Kept, Outcome, TRIES, begin, close, tokens_today};
use super::part::{Limits, Part, Task, next};
use super::places::Places;
use crate::agent::budget::Budget;
use crate::agent::lane::LaneRunner;
use crate::agent::slash::wanted_model;
use crate::crash;
use crate::live::Live;
use crate::llm::Models;
use crate::memory::{MemoryConfig, MemoryService, MemorySettings};
use crate::origin::{TurnCause, TurnOrigin};
use crate::store::inbox::InboxRow;
use crate::store::{Commit, Connection, Store, StoreError, messages, now_ms, ownership, session_memory};

/// Due ones that are looked at together.
const LOOKED_AT: u32 = 32;
/// Messages from which on a conversation at rest is worth a summary.
const RESTING_LEAST: i64 = 4;
/// How far back conversations at rest are looked for at the start.
const REST_LIMIT_MS: i64 = 7 * 86_400_000;
/// The most that a model is given to read at once, in tokens.
const INPUT_TOKENS: usize = 24_000;
/// A store that cannot be written is tried again after this.
const STORE_PAUSE: Duration = Duration::from_secs(5);
/// Between two looks for conversations at rest, at least.
const LOOK_PAUSE: Duration = Duration::from_secs(1);

/// After a turn: what ends meanwhile is looked at along with it.
const SETTLE: Duration = Duration::from_millis(300);
/// After a turn, in a process that runs one conversation alone: such a one often ends with its turn, and what it begins then would
/// be in vain.
const LAST_WORD: Duration = Duration::from_secs(1);

/// The worker.
pub struct Consolidator {
    runner: Arc<Live<LaneRunner>>,
    memory: Arc<MemoryService>,
    /// The one conversation of a process that runs no other.
    only: Option<SessionKey>,
    places: Places,
    /// Conversations that were used before have been looked at, UTC milliseconds.
    rest_from: i64,
}

/// Whether a turn is part of a conversation that is worth telling: not what daoyou asks of itself, and forgets at once.
pub fn is_conversation(row: &InboxRow) -> bool {
    let origin = TurnOrigin::parse(&row.origin);
    !matches!(origin.cause, TurnCause::SubAgent(_) | TurnCause::Heartbeat) && !origin.settings.fresh
}

impl Consolidator {
    /// For all conversations, or for `only` one.
    pub fn new(runner: Arc<Live<LaneRunner>>, memory: Arc<MemoryService>, only: Option<SessionKey>) -> Self {
        Self { runner, memory, only, places: Places::default(), rest_from: now_ms() - REST_LIMIT_MS }
    }

    /// Runs until `shutdown`; what is being written then is written after the next start.
    pub async fn run(mut self, shutdown: CancellationToken) {
        let mut sayings = self.memory.subscribe_to_messages();
        let settle = if self.only.is_some() { LAST_WORD } else { SETTLE };
        loop {
            let wake = match self.look().await {
                Ok(wake) => wake,
                Err(StoreError::Closed) => return,
                Err(error) => {
                    tracing::warn!(%error, "what is to be consolidated could not be looked at");
                    Some(STORE_PAUSE)
                }
            };
            let sleep = async {
                match wake {
                    Some(wait) => tokio::time::sleep(wait).await,
                    None => std::future::pending().await,
                }
            };
            let gathered = async {
                let changed = sayings.changed().await;
                tokio::time::sleep(settle).await;
                changed
            };
            tokio::select! {
                () = shutdown.cancelled() => break,
                gathered = gathered => {
                    if gathered.is_err() {
                        return;
                    }
                    sayings.mark_unchanged();
                }
                Some(()) = self.places.next_end() => {}
                () = sleep => {}
            }
        }
        self.places.shut_down().await;
    }

    /// Begins what is due and has room; answers when to look again though nothing has changed.
    async fn look(&mut self) -> Result<Option<Duration>, StoreError> {
        let terms = self.memory.settings.get();
        if !terms.config.enabled {
            return Ok(None);
        }
        let store = self.memory.store.clone();
        let rest = self.look_for_rest(&store, &terms).await?;
        let (now, only) = (now_ms(), self.only.clone());
        let look = move |connection: &Connection| {
            let due = match &only {
                Some(only) => session_memory::due_of(connection, only.as_str(), now)?,
                None => session_memory::due(connection, now, LOOKED_AT)?,
            };
            Ok((due, session_memory::next_try(connection, now)?))
        };
        let (due, next_try) = store.read(look).await?;
        for (session, epoch, state) in due {
            if !self.places.has_room() {
                break;
            }
            let (runner, place) = (self.runner.get(), (session.clone(), epoch));
            let task = Task { session, epoch, state };
            self.places.begin(place, async move { tell(&runner, task).await });
        }
        let next_try = next_try.map(|at| until(at, now));
        Ok([rest, next_try].into_iter().flatten().min())
    }

    /// Notes which conversations have come to rest; answers when the next one may.
    async fn look_for_rest(&mut self, store: &Store, terms: &MemorySettings) -> Result<Option<Duration>, StoreError> {
        let Ok(idle) = i64::try_from(terms.config.idle.0.as_millis()) else { return Ok(None) };
        if idle == 0 {
            return Ok(None);
        }
        let now = now_ms();
        let (from, to) = (self.rest_from, now - idle);
        let look = move |connection: &Connection| {
            let resting = session_memory::resting(connection, (from, to), RESTING_LEAST, LOOKED_AT)?;
            Ok((resting, session_memory::first_used(connection, to)?))
        };
        let (resting, next) = store.read(look).await?;
        let is_all = resting.len() < usize::try_from(LOOKED_AT).unwrap_or(usize::MAX);
        self.rest_from = if is_all { to + 1 } else { resting.last().map_or(to, |(.., at)| *at) };
        if !resting.is_empty() {
            let note = move |connection: &Connection| {
                for (session, epoch, _) in &resting {
                    if is_worth_it(connection, session)? {
                        session_memory::set_due(connection, session, *epoch, "idle")?;
                    }
                }
                Ok(())
            };
            store.write(Commit::Logged, note).await?;
        }
        Ok(if is_all { next.map(|used| until(used + idle, now)) } else { Some(LOOK_PAUSE) })
    }
}

fn until(at: i64, now: i64) -> Duration {
    Duration::from_millis(u64::try_from(at - now).unwrap_or(0)).max(LOOK_PAUSE)
}

/// Whether the session's last turn was part of a conversation.
fn is_worth_it(connection: &Connection, session: &str) -> Result<bool, StoreError> {
    Ok(ownership::last_writer(connection, session)?.is_some_and(|row| is_conversation(&row)))
}

/// Tells all that is due of an epoch, part by part.
async fn tell(runner: &LaneRunner, mut task: Task) {
    loop {
        let (session, epoch) = (task.session.clone(), task.epoch);
        let before = task.state.clone();
        match tell_next(runner, task).await {
            Ok(Some(state)) if state.due.is_some() && state.retry_at <= now_ms() && state != before => {
                task = Task { session, epoch, state };
            }
            Ok(_) | Err(StoreError::Closed) => return,
            Err(error) => {
                tracing::warn!(session, %error, "a conversation could not be consolidated");
                // Nothing was noted of it: without a rest it would be tried without end.
                return tokio::time::sleep(STORE_PAUSE).await;
            }
        }
    }
}

/// Tells the next part; answers how the epoch stands then, or nothing where nothing was left.
async fn tell_next(runner: &LaneRunner, task: Task) -> Result<Option<session_memory::SessionMemory>, StoreError> {
    let (store, terms) = (runner.bus.store().clone(), runner.memory.settings.get());
    let (of_limits, of_read) = (Sizes::of(runner, &terms), terms.clone());
    let (session, epoch, state) = (task.session.clone(), task.epoch, task.state.clone());
    let read = move |connection: &Connection| {
        let limits = of_limits.limits(connection, &task.session)?;
        let part = next(connection, task, &limits, &of_read.identities)?;
        Ok((part, tokens_today(connection, &of_read.zone)?))
    };
    let (part, spent) = store.read(read).await?;
    let Some(mut part) = part else {
        store.write(Commit::Logged, move |connection| close(connection, &session, epoch, &state)).await?;
        return Ok(None);
    };
    crash::point("consolidation_begun", &session);
    let (outcome, used) = write_up(runner, &mut part, &terms, spent).await?;
    crash::point("consolidation_answered", &session);
    let (messages, mut keeping) = (part.to - part.from, keeping(part, outcome, &terms));
    keeping.used = used;
    let kept = store.write(Commit::Logged, move |connection| keeping.write(connection)).await?;
    crash::point("consolidation_committed", &session);
    match kept {
        Kept::Told { noticed } => {
            tracing::info!(session, epoch, messages, noticed, "a part of the conversation was put into its summary");
            runner.memory.notify_changes();
        }
        Kept::Changed => tracing::info!(session, "what was summarised has changed meanwhile and is read again"),
        Kept::PutOff => {}
    }
    Ok(Some(store.read(move |connection| session_memory::get(connection, &session, epoch)).await?))
}

fn keeping(part: Part, result: Outcome, terms: &MemorySettings) -> Keeping {
    let MemorySettings { config, language, zone, .. } = terms;
    Keeping { part, result, used: None, config: config.clone(), language: *language, zone: zone.clone() }
}

/// Has a model write the summary, if one may be asked.
async fn write_up(
    runner: &LaneRunner,
    part: &mut Part,
    terms: &MemorySettings,
    spent: u64,
) -> Result<(Outcome, Option<Used>), StoreError> {
    let session = part.task.session.clone();
    if spent >= terms.config.tokens_per_day {
        tracing::info!(session, spent, "the tokens for summaries are used up for today; an extract has to do");
        return Ok((Outcome::Plain, None));
    }
    if part.is_backlog || !part.has_talk() || part.task.state.failures >= TRIES {
        return Ok((Outcome::Plain, None));
    }
    let (key, epoch) = (session.clone(), part.task.epoch);
    runner.bus.store().write(Commit::Logged, move |connection| begin(connection, &key, epoch)).await?;
    match runner.summarise(part).await {
        Ok(Asked { answer, used }) => Ok((Outcome::Written(answer), Some(used))),
        Err(failed) => {
            let used = failed.used().cloned();
            if failed.may_be_tried_again() {
                tracing::warn!(session, error = %failed, "a conversation could not be summarised");
                return Ok((Outcome::Failed, used));
            }
            if let Failed::Call(error) = &failed {
                tracing::info!(session, %error, "an extract has to do for a summary");
            }
            Ok((Outcome::Plain, used))
        }
    }
}

/// What the limits of a conversation are made of.
struct Sizes {
    models: Arc<Models>,
    budget: Arc<Budget>,
    /// `agent.model`, and what its context is held to, in tokens.
    model: String,
    most: u32,
    config: MemoryConfig,
}

impl Sizes {
    fn of(runner: &LaneRunner, terms: &MemorySettings) -> Self {
        let (models, budget, config) = (runner.models.clone(), runner.budget.clone(), terms.config.clone());
        Self { models, budget, model: runner.config.model.clone(), most: runner.config.context_tokens, config }
    }

    /// What stays as it was said must fit the model that goes on with the conversation; what is read at once, the one that
    /// writes the summary.
    fn limits(&self, connection: &Connection, session: &str) -> Result<Limits, StoreError> {
        let chosen = messages::session(connection, session)?.model;
        let talks = match ownership::last_writer(connection, session)? {
            Some(row) => wanted_model(&row, chosen.as_deref(), &self.model),
            None => chosen.clone().unwrap_or_else(|| self.model.clone()),
        };
        let writes = match self.config.model.as_str() {
            "" => chosen.as_deref().unwrap_or(&self.model),
            model => model,
        };
        // The smaller the context, the more of it must be free, or the next summary is due a few turns later.
        let window = self.window(&talks);
        let kept_tokens = (window / 4).saturating_sub(4_000).max(window / 16);
        let input_tokens = self.window(writes).clamp(1_000, INPUT_TOKENS);
        Ok(Limits { keep: i64::from(self.config.keep), kept_tokens, input_tokens })
    }

    /// So many tokens of a conversation a model is given, about.
    fn window(&self, model: &str) -> usize {
        let size = |tokens: u32| usize::try_from(tokens).unwrap_or(usize::MAX);
        let held = self.budget.context(&self.models, model).map(|tokens| size(tokens / 2));
        held.unwrap_or(usize::MAX).min(size(self.most))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::llm::{OfflineProvider, ProviderConfig, ProviderKind};
    use crate::store::session_memory::SessionMemory;

    #[tokio::test]
    async fn what_stays_fits_who_talks_and_what_is_read_fits_who_writes() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(&folder.path().join("daoyou.db")).unwrap();
        let config = |context_tokens| ProviderConfig {
            kind: Some(ProviderKind::Openai),
            base_url: Some("http://127.0.0.1:1/v1".to_owned()),
            model: "m".to_owned(),
            context_tokens: Some(context_tokens),
            ..ProviderConfig::default()
        };
        let all = [("small", 8_000), ("middle", 16_000), ("large", 32_000)];
        let configs: BTreeMap<String, ProviderConfig> =
            all.into_iter().map(|(name, tokens)| (name.to_owned(), config(tokens))).collect();
        let offline = Arc::new(OfflineProvider);
        let models = Arc::new(Models::build(&configs, |_| None, offline).unwrap());
        let budget = Arc::new(Budget::new(store.clone()));
        let look = move |connection: &Connection| {
            let mut found = Vec::new();
            for (of_memory, of_session) in
                [("", None), ("", Some("small")), ("middle", Some("small")), ("small", None), ("small", Some("middle"))]
            {
                messages::set_model(connection, "s", of_session)?;
                let config = MemoryConfig { model: of_memory.to_owned(), ..MemoryConfig::default() };
                let sizes = Sizes {
                    models: models.clone(),
                    budget: budget.clone(),
                    model: "large".to_owned(),
                    most: 100_000,
                    config,
                };
                let Limits { kept_tokens, input_tokens, .. } = sizes.limits(connection, "s")?;
                found.push((kept_tokens, input_tokens));
            }
            Ok(found)
        };
        let expected = [(1_000, 16_000), (250, 4_000), (250, 8_000), (1_000, 4_000), (500, 4_000)];
        assert_eq!(store.write(Commit::Logged, look).await.unwrap(), expected);
    }

    #[tokio::test]
    async fn one_session_alone_finds_its_own_row_behind_any_number_of_others() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(&folder.path().join("daoyou.db")).unwrap();
        let look = |connection: &Connection| {
            for n in 0..LOOKED_AT {
                session_memory::set_due(connection, &format!("other{n}"), 0, "full")?;
            }
            session_memory::set_due(connection, "own", 3, "idle")?;
            session_memory::set_due(connection, "own", 4, "full")?;
            let later = SessionMemory { due: Some("new".to_owned()), retry_at: i64::MAX, ..SessionMemory::default() };
            session_memory::put(connection, "own", 5, &later)?;
            let due = session_memory::due_of(connection, "own", now_ms())?;
            Ok(due.into_iter().map(|(session, epoch, _)| (session, epoch)).collect::<Vec<_>>())
        };
        let own = |epoch| ("own".to_owned(), epoch);
        assert_eq!(store.write(Commit::Logged, look).await.unwrap(), [own(3), own(4)]);
    }
}
