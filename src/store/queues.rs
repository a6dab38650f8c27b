//! The numbers of waiting and stuck messages by channel. Each query reads only the rows of its partial index.

use rusqlite::Connection;

use super::sql::select;
use super::{StoreError, now_ms};

/// The rows of one channel in one state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueBacklog {
    pub channel: String,
    pub state: String,
    pub messages: u64,
    /// The age of the oldest row, in milliseconds.
    pub oldest_ms: i64,
}

/// Returns the inbound messages that are not done.
pub fn inbox(connection: &Connection) -> Result<Vec<QueueBacklog>, StoreError> {
    let open = backlogs(connection, "received_at", "inbox INDEXED BY inbox_open WHERE state NOT IN ('done', 'dead')")?;
    let dead = backlogs(connection, "received_at", "inbox INDEXED BY inbox_dead WHERE state = 'dead'")?;
    Ok([open, dead].concat())
}

/// Returns the outbound messages that are not sent.
pub fn outbox(connection: &Connection) -> Result<Vec<QueueBacklog>, StoreError> {
    let open =
        backlogs(connection, "created_at", "outbox INDEXED BY outbox_open WHERE state IN ('pending', 'sending')")?;
    let stuck =
        backlogs(connection, "created_at", "outbox INDEXED BY outbox_stuck WHERE state IN ('unknown', 'dead')")?;
    Ok([open, stuck].concat())
}

/// Returns the rows of a source, which begins after `FROM`; the column `at` has the time of a row.
fn backlogs(connection: &Connection, at: &str, source: &str) -> Result<Vec<QueueBacklog>, StoreError> {
    let now = now_ms();
    let sql = format!("SELECT channel, state, count(*), min({at}) FROM {source} GROUP BY channel, state");
    select(connection, &sql, [], |row| {
        Ok(QueueBacklog {
            channel: row.get(0)?,
            state: row.get(1)?,
            messages: row.get(2)?,
            oldest_ms: now.saturating_sub(row.get(3)?),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::opening;

    /// A query that could not use its index would not compile.
    #[test]
    fn only_the_rows_of_the_partial_indexes_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let connection = opening::open(&folder.path().join("daoyou.db")).unwrap().connection;
        assert_eq!((inbox(&connection).unwrap(), outbox(&connection).unwrap()), (Vec::new(), Vec::new()));
    }
}
