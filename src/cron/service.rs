//! The cron service: one task that sleeps until a job is due, and then puts due jobs into the inbox.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::{Duration, Instant};

use daoyou_channels::backoff::Backoff;
use jiff::Timestamp;
use tokio_util::sync::CancellationToken;

use super::firing::{self, DueJob};
use super::run_times::RunTimes;
use super::{CronHandle, CronSettings, Job};
use crate::bus::MessageBus;
use crate::crash;
use crate::live::LivePart;
use crate::store::{Connection, Durability, Store, StoreError, jobs, meta, now_ms};

/// The maximum number of jobs that one commit fires.
const BATCH: u32 = 100;
/// The longest sleep, since the clock may have been set, or the machine may have slept.
const MAX_WAIT: Duration = Duration::from_secs(60);
/// The maximum number of next runs that one commit corrects.
const CORRECTIONS_PER_COMMIT: usize = 500;
/// The longest time of an orderly stop, apart from its turns: the minimums of its steps, and the last writes.
const STOP_SLACK: Duration = Duration::from_secs(15);

/// The lag of the wall clock, in milliseconds, up to which it is being adjusted and was not set.
const ADJUSTED: i64 = 1_000;

/// Fires jobs. A gateway has one; its state is in the store.
pub struct CronService {
    bus: Arc<MessageBus>,
    settings: LivePart<CronSettings>,
    handle: CronHandle,
}

/// The state between two polls.
struct PollState {
    clock: WallClock,
    /// The time of the last orderly stop.
    deferred: Option<RangeInclusive<Timestamp>>,
    /// The next run of every job is correct by the current clock.
    checked: bool,
}

impl CronService {
    /// Creates the service for the gateway of `bus`; `handle` wakes it.
    pub fn new(bus: Arc<MessageBus>, settings: LivePart<CronSettings>, handle: CronHandle) -> Self {
        Self { bus, settings, handle }
    }

