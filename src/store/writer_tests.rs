//! Group commits, and the undoing of single writes.

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
        connection.execute_batch("CREATE TABLE spoken (word TEXT NOT NULL); PRAGMA wal_checkpoint(TRUNCATE);").unwrap();
        Self {
            writer: Writer::spawn(connection, None, Arc::new(DatabaseHealth::new(&path)), Box::new(|_| {})).unwrap(),
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

    /// Enqueues `jobs` while the writer is busy, and calls `meanwhile` when all of them are waiting; returns the outcome of each.
    async fn together(&self, jobs: Vec<Work>, meanwhile: impl FnOnce()) -> Vec<Result<(), StoreError>> {
        let count = jobs.len();
        let (running, is_running) = oneshot::channel();
        let (release, held) = mpsc::channel::<()>();
        let mut running = Some(running);
        let busy = self.writer.write(Durability::Synced, move |_| {
            running.take().unwrap().send(()).unwrap();
            held.recv().map_err(|error| StoreError::Row(error.to_string()))
        });
        let waiting = async {
            is_running.await.unwrap();
            let jobs = jobs.into_iter();
            join_all(jobs.map(|job| self.writer.write(Durability::Synced, job))).await
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

/// The end of work that fails.
type WrongEnd = fn(&Connection) -> Result<(), StoreError>;

type Work = Box<dyn FnMut(&Connection) -> Result<(), StoreError> + Send>;

fn say(word: impl Into<String>) -> Work {
    let word = word.into();
    Box::new(move |connection| {
        connection.execute("INSERT INTO spoken VALUES (?)", params![word])?;
        Ok(())
    })
}

/// Inserts a word, then fails.
fn say_then(word: &'static str, mut wrong: impl FnMut(&Connection) -> Result<(), StoreError> + Send + 'static) -> Work {
    Box::new(move |connection| {
        say(word)(connection)?;
        wrong(connection)
    })
}

/// Inserts a word, and fails from the second run on.
fn fail_later(
    word: &'static str,
    mut wrong: impl FnMut(&Connection) -> Result<(), StoreError> + Send + 'static,
) -> Work {
    let mut is_again = false;
    Box::new(move |connection| {
        say(word)(connection)?;
        if std::mem::replace(&mut is_again, true) { wrong(connection) } else { Ok(()) }
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
async fn a_failure_in_the_second_run_affects_only_its_caller() {
    let wrongs: [WrongEnd; 3] = [
        |_| Err(StoreError::Row("no".to_owned())),
        |_| panic!("as a bug would"),
        |connection| Ok(connection.execute_batch("INSERT INTO nowhere VALUES (1)")?),
    ];
    for wrong in wrongs {
        let world = World::new();
        let jobs = vec![say("a"), fail_later("b", wrong), say("c"), say_then("d", wrong), say("e")];
        let outcomes = world.together(jobs, || {}).await;
        let is_ok: Vec<_> = outcomes.iter().map(Result::is_ok).collect();
        assert_eq!((is_ok, world.words().concat()), (vec![true, false, true, false, true], "ace".to_owned()));
    }
}

#[tokio::test]
async fn a_write_that_undoes_its_transaction_affects_only_its_caller() {
    let world = World::new();
    let roll_back = |connection: &Connection| Ok(connection.execute_batch("ROLLBACK")?);
    let outcomes = world.together(vec![say("a"), say_then("b", roll_back), say("c")], || {}).await;
    assert!(matches!(outcomes[..], [Ok(()), Err(StoreError::Group(_)), Ok(())]), "{outcomes:?}");
    assert_eq!(world.words(), ["a", "c"]);
}

/// What a full disk does to a write that runs behind a savepoint, and a savepoint that is gone.
#[tokio::test]
async fn a_write_that_cannot_be_undone_alone_undoes_the_writes_before_it_and_not_those_after() {
    let no = || Err(StoreError::Row("no".to_owned()));
    let wrongs: [WrongEnd; 2] = [
        |connection| Ok(connection.execute_batch("ROLLBACK")?),
        |connection| {
            connection.execute_batch("RELEASE caller")?;
            Err(StoreError::Row("no".to_owned()))
        },
    ];
    for wrong in wrongs {
        let world = World::new();
        let jobs = vec![say("a"), fail_later("b", wrong), say("c"), say_then("d", move |_| no())];
        let outcomes = world.together(jobs, || {}).await;
        let is_expected = matches!(
            &outcomes[..],
            [Err(StoreError::Group(why)), Err(_), Ok(()), Err(StoreError::Row(_))] if !why.is_empty()
        );
        assert!(is_expected, "{outcomes:?}");
        assert_eq!(world.words(), ["c"]);
    }
}

#[tokio::test]
async fn every_caller_learns_why_a_transaction_could_not_begin() {
    let world = World::new();
    world
        .writer
        .write(Durability::Logged, |connection| Ok(connection.busy_timeout(std::time::Duration::ZERO)?))
        .await
        .unwrap();
    let other = rusqlite::Connection::open(world.folder.path().join("daoyou.db")).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let outcomes = join_all((0..3).map(|_| world.writer.write(Durability::Synced, say("a")))).await;
    let is_locked = |outcome: &_| matches!(outcome, Err(StoreError::Group(why)) if why.contains("locked"));
    assert!(outcomes.iter().all(is_locked), "{outcomes:?}");
    other.execute_batch("ROLLBACK").unwrap();
    world.writer.write(Durability::Synced, say("b")).await.unwrap();
    assert_eq!(world.words(), ["b"]);
}

/// Starts two readers that overlap until `stop`, so that one of them is always reading: each reads until the other has begun.
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
    let late = world.writer.write(Durability::Synced, say("late")).await;
    assert!(matches!(late, Err(StoreError::Closed)), "{late:?}");
}
