//! Read-only inspection of a database file, for `doctor`.

use std::path::Path;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use rusqlite::{Connection, ErrorCode, OpenFlags};

use super::database::{has_no_log, immutable_source, is_full, is_index_fault, is_unwritable, truncated_page};
use super::memory_queries::{self, SearchIndexState};
use super::overview::{StoreOverview, overview};
use super::{StoreError, files, inbox, migrations};

/// The maximum number of lines of SQLite's messages about damage that are stored.
const MAX_MESSAGES: usize = 5;

/// The result of an inspection.
#[derive(Clone, Debug)]
pub struct DatabaseInspection {
    /// The file's format, and the newest format that this program knows.
    pub format: i64,
    pub known: i64,
    pub page_bytes: u64,
    pub pages: u64,
    pub free_pages: u64,
    /// The highest seq that the database has assigned; absent if the file has another format.
    pub seq: Option<i64>,
    pub soundness: DatabaseIntegrity,
    /// SQLite's messages about faults of the search index. The index is derived from other tables and can be rebuilt.
    pub index_faults: Vec<String>,
    /// The state of the search index; absent if the file has another format.
    pub index: Option<SearchIndexState>,
    /// The overview of the store; absent if the file has another format.
    pub overview: Option<StoreOverview>,
}

/// The result of the search for damage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DatabaseIntegrity {
    /// No damage was found. Of `tables` tables, `read` were read completely, and the indexes of `compared` were compared with them.
    Sound { tables: usize, read: usize, compared: usize },
    /// SQLite's messages.
    Damaged(Vec<String>),
}

/// Inspects the file at `path`, which must exist. The check for damage ends after `budget`.
///
/// # Errors
/// The file is not a database, is newer than this program, or is unreadable.
pub fn inspect(path: &Path, budget: Duration) -> Result<DatabaseInspection, StoreError> {
    // The log of an earlier database is moved aside by the next start.
    let has_log = || files::log_path(path).exists() && !has_no_log(path).unwrap_or_default();
    if !has_log() {
        let found = inspect_as(path, InspectionMode::Immutable, budget);
        // If a gateway has begun to write meanwhile, the result may mix old and new pages.
        if !has_log() {
            return found;
        }
    }
    match inspect_as(path, InspectionMode::Shared, budget) {
        // SQLite reads a log only if it may write beside it. Without the log, the number of messages is not known.
        Err(error) if is_unwritable(path) || error.is_full() => {
            Ok(DatabaseInspection { seq: None, ..inspect_as(path, InspectionMode::Immutable, budget)? })
        }
        found => found,
    }
}

/// The way in which a file is opened for reading.
#[derive(Clone, Copy, PartialEq, Eq)]
enum InspectionMode {
    /// The file has no log, so no process writes it. A normal opening would create a log and its index and leave them there.
    Immutable,
    /// The file has the log of a gateway that is running or was killed; the log is read as well.
    Shared,
}

fn open(path: &Path, access: InspectionMode) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    match (access, immutable_source(path)) {
        (InspectionMode::Immutable, Some(source)) => {
            Connection::open_with_flags(source, flags | OpenFlags::SQLITE_OPEN_URI)
        }
        _ => Connection::open_with_flags(path, flags),
    }
}

fn inspect_as(path: &Path, access: InspectionMode, budget: Duration) -> Result<DatabaseInspection, StoreError> {
    let opened = |error: rusqlite::Error| match is_full(path, &error) {
        true => StoreError::Full { path: path.to_owned() },
        false => StoreError::Open { path: path.to_owned(), reason: error.to_string() },
    };
    let connection = open(path, access).map_err(opened)?;
    connection.busy_timeout(Duration::from_secs(1))?;
    let (format, known) = migrations::formats(&connection).map_err(|error| match error {
        StoreError::Sqlite(error) => opened(error),
        other => other,
    })?;
    migrations::check(&connection, path)?;
    let number = |pragma: &str| connection.query_row(&format!("PRAGMA {pragma}"), [], |row| row.get::<_, u64>(0));
    let (page_bytes, pages, free_pages) = (number("page_size")?, number("page_count")?, number("freelist_count")?);
    let mut index_faults = Vec::new();
    let mut soundness = check(&connection, budget, &mut index_faults)?;
    // With a log, the page may be in the log.
    if access == InspectionMode::Immutable
        && let (DatabaseIntegrity::Sound { .. }, Some(page)) = (&soundness, truncated_page(path).unwrap_or_default())
    {
        soundness = DatabaseIntegrity::Damaged(vec![format!("it ends inside page {page}: it was cut short")]);
    }
    let is_ours = format == known && !matches!(soundness, DatabaseIntegrity::Damaged(_));
    let seq = match format {
        0 => Some(0),
        _ if is_ours => Some(inbox::last_seq(&connection)?),
        _ => None,
    };
    let overview = if is_ours { Some(overview(&connection, i64::MAX, 0)?) } else { None };
    let index = if is_ours { Some(memory_queries::search_index_state(&connection)?) } else { None };
    Ok(DatabaseInspection {
        format,
        known,
        page_bytes,
        pages,
        free_pages,
        seq,
        soundness,
        index_faults,
        index,
        overview,
    })
}

