//! The one thread that writes. Callers who wait at the same moment share one commit and one fsync; each has a
//! SAVEPOINT, so that one caller's error is his alone.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;

use async_channel::{Receiver, Sender};
use rusqlite::Connection;
use tokio::sync::oneshot;

use super::StoreError;

/// Writes in one commit; more wait for the next.
const GROUP_LIMIT: usize = 256;

/// Writes that may wait to be taken up; then callers wait to hand theirs over.
const QUEUE_LIMIT: usize = 1_024;

/// What the caller's answer waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Commit {
    /// The commit is on the disk itself (`synchronous = FULL`): it outlives a power cut.
    Synced,
    /// The commit is in the log: it outlives this process, and reaches the disk with the next `Synced` one.
    Logged,
}

/// Runs in the group's transaction; what it returns is called with the outcome of the commit.
type Run = Box<dyn FnOnce(&Connection) -> Tell + Send>;
type Tell = Box<dyn FnOnce(Result<(), String>) + Send>;

struct Job {
    commit: Commit,
    run: Run,
}

/// The handle on the writer thread.
pub struct Writer {
    jobs: Sender<Job>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Writer {
    pub fn spawn(connection: Connection) -> std::io::Result<Self> {
        let (jobs, queue) = async_channel::bounded(QUEUE_LIMIT);
        let thread = std::thread::Builder::new()
            .name("store-writer".to_owned())
            .spawn(move || write_groups(&connection, &queue))?;
        Ok(Self { jobs, thread: Mutex::new(Some(thread)) })
    }

    /// Runs `work` in a group, and answers when that is committed as `commit` asks.
    ///
    /// # Errors
    /// What `work` returned (its changes are undone, others' are not), or the failure of the whole commit.
    pub async fn write<T, F>(&self, commit: Commit, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    {
        let (answer, answered) = oneshot::channel();
        let run: Run = Box::new(move |connection| {
            let outcome = in_savepoint(connection, work);
            Box::new(move |committed| {
                let outcome = match committed {
                    Ok(()) => outcome,
                    Err(reason) => outcome.and(Err(StoreError::Group(reason))),
                };
                // A caller who went away has dropped his end; what he asked for is done all the same.
                let _ = answer.send(outcome);
            })
        });
        self.jobs.send(Job { commit, run }).await.map_err(|_| StoreError::Closed)?;
        answered.await.map_err(|_| StoreError::Closed)?
    }

    /// Finishes what was handed over, then ends the thread.
    pub fn close(&self) {
        self.jobs.close();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread
            && thread.join().is_err()
        {
            tracing::error!("the store's writer thread had panicked");
        }
    }
}

fn write_groups(connection: &Connection, queue: &Receiver<Job>) {
    let mut group = Vec::with_capacity(GROUP_LIMIT);
    let mut synchronous = Commit::Synced;
    while let Ok(first) = queue.recv_blocking() {
        group.push(first);
        while group.len() < GROUP_LIMIT
            && let Ok(job) = queue.try_recv()
        {
            group.push(job);
        }
        let wanted = if group.iter().any(|job| job.commit == Commit::Synced) { Commit::Synced } else { Commit::Logged };
        if wanted != synchronous {
            let mode = if wanted == Commit::Synced { "FULL" } else { "NORMAL" };
            match connection.pragma_update(None, "synchronous", mode) {
                Ok(()) => synchronous = wanted,
                // Staying at FULL is merely slower; not reaching FULL would break the promise.
                Err(error) if wanted == Commit::Synced => {
                    tracing::error!(%error, "the store cannot sync; refusing this group of writes");
                    let reason = error.to_string();
                    // No transaction is open, so each job only learns that it failed.
                    group.drain(..).for_each(|job| (job.run)(connection)(Err(reason.clone())));
                    continue;
                }
                Err(_) => {}
            }
        }
        write_group(connection, &mut group);
    }
}

fn write_group(connection: &Connection, group: &mut Vec<Job>) {
    let mut tell: Vec<Tell> = Vec::with_capacity(group.len());
    let mut outcome = execute(connection, "BEGIN IMMEDIATE");
    for job in group.drain(..) {
        tell.push((job.run)(connection));
        // Some errors (a full disk) undo the whole transaction, and with it what others of the group did.
        // Those that follow find no transaction and learn that they failed: everybody gets an answer.
        if outcome.is_ok() && connection.is_autocommit() {
            outcome = Err("the transaction was rolled back".to_owned());
        }
    }
    let outcome = outcome.and_then(|()| execute(connection, "COMMIT"));
    if outcome.is_err() && !connection.is_autocommit() {
        // Nothing is left to do about a failed rollback but to let the next BEGIN say so.
        let _ = execute(connection, "ROLLBACK");
    }
    for tell in tell {
        tell(outcome.clone());
    }
}

fn in_savepoint<T, F>(connection: &Connection, work: F) -> Result<T, StoreError>
where
    F: FnOnce(&Connection) -> Result<T, StoreError>,
{
    if connection.is_autocommit() {
        return Err(StoreError::Group("there is no transaction to write in".to_owned()));
    }
    connection.prepare_cached("SAVEPOINT caller")?.execute([])?;
    let outcome = catch_unwind(AssertUnwindSafe(|| work(connection)))
        .unwrap_or_else(|_| Err(StoreError::Row("a write panicked".to_owned())));
    if outcome.is_err() && !connection.is_autocommit() {
        connection.prepare_cached("ROLLBACK TO caller")?.execute([])?;
    }
    if !connection.is_autocommit() {
        connection.prepare_cached("RELEASE caller")?.execute([])?;
    }
    outcome
}

fn execute(connection: &Connection, sql: &str) -> Result<(), String> {
    connection.prepare_cached(sql).and_then(|mut statement| statement.execute([])).map(drop).map_err(|e| e.to_string())
}
