//! Checkpoints: a conversation can go back to the end of each turn. Nothing is deleted: a restore begins a new epoch with copies
//! of the messages, and a fork is a new session that begins with such copies.

use daoyou_channels::SessionKey;
use rusqlite::{Connection, ToSql, params};
use uuid::Uuid;

use super::inbox::{self, InboxRow, MessageStatus};
use super::messages::SessionHead;
use super::session_memory::{self, SessionMemory};
use super::sql::{
    StoredRow, execute, read_uuid, select_optional, select_optional_parsed, select_parsed, select_value, stored_row,
};
use super::{StoreError, approvals, memories, messages, now_ms, ownership, turn_steps};

/// The maximum number of messages that are copied, the newest ones: many times as many as fit into a request.
const MAX_COPIED: i64 = 10_000;

/// The number of newest messages in which the last checkpoints of a session are searched.
const LOOK_BACK: i64 = 5_000;

/// The minimum number of copied messages that prompts contain literally although the summary covers them.
const MIN_LITERAL: i64 = 8;

/// The fewest characters of an id that identify it.
const MIN_ID_CHARS: usize = 4;

/// The maximum number of checkpoint names of a session; the oldest names are removed.
const MAX_NAMES: u32 = 100;

/// A conversation as it was right after a turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    pub turn: Uuid,
    pub session: String,
    /// The checkpoint's messages by seq: `from..to` of this epoch.
    pub epoch: i64,
    pub from: i64,
    pub to: i64,
}

/// A checkpoint in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckpointSummary {
    pub turn: Uuid,
    /// When the turn ended, UTC milliseconds.
    pub at: i64,
    pub name: Option<String>,
    /// The body of the turn's first user message.
    pub body: String,
}

stored_row! { CheckpointSummary: turn by read_uuid, at, name, body }

/// The reason why a session cannot go back to a checkpoint.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    #[error(
        "{0:?} is not an id; an id looks like 019a2b3c-4d5e-7f60-8a9b-0c1d2e3f4a5b, and {MIN_ID_CHARS} or more characters of it are enough"
    )]
    InvalidId(String),
    #[error("there is no turn {0}; `daoyou turns list` shows all turns")]
    Unknown(String),
    #[error("several turn ids begin with {id}: {}", join_ids(several))]
    Ambiguous { id: String, several: Vec<Uuid> },
    #[error("turn {0} has not ended yet; wait for its reply, or stop it with /stop")]
    Running(Uuid),
    #[error("state_corrupted: the journal of turn {0} was changed after it was written; nothing was restored")]
    Corrupted(Uuid),
    #[error(
        "state_corrupted: message {seq} of the conversation up to turn {turn} was changed or removed after it was written; nothing was restored"
    )]
    Altered { turn: Uuid, seq: i64 },
    #[error("turn {0} has no messages in its conversation (it was a command, or was given up); choose another one")]
    NoMessages(Uuid),
    #[error("the messages of turn {0} were deleted (store.retain.sessions)")]
    MessagesDeleted(Uuid),
    #[error("a turn of session {0} has not ended yet; start the gateway to complete it, then try again")]
    Busy(String),
    #[error("turn {0} is not the last one of its conversation; nothing was restored")]
    NotLast(Uuid),
    #[error("session {0} already exists; choose another name for the new one")]
    Exists(String),
    #[error("{:?} is not a valid session key: {}", .0, SessionKey::RULE)]
    InvalidKey(String),
    #[error("{0:?} names no chat in which the copy can go on; name a channel and a chat, such as cli:work")]
    NoChat(String),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl CheckpointError {
    /// Returns the stable code of the error.
    pub fn code(&self) -> &'static str {
        match self {
            Self::InvalidId(_) | Self::InvalidKey(_) | Self::NoChat(_) => "invalid",
            Self::Unknown(_) => "not_found",
            Self::Ambiguous { .. } => "ambiguous",
            Self::Running(_) | Self::Busy(_) => "running",
            Self::Corrupted(_) | Self::Altered { .. } => "state_corrupted",
            Self::NoMessages(_) => "no_checkpoint",
            Self::MessagesDeleted(_) => "gone",
            Self::NotLast(_) => "not_last",
            Self::Exists(_) => "exists",
            Self::Store(_) => "store",
        }
    }
}

