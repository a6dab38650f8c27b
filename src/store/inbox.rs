//! Accepted messages: `queued → running ⇄ waiting → done | dead`. `seq` is the order of acceptance.

pub use daoyou_channels::MessageStatus;
use daoyou_channels::Trust;
use rusqlite::{Connection, Row, params};
use uuid::Uuid;

use super::StoreError;
use super::sql::{
    execute, find_row, find_rows, read_uuid, select, select_optional, select_parsed, select_value, stored_row,
};

/// A row to insert.
#[derive(Clone, Debug)]
pub struct NewInboxRow {
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
    /// JSON object that the channel owns.
    pub metadata: String,
    /// JSON object: the origin of the turn.
    pub origin: String,
    pub received_at: i64,
    /// `queued`, or `done` for a message that is answered at acceptance.
    pub state: MessageStatus,
}

#[cfg(any(test, fuzzing))]
impl NewInboxRow {
    /// Returns a queued message of Ann, a known sender of a webhook.
    pub fn sample(id: Uuid, session: &str) -> Self {
        let text = str::to_owned;
        Self {
            id,
            channel: text("webhook:in"),
            external_id: id.to_string(),
            session: text(session),
            chat_id: text("c"),
            sender: text("ann"),
            trust: "known",
            content: text("hi"),
            attachments: text("[]"),
            metadata: text("{}"),
            origin: text("{}"),
            received_at: 1,
            state: MessageStatus::Queued,
        }
    }
}

/// A row of the inbox.
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
    pub state: MessageStatus,
    pub stalled: i64,
    pub cancel: bool,
}

impl InboxRow {
    /// Returns a running message that is not in the store, with a new id and without texts.
    pub fn unstored(trust: Trust) -> Self {
        let (id, own) = (daoyou_channels::new_id(), str::to_owned);
        Self {
            seq: 0,
            id,
            channel: String::new(),
            external_id: id.to_string(),
            session: String::new(),
            chat_id: String::new(),
            sender: String::new(),
            trust: own(trust.as_str()),
            content: String::new(),
            attachments: own("[]"),
            metadata: own("{}"),
            origin: own("{}"),
            received_at: super::now_ms(),
            turn: id,
            state: MessageStatus::Running,
            stalled: 0,
            cancel: false,
        }
    }

    /// Returns how long ago the message was accepted; zero if the clock was set back.
    pub fn age(&self) -> std::time::Duration {
        std::time::Duration::from_millis(u64::try_from(super::now_ms() - self.received_at).unwrap_or(0))
    }

    /// Returns true if the message is neither answered nor given up.
    pub fn is_open(&self) -> bool {
        !matches!(self.state, MessageStatus::Done | MessageStatus::Dead)
    }
}

stored_row! {
    InboxRow: seq, id by read_uuid, channel, external_id, session, chat_id, sender, trust, content, attachments,
        metadata, received_at, turn by read_uuid, state by read_state, stalled, cancel, origin
}

/// The condition for unfinished rows, in the exact form of their index. It does not list the three states: for more than two values
/// SQLite builds a temporary table each time, even to decide at each write whether a row belongs in the index.
pub(super) const OPEN: &str = "state NOT IN ('done', 'dead')";

/// The beginning of the note that a turn waits for a model.
const WAITING: &str = r#"{"step":"waiting""#;

/// The condition for rows `i` whose turn was parked for a model with the note `?1`, and no model has answered since. A `running` one
/// asks its model again.
const ASKS_MODEL: &str = "EXISTS (
    SELECT 1 FROM turn_steps s WHERE s.turn = i.turn AND s.kind = 'note' AND instr(s.body, ?1) = 1 AND s.seq > ifnull(
        (SELECT max(r.seq) FROM turn_steps r WHERE r.turn = i.turn AND r.kind = 'response'), -1))";

/// Inserts a row unless its `(channel, external_id)` exists; returns whether it is new. A known message uses no `seq`, because a gap
/// in the seqs means a loss.
pub fn insert(connection: &Connection, message: &NewInboxRow) -> Result<bool, StoreError> {
    // A lookup instead of ON CONFLICT, which would use a seq.
    if find_external(connection, &message.channel, &message.external_id)?.is_some() {
        return Ok(false);
    }
    let sql = "INSERT INTO inbox (id, channel, external_id, session, chat_id, sender, trust, content, attachments,
                metadata, received_at, turn, state, origin)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?1, ?12, ?13)";
    execute(
        connection,
        sql,
        params![
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
        ],
    )?;
    Ok(true)
}

