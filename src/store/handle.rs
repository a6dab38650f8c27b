//! The handle of the store.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use daoyou_channels::backoff::Backoff;
use parking_lot::Mutex;
use rusqlite::Connection;
use tokio::sync::Semaphore;

use super::disk_usage::DiskUsage;
use super::health::{self, DatabaseHealth};
use super::opening::{self, OpenedDatabase};
use super::writer::Writer;
use super::{Durability, OnCommit, StoreError, database, disk_usage, salvage};

/// The number of concurrent reads.
const READERS: usize = 3;

/// The first and the longest pause between attempts of [`Store::write_until`].
const FIRST_RETRY: Duration = Duration::from_millis(100);
const LONGEST_RETRY: Duration = Duration::from_secs(5);

/// A cheap handle of one open database. [`Store::close`] closes the database, and so does dropping the last handle.
#[derive(Clone)]
pub struct Store {
    inner: Arc<Inner>,
}

struct Inner {
    path: PathBuf,
    health: Arc<DatabaseHealth>,
    /// True if the handle serves a gateway; a clean end then clears a suspicion of damage.
    serves: bool,
    writer: Writer,
    readers: Mutex<Vec<Connection>>,
    reading: Arc<Semaphore>,
}

impl Store {
    /// Opens, creates or migrates the file.
    ///
    /// # Errors
    /// The file is newer than this program, another program's, damaged, or cannot be opened; it is unchanged then.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        Self::with(path, opening::open(path)?, false, Box::new(|_| {}))
    }

    /// Opens the file for a gateway: a damaged file is moved aside and its readable rows are recovered. `on_commit` is called for
    /// each group of writes.
    ///
    /// # Errors
    /// Those of [`Self::open`], or a damaged file cannot be repaired.
    pub fn open_to_serve(path: &Path, on_commit: OnCommit) -> Result<Self, StoreError> {
        salvage::repair_if_damaged(path)?;
        let opened = match opening::open(path) {
            Err(StoreError::Damaged { reason, .. }) => {
                salvage::repair(path, &reason)?;
                opening::open(path)?
            }
            other => other?,
        };
        Self::with(path, opened, true, on_commit)
    }

    fn with(path: &Path, opened: OpenedDatabase, serves: bool, on_commit: OnCommit) -> Result<Self, StoreError> {
        let OpenedDatabase { connection, mark } = opened;
        let health = Arc::new(DatabaseHealth::new(path));
        let writer = Writer::spawn(connection, mark, health.clone(), on_commit)
            .map_err(|error| StoreError::Open { path: path.to_owned(), reason: error.to_string() })?;
        let (readers, reading) = (Mutex::default(), Arc::new(Semaphore::new(READERS)));
        Ok(Self { inner: Arc::new(Inner { path: path.to_owned(), health, serves, writer, readers, reading }) })
    }

    /// Returns the path of the database file.
    pub fn path(&self) -> &Path {
        &self.inner.path
    }

    /// Runs `work` in the next group of writes; returns when the group is committed with the requested `durability`.
    ///
    /// # Errors
    /// The error of `work`, or the failure of the commit. No change of `work` is stored then.
    pub async fn write<T, F>(&self, durability: Durability, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    {
        self.inner.writer.write(durability, work).await
    }

    /// Retries a write, with growing pauses, until the store accepts it. `make` creates the work of each attempt, and `failed` is
    /// called with each temporary failure. Dropping the future ends the retries.
    ///
    /// # Errors
    /// The store is closed, or a failure is permanent ([`StoreError::is_permanent`]).
    pub async fn write_until<T, F>(
        &self,
        durability: Durability,
        mut make: impl FnMut() -> F + Send,
        failed: impl Fn(&StoreError) + Send,
    ) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    {
        let mut backoff = Backoff::new(FIRST_RETRY, LONGEST_RETRY);
        loop {
            match self.write(durability, make()).await {
                Ok(written) => return Ok(written),
                Err(error) if error.is_permanent() || matches!(error, StoreError::Closed) => return Err(error),
                Err(error) => {
                    failed(&error);
                    tokio::time::sleep(backoff.next_wait()).await;
                }
            }
        }
    }

    /// Runs `work` between two groups of writes, outside of any transaction. All other writes wait meanwhile.
    ///
    /// # Errors
    /// The error of `work`.
    pub async fn write_alone<F>(&self, work: F) -> Result<(), StoreError>
    where
        F: FnOnce(&Connection) -> Result<(), StoreError> + Send + 'static,
    {
        self.inner.writer.write_alone(work).await
    }

    /// Returns the disk space of the database.
    ///
    /// # Errors
    /// The database cannot be read.
    pub async fn disk_usage(&self) -> Result<DiskUsage, StoreError> {
        let path = self.inner.path.clone();
        self.read(move |connection| disk_usage::read(connection, &path)).await
    }

    /// Returns the reason why the store rejects all writes, if damage was found.
    pub fn fault(&self) -> Option<String> {
        self.inner.health.check().err().map(|error| error.to_string())
    }

    /// Waits until damage of the database is found, and returns its description. A gateway should end then: the next start
    /// checks and repairs the database.
    pub async fn damaged(&self) -> String {
        self.inner.health.damaged().await
    }

    /// Checks the whole database and records damage. It takes long and occupies a reader.
    ///
    /// # Errors
    /// The database cannot be read, or is damaged.
    pub async fn check(&self) -> Result<(), StoreError> {
        let faults = self.read(database::integrity).await?;
        if !faults.is_empty() {
            self.inner.health.report(&database::summarize(&faults));
        }
        self.inner.health.check()
    }

    /// Runs `work` on a read-only connection, on a blocking thread.
    ///
    /// # Errors
    /// The error of `work`, or no connection could be opened.
    pub async fn read<T, F>(&self, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    {
        let turn = self.inner.reading.clone().acquire_owned().await.map_err(|_| StoreError::Closed)?;
        let inner = self.inner.clone();
        let read = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            inner.read(work)
        });
        read.await.map_err(|error| StoreError::Row(error.to_string()))?
    }

    /// Runs `work` on a read-only connection, on the calling thread. It is meant for reads of a few pages that every message needs:
    /// they take less time than a switch of threads.
    ///
    /// # Errors
    /// The error of `work`, or no connection could be opened.
    pub fn read_here<T>(&self, work: impl FnOnce(&Connection) -> Result<T, StoreError>) -> Result<T, StoreError> {
        self.inner.read(work)
    }

    /// Finishes pending writes and closes the file. Later calls fail with [`StoreError::Closed`].
    pub async fn close(&self) {
        self.inner.reading.close();
        let inner = self.inner.clone();
        let closing = tokio::task::spawn_blocking(move || {
            // The writer closes last, because closing it moves the log into the file.
            inner.readers.lock().clear();
            inner.writer.close();
            if inner.serves && inner.health.check().is_ok() {
                health::remove_suspicion(&inner.path);
            }
        });
        if let Err(error) = closing.await {
            tracing::error!(%error, "the store could not be closed properly");
        }
    }
}

