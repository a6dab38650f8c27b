//! Copies of the database: made during writes, verified as a whole, and prepared for use in a home.

use std::path::Path;

use rusqlite::{Connection, OpenFlags};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::health::damaged_error;
use super::high_water_mark::{self, HighWaterMark, MarkRecord};
use super::losses::{self, Loss, LossKind};
use super::{StoreError, database, inbox, meta, migrations, opening};

/// The identity and extent of a database.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DatabaseFacts {
    /// The id of the database; absent if it was never opened by a gateway.
    pub id: Option<Uuid>,
    /// The highest seq accepted.
    pub seq: i64,
    /// The number of the last migration.
    pub format: i64,
}

/// Opens and closes the database, so that its faults are found before it is copied. No other process may have it open.
///
/// # Errors
/// The database is damaged, newer than this program, another program's, or cannot be opened.
pub fn check_source(path: &Path) -> Result<(), StoreError> {
    opening::open(path).map(drop)
}

/// Returns the highest seq that was accepted by the database at `path`, whether or not the file still exists; 0 if it is not known.
pub fn accepted(path: &Path) -> i64 {
    high_water_mark::valid(path).map_or(0, |mark| mark.seq)
}

/// Writes a consistent copy of the database at `from` to the new file `to`. Writers do not wait meanwhile.
///
/// # Errors
/// `from` cannot be read, or `to` cannot be written.
pub fn copy(from: &Path, to: &Path) -> Result<DatabaseFacts, StoreError> {
    let connection = open_source(from)?;
    connection.execute("VACUUM INTO ?", [to.to_string_lossy()]).map_err(|error| {
        match database::is_full(to, &error) {
            true => StoreError::CopyFull,
            false => database::to_open_error(from, error.into()),
        }
    })?;
    read_facts(to).map_err(|error| if error.is_full() { StoreError::CopyFull } else { error })
}

/// Opens a database that is copied. One that this process cannot write, or whose disk is full, is only read.
fn open_source(from: &Path) -> Result<Connection, StoreError> {
    if !database::is_unwritable(from) {
        let opened = database::open(from, OpenFlags::SQLITE_OPEN_READ_WRITE).and_then(|connection| {
            migrations::check(&connection, from)?;
            Ok(connection)
        });
        match opened.map_err(|error| database::to_open_error(from, error)) {
            Err(error) if error.is_full() => {}
            opened => return opened,
        }
    }
    database::open_unwritable(from)
}

/// Verifies a copy completely.
///
/// # Errors
/// The copy is damaged, newer than this program, or another program's.
pub fn verify(path: &Path) -> Result<DatabaseFacts, StoreError> {
    let fault = database::open(path, OpenFlags::SQLITE_OPEN_READ_WRITE).and_then(|connection| {
        migrations::check(&connection, path)?;
        database::find_fault(&connection)
    });
    match fault.map_err(|error| database::to_open_error(path, error))? {
        Some(fault) => Err(damaged_error(path, &fault)),
        None => read_facts(path),
    }
}

/// Prepares a copy for use at `home`, the path of the home's own database: the copy's numbers continue after those accepted there.
/// Records and returns the messages that the copy lacks.
///
/// # Errors
/// The copy cannot be written.
pub fn prepare(copy: &Path, home: &Path) -> Result<Option<Loss>, StoreError> {
    let mut connection = database::open(copy, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    migrations::run(&mut connection)?;
    let transaction = connection.transaction()?;
    let id: Option<Uuid> = meta::get(&transaction, meta::ID)?.and_then(|id| id.parse().ok());
    let known = inbox::last_seq(&transaction)?;
    let mark = high_water_mark::valid(home).filter(|mark| Some(mark.database) == id);
    let accepted = mark.map_or(known, |mark| mark.seq);
    // The copy was made while a gateway was running; no gateway crashed with it.
    meta::set(&transaction, meta::CLEAN, "yes")?;
    meta::set(&transaction, meta::ISOLATED_TURN, "")?;
    let loss = (accepted > known).then(|| loss_after_backup(known, accepted));
    if let Some(loss) = &loss {
        inbox::continue_after(&transaction, accepted)?;
        losses::add(&transaction, loss.clone())?;
    }
    transaction.commit()?;
    Ok(loss)
}

/// Sets the high-water mark of the database at `path`, which was exchanged on purpose, to the state of that database.
///
/// # Errors
/// The database cannot be read, or the mark cannot be written.
pub fn reset_mark(path: &Path) -> Result<(), StoreError> {
    let DatabaseFacts { id, seq, .. } = read_facts(path)?;
    let failed =
        |error: std::io::Error| StoreError::Open { path: high_water_mark::path_of(path), reason: error.to_string() };
    match id {
        Some(database) => {
            HighWaterMark::set(&high_water_mark::path_of(path), MarkRecord { database, seq }).map(drop).map_err(failed)
        }
        None => super::files::remove(&high_water_mark::path_of(path)).map_err(failed),
    }
}

/// Returns the loss of messages accepted after the copy was made. The restore command shows the loss, so it counts as reported and
/// acknowledged.
fn loss_after_backup(known: i64, accepted: i64) -> Loss {
    let mut loss = Loss::new(LossKind::Restored, vec![(known + 1, accepted)], String::new());
    loss.description = format!(
        "{} messages accepted after the backup are not in it (seq {})",
        loss.messages,
        losses::format_ranges(&loss.seqs)
    );
    (loss.is_reported, loss.acknowledged) = (true, true);
    loss
}

fn read_facts(path: &Path) -> Result<DatabaseFacts, StoreError> {
    let read = || -> Result<DatabaseFacts, StoreError> {
        let connection = database::open(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        let id = meta::get(&connection, meta::ID)?.and_then(|id| id.parse().ok());
        let format = connection.query_row("PRAGMA user_version", [], |row| row.get(0))?;
        Ok(DatabaseFacts { id, seq: inbox::last_seq(&connection)?, format })
    };
    read().map_err(|error| database::to_open_error(path, error))
}