/// Separates failures of the store, which roll back a read or write, from other errors.
pub fn separate_store_errors<T>(result: Result<T, CheckpointError>) -> Result<Result<T, CheckpointError>, StoreError> {
    match result {
        Err(CheckpointError::Store(error)) => Err(error),
        settled => Ok(settled),
    }
}

/// Returns the turn whose id, or the id of one of its messages, starts with `id`.
///
/// # Errors
/// `id` is not the beginning of an id, or fits no turn or several turns; or the store cannot be read.
pub fn find_turn(connection: &Connection, id: &str) -> Result<Uuid, CheckpointError> {
    let found = turns(
        connection,
        "SELECT turn FROM inbox WHERE turn >= ?1 AND turn < ?1 || 'g'
         UNION SELECT turn FROM inbox WHERE id >= ?1 AND id < ?1 || 'g' LIMIT 4",
        &[&id_prefix(id)?],
    )?;
    single_turn(id, &found)
}

/// Returns the turn of this session that `wanted` identifies: a checkpoint's name, a turn's id, or the beginning of an id.
///
/// # Errors
/// `wanted` fits no turn of the session, or several turns; or the store cannot be read.
pub fn find_turn_in_session(connection: &Connection, session: &str, wanted: &str) -> Result<Uuid, CheckpointError> {
    let named = "SELECT turn FROM checkpoint_names WHERE session = ? AND name = ?";
    if let [turn] = turns(connection, named, &[&session, &wanted])?.as_slice() {
        return Ok(*turn);
    }
    // A text that cannot be an id can only be a name, and the session has no such name.
    let beginning = id_prefix(wanted).map_err(|_| CheckpointError::Unknown(wanted.to_owned()))?;
    // The query names the index: otherwise SQLite would read every message of the session.
    let with_prefix = "SELECT DISTINCT turn FROM messages INDEXED BY messages_turn
        WHERE session = ?1 AND turn >= ?2 AND turn < ?2 || 'g' LIMIT 4";
    let found = turns(connection, with_prefix, &[&session, &beginning])?;
    single_turn(wanted, &found)
}

/// Returns the checkpoint right after a turn.
///
/// # Errors
/// [`CheckpointError::Unknown`] if there is no such turn; or those of [`find`].
pub fn of_turn(connection: &Connection, turn: Uuid) -> Result<Checkpoint, CheckpointError> {
    let rows = inbox::of_turn(connection, turn)?;
    let session =
        rows.first().map(|row| row.session.clone()).ok_or_else(|| CheckpointError::Unknown(turn.to_string()))?;
    find(connection, &session, turn)
}

/// Returns the checkpoint of `session` right after `turn`. Fails if a message was changed after it was written, or a step of the
/// turn's journal, as far as the journal still exists.
///
/// # Errors
/// The turn has not ended, has no messages, or was altered after it was written; or the store cannot be read.
pub fn find(connection: &Connection, session: &str, turn: Uuid) -> Result<Checkpoint, CheckpointError> {
    if inbox::of_turn(connection, turn)?.iter().any(InboxRow::is_open) {
        return Err(CheckpointError::Running(turn));
    }
    let steps = turn_steps::of_turn(connection, turn)?;
    if !turn_steps::chain_holds(&steps) {
        return Err(CheckpointError::Corrupted(turn));
    }
    let Some((epoch, to)) = last_message_of(connection, session, turn)? else {
        return Err(if steps.is_empty() {
            CheckpointError::NoMessages(turn)
        } else {
            CheckpointError::MessagesDeleted(turn)
        });
    };
    let from = copy_start(connection, session, epoch, to)?;
    let point = Checkpoint { turn, session: session.to_owned(), epoch, from, to };
    match first_altered(connection, &point)? {
        Some(seq) => Err(CheckpointError::Altered { turn, seq }),
        None => Ok(point),
    }
}

/// Takes the session back to the checkpoint: later messages leave the window and stay in the log. Returns the number of
/// messages that the session has now.
pub fn restore(connection: &Connection, point: &Checkpoint) -> Result<usize, StoreError> {
    messages::new_epoch(connection, &point.session)?;
    copy(connection, point, &point.session)
}

