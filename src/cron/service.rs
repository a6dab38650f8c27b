//! The service: one task that waits until a job is due, exactly, and puts what is due into the inbox.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::{Duration, Instant};

use daoyou_channels::backoff::Backoff;
use jiff::Timestamp;
use tokio_util::sync::CancellationToken;

use super::clock::{self, Clock};
use super::firing::{self, Due};
use super::moments::Moments;
use super::{CronHandle, Job, Rules};
use crate::bus::MessageBus;
use crate::crash;
use crate::live::Live;
use crate::store::{Commit, Connection, Store, StoreError, jobs, meta, now_ms};

/// Jobs that one commit takes.
const PIECE: u32 = 100;
/// The longest time without a look: the clock may have been set, or the machine asleep.
const LOOK: Duration = Duration::from_secs(60);
/// Next slots that one commit corrects.
const CORRECTED: usize = 500;
/// What an orderly stop may take beside its turns.
const STOP_SLACK: Duration = Duration::from_secs(15);

/// Fires jobs. One for a gateway; what it knows stands in the store.
pub struct CronService {
    bus: Arc<MessageBus>,
    rules: Arc<Live<Rules>>,
    handle: CronHandle,
}

/// What is kept from one look to the next.
struct State {
    clock: Clock,
    /// When the last orderly stop was under way.
    deferred: Option<RangeInclusive<Timestamp>>,
    /// Every job's next slot is right by this clock.
    checked: bool,
}

impl CronService {
    /// For the gateway of `bus`; `handle` wakes it.
    pub fn new(bus: Arc<MessageBus>, rules: Arc<Live<Rules>>, handle: CronHandle) -> Self {
        Self { bus, rules, handle }
    }

    /// Runs until `shutdown`, and notes when that was: what comes due from then on until the next start is put off.
    pub async fn run(self, shutdown: CancellationToken) {
        let clock = Clock::new(now_ms(), Instant::now());
        let deferred = match last_stop(self.bus.store(), self.rules.get().drain_timeout).await {
            Ok(deferred) => deferred,
            Err(error) => {
                tracing::warn!(%error, "it is unknown when the last stop was: what came due meanwhile counts as missed");
                None
            }
        };
        let mut state = State { clock, deferred, checked: false };
        let mut backoff = Backoff::new(Duration::from_secs(1), LOOK);
        while !shutdown.is_cancelled() {
            let wait = match self.look(&mut state).await {
                Ok(wait) => {
                    backoff = Backoff::new(Duration::from_secs(1), LOOK);
                    wait
                }
                Err(StoreError::Closed) => return,
                Err(error) => {
                    tracing::error!(%error, "the jobs that are due could not be looked at; trying again");
                    backoff.next_wait()
                }
            };
            if wait.is_zero() {
                continue;
            }
            tokio::select! {
                () = shutdown.cancelled() => {}
                () = tokio::time::sleep(wait) => {}
                () = self.handle.0.notified() => {}
            }
        }
        let began = now_ms().to_string();
        let note = move |connection: &Connection| meta::set(connection, meta::STOP_BEGAN, &began);
        if let Err(error) = self.bus.store().write(Commit::Logged, note).await {
            tracing::warn!(%error, "it could not be noted that the gateway stops");
        }
    }

    /// Fires what is due, a piece of it; answers how long there is nothing to do.
    async fn look(&self, state: &mut State) -> Result<Duration, StoreError> {
        let rules = self.rules.get();
        let now = now_ms();
        if state.clock.was_set_back(now, Instant::now()) {
            tracing::warn!("the clock was set back: jobs go on from what it says now");
            state.checked = false;
        }
        if !rules.enabled {
            return Ok(LOOK);
        }
        if !state.checked {
            self.correct().await?;
            state.checked = true;
        }
        if self.fire(&rules, state.deferred.clone()).await? {
            return Ok(Duration::ZERO);
        }
        let next = self.bus.store().read_here(jobs::next_due)?;
        Ok(next.map_or(LOOK, |next| clock::until(next, now_ms()).min(LOOK)))
    }

