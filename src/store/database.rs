//! Opens all connections with the same settings.

use std::fs::{File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};
use rustix::fs::{Access, access};
use rustix::io::Errno;

use super::health::{damaged_error, is_damage};
use super::{StoreError, files, migrations};

/// The time that a connection waits for the locks of others.
pub const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// The number of pages in the write-ahead log at which SQLite moves them into the database file.
const CHECKPOINT_PAGES: u32 = 2_000;

/// Opens the file, or creates an empty one, without changing it: a damaged, newer or foreign file stays untouched, and so does its
/// write-ahead log.
///
/// # Errors
/// [`StoreError::Damaged`], [`StoreError::Newer`] or [`StoreError::Foreign`], or the file cannot be opened.
pub fn open_for_check(path: &Path) -> Result<Connection, StoreError> {
    let look = || -> Result<Connection, StoreError> {
        create_private(path).map_err(|error| StoreError::open_error(path, &error, error.to_string()))?;
        let connection = open(path, OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE)?;
        migrations::check(&connection, path)?;
        read_first_pages(&connection)?;
        Ok(connection)
    };
    look().map_err(|error| to_open_error(path, error))
}

/// Makes a checked connection the writing one, and migrates the file to this program's format.
pub fn into_writer(path: &Path, connection: Connection) -> Result<Connection, StoreError> {
    let make = |mut connection: Connection| -> Result<Connection, StoreError> {
        // Takes effect only while the file is empty. Free pages can then be returned to the disk in small steps.
        connection.pragma_update(None, "auto_vacuum", "INCREMENTAL")?;
        connection.pragma_update(None, "journal_mode", "WAL")?;
        connection.pragma_update(None, "synchronous", "FULL")?;
        // Overwrites deleted content, so that a forgotten text is not found in the file.
        connection.pragma_update(None, "secure_delete", true)?;
        connection.pragma_update(None, "wal_autocheckpoint", CHECKPOINT_PAGES)?;
        connection.pragma_update(None, "journal_size_limit", 64 * 1024 * 1024)?;
        migrations::run(&mut connection)?;
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, false)?;
        Ok(connection)
    };
    make(connection).map_err(|error| to_open_error(path, error))
}

/// Returns true if this process cannot write the file, or cannot create files beside it.
pub fn is_unwritable(path: &Path) -> bool {
    let is_closed =
        |path: &Path| matches!(access(path, Access::WRITE_OK), Err(Errno::ROFS | Errno::ACCESS | Errno::PERM));
    is_closed(path) || path.parent().is_some_and(is_closed)
}

/// Opens a file of this program's format that this process cannot write. If its write-ahead log cannot be opened, the connection
/// reads only the file.
pub fn open_unwritable(path: &Path) -> Result<Connection, StoreError> {
    let look = |source: &Path, flags: OpenFlags| -> Result<Connection, StoreError> {
        let connection = open(source, flags | OpenFlags::SQLITE_OPEN_READ_ONLY)?;
        migrations::check(&connection, path)?;
        let (found, known) = migrations::formats(&connection)?;
        if found == known {
            return Ok(connection);
        }
        let reason = format!("its format is {found}, and only a process that can write it brings it to {known}");
        Err(StoreError::Open { path: path.to_owned(), reason })
    };
    if files::log_path(path).metadata().is_ok_and(|log| log.len() > 0) {
        match look(path, OpenFlags::empty()) {
            Ok(connection) => return Ok(connection),
            Err(error) => {
                tracing::warn!(%error, "the write-ahead log cannot be read; the newest changes may be missing");
            }
        }
    }
    let source = immutable_source(path).unwrap_or_else(|| path.to_owned());
    look(&source, OpenFlags::SQLITE_OPEN_URI).map_err(|error| match error {
        StoreError::Open { reason, .. } => StoreError::Open { path: path.to_owned(), reason },
        other => to_open_error(path, other),
    })
}

/// Returns the URI with which SQLite reads a file that nobody writes, without its log; `None` if the path is not UTF-8.
pub fn immutable_source(path: &Path) -> Option<PathBuf> {
    let path = path.to_str()?.replace('%', "%25").replace('?', "%3f").replace('#', "%23");
    Some(PathBuf::from(format!("file:{path}?immutable=1")))
}

