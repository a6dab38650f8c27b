//! The writer thread. Callers that wait at the same moment share one commit and one fsync. The work of each caller is undone
//! alone if it fails: the first of a group by beginning the transaction again, the others by a SAVEPOINT.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use async_channel::{Receiver, Sender};
use rusqlite::Connection;
use rusqlite::config::DbConfig;
use tokio::sync::oneshot;

use super::health::DatabaseHealth;
use super::high_water_mark::HighWaterMark;
use super::{StoreError, inbox};

/// The most writes in one commit.
const GROUP_LIMIT: usize = 256;

/// The most writes that wait; then callers wait to enqueue theirs.
const QUEUE_LIMIT: usize = 1_024;

/// How long a group waits for more writes, where the group before had several: under load fewer commits are made, and each costs
/// a fsync and copies of the same pages. Nobody waits who writes alone. PostgreSQL calls this `commit_delay`.
const GATHER: Duration = Duration::from_micros(300);

/// The length in bytes at which the log is shortened: twice what SQLite lets gather.
const MAX_LOG_BYTES: u64 = 16 << 20;

/// How long the writer waits for readers of the log.
const CHECKPOINT_WAIT: Duration = Duration::from_millis(50);

/// The durability that the caller waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// The commit is on disk (`synchronous = FULL`): it survives a power failure.
    Synced,
    /// The commit is in the log: it survives this process, and reaches the disk with the next `Synced` one.
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

/// Called with every group, on the writer's thread, so it must not block.
pub type OnCommit = Box<dyn Fn(GroupCommit) + Send>;

/// Runs in the group's transaction; the result is called with the outcome of the commit.
type GroupWork = Box<dyn FnOnce(&Connection, Position) -> ReportOutcome + Send>;
type ReportOutcome = Box<dyn FnOnce(Result<(), String>) + Send>;

/// Where a write is in its transaction, which decides how it is undone.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Position {
    /// Nothing has been written before it.
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
    /// The length in bytes at which the log is shortened next.
    longest_log: u64,
}

/// The handle on the writer thread.
pub struct Writer {
    jobs: Sender<WriteJob>,
    health: Arc<DatabaseHealth>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Writer {
    /// Starts the thread. Commits raise `mark` and are reported to `on_commit`; damage is reported to `health`.
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

    /// Runs `work` in a group, and returns when it is committed as `commit` asks.
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
        let run: GroupWork = Box::new(move |connection, position| {
            let outcome = run_undoable(connection, position, work).inspect_err(|error| health.observe(error));
            Box::new(move |committed| {
                let outcome = match committed {
                    Ok(()) => outcome,
                    Err(reason) => outcome.and(Err(StoreError::Group(reason))),
                };
                // A caller that went away has dropped its end; its write happens nevertheless.
                let _ = answer.send(outcome);
            })
        });
        self.enqueue(WriteJob::Grouped(GroupedWrite { durability, run }), answered).await
    }