/// Returns the highest `seq` ever assigned, including those of deleted rows.
pub fn last_seq(connection: &Connection) -> Result<i64, StoreError> {
    let sql = "SELECT seq FROM sqlite_sequence WHERE name = 'inbox'";
    Ok(select_optional(connection, sql, [], |row| row.get(0))?.unwrap_or(0))
}

/// Makes the next `seq` higher than `seq`.
pub fn continue_after(connection: &Connection, seq: i64) -> Result<(), StoreError> {
    if last_seq(connection)? >= seq {
        return Ok(());
    }
    connection.execute("DELETE FROM sqlite_sequence WHERE name = 'inbox'", [])?;
    connection.execute("INSERT INTO sqlite_sequence (name, seq) VALUES ('inbox', ?)", [seq])?;
    Ok(())
}

pub fn find(connection: &Connection, id: Uuid) -> Result<Option<InboxRow>, StoreError> {
    find_row(connection, "inbox WHERE id = ?1", [id.to_string()])
}

pub fn find_external(
    connection: &Connection,
    channel: &str,
    external_id: &str,
) -> Result<Option<InboxRow>, StoreError> {
    find_row(connection, "inbox WHERE channel = ?1 AND external_id = ?2", [channel, external_id])
}

/// Returns one row of each turn that follows from the turn `turn` of a channel, directly or through another such turn: its external id
/// is that of the turn it follows, a colon and its own id. They are in order, only the newest `limit`.
pub fn follow_ups(connection: &Connection, channel: &str, turn: Uuid, limit: u32) -> Result<Vec<InboxRow>, StoreError> {
    // ';' is the character after ':', so the condition is a range of the unique index. Senders choose external ids, but no row's id.
    let source = "inbox WHERE id IN (
        WITH RECURSIVE found(turn, id) AS (VALUES (?2, NULL) UNION
            SELECT i.turn, i.id FROM found CROSS JOIN inbox i ON i.channel = ?1 AND i.external_id > found.turn || ':'
                AND i.external_id < found.turn || ';' AND i.external_id = found.turn || ':' || i.id)
        SELECT min(id) FROM found GROUP BY turn) ORDER BY seq DESC LIMIT ?3";
    let mut rows = find_rows(connection, source, params![channel, turn.to_string(), limit])?;
    rows.reverse();
    Ok(rows)
}

/// Returns the rows that a turn answers, in order.
pub fn of_turn(connection: &Connection, turn: Uuid) -> Result<Vec<InboxRow>, StoreError> {
    find_rows(connection, "inbox WHERE turn = ?1 ORDER BY seq", [turn.to_string()])
}

/// Returns the message that the reply to a turn answers: the last one, apart from the answers to the turn's questions.
pub fn last_asked(connection: &Connection, turn: Uuid) -> Result<Option<Uuid>, StoreError> {
    let sql = "SELECT id FROM inbox WHERE turn = ?1 AND id NOT IN (
        SELECT answer FROM questions WHERE turn = ?1 AND answer IS NOT NULL) ORDER BY seq DESC LIMIT 1";
    Ok(select_parsed(connection, sql, [turn.to_string()], |row| read_uuid(row, 0))?.pop())
}

/// Returns the unfinished rows of the session's next turn in order: that of its lowest unfinished row.
pub fn open_of_next_turn(connection: &Connection, session: &str) -> Result<Vec<InboxRow>, StoreError> {
    let next = format!("SELECT turn FROM {}", open_rows("session = ?1 ORDER BY seq LIMIT 1"));
    let mut rows: Vec<InboxRow> =
        find_rows(connection, &format!("inbox WHERE turn = ({next}) ORDER BY seq"), [session])?;
    rows.retain(InboxRow::is_open);
    Ok(rows)
}

/// Returns the session's unfinished rows in order, at most `limit`.
pub fn open_of_session(connection: &Connection, session: &str, limit: u32) -> Result<Vec<InboxRow>, StoreError> {
    find_open(connection, "session = ?1 ORDER BY seq LIMIT ?2", params![session, limit])
}