    /// Runs until `shutdown`, and records the time of the stop: slots from then on until the next start are deferred.
    pub async fn run(self, shutdown: CancellationToken) {
        let clock = WallClock { wall_ms: now_ms(), at: Instant::now() };
        let deferred = match last_stop(self.bus.store(), self.settings.get().drain_timeout).await {
            Ok(deferred) => deferred,
            Err(error) => {
                tracing::warn!(%error, "the time of the last stop is unknown: runs that were due while the gateway was stopped count as missed");
                None
            }
        };
        let mut state = PollState { clock, deferred, checked: false };
        let mut backoff = Backoff::new(Duration::from_secs(1), MAX_WAIT);
        while !shutdown.is_cancelled() {
            let wait = match self.poll(&mut state).await {
                Ok(wait) => {
                    backoff.reset();
                    wait
                }
                Err(StoreError::Closed) => return,
                Err(error) => {
                    tracing::error!(%error, "due jobs could not be examined; retrying");
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
        if let Err(error) = self.bus.store().write(Durability::Logged, note).await {
            tracing::warn!(%error, "the time of this stop could not be recorded");
        }
    }

    /// Fires one batch of due jobs; returns the time until there is more to do.
    async fn poll(&self, state: &mut PollState) -> Result<Duration, StoreError> {
        let settings = self.settings.get();
        let now = now_ms();
        if state.clock.was_set_back(now, Instant::now()) {
            tracing::warn!("the clock was set back: jobs continue from the time it shows now");
            state.checked = false;
        }
        if !settings.config.enabled {
            return Ok(MAX_WAIT);
        }
        if !state.checked {
            self.correct_next_runs().await?;
            state.checked = true;
        }
        if self.fire(&settings, state.deferred.clone()).await? {
            return Ok(Duration::ZERO);
        }
        let next = self.bus.store().read_here(jobs::next_due)?;
        Ok(next.map_or(MAX_WAIT, |next| until(next, now_ms()).min(MAX_WAIT)))
    }

    /// Fires one batch of due jobs; returns true if there may be more.
    async fn fire(
        &self,
        settings: &Arc<CronSettings>,
        deferred: Option<RangeInclusive<Timestamp>>,
    ) -> Result<bool, StoreError> {
        let (now, store) = (Timestamp::now(), self.bus.store());
        if store.read_here(jobs::next_due)?.is_none_or(|next| next > now.as_millisecond()) {
            return Ok(false);
        }
        let planning = settings.clone();
        let due =
            store.read(move |connection| firing::plan(connection, &planning, deferred.as_ref(), now, BATCH)).await?;
        let names = job_names(&due);
        let (settings, bus, detail) = (settings.clone(), self.bus.clone(), names.clone());
        let fired = store
            .write(Durability::Synced, move |connection| {
                let mut fired = firing::commit(connection, &settings, &due, now)?;
                fired.notify_owner(connection, &bus)?;
                crash::point("cron_before_commit", &detail);
                Ok(fired)
            })
            .await?;
        crash::point("cron_committed", &names);
        self.bus.metrics().cron.fired(&fired.lateness, fired.skipped, fired.missed, fired.failed);
        fired.wake(&self.bus);
        // There may be more even if nothing was fired: a job that was changed meanwhile is examined again.
        Ok(true)
    }

    /// Sets every job's next run to the next slot of its schedule by the current clock. Due runs stay.
    async fn correct_next_runs(&self) -> Result<(), StoreError> {
        let store = self.bus.store();
        let now = Timestamp::now();
        let corrections = store.read(move |connection| corrections(connection, now)).await?;
        if corrections.is_empty() {
            return Ok(());
        }
        tracing::info!(jobs = corrections.len(), "next runs of jobs corrected");
        for piece in corrections.chunks(CORRECTIONS_PER_COMMIT) {
            let piece = piece.to_vec();
            let write =
                move |connection: &Connection| piece.iter().try_for_each(|correction| correction.write(connection));
            store.write(Durability::Logged, write).await?;
        }
        Ok(())
    }
}

/// Records the end of an orderly stop. This is the last write before the store is closed.
///
/// # Errors
/// The store cannot be written.
pub async fn note_stop(store: &Store) -> Result<(), StoreError> {
    let ended = now_ms().to_string();
    store.write(Durability::Logged, move |connection| meta::set(connection, meta::STOP_ENDED, &ended)).await
}

/// Returns the time of the last orderly stop. A stop without a recorded end counts with its longest time.
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

/// Returns the names of the jobs of a batch for the log.
fn job_names(due: &[DueJob]) -> String {
    let names = due.iter().map(|due| match due {
        DueJob::Job(planned) => planned.name(),
        DueJob::Unreachable { job, .. } => &job.row.name,
        DueJob::Unreadable { id, reason } => {
            // This is logged once, since the job is no longer due afterwards.
            tracing::error!(job = id, reason, "a scheduled job is set aside");
            id
        }
    });
    names.collect::<Vec<_>>().join(", ")
}

/// A correction of a job's next run.
#[derive(Clone, Debug)]
enum NextRunCorrection {
    Move { id: String, from: Option<i64>, to: i64 },
    Never { id: String },
    SetAside { id: String, reason: String },
}

impl NextRunCorrection {
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

fn corrections(connection: &Connection, now: Timestamp) -> Result<Vec<NextRunCorrection>, StoreError> {
    let mut found = Vec::new();
    for row in jobs::all(connection)? {
        let is_due = row.next_at.is_some_and(|next| next <= now.as_millisecond());
        if !row.enabled || is_due {
            continue;
        }
        let (id, from, was_aside) = (row.id.clone(), row.next_at, row.next_at.is_none() && row.pause_reason.is_some());
        match Job::read(row) {
            Ok(job) => match RunTimes::of(&job).next_after(now).map(Timestamp::as_millisecond) {
                Some(to) if from != Some(to) => found.push(NextRunCorrection::Move { id, from, to }),
                Some(_) => {}
                None => found.push(NextRunCorrection::Never { id }),
            },
            Err(_) if was_aside => {}
            Err(error) => found.push(NextRunCorrection::SetAside { id, reason: firing::unreadable(&error) }),
        }
    }
    Ok(found)
}

/// The reading of the wall clock at a moment of the monotonic clock.
#[derive(Clone, Copy, Debug)]
struct WallClock {
    wall_ms: i64,
    at: Instant,
}

impl WallClock {
    /// Returns true if the wall clock lags behind the monotonic clock since the last reading; stores the new reading.
    fn was_set_back(&mut self, wall_ms: i64, at: Instant) -> bool {
        let passed = i64::try_from(at.saturating_duration_since(self.at).as_millis()).unwrap_or(i64::MAX);
        let expected = self.wall_ms.saturating_add(passed);
        *self = Self { wall_ms, at };
        wall_ms < expected.saturating_sub(ADJUSTED)
    }
}

/// Returns the time from `now` to `then`, both in UTC milliseconds; zero if it is past.
fn until(then: i64, now: i64) -> Duration {
    Duration::from_millis(u64::try_from(then.saturating_sub(now)).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_clock_that_was_set_back_is_noticed() {
        let begun = Instant::now();
        for (wall, secs, expected) in [
            (60_000, 60, false),
            (59_100, 60, false),
            (58_900, 60, true),
            (-3_600_000, 60, true),
            (31_536_000_000, 60, false),
        ] {
            let mut clock = WallClock { wall_ms: 0, at: begun };
            let at = begun + Duration::from_secs(secs);
            assert_eq!(clock.was_set_back(wall, at), expected, "{wall}");
            assert!(!clock.was_set_back(wall, at), "once is enough");
        }
    }
}
