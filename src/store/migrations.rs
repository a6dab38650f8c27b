//! Numbered steps forward; `PRAGMA user_version` is the number of the last one done.

use std::path::Path;

use rusqlite::{Connection, TransactionBehavior};

use super::StoreError;

const MIGRATIONS: [&str; 1] = [include_str!("migrations/0001_spine.sql")];

/// A table that every version of this program has.
const OURS: &str = "SELECT EXISTS (SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'inbox')";

/// Refuses a file that is newer than this program, or another program's; writes nothing.
pub fn check(connection: &Connection, path: &Path) -> Result<(), StoreError> {
    let (found, known) = (version(connection)?, i64::try_from(MIGRATIONS.len()).unwrap_or(i64::MAX));
    if found > known {
        return Err(StoreError::Newer { path: path.to_owned(), found, known });
    }
    let holds = |sql| connection.query_row(sql, [], |row| row.get::<_, bool>(0));
    let is_empty = found == 0 && !holds("SELECT EXISTS (SELECT 1 FROM sqlite_schema)")?;
    if is_empty || (found > 0 && holds(OURS)?) {
        return Ok(());
    }
    Err(StoreError::Foreign { path: path.to_owned() })
}

/// Brings the file up to this program's format, each step in one transaction.
pub fn run(connection: &mut Connection) -> Result<(), StoreError> {
    let found = version(connection)?;
    for (number, sql) in (1..).zip(MIGRATIONS).filter(|(number, _)| *number > found) {
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        transaction.execute_batch(sql)?;
        transaction.pragma_update(None, "user_version", number)?;
        transaction.commit()?;
    }
    Ok(())
}

fn version(connection: &Connection) -> Result<i64, StoreError> {
    Ok(connection.query_row("PRAGMA user_version", [], |row| row.get(0))?)
}