/// Opens a connection that only reads.
pub fn open_reader(path: &Path) -> Result<Connection, StoreError> {
    let connection = open(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    connection.pragma_update(None, "query_only", true)?;
    Ok(connection)
}

/// Opens a connection with the common settings.
pub fn open(path: &Path, flags: OpenFlags) -> Result<Connection, StoreError> {
    let connection = Connection::open_with_flags(path, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX)
        .map_err(|error| StoreError::Open { path: path.to_owned(), reason: error.to_string() })?;
    // Closing a connection moves the log into the file. Only the writer may do that; readers must change nothing.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.set_prepared_statement_cache_capacity(64);
    // Without it, SQLite recompiles a statement for each new bound value if a partial index might serve it.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    // 1 MiB for each connection: the window of a session takes a few pages, and an idle daemon should stay small.
    connection.pragma_update(None, "cache_size", -1024)?;
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    Ok(connection)
}

/// Returns the number of the last page if the file ends inside it. SQLite notices only when it reads that page, possibly long
/// after the start.
///
/// # Errors
/// The file cannot be read.
pub fn truncated_page(path: &Path) -> std::io::Result<Option<u32>> {
    const MAGIC: &[u8; 16] = b"SQLite format 3\0";
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let size = file.metadata()?.len();
    let mut header = [0; 18];
    // Any other header is a different kind of damage, which opening the file reports.
    if size < header.len() as u64 || file.read_exact_at(&mut header, 0).is_err() || &header[..16] != MAGIC {
        return Ok(None);
    }
    let page = match u64::from(u16::from_be_bytes([header[16], header[17]])) {
        1 => 65_536,
        page => page,
    };
    if !page.is_power_of_two() || page < 512 || size % page == 0 {
        return Ok(None);
    }
    Ok(u32::try_from(size / page + 1).ok())
}

/// Checks the whole file and returns the first faults in SQLite's words; none if the file is sound. It reads the whole file.
///
/// # Errors
/// The file cannot be read.
pub fn integrity(connection: &Connection) -> Result<Vec<String>, StoreError> {
    const FAULTS: u32 = 10;
    let mut statement = connection.prepare(&format!("PRAGMA integrity_check({FAULTS})"))?;
    let lines = statement.query_map([], |row| row.get::<_, String>(0))?;
    let mut faults = Vec::new();
    for line in lines {
        let line = line?;
        let of_file = |line: &&str| *line != "ok" && !line.starts_with("***") && !is_index_fault(line);
        faults.extend(line.lines().filter(of_file).map(str::to_owned));
    }
    Ok(faults)
}

/// Returns true if a line of a check reports a damaged search index. The index is rebuilt automatically, so its damage is no reason
/// to distrust the file.
pub fn is_index_fault(line: &str) -> bool {
    line.contains("FTS5 table") || line.starts_with("fts5: ")
}

/// Summarizes faults: the first one, and the number of others.
pub fn summarize(faults: &[String]) -> String {
    match faults {
        [] => String::new(),
        [one] => one.clone(),
        [one, rest @ ..] => format!("{one}, and {} more faults", rest.len()),
    }
}

/// Reads the schema and the newest rows, which are needed first. The rest is checked later.
fn read_first_pages(connection: &Connection) -> Result<(), StoreError> {
    let tables: i64 = connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    if tables == 0 {
        return Ok(());
    }
    for table in ["meta", "inbox", "outbox"] {
        let order = if table == "meta" { "key" } else { "seq DESC LIMIT 1" };
        let mut statement = connection.prepare(&format!("SELECT * FROM {table} ORDER BY {order}"))?;
        let mut rows = statement.query([])?;
        while rows.next()?.is_some() {}
    }
    Ok(())
}

/// Creates the file with access for its owner only. SQLite would make it readable for others. It gives the log the same permissions.
fn create_private(path: &Path) -> std::io::Result<()> {
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

fn to_open_error(path: &Path, error: StoreError) -> StoreError {
    match error {
        StoreError::Sqlite(error) if is_damage(&error) => damaged_error(path, &error.to_string()),
        full @ StoreError::Sqlite(_) if full.is_full() => {
            StoreError::Full { path: path.to_owned(), reason: full.to_string() }
        }
        StoreError::Sqlite(error) => StoreError::Open { path: path.to_owned(), reason: error.to_string() },
        other => other,
    }
}
