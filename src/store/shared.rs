//! The store as everybody holds it.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::Connection;
use tokio::sync::Semaphore;

use super::writer::Writer;
use super::{Commit, OnCommit, StoreError, database};

/// Reads that run side by side.
const READERS: usize = 3;

/// A cheap handle on one open database. Closed by [`Store::close`], or when the last handle goes.
#[derive(Clone)]
pub struct Store {
    inner: Arc<Inner>,
}

struct Inner {
    path: PathBuf,
    writer: Writer,
    readers: Mutex<Vec<Connection>>,
    reading: Arc<Semaphore>,
}

impl Store {
    /// Opens, makes or migrates the file.
    ///
    /// # Errors
    /// A file that is newer than this program, is no database, or cannot be opened.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        Self::open_watched(path, Box::new(|_| {}))
    }

    /// As [`Store::open`]; `on_commit` is told of every group of writes.
    ///
    /// # Errors
    /// As [`Store::open`].
    pub fn open_watched(path: &Path, on_commit: OnCommit) -> Result<Self, StoreError> {
        let writer = Writer::spawn(database::open_writer(path)?, on_commit)
            .map_err(|error| StoreError::Open { path: path.to_owned(), reason: error.to_string() })?;
        Ok(Self {
            inner: Arc::new(Inner {
                path: path.to_owned(),
                writer,
                readers: Mutex::default(),
                reading: Arc::new(Semaphore::new(READERS)),
            }),
        })
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
            inner.writer.close();
            inner.readers.lock().unwrap_or_else(PoisonError::into_inner).clear();
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
        let outcome = work(&connection);
        self.readers.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
        outcome
    }
}
