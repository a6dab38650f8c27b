//! Repairs a damaged database: moves it aside unchanged, and recovers its readable rows into a new database.
//!
//! The repair works on copies beside the database, which replace it at the end. If the process dies before that, the repair starts
//! over; if it dies during the exchange of files, the next start completes the exchange.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};
use uuid::Uuid;

use super::health::{self, DamageSuspicion};
use super::high_water_mark::{self, MarkRecord};
use super::losses::{self, Loss, LossKind};
use super::salvage_rows::{self, RecoveredRows};
use super::wal::{self, PAGE, WalFrames};
use super::{StoreError, database, files, inbox, meta, migrations, opening};

/// The length of a database file's header; <https://www.sqlite.org/fileformat2.html#the_database_header>.
const HEADER: usize = 100;

/// Repairs the database at `path` if it is damaged, and completes an interrupted exchange.
///
/// # Errors
/// The repair failed, for example for lack of space; the database is unchanged then.
pub fn repair_if_damaged(path: &Path) -> Result<(), StoreError> {
    let failed = |error: io::Error| StoreError::open_error(path, &error, error.to_string());
    if path.with_file_name("daoyou.restoring").exists() {
        // The restored files are not in place yet; opening the database reports that.
        return Ok(());
    }
    finish_exchange(path).map_err(failed)?;
    // A check would apply the log.
    opening::set_stale_log_aside(path)?;
    let reason = match health::suspicion(path) {
        None | Some(DamageSuspicion::Checked) => return Ok(()),
        Some(DamageSuspicion::DamagedAgain) => "it met damage again after a check had found none".to_owned(),
        Some(DamageSuspicion::Damaged) => {
            tracing::warn!(path = %path.display(), "the database was damaged during the last run; checking all of it");
            match database::open_for_check(path).and_then(|connection| database::find_fault(&connection)) {
                Ok(None) => {
                    tracing::warn!("the check found no damage on the disk");
                    return health::record_sound_check(path).map_err(failed);
                }
                Ok(Some(fault)) => fault,
                Err(StoreError::Damaged { reason, .. }) => reason,
                Err(StoreError::Sqlite(error)) if health::is_damage(&error) => error.to_string(),
                Err(other) => return Err(other),
            }
        }
    };
    repair(path, &reason)
}

/// Moves the database aside and replaces it by its readable rows. `reason` describes the damage.
///
/// # Errors
/// The repair failed, and the database is unchanged.
pub fn repair(path: &Path, reason: &str) -> Result<(), StoreError> {
    tracing::error!(path = %path.display(), reason, "the database is damaged; recovering what can be read");
    let failed = |error: io::Error| {
        let words = format!("it is damaged ({reason}), and what can be read could not be taken over: {error}");
        StoreError::open_error(path, &error, words)
    };
    let copy = DatabaseCopy::make(path).map_err(failed)?;
    let (whole, taken) = match copy.check() {
        Ok(()) => (copy.path.clone(), None),
        Err(faults) => {
            tracing::warn!(faults, "the whole database cannot be used; recovering it row by row");
            let taken = salvage_rows::recover_rows(&copy.source()?, &copy.fresh, copy.frames.outdated > 0)?;
            (copy.fresh.clone(), Some(taken))
        }
    };
    let kept = files::unused_name(path, "corrupt");
    let loss = record(path, &whole, &copy.frames, taken.as_ref(), reason, &files::file_name(&kept))?;
    File::open(&whole).and_then(|file| file.sync_all()).map_err(failed)?;
    fs::rename(&whole, repaired_path(path)).and_then(|()| files::sync_folder(path)).map_err(failed)?;
    exchange(path, &kept).map_err(failed)?;
    health::remove_suspicion(path);
    tracing::error!("{}", loss.description);
    Ok(())
}

/// A copy of the database with its log applied, to read from.
struct DatabaseCopy {
    path: PathBuf,
    /// An empty database that receives the recovered rows.
    fresh: PathBuf,
    frames: WalFrames,
}

