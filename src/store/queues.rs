//! What waits and what is stuck, by channel. Each query reads the rows of its partial index and no others, however many
//! there are.

use rusqlite::Connection;

use super::{StoreError, now_ms};

/// Rows of one channel in one state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Depth {
    pub channel: String,
    pub state: String,
    pub messages: u64,
    /// Age of the oldest, in milliseconds.
    pub oldest_ms: i64,
}

/// Inbound messages that are not done.
pub fn inbox(connection: &Connection) -> Result<Vec<Depth>, StoreError> {
    let open = "SELECT channel, state, count(*), min(received_at) FROM inbox
         INDEXED BY inbox_open WHERE state NOT IN ('done', 'dead') GROUP BY channel, state";
    let dead = "SELECT channel, state, count(*), min(received_at) FROM inbox
         INDEXED BY inbox_dead WHERE state = 'dead' GROUP BY channel, state";
    Ok([depths(connection, open)?, depths(connection, dead)?].concat())
}

/// Outbound messages that are not sent.
pub fn outbox(connection: &Connection) -> Result<Vec<Depth>, StoreError> {
    let open = "SELECT channel, state, count(*), min(created_at) FROM outbox
         INDEXED BY outbox_open WHERE state IN ('pending', 'sending') GROUP BY channel, state";
    let stuck = "SELECT channel, state, count(*), min(created_at) FROM outbox
         INDEXED BY outbox_stuck WHERE state IN ('unknown', 'dead') GROUP BY channel, state";
    Ok([depths(connection, open)?, depths(connection, stuck)?].concat())
}

fn depths(connection: &Connection, sql: &str) -> Result<Vec<Depth>, StoreError> {
    let now = now_ms();
    let mut statement = connection.prepare_cached(sql)?;
    let rows = statement.query_map([], |row| {
        Ok(Depth {
            channel: row.get(0)?,
            state: row.get(1)?,
            messages: row.get(2)?,
            oldest_ms: now.saturating_sub(row.get(3)?),
        })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::opening;

    /// A query that could not use its index does not even compile.
    #[test]
    fn only_the_rows_of_the_partial_indexes_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let connection = opening::open(&folder.path().join("daoyou.db")).unwrap().connection;
        assert_eq!((inbox(&connection).unwrap(), outbox(&connection).unwrap()), (Vec::new(), Vec::new()));
    }
}
