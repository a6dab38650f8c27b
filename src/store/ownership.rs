//! The owner of each session: the first writer, and whether others have written in it.

use rusqlite::{Connection, params};

use super::inbox::{self, InboxRow};
use super::messages::{self, Ownership, SessionHead};
use super::sql::{execute, select, select_optional};
use super::{StoreError, session_memory};

/// The number of newest messages that are searched for writers of a session.
const LOOK_BACK: u32 = 2_000;

/// The most recently used sessions that are searched.
const MAX_SEARCHED: u32 = 20;

/// Returns the owner of a session; an unknown session has none.
pub fn of_session(connection: &Connection, session: &str) -> Result<Ownership, StoreError> {
    Ok(messages::session(connection, session)?.ownership)
}

/// Records that `owner` writes in the session, and makes `owner` the owner of a stored session that has none.
pub fn record_writer(connection: &Connection, session: &str, owner: &str) -> Result<(), StoreError> {
    let SessionHead { epoch, ownership, .. } = messages::session(connection, session)?;
    match ownership.owner {
        None => execute(connection, "UPDATE sessions SET owner = ? WHERE session = ?", [owner, session]).map(drop),
        Some(first) if first != owner && !ownership.is_shared => {
            execute(connection, "UPDATE sessions SET is_shared = 1 WHERE session = ?", [session])?;
            session_memory::release_snapshot(connection, session, epoch)
        }
        Some(_) => Ok(()),
    }
}

/// Sets the owner of a session, and removes the memory snapshot from its prompts.
pub fn set(connection: &Connection, session: &str, ownership: &Ownership) -> Result<(), StoreError> {
    write(connection, session, ownership)?;
    let epoch = messages::session(connection, session)?.epoch;
    session_memory::release_snapshot(connection, session, epoch)
}

fn write(connection: &Connection, session: &str, ownership: &Ownership) -> Result<(), StoreError> {
    let sql = "UPDATE sessions SET owner = ?, is_shared = ? WHERE session = ?";
    execute(connection, sql, params![ownership.owner, ownership.is_shared, session]).map(drop)
}

/// Returns the digest of `[identities]` with which the owner was last determined.
pub fn identities_digest(connection: &Connection, session: &str) -> Result<Option<String>, StoreError> {
    let sql = "SELECT identities_digest FROM sessions WHERE session = ?";
    Ok(select_optional(connection, sql, [session], |row| row.get(0))?.flatten())
}

/// Records the digest of `[identities]` with which the owner was determined.
pub fn set_identities_digest(connection: &Connection, session: &str, digest: &str) -> Result<(), StoreError> {
    let sql = "UPDATE sessions SET identities_digest = ? WHERE session = ?";
    execute(connection, sql, params![digest, session]).map(drop)
}

/// Copies the owner of a session to a session that begins with its messages.
pub fn copy(connection: &Connection, from: &str, to: &str) -> Result<(), StoreError> {
    write(connection, to, &of_session(connection, from)?)
}

/// Transfers all memories and sessions of `old` to `new`; returns whether there were any.
pub fn transfer(connection: &Connection, old: &str, new: &str) -> Result<bool, StoreError> {
    let memories = execute(connection, "UPDATE memories SET owner = ?2 WHERE owner = ?1", params![old, new])?;
    let sessions = execute(connection, "UPDATE sessions SET owner = ?2 WHERE owner = ?1", params![old, new])?;
    Ok(memories + sessions > 0)
}

/// Returns the id, owner and source turn of the memories whose owner is a name.
pub fn memories_of_names(connection: &Connection) -> Result<Vec<(i64, String, Option<String>)>, StoreError> {
    let sql = "SELECT id, owner, turn FROM memories WHERE owner >= 'name:' AND owner < 'name;' ORDER BY id";
    select(connection, sql, [], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
}

/// Returns the messages of the last turns in the session's log, one for each turn, the oldest first.
pub fn writers(connection: &Connection, session: &str) -> Result<Vec<InboxRow>, StoreError> {
    let sql = "SELECT turn FROM (SELECT turn, seq FROM messages WHERE session = ? ORDER BY seq DESC LIMIT ?)
         GROUP BY turn ORDER BY min(seq)";
    answered_messages(connection, select(connection, sql, params![session, LOOK_BACK], |row| row.get(0))?)
}

/// Returns the messages of all turns in the session's log, one for each turn, unordered; `None` if there are more than
/// `most` turns.
pub fn all_writers(connection: &Connection, session: &str, most: u32) -> Result<Option<Vec<InboxRow>>, StoreError> {
    let sql = "SELECT DISTINCT turn FROM messages WHERE session = ?1 LIMIT ?2 + 1";
    let turns: Vec<String> = select(connection, sql, params![session, most], |row| row.get(0))?;
    let is_too_many = u32::try_from(turns.len()).is_ok_and(|count| count > most);
    if is_too_many { Ok(None) } else { answered_messages(connection, turns).map(Some) }
}

/// Returns the last message that each turn answers; imported turns answer none.
fn answered_messages(connection: &Connection, turns: Vec<String>) -> Result<Vec<InboxRow>, StoreError> {
    let mut rows = Vec::with_capacity(turns.len());
    for turn in turns {
        let Ok(turn) = turn.parse() else { continue };
        rows.extend(inbox::of_turn(connection, turn)?.pop());
    }
    Ok(rows)
}

/// Returns the message that the last turn of the session's log answers.
pub fn last_writer(connection: &Connection, session: &str) -> Result<Option<InboxRow>, StoreError> {
    let sql = "SELECT turn FROM messages WHERE session = ? ORDER BY seq DESC LIMIT 1";
    Ok(answered_messages(connection, select(connection, sql, [session], |row| row.get(0))?)?.pop())
}

/// Returns the sessions `CHANNEL:CHAT:…` whose last message came from this chat, the last used first.
pub fn sessions_of_senders(
    connection: &Connection,
    channel: &str,
    chat_id: &str,
    limit: u32,
) -> Result<Vec<String>, StoreError> {
    // Another chat's key may begin with the same text, and notes belong to no channel.
    let sql = "SELECT session FROM (
                   SELECT session, updated_at FROM sessions WHERE session > ?1 || ':' AND session < ?1 || ';'
                   ORDER BY updated_at DESC LIMIT ?5) s
               WHERE (SELECT i.channel = ?2 AND i.chat_id = ?3 FROM messages m CROSS JOIN inbox i ON i.turn = m.turn
                      WHERE m.session = s.session AND i.channel <> 'daoyou' ORDER BY m.seq DESC LIMIT 1)
               ORDER BY updated_at DESC LIMIT ?4";
    let chat = format!("{channel}:{chat_id}");
    select(connection, sql, params![chat, channel, chat_id, limit, MAX_SEARCHED], |row| row.get(0))
}