/// Returns true if an unfinished turn of the session was started: only its lane may write the session then.
pub fn is_busy(connection: &Connection, session: &str) -> Result<bool, StoreError> {
    let open = inbox::open_of_session(connection, session, 1)?;
    Ok(open.iter().any(|row| matches!(row.state, MessageStatus::Running | MessageStatus::Waiting)))
}

/// Begins `session`, which must be new, with the conversation of the checkpoint and the model and agent chosen for it.
///
/// # Errors
/// Those of [`check_new`], or the store cannot be written.
pub fn fork(connection: &Connection, point: &Checkpoint, session: &str) -> Result<usize, CheckpointError> {
    check_new(connection, session)?;
    let head = messages::session(connection, &point.session)?;
    messages::set_model(connection, session, head.model.as_deref())?;
    if head.agent.is_some() {
        messages::set_agent(connection, session, head.agent.as_deref())?;
    }
    ownership::copy(connection, &point.session, session)?;
    Ok(copy(connection, point, session)?)
}

/// Checks that a session can begin under this key: the key is valid, and the session has neither messages nor accepted work.
///
/// # Errors
/// [`CheckpointError::InvalidKey`] and [`CheckpointError::Exists`].
pub fn check_new(connection: &Connection, session: &str) -> Result<(), CheckpointError> {
    if !SessionKey::is_valid_choice(session) {
        return Err(CheckpointError::InvalidKey(session.to_owned()));
    }
    let known = "SELECT EXISTS (SELECT 1 FROM sessions WHERE session = ?1)
        OR EXISTS (SELECT 1 FROM inbox INDEXED BY inbox_open WHERE session = ?1 AND state NOT IN ('done', 'dead'))";
    if select_value(connection, known, [session])? {
        return Err(CheckpointError::Exists(session.to_owned()));
    }
    Ok(())
}

/// Returns the last checkpoints of a session, the newest first.
pub fn list(connection: &Connection, session: &str, limit: u32) -> Result<Vec<CheckpointSummary>, StoreError> {
    let from = messages::session(connection, session)?.next_seq - LOOK_BACK;
    // With max(), SQLite takes the other columns from the row of the maximum.
    let sql = "SELECT m.turn, m.at, n.name, m.body, max(n.at)
         FROM (SELECT turn, at, body, max(-seq) FROM messages WHERE session = ?1 AND seq >= ?2 AND role = 'user'
               GROUP BY turn ORDER BY turn DESC LIMIT ?3) m
         LEFT JOIN checkpoint_names n ON n.session = ?1 AND n.turn = m.turn
         GROUP BY m.turn ORDER BY m.turn DESC";
    select_parsed(connection, sql, params![session, from, limit], CheckpointSummary::read)
}

/// Returns the list entry of a checkpoint.
pub fn summary(connection: &Connection, point: &Checkpoint) -> Result<Option<CheckpointSummary>, StoreError> {
    let Checkpoint { turn, session, from, to, .. } = point;
    let sql = "SELECT m.turn, m.at, n.name, m.body FROM messages m
         LEFT JOIN checkpoint_names n ON n.session = m.session AND n.turn = m.turn
         WHERE m.session = ? AND m.turn = ? AND m.seq >= ? AND m.seq < ? AND m.role = 'user' LIMIT 1";
    select_optional_parsed(connection, sql, params![session, turn.to_string(), from, to], CheckpointSummary::read)
}

/// Returns the turn after whose end the session is now, or `None` if its epoch has no messages.
pub fn current_turn(connection: &Connection, session: &str) -> Result<Option<Uuid>, StoreError> {
    let head = messages::session(connection, session)?;
    let sql = "SELECT turn FROM messages WHERE session = ? AND seq >= ? ORDER BY seq DESC LIMIT 1";
    select_optional_parsed(connection, sql, params![session, head.first_seq], |row| read_uuid(row, 0))
}

/// Returns the last turn with messages in the session's epoch other than `turn`.
pub fn turn_before(connection: &Connection, session: &str, turn: Uuid) -> Result<Option<Uuid>, StoreError> {
    let head = messages::session(connection, session)?;
    let sql = "SELECT turn FROM messages WHERE session = ? AND seq >= ? AND turn <> ? ORDER BY seq DESC LIMIT 1";
    select_optional_parsed(connection, sql, params![session, head.first_seq, turn.to_string()], |row| read_uuid(row, 0))
}

