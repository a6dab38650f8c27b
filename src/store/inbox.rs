//! Accepted messages: `queued → running ⇄ waiting → done | dead`. `seq` is the order of acceptance.

use rusqlite::{Connection, OptionalExtension, Row, params};
use uuid::Uuid;

use super::StoreError;

/// A row to be accepted.
#[derive(Clone, Debug)]
pub struct NewMessage {
    pub id: Uuid,
    pub channel: String,
    pub external_id: String,
    pub session: String,
    pub chat_id: String,
    pub sender: String,
    pub trust: &'static str,
    pub content: String,
    /// JSON array.
    pub attachments: String,
    /// JSON object of the channel's.
    pub metadata: String,
    /// JSON object: who started the turn.
    pub origin: String,
    pub received_at: i64,
    /// `queued`, or `done` for what is answered at once.
    pub state: State,
}

/// Where a message stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Queued,
    Running,
    Waiting,
    Done,
    Dead,
}

impl State {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Waiting => "waiting",
            Self::Done => "done",
            Self::Dead => "dead",
        }
    }

    pub(super) fn parse(word: &str) -> Result<Self, StoreError> {
        [Self::Queued, Self::Running, Self::Waiting, Self::Done, Self::Dead]
            .into_iter()
            .find(|state| state.as_str() == word)
            .ok_or_else(|| StoreError::Row(format!("inbox state {word:?}")))
    }
}

/// A row as it stands.
#[derive(Clone, Debug)]
pub struct InboxRow {
    pub seq: i64,
    pub id: Uuid,
    pub channel: String,
    pub external_id: String,
    pub session: String,
    pub chat_id: String,
    pub sender: String,
    pub trust: String,
    pub content: String,
    pub attachments: String,
    pub metadata: String,
    pub origin: String,
    pub received_at: i64,
    pub turn: Uuid,
    pub state: State,
    pub stalled: i64,
    pub cancel: bool,
}

impl InboxRow {
    /// Returns how long ago the message was accepted; zero if the clock was set back.
    pub fn age(&self) -> std::time::Duration {
        std::time::Duration::from_millis(u64::try_from(super::now_ms() - self.received_at).unwrap_or(0))
    }
}

const COLUMNS: &str = "seq, id, channel, external_id, session, chat_id, sender, trust, content, attachments, metadata,
    received_at, turn, state, stalled, cancel, origin";

/// What is unfinished, in the words of the index of it. Not the three states that are: for more than two values SQLite
/// makes a table anew each time, also to see at each write whether a row belongs into the index.
pub(super) const OPEN: &str = "state NOT IN ('done', 'dead')";

/// What became of an [`insert`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Inserted {
    New,
    /// `(channel, external_id)` stands already, as this message.
    Known {
        id: Uuid,
        session: String,
    },
}

/// Adds a row unless its `(channel, external_id)` is known. A known one uses no `seq` up: a gap in them is a loss.
pub fn insert(connection: &Connection, message: &NewMessage) -> Result<Inserted, StoreError> {
    // Looked for and not left to ON CONFLICT, which would use a seq up.
    if let Some(row) = find_external(connection, &message.channel, &message.external_id)? {
        return Ok(Inserted::Known { id: row.id, session: row.session });
    }
    connection
        .prepare_cached(
            "INSERT INTO inbox (id, channel, external_id, session, chat_id, sender, trust, content, attachments,
                metadata, received_at, turn, state, origin)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?1, ?12, ?13)",
        )?
        .execute(params![
            message.id.to_string(),
            message.channel,
            message.external_id,
            message.session,
            message.chat_id,
            message.sender,
            message.trust,
            message.content,
            message.attachments,
            message.metadata,
            message.received_at,
            message.state.as_str(),
            message.origin,
        ])?;
    Ok(Inserted::New)
}

/// The highest `seq` ever given, also to rows that are gone.
pub fn last_seq(connection: &Connection) -> Result<i64, StoreError> {
    let mut statement = connection.prepare_cached("SELECT seq FROM sqlite_sequence WHERE name = 'inbox'")?;
    Ok(statement.query_row([], |row| row.get(0)).optional()?.unwrap_or(0))
}

