//! Mends a damaged database: it is moved aside as it was, and what can be read of it is taken over into a new one.
//!
//! Everything happens in copies beside it, which are put in place at the end. A process that dies before that begins
//! anew; one that dies while the files are exchanged goes on with that at the next start.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};
use uuid::Uuid;

use super::health::{self, Suspicion};
use super::losses::{self, Loss, LossKind};
use super::mark::{self, Found, Record};
use super::rows::{self, Taken};
use super::wal::{self, Frames};
use super::{StoreError, aside, database, inbox, meta, migrations};

/// The header of a database file; <https://www.sqlite.org/fileformat2.html#the_database_header>.
const HEADER: usize = 100;

/// The pages that this program's databases have.
const PAGE: usize = 4_096;

/// Sees to it that the database at `path` can be opened, if it is there and damaged, or was left half exchanged.
///
/// # Errors
/// It cannot be mended, for want of space for example; it is as it was then.
pub fn make_sound(path: &Path) -> Result<(), StoreError> {
    let failed = |error: io::Error| StoreError::unopened(path, &error, error.to_string());
    if path.with_file_name("daoyou.restoring").exists() {
        // What stands here is not yet what it will be; opening it says so.
        return Ok(());
    }
    finish_exchange(path).map_err(failed)?;
    let reason = match health::suspicion(path) {
        Suspicion::None | Suspicion::Checked => return Ok(()),
        Suspicion::DamagedAgain => "it met damage again after a check had found none".to_owned(),
        Suspicion::Damaged => {
            tracing::warn!(path = %path.display(), "the database met damage; checking all of it");
            let faults = database::open_to_look(path).and_then(|connection| database::integrity(&connection));
            match faults {
                Ok(faults) if faults.is_empty() => {
                    tracing::warn!("the database holds together; the damage was not in what is on the disk");
                    return health::clear_of_suspicion(path).map_err(failed);
                }
                Ok(faults) => database::in_short(&faults),
                Err(StoreError::Damaged { reason, .. }) => reason,
                Err(StoreError::Sqlite(error)) if health::is_damage(&error) => error.to_string(),
                Err(other) => return Err(other),
            }
        }
    };
    mend(path, &reason)
}

/// Moves the database aside and puts in its place what can be read of it; `reason` is what is wrong with it.
///
/// # Errors
/// It cannot be done, and the database is as it was.
pub fn mend(path: &Path, reason: &str) -> Result<(), StoreError> {
    tracing::error!(path = %path.display(), reason, "the database is damaged; taking over what can be read");
    let failed = |error: io::Error| {
        let words = format!("it is damaged ({reason}), and what can be read could not be taken over: {error}");
        StoreError::unopened(path, &error, words)
    };
    let copy = Copy::make(path).map_err(failed)?;
    let (whole, taken) = match copy.check() {
        Ok(()) => (copy.path.clone(), None),
        Err(faults) => {
            tracing::warn!(faults, "reading it row by row");
            let taken = rows::take_over(&copy.source()?, &copy.fresh, copy.frames.outdated > 0)?;
            (copy.fresh.clone(), Some(taken))
        }
    };
    let kept = aside::name_for(path, "corrupt");
    let loss = record(path, &whole, &copy.frames, taken.as_ref(), reason, &aside::file_name(&kept))?;
    File::open(&whole).and_then(|file| file.sync_all()).map_err(failed)?;
    fs::rename(&whole, mended(path)).and_then(|()| aside::sync_folder(path)).map_err(failed)?;
    exchange(path, &kept).map_err(failed)?;
    health::forget_suspicion(path);
    tracing::error!("{}", loss.what);
    Ok(())
}

/// A copy of the database with its log laid over, to read from.
struct Copy {
    path: PathBuf,
    /// An empty database of this program's, to take rows over into.
    fresh: PathBuf,
    frames: Frames,
}