/// Reads every table, then compares the indexes table by table, until the time limit.
fn check(
    connection: &Connection,
    budget: Duration,
    index_faults: &mut Vec<String>,
) -> Result<DatabaseIntegrity, StoreError> {
    let tables = match table_names(connection) {
        Ok(tables) => tables,
        Err(error) => return damage_message(error).map(DatabaseIntegrity::Damaged),
    };
    let until = Instant::now() + budget;
    let handle = connection.get_interrupt_handle();
    let (done, ended) = mpsc::channel::<()>();
    let clock = std::thread::spawn(move || {
        if ended.recv_timeout(budget) == Err(mpsc::RecvTimeoutError::Timeout) {
            handle.interrupt();
        }
    });
    let soundness = check_tables(connection, &tables, until, index_faults);
    drop(done);
    // The thread only interrupts the check; a panic in it changes nothing.
    let _ = clock.join();
    soundness
}

fn table_names(connection: &Connection) -> rusqlite::Result<Vec<String>> {
    let mut names = connection.prepare("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY rowid")?;
    names.query_map([], |row| row.get(0))?.collect()
}

fn check_tables(
    connection: &Connection,
    tables: &[String],
    until: Instant,
    index_faults: &mut Vec<String>,
) -> Result<DatabaseIntegrity, StoreError> {
    let mut passed = [0, 0];
    for (pass, pragma) in ["quick_check", "integrity_check"].into_iter().enumerate() {
        for table in tables {
            if Instant::now() >= until {
                break;
            }
            let words = match run_check(connection, pragma, table) {
                Ok(words) => words,
                Err(error) if error.sqlite_error_code() == Some(ErrorCode::OperationInterrupted) => break,
                Err(error) if StoreError::is_index_error(&error) => vec![format!("fts5: {table}: {error}")],
                Err(error) => damage_message(error)?,
            };
            // A damaged full-text index is no reason to distrust the tables that it is derived from.
            let (of_index, words): (Vec<_>, Vec<_>) = words.into_iter().partition(|word| is_index_fault(word));
            index_faults.extend(of_index.into_iter().filter(|fault| !index_faults.contains(fault)).collect::<Vec<_>>());
            if words.iter().any(|word| word != "ok") {
                return Ok(DatabaseIntegrity::Damaged(words));
            }
            passed[pass] += 1;
        }
    }
    Ok(DatabaseIntegrity::Sound { tables: tables.len(), read: passed[0], compared: passed[1] })
}

fn run_check(connection: &Connection, pragma: &str, table: &str) -> rusqlite::Result<Vec<String>> {
    let table = table.replace('\'', "''");
    let mut statement = connection.prepare(&format!("PRAGMA {pragma}('{table}')"))?;
    statement.query_map([], |row| row.get(0))?.take(MAX_MESSAGES).collect()
}

/// Returns the message of an error that means damage.
fn damage_message(error: rusqlite::Error) -> Result<Vec<String>, StoreError> {
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => Ok(vec![error.to_string()]),
        _ => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::store::losses::{self, Loss, LossKind};
    use crate::store::opening;

    const LONG: Duration = Duration::from_secs(60);

    fn made() -> (tempfile::TempDir, std::path::PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a 100% odd?#name.db");
        let connection = opening::open(&path).unwrap().connection;
        connection
            .execute_batch(
                "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 2000)
                 INSERT INTO messages SELECT 's', 0, i, 'user', hex(randomblob(200)), 't', i, NULL FROM n",
            )
            .unwrap();
        connection.close().unwrap();
        (folder, path)
    }

    #[test]
    fn a_sound_file_is_read_completely_and_not_changed() {
        let (_folder, path) = made();
        let before = fs::read(&path).unwrap();
        let inspection = inspect(&path, LONG).unwrap();
        let DatabaseIntegrity::Sound { tables, read, compared } = inspection.soundness else {
            panic!("{inspection:?}")
        };
        assert_eq!((tables > 8, read, compared), (true, tables, tables));
        assert_eq!((inspection.format, inspection.overview), (inspection.known, Some(StoreOverview::default())));
        assert!(fs::read(&path).unwrap() == before);
        assert!(!files::log_path(&path).exists(), "no log is left there");
        let writer = opening::open(&path).unwrap().connection;
        let loss = Loss::new(LossKind::Missing, vec![(1, 3)], "three".to_owned());
        losses::add(&writer, loss.clone()).unwrap();
        assert_eq!(inspect(&path, LONG).unwrap().overview.unwrap().losses, [loss], "in the log");
        assert_eq!(
            inspect(&path, Duration::ZERO).unwrap().soundness,
            DatabaseIntegrity::Sound { tables, read: 0, compared: 0 }
        );
    }

    #[test]
    fn faults_of_a_file_are_reported() {
        let (_folder, path) = made();
        let whole = fs::read(&path).unwrap();
        let mut holed = whole.clone();
        let middle = holed.len() / 2;
        holed[middle..middle + 8_192].fill(0xa5);
        fs::write(&path, holed).unwrap();
        assert!(
            matches!(inspect(&path, LONG).unwrap().soundness, DatabaseIntegrity::Damaged(words) if !words.is_empty())
        );
        fs::write(&path, b"a diary, not a database").unwrap();
        assert!(matches!(inspect(&path, LONG), Err(StoreError::Open { .. })));
        fs::write(&path, &whole[..whole.len() / 2]).unwrap();
        match inspect(&path, LONG) {
            Ok(inspection) => assert!(matches!(inspection.soundness, DatabaseIntegrity::Damaged(_)), "{inspection:?}"),
            Err(error) => assert!(error.to_string().contains("malformed"), "{error}"),
        }
        fs::write(&path, &whole).unwrap();
        let connection = Connection::open(&path).unwrap();
        connection.pragma_update(None, "user_version", 999).unwrap();
        drop(connection);
        assert!(matches!(inspect(&path, LONG), Err(StoreError::Newer { found: 999, .. })));
    }
}