    /// Fires a piece of what is due; answers whether there may be more.
    async fn fire(&self, rules: &Arc<Rules>, deferred: Option<RangeInclusive<Timestamp>>) -> Result<bool, StoreError> {
        let (now, store) = (Timestamp::now(), self.bus.store());
        if store.read_here(jobs::next_due)?.is_none_or(|next| next > now.as_millisecond()) {
            return Ok(false);
        }
        let planning = rules.clone();
        let due =
            store.read(move |connection| firing::plan(connection, &planning, deferred.as_ref(), now, PIECE)).await?;
        let names = names(&due);
        let (rules, bus, detail) = (rules.clone(), self.bus.clone(), names.clone());
        let fired = store
            .write(Commit::Synced, move |connection| {
                let mut fired = firing::commit(connection, &rules, &due, now)?;
                fired.tell_owner(connection, &bus)?;
                crash::point("cron_before_commit", &detail);
                Ok(fired)
            })
            .await?;
        crash::point("cron_committed", &names);
        self.bus.metrics().cron.fired(&fired.lateness, fired.skipped, fired.missed, fired.failed);
        fired.wake(&self.bus);
        // Also when nothing came of it: a job was changed meanwhile, and is looked at again.
        Ok(true)
    }

    /// Puts every job's next slot where its schedule has it by the clock of now. What is due already is left as it is.
    async fn correct(&self) -> Result<(), StoreError> {
        let store = self.bus.store();
        let now = Timestamp::now();
        let corrections = store.read(move |connection| corrections(connection, now)).await?;
        if corrections.is_empty() {
            return Ok(());
        }
        tracing::info!(jobs = corrections.len(), "next times of jobs are corrected");
        for piece in corrections.chunks(CORRECTED) {
            let piece = piece.to_vec();
            let write =
                move |connection: &Connection| piece.iter().try_for_each(|correction| correction.write(connection));
            store.write(Commit::Logged, write).await?;
        }
        Ok(())
    }
}

/// Notes that the gateway has stopped in order; the last thing before the store is closed.
///
/// # Errors
/// The store cannot be written.
pub async fn note_stop(store: &Store) -> Result<(), StoreError> {
    let ended = now_ms().to_string();
    store.write(Commit::Logged, move |connection| meta::set(connection, meta::STOP_ENDED, &ended)).await
}

/// When the last orderly stop was under way. One that was cut off took as long as it might have.
async fn last_stop(store: &Store, drain_timeout: Duration) -> Result<Option<RangeInclusive<Timestamp>>, StoreError> {
    let read = |connection: &Connection, key| -> Result<Option<Timestamp>, StoreError> {
        let ms = meta::get(connection, key)?.and_then(|ms| ms.parse::<i64>().ok());
        Ok(ms.and_then(|ms| Timestamp::from_millisecond(ms).ok()))
    };
    store
        .read(move |connection| {
            let Some(began) = read(connection, meta::STOP_BEGAN)? else { return Ok(None) };
            let longest = began.checked_add(drain_timeout + STOP_SLACK).unwrap_or(began);
            let ended = read(connection, meta::STOP_ENDED)?.filter(|ended| *ended >= began);
            Ok(Some(began..=ended.unwrap_or(longest)))
        })
        .await
}

/// The jobs of a piece in one line, for whoever looks for one.
fn names(due: &[Due]) -> String {
    let names = due.iter().map(|due| match due {
        Due::Job(planned) => planned.name(),
        Due::Unreachable { job, .. } => &job.row.name,
        Due::Unreadable { id, reason } => {
            // Said once: it is no longer due after this.
            tracing::error!(job = id, reason, "a scheduled job is set aside");
            id
        }
    });
    names.collect::<Vec<_>>().join(", ")
}

/// What is wrong with a job's next slot.
#[derive(Clone, Debug)]
enum Correction {
    Move { id: String, from: Option<i64>, to: i64 },
    Never { id: String },
    SetAside { id: String, reason: String },
}

impl Correction {
    fn write(&self, connection: &Connection) -> Result<(), StoreError> {
        match self {
            Self::Move { id, from, to } => jobs::move_next(connection, id, *from, *to),
            Self::Never { id } => {
                jobs::set_enabled(connection, id, false, None, Some("it is never due again")).map(drop)
            }
            Self::SetAside { id, reason } => jobs::set_aside(connection, id, reason),
        }
    }
}

fn corrections(connection: &Connection, now: Timestamp) -> Result<Vec<Correction>, StoreError> {
    let mut found = Vec::new();
    for row in jobs::all(connection)? {
        let is_due = row.next_at.is_some_and(|next| next <= now.as_millisecond());
        if !row.enabled || is_due {
            continue;
        }
        let (id, from, was_aside) = (row.id.clone(), row.next_at, row.next_at.is_none() && row.paused.is_some());
        match Job::read(row) {
            Ok(job) => match Moments::of(&job).next_after(now).map(Timestamp::as_millisecond) {
                Some(to) if from != Some(to) => found.push(Correction::Move { id, from, to }),
                Some(_) => {}
                None => found.push(Correction::Never { id }),
            },
            Err(_) if was_aside => {}
            Err(error) => found.push(Correction::SetAside { id, reason: firing::unreadable(&error) }),
        }
    }
    Ok(found)
}