/// Returns every session with unfinished rows: its key, their number, and the oldest one's seq.
pub fn open_sessions(connection: &Connection) -> Result<Vec<(String, usize, i64)>, StoreError> {
    let sql = format!("SELECT session, count(*), min(seq) FROM inbox WHERE {OPEN} GROUP BY session ORDER BY min(seq)");
    select(connection, &sql, [], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
}

/// Returns the number of messages that wait for a model.
pub fn count_waiting_for_model(connection: &Connection) -> Result<usize, StoreError> {
    let sql = format!(
        "SELECT count(*) FROM inbox i INDEXED BY inbox_open WHERE {OPEN} AND state = 'waiting' AND {ASKS_MODEL}"
    );
    select_value(connection, &sql, [WAITING])
}

/// Returns true if an unfinished message waits for a model, and not for sub-agents or a person. Its turn may be asking the model again
/// at this moment.
pub fn waits_for_model(connection: &Connection, id: Uuid) -> Result<bool, StoreError> {
    let sql = format!("SELECT EXISTS (SELECT 1 FROM inbox i WHERE id = ?2 AND {ASKS_MODEL})");
    select_value(connection, &sql, params![WAITING, id.to_string()])
}

/// Returns true if a turn waits, or is being retried after it waited for a model.
pub fn has_waiting_turn(connection: &Connection) -> Result<bool, StoreError> {
    let sql = format!(
        "SELECT EXISTS (SELECT 1 FROM inbox i INDEXED BY inbox_open WHERE {OPEN} AND (state = 'waiting' OR state = 'running' AND
             EXISTS (SELECT 1 FROM turn_steps s WHERE s.turn = i.turn AND s.kind = 'note' AND instr(s.body, ?) = 1)))"
    );
    select_value(connection, &sql, [WAITING])
}

/// Returns the turns that wait for a model, the oldest first, with their sessions: they were parked, and no model has answered since. A
/// turn that may have crashed the gateway is omitted.
pub fn turns_waiting_for_model(connection: &Connection) -> Result<Vec<(Uuid, String)>, StoreError> {
    let sql = format!(
        "SELECT turn, session FROM inbox i INDEXED BY inbox_open WHERE {OPEN} AND stalled = 0 AND state = 'waiting'
         AND {ASKS_MODEL} GROUP BY turn ORDER BY min(i.seq)"
    );
    select_parsed(connection, &sql, [WAITING], |row| Ok((read_uuid(row, 0)?, row.get(1)?)))
}

/// Returns the turns that ended with an error and that their user did not stop, the oldest first. Slash commands, which have no
/// steps, are omitted: repeating them is no longer wanted.
pub fn failed_turns(connection: &Connection, limit: u32) -> Result<Vec<Uuid>, StoreError> {
    let sql = "SELECT DISTINCT i.turn FROM inbox i JOIN outbox o ON o.turn = i.turn AND o.slot = 'reply'
         WHERE i.state = 'done' AND json_extract(o.body, '$.error.code') <> 'stopped'
           AND NOT (i.content = '' AND i.attachments = '[]')
           AND EXISTS (SELECT 1 FROM turn_steps s WHERE s.turn = i.turn AND s.kind = 'context')
         ORDER BY i.seq LIMIT ?";
    select_parsed(connection, sql, [limit], |row| read_uuid(row, 0))
}

/// Queues the messages of an ended turn again; returns their number. Retention may have emptied them; then they are not repeated.
pub fn requeue_done(connection: &Connection, turn: Uuid) -> Result<usize, StoreError> {
    let sql = "UPDATE inbox SET state = 'queued', stalled = 0, cancel = 0
         WHERE turn = ? AND state = 'done' AND NOT (content = '' AND attachments = '[]')";
    execute(connection, sql, [turn.to_string()])
}

/// Returns unfinished rows that were started `stalled` times without progress, the oldest first.
pub fn stalled(connection: &Connection, stalled: i64) -> Result<Vec<InboxRow>, StoreError> {
    find_open(connection, "stalled >= ?1 ORDER BY seq", params![stalled])
}

/// Returns unfinished rows whose turn must be cancelled.
pub fn cancelled(connection: &Connection) -> Result<Vec<InboxRow>, StoreError> {
    find_open(connection, "cancel = 1 ORDER BY seq", params![])
}

/// Returns true if a turn must stop.
pub fn is_cancelled(connection: &Connection, turn: Uuid) -> Result<bool, StoreError> {
    let sql = "SELECT EXISTS (SELECT 1 FROM inbox WHERE turn = ? AND cancel = 1)";
    select_value(connection, sql, [turn.to_string()])
}

/// Returns rows whose turn waits for a model service, sub-agents or a person, and the rows that are queued behind them in their
/// sessions, the oldest first.
pub fn all_waiting(connection: &Connection, limit: u32) -> Result<Vec<InboxRow>, StoreError> {
    let sessions = format!("SELECT session FROM inbox INDEXED BY inbox_open WHERE {OPEN} AND state = 'waiting'");
    let condition =
        format!("(state = 'waiting' OR state = 'queued' AND session IN ({sessions})) ORDER BY seq LIMIT ?1");
    find_open(connection, &condition, params![limit])
}

