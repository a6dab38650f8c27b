//! The handle of the store.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Once};
use std::time::Duration;

use daoyou_channels::backoff::Backoff;
use parking_lot::Mutex;
use rusqlite::Connection;
use tokio::sync::Semaphore;

use super::disk_usage::DiskUsage;
use super::health::{self, DatabaseHealth};
use super::opening::{self, OpenedDatabase};
use super::writer::Writer;
use super::{DISK_FULL, Durability, OnCommit, StoreError, database, disk_usage, files, salvage};

/// The number of concurrent reads.
const READERS: usize = 3;

/// The first and the longest pause between attempts of [`Store::write_until`].
const FIRST_RETRY: Duration = Duration::from_millis(100);
const LONGEST_RETRY: Duration = Duration::from_secs(5);

/// The fault of a store whose file was deleted or replaced. Everything that is written to the open file is lost when it is closed.
pub const DETACHED: &str = "the database file was deleted or replaced while the gateway runs";

/// The remedy for [`DETACHED`]. A gateway that was killed leaves the log, which an earlier version would take for the copy's.
pub const USE_COPY: &str = "stop the gateway, delete daoyou.db-wal and daoyou.db-shm in its home if they are still there, \
     rename daoyou.db.rescued-TIME to daoyou.db, and start it again";

/// A cheap handle of one open database. [`Store::close`] closes the database, and so does dropping the last handle.
#[derive(Clone)]
pub struct Store {
    inner: Arc<Inner>,
}

struct Inner {
    path: PathBuf,
    /// The open file; `None` if its id is not known.
    file: Option<InodeId>,
    /// The open write-ahead log.
    log: Option<InodeId>,
    /// The copy of an open file that was deleted or replaced.
    rescued: Mutex<Option<PathBuf>>,
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

    /// Opens the file for queries. A file that this process cannot write, or whose disk is full, is only read.
    ///
    /// # Errors
    /// Those of [`Self::open`], or the file cannot be written and has the format of an earlier version.
    pub fn open_to_read(path: &Path) -> Result<Self, StoreError> {
        static WARNED: Once = Once::new();
        if !database::is_unwritable(path) {
            match Self::open(path) {
                // A command may open the file several times.
                Err(error) if error.is_full() => WARNED.call_once(|| tracing::warn!("{DISK_FULL}: nothing is written")),
                opened => return opened,
            }
        }
        let connection = || database::open_unwritable(path);
        let store =
            Self::with(path, OpenedDatabase { connection: connection()?, mark: None }, false, Box::new(|_| {}))?;
        // Further readers would be opened for writing, so all reads share one.
        store.inner.readers.lock().push(connection()?);
        store.inner.reading.forget_permits(READERS - 1);
        Ok(store)
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
        let [file, log] = [path, &files::log_path(path)].map(|path| file_id(path).unwrap_or_default());
        let (path, rescued) = (path.to_owned(), Mutex::default());
        let (readers, reading) = (Mutex::default(), Arc::new(Semaphore::new(READERS)));
        Ok(Self { inner: Arc::new(Inner { path, file, log, rescued, health, serves, writer, readers, reading }) })
    }

    /// Returns the path of the database file.
    pub fn path(&self) -> &Path {
        &self.inner.path
    }

