//! Copies of the database: made while others write, checked as a whole, and taken up again later.

use std::path::Path;

use rusqlite::OpenFlags;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::health::{damaged, is_damage};
use super::losses::{self, Loss, LossKind};
use super::mark::{self, Found, Mark, Record};
use super::{StoreError, database, inbox, meta, migrations, opening};

/// What a copy of a database is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Facts {
    /// The id of the database; absent of one that never ran.
    pub id: Option<Uuid>,
    /// The highest seq accepted.
    pub seq: i64,
    /// The number of the last migration.
    pub format: i64,
}

/// Opens the database and closes it, so that what is wrong with it is known before it is copied. Nobody else may have it
/// open.
///
/// # Errors
/// It is damaged, newer, another program's, or cannot be opened.
pub fn inspect(path: &Path) -> Result<(), StoreError> {
    opening::open(path).map(drop)
}

/// Writes the database at `from` as it is at this moment to the new file `to`. Others may write meanwhile, and do not
/// wait.
///
/// # Errors
/// `from` cannot be read, or `to` not be written.
pub fn copy(from: &Path, to: &Path) -> Result<Facts, StoreError> {
    let copied = || -> Result<(), StoreError> {
        let connection = database::open(from, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        migrations::check(&connection, from)?;
        connection.execute("VACUUM INTO ?", [to.to_string_lossy()])?;
        Ok(())
    };
    copied().map_err(|error| in_words(from, error))?;
    facts(to)
}

/// Reads all of a copy.
///
/// # Errors
/// It is damaged, newer than this program, or no database of ours.
pub fn examine(path: &Path) -> Result<Facts, StoreError> {
    let faults = database::open(path, OpenFlags::SQLITE_OPEN_READ_WRITE).and_then(|connection| {
        migrations::check(&connection, path)?;
        database::integrity(&connection)
    });
    let faults = faults.map_err(|error| in_words(path, error))?;
    if !faults.is_empty() {
        return Err(damaged(path, &database::in_short(&faults)));
    }
    facts(path)
}

/// Makes a copy ready to stand at `home`, the path of the home's own database: its numbers go on from what was accepted
/// there, and it knows which messages it does not have. Answers that.
///
/// # Errors
/// The copy cannot be written.
pub fn prepare(copy: &Path, home: &Path) -> Result<Option<Loss>, StoreError> {
    let mut connection = database::open(copy, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    migrations::run(&mut connection)?;
    let transaction = connection.transaction()?;
    let id: Option<Uuid> = meta::get(&transaction, meta::ID)?.and_then(|id| id.parse().ok());
    let known = inbox::last_seq(&transaction)?;
    let accepted = match mark::read(&mark::path_of(home)) {
        Ok(Found::Mark(mark)) if Some(mark.database) == id => mark.seq,
        _ => known,
    };
    // It was copied while a gateway ran, not left by one that died.
    meta::set(&transaction, meta::CLEAN, "yes")?;
    meta::set(&transaction, meta::ALONE, "")?;
    let loss = (accepted > known).then(|| later_than(known, accepted));
    if let Some(loss) = &loss {
        inbox::go_on_from(&transaction, accepted)?;
        losses::add(&transaction, loss.clone())?;
    }
    transaction.commit()?;
    Ok(loss)
}

/// The database at `path` was put in its place on purpose: its mark says the same as it does.
///
/// # Errors
/// It cannot be read, or the mark not be written.
pub fn settle(path: &Path) -> Result<(), StoreError> {
    let Facts { id, seq, .. } = facts(path)?;
    let failed = |error: std::io::Error| StoreError::Open { path: mark::path_of(path), reason: error.to_string() };
    match id {
        Some(database) => Mark::set(&mark::path_of(path), Record { database, seq }).map(drop).map_err(failed),
        None => super::aside::remove(&mark::path_of(path)).map_err(failed),
    }
}

/// What was accepted after the copy was made. Whoever restores is told at once, so nothing more has to be shown.
fn later_than(known: i64, accepted: i64) -> Loss {
    let mut loss = Loss::new(LossKind::Restored, vec![(known + 1, accepted)], String::new());
    loss.what = format!(
        "{} messages accepted after the backup are not in it (seq {})",
        loss.messages,
        losses::in_words(&loss.seqs)
    );
    (loss.told, loss.acknowledged) = (true, true);
    loss
}

fn facts(path: &Path) -> Result<Facts, StoreError> {
    let read = || -> Result<Facts, StoreError> {
        let connection = database::open(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        let id = meta::get(&connection, meta::ID)?.and_then(|id| id.parse().ok());
        let format = connection.query_row("PRAGMA user_version", [], |row| row.get(0))?;
        Ok(Facts { id, seq: inbox::last_seq(&connection)?, format })
    };
    read().map_err(|error| in_words(path, error))
}

fn in_words(path: &Path, error: StoreError) -> StoreError {
    match error {
        StoreError::Sqlite(error) if is_damage(&error) => damaged(path, &error.to_string()),
        StoreError::Sqlite(error) => StoreError::Open { path: path.to_owned(), reason: error.to_string() },
        other => other,
    }
}
