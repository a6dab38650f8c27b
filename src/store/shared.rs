//! The store as everybody holds it.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use daoyou_channels::backoff::Backoff;
use rusqlite::Connection;
use tokio::sync::Semaphore;

use super::health::{self, Health};
use super::opening::{self, Opened};
use super::space::Space;
use super::writer::Writer;
use super::{Commit, OnCommit, StoreError, database, salvage, space};

/// Reads that run side by side.
const READERS: usize = 3;

/// Between two tries of [`Store::write_until`]: at first, and at most.
const FIRST_RETRY: Duration = Duration::from_millis(100);
const LONGEST_RETRY: Duration = Duration::from_secs(5);

/// A cheap handle on one open database. Closed by [`Store::close`], or when the last handle goes.
#[derive(Clone)]
pub struct Store {
    inner: Arc<Inner>,
}

struct Inner {
    path: PathBuf,
    health: Arc<Health>,
    /// It serves a gateway, and what it meets counts.
    serves: bool,
    writer: Writer,
    readers: Mutex<Vec<Connection>>,
    reading: Arc<Semaphore>,
}

impl Store {
    /// Opens, makes or migrates the file.
    ///
    /// # Errors
    /// A file that is newer than this program, another program's, damaged, or cannot be opened; it is as it was then.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        Self::with(path, opening::open(path)?, false, Box::new(|_| {}))
    }

    /// Opens the file for a gateway: a damaged one is moved aside, and what can be read of it taken over. `on_commit` is
    /// told of every group of writes.
    ///
    /// # Errors
    /// As [`Self::open`], or what is damaged cannot be mended.
    pub fn open_to_serve(path: &Path, on_commit: OnCommit) -> Result<Self, StoreError> {
        salvage::make_sound(path)?;
        let opened = match opening::open(path) {
            Err(StoreError::Damaged { reason, .. }) => {
                salvage::mend(path, &reason)?;
                opening::open(path)?
            }
            other => other?,
        };
        Self::with(path, opened, true, on_commit)
    }

    fn with(path: &Path, opened: Opened, serves: bool, on_commit: OnCommit) -> Result<Self, StoreError> {
        let Opened { connection, mark } = opened;
        let health = Arc::new(Health::new(path));
        let writer = Writer::spawn(connection, mark, health.clone(), on_commit)
            .map_err(|error| StoreError::Open { path: path.to_owned(), reason: error.to_string() })?;
        let (readers, reading) = (Mutex::default(), Arc::new(Semaphore::new(READERS)));
        Ok(Self { inner: Arc::new(Inner { path: path.to_owned(), health, serves, writer, readers, reading }) })
    }

    /// The database file.
    pub fn path(&self) -> &Path {
        &self.inner.path
    }

    /// Runs `work` in the next group of writes; returns when that is committed as `commit` asks.
    ///
    /// # Errors
    /// What `work` returned, or the failure of the commit; nothing of `work` is kept then.
    pub async fn write<T, F>(&self, commit: Commit, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    {
        self.inner.writer.write(commit, work).await
    }

    /// Writes until the store accepts it, after growing pauses; `make` makes the work of each try, `failed` is called with each
    /// failure. Returns `None` once the store is closed.
    pub async fn write_until<T, F>(
        &self,
        commit: Commit,
        mut make: impl FnMut() -> F + Send,
        failed: impl Fn(&StoreError) + Send,
    ) -> Option<T>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    {
        let mut backoff = Backoff::new(FIRST_RETRY, LONGEST_RETRY);
        loop {
            match self.write(commit, make()).await {
                Ok(written) => return Some(written),
                Err(StoreError::Closed) => return None,
                Err(error) => {
                    failed(&error);
                    tokio::time::sleep(backoff.next_wait()).await;
                }
            }
        }
    }

    /// Runs `work` between two groups of writes, outside of any transaction. All writes wait for it.
    ///
    /// # Errors
    /// What `work` returned.
    pub async fn write_alone<F>(&self, work: F) -> Result<(), StoreError>
    where
        F: FnOnce(&Connection) -> Result<(), StoreError> + Send + 'static,
    {
        self.inner.writer.write_alone(work).await
    }

    /// The space that it takes.
    ///
    /// # Errors
    /// It cannot be read.
    pub async fn space(&self) -> Result<Space, StoreError> {
        let path = self.inner.path.clone();
        self.read(move |connection| space::of(connection, &path)).await
    }

    /// Why nothing can be written, if the database was found to be damaged.
    pub fn fault(&self) -> Option<String> {
        self.inner.health.check().err().map(|error| error.to_string())
    }

    /// Waits until the database is found to be damaged; answers how. Whoever serves should end then: the next start
    /// checks and mends it.
    pub async fn damaged(&self) -> String {
        self.inner.health.damaged().await
    }

    /// Reads all of the database; what is wrong with it, if anything, counts as found. Takes long, and needs a reader.
    ///
    /// # Errors
    /// It cannot be read.
    pub async fn check(&self) -> Result<(), StoreError> {
        let faults = self.read(database::integrity).await?;
        if !faults.is_empty() {
            self.inner.health.report(&database::in_short(&faults));
        }
        self.inner.health.check()
    }

    /// Runs `work` on a connection that only reads, on a blocking thread.
    ///
    /// # Errors
    /// What `work` returned, or that no connection could be had.
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

    /// Runs `work` here and now, on a connection that only reads. For reads of a few pages on the way of every message:
    /// they take less time than handing them to another thread does.
    ///
    /// # Errors
    /// What `work` returned, or that no connection could be had.
    pub fn read_here<T>(&self, work: impl FnOnce(&Connection) -> Result<T, StoreError>) -> Result<T, StoreError> {
        self.inner.read(work)
    }

    /// Finishes the writes that were handed over and closes the file; later calls answer [`StoreError::Closed`].
    pub async fn close(&self) {
        self.inner.reading.close();
        let inner = self.inner.clone();
        let closing = tokio::task::spawn_blocking(move || {
            // The writer goes last: it moves the log into the file.
            inner.readers.lock().unwrap_or_else(PoisonError::into_inner).clear();
            inner.writer.close();
            if inner.serves && inner.health.check().is_ok() {
                health::forget_suspicion(&inner.path);
            }
        });
        if let Err(error) = closing.await {
            tracing::error!(%error, "the store could not be closed in order");
        }
    }
}

impl Inner {
    fn read<T>(&self, work: impl FnOnce(&Connection) -> Result<T, StoreError>) -> Result<T, StoreError> {
        if self.reading.is_closed() {
            return Err(StoreError::Closed);
        }
        let idle = self.readers.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let connection = match idle {
            Some(connection) => connection,
            None => database::open_reader(&self.path)?,
        };
        let outcome = in_one_view(&connection, work).inspect_err(|error| self.health.observe(error));
        // One that could not leave its view would show the past from now on.
        if connection.is_autocommit() {
            self.readers.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
        }
        outcome
    }
}

/// Has `work` see the store as it is at one moment, whatever is committed meanwhile. It costs less, too: otherwise every
/// statement takes and leaves the locks by itself.
fn in_one_view<T>(
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
    async fn what_is_read_together_is_of_one_moment() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(&folder.path().join("daoyou.db")).unwrap();
        let set =
            |value: &'static str| store.write(Commit::Logged, move |connection| meta::set(connection, "word", value));
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
        // One that fails leaves the view, too.
        let failed = store.read_here(|connection| look(connection).and(Err::<(), _>(StoreError::Closed)));
        assert!(failed.is_err());
        set("later").await.unwrap();
        assert_eq!(store.read_here(look).unwrap().as_deref(), Some("later"));
    }
}