/// Returns true if the session's epoch has messages of the turn.
pub fn has_messages(connection: &Connection, session: &str, turn: Uuid) -> Result<bool, StoreError> {
    let head = messages::session(connection, session)?;
    let sql = "SELECT EXISTS (SELECT 1 FROM messages WHERE session = ? AND turn = ? AND seq >= ?)";
    select_value(connection, sql, params![session, turn.to_string(), head.first_seq])
}

/// Names a checkpoint. If another checkpoint of the session has the name, the name moves to this one.
pub fn set_name(connection: &Connection, session: &str, turn: Uuid, name: &str) -> Result<(), StoreError> {
    let sql = "INSERT OR REPLACE INTO checkpoint_names (session, name, turn, at) VALUES (?, ?, ?, ?)";
    execute(connection, sql, params![session, name, turn.to_string(), now_ms()])?;
    let sql = "DELETE FROM checkpoint_names WHERE session = ?1 AND name NOT IN
                (SELECT name FROM checkpoint_names WHERE session = ?1 ORDER BY at DESC, name LIMIT ?2)";
    execute(connection, sql, params![session, MAX_NAMES]).map(drop)
}

/// Returns the beginning of a turn's id. It is the time in milliseconds, which identifies one turn of a session.
pub fn short_id(turn: Uuid) -> String {
    turn.to_string().chars().take(13).collect()
}

/// Returns the first epoch with messages of the turn, and the seq after its last message there; later epochs only copy it.
fn last_message_of(connection: &Connection, session: &str, turn: Uuid) -> Result<Option<(i64, i64)>, StoreError> {
    let sql =
        "SELECT epoch, max(seq) + 1 FROM messages WHERE session = ? AND turn = ? GROUP BY epoch ORDER BY epoch LIMIT 1";
    select_optional(connection, sql, [session, &turn.to_string()], |row| Ok((row.get(0)?, row.get(1)?)))
}

/// Returns the seq of the first message to copy: the beginning of a turn.
fn copy_start(connection: &Connection, session: &str, epoch: i64, to: i64) -> Result<i64, StoreError> {
    let sql = "SELECT ifnull(min(seq) FILTER (WHERE role = 'user'), ?3)
         FROM messages WHERE session = ?1 AND epoch = ?2 AND seq < ?3 AND seq >= ?3 - ?4";
    select_value(connection, sql, params![session, epoch, to, MAX_COPIED])
}

/// Returns the seq of the first message of the checkpoint that is missing, unreadable, or changed.
fn first_altered(connection: &Connection, point: &Checkpoint) -> Result<Option<i64>, StoreError> {
    let Checkpoint { session, epoch, from, to, .. } = point;
    let mut statement = connection.prepare_cached(
        "SELECT seq, role, body, digest, json_valid(body) FROM messages
         WHERE session = ? AND epoch = ? AND seq >= ? AND seq < ? ORDER BY seq",
    )?;
    let mut rows = statement.query(params![session, epoch, from, to])?;
    let mut expected = *from;
    while let Some(row) = rows.next()? {
        let (seq, digest): (i64, Option<Vec<u8>>) = (row.get(0)?, row.get(3)?);
        let is_written = || -> rusqlite::Result<bool> {
            let (role, body) = (row.get_ref(1)?.as_str()?, row.get_ref(2)?.as_str()?);
            Ok(digest.as_deref().is_none_or(|digest| digest == messages::digest(role, body)))
        };
        if seq != expected || !row.get::<_, bool>(4)? || !is_written()? {
            return Ok(Some(expected));
        }
        expected += 1;
    }
    // The seqs of a session have no gaps, so the next message shows whether the end of the checkpoint is missing.
    let sql = "SELECT ifnull((SELECT min(seq) FROM messages WHERE session = ?1 AND seq >= ?2),
                (SELECT next_seq FROM sessions WHERE session = ?1))";
    let next: i64 = select_value(connection, sql, params![session, to])?;
    Ok((expected < next).then_some(expected))
}