impl DatabaseCopy {
    fn make(path: &Path) -> io::Result<Self> {
        let copy = Self {
            path: files::with_suffix(path, ".mending"),
            fresh: files::with_suffix(path, ".fresh"),
            frames: wal::read_frames(&files::log_path(path))?,
        };
        copy.remove();
        let mut options = File::options();
        let mut file = options.read(true).write(true).create_new(true).mode(0o600).open(&copy.path)?;
        if let Some(mut original) = files::if_exists(File::open(path))? {
            io::copy(&mut original, &mut file)?;
        }
        copy.frames.apply(&files::log_path(path), &file)?;
        // SQLite reads whole pages: missing bytes of the last page become zeros.
        file.set_len(file.metadata()?.len().next_multiple_of(PAGE as u64))?;
        // The log is applied, so the copy needs no log mode and none of its files.
        if file.metadata()?.len() >= HEADER as u64 {
            file.write_all_at(&[1, 1], 18)?;
        }
        options.open(&copy.fresh)?;
        drop(salvage_rows::create_fresh(&copy.fresh).map_err(io::Error::other)?);
        Ok(copy)
    }

    /// Checks the whole copy.
    fn check(&self) -> Result<(), String> {
        let check = || -> Result<Option<String>, StoreError> {
            let connection = database::open(&self.path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
            migrations::check(&connection, &self.path)?;
            if database::is_empty(&connection)? {
                return Ok(Some("it is empty".to_owned()));
            }
            database::find_fault(&connection)
        };
        check().map_err(|error| error.to_string())?.map_or(Ok(()), Err)
    }

    /// Opens the copy for reading by all possible means: if necessary with the header of a fresh database, and then with its whole
    /// first page.
    fn source(&self) -> Result<Connection, StoreError> {
        let open = || -> Result<Connection, StoreError> {
            let connection = database::open(&self.path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
            // Allows reading although the schema or the file's size is wrong.
            connection.set_db_config(DbConfig::SQLITE_DBCONFIG_WRITABLE_SCHEMA, true)?;
            connection.pragma_update(None, "query_only", true)?;
            connection.pragma_update(None, "cell_size_check", true)?;
            let found = "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = 'inbox'";
            match connection.query_row(found, [], |row| row.get(0))? {
                0_i64 => Err(StoreError::Row("it has no table of messages".to_owned())),
                _ => Ok(connection),
            }
        };
        let mut tried = open();
        for patched in [HEADER, PAGE] {
            if tried.is_ok() {
                break;
            }
            let patch = self.patch(patched);
            patch.map_err(|error| StoreError::Open { path: self.path.clone(), reason: error.to_string() })?;
            tried = open();
        }
        match tried {
            Ok(connection) => Ok(connection),
            // Nothing can be read, so nothing is recovered.
            Err(error) => {
                tracing::warn!(%error, "the tables of the damaged database cannot be found");
                Ok(Connection::open_in_memory()?)
            }
        }
    }

    /// Overwrites the first bytes of the copy with those of a fresh database.
    fn patch(&self, length: usize) -> io::Result<()> {
        let file = File::options().write(true).open(&self.path)?;
        let mut pages = file.metadata()?.len().div_ceil(PAGE as u64);
        let fresh = File::open(&self.fresh)?;
        let mut first = vec![0; length];
        fresh.read_exact_at(&mut first, 0)?;
        // The further pages of the list of tables go to the end of the file, because at their positions in the fresh database this
        // file may have rows.
        let mut page = vec![0; PAGE];
        for (pointer, number) in if length < PAGE { Vec::new() } else { child_pages(&first) } {
            fresh.read_exact_at(&mut page, (number - 1) * PAGE as u64)?;
            file.write_all_at(&page, pages * PAGE as u64)?;
            pages += 1;
            first[pointer..pointer + 4].copy_from_slice(&u32::try_from(pages).unwrap_or(u32::MAX).to_be_bytes());
        }
        // Offset 28 is the size in pages. Offset 32 is the list of free pages, which is left empty because some of them may contain
        // rows.
        first[28..32].copy_from_slice(&u32::try_from(pages).unwrap_or(u32::MAX).to_be_bytes());
        first[32..40].fill(0);
        file.write_all_at(&first, 0)?;
        file.set_len(pages * PAGE as u64)
    }

    fn remove(&self) {
        for path in [&self.path, &self.fresh] {
            for name in [path.clone(), files::with_suffix(path, "-journal")] {
                if let Err(error) = files::remove(&name) {
                    tracing::warn!(path = %name.display(), %error, "a temporary copy could not be removed");
                }
            }
        }
    }
}

/// Removes the files, which matters most on a full disk.
impl Drop for DatabaseCopy {
    fn drop(&mut self) {
        self.remove();
    }
}

/// Returns the child pages of the list of tables, if the list does not fit on the first page: the position of each reference, and
/// the page number. <https://www.sqlite.org/fileformat2.html#b_tree_pages>
fn child_pages(first: &[u8]) -> Vec<(usize, u64)> {
    const INNER: u8 = 5;
    let word = |at: usize| first.get(at..)?.first_chunk().map(|word| u64::from(u32::from_be_bytes(*word)));
    let short = |at: usize| first.get(at..)?.first_chunk().map(|pair| usize::from(u16::from_be_bytes(*pair)));
    if first.get(HEADER) != Some(&INNER) {
        return Vec::new();
    }
    let cells = (0..short(HEADER + 3).unwrap_or(0)).filter_map(|cell| short(HEADER + 12 + 2 * cell));
    cells.chain([HEADER + 8]).filter_map(|at| Some((at, word(at)?))).filter(|(_, number)| *number > 1).collect()
}

/// Records the missing messages in the new database, and the seq from which it continues.
fn record(
    path: &Path,
    whole: &Path,
    frames: &WalFrames,
    taken: Option<&RecoveredRows>,
    reason: &str,
    kept: &str,
) -> Result<Loss, StoreError> {
    let mut connection = database::open(whole, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    migrations::run(&mut connection)?;
    let transaction = connection.transaction()?;
    let id: Option<Uuid> = meta::get(&transaction, meta::ID)?.and_then(|id| id.parse().ok());
    // Another database's mark is ignored, unless this database's id is lost.
    let mark = high_water_mark::valid(path).filter(|mark| id.is_none_or(|id| id == mark.database));
    if let (None, Some(MarkRecord { database, .. })) = (id, mark) {
        meta::set(&transaction, meta::ID, &database.to_string())?;
    }
    let last = inbox::last_seq(&transaction)?.max(mark.map_or(0, |mark| mark.seq));
    inbox::continue_after(&transaction, last)?;
    let known = losses::all(&transaction)?.into_iter().flat_map(|loss| loss.seqs).collect::<Vec<_>>();
    let missing = salvage_rows::missing_seqs(&transaction, last, &known)?;
    let mut loss = Loss::new(LossKind::Salvaged, missing, String::new());
    loss.is_complete = loss.messages == 0 && frames.outdated == 0 && taken.is_none_or(RecoveredRows::is_whole);
    loss.description = describe(&loss, frames, taken, reason, kept);
    loss.saved_files.push(kept.to_owned());
    losses::add(&transaction, loss.clone())?;
    transaction.commit()?;
    Ok(loss)
}

fn describe(loss: &Loss, frames: &WalFrames, taken: Option<&RecoveredRows>, reason: &str, kept: &str) -> String {
    let mut words = format!("the database was damaged ({reason}) and is kept as {kept}. ");
    match taken {
        None => words.push_str("All of it could be read with its log, and was taken over"),
        Some(taken) => words.push_str(&taken.describe()),
    }
    words.push_str(&match loss.messages {
        0 => "; no accepted message is missing".to_owned(),
        count => format!("; {count} accepted messages are missing (seq {})", losses::format_ranges(&loss.seqs)),
    });
    if taken.is_none() && frames.outdated > 0 {
        words.push_str(&format!("; {} pages are older than they should be", frames.outdated));
    }
    if loss.messages > 0 {
        words.push_str(". If you have a newer backup: daoyou restore FILE");
    }
    words
}

fn repaired_path(path: &Path) -> PathBuf {
    files::with_suffix(path, ".mended")
}

/// Moves the database and its files to `kept`, and moves the repaired database into its place.
fn exchange(path: &Path, kept: &Path) -> io::Result<()> {
    // The database moves first: a database without its log would look like a valid one with fewer messages.
    files::rename(path, kept)?;
    for (of, kept) in
        [(files::log_path(path), files::log_path(kept)), (files::log_index_path(path), files::log_index_path(kept))]
    {
        files::rename(&of, &kept)?;
    }
    fs::rename(repaired_path(path), path)?;
    files::sync_folder(path)
}

/// Completes an interrupted exchange, or discards one that had not begun.
fn finish_exchange(path: &Path) -> io::Result<()> {
    let mended = repaired_path(path);
    if !mended.exists() {
        return Ok(());
    }
    if path.exists() {
        return files::remove(&mended);
    }
    tracing::warn!(path = %path.display(), "completing a database repair that the last run did not finish");
    exchange(path, &files::unused_name(path, "corrupt"))
}
