//! The writer thread. Callers that wait at the same moment share one commit and one fsync. If the work of a caller fails, only that
//! work is undone: the transaction is rolled back, and the other work runs again, each behind a SAVEPOINT.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use async_channel::{Receiver, Sender, WeakSender};
use parking_lot::Mutex;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, MAIN_DB};
use tokio::sync::oneshot;

use super::error::describe;
use super::health::DatabaseHealth;
use super::high_water_mark::HighWaterMark;
use super::log_purge::LogPurge;
use super::{StoreError, inbox};

/// The maximum number of writes in one commit.
const GROUP_LIMIT: usize = 256;

/// The maximum number of writes that wait in the queue; beyond it, callers wait to enqueue theirs.
const QUEUE_LIMIT: usize = 1_024;

/// How long a group waits for more writes if the previous group had several. Under load this gives fewer commits, each of which
/// costs a fsync and copies of the same pages. A longer wait saves little CPU and costs a third of the speed at 10 turns in
/// flight. PostgreSQL calls this `commit_delay`.
const GATHER: Duration = Duration::from_micros(300);

/// The length in bytes from which on the log is shortened: twice the length that SQLite lets it reach.
const MAX_LOG_BYTES: u64 = 32 << 20;

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

/// The error of callers whose transaction was rolled back.
const ROLLED_BACK: &str = "the transaction was rolled back";

/// Called for every group on the writer's thread, so it must not block.
pub type OnCommit = Box<dyn Fn(GroupCommit) + Send>;

/// The work of one caller.
trait CallerWork: Send {
    /// Runs the work in the open transaction; returns true if it succeeded. The last run counts: work runs again after a transaction
    /// that was rolled back.
    fn run(&mut self, connection: &Connection) -> bool;

    /// Sends the caller the outcome of the work, or the reason why it was not committed.
    fn report(self: Box<Self>, committed: Result<(), String>);
}

struct WaitingCaller<T, F> {
    work: F,
    /// The outcome of the last run.
    outcome: Option<Result<T, StoreError>>,
    answer: oneshot::Sender<Result<T, StoreError>>,
    health: Arc<DatabaseHealth>,
}

impl<T, F> CallerWork for WaitingCaller<T, F>
where
    T: Send,
    F: FnMut(&Connection) -> Result<T, StoreError> + Send,
{
    fn run(&mut self, connection: &Connection) -> bool {
        let outcome = catch_unwind(AssertUnwindSafe(|| (self.work)(connection)));
        let mut outcome = outcome.unwrap_or_else(|_| Err(StoreError::Panicked));
        if outcome.is_ok() && connection.is_autocommit() {
            outcome = Err(StoreError::Group(ROLLED_BACK.to_owned()));
        }
        let outcome = self.outcome.insert(outcome.inspect_err(|error| self.health.observe(error)));
        outcome.is_ok()
    }

    fn report(self: Box<Self>, committed: Result<(), String>) {
        let outcome = match (self.outcome, committed) {
            (Some(Err(error)), _) => Err(error),
            (_, Err(reason)) => Err(StoreError::Group(reason)),
            (Some(Ok(value)), Ok(())) => Ok(value),
            (None, Ok(())) => Err(StoreError::Group("it did not run".to_owned())),
        };
        // The caller may have dropped its receiver; its write happens nevertheless.
        let _ = self.answer.send(outcome);
    }
}

enum WriteRequest {
    Grouped(GroupedWrite),
    /// Runs outside of any transaction.
    Alone(Box<dyn FnOnce(&Connection) + Send>),
}

struct GroupedWrite {
    durability: Durability,
    work: Box<dyn CallerWork>,
}

/// The state of the thread.
struct WriterThread {
    connection: Connection,
    mark: Option<HighWaterMark>,
    health: Arc<DatabaseHealth>,
    on_commit: OnCommit,
    /// The length in bytes from which on the log is shortened next.
    longest_log: u64,
    purge: LogPurge,
    jobs: WeakSender<WriteRequest>,
}

