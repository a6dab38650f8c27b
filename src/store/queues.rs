//! What waits and what is stuck, by channel. Each query reads the rows of its partial indexes and no others.

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

// Told by `+` not to group along an index of all rows.
const INBOX_OPEN: &str = "SELECT channel, state, count(*), min(received_at) FROM inbox
    WHERE state IN ('queued', 'running', 'waiting') GROUP BY +channel, state";
const INBOX_DEAD: &str = "SELECT channel, state, count(*), min(received_at) FROM inbox
    WHERE state = 'dead' GROUP BY +channel, state";
const OUTBOX_OPEN: &str = "SELECT channel, state, count(*), min(created_at) FROM outbox
    WHERE state IN ('pending', 'sending') GROUP BY +channel, state";
const OUTBOX_STUCK: &str = "SELECT channel, state, count(*), min(created_at) FROM outbox
    WHERE state IN ('unknown', 'dead') GROUP BY +channel, state";

/// Inbound messages that are not done.
pub fn inbox(connection: &Connection) -> Result<Vec<Depth>, StoreError> {
    Ok([depths(connection, INBOX_OPEN)?, depths(connection, INBOX_DEAD)?].concat())
}

/// Outbound messages that are not sent.
pub fn outbox(connection: &Connection) -> Result<Vec<Depth>, StoreError> {
    Ok([depths(connection, OUTBOX_OPEN)?, depths(connection, OUTBOX_STUCK)?].concat())
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
    use crate::store::database;

    #[test]
    fn only_the_rows_of_the_partial_indexes_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let connection = database::open_writer(&folder.path().join("daoyou.db")).unwrap();
        for (sql, index) in [
            (INBOX_OPEN, "inbox_open"),
            (INBOX_DEAD, "inbox_dead"),
            (OUTBOX_OPEN, "outbox_open"),
            (OUTBOX_STUCK, "outbox_stuck"),
        ] {
            let mut statement = connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
            let lines = statement.query_map([], |row| row.get::<_, String>(3)).unwrap();
            let plan = lines.map(Result::unwrap).collect::<Vec<_>>().join("; ");
            assert!(plan.contains(&format!("USING INDEX {index}")), "{sql}: {plan}");
        }
        assert_eq!((inbox(&connection).unwrap(), outbox(&connection).unwrap()), (Vec::new(), Vec::new()));
    }
}
