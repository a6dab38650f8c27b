//! The space that the database takes, and giving back to the disk what it no longer needs.

use std::path::Path;

use rusqlite::Connection;
use serde::Serialize;

use super::{StoreError, aside};

/// Free pages below which giving them back is not worth the writing: 1 MiB.
const WORTH: u64 = 256;

/// `PRAGMA auto_vacuum` of a file whose free pages can be given back in small pieces.
const INCREMENTAL: i64 = 2;

/// Bytes on the disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Space {
    /// The file.
    pub size: u64,
    /// Its write-ahead log.
    pub wal: u64,
    /// What of the file is not in use.
    pub free: u64,
}

pub fn of(connection: &Connection, database: &Path) -> Result<Space, StoreError> {
    let bytes = |path: &Path| std::fs::metadata(path).map_or(0, |metadata| metadata.len());
    Ok(Space { size: bytes(database), wal: bytes(&aside::log_of(database)), free: free_bytes(connection)? })
}

/// Bytes of the file that are not in use.
pub fn free_bytes(connection: &Connection) -> Result<u64, StoreError> {
    let page: u64 = connection.query_row("PRAGMA page_size", [], |row| row.get(0))?;
    Ok(free_pages(connection)? * page)
}

/// Whether there is enough to give back.
pub fn is_worth_it(connection: &Connection) -> Result<bool, StoreError> {
    Ok(free_pages(connection)? >= WORTH)
}

/// Gives up to `pages` free pages back, within a transaction; answers how many are left.
pub fn give_back(connection: &Connection, pages: u32) -> Result<u64, StoreError> {
    let mut statement = connection.prepare(&format!("PRAGMA incremental_vacuum({pages})"))?;
    // Each step gives one page back.
    let mut rows = statement.query([])?;
    while rows.next()?.is_some() {}
    drop(rows);
    free_pages(connection)
}

/// Whether pages can be given back in pieces; a file that was made otherwise must be written anew once. For the writer
/// to ask: other connections go on believing what they read when they were opened.
pub fn is_in_pieces(connection: &Connection) -> Result<bool, StoreError> {
    let mode: i64 = connection.query_row("PRAGMA auto_vacuum", [], |row| row.get(0))?;
    Ok(mode == INCREMENTAL)
}

/// Writes the whole file anew so that from then on pages can be given back in pieces. Outside of any transaction;
/// takes some seconds for each GB, and as much space again.
pub fn convert(connection: &Connection) -> Result<(), StoreError> {
    connection.pragma_update(None, "auto_vacuum", "INCREMENTAL")?;
    connection.execute_batch("VACUUM")?;
    Ok(())
}

fn free_pages(connection: &Connection) -> Result<u64, StoreError> {
    Ok(connection.query_row("PRAGMA freelist_count", [], |row| row.get(0))?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Commit, Store};

    #[tokio::test]
    async fn what_was_deleted_is_given_back_and_an_older_file_learns_it() {
        for is_old in [false, true] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("daoyou.db");
            let store = Store::open(&path).unwrap();
            if is_old {
                let forget = "PRAGMA auto_vacuum = NONE; VACUUM";
                store.write_alone(|connection| Ok(connection.execute_batch(forget)?)).await.unwrap();
            }
            let fill = |connection: &Connection| {
                connection.execute("INSERT INTO meta VALUES ('big', ?)", ["x".repeat(8 << 20)])?;
                Ok(())
            };
            store.write(Commit::Logged, fill).await.unwrap();
            let shrink = |connection: &Connection| {
                connection.execute("DELETE FROM meta WHERE key = 'big'", [])?;
                is_worth_it(connection)
            };
            assert!(store.write(Commit::Logged, shrink).await.unwrap());
            assert_eq!(store.write(Commit::Logged, is_in_pieces).await.unwrap(), !is_old);
            if is_old {
                store.write_alone(convert).await.unwrap();
                assert!(store.write(Commit::Logged, is_in_pieces).await.unwrap());
            }
            let mut left = 1;
            let mut pieces = 0;
            while left > 0 {
                left = store.write(Commit::Logged, |connection| give_back(connection, 500)).await.unwrap();
                pieces += 1;
            }
            assert_eq!(pieces, if is_old { 1 } else { 5 });
            let truncate = |connection: &Connection| {
                connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
                Ok(())
            };
            store.write_alone(truncate).await.unwrap();
            let space = store.space().await.unwrap();
            assert!(space.size < 1 << 20 && space.free == 0 && space.wal == 0, "{space:?}");
        }
    }
}