    /// Runs `work` in the next group of writes; returns when the group is committed with the requested `durability`. `work` runs again
    /// after a transaction that was rolled back. The last run counts: what an earlier run left in memory, the next one must replace.
    ///
    /// # Errors
    /// The error of `work`, or the failure of the commit. No change of `work` is stored then.
    pub async fn write<T, F>(&self, durability: Durability, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnMut(&Connection) -> Result<T, StoreError> + Send + 'static,
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
        F: FnMut(&Connection) -> Result<T, StoreError> + Send + 'static,
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

    /// Returns the reason why the store must take no more messages: it is damaged, or its file was deleted or replaced.
    pub fn fault(&self) -> Option<String> {
        let damage = self.inner.health.check().err().map(|error| error.to_string());
        damage.or_else(|| self.inner.is_detached().then(|| DETACHED.to_owned()))
    }

    /// Returns true if [`Self::rescue`] has made a copy.
    pub fn is_rescued(&self) -> bool {
        self.inner.rescued.lock().is_some()
    }

    /// Copies the open database into a file beside its path if its own file was deleted or replaced; returns the path of the copy.
    /// Another call brings the copy up to date.
    ///
    /// # Errors
    /// The copy cannot be written.
    pub async fn rescue(&self) -> Result<Option<PathBuf>, StoreError> {
        if !self.inner.is_detached() {
            return Ok(None);
        }
        let earlier = self.inner.rescued.lock().clone();
        let copy = earlier.unwrap_or_else(|| files::unused_name(&self.inner.path, "rescued"));
        let to = copy.clone();
        self.write_alone(move |connection| write_copy(connection, &to)).await?;
        *self.inner.rescued.lock() = Some(copy.clone());
        Ok(Some(copy))
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
        if let Some(fault) = self.read(database::find_fault).await? {
            self.inner.health.report(&fault);
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

    /// Finishes pending writes and closes the file. If the file was deleted or replaced, a copy of it remains, and its log is moved aside.
    /// Later calls fail with [`StoreError::Closed`].
    pub async fn close(&self) {
        if self.inner.serves {
            match self.rescue().await {
                Ok(Some(copy)) => {
                    self.inner.set_log_aside();
                    tracing::error!(copy = %copy.display(), "{DETACHED}; all of it is in the copy: {USE_COPY}");
                }
                Ok(None) | Err(StoreError::Closed) => {}
                Err(error) => tracing::error!(%error, "{DETACHED}, and it could not be copied"),
            }
        }
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
    /// Returns true if the path no longer leads to the open file.
    fn is_detached(&self) -> bool {
        // A path that cannot be examined at the moment proves nothing.
        self.file.is_some() && file_id(&self.path).is_ok_and(|file| file != self.file)
    }

    /// Moves the log of a file that was deleted or replaced aside, because SQLite would take it for the log of the next database at
    /// the path. A log that this process has not opened belongs to another database and stays.
    fn set_log_aside(&self) {
        // The open connections keep their files, so no other file has the same inode.
        let is_own = self.log.is_some() && file_id(&files::log_path(&self.path)).is_ok_and(|found| found == self.log);
        if is_own
            && self.is_detached()
            && let Err(error) = files::set_log_aside(&self.path)
        {
            tracing::error!(%error, "the log of the deleted database could not be moved aside");
        }
    }

    fn read<T>(&self, work: impl FnOnce(&Connection) -> Result<T, StoreError>) -> Result<T, StoreError> {
        if self.reading.is_closed() {
            return Err(StoreError::Closed);
        }
        let idle = self.readers.lock().pop();
        let connection = match idle {
            Some(connection) => connection,
            // The path leads to another file, or to none.
            None if self.is_detached() => {
                return Err(StoreError::Open { path: self.path.clone(), reason: DETACHED.to_owned() });
            }
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

/// The device and inode of a file.
type InodeId = (u64, u64);

/// Returns the id of a file; `None` if it does not exist.
fn file_id(path: &Path) -> io::Result<Option<InodeId>> {
    Ok(files::if_exists(fs::metadata(path))?.map(|found| (found.dev(), found.ino())))
}

/// Writes a copy of the open database to `copy`, which a failure leaves as it was.
fn write_copy(connection: &Connection, copy: &Path) -> Result<(), StoreError> {
    let draft = files::with_suffix(copy, ".new");
    let failed = |error: io::Error| StoreError::open_error(copy, &error, error.to_string());
    let written = || -> Result<(), StoreError> {
        files::remove(&draft).map_err(failed)?;
        // Created here so that the file is private from the beginning; SQLite accepts an empty file.
        let mut options = OpenOptions::new();
        let file = options.write(true).create_new(true).mode(0o600).open(&draft).map_err(failed)?;
        connection.execute("VACUUM INTO ?", [draft.to_string_lossy()])?;
        file.sync_all().and_then(|()| fs::rename(&draft, copy)).and_then(|()| files::sync_folder(copy)).map_err(failed)
    };
    written().inspect_err(|_| {
        if let Err(error) = files::remove(&draft) {
            tracing::warn!(path = %draft.display(), %error, "a temporary file could not be removed");
        }
    })
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

    #[tokio::test]
    async fn the_log_of_a_deleted_database_is_moved_aside_and_that_of_another_database_stays() {
        for is_foreign in [false, true] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("daoyou.db");
            let store = Store::open_to_serve(&path, Box::new(|_| {})).unwrap();
            let write = |connection: &Connection| meta::set(connection, "word", "kept");
            store.write(Durability::Logged, write).await.unwrap();
            fs::remove_file(&path).unwrap();
            if is_foreign {
                for log in [files::log_path(&path), files::log_index_path(&path)] {
                    fs::remove_file(&log).unwrap();
                    fs::write(&log, "foreign").unwrap();
                }
            }
            let copy = store.rescue().await.unwrap().unwrap();
            store.close().await;
            let logs = [files::log_path(&path), files::log_index_path(&path)].map(|log| log.exists());
            assert_eq!(logs, [is_foreign; 2]);
            let copied = database::open_reader(&copy).unwrap();
            assert_eq!(meta::get(&copied, "word").unwrap().as_deref(), Some("kept"));
        }
    }
}