impl Copy {
    fn make(path: &Path) -> io::Result<Self> {
        let copy = Self {
            path: aside::with_suffix(path, ".mending"),
            fresh: aside::with_suffix(path, ".fresh"),
            frames: wal::survey(&aside::log_of(path))?,
        };
        copy.remove();
        let mut options = File::options();
        let mut file = options.read(true).write(true).create_new(true).mode(0o600).open(&copy.path)?;
        match File::open(path) {
            Ok(mut original) => drop(io::copy(&mut original, &mut file)?),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        copy.frames.apply(&aside::log_of(path), &file)?;
        // SQLite reads whole pages: what is missing of the last one becomes zeros.
        file.set_len(file.metadata()?.len().next_multiple_of(PAGE as u64))?;
        // The log is in it now: it needs none of its own, nor the files that come with one.
        if file.metadata()?.len() >= HEADER as u64 {
            file.write_all_at(&[1, 1], 18)?;
        }
        options.open(&copy.fresh)?;
        drop(rows::make_fresh(&copy.fresh).map_err(io::Error::other)?);
        Ok(copy)
    }

    /// Whether the copy is a database as good as any.
    fn check(&self) -> Result<(), String> {
        let check = || -> Result<Vec<String>, StoreError> {
            let connection = database::open(&self.path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
            migrations::check(&connection, &self.path)?;
            let tables: i64 = connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
            if tables == 0 {
                return Ok(vec!["it is empty".to_owned()]);
            }
            database::integrity(&connection)
        };
        match check() {
            Ok(faults) if faults.is_empty() => Ok(()),
            Ok(faults) => Err(database::in_short(&faults)),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Opens the copy for reading, whatever it takes: with the header, and then the whole list of tables, that this
    /// program's databases begin with, where its own cannot be read.
    fn source(&self) -> Result<Connection, StoreError> {
        let open = || -> Result<Connection, StoreError> {
            let connection = database::open(&self.path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
            // Reads on where the schema or the size of the file is not what it should be.
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
            // Nothing of it can be read; what is taken over is nothing.
            Err(error) => {
                tracing::warn!(%error, "not even its tables can be found");
                Ok(Connection::open_in_memory()?)
            }
        }
    }

    /// Puts the first bytes of a fresh database over the copy's.
    fn patch(&self, length: usize) -> io::Result<()> {
        let file = File::options().write(true).open(&self.path)?;
        let pages = file.metadata()?.len().div_ceil(PAGE as u64);
        let mut first = vec![0; length];
        File::open(&self.fresh)?.read_exact_at(&mut first, 0)?;
        // The size in pages, at 28. No list of free pages, at 32: some of them are only not used again.
        first[28..32].copy_from_slice(&u32::try_from(pages).unwrap_or(u32::MAX).to_be_bytes());
        first[32..40].fill(0);
        file.write_all_at(&first, 0)?;
        file.set_len(pages * PAGE as u64)?;
        if length < PAGE {
            return Ok(());
        }
        let mut page = vec![0; PAGE];
        for number in children(&first).into_iter().filter(|number| (2..=pages).contains(number)) {
            File::open(&self.fresh)?.read_exact_at(&mut page, (number - 1) * PAGE as u64)?;
            file.write_all_at(&page, (number - 1) * PAGE as u64)?;
        }
        Ok(())
    }

    fn remove(&self) {
        for path in [&self.path, &self.fresh] {
            for name in [path.clone(), aside::with_suffix(path, "-journal")] {
                if let Err(error) = aside::remove(&name) {
                    tracing::warn!(path = %name.display(), %error, "a copy that is no longer needed stays");
                }
            }
        }
    }
}

/// Nothing is left of it, above all not on a disk that had no room for it.
impl Drop for Copy {
    fn drop(&mut self) {
        self.remove();
    }
}

/// The pages that the list of tables stands on, where the first page has no room for it.
/// <https://www.sqlite.org/fileformat2.html#b_tree_pages>
fn children(first: &[u8]) -> Vec<u64> {
    const INNER: u8 = 5;
    let word =
        |at: usize| first.get(at..at + 4).map(|word| word.iter().fold(0, |word, byte| word << 8 | u64::from(*byte)));
    let short = |at: usize| first.get(at..at + 2).map(|pair| usize::from(pair[0]) << 8 | usize::from(pair[1]));
    if first.get(HEADER) != Some(&INNER) {
        return Vec::new();
    }
    let cells = (0..short(HEADER + 3).unwrap_or(0)).filter_map(|cell| word(short(HEADER + 12 + 2 * cell)?));
    cells.chain(word(HEADER + 8)).collect()
}

/// Writes into the new database what is missing in it, and from which seq it goes on.
fn record(
    path: &Path,
    whole: &Path,
    frames: &Frames,
    taken: Option<&Taken>,
    reason: &str,
    kept: &str,
) -> Result<Loss, StoreError> {
    let mut connection = database::open(whole, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    migrations::run(&mut connection)?;
    let transaction = connection.transaction()?;
    let id: Option<Uuid> = meta::get(&transaction, meta::ID)?.and_then(|id| id.parse().ok());
    let mark = match mark::read(&mark::path_of(path)) {
        // One of another database's says nothing of this one, unless this one no longer knows which it is.
        Ok(Found::Mark(record)) if id.is_none_or(|id| id == record.database) => Some(record),
        _ => None,
    };
    if let (None, Some(Record { database, .. })) = (id, mark) {
        meta::set(&transaction, meta::ID, &database.to_string())?;
    }
    let last = inbox::last_seq(&transaction)?.max(mark.map_or(0, |mark| mark.seq));
    inbox::go_on_from(&transaction, last)?;
    let known = losses::all(&transaction)?.into_iter().flat_map(|loss| loss.seqs).collect::<Vec<_>>();
    let missing = rows::missing(&transaction, last, &known)?;
    let mut loss = Loss::new(LossKind::Salvaged, missing, String::new());
    loss.whole = loss.messages == 0 && frames.outdated == 0 && taken.is_none_or(Taken::is_whole);
    loss.what = in_words(&loss, frames, taken, reason, kept);
    loss.aside.push(kept.to_owned());
    losses::add(&transaction, loss.clone())?;
    transaction.commit()?;
    Ok(loss)
}

fn in_words(loss: &Loss, frames: &Frames, taken: Option<&Taken>, reason: &str, kept: &str) -> String {
    let mut words = format!("the database was damaged ({reason}) and is kept as {kept}. ");
    match taken {
        None => words.push_str("All of it could be read with its log, and was taken over"),
        Some(taken) => words.push_str(&taken.in_words()),
    }
    words.push_str(&match loss.messages {
        0 => "; no accepted message is missing".to_owned(),
        count => format!("; {count} accepted messages are missing (seq {})", losses::in_words(&loss.seqs)),
    });
    if taken.is_none() && frames.outdated > 0 {
        words.push_str(&format!("; {} pages are older than they should be", frames.outdated));
    }
    if loss.messages > 0 {
        words.push_str(". If you have a newer backup: daoyou restore FILE");
    }
    words
}

fn mended(path: &Path) -> PathBuf {
    aside::with_suffix(path, ".mended")
}

/// Moves the database and its files to `kept`, and the mended one into its place.
fn exchange(path: &Path, kept: &Path) -> io::Result<()> {
    // The database first: a database without its log would look like a sound one that knows less.
    aside::rename(path, kept)?;
    for (of, kept) in [(aside::log_of(path), aside::log_of(kept)), (aside::index_of(path), aside::index_of(kept))] {
        aside::rename(&of, &kept)?;
    }
    fs::rename(mended(path), path)?;
    aside::sync_folder(path)
}

/// Goes on with an exchange that was cut off, or forgets one that had not begun.
fn finish_exchange(path: &Path) -> io::Result<()> {
    let mended = mended(path);
    if !mended.exists() {
        return Ok(());
    }
    if path.exists() {
        return aside::remove(&mended);
    }
    tracing::warn!(path = %path.display(), "a database that was being mended when the last run ended is put in place");
    exchange(path, &aside::name_for(path, "corrupt"))
}
