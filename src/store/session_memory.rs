//! What stands before the log in an epoch of a session: how far its summary goes, and the long-term memory in its prompt.

use rusqlite::{Connection, OptionalExtension, Row, params};

use super::{StoreError, now_ms};

/// The state of one epoch of a session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionMemory {
    /// Messages below this seq are told by the summary.
    pub cursor: i64,
    /// How many of them are given as they were said all the same.
    pub overlap: i64,
    /// The memory of kind `summary` that tells them.
    pub summary: Option<i64>,
    /// The hash of the snapshot in its prompt; none was taken yet without.
    pub snapshot: Option<String>,
    /// Why the rest is to be consolidated though it is short.
    pub due: Option<String>,
    /// Consolidations that failed in a row.
    pub failures: i64,
    /// When the next may be tried, UTC milliseconds.
    pub retry_at: i64,
}

/// What a session that begins with copied messages has them from.
#[derive(Clone, Copy, Debug)]
pub struct Copied<'a> {
    pub session: &'a str,
    pub epoch: i64,
    /// By seq, what was copied.
    pub from: i64,
    pub to: i64,
}

/// Messages of a copy that are given as they were said, at least, though its summary may tell them.
const STILL_SAID: i64 = 8;

const COLUMNS: &str = "cursor, overlap, summary, snapshot, due, failures, retry_at";

/// The state of an epoch; nothing is known of a new one.
pub fn get(connection: &Connection, session: &str, epoch: i64) -> Result<SessionMemory, StoreError> {
    let mut statement =
        connection.prepare_cached(&format!("SELECT {COLUMNS} FROM session_memory WHERE session = ? AND epoch = ?"))?;
    let found = statement.query_row(params![session, epoch], |row| read(row, 0)).optional()?;
    Ok(found.unwrap_or_default())
}

/// Writes it.
pub fn put(connection: &Connection, session: &str, epoch: i64, state: &SessionMemory) -> Result<(), StoreError> {
    connection
        .prepare_cached(
            "INSERT INTO session_memory
                (session, epoch, cursor, overlap, summary, snapshot, due, failures, retry_at, updated_at)
             VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
             ON CONFLICT (session, epoch) DO UPDATE SET cursor = excluded.cursor, overlap = excluded.overlap,
                summary = excluded.summary, snapshot = excluded.snapshot, due = excluded.due,
                failures = excluded.failures, retry_at = excluded.retry_at, updated_at = excluded.updated_at",
        )?
        .execute(params![
            session,
            epoch,
            state.cursor,
            state.overlap,
            state.summary,
            state.snapshot,
            state.due,
            state.failures,
            state.retry_at,
            now_ms()
        ])?;
    Ok(())
}

/// Has the rest of an epoch consolidated, for the first reason that came up.
pub fn set_due(connection: &Connection, session: &str, epoch: i64, why: &str) -> Result<(), StoreError> {
    connection
        .prepare_cached(
            "INSERT INTO session_memory (session, epoch, due, updated_at) VALUES (?1, ?2, ?3, ?4)
             ON CONFLICT (session, epoch) DO UPDATE SET due = excluded.due, updated_at = excluded.updated_at
                WHERE due IS NULL",
        )?
        .execute(params![session, epoch, why, now_ms()])?;
    Ok(())
}

/// The epoch has ended: all of it is to be consolidated, and no prompt is made for it any more.
pub fn close(connection: &Connection, session: &str, epoch: i64, first_seq: i64) -> Result<(), StoreError> {
    release_snapshot(connection, session, epoch)?;
    connection
        .prepare_cached(
            "INSERT INTO session_memory (session, epoch, cursor, due, updated_at) VALUES (?1, ?2, ?3, 'new', ?4)
             ON CONFLICT (session, epoch) DO UPDATE SET due = 'new', retry_at = 0, updated_at = excluded.updated_at,
                cursor = max(cursor, excluded.cursor)",
        )?
        .execute(params![session, epoch, first_seq, now_ms()])?;
    Ok(())
}

