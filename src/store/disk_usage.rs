//! The disk space of the database, and how unused space is returned to the disk.

use std::path::Path;

use rusqlite::Connection;
use serde::Serialize;

use super::{StoreError, files};

/// The number of free pages below which returning them is not worth the writes: 1 MiB.
const MIN_FREE_PAGES: u64 = 256;

/// The value of `PRAGMA auto_vacuum` for a file whose free pages can be returned in small steps.
const INCREMENTAL: i64 = 2;

/// Sizes in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DiskUsage {
    /// The database file.
    pub size: u64,
    /// The write-ahead log.
    pub wal: u64,
    /// The unused part of the database file.
    pub free: u64,
}

pub fn read(connection: &Connection, database: &Path) -> Result<DiskUsage, StoreError> {
    let bytes = |path: &Path| std::fs::metadata(path).map_or(0, |metadata| metadata.len());
    Ok(DiskUsage { size: bytes(database), wal: bytes(&files::log_path(database)), free: free_bytes(connection)? })
}

/// Returns the number of unused bytes in the file.
pub fn free_bytes(connection: &Connection) -> Result<u64, StoreError> {
    let page: u64 = connection.query_row("PRAGMA page_size", [], |row| row.get(0))?;
    Ok(free_pages(connection)? * page)
}

/// Returns true if there is enough free space to be worth returning.
pub fn is_worth_returning(connection: &Connection) -> Result<bool, StoreError> {
    Ok(free_pages(connection)? >= MIN_FREE_PAGES)
}

/// Returns up to `pages` free pages to the disk, within a transaction. The result is the number of free pages that remain.
pub fn return_pages(connection: &Connection, pages: u32) -> Result<u64, StoreError> {
    let mut statement = connection.prepare(&format!("PRAGMA incremental_vacuum({pages})"))?;
    // Each step returns one page.
    let mut rows = statement.query([])?;
    while rows.next()?.is_some() {}
    drop(rows);
    free_pages(connection)
}

/// Returns true if the file's free pages can be returned in steps. A file created otherwise must be rewritten once. Only the
/// writer's connection has the current value: others keep the value from their opening.
pub fn is_incremental(connection: &Connection) -> Result<bool, StoreError> {
    let mode: i64 = connection.query_row("PRAGMA auto_vacuum", [], |row| row.get(0))?;
    Ok(mode == INCREMENTAL)
}

/// Rewrites the whole file so that its free pages can be returned in steps from then on. It must run outside of a transaction. It
/// takes some seconds per GB, and needs as much disk space again.
pub fn make_incremental(connection: &Connection) -> Result<(), StoreError> {
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
    use crate::store::{Durability, Store};

    #[tokio::test]
    async fn free_pages_are_returned_and_an_older_file_is_converted() {
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
            store.write(Durability::Logged, fill).await.unwrap();
            let shrink = |connection: &Connection| {
                connection.execute("DELETE FROM meta WHERE key = 'big'", [])?;
                is_worth_returning(connection)
            };
            assert!(store.write(Durability::Logged, shrink).await.unwrap());
            assert_eq!(store.write(Durability::Logged, is_incremental).await.unwrap(), !is_old);
            if is_old {
                store.write_alone(make_incremental).await.unwrap();
                assert!(store.write(Durability::Logged, is_incremental).await.unwrap());
            }
            let mut left = 1;
            let mut pieces = 0;
            while left > 0 {
                left = store.write(Durability::Logged, |connection| return_pages(connection, 500)).await.unwrap();
                pieces += 1;
            }
            assert_eq!(pieces, if is_old { 1 } else { 5 });
            let truncate = |connection: &Connection| {
                connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
                Ok(())
            };
            store.write_alone(truncate).await.unwrap();
            let space = store.disk_usage().await.unwrap();
            assert!(space.size < 1 << 20 && space.free == 0 && space.wal == 0, "{space:?}");
        }
    }
}
