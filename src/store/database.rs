//! Opens all connections with the same settings.

use std::fs::{File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};
use rustix::fs::{Access, StatVfs, access, statvfs};
use rustix::io::Errno;

use super::health::{damaged_error, is_damage};
use super::{StoreError, files, migrations};

/// The time that a connection waits for the locks of others.
pub const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// The number of pages in the write-ahead log at which SQLite moves them into the database file. A page that changes often is moved
/// once for many commits.
const CHECKPOINT_PAGES: u32 = 4_000;

/// The maximum memory for pages that the writing connection keeps, in KiB. Unlike the readers, it keeps its pages
/// across commits.
const WRITER_CACHE_KIB: i32 = 8 * 1024;

/// Opens the file, or creates an empty one, without changing it: a damaged, newer or foreign file stays untouched, and so does
/// its write-ahead log.
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
        connection.pragma_update(None, "cache_size", -WRITER_CACHE_KIB)?;
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

/// Returns true if `error` is a failed read or write, and the disk that holds `path` has no room for a small file. SQLite's
/// errors do not always distinguish a full disk from a broken one.
pub fn is_full(path: &Path, error: &rusqlite::Error) -> bool {
    use rusqlite::ErrorCode::{CannotOpen, DiskFull, SystemIoFailure};
    /// More than the files that SQLite creates beside a database when it opens it.
    const ROOM: u64 = 256 * 1024;
    let lacks_room = |stat: StatVfs| stat.f_bavail * stat.f_frsize < ROOM || (stat.f_files > 0 && stat.f_favail == 0);
    match error.sqlite_error_code() {
        Some(DiskFull) => true,
        Some(SystemIoFailure | CannotOpen) => path.parent().and_then(|dir| statvfs(dir).ok()).is_some_and(lacks_room),
        _ => false,
    }
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
    let is_logged = !has_no_log(path).unwrap_or_default();
    if is_logged && files::log_path(path).metadata().is_ok_and(|log| log.len() > 0) {
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
    // 1 MiB for each reader: the window of a session takes a few pages, and an idle daemon should stay small.
    connection.pragma_update(None, "cache_size", -1024)?;
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    Ok(connection)
}

/// Returns true if the file is a database that was last written without a write-ahead log.
/// The header: <https://www.sqlite.org/fileformat2.html#file_format_version_numbers>
///
/// # Errors
/// The file cannot be read.
pub fn has_no_log(path: &Path) -> std::io::Result<bool> {
    Ok(read_header(path)?.is_some_and(|header| header[18..] == [1, 1]))
}

/// Returns the number of the last page if the file ends inside it. SQLite notices only when it reads that page, possibly long
/// after the start.
///
/// # Errors
/// The file cannot be read.
pub fn truncated_page(path: &Path) -> std::io::Result<Option<u32>> {
    // Any other header is a different kind of damage, which opening the file reports.
    let Some(header) = read_header(path)? else { return Ok(None) };
    let size = std::fs::metadata(path)?.len();
    let page = match u64::from(u16::from_be_bytes([header[16], header[17]])) {
        1 => 65_536,
        page => page,
    };
    if !page.is_power_of_two() || page < 512 || size % page == 0 {
        return Ok(None);
    }
    Ok(u32::try_from(size / page + 1).ok())
}

/// Returns the beginning of a database's header; `None` if the file does not exist or has another header.
fn read_header(path: &Path) -> std::io::Result<Option<[u8; 20]>> {
    let Some(file) = files::if_exists(File::open(path))? else { return Ok(None) };
    let mut header = [0; 20];
    let is_read = file.read_exact_at(&mut header, 0).is_ok();
    Ok((is_read && header.starts_with(b"SQLite format 3\0")).then_some(header))
}

/// Reads and checks the whole file. Returns the first fault in SQLite's words, with the number of others; `None` if the
/// file is sound.
///
/// # Errors
/// The file cannot be read.
pub fn find_fault(connection: &Connection) -> Result<Option<String>, StoreError> {
    const FAULTS: u32 = 10;
    let mut statement = connection.prepare(&format!("PRAGMA integrity_check({FAULTS})"))?;
    let rows = statement.query_map([], |row| row.get(0))?.collect::<Result<Vec<String>, _>>()?;
    let of_file = |line: &&str| *line != "ok" && !line.starts_with("***") && !is_index_fault(line);
    let mut faults = rows.iter().flat_map(|row| row.lines()).filter(of_file);
    Ok(faults.next().map(|first| match faults.count() {
        0 => first.to_owned(),
        others => format!("{first}, and {others} more faults"),
    }))
}

/// Returns true if a line of a check reports a damaged search index. The index is rebuilt automatically, so its damage is no
/// reason to distrust the file.
pub fn is_index_fault(line: &str) -> bool {
    line.contains("FTS5 table") || line.starts_with("fts5: ")
}

/// Returns true if the database has no tables.
pub fn is_empty(connection: &Connection) -> Result<bool, StoreError> {
    Ok(connection.query_row("SELECT NOT EXISTS (SELECT 1 FROM sqlite_schema)", [], |row| row.get(0))?)
}

/// Reads the schema and the newest rows, which are needed first. The rest is checked later.
fn read_first_pages(connection: &Connection) -> Result<(), StoreError> {
    if is_empty(connection)? {
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

/// Creates the file with access for its owner only. SQLite would make it readable for others. It gives the log the same
/// permissions.
fn create_private(path: &Path) -> std::io::Result<()> {
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

/// Returns the error for opening the database at `path`.
pub fn to_open_error(path: &Path, error: StoreError) -> StoreError {
    match error {
        StoreError::Sqlite(error) if is_damage(&error) => damaged_error(path, &error.to_string()),
        StoreError::Sqlite(error) if is_full(path, &error) => StoreError::Full { path: path.to_owned() },
        StoreError::Sqlite(error) => StoreError::Open { path: path.to_owned(), reason: error.to_string() },
        other => other,
    }
}