/// Epochs that are to be consolidated now, those first that may be tried the longest.
pub fn due(connection: &Connection, now: i64, limit: u32) -> Result<Vec<(String, i64, SessionMemory)>, StoreError> {
    let mut statement = connection.prepare_cached(&format!(
        "SELECT session, epoch, {COLUMNS} FROM session_memory
         WHERE due IS NOT NULL AND retry_at <= ? ORDER BY retry_at LIMIT ?"
    ))?;
    let rows = statement.query_map(params![now, limit], |row| Ok((row.get(0)?, row.get(1)?, read(row, 2)?)))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// As [`due`], of one session alone.
pub fn due_of(
    connection: &Connection,
    session: &str,
    now: i64,
) -> Result<Vec<(String, i64, SessionMemory)>, StoreError> {
    let mut statement = connection.prepare_cached(&format!(
        "SELECT session, epoch, {COLUMNS} FROM session_memory
         WHERE session = ? AND due IS NOT NULL AND retry_at <= ? ORDER BY epoch"
    ))?;
    let rows = statement.query_map(params![session, now], |row| Ok((row.get(0)?, row.get(1)?, read(row, 2)?)))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// When the first may be tried of those that are due and put off.
pub fn next_try(connection: &Connection, now: i64) -> Result<Option<i64>, StoreError> {
    let sql = "SELECT min(retry_at) FROM session_memory WHERE due IS NOT NULL AND retry_at > ?";
    Ok(connection.prepare_cached(sql)?.query_row([now], |row| row.get(0))?)
}

/// Sessions that were last used in `from..=to`, in that order, with `least` or more messages of their epoch that no summary
/// tells: the session, its epoch, and when it was used.
pub fn resting(
    connection: &Connection,
    (from, to): (i64, i64),
    least: i64,
    limit: u32,
) -> Result<Vec<(String, i64, i64)>, StoreError> {
    let mut statement = connection.prepare_cached(
        "SELECT s.session, s.epoch, s.updated_at FROM sessions s
         LEFT JOIN session_memory m ON m.session = s.session AND m.epoch = s.epoch
         WHERE s.updated_at >= ?1 AND s.updated_at <= ?2 AND m.due IS NULL
           AND s.next_seq - max(s.first_seq, ifnull(m.cursor, 0)) >= ?3
         ORDER BY s.updated_at LIMIT ?4",
    )?;
    let rows =
        statement.query_map(params![from, to, least, limit], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// When the first session was used that was used after `from`.
pub fn first_used(connection: &Connection, from: i64) -> Result<Option<i64>, StoreError> {
    let sql = "SELECT min(updated_at) FROM sessions WHERE updated_at > ?";
    Ok(connection.prepare_cached(sql)?.query_row([from], |row| row.get(0))?)
}

/// Gives `into` (a session, its epoch, and the seq that its first message has there) the last summary that tells of nothing
/// behind what was copied.
pub fn carry(connection: &Connection, copied: Copied<'_>, into: (&str, i64, i64)) -> Result<(), StoreError> {
    let Some((summary, to)) = last_summary(connection, copied)? else { return Ok(()) };
    let (session, epoch, first) = into;
    let told = (to - copied.from).max(0);
    let overlap = (STILL_SAID - (copied.to - copied.from - told)).clamp(0, told);
    let state = SessionMemory { cursor: first + told, overlap, summary: Some(summary), ..SessionMemory::default() };
    put(connection, session, epoch, &state)
}

/// The last summary that tells of nothing behind `copied.to`, and how far it tells, by the seqs of the session that is copied.
fn last_summary(connection: &Connection, copied: Copied<'_>) -> Result<Option<(i64, i64)>, StoreError> {
    let state = get(connection, copied.session, copied.epoch)?;
    let Some(mut newer) = state.summary else { return Ok(None) };
    // One that came along with a copy counts the messages of another session, or of an older epoch. The cursor counts this
    // one's.
    if state.cursor <= copied.to && super::memories::get(connection, newer)?.is_some() {
        return Ok(Some((newer, state.cursor)));
    }
    let mut before = connection.prepare_cached(
        "SELECT id, session, json_extract(detail, '$.epoch'), json_extract(detail, '$.to') FROM memories
         WHERE replaced_by = ?1 AND id < ?1 AND kind = 'summary' ORDER BY id DESC LIMIT 1",
    )?;
    type Before = (i64, Option<String>, Option<i64>, Option<i64>);
    // Each stands in the place of an older one, so this ends.
    loop {
        let found: Option<Before> =
            before.query_row([newer], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))).optional()?;
        let Some((id, session, epoch, Some(to))) = found else { return Ok(None) };
        if session.as_deref() != Some(copied.session) || epoch != Some(copied.epoch) {
            return Ok(None);
        }
        if to <= copied.to {
            return Ok(Some((id, to)));
        }
        newer = id;
    }
}

/// The text of a snapshot.
pub fn snapshot(connection: &Connection, hash: &str) -> Result<Option<String>, StoreError> {
    let mut statement = connection.prepare_cached("SELECT text FROM snapshots WHERE hash = ?")?;
    Ok(statement.query_row([hash], |row| row.get(0)).optional()?)
}

/// Keeps the text of a snapshot of an owner's memory.
pub fn keep_snapshot(connection: &Connection, hash: &str, owner: &str, text: &str) -> Result<(), StoreError> {
    connection
        .prepare_cached("INSERT INTO snapshots (hash, owner, text) VALUES (?, ?, ?) ON CONFLICT (hash) DO NOTHING")?
        .execute([hash, owner, text])?;
    Ok(())
}

/// The prompts of an epoch hold this snapshot from now on, unless they hold one already.
pub fn set_snapshot(connection: &Connection, session: &str, epoch: i64, hash: &str) -> Result<(), StoreError> {
    connection
        .prepare_cached(
            "INSERT INTO session_memory (session, epoch, snapshot, updated_at) VALUES (?1, ?2, ?3, ?4)
             ON CONFLICT (session, epoch) DO UPDATE SET snapshot = excluded.snapshot, updated_at = excluded.updated_at
                WHERE snapshot IS NULL",
        )?
        .execute(params![session, epoch, hash, now_ms()])?;
    Ok(())
}

/// The prompts of an epoch hold no snapshot any more: its next turn takes a new one. A text that stands in no other prompt is
/// removed.
pub fn release_snapshot(connection: &Connection, session: &str, epoch: i64) -> Result<(), StoreError> {
    let Some(hash) = get(connection, session, epoch)?.snapshot else { return Ok(()) };
    connection
        .prepare_cached("UPDATE session_memory SET snapshot = NULL WHERE session = ? AND epoch = ?")?
        .execute(params![session, epoch])?;
    connection
        .prepare_cached(
            "DELETE FROM snapshots
             WHERE hash = ?1 AND NOT EXISTS (SELECT 1 FROM session_memory WHERE snapshot = ?1)",
        )?
        .execute([hash])?;
    Ok(())
}

/// Removes an owner's snapshots from the store and from all prompts: the next turn of each session takes a new one. What
/// everyone may know stands in all of them.
pub fn drop_snapshots(connection: &Connection, owner: &str) -> Result<(), StoreError> {
    connection
        .prepare_cached(
            "UPDATE session_memory SET snapshot = NULL
             WHERE snapshot IN (SELECT hash FROM snapshots WHERE owner = ?1 OR ?1 = 'everyone')",
        )?
        .execute([owner])?;
    connection.prepare_cached("DELETE FROM snapshots WHERE owner = ?1 OR ?1 = 'everyone'")?.execute([owner])?;
    Ok(())
}

fn read(row: &Row<'_>, at: usize) -> rusqlite::Result<SessionMemory> {
    Ok(SessionMemory {
        cursor: row.get(at)?,
        overlap: row.get(at + 1)?,
        summary: row.get(at + 2)?,
        snapshot: row.get(at + 3)?,
        due: row.get(at + 4)?,
        failures: row.get(at + 5)?,
        retry_at: row.get(at + 6)?,
    })
}
