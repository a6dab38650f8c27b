//! Background commands: the turn that started each command, and how the command ended.

use rusqlite::{Connection, Row, params};
use uuid::Uuid;

use super::sql::{execute, find_row, find_rows, stored_row};
use super::{StoreError, now_ms};

/// A process to start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewProcess {
    pub id: String,
    /// The turn that starts it.
    pub turn: Uuid,
    pub session: String,
    /// The channel of the message that the turn answers, followed by its chat, trust and metadata (JSON).
    pub channel: String,
    pub chat_id: String,
    pub trust: &'static str,
    pub metadata: String,
    /// The origin of the turn, JSON.
    pub origin: String,
    pub label: Option<String>,
    /// The beginning of the command, on one line.
    pub command: String,
    /// The process outlives the gateway.
    pub detached: bool,
}

/// A process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessRow {
    pub id: String,
    pub turn: Uuid,
    pub session: String,
    pub channel: String,
    pub chat_id: String,
    pub trust: String,
    pub metadata: String,
    pub origin: String,
    pub label: Option<String>,
    pub command: String,
    pub detached: bool,
    /// The shell's pid, and an identity that distinguishes the shell from a later process with the same pid.
    pub pid: Option<i32>,
    pub start_identity: Option<String>,
    pub started_at: i64,
    pub ended_at: Option<i64>,
    /// A description of the end.
    pub outcome: Option<String>,
}

stored_row! {
    ProcessRow: id, turn by read_shown_turn, session, channel, chat_id, trust, metadata, label, command, detached,
        pid, start_identity, started_at, ended_at, outcome, origin
}

/// Inserts a process that is not started yet; returns whether its id was free. Keeps only the newest `keep` ended processes.
pub fn insert(connection: &Connection, process: &NewProcess, keep: u32) -> Result<bool, StoreError> {
    let sql = "DELETE FROM processes WHERE ended_at IS NOT NULL AND id NOT IN (
                SELECT id FROM processes WHERE ended_at IS NOT NULL ORDER BY ended_at DESC LIMIT ?)";
    execute(connection, sql, [keep])?;
    let sql = "INSERT INTO processes
                   (id, turn, session, channel, chat_id, trust, metadata, origin, label, command, detached, started_at)
               VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO NOTHING";
    let NewProcess { id, turn, session, channel, chat_id, trust, metadata, origin, label, command, detached } = process;
    let (turn, now) = (turn.to_string(), now_ms());
    let values = params![id, turn, session, channel, chat_id, trust, metadata, origin, label, command, detached, now];
    Ok(execute(connection, sql, values)? == 1)
}

/// Records the pid of a process.
pub fn record_start(connection: &Connection, id: &str, pid: i32, identity: Option<&str>) -> Result<(), StoreError> {
    let sql = "UPDATE processes SET pid = ?, start_identity = ? WHERE id = ?";
    execute(connection, sql, params![pid, identity, id]).map(drop)
}

/// Records the end of a process; returns its row, or `None` if the end was already recorded.
pub fn record_end(connection: &Connection, id: &str, outcome: &str) -> Result<Option<ProcessRow>, StoreError> {
    let sql = "UPDATE processes SET ended_at = ?, outcome = ? WHERE id = ? AND ended_at IS NULL";
    match execute(connection, sql, params![now_ms(), outcome, id])? {
        0 => Ok(None),
        _ => find(connection, id),
    }
}

pub fn find(connection: &Connection, id: &str) -> Result<Option<ProcessRow>, StoreError> {
    find_row(connection, "processes WHERE id = ?", [id])
}

/// Returns the processes without a known end, the oldest first.
pub fn open(connection: &Connection) -> Result<Vec<ProcessRow>, StoreError> {
    find_rows(connection, "processes WHERE ended_at IS NULL ORDER BY started_at, id", [])
}

/// Returns the processes of a session without a known end, the oldest first.
pub fn open_of_session(connection: &Connection, session: &str) -> Result<Vec<ProcessRow>, StoreError> {
    find_rows(connection, "processes WHERE ended_at IS NULL AND session = ?1 ORDER BY started_at, id", [session])
}

/// Returns the newest processes; those without a known end come first.
pub fn newest(connection: &Connection, limit: u32) -> Result<Vec<ProcessRow>, StoreError> {
    find_rows(connection, "processes ORDER BY ended_at IS NOT NULL, started_at DESC, id LIMIT ?1", [limit])
}

/// Reads the turn, which is only displayed: a process with a damaged row must still be ended.
fn read_shown_turn(row: &Row<'_>, at: usize) -> Result<Uuid, StoreError> {
    Ok(row.get::<_, String>(at)?.parse().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Durability, Store};

    fn process(id: &str, session: &str) -> NewProcess {
        let text = |text: &str| text.to_owned();
        NewProcess {
            id: text(id),
            turn: Uuid::now_v7(),
            session: text(session),
            channel: text("webhook:in"),
            chat_id: text("c"),
            trust: "owner",
            metadata: text("{}"),
            origin: text("{}"),
            label: None,
            command: text("sleep 1"),
            detached: false,
        }
    }

    #[tokio::test]
    async fn the_end_of_a_process_is_recorded_once_and_old_ones_are_deleted() {
        let (_folder, store) = Store::temporary();
        store
            .write(Durability::Logged, |connection| {
                for (id, session) in [("a", "s"), ("b", "s"), ("c", "t"), ("d", "s")] {
                    assert!(insert(connection, &process(id, session), 2)?);
                }
                assert!(!insert(connection, &process("a", "s"), 2)?);
                record_start(connection, "a", 42, Some("boot/7"))?;
                let ended = record_end(connection, "a", "exit 0")?.unwrap();
                assert_eq!((ended.pid, ended.start_identity.as_deref()), (Some(42), Some("boot/7")));
                assert_eq!(ended.outcome.as_deref(), Some("exit 0"));
                assert_eq!(record_end(connection, "a", "exit 1")?, None, "known already");
                let ids = |rows: Vec<ProcessRow>| rows.into_iter().map(|row| row.id).collect::<Vec<_>>();
                assert_eq!(ids(open(connection)?), ["b", "c", "d"]);
                record_end(connection, "b", "exit 0")?;
                record_end(connection, "c", "exit 0")?;
                connection.execute("UPDATE processes SET ended_at = started_at + 10 WHERE id = 'c'", [])?;
                assert_eq!(ids(newest(connection, 9)?)[0], "d");
                assert_eq!(ids(newest(connection, 9)?).len(), 4);
                assert!(insert(connection, &process("e", "s"), 1)?);
                assert_eq!(ids(newest(connection, 9)?).len(), 3, "two running, one that ended");
                Ok(())
            })
            .await
            .unwrap();
    }
}