/// The handle of the writer thread.
pub struct Writer {
    jobs: Sender<WriteRequest>,
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
        let (longest_log, purge) = (MAX_LOG_BYTES, LogPurge::at_start());
        let mut writer_thread = WriterThread {
            connection,
            mark,
            health: health.clone(),
            on_commit,
            longest_log,
            purge,
            jobs: jobs.downgrade(),
        };
        let thread = std::thread::Builder::new()
            .name("store-writer".to_owned())
            .spawn(move || writer_thread.write_groups(&queue))?;
        Ok(Self { jobs, health, thread: Mutex::new(Some(thread)) })
    }

    /// Runs `work` in a group, and returns when it is committed with `durability`. `work` may run several times.
    ///
    /// # Errors
    /// The error of `work` (its changes are undone, others' are not), or the failure of the whole commit.
    pub async fn write<T, F>(&self, durability: Durability, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnMut(&Connection) -> Result<T, StoreError> + Send + 'static,
    {
        self.health.check()?;
        let (answer, answered) = oneshot::channel();
        let work = Box::new(WaitingCaller { work, outcome: None, answer, health: self.health.clone() });
        self.enqueue(WriteRequest::Grouped(GroupedWrite { durability, work }), answered).await
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
        self.enqueue(WriteRequest::Alone(run), answered).await
    }

    async fn enqueue<T>(
        &self,
        job: WriteRequest,
        done: oneshot::Receiver<Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        self.jobs.send(job).await.map_err(|_| StoreError::Closed)?;
        done.await.map_err(|_| StoreError::Closed)?
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
    fn write_groups(&mut self, queue: &Receiver<WriteRequest>) {
        let mut group = VecDeque::with_capacity(GROUP_LIMIT);
        let mut synchronous = Durability::Synced;
        let mut last_size = 0;
        if self.connection.is_readonly(MAIN_DB).unwrap_or(true) {
            self.purge.succeeded();
        }
        self.shorten_log();
        while let Ok(first) = queue.recv_blocking() {
            if last_size > 1 && queue.len() < last_size {
                std::thread::sleep(GATHER);
            }
            let mut next = Some(first);
            let mut alone = None;
            while let Some(job) = next.take() {
                match job {
                    WriteRequest::Grouped(job) => group.push_back(job),
                    WriteRequest::Alone(run) => alone = Some(run),
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

    /// Sends the writer a job without work after `pause`, so that it tries again to empty the log, even without a further write.
    fn retry_after(&self, pause: Duration) {
        let jobs = self.jobs.clone();
        let retry = move || {
            std::thread::sleep(pause);
            if let Some(jobs) = jobs.upgrade() {
                // A full queue has other jobs, after which the writer tries again.
                let _ = jobs.try_send(WriteRequest::Alone(Box::new(|_| {})));
            }
        };
        if let Err(error) = std::thread::Builder::new().name("store-retry".to_owned()).spawn(retry) {
            tracing::debug!(%error, "the log of the database is emptied after the next write");
        }
    }

    /// Moves a long log into the database and restarts the log. SQLite itself does so only at a moment without readers, which never
    /// comes under load. A short log is emptied as well if it must not keep deleted text.
    fn shorten_log(&mut self) {
        self.purge.take_request();
        let length =
            self.connection.path().map(|path| std::fs::metadata(format!("{path}-wal")).map_or(0, |log| log.len()));
        if length == Some(0) {
            self.purge.succeeded();
        }
        let is_long = length.is_some_and(|length| length >= self.longest_log);
        if !(is_long || self.purge.is_due()) || self.health.check().is_err() {
            return;
        }
        // Readers release the log within milliseconds; the writer does not wait for slower ones.
        let shortened = self.connection.busy_timeout(CHECKPOINT_WAIT).and_then(|()| {
            let mut statement = self.connection.prepare_cached("PRAGMA wal_checkpoint(TRUNCATE)")?;
            statement.query_row([], |row| row.get::<_, bool>(0).map(|is_busy| !is_busy))
        });
        let is_shortened = match (shortened, self.connection.busy_timeout(super::database::BUSY_TIMEOUT)) {
            (Ok(is_shortened), Ok(())) => is_shortened,
            (Err(error), _) | (_, Err(error)) => {
                self.health.observe_sqlite(&error);
                tracing::warn!(%error, "the log of the database could not be shortened; retrying later");
                false
            }
        };
        if is_shortened {
            self.longest_log = MAX_LOG_BYTES;
            self.purge.succeeded();
        } else {
            self.longest_log = MAX_LOG_BYTES.max(length.unwrap_or(0) + MAX_LOG_BYTES / 4);
            if let Some(pause) = self.purge.failed() {
                self.retry_after(pause);
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

    /// Commits the writes in `group`. If one write cannot be undone alone, only the part up to it is processed; the writes after it stay
    /// for the next transaction.
    fn write_group(&mut self, group: &mut VecDeque<GroupedWrite>, durability: Durability, is_synced: bool) {
        if let Err(reason) = self.execute("BEGIN IMMEDIATE") {
            tracing::error!(%reason, "the store cannot begin a transaction; rejecting this group of writes");
            (self.on_commit)(GroupCommit { durability, writes: group.len(), took: None });
            return Self::refuse(group, &reason);
        }
        let mut done = Vec::with_capacity(group.len());
        let outcome = match group.iter_mut().position(|write| !write.work.run(&self.connection)) {
            None => {
                done.extend(group.drain(..));
                Ok(())
            }
            Some(failed) => {
                done.extend(group.remove(failed));
                self.run_each(group, &mut done)
            }
        };
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
        (self.on_commit)(GroupCommit { durability, writes: done.len(), took });
        for write in done {
            write.work.report(outcome.clone());
        }
    }

    /// Runs the rest of a group after one of its writes has failed: each can be undone alone now. Moves the writes to `done`; an error
    /// is the reason why their transaction must not be committed.
    fn run_each(&self, group: &mut VecDeque<GroupedWrite>, done: &mut Vec<GroupedWrite>) -> Result<(), String> {
        let undone = if self.connection.is_autocommit() { Ok(()) } else { self.execute("ROLLBACK") };
        if let Err(reason) = undone.and_then(|()| self.execute("BEGIN IMMEDIATE")) {
            done.extend(group.drain(..));
            return Err(reason);
        }
        while let Some(mut write) = group.pop_front() {
            let outcome = self.run_behind_savepoint(&mut write);
            done.push(write);
            outcome?;
        }
        Ok(())
    }

    /// Runs the work of a write, and undoes it if it fails. An error is the reason why it could not be undone.
    fn run_behind_savepoint(&self, write: &mut GroupedWrite) -> Result<(), String> {
        self.execute("SAVEPOINT caller")?;
        if !write.work.run(&self.connection) {
            // Some errors (a full disk) undo the whole transaction.
            if self.connection.is_autocommit() {
                return Err(ROLLED_BACK.to_owned());
            }
            self.execute("ROLLBACK TO caller")?;
        }
        self.execute("RELEASE caller")
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

    /// Rejects `group`, none of which is committed; each caller receives `reason`.
    fn refuse(group: &mut VecDeque<GroupedWrite>, reason: &str) {
        for job in group.drain(..) {
            job.work.report(Err(reason.to_owned()));
        }
    }

    fn execute(&self, sql: &str) -> Result<(), String> {
        let done = self.connection.prepare_cached(sql).and_then(|mut statement| statement.execute([]));
        done.map(drop).map_err(|error| {
            self.health.observe_sqlite(&error);
            describe(&error)
        })
    }
}

#[cfg(test)]
#[path = "writer_tests.rs"]
mod tests;