/// The next `seq` given is above `seq`.
pub fn go_on_from(connection: &Connection, seq: i64) -> Result<(), StoreError> {
    if last_seq(connection)? >= seq {
        return Ok(());
    }
    connection.execute("DELETE FROM sqlite_sequence WHERE name = 'inbox'", [])?;
    connection.execute("INSERT INTO sqlite_sequence (name, seq) VALUES ('inbox', ?)", [seq])?;
    Ok(())
}

pub fn find(connection: &Connection, id: Uuid) -> Result<Option<InboxRow>, StoreError> {
    one(connection, "id = ?1", params![id.to_string()])
}

pub fn find_external(
    connection: &Connection,
    channel: &str,
    external_id: &str,
) -> Result<Option<InboxRow>, StoreError> {
    one(connection, "channel = ?1 AND external_id = ?2", params![channel, external_id])
}

/// The rows that a turn answers, in order.
pub fn of_turn(connection: &Connection, turn: Uuid) -> Result<Vec<InboxRow>, StoreError> {
    many(connection, "turn = ?1 ORDER BY seq", params![turn.to_string()])
}

/// The session's unfinished rows in order, at most `limit`.
pub fn open_of_session(connection: &Connection, session: &str, limit: u32) -> Result<Vec<InboxRow>, StoreError> {
    all_open(connection, "session = ?1 ORDER BY seq LIMIT ?2", params![session, limit])
}

