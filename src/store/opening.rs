//! Opens a database: checks it before anything is written, and detects missing messages.

use std::path::Path;

use rusqlite::{Connection, TransactionBehavior};
use uuid::Uuid;

use super::health::{damaged_error, is_damage};
use super::high_water_mark::{self, HighWaterMark, MarkRecord, StoredMark};
use super::losses::{self, Loss, LossKind};
use super::{StoreError, database, files, inbox, meta, wal};

/// The largest database, in bytes, that is checked completely at each start. The check takes about 3 ms per megabyte.
const CHECKED_AT_START: u64 = 8_000_000;

/// An open database.
pub struct OpenedDatabase {
    pub connection: Connection,
    pub mark: Option<HighWaterMark>,
}

/// Opens, creates or migrates the file, and compares it with its high-water mark. Missing messages are recorded as a loss.
///
/// # Errors
/// The file is damaged, newer, another program's, or cannot be opened; the file is unchanged then.
pub fn open(path: &Path) -> Result<OpenedDatabase, StoreError> {
    if path.with_file_name("daoyou.restoring").exists() {
        let reason = "a restore of this home was interrupted; run it again: daoyou restore FILE".to_owned();
        return Err(StoreError::Open { path: path.to_owned(), reason });
    }
    files::make_writable(path);
    set_stale_log_aside(path)?;
    check_files(path)?;
    let checked = database::open_for_check(path)?;
    check_small(path, &checked)?;
    let found = high_water_mark::read(&high_water_mark::path_of(path)).unwrap_or_else(|error| {
        tracing::warn!(%error, "the high-water mark cannot be read");
        StoredMark::Damaged
    });
    let (id, known) = read_identity(&checked)?;
    let (loss, seq) = compare_with_mark(found, id, known);
    let loss = loss.map(|loss| keep_log(path, loss));
    finish_opening(path, checked, id, loss, seq)
}

/// Runs `work` in one transaction, in a database that no other process uses.
///
/// # Errors
/// The file cannot be opened, or the work fails; then nothing is written.
pub fn write_alone<T>(path: &Path, work: impl FnOnce(&Connection) -> Result<T, StoreError>) -> Result<T, StoreError> {
    let mut connection = open(path)?.connection;
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let done = work(&transaction)?;
    transaction.commit()?;
    Ok(done)
}

/// Checks a small database completely, so that damage is found before the database is served. Larger ones are checked later.
fn check_small(path: &Path, connection: &Connection) -> Result<(), StoreError> {
    if std::fs::metadata(path).map_or(0, |metadata| metadata.len()) > CHECKED_AT_START {
        return Ok(());
    }
    match database::find_fault(connection) {
        Ok(fault) => fault.map_or(Ok(()), |fault| Err(damaged_error(path, &fault))),
        Err(StoreError::Sqlite(error)) if is_damage(&error) => Err(damaged_error(path, &error.to_string())),
        Err(other) => Err(other),
    }
}

/// Returns the database's id and the highest seq that it has assigned; an empty file has no id.
fn read_identity(connection: &Connection) -> Result<(Option<Uuid>, i64), StoreError> {
    if database::is_empty(connection)? {
        return Ok((None, 0));
    }
    let id = meta::get(connection, meta::ID)?.and_then(|id| id.parse().ok());
    Ok((id, inbox::last_seq(connection)?))
}

/// Moves the log of an earlier database aside, because SQLite would apply it to the file. A file with a log of its own says in its
/// header that it has one; a copy, such as one that the owner has renamed after a loss of the database, says that it has none.
///
/// # Errors
/// The log cannot be moved.
pub fn set_stale_log_aside(path: &Path) -> Result<(), StoreError> {
    let log = files::log_path(path);
    let moved = || -> std::io::Result<()> {
        if !database::has_no_log(path)? || !log.metadata().is_ok_and(|log| log.len() > 0) {
            return Ok(());
        }
        let aside = files::set_log_aside(path)?;
        tracing::warn!(aside = %aside.display(), "daoyou.db-wal is the log of an earlier database; it is moved aside");
        Ok(())
    };
    moved().map_err(|error| StoreError::Open { path: log.clone(), reason: error.to_string() })
}

/// Finds damage that SQLite silently ignores: SQLite stops reading a log at the first damaged frame, deletes the log of an empty
/// file, and reads a truncated page only when it needs the page.
fn check_files(path: &Path) -> Result<(), StoreError> {
    let log = files::log_path(path);
    let unreadable = |error: std::io::Error| StoreError::Open { path: log.clone(), reason: error.to_string() };
    let frames = wal::read_frames(&log).map_err(unreadable)?;
    if frames.has_ignored_commits() {
        let reason = format!("its log has {} damaged frames before {} whole commits", frames.damaged, frames.behind);
        return Err(damaged_error(path, &reason));
    }
    let size = std::fs::metadata(path).map_or(0, |metadata| metadata.len());
    if size == 0 && !frames.is_empty() {
        return Err(damaged_error(path, "it is empty or gone, and its log is not"));
    }
    let cut = database::truncated_page(path);
    let cut = cut.map_err(|error| StoreError::Open { path: path.to_owned(), reason: error.to_string() })?;
    // A checkpoint on a full disk may have left the file in this state; the log has the page then.
    if let Some(page) = cut.filter(|page| !frames.replaces(*page)) {
        return Err(damaged_error(path, &format!("it ends inside page {page}: it was cut short")));
    }
    Ok(())
}