/// Returns dead rows, the newest first.
pub fn dead(connection: &Connection, limit: u32) -> Result<Vec<InboxRow>, StoreError> {
    find_rows(connection, "inbox WHERE state = 'dead' ORDER BY seq DESC LIMIT ?1", [limit])
}

/// Returns the newest rows.
pub fn newest(connection: &Connection, limit: u32) -> Result<Vec<InboxRow>, StoreError> {
    find_rows(connection, "inbox ORDER BY seq DESC LIMIT ?1", [limit])
}

/// Returns the newest rows of one session.
pub fn newest_of_session(connection: &Connection, session: &str, limit: u32) -> Result<Vec<InboxRow>, StoreError> {
    find_rows(connection, "inbox WHERE session = ?1 ORDER BY seq DESC LIMIT ?2", params![session, limit])
}

/// Returns the senders and origins of the messages of a session that had the owner's trust on `channel`, each pair once.
pub fn owners_of_session(
    connection: &Connection,
    session: &str,
    channel: &str,
) -> Result<Vec<(String, String)>, StoreError> {
    let sql = "SELECT DISTINCT sender, origin FROM inbox WHERE session = ? AND channel = ? AND trust = 'owner'";
    select(connection, sql, [session, channel], |row| Ok((row.get(0)?, row.get(1)?)))
}

/// Marks a `queued`, `running` or `waiting` row as `running`, and counts the start.
pub fn mark_running(connection: &Connection, seq: i64) -> Result<(), StoreError> {
    execute(connection, "UPDATE inbox SET state = 'running', stalled = stalled + 1 WHERE seq = ?", [seq]).map(drop)
}

/// Records that `turn` answers the message, not the turn that it was accepted with.
pub fn set_turn(connection: &Connection, seq: i64, turn: Uuid) -> Result<(), StoreError> {
    execute(connection, "UPDATE inbox SET turn = ? WHERE seq = ?", params![turn.to_string(), seq]).map(drop)
}

/// Resets the count of starts, because the turn made progress.
pub fn reset_stalled(connection: &Connection, turn: Uuid) -> Result<(), StoreError> {
    let sql = "UPDATE inbox SET stalled = 0 WHERE turn = ? AND stalled > 0";
    execute(connection, sql, [turn.to_string()]).map(drop)
}

/// Marks the `running` rows of a turn as `waiting`. A start that only led to waiting does not count.
pub fn mark_waiting(connection: &Connection, turn: Uuid) -> Result<(), StoreError> {
    let sql = "UPDATE inbox SET state = 'waiting', stalled = max(0, stalled - 1) WHERE turn = ? AND state = 'running'";
    execute(connection, sql, [turn.to_string()]).map(drop)
}

/// Undoes the count of a start that an orderly stop interrupted.
pub fn undo_start(connection: &Connection, turn: Uuid) -> Result<(), StoreError> {
    let sql = "UPDATE inbox SET stalled = max(0, stalled - 1) WHERE turn = ? AND state = 'running'";
    execute(connection, sql, [turn.to_string()]).map(drop)
}

/// Ends the unfinished rows of a turn; returns their number.
pub fn finish(connection: &Connection, turn: Uuid, state: MessageStatus) -> Result<usize, StoreError> {
    let sql = format!("UPDATE inbox SET state = ?, cancel = 0 WHERE turn = ? AND {OPEN}");
    execute(connection, &sql, params![state.as_str(), turn.to_string()])
}

/// Marks the session's running row, or the next one if none runs, for cancellation; returns its turn.
pub fn cancel_current(connection: &Connection, session: &str) -> Result<Option<Uuid>, StoreError> {
    cancel_first(connection, "session = ?1", params![session])
}

/// Marks the running row that meets `condition`, or the next one if none runs, for cancellation; returns its turn.
fn cancel_first(
    connection: &Connection,
    condition: &str,
    parameters: &[&dyn rusqlite::ToSql],
) -> Result<Option<Uuid>, StoreError> {
    let first = format!("{condition} ORDER BY state = 'running' DESC, seq LIMIT 1");
    let Some(row) = find_open(connection, &first, parameters)?.pop() else { return Ok(None) };
    execute(connection, "UPDATE inbox SET cancel = 1 WHERE seq = ?", [row.seq])?;
    Ok(Some(row.turn))
}