/// Every session with unfinished rows: its key, how many, and the oldest one's seq.
pub fn open_sessions(connection: &Connection) -> Result<Vec<(String, usize, i64)>, StoreError> {
    let sql = format!("SELECT session, count(*), min(seq) FROM inbox WHERE {OPEN} GROUP BY session ORDER BY min(seq)");
    let mut statement = connection.prepare_cached(&sql)?;
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// How many messages wait for something.
pub fn waiting(connection: &Connection) -> Result<usize, StoreError> {
    let sql = format!("SELECT count(*) FROM inbox INDEXED BY inbox_open WHERE {OPEN} AND state = 'waiting'");
    Ok(connection.prepare_cached(&sql)?.query_row([], |row| row.get(0))?)
}

/// The turns that were answered with an error and not stopped by their user, the oldest first; none of slash commands, which
/// have no steps: done once more they would do something that is wanted no longer.
pub fn failed_turns(connection: &Connection, limit: u32) -> Result<Vec<Uuid>, StoreError> {
    let mut statement = connection.prepare_cached(
        "SELECT DISTINCT i.turn FROM inbox i JOIN outbox o ON o.turn = i.turn AND o.slot = 'reply'
         WHERE i.state = 'done' AND json_extract(o.body, '$.error.code') <> 'stopped'
           AND EXISTS (SELECT 1 FROM turn_steps s WHERE s.turn = i.turn AND s.kind = 'context')
         ORDER BY i.seq LIMIT ?",
    )?;
    let turns = statement.query_map([limit], |row| row.get::<_, String>(0))?.collect::<Result<Vec<_>, _>>()?;
    turns.iter().map(|turn| Ok(turn.parse()?)).collect()
}

/// The messages of a turn that ended are queued again; answers how many there are.
pub fn revive_done(connection: &Connection, turn: Uuid) -> Result<usize, StoreError> {
    let sql = "UPDATE inbox SET state = 'queued', stalled = 0, cancel = 0 WHERE turn = ? AND state = 'done'";
    Ok(connection.prepare_cached(sql)?.execute([turn.to_string()])?)
}

/// Unfinished rows that were started again and again without getting anywhere, the oldest first.
pub fn suspects(connection: &Connection, stalled: i64) -> Result<Vec<InboxRow>, StoreError> {
    all_open(connection, "stalled >= ?1 ORDER BY seq", params![stalled])
}

/// Unfinished rows whose turn is to be cancelled.
pub fn cancelled(connection: &Connection) -> Result<Vec<InboxRow>, StoreError> {
    all_open(connection, "cancel = 1 ORDER BY seq", params![])
}

/// Rows whose turn waits for a model service or for sub-agents, the oldest first.
pub fn all_waiting(connection: &Connection, limit: u32) -> Result<Vec<InboxRow>, StoreError> {
    all_open(connection, "state = 'waiting' ORDER BY seq LIMIT ?1", params![limit])
}

/// Rows that were given up, the newest first.
pub fn dead(connection: &Connection, limit: u32) -> Result<Vec<InboxRow>, StoreError> {
    many(connection, "state = 'dead' ORDER BY seq DESC LIMIT ?1", params![limit])
}

/// The newest rows.
pub fn newest(connection: &Connection, limit: u32) -> Result<Vec<InboxRow>, StoreError> {
    many(connection, "TRUE ORDER BY seq DESC LIMIT ?1", params![limit])
}

/// The newest rows of one session.
pub fn newest_of_session(connection: &Connection, session: &str, limit: u32) -> Result<Vec<InboxRow>, StoreError> {
    many(connection, "session = ?1 ORDER BY seq DESC LIMIT ?2", params![session, limit])
}

/// `queued`, `running` or `waiting` → `running`, counts the start, and lets the row be answered by `turn`.
pub fn start(connection: &Connection, seq: i64, turn: Uuid) -> Result<(), StoreError> {
    connection
        .prepare_cached("UPDATE inbox SET state = 'running', stalled = stalled + 1, turn = ? WHERE seq = ?")?
        .execute(params![turn.to_string(), seq])?;
    Ok(())
}

/// The turn got somewhere.
pub fn reset_stalled(connection: &Connection, turn: Uuid) -> Result<(), StoreError> {
    connection
        .prepare_cached("UPDATE inbox SET stalled = 0 WHERE turn = ? AND stalled > 0")?
        .execute([turn.to_string()])?;
    Ok(())
}

/// `running` → `waiting`; a start that only led to waiting does not count.
pub fn rest(connection: &Connection, turn: Uuid) -> Result<(), StoreError> {
    connection
        .prepare_cached(
            "UPDATE inbox SET state = 'waiting', stalled = max(0, stalled - 1) WHERE turn = ? AND state = 'running'",
        )?
        .execute([turn.to_string()])?;
    Ok(())
}

/// Takes back the count of a start that an orderly stop cut off.
pub fn undo_start(connection: &Connection, turn: Uuid) -> Result<(), StoreError> {
    connection
        .prepare_cached("UPDATE inbox SET stalled = max(0, stalled - 1) WHERE turn = ? AND state = 'running'")?
        .execute([turn.to_string()])?;
    Ok(())
}

/// Ends the unfinished rows of a turn; answers how many there were.
pub fn finish(connection: &Connection, turn: Uuid, state: State) -> Result<usize, StoreError> {
    let sql = format!("UPDATE inbox SET state = ?, cancel = 0 WHERE turn = ? AND {OPEN}");
    Ok(connection.prepare_cached(&sql)?.execute(params![state.as_str(), turn.to_string()])?)
}

/// Marks the session's running row as to be cancelled, or where none runs yet the one that is next; answers its turn.
pub fn cancel_current(connection: &Connection, session: &str) -> Result<Option<Uuid>, StoreError> {
    let running = all_open(connection, "session = ?1 AND state = 'running' ORDER BY seq LIMIT 1", params![session])?;
    let row = match running.into_iter().next() {
        Some(row) => Some(row),
        None => open_of_session(connection, session, 1)?.into_iter().next(),
    };
    let Some(row) = row else { return Ok(None) };
    connection.prepare_cached("UPDATE inbox SET cancel = 1 WHERE seq = ?")?.execute([row.seq])?;
    Ok(Some(row.turn))
}

/// Marks the running row, or where none runs the next one, of the session that the stranger wrote who wrote `message`; answers
/// its turn. Another's rows under the same name stay as they are.
pub fn cancel_of_stranger(connection: &Connection, message: &NewMessage) -> Result<Option<Uuid>, StoreError> {
    let NewMessage { session, channel, sender, .. } = message;
    let own = all_open(
        connection,
        "session = ?1 AND channel = ?2 AND sender = ?3 AND trust = 'untrusted'
         ORDER BY state = 'running' DESC, seq LIMIT 1",
        params![session, channel, sender],
    )?;
    let Some(row) = own.into_iter().next() else { return Ok(None) };
    connection.prepare_cached("UPDATE inbox SET cancel = 1 WHERE seq = ?")?.execute([row.seq])?;
    Ok(Some(row.turn))
}

/// A dead row is queued again, with those that died in the same turn; answers its session and how many there are, or
/// `None` when it is not dead.
pub fn revive(connection: &Connection, id: Uuid) -> Result<Option<(String, usize)>, StoreError> {
    let Some(row) = find(connection, id)?.filter(|row| row.state == State::Dead) else { return Ok(None) };
    let rows = connection
        .prepare_cached("UPDATE inbox SET state = 'queued', stalled = 0, cancel = 0 WHERE turn = ? AND state = 'dead'")?
        .execute([row.turn.to_string()])?;
    Ok(Some((row.session, rows)))
}

/// A dead row is put away for good; answers whether there was one.
pub fn drop_dead(connection: &Connection, id: Uuid) -> Result<bool, StoreError> {
    let sql = "UPDATE inbox SET state = 'done' WHERE id = ? AND state = 'dead'";
    Ok(connection.prepare_cached(sql)?.execute([id.to_string()])? == 1)
}

fn one(
    connection: &Connection,
    filter: &str,
    parameters: &[&dyn rusqlite::ToSql],
) -> Result<Option<InboxRow>, StoreError> {
    Ok(many(connection, filter, parameters)?.into_iter().next())
}

/// Unfinished rows that meet `condition`, which ends with their order. Told which index to take: the order alone would
/// have it read every row that there ever was, and the session alone every row of that.
fn all_open(
    connection: &Connection,
    condition: &str,
    parameters: &[&dyn rusqlite::ToSql],
) -> Result<Vec<InboxRow>, StoreError> {
    rows_of(connection, &open_query(condition), parameters)
}

fn open_query(condition: &str) -> String {
    format!("SELECT {COLUMNS} FROM inbox INDEXED BY inbox_open WHERE {OPEN} AND {condition}")
}

fn many(
    connection: &Connection,
    filter: &str,
    parameters: &[&dyn rusqlite::ToSql],
) -> Result<Vec<InboxRow>, StoreError> {
    rows_of(connection, &format!("SELECT {COLUMNS} FROM inbox WHERE {filter}"), parameters)
}

fn rows_of(
    connection: &Connection,
    sql: &str,
    parameters: &[&dyn rusqlite::ToSql],
) -> Result<Vec<InboxRow>, StoreError> {
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query(parameters)?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(read_row(row)?);
    }
    Ok(found)
}