    /// Runs `work` between two groups, outside of any transaction; all other writes wait for it.
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
            let outcome = catch_unwind(AssertUnwindSafe(|| work(connection)))
                .unwrap_or_else(|_| Err(StoreError::Row("a write panicked".to_owned())));
            // A caller that went away has dropped its end; its work happens nevertheless.
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
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
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
        // A damaged database stays as it is, and so does its log.
        if self.health.check().is_err()
            && let Err(error) = self.connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)
        {
            tracing::warn!(%error, "the log of the damaged database may be merged into it");
        }
    }

    /// Moves a long log into the database and starts it again. SQLite does so itself only at a moment without readers, which
    /// under load does not come.
    fn shorten_log(&mut self) {
        let length =
            self.connection.path().map(|path| std::fs::metadata(format!("{path}-wal")).map_or(0, |log| log.len()));
        if length.is_none_or(|length| length < self.longest_log) || self.health.check().is_err() {
            return;
        }
        // Readers leave the log within milliseconds; slower ones are not waited for.
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
            return self.refuse(group, &error.to_string());
        }
        let is_synced = group.iter().any(|job| job.durability == Durability::Synced);
        let wanted = if is_synced { Durability::Synced } else { Durability::Logged };
        if wanted != *synchronous {
            let mode = if is_synced { "FULL" } else { "NORMAL" };
            match self.connection.pragma_update(None, "synchronous", mode) {
                Ok(()) => *synchronous = wanted,
                // Staying at FULL is only slower; not reaching FULL would break the promise.
                Err(error) if is_synced => {
                    tracing::error!(%error, "the store cannot sync; rejecting this group of writes");
                    return self.refuse(group, &error.to_string());
                }
                Err(_) => {}
            }
        }
        self.write_group(group, *synchronous, is_synced);
    }

    /// Commits what is in `group`, or its first part if one write undoes the whole transaction: those after it have not run yet
    /// and stay for another one.
    fn write_group(&mut self, group: &mut VecDeque<GroupedWrite>, durability: Durability, is_synced: bool) {
        if let Err(reason) = self.execute("BEGIN IMMEDIATE") {
            (self.on_commit)(GroupCommit { durability, writes: group.len(), took: None });
            return self.refuse(group, &reason);
        }
        let mut tell: Vec<ReportOutcome> = Vec::with_capacity(group.len());
        let mut outcome = Ok(());
        while outcome.is_ok()
            && let Some(job) = group.pop_front()
        {
            let position = if tell.is_empty() { Position::First } else { Position::Later };
            tell.push((job.run)(&self.connection, position));
            // Some errors (a full disk) undo the whole transaction, including other writes of the group.
            if self.connection.is_autocommit() {
                outcome = Err("the transaction was rolled back".to_owned());
            }
        }
        let begun = Instant::now();
        let outcome = outcome.and_then(|()| self.commit(is_synced));
        let took = outcome.is_ok().then(|| begun.elapsed());
        if outcome.is_err() && !self.connection.is_autocommit() {
            // Nothing can be done about a failed rollback; the next BEGIN will report it.
            let _ = self.execute("ROLLBACK");
        }
        // Before the callers get their results, so that a caller that reads the count is included.
        (self.on_commit)(GroupCommit { durability, writes: tell.len(), took });
        for tell in tell {
            tell(outcome.clone());
        }
    }

    /// Commits, and raises the mark, but only if the commit is synced: a power failure may undo others, and the mark must never
    /// be higher than the database.
    fn commit(&mut self, is_synced: bool) -> Result<(), String> {
        // A write of the group may have met damage that the others have not.
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

    /// Runs nothing of `group` and reports the reason: outside of a transaction a write only returns an error.
    fn refuse(&self, group: &mut VecDeque<GroupedWrite>, reason: &str) {
        for job in group.drain(..) {
            (job.run)(&self.connection, Position::First)(Err(reason.to_owned()));
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

/// Runs `work` in the open transaction, and undoes what it did if it fails. A SAVEPOINT copies each page that changes behind it,
/// so the first write of a transaction, which is often the only one, does without.
fn run_undoable<T, F>(connection: &Connection, position: Position, work: F) -> Result<T, StoreError>
where
    F: FnOnce(&Connection) -> Result<T, StoreError>,
{
    if connection.is_autocommit() {
        return Err(StoreError::Group("the transaction could not begin".to_owned()));
    }
    let execute = |sql| connection.prepare_cached(sql)?.execute([]);
    if position == Position::Later {
        execute("SAVEPOINT caller")?;
    }
    let outcome = catch_unwind(AssertUnwindSafe(|| work(connection)))
        .unwrap_or_else(|_| Err(StoreError::Row("a write panicked".to_owned())));
    // Some errors (a full disk) have undone the whole transaction already.
    if connection.is_autocommit() {
        return outcome;
    }
    match (position, outcome.is_ok()) {
        (Position::First, true) => {}
        (Position::First, false) => {
            execute("ROLLBACK")?;
            execute("BEGIN IMMEDIATE")?;
        }
        (Position::Later, is_ok) => {
            if !is_ok {
                execute("ROLLBACK TO caller")?;
            }
            execute("RELEASE caller")?;
        }
    }
    outcome
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, mpsc};

    use futures_util::future::join_all;
    use rusqlite::params;

    use super::*;
    use crate::store::database;

    struct World {
        writer: Writer,
        folder: tempfile::TempDir,
    }

    impl World {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("daoyou.db");
            let connection = database::into_writer(&path, database::open_for_check(&path).unwrap()).unwrap();
            connection
                .execute_batch("CREATE TABLE spoken (word TEXT NOT NULL); PRAGMA wal_checkpoint(TRUNCATE);")
                .unwrap();
            Self {
                writer: Writer::spawn(connection, None, Arc::new(DatabaseHealth::new(&path)), Box::new(|_| {}))
                    .unwrap(),
                folder,
            }
        }

        /// Returns the number of commits in the write-ahead log: its frames with the size of the database.
        /// <https://www.sqlite.org/fileformat2.html#walformat>
        fn commits(&self) -> usize {
            let wal = std::fs::read(self.folder.path().join("daoyou.db-wal")).unwrap();
            let word = |bytes: &[u8]| u32::from_be_bytes(bytes.try_into().unwrap());
            let page = usize::try_from(word(&wal[8..12])).unwrap();
            wal[32..].chunks_exact(24 + page).filter(|frame| word(&frame[4..8]) > 0).count()
        }

        fn words(&self) -> Vec<String> {
            let connection = database::open_reader(&self.folder.path().join("daoyou.db")).unwrap();
            let mut statement = connection.prepare("SELECT word FROM spoken ORDER BY rowid").unwrap();
            let words = statement.query_map([], |row| row.get(0)).unwrap().collect::<Result<_, _>>();
            words.unwrap()
        }

        /// Enqueues `jobs` while the writer is busy, and calls `meanwhile` when all of them wait; returns the outcome of each.
        async fn together(&self, jobs: Vec<Work>, meanwhile: impl FnOnce()) -> Vec<Result<(), StoreError>> {
            let count = jobs.len();
            let (running, is_running) = oneshot::channel();
            let (release, held) = mpsc::channel::<()>();
            let busy = self.writer.write(Durability::Synced, move |_| {
                running.send(()).unwrap();
                held.recv().map_err(|error| StoreError::Row(error.to_string()))
            });
            let waiting = async {
                is_running.await.unwrap();
                let jobs = jobs.into_iter();
                join_all(jobs.map(|job| self.writer.write(Durability::Synced, move |connection| job(connection)))).await
            };
            let let_go = async {
                while self.writer.jobs.len() < count {
                    tokio::task::yield_now().await;
                }
                meanwhile();
                release.send(()).unwrap();
            };
            let (busy, outcomes, ()) = tokio::join!(busy, waiting, let_go);
            busy.unwrap();
            outcomes
        }
    }

    type Work = Box<dyn FnOnce(&Connection) -> Result<(), StoreError> + Send>;

    fn say(word: impl Into<String>) -> Work {
        let word = word.into();
        Box::new(move |connection| {
            connection.execute("INSERT INTO spoken VALUES (?)", params![word])?;
            Ok(())
        })
    }

    /// Inserts a word, then fails.
    fn say_then(word: &'static str, wrong: fn(&Connection) -> Result<(), StoreError>) -> Work {
        Box::new(move |connection| {
            say(word)(connection)?;
            wrong(connection)
        })
    }

    #[tokio::test]
    async fn callers_that_wait_together_share_a_commit() {
        for (callers, commits) in [(1, 1), (100, 1), (GROUP_LIMIT, 1), (GROUP_LIMIT + 44, 2)] {
            let world = World::new();
            let outcomes = world.together((0..callers).map(|n| say(n.to_string())).collect(), || {}).await;
            assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
            // The busy write inserted nothing, and so has no commit in the log.
            assert_eq!((world.commits(), world.words().len()), (commits, callers));
        }
    }

    #[tokio::test]
    async fn an_error_and_a_panic_affect_only_their_caller() {
        let world = World::new();
        let jobs = vec![
            say("a"),
            say_then("b", |_| Err(StoreError::Row("no".to_owned()))),
            say_then("c", |_| panic!("as a bug would")),
            say_then("d", |connection| Ok(connection.execute_batch("INSERT INTO nowhere VALUES (1)")?)),
            say("e"),
        ];
        let outcomes = world.together(jobs, || {}).await;
        let is_ok: Vec<_> = outcomes.iter().map(Result::is_ok).collect();
        assert_eq!((is_ok, world.words()), (vec![true, false, false, false, true], vec!["a".into(), "e".to_owned()]));
    }

    /// It has no savepoint to return to.
    #[tokio::test]
    async fn a_failure_of_the_first_write_affects_only_its_caller() {
        let firsts: [fn() -> Work; 3] = [
            || say_then("b", |_| Err(StoreError::Row("no".to_owned()))),
            || say_then("c", |_| panic!("as a bug would")),
            || say_then("d", |connection| Ok(connection.execute_batch("INSERT INTO nowhere VALUES (1)")?)),
        ];
        for first in firsts {
            let world = World::new();
            let outcomes = world.together(vec![first(), say("e"), say("f")], || {}).await;
            let is_ok: Vec<_> = outcomes.iter().map(Result::is_ok).collect();
            assert_eq!((is_ok, world.words()), (vec![false, true, true], vec!["e".into(), "f".to_owned()]));
        }
    }

    #[tokio::test]
    async fn a_write_that_undoes_a_transaction_undoes_the_writes_before_it_and_not_those_after() {
        let world = World::new();
        let jobs =
            vec![say("a"), say_then("b", |connection| Ok(connection.execute_batch("ROLLBACK")?)), say("c"), say("d")];
        let outcomes = world.together(jobs, || {}).await;
        assert!(matches!(outcomes[..], [Err(StoreError::Group(_)), Err(_), Ok(()), Ok(())]), "{outcomes:?}");
        assert_eq!(world.words(), ["c", "d"]);
    }

    #[tokio::test]
    async fn every_caller_learns_that_a_transaction_could_not_begin() {
        let world = World::new();
        // A nested transaction is refused like a store that another program has locked.
        world
            .writer
            .write(Durability::Logged, |connection| Ok(connection.busy_timeout(std::time::Duration::ZERO)?))
            .await
            .unwrap();
        let other = rusqlite::Connection::open(world.folder.path().join("daoyou.db")).unwrap();
        other.execute_batch("BEGIN IMMEDIATE").unwrap();
        let outcomes =
            join_all((0..3).map(|_| world.writer.write(Durability::Synced, |connection| say("a")(connection)))).await;
        assert!(outcomes.iter().all(|outcome| matches!(outcome, Err(StoreError::Group(_)))), "{outcomes:?}");
        other.execute_batch("ROLLBACK").unwrap();
        world.writer.write(Durability::Synced, |connection| say("b")(connection)).await.unwrap();
        assert_eq!(world.words(), ["b"]);
    }

    /// Two readers of which one always reads, until `stop`; each reads until the other has begun.
    fn read_without_a_break(path: std::path::PathBuf, stop: Arc<std::sync::atomic::AtomicBool>) -> JoinHandle<()> {
        std::thread::spawn(move || {
            let readers = [(); 2].map(|()| database::open_reader(&path).unwrap());
            let read = |reader: &Connection| {
                reader.execute_batch("BEGIN").unwrap();
                reader.query_row("SELECT count(*) FROM spoken", [], |row| row.get::<_, i64>(0)).unwrap();
            };
            read(&readers[1]);
            for at in (0..2).cycle() {
                read(&readers[at]);
                readers[1 - at].execute_batch("COMMIT").unwrap();
                if stop.load(std::sync::atomic::Ordering::Relaxed) {
                    return;
                }
            }
        })
    }

    #[tokio::test]
    async fn the_log_stays_bounded_under_continuous_reads() {
        let world = World::new();
        let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let reading = read_without_a_break(world.folder.path().join("daoyou.db"), stop.clone());
        let mut longest = 0;
        for _ in 0..48 {
            world.writer.write(Durability::Logged, say("x".repeat(1 << 20))).await.unwrap();
            longest = longest.max(std::fs::metadata(world.folder.path().join("daoyou.db-wal")).unwrap().len());
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        reading.join().unwrap();
        assert!(longest < 2 * MAX_LOG_BYTES, "{longest}");
        assert_eq!(world.words().len(), 48);
    }

    #[tokio::test]
    async fn closing_finishes_enqueued_writes() {
        let world = Arc::new(World::new());
        let (closing, closed) = (Arc::clone(&world), Arc::clone(&world));
        let meanwhile = move || {
            std::thread::spawn(move || closing.writer.close());
            while !closed.writer.jobs.is_closed() {
                std::thread::yield_now();
            }
        };
        let outcomes = world.together((0..10).map(|n| say(n.to_string())).collect(), meanwhile).await;
        assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
        assert_eq!(world.words().len(), 10);
        let late = world.writer.write(Durability::Synced, |connection| say("late")(connection)).await;
        assert!(matches!(late, Err(StoreError::Closed)), "{late:?}");
    }
}
