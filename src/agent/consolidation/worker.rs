//! Looks at what is due, at the start and whenever a turn has ended, and has it told.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use daoyou_channels::{SessionKey, TurnSettings};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::asking::{Asked, Failed, Used};
use super::keeping::{Keeping, Kept, Outcome, TRIES, begin, close, tokens_today};
use super::part::{Limits, Part, Task, next};
use crate::agent::lane::LaneRunner;
use crate::bus::Errand;
use crate::crash;
use crate::live::Live;
use crate::memory::{Desk, Terms};
use crate::store::inbox::InboxRow;
use crate::store::{Commit, Connection, Store, StoreError, now_ms, ownership, session_memory};

/// Conversations that are told at the same time.
const AT_ONCE: usize = 2;
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

/// After a turn, in a process that runs one conversation alone.
const LAST_WORD: Duration = Duration::from_secs(1);

/// What has ended, by session and epoch.
type Place = (String, i64);

/// The worker.
pub struct Consolidator {
    runner: Arc<Live<LaneRunner>>,
    memory: Arc<Desk>,
    /// The one conversation of a process that runs no other.
    only: Option<SessionKey>,
    running: HashSet<Place>,
    told: JoinSet<Place>,
    /// Conversations that were used before have been looked at, UTC milliseconds.
    rest_from: i64,
}

/// Whether a turn is part of a conversation that is worth telling: not what daoyou asks of itself, and forgets at once.
pub fn is_conversation(row: &InboxRow) -> bool {
    let is_own = matches!(Errand::of(&row.metadata), Some(Errand::SubAgent(_) | Errand::Heartbeat));
    !is_own && !TurnSettings::of(&row.metadata).fresh
}

impl Consolidator {
    /// For all conversations, or for `only` one.
    pub fn new(runner: Arc<Live<LaneRunner>>, memory: Arc<Desk>, only: Option<SessionKey>) -> Self {
        let (running, told) = (HashSet::new(), JoinSet::new());
        Self { runner, memory, only, running, told, rest_from: now_ms() - REST_LIMIT_MS }
    }

    /// Runs until `shutdown`; what is being written then is written after the next start.
    pub async fn run(mut self, shutdown: CancellationToken) {
        let mut changes = self.memory.changes();
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
            tokio::select! {
                () = shutdown.cancelled() => break,
                changed = changes.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    // Such a process often ends with its turn: what it begins then would be in vain.
                    if self.only.is_some() && shutdown.run_until_cancelled(tokio::time::sleep(LAST_WORD)).await.is_none() {
                        break;
                    }
                }
                Some(ended) = self.told.join_next() => self.ended(ended),
                () = sleep => {}
            }
        }
        self.told.shutdown().await;
    }

    fn ended(&mut self, ended: Result<Place, tokio::task::JoinError>) {
        match ended {
            Ok(place) => drop(self.running.remove(&place)),
            Err(error) => {
                // Its place stays taken until the next start: whatever it was would only come again.
                tracing::error!(%error, "a consolidation ended unexpectedly");
            }
        }
    }

    /// Begins what is due and has room; answers when to look again though nothing has changed.
    async fn look(&mut self) -> Result<Option<Duration>, StoreError> {
        let terms = self.memory.terms.get();
        if !terms.config.enabled {
            return Ok(None);
        }
        let store = self.memory.store.clone();
        let rest = self.look_for_rest(&store, &terms).await?;
        let now = now_ms();
        let look = move |connection: &Connection| {
            Ok((session_memory::due(connection, now, LOOKED_AT)?, session_memory::next_try(connection, now)?))
        };
        let (due, next_try) = store.read(look).await?;
        let is_ours = |session: &str| self.only.as_ref().is_none_or(|only| only.as_str() == session);
        for (session, epoch, state) in due.into_iter().filter(|(session, ..)| is_ours(session)) {
            let place = (session.clone(), epoch);
            if self.running.len() >= AT_ONCE {
                break;
            }
            if self.running.insert(place.clone()) {
                let (runner, task) = (self.runner.get(), Task { session, epoch, state });
                self.told.spawn(async move {
                    tell(&runner, task).await;
                    place
                });
            }
        }
        let next_try = next_try.map(|at| until(at, now));
        Ok([rest, next_try].into_iter().flatten().min())
    }

    /// Notes which conversations have come to rest; answers when the next one may.
    async fn look_for_rest(&mut self, store: &Store, terms: &Terms) -> Result<Option<Duration>, StoreError> {
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
    let (store, terms) = (runner.bus.store().clone(), runner.memory.terms.get());
    let (limits, of_read) = (limits(runner, &terms), terms.clone());
    let (session, epoch, state) = (task.session.clone(), task.epoch, task.state.clone());
    let read = move |connection: &Connection| {
        let part = next(connection, task, &limits, &of_read.identities)?;
        Ok((part, tokens_today(connection, &of_read.zone)?))
    };
    let (part, spent) = store.read(read).await?;
    let Some(part) = part else {
        store.write(Commit::Logged, move |connection| close(connection, &session, epoch, &state)).await?;
        return Ok(None);
    };
    crash::point("consolidation_begun", &session);
    let (outcome, used) = write_up(runner, &part, &terms, spent).await?;
    crash::point("consolidation_answered", &session);
    let (messages, mut keeping) = (part.to - part.from, keeping(part, outcome, &terms));
    keeping.used = used;
    let kept = store.write(Commit::Logged, move |connection| keeping.write(connection)).await?;
    crash::point("consolidation_committed", &session);
    match kept {
        Kept::Told { noticed } => {
            tracing::info!(session, epoch, messages, noticed, "a part of the conversation was put into its summary");
            runner.memory.changed();
        }
        Kept::Changed => tracing::info!(session, "what was summarised has changed meanwhile and is read again"),
        Kept::PutOff => {}
    }
    Ok(Some(store.read(move |connection| session_memory::get(connection, &session, epoch)).await?))
}

fn keeping(part: Part, result: Outcome, terms: &Terms) -> Keeping {
    let Terms { config, language, zone, .. } = terms;
    Keeping { part, result, used: None, config: config.clone(), language: *language, zone: zone.clone() }
}

/// Has a model write the summary, if one may be asked.
async fn write_up(
    runner: &LaneRunner,
    part: &Part,
    terms: &Terms,
    spent: u64,
) -> Result<(Outcome, Option<Used>), StoreError> {
    let session = &part.task.session;
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

fn limits(runner: &LaneRunner, terms: &Terms) -> Limits {
    let size = |tokens: u32| usize::try_from(tokens).unwrap_or(usize::MAX);
    let wanted = if terms.config.model.is_empty() { &runner.config.model } else { &terms.config.model };
    let held = runner.models.context_tokens(wanted).map(|tokens| size(tokens / 2));
    let window = held.unwrap_or(usize::MAX).min(size(runner.config.context_tokens));
    Limits {
        keep: i64::from(terms.config.keep),
        kept_tokens: window / 2,
        input_tokens: window.clamp(1_000, INPUT_TOKENS),
    }
}
