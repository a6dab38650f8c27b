//! Opening connections, the same way everywhere.

use std::path::Path;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use super::{StoreError, migrations};

/// Pages in the write-ahead log before they are moved into the database file.
const CHECKPOINT_PAGES: u32 = 2_000;

/// The one connection that writes: makes and migrates the file. One that this program does not know stays untouched.
pub fn open_writer(path: &Path) -> Result<Connection, StoreError> {
    prepare(path).map_err(|error| match error {
        StoreError::Sqlite(error) => StoreError::Open { path: path.to_owned(), reason: error.to_string() },
        other => other,
    })
}

fn prepare(path: &Path) -> Result<Connection, StoreError> {
    let mut connection = open(path, OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE)?;
    migrations::check(&connection, path)?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "wal_autocheckpoint", CHECKPOINT_PAGES)?;
    connection.pragma_update(None, "journal_size_limit", 64 * 1024 * 1024)?;
    migrations::run(&mut connection)?;
    Ok(connection)
}

/// A connection that only reads.
pub fn open_reader(path: &Path) -> Result<Connection, StoreError> {
    let connection = open(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    connection.pragma_update(None, "query_only", true)?;
    Ok(connection)
}

fn open(path: &Path, flags: OpenFlags) -> Result<Connection, StoreError> {
    let connection = Connection::open_with_flags(path, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX)
        .map_err(|error| StoreError::Open { path: path.to_owned(), reason: error.to_string() })?;
    connection.busy_timeout(Duration::from_secs(5))?;
    connection.set_prepared_statement_cache_capacity(64);
    // Without it, each new value bound in a query that a partial index might serve has the statement compiled again.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    // 1 MiB a connection: the window of a session is a few pages, and an idle daemon is to stay small.
    connection.pragma_update(None, "cache_size", -1024)?;
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    Ok(connection)
}
