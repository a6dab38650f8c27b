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
    /// Others have written there, too. Once so, it stays so, unless `[identities]` say that all of them are one.
    pub is_shared: bool,
}

impl Ownership {
    /// Whose memory what is said there belongs to: nobody's, where others write, or the one who does is a stranger.
    pub fn private_owner(&self) -> Option<&str> {
        self.owner.as_deref().filter(|owner| !self.is_shared && !owner.starts_with("stranger:"))
    }
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

/// Whose the session is from now on. What its prompts hold of anybody's memory is taken anew.
pub fn set(connection: &Connection, session: &str, ownership: &Ownership) -> Result<(), StoreError> {
    connection.prepare_cached("UPDATE sessions SET owner = ?, is_shared = ? WHERE session = ?")?.execute(params![
        ownership.owner,
        ownership.is_shared,
        session
    ])?;
    let epoch = super::messages::session(connection, session)?.epoch;
    session_memory::release_snapshot(connection, session, epoch)
}

/// By which identities it was last looked whether the session is one person's.
pub fn read_by(connection: &Connection, session: &str) -> Result<Option<String>, StoreError> {
    let mut statement = connection.prepare_cached("SELECT read_by FROM sessions WHERE session = ?")?;
    Ok(statement.query_row([session], |row| row.get(0)).optional()?.flatten())
}

/// It was looked by these.
pub fn set_read_by(connection: &Connection, session: &str, identities: &str) -> Result<(), StoreError> {
    connection
        .prepare_cached("UPDATE sessions SET read_by = ? WHERE session = ?")?
        .execute(params![identities, session])?;
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
    answered(connection, turns.collect::<Result<_, _>>()?)
}

/// As [`writers`], of all turns of the log in no order; `None` where there are more than `most`.
pub fn all_writers(connection: &Connection, session: &str, most: u32) -> Result<Option<Vec<InboxRow>>, StoreError> {
    let mut statement =
        connection.prepare_cached("SELECT DISTINCT turn FROM messages WHERE session = ?1 LIMIT ?2 + 1")?;
    let turns = statement.query_map(params![session, most], |row| row.get::<_, String>(0))?;
    let turns: Vec<String> = turns.collect::<Result<_, _>>()?;
    let is_too_many = u32::try_from(turns.len()).is_ok_and(|count| count > most);
    if is_too_many { Ok(None) } else { answered(connection, turns).map(Some) }
}

/// The last message that each turn answers; those of what was imported answer none.
fn answered(connection: &Connection, turns: Vec<String>) -> Result<Vec<InboxRow>, StoreError> {
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