/// Compares the high-water mark with the database. Returns the loss, if there is one, and the seq from which to continue.
fn compare_with_mark(found: StoredMark, id: Option<Uuid>, known: i64) -> (Option<Loss>, i64) {
    let record = match found {
        StoredMark::Valid(record) => record,
        StoredMark::Missing => return (None, known),
        StoredMark::Damaged => {
            tracing::warn!("the high-water mark is damaged; missing messages cannot be detected");
            return (None, known);
        }
    };
    let seq = known.max(record.seq);
    let missing = if record.seq > known { vec![(known + 1, record.seq)] } else { Vec::new() };
    if known == 0 || id == Some(record.database) {
        let loss = (!missing.is_empty()).then(|| missing_loss(missing, known));
        return (loss, seq);
    }
    let what = format!(
        "the database is another one than the one that accepted messages up to {} here: it was replaced. \
         New messages are numbered from {}",
        record.seq,
        seq + 1
    );
    (Some(Loss::new(LossKind::Exchanged, missing, what)), seq)
}

fn missing_loss(seqs: Vec<(i64, i64)>, known: i64) -> Loss {
    let mut loss = Loss::new(LossKind::Missing, seqs, String::new());
    let why = match known {
        0 => "it is empty: the database or its log was deleted",
        _ => "its log was deleted, cut short or damaged, or an older copy was put in its place",
    };
    let (messages, which) = (loss.messages, losses::format_ranges(&loss.seqs));
    loss.description = format!("{messages} accepted messages are missing from the database (seq {which}): {why}");
    loss
}

/// Keeps a copy of an invalid log, because SQLite is about to overwrite the log.
fn keep_log(path: &Path, mut loss: Loss) -> Loss {
    let log = files::log_path(path);
    if std::fs::metadata(&log).is_ok_and(|metadata| metadata.len() > 0) {
        let kept = files::unused_name(&log, "lost");
        match std::fs::copy(&log, &kept) {
            Ok(_) => {
                let name = files::file_name(&kept);
                loss.description.push_str(&format!(". The log was copied to {name}"));
                loss.saved_files.push(name);
            }
            Err(error) => tracing::warn!(%error, "the damaged log could not be copied"),
        }
    }
    loss
}

fn finish_opening(
    path: &Path,
    checked: Connection,
    id: Option<Uuid>,
    loss: Option<Loss>,
    seq: i64,
) -> Result<OpenedDatabase, StoreError> {
    let mut connection = database::into_writer(path, checked)?;
    let database = id.unwrap_or_else(Uuid::new_v4);
    if id.is_none() || loss.is_some() {
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        meta::set(&transaction, meta::ID, &database.to_string())?;
        inbox::continue_after(&transaction, seq)?;
        if let Some(loss) = loss {
            tracing::error!("{}", loss.description);
            losses::add(&transaction, loss)?;
        }
        transaction.commit()?;
    }
    if id.is_none() {
        // Moves the id and the tables into the file, so that they do not depend on the log.
        connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
    }
    let mark = match HighWaterMark::set(&high_water_mark::path_of(path), MarkRecord { database, seq }) {
        Ok(mark) => Some(mark),
        Err(error) => {
            tracing::warn!(%error, "the high-water mark cannot be written; a lost log may go unnoticed");
            None
        }
    };
    Ok(OpenedDatabase { connection, mark })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_behind_its_high_water_mark_has_lost_messages() {
        let (ours, other) = (Uuid::from_u128(1), Uuid::from_u128(2));
        let mark = |database, seq| StoredMark::Valid(MarkRecord { database, seq });
        // Input: the mark, the database's id and its highest seq. Expected: the loss, and the seq from which to continue.
        let table = [
            (StoredMark::Missing, None, 0, None, 0),
            (StoredMark::Missing, Some(ours), 7, None, 7),
            (StoredMark::Damaged, Some(ours), 7, None, 7),
            (mark(ours, 7), Some(ours), 7, None, 7),
            // A power failure left the mark too low.
            (mark(ours, 5), Some(ours), 7, None, 7),
            (mark(ours, 9), Some(ours), 7, Some((LossKind::Missing, 2)), 9),
            (mark(ours, 0), None, 0, None, 0),
            (mark(ours, 9), None, 0, Some((LossKind::Missing, 9)), 9),
            (mark(ours, 9), Some(other), 0, Some((LossKind::Missing, 9)), 9),
            (mark(ours, 9), Some(other), 7, Some((LossKind::Exchanged, 2)), 9),
            (mark(ours, 5), Some(other), 7, Some((LossKind::Exchanged, 0)), 7),
        ];
        for (found, id, known, expected, seq) in table {
            let (loss, goes_on) = compare_with_mark(found, id, known);
            let loss = loss.map(|loss| (loss.kind, loss.messages));
            assert_eq!((loss, goes_on), (expected, seq), "{found:?} {id:?} {known}");
        }
    }
}
