//! The writer thread. Callers that wait at the same moment share one commit and one fsync. If the work of a caller fails, only that
//! work is undone: for the first of a group by restarting the transaction, for the others by a SAVEPOINT.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use async_channel::{Receiver, Sender};
use parking_lot::Mutex;
use rusqlite::Connection;
use rusqlite::config::DbConfig;
use tokio::sync::oneshot;

use super::health::DatabaseHealth;
use super::high_water_mark::HighWaterMark;
use super::{StoreError, inbox};

/// The most writes in one commit.
const GROUP_LIMIT: usize = 256;

/// The most writes that wait in the queue; beyond it, callers wait to enqueue theirs.
const QUEUE_LIMIT: usize = 1_024;

/// How long a group waits for more writes if the previous group had several. Under load this gives fewer commits, each of which
/// costs a fsync and copies of the same pages. A longer wait saves little CPU and costs a third of the speed at 10 turns in
/// flight. PostgreSQL calls this `commit_delay`.
const GATHER: Duration = Duration::from_micros(300);

/// The length in bytes from which on the log is shortened: twice the length that SQLite lets it reach.
const MAX_LOG_BYTES: u64 = 16 << 20;

/// How long the writer waits for readers of the log.
const CHECKPOINT_WAIT: Duration = Duration::from_millis(50);

/// The durability for which the caller waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// The commit is on disk (`synchronous = FULL`): it survives a power failure.
    Synced,
    /// The commit is in the log: it survives the end of this process, and reaches the disk with the next `Synced` commit.
    Logged,
}

/// The outcome of a group of writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupCommit {
    /// The durability of the commit.
    pub durability: Durability,
    /// The number of callers that shared it.
    pub writes: usize,
    /// The duration of the commit, without the work before it; `None` if it failed.
    pub took: Option<Duration>,
}

/// Called for every group on the writer's thread, so it must not block.
pub type OnCommit = Box<dyn Fn(GroupCommit) + Send>;

/// The work of one caller. It runs in the group's transaction, or receives the reason why there is none.
type GroupWork = Box<dyn FnOnce(Result<(&Connection, GroupPosition), String>) -> FinishedWrite + Send>;
type ReportOutcome = Box<dyn FnOnce(Result<(), String>) + Send>;

struct FinishedWrite {
    /// An error is the reason why the transaction must not be committed: part of a failed write may still be in it.
    undone: Result<(), String>,
    /// The function that receives the outcome of the commit.
    report: ReportOutcome,
}

/// The position of a write in its transaction, which decides how the write is undone.
#[derive(Clone, Copy, PartialEq, Eq)]
enum GroupPosition {
    /// The transaction contains no earlier write.
    First,
    Later,
}

enum WriteJob {
    Grouped(GroupedWrite),
    /// Runs outside of any transaction.
    Alone(Box<dyn FnOnce(&Connection) + Send>),
}

struct GroupedWrite {
    durability: Durability,
    run: GroupWork,
}

/// The state of the thread.
struct WriterThread {
    connection: Connection,
    mark: Option<HighWaterMark>,
    health: Arc<DatabaseHealth>,
    on_commit: OnCommit,
    /// The length in bytes from which on the log is shortened next.
    longest_log: u64,
}

