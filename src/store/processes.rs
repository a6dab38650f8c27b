//! Commands that run in the background: who started each, and how it ended.

use rusqlite::{Connection, OptionalExtension, Row, params};
use uuid::Uuid;

use super::{StoreError, now_ms};

/// A process that is about to be started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewProcess {
    pub id: String,
    /// The turn that starts it.
    pub turn: Uuid,
    pub session: String,
    /// Of the message that the turn answers, as are the chat, the trust and the metadata (JSON).
    pub channel: String,
    pub chat_id: String,
    pub trust: &'static str,
    pub metadata: String,
    /// Who started the turn, JSON.
    pub origin: String,
    pub label: Option<String>,
    /// Its beginning, on one line.
    pub command: String,
    /// It outlives the gateway.
    pub detached: bool,
}

/// A process as it stands.
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
    /// The shell's, and what tells it from a later one with this id.
    pub pid: Option<i32>,
    pub birth: Option<String>,
    pub started_at: i64,
    pub ended_at: Option<i64>,
    /// How, in words.
    pub ending: Option<String>,
}

const COLUMNS: &str = "id, turn, session, channel, chat_id, trust, metadata, label, command, detached, pid, birth, \
                       started_at, ended_at, ending, origin";

/// Adds a process that is not started yet; answers whether its id was free. Of those that ended only the newest `keep`
/// stay.
pub fn insert(connection: &Connection, process: &NewProcess, keep: u32) -> Result<bool, StoreError> {
    connection
        .prepare_cached(
            "DELETE FROM processes WHERE ended_at IS NOT NULL AND id NOT IN (
                SELECT id FROM processes WHERE ended_at IS NOT NULL ORDER BY ended_at DESC LIMIT ?)",
        )?
        .execute([keep])?;
    let sql = "INSERT INTO processes
                   (id, turn, session, channel, chat_id, trust, metadata, origin, label, command, detached, started_at)
               VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO NOTHING";
    let added = connection.prepare_cached(sql)?.execute(params![
        process.id,
        process.turn.to_string(),
        process.session,
        process.channel,
        process.chat_id,
        process.trust,
        process.metadata,
        process.origin,
        process.label,
        process.command,
        process.detached,
        now_ms()
    ])?;
    Ok(added == 1)
}

/// It runs as this process.
pub fn started(connection: &Connection, id: &str, pid: i32, birth: Option<&str>) -> Result<(), StoreError> {
    let sql = "UPDATE processes SET pid = ?, birth = ? WHERE id = ?";
    connection.prepare_cached(sql)?.execute(params![pid, birth, id])?;
    Ok(())
}

/// It has ended; answers the row, unless that was known.
pub fn end(connection: &Connection, id: &str, ending: &str) -> Result<Option<ProcessRow>, StoreError> {
    let sql = "UPDATE processes SET ended_at = ?, ending = ? WHERE id = ? AND ended_at IS NULL";
    match connection.prepare_cached(sql)?.execute(params![now_ms(), ending, id])? {
        0 => Ok(None),
        _ => find(connection, id),
    }
}

pub fn find(connection: &Connection, id: &str) -> Result<Option<ProcessRow>, StoreError> {
    let sql = format!("SELECT {COLUMNS} FROM processes WHERE id = ?");
    Ok(connection.prepare_cached(&sql)?.query_row([id], read_row).optional()?)
}

/// Those whose end is not known, the oldest first.
pub fn open(connection: &Connection) -> Result<Vec<ProcessRow>, StoreError> {
    many(connection, "ended_at IS NULL ORDER BY started_at, id", params![])
}

/// Those of a session whose end is not known, the oldest first.
pub fn open_of_session(connection: &Connection, session: &str) -> Result<Vec<ProcessRow>, StoreError> {
    many(connection, "ended_at IS NULL AND session = ?1 ORDER BY started_at, id", params![session])
}

/// All of them, those whose end is not known first, then the newest.
pub fn newest(connection: &Connection, limit: u32) -> Result<Vec<ProcessRow>, StoreError> {
    many(connection, "TRUE ORDER BY ended_at IS NOT NULL, started_at DESC, id LIMIT ?1", params![limit])
}

fn many(
    connection: &Connection,
    filter: &str,
    parameters: &[&dyn rusqlite::ToSql],
) -> Result<Vec<ProcessRow>, StoreError> {
    let mut statement = connection.prepare_cached(&format!("SELECT {COLUMNS} FROM processes WHERE {filter}"))?;
    let rows = statement.query_map(parameters, read_row)?;
    Ok(rows.collect::<Result<_, _>>()?)
}

fn read_row(row: &Row<'_>) -> rusqlite::Result<ProcessRow> {
    let turn: String = row.get(1)?;
    Ok(ProcessRow {
        id: row.get(0)?,
        // Only for the eye: a row that was damaged must still be ended.
        turn: turn.parse().unwrap_or_default(),
        session: row.get(2)?,
        channel: row.get(3)?,
        chat_id: row.get(4)?,
        trust: row.get(5)?,
        metadata: row.get(6)?,
        label: row.get(7)?,
        command: row.get(8)?,
        detached: row.get(9)?,
        pid: row.get(10)?,
        birth: row.get(11)?,
        started_at: row.get(12)?,
        ended_at: row.get(13)?,
        ending: row.get(14)?,
        origin: row.get(15)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Commit, Store};

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
    async fn an_end_is_known_once_and_old_ones_go() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(&folder.path().join("daoyou.db")).unwrap();
        store
            .write(Commit::Logged, |connection| {
                for (id, session) in [("a", "s"), ("b", "s"), ("c", "t"), ("d", "s")] {
                    assert!(insert(connection, &process(id, session), 2)?);
                }
                assert!(!insert(connection, &process("a", "s"), 2)?);
                started(connection, "a", 42, Some("boot/7"))?;
                let ended = end(connection, "a", "exit 0")?.unwrap();
                assert_eq!((ended.pid, ended.birth.as_deref()), (Some(42), Some("boot/7")));
                assert_eq!(ended.ending.as_deref(), Some("exit 0"));
                assert_eq!(end(connection, "a", "exit 1")?, None, "known already");
                let ids = |rows: Vec<ProcessRow>| rows.into_iter().map(|row| row.id).collect::<Vec<_>>();
                assert_eq!(ids(open(connection)?), ["b", "c", "d"]);
                end(connection, "b", "exit 0")?;
                end(connection, "c", "exit 0")?;
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