/// Marks the unfinished rows of a turn for cancellation; returns their session and whether the turn has started.
pub fn cancel_turn(connection: &Connection, turn: Uuid) -> Result<Option<(String, bool)>, StoreError> {
    let rows = find_open(connection, "turn = ?1 ORDER BY seq", params![turn.to_string()])?;
    let Some(first) = rows.first() else { return Ok(None) };
    execute(connection, &format!("UPDATE inbox SET cancel = 1 WHERE turn = ? AND {OPEN}"), [turn.to_string()])?;
    Ok(Some((first.session.clone(), rows.iter().any(|row| row.state != MessageStatus::Queued))))
}

/// Marks the running row, or the next one if none is running, that the untrusted sender of `message` wrote in the session, for
/// cancellation; returns its turn. Rows of trusted senders with the same name are not affected.
pub fn cancel_of_untrusted(connection: &Connection, message: &NewInboxRow) -> Result<Option<Uuid>, StoreError> {
    let NewInboxRow { session, channel, sender, .. } = message;
    let own = "session = ?1 AND channel = ?2 AND sender = ?3 AND trust = 'untrusted'";
    cancel_first(connection, own, params![session, channel, sender])
}

/// Queues a dead row again, with those that died in the same turn. Returns its session and their number, or `None` if the row is not
/// dead.
pub fn revive(connection: &Connection, id: Uuid) -> Result<Option<(String, usize)>, StoreError> {
    let Some(row) = find(connection, id)?.filter(|row| row.state == MessageStatus::Dead) else { return Ok(None) };
    let sql = "UPDATE inbox SET state = 'queued', stalled = 0, cancel = 0 WHERE turn = ? AND state = 'dead'";
    let rows = execute(connection, sql, [row.turn.to_string()])?;
    Ok(Some((row.session, rows)))
}

/// Marks a dead row as done; returns whether there was one.
pub fn drop_dead(connection: &Connection, id: Uuid) -> Result<bool, StoreError> {
    let sql = "UPDATE inbox SET state = 'done' WHERE id = ? AND state = 'dead'";
    Ok(execute(connection, sql, [id.to_string()])? == 1)
}

/// Returns the unfinished rows that meet `condition`, which ends with their order. The query names the index: otherwise SQLite would
/// read every row of the table for the order, or every row of the session.
fn find_open(
    connection: &Connection,
    condition: &str,
    parameters: &[&dyn rusqlite::ToSql],
) -> Result<Vec<InboxRow>, StoreError> {
    find_rows(connection, &open_rows(condition), parameters)
}

fn open_rows(condition: &str) -> String {
    format!("inbox INDEXED BY inbox_open WHERE {OPEN} AND {condition}")
}

fn read_state(row: &Row<'_>, at: usize) -> Result<MessageStatus, StoreError> {
    parse_state(row.get_ref(at)?.as_str().map_err(rusqlite::Error::from)?)
}

pub(super) fn parse_state(word: &str) -> Result<MessageStatus, StoreError> {
    word.parse().map_err(|_| StoreError::Row(format!("inbox state {word:?}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Durability, Store};

    /// Queries at each start and for each message read no finished rows, and queries about one session read no rows of others.
    #[tokio::test]
    async fn queries_use_their_indexes() {
        let (_folder, store) = Store::temporary();
        let plans = store
            .write(Durability::Logged, |connection| {
                let open = |condition: &str| format!("SELECT * FROM {}", open_rows(condition));
                let queries = [
                    (open("cancel = 1 ORDER BY seq"), "inbox_open"),
                    (open("session = '' ORDER BY state = 'running' DESC, seq LIMIT 1"), "inbox_open (session=?)"),
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

    #[tokio::test]
    async fn messages_behind_a_waiting_turn_are_listed_with_it() {
        let (_folder, store) = Store::temporary();
        let states = store
            .write(Durability::Logged, |connection| {
                let ids = [1, 2, 3].map(Uuid::from_u128);
                for (id, session) in ids.into_iter().zip(["asks", "asks", "other"]) {
                    insert(connection, &NewInboxRow::sample(id, session))?;
                }
                mark_running(connection, 1)?;
                mark_waiting(connection, ids[0])?;
                Ok(all_waiting(connection, 9)?.into_iter().map(|row| (row.seq, row.state)).collect::<Vec<_>>())
            })
            .await
            .unwrap();
        assert_eq!(states, [(1, MessageStatus::Waiting), (2, MessageStatus::Queued)]);
    }
}
