//! Numbered steps forward; `PRAGMA user_version` is the number of the last one done.

use std::path::Path;

use rusqlite::{Connection, TransactionBehavior};

use super::StoreError;

const MIGRATIONS: [&str; 1] = [include_str!("migrations/0001_spine.sql")];

/// Brings the file up to this program's format, each step in one transaction. A newer file is refused untouched.
pub fn run(connection: &mut Connection, path: &Path) -> Result<(), StoreError> {
    let known = i64::try_from(MIGRATIONS.len()).unwrap_or(i64::MAX);
    let found: i64 = connection.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    if found > known {
        return Err(StoreError::Newer { path: path.to_owned(), found, known });
    }
    for (number, sql) in (1..).zip(MIGRATIONS).filter(|(number, _)| *number > found) {
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        transaction.execute_batch(sql)?;
        transaction.pragma_update(None, "user_version", number)?;
        transaction.commit()?;
    }
    Ok(())
}