/// Appends the checkpoint's messages to the current epoch of `session`.
fn copy(connection: &Connection, point: &Checkpoint, session: &str) -> Result<usize, StoreError> {
    let head = messages::session(connection, session)?;
    let sql = "INSERT INTO messages (session, epoch, seq, role, body, turn, at, digest)
             SELECT ?1, ?2, ?3 + row_number() OVER (ORDER BY seq) - 1, role, body, turn, at, digest FROM messages
             WHERE session = ?4 AND epoch = ?5 AND seq >= ?6 AND seq < ?7";
    let copied = execute(
        connection,
        sql,
        params![session, head.epoch, head.next_seq, point.session, point.epoch, point.from, point.to],
    )?;
    let sql = "UPDATE sessions SET next_seq = next_seq + ?, updated_at = ?, used_at = NULL WHERE session = ?";
    execute(connection, sql, params![copied, now_ms(), session])?;
    carry_over_summary(connection, point, session, &head)?;
    // The copied messages may contain foreign content.
    let taint = approvals::taint_of_epoch(connection, &point.session, point.epoch)?;
    approvals::add_taint(connection, session, head.epoch, &taint)?;
    Ok(copied)
}

/// Gives a session, whose `head` is that before the messages were copied, the last summary that covers no message after the
/// copied ones.
fn carry_over_summary(
    connection: &Connection,
    copied: &Checkpoint,
    session: &str,
    head: &SessionHead,
) -> Result<(), StoreError> {
    let Some((summary, to)) = last_summary(connection, copied)? else { return Ok(()) };
    let summarized = (to - copied.from).max(0);
    let overlap = (MIN_LITERAL - (copied.to - copied.from - summarized)).clamp(0, summarized);
    let cursor = head.next_seq + summarized;
    let state = SessionMemory { cursor, overlap, summary: Some(summary), ..SessionMemory::default() };
    session_memory::put(connection, session, head.epoch, &state)
}

/// Returns the last summary that covers no message after `copied.to`, and its position as a seq of the source.
fn last_summary(connection: &Connection, copied: &Checkpoint) -> Result<Option<(i64, i64)>, StoreError> {
    let state = session_memory::get(connection, &copied.session, copied.epoch)?;
    let Some(mut newer) = state.summary else { return Ok(None) };
    // A summary that came with a copy counts the messages of another session or epoch, but the cursor uses the seqs of this one.
    if state.cursor <= copied.to && memories::find(connection, newer)?.is_some() {
        return Ok(Some((newer, state.cursor)));
    }
    let sql = "SELECT id, session, json_extract(detail, '$.epoch'), json_extract(detail, '$.to') FROM memories
         WHERE replaced_by = ?1 AND id < ?1 AND kind = 'summary' ORDER BY id DESC LIMIT 1";
    type Before = (i64, Option<String>, Option<i64>, Option<i64>);
    // Ends, because each summary replaced an older one.
    loop {
        let found: Option<Before> =
            select_optional(connection, sql, [newer], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)))?;
        let Some((id, session, epoch, Some(to))) = found else { return Ok(None) };
        if session.as_ref() != Some(&copied.session) || epoch != Some(copied.epoch) {
            return Ok(None);
        }
        if to <= copied.to {
            return Ok(Some((id, to)));
        }
        newer = id;
    }
}

/// Checks that `id` can be an id or its beginning, and returns it in lower case.
fn id_prefix(id: &str) -> Result<String, CheckpointError> {
    let is_id = (MIN_ID_CHARS..=36).contains(&id.len()) && id.chars().all(|c| c.is_ascii_hexdigit() || c == '-');
    if is_id { Ok(id.to_ascii_lowercase()) } else { Err(CheckpointError::InvalidId(id.to_owned())) }
}

fn turns(connection: &Connection, sql: &str, parameters: &[&dyn ToSql]) -> Result<Vec<Uuid>, StoreError> {
    select_parsed(connection, sql, parameters, |row| read_uuid(row, 0))
}

fn single_turn(id: &str, turns: &[Uuid]) -> Result<Uuid, CheckpointError> {
    match turns {
        [] => Err(CheckpointError::Unknown(id.to_owned())),
        [turn] => Ok(*turn),
        several => Err(CheckpointError::Ambiguous { id: id.to_owned(), several: several.to_vec() }),
    }
}

fn join_ids(turns: &[Uuid]) -> String {
    turns.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
#[path = "checkpoints_tests.rs"]
mod tests;