fn read_row(row: &Row<'_>) -> Result<InboxRow, StoreError> {
    Ok(InboxRow {
        seq: row.get(0)?,
        id: row.get_ref(1)?.as_str().map_err(rusqlite::Error::from)?.parse()?,
        channel: row.get(2)?,
        external_id: row.get(3)?,
        session: row.get(4)?,
        chat_id: row.get(5)?,
        sender: row.get(6)?,
        trust: row.get(7)?,
        content: row.get(8)?,
        attachments: row.get(9)?,
        metadata: row.get(10)?,
        received_at: row.get(11)?,
        turn: row.get_ref(12)?.as_str().map_err(rusqlite::Error::from)?.parse()?,
        state: State::parse(row.get_ref(13)?.as_str().map_err(rusqlite::Error::from)?)?,
        stalled: row.get(14)?,
        cancel: row.get(15)?,
        origin: row.get(16)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Commit, Store};

    /// What is asked at each start and each message does not read what is done, and what is asked of one session does not
    /// read the others.
    #[tokio::test]
    async fn queries_read_what_they_are_about() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(&folder.path().join("daoyou.db")).unwrap();
        let plans = store
            .write(Commit::Logged, |connection| {
                let queries = [
                    (open_query("cancel = 1 ORDER BY seq"), "inbox_open"),
                    (open_query("session = '' AND state = 'running' ORDER BY seq LIMIT 1"), "inbox_open (session=?)"),
                    (
                        format!("SELECT session, count(*) FROM inbox WHERE {OPEN} GROUP BY session ORDER BY min(seq)"),
                        "inbox_open",
                    ),
                    (
                        "SELECT seq FROM inbox WHERE session = '' ORDER BY seq DESC LIMIT 9".to_owned(),
                        "inbox_session (session=?)",
                    ),
                ];
                let mut plans = Vec::new();
                for (query, expected) in queries {
                    let mut plan = connection.prepare(&format!("EXPLAIN QUERY PLAN {query}"))?;
                    plans.push((plan.query_row([], |row| row.get::<_, String>(3))?, expected));
                }
                Ok(plans)
            })
            .await
            .unwrap();
        assert!(plans.iter().all(|(plan, expected)| plan.ends_with(expected)), "{plans:?}");
    }
}