/// The handle of the writer thread.
pub struct Writer {
    jobs: Sender<WriteJob>,
    health: Arc<DatabaseHealth>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Writer {
    /// Starts the thread. It raises `mark` at each commit, reports commits to `on_commit`, and reports damage to `health`.
    pub fn spawn(
        connection: Connection,
        mark: Option<HighWaterMark>,
        health: Arc<DatabaseHealth>,
        on_commit: OnCommit,
    ) -> std::io::Result<Self> {
        let (jobs, queue) = async_channel::bounded(QUEUE_LIMIT);
        let mut writer_thread =
            WriterThread { connection, mark, health: health.clone(), on_commit, longest_log: MAX_LOG_BYTES };
        let thread = std::thread::Builder::new()
            .name("store-writer".to_owned())
            .spawn(move || writer_thread.write_groups(&queue))?;
        Ok(Self { jobs, health, thread: Mutex::new(Some(thread)) })
    }

    /// Runs `work` in a group, and returns when it is committed with `durability`.
    ///
    /// # Errors
    /// The error of `work` (its changes are undone, others' are not), or the failure of the whole commit.
    pub async fn write<T, F>(&self, durability: Durability, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    {
        self.health.check()?;
        let (answer, answered) = oneshot::channel();
        let health = self.health.clone();
        let run: GroupWork = Box::new(move |transaction| {
            let (outcome, undone) = match transaction {
                Ok((connection, position)) => run_undoable(connection, position, work),
                Err(reason) => (Err(StoreError::Group(reason)), Ok(())),
            };
            let outcome = outcome.inspect_err(|error| health.observe(error));
            let report = Box::new(move |committed: Result<(), String>| {
                let outcome = outcome.and_then(|value| committed.map(|()| value).map_err(StoreError::Group));
                // The caller may have dropped its receiver; its write happens nevertheless.
                let _ = answer.send(outcome);
            });
            FinishedWrite { undone, report }
        });
        self.enqueue(WriteJob::Grouped(GroupedWrite { durability, run }), answered).await
    }

    /// Runs `work` between two groups, outside of any transaction; all other writes wait meanwhile.
    ///
    /// # Errors
    /// The error of `work`.
    pub async fn write_alone<F>(&self, work: F) -> Result<(), StoreError>
    where
        F: FnOnce(&Connection) -> Result<(), StoreError> + Send + 'static,
    {
        self.health.check()?;
        let (answer, answered) = oneshot::channel();
        let health = self.health.clone();
        let run = Box::new(move |connection: &Connection| {
            let outcome =
                catch_unwind(AssertUnwindSafe(|| work(connection))).unwrap_or_else(|_| Err(StoreError::Panicked));
            // The caller may have dropped its receiver; its work happens nevertheless.
            let _ = answer.send(outcome.inspect_err(|error| health.observe(error)));
        });
        self.enqueue(WriteJob::Alone(run), answered).await
    }

    async fn enqueue<T>(
        &self,
        job: WriteJob,
        answered: oneshot::Receiver<Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        self.jobs.send(job).await.map_err(|_| StoreError::Closed)?;
        answered.await.map_err(|_| StoreError::Closed)?
    }

    /// Finishes the enqueued writes, then ends the thread.
    pub fn close(&self) {
        self.jobs.close();
        let thread = self.thread.lock().take();
        if let Some(thread) = thread
            && thread.join().is_err()
        {
            tracing::error!("the writer thread of the store panicked");
        }
    }
}

impl WriterThread {
    fn write_groups(&mut self, queue: &Receiver<WriteJob>) {
        let mut group = VecDeque::with_capacity(GROUP_LIMIT);
        let mut synchronous = Durability::Synced;
        let mut last_size = 0;
        while let Ok(first) = queue.recv_blocking() {
            if last_size > 1 && queue.len() < last_size {
                std::thread::sleep(GATHER);
            }
            let mut next = Some(first);
            let mut alone = None;
            while let Some(job) = next.take() {
                match job {
                    WriteJob::Grouped(job) => group.push_back(job),
                    WriteJob::Alone(run) => alone = Some(run),
                }
                if alone.is_none() && group.len() < GROUP_LIMIT {
                    next = queue.try_recv().ok();
                }
            }
            last_size = group.len();
            while !group.is_empty() {
                self.write_next(&mut group, &mut synchronous);
            }
            if let Some(run) = alone {
                run(&self.connection);
            }
            self.shorten_log();
        }
        if let Some(mark) = &self.mark {
            mark.sync();
        }
        // A damaged database must not change, and neither must its log.
        if self.health.check().is_err()
            && let Err(error) = self.connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)
        {
            tracing::warn!(%error, "the log of the damaged database may be merged into it");
        }
    }

    /// Moves a long log into the database and restarts the log. SQLite itself does so only at a moment without readers, which never
    /// comes under load.
    fn shorten_log(&mut self) {
        let length =
            self.connection.path().map(|path| std::fs::metadata(format!("{path}-wal")).map_or(0, |log| log.len()));
        if length.is_none_or(|length| length < self.longest_log) || self.health.check().is_err() {
            return;
        }
        // Readers release the log within milliseconds; the writer does not wait for slower ones.
        let shortened = self.connection.busy_timeout(CHECKPOINT_WAIT).and_then(|()| {
            let mut statement = self.connection.prepare_cached("PRAGMA wal_checkpoint(TRUNCATE)")?;
            statement.query_row([], |row| row.get::<_, bool>(0).map(|is_busy| !is_busy))
        });
        match (shortened, self.connection.busy_timeout(super::database::BUSY_TIMEOUT)) {
            (Ok(true), Ok(())) => self.longest_log = MAX_LOG_BYTES,
            (Ok(_), Ok(())) => self.longest_log = length.unwrap_or(0) + MAX_LOG_BYTES / 4,
            (Err(error), _) | (_, Err(error)) => {
                self.health.observe_sqlite(&error);
                tracing::warn!(%error, "the log of the database could not be shortened; retrying when it has grown");
                self.longest_log = length.unwrap_or(0) + MAX_LOG_BYTES / 4;
            }
        }
    }

    /// Commits `group` or a part of it, with the durability that its writes need.
    fn write_next(&mut self, group: &mut VecDeque<GroupedWrite>, synchronous: &mut Durability) {
        if let Err(error) = self.health.check() {
            return Self::refuse(group, &error.to_string());
        }
        let is_synced = group.iter().any(|job| job.durability == Durability::Synced);
        let wanted = if is_synced { Durability::Synced } else { Durability::Logged };
        if wanted != *synchronous {
            let mode = if is_synced { "FULL" } else { "NORMAL" };
            match self.connection.pragma_update(None, "synchronous", mode) {
                Ok(()) => *synchronous = wanted,
                // Staying at FULL is only slower; failing to reach FULL would break the promise of durability.
                Err(error) if is_synced => {
                    tracing::error!(%error, "the store cannot sync; rejecting this group of writes");
                    return Self::refuse(group, &error.to_string());
                }
                Err(_) => {}
            }
        }
        self.write_group(group, *synchronous, is_synced);
    }

    /// Commits the writes in `group`. If one write undoes the whole transaction, only the part up to it is processed; the writes
    /// after it have not run yet and stay for the next transaction.
    fn write_group(&mut self, group: &mut VecDeque<GroupedWrite>, durability: Durability, is_synced: bool) {
        if let Err(reason) = self.execute("BEGIN IMMEDIATE") {
            tracing::error!(%reason, "the store cannot begin a transaction; rejecting this group of writes");
            (self.on_commit)(GroupCommit { durability, writes: group.len(), took: None });
            return Self::refuse(group, &reason);
        }
        let mut reports: Vec<ReportOutcome> = Vec::with_capacity(group.len());
        let mut outcome = Ok(());
        while outcome.is_ok()
            && let Some(job) = group.pop_front()
        {
            let position = if reports.is_empty() { GroupPosition::First } else { GroupPosition::Later };
            let finished = (job.run)(Ok((&self.connection, position)));
            reports.push(finished.report);
            outcome = finished.undone;
            // Some errors (a full disk) undo the whole transaction, including other writes of the group.
            if outcome.is_ok() && self.connection.is_autocommit() {
                outcome = Err("the transaction was rolled back".to_owned());
            }
        }
        let begun = Instant::now();
        let outcome = outcome.and_then(|()| self.commit(is_synced));
        let took = outcome.is_ok().then(|| begun.elapsed());
        if outcome.is_err()
            && !self.connection.is_autocommit()
            && let Err(reason) = self.execute("ROLLBACK")
        {
            tracing::error!(%reason, "a transaction that failed could not be rolled back");
        }
        // Called before the callers get their results, so that a caller that then reads the count is included.
        (self.on_commit)(GroupCommit { durability, writes: reports.len(), took });
        for report in reports {
            report(outcome.clone());
        }
    }

    /// Commits, and raises the mark if the commit is synced. A power failure may undo other commits, and the mark must never be
    /// higher than the database.
    fn commit(&mut self, is_synced: bool) -> Result<(), String> {
        // A write of the group may have found damage that the others have not found.
        self.health.check().map_err(|error| error.to_string())?;
        let last = match &self.mark {
            Some(_) if is_synced => Some(inbox::last_seq(&self.connection).map_err(|error| error.to_string())?),
            _ => None,
        };
        self.execute("COMMIT")?;
        if let (Some(mark), Some(last)) = (&mut self.mark, last) {
            mark.raise(last);
        }
        Ok(())
    }

    /// Rejects `group` without running any of its work; each caller receives `reason`.
    fn refuse(group: &mut VecDeque<GroupedWrite>, reason: &str) {
        for job in group.drain(..) {
            ((job.run)(Err(reason.to_owned())).report)(Err(reason.to_owned()));
        }
    }

    fn execute(&self, sql: &str) -> Result<(), String> {
        let done = self.connection.prepare_cached(sql).and_then(|mut statement| statement.execute([]));
        done.map(drop).map_err(|error| {
            self.health.observe_sqlite(&error);
            error.to_string()
        })
    }
}

/// Runs `work` in the open transaction, and undoes it if it fails. The second result says whether the undo succeeded, so that the
/// transaction may be committed. A SAVEPOINT copies each page that changes after it. The first write of a transaction, which is
/// often the only one, therefore does not use one.
fn run_undoable<T, F>(
    connection: &Connection,
    position: GroupPosition,
    work: F,
) -> (Result<T, StoreError>, Result<(), String>)
where
    F: FnOnce(&Connection) -> Result<T, StoreError>,
{
    let execute = |sql| connection.prepare_cached(sql)?.execute([]);
    if position == GroupPosition::Later
        && let Err(error) = execute("SAVEPOINT caller")
    {
        return (Err(error.into()), Ok(()));
    }
    let outcome = catch_unwind(AssertUnwindSafe(|| work(connection))).unwrap_or_else(|_| Err(StoreError::Panicked));
    let undo_or_keep: &[&str] = match (position, outcome.is_ok()) {
        // Some errors (a full disk) have already undone the whole transaction.
        _ if connection.is_autocommit() => &[],
        (GroupPosition::First, true) => &[],
        (GroupPosition::First, false) => &["ROLLBACK", "BEGIN IMMEDIATE"],
        (GroupPosition::Later, true) => &["RELEASE caller"],
        (GroupPosition::Later, false) => &["ROLLBACK TO caller", "RELEASE caller"],
    };
    let undone = undo_or_keep.iter().try_for_each(|sql| execute(sql).map(drop));
    (outcome, undone.map_err(|error| error.to_string()))
}

#[cfg(test)]
#[path = "writer_tests.rs"]
mod tests;
