//! Whose a session is: the first one's who wrote there, and whether others have written there since.

use rusqlite::{Connection, OptionalExtension, params};

use super::inbox::{self, InboxRow};
use super::{StoreError, session_memory};

/// Messages of a session that are looked through for who has written there.
const LOOK_BACK: u32 = 2_000;

/// Whose a session is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ownership {
    /// Nobody's yet without.
    pub owner: Option<String>,
    /// Others have written there, too. Once so, it stays so.
    pub is_shared: bool,
}

/// Whose the session is; an unknown one is nobody's.
pub fn of(connection: &Connection, session: &str) -> Result<Ownership, StoreError> {
    let mut statement = connection.prepare_cached("SELECT owner, is_shared FROM sessions WHERE session = ?")?;
    let found = statement
        .query_row([session], |row| Ok(Ownership { owner: row.get(0)?, is_shared: row.get(1)? }))
        .optional()?;
    Ok(found.unwrap_or_default())
}

/// `owner` writes there. A session that is nobody's, and is in the store, becomes his.
pub fn write_there(connection: &Connection, session: &str, owner: &str) -> Result<(), StoreError> {
    let Ownership { owner: first, is_shared } = of(connection, session)?;
    match first {
        None => {
            connection
                .prepare_cached("UPDATE sessions SET owner = ? WHERE session = ?")?
                .execute(params![owner, session])?;
        }
        Some(first) if first != owner && !is_shared => {
            connection.prepare_cached("UPDATE sessions SET is_shared = 1 WHERE session = ?")?.execute([session])?;
            let epoch = super::messages::session(connection, session)?.epoch;
            session_memory::release_snapshot(connection, session, epoch)?;
        }
        Some(_) => {}
    }
    Ok(())
}

/// A session that begins with the messages of another one is as much shared, and its owner's.
pub fn copy(connection: &Connection, from: &str, to: &str) -> Result<(), StoreError> {
    let Ownership { owner, is_shared } = of(connection, from)?;
    connection
        .prepare_cached("UPDATE sessions SET owner = ?, is_shared = ? WHERE session = ?")?
        .execute(params![owner, is_shared, to])?;
    Ok(())
}

/// All that is `old`'s is `new`'s: memories and sessions. Answers whether there was anything.
pub fn hand_over(connection: &Connection, old: &str, new: &str) -> Result<bool, StoreError> {
    let memories =
        connection.prepare_cached("UPDATE memories SET owner = ?2 WHERE owner = ?1")?.execute(params![old, new])?;
    let sessions =
        connection.prepare_cached("UPDATE sessions SET owner = ?2 WHERE owner = ?1")?.execute(params![old, new])?;
    Ok(memories + sessions > 0)
}

/// Memories of those who have a name: id, owner, and the turn that each comes from.
pub fn of_names(connection: &Connection) -> Result<Vec<(i64, String, Option<String>)>, StoreError> {
    let mut statement = connection.prepare_cached(
        "SELECT id, owner, turn FROM memories WHERE owner >= 'name:' AND owner < 'name;' ORDER BY id",
    )?;
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// A memory is this owner's from now on.
pub fn give_memory(connection: &Connection, memory: i64, owner: &str) -> Result<(), StoreError> {
    connection.prepare_cached("UPDATE memories SET owner = ?2 WHERE id = ?1")?.execute(params![memory, owner])?;
    Ok(())
}

/// The messages whose turns stand last in the session's log, one of each turn, the oldest first.
pub fn writers(connection: &Connection, session: &str) -> Result<Vec<InboxRow>, StoreError> {
    let mut statement = connection.prepare_cached(
        "SELECT turn FROM (SELECT turn, seq FROM messages WHERE session = ? ORDER BY seq DESC LIMIT ?)
         GROUP BY turn ORDER BY min(seq)",
    )?;
    let turns = statement.query_map(params![session, LOOK_BACK], |row| row.get::<_, String>(0))?;
    let turns: Vec<String> = turns.collect::<Result<_, _>>()?;
    let mut rows = Vec::with_capacity(turns.len());
    for turn in turns {
        let Ok(turn) = turn.parse() else { continue };
        rows.extend(inbox::of_turn(connection, turn)?.pop());
    }
    Ok(rows)
}

/// The message that the last turn of the session's log answers.
pub fn last_writer(connection: &Connection, session: &str) -> Result<Option<InboxRow>, StoreError> {
    let mut statement =
        connection.prepare_cached("SELECT turn FROM messages WHERE session = ? ORDER BY seq DESC LIMIT 1")?;
    let turn = statement.query_row([session], |row| row.get::<_, String>(0)).optional()?;
    // What was imported may have turns of another kind.
    Ok(match turn.and_then(|turn| turn.parse().ok()) {
        Some(turn) => inbox::of_turn(connection, turn)?.pop(),
        None => None,
    })
}