impl Inner {
    fn read<T>(&self, work: impl FnOnce(&Connection) -> Result<T, StoreError>) -> Result<T, StoreError> {
        if self.reading.is_closed() {
            return Err(StoreError::Closed);
        }
        let idle = self.readers.lock().pop();
        let connection = match idle {
            Some(connection) => connection,
            None => database::open_reader(&self.path)?,
        };
        let outcome = in_read_transaction(&connection, work).inspect_err(|error| self.health.observe(error));
        // A connection that could not end its read transaction would return outdated data from now on.
        if connection.is_autocommit() {
            self.readers.lock().push(connection);
        }
        outcome
    }
}

/// Runs `work` in a read transaction, so that all its reads see the same state of the store. This is also faster: otherwise every
/// statement takes and releases the locks itself.
fn in_read_transaction<T>(
    connection: &Connection,
    work: impl FnOnce(&Connection) -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    connection.prepare_cached("BEGIN")?.execute([])?;
    let outcome = work(connection);
    if !connection.is_autocommit() {
        connection.prepare_cached("COMMIT")?.execute([])?;
    }
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::meta;

    #[tokio::test]
    async fn a_read_sees_one_moment() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(&folder.path().join("daoyou.db")).unwrap();
        let set = |value: &'static str| {
            store.write(Durability::Logged, move |connection| meta::set(connection, "word", value))
        };
        let look = |connection: &Connection| meta::get(connection, "word");
        set("before").await.unwrap();
        let (reached, at_it) = std::sync::mpsc::channel();
        let (go_on, told) = std::sync::mpsc::channel::<()>();
        let read = store.read(move |connection| {
            let first = look(connection)?;
            reached.send(()).unwrap();
            told.recv().unwrap();
            Ok([first, look(connection)?])
        });
        let write = async {
            tokio::task::spawn_blocking(move || at_it.recv().unwrap()).await.unwrap();
            set("after").await.unwrap();
            go_on.send(()).unwrap();
        };
        let (seen, ()) = tokio::join!(read, write);
        assert_eq!(seen.unwrap(), ["before", "before"].map(|word| Some(word.to_owned())));
        assert_eq!(store.read_here(look).unwrap().as_deref(), Some("after"));
        // A failed read ends its transaction as well.
        let failed = store.read_here(|connection| look(connection).and(Err::<(), _>(StoreError::Closed)));
        assert!(failed.is_err());
        set("later").await.unwrap();
        assert_eq!(store.read_here(look).unwrap().as_deref(), Some("later"));
    }
}
