//! The words that memories and messages are found by: rows only. What a term is, and what fits a question, is `memory`'s.

use std::collections::HashSet;

use rusqlite::{Connection, OptionalExtension, params};

use super::{StoreError, meta};

/// Tables that are made from others: a mended database begins without them.
pub const MADE: [&str; 6] = ["said_codes", "said", "said_vectors", "unsaid", "said_owners", "indexed"];

/// Where words stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shelf {
    /// By a memory's id.
    Memories,
    /// By the id of a message that can be found.
    Said,
}

impl Shelf {
    pub const ALL: [Self; 2] = [Self::Memories, Self::Said];

    fn table(self) -> &'static str {
        match self {
            Self::Memories => "memory_words",
            Self::Said => "said_words",
        }
    }

    fn ids(self) -> &'static str {
        match self {
            Self::Memories => "memories",
            Self::Said => "said",
        }
    }
}

/// A message that can be found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said {
    pub id: i64,
    pub session: String,
    pub seq: i64,
    /// Empty is nobody's.
    pub owner: String,
    pub speaker: String,
    pub epoch: i64,
    pub role: String,
    /// JSON.
    pub body: String,
    /// UTC milliseconds.
    pub at: i64,
}

/// A message that is to be found.
#[derive(Clone, Debug)]
pub struct NewSaid {
    pub seq: i64,
    /// As it was read; a message that says something else by now is left out.
    pub body: String,
    pub owner: String,
    pub speaker: String,
    pub words: String,
}

/// A message that is not found yet.
#[derive(Clone, Debug)]
pub struct Unread {
    pub seq: i64,
    pub role: String,
    /// JSON.
    pub body: String,
    pub turn: String,
}

/// The ids that `ask`, an expression of terms, fits, the newest first.
pub fn find(connection: &Connection, shelf: Shelf, ask: &str, limit: usize) -> Result<Vec<i64>, StoreError> {
    let table = shelf.table();
    let sql = format!("SELECT rowid FROM {table} WHERE {table} MATCH ? ORDER BY rowid DESC LIMIT ?");
    let mut statement = connection.prepare_cached(&sql)?;
    let rows = statement.query_map(params![ask, limit], |row| row.get(0))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// The highest id: about how many there are.
pub fn size(connection: &Connection, shelf: Shelf) -> Result<i64, StoreError> {
    let sql = format!("SELECT ifnull(max(id), 0) FROM {}", shelf.ids());
    Ok(connection.prepare_cached(&sql)?.query_row([], |row| row.get(0))?)
}

/// Whether there is anything of others than these owners.
pub fn has_others(connection: &Connection, shelf: Shelf, owners: &[&str]) -> Result<bool, StoreError> {
    let next = match shelf {
        Shelf::Memories => "SELECT min(owner) FROM memories WHERE replaced_by IS NULL AND owner > ?",
        Shelf::Said => "SELECT min(owner) FROM said_owners WHERE owner > ?",
    };
    let mut statement = connection.prepare_cached(next)?;
    // The empty owner is nobody, and comes before all; one asks for nobody's by name alone.
    if shelf == Shelf::Said && !owners.contains(&"") {
        let nobody = "SELECT EXISTS (SELECT 1 FROM said_owners WHERE owner = '')";
        if connection.prepare_cached(nobody)?.query_row([], |row| row.get(0))? {
            return Ok(true);
        }
    }
    let mut last = String::new();
    while let Some(owner) = statement.query_row([&last], |row| row.get::<_, Option<String>>(0))? {
        if !owners.contains(&owner.as_str()) {
            return Ok(true);
        }
        last = owner;
    }
    Ok(false)
}

/// Has a memory found by these words, and by no others.
pub fn put_memory(connection: &Connection, id: i64, words: &str) -> Result<(), StoreError> {
    connection
        .prepare_cached("INSERT OR REPLACE INTO memory_words (rowid, words) VALUES (?, ?)")?
        .execute(params![id, words])?;
    Ok(())
}

/// Has a memory found no more.
pub fn remove_memory(connection: &Connection, id: i64) -> Result<(), StoreError> {
    connection.prepare_cached("DELETE FROM memory_words WHERE rowid = ?")?.execute([id])?;
    Ok(())
}

/// The ids of what is known now, from `from` on, in order.
pub fn memory_ids(connection: &Connection, from: i64, limit: usize) -> Result<Vec<i64>, StoreError> {
    let mut statement = connection
        .prepare_cached("SELECT id FROM memories WHERE id >= ? AND replaced_by IS NULL ORDER BY id LIMIT ?")?;
    let rows = statement.query_map(params![from, limit], |row| row.get(0))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

const SAID: &str = "SELECT s.id, s.session, s.seq, s.owner, s.speaker, m.epoch, m.role, m.body, m.at
    FROM said s JOIN messages m ON m.session = s.session AND m.seq = s.seq";

/// The message of this id, as long as it is there.
pub fn said(connection: &Connection, id: i64) -> Result<Option<Said>, StoreError> {
    one(connection, &format!("{SAID} WHERE s.id = ?"), params![id])
}

/// The message of this place, if it can be found.
pub fn said_at(connection: &Connection, session: &str, seq: i64) -> Result<Option<Said>, StoreError> {
    one(connection, &format!("{SAID} WHERE s.session = ? AND s.seq = ?"), params![session, seq])
}

/// The ids of all that can be found of a session.
pub fn of_session(connection: &Connection, session: &str) -> Result<HashSet<i64>, StoreError> {
    let mut statement = connection.prepare_cached("SELECT id FROM said WHERE session = ?")?;
    let rows = statement.query_map([session], |row| row.get(0))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// What was said right before and right after a message.
pub fn beside(connection: &Connection, session: &str, seq: i64) -> Result<[Option<Said>; 2], StoreError> {
    let before = format!("{SAID} WHERE s.session = ? AND s.seq < ? ORDER BY s.seq DESC LIMIT 1");
    let after = format!("{SAID} WHERE s.session = ? AND s.seq > ? ORDER BY s.seq LIMIT 1");
    Ok([one(connection, &before, params![session, seq])?, one(connection, &after, params![session, seq])?])
}

/// Sessions with messages that are not found yet, used since `since`: the key, where they begin, and where the log ends.
pub fn behind(connection: &Connection, since: i64, limit: usize) -> Result<Vec<(String, i64, i64)>, StoreError> {
    let mut statement = connection.prepare_cached(
        "SELECT s.session, ifnull(i.seq, 0), s.next_seq
         FROM sessions s INDEXED BY sessions_used LEFT JOIN indexed i ON i.session = s.session
         WHERE s.updated_at >= ? AND s.next_seq > ifnull(i.seq, 0) ORDER BY s.updated_at DESC LIMIT ?",
    )?;
    let rows = statement.query_map(params![since, limit], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// What people and the model said in `from..to` of a session, the first `limit` of it.
pub fn unread(
    connection: &Connection,
    session: &str,
    (from, to): (i64, i64),
    limit: usize,
) -> Result<Vec<Unread>, StoreError> {
    let mut statement = connection.prepare_cached(
        "SELECT seq, role, body, turn FROM messages
         WHERE session = ? AND seq >= ? AND seq < ? AND role IN ('user', 'assistant')
         ORDER BY seq LIMIT ?",
    )?;
    let rows = statement.query_map(params![session, from, to, limit], |row| {
        Ok(Unread { seq: row.get(0)?, role: row.get(1)?, body: row.get(2)?, turn: row.get(3)? })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Whose a session is.
pub fn session_owner(connection: &Connection, session: &str) -> Result<Option<String>, StoreError> {
    let mut statement = connection.prepare_cached("SELECT owner FROM sessions WHERE session = ?")?;
    Ok(statement.query_row([session], |row| row.get(0)).optional()?.flatten())
}

/// Has the messages of `from..to` of a session found; answers whether they were next.
pub fn put_said(
    connection: &Connection,
    session: &str,
    (from, to): (i64, i64),
    messages: &[NewSaid],
) -> Result<bool, StoreError> {
    let moved = connection
        .prepare_cached(
            "INSERT INTO indexed (session, seq) SELECT ?1, ?3 WHERE ?2 = 0 OR EXISTS (SELECT 1 FROM indexed WHERE session = ?1)
             ON CONFLICT (session) DO UPDATE SET seq = excluded.seq WHERE seq = ?2",
        )?
        .execute(params![session, from, to])?;
    if moved == 0 {
        return Ok(false);
    }
    let mut place = connection.prepare_cached(
        "INSERT OR IGNORE INTO said (session, seq, owner, speaker)
         SELECT session, seq, ?4, ?5 FROM messages WHERE session = ?1 AND seq = ?2 AND body = ?3",
    )?;
    let mut words = connection.prepare_cached("INSERT INTO said_words (rowid, words) VALUES (?, ?)")?;
    let mut owner = connection.prepare_cached("INSERT OR IGNORE INTO said_owners VALUES (?)")?;
    for message in messages {
        if place.execute(params![session, message.seq, message.body, message.owner, message.speaker])? > 0 {
            words.execute(params![connection.last_insert_rowid(), message.words])?;
            owner.execute([&message.owner])?;
        }
    }
    Ok(true)
}

/// Has the messages of a turn found no more; their words go with the next [`sweep`].
pub fn unsay(connection: &Connection, session: &str, turn: &str) -> Result<(), StoreError> {
    let of_turn = "SELECT s.id FROM messages m JOIN said s ON s.session = m.session AND s.seq = m.seq
                   WHERE m.session = ?1 AND m.turn = ?2";
    connection.prepare_cached(&format!("INSERT OR IGNORE INTO unsaid {of_turn}"))?.execute([session, turn])?;
    connection.prepare_cached(&format!("DELETE FROM said WHERE id IN ({of_turn})"))?.execute([session, turn])?;
    Ok(())
}

/// As [`unsay`], one message.
pub fn unsay_one(connection: &Connection, session: &str, seq: i64) -> Result<(), StoreError> {
    let of_message = "SELECT id FROM said WHERE session = ?1 AND seq = ?2";
    connection.prepare_cached(&format!("INSERT OR IGNORE INTO unsaid {of_message}"))?.execute(params![session, seq])?;
    connection.prepare_cached("DELETE FROM said WHERE session = ?1 AND seq = ?2")?.execute(params![session, seq])?;
    Ok(())
}

/// Whether words are left of messages that are gone.
pub fn has_unsaid(connection: &Connection) -> Result<bool, StoreError> {
    Ok(connection.prepare_cached("SELECT EXISTS (SELECT 1 FROM unsaid)")?.query_row([], |row| row.get(0))?)
}

/// Removes the words of messages that are gone, of `limit` at most.
pub fn sweep(connection: &Connection, limit: usize) -> Result<(), StoreError> {
    let mut statement = connection.prepare_cached("SELECT id FROM unsaid LIMIT ?")?;
    let gone = statement.query_map([limit], |row| row.get(0))?.collect::<Result<Vec<i64>, _>>()?;
    let mut words = connection.prepare_cached("DELETE FROM said_words WHERE rowid = ?")?;
    let mut done = connection.prepare_cached("DELETE FROM unsaid WHERE id = ?")?;
    for id in &gone {
        words.execute([id])?;
        done.execute([id])?;
    }
    Ok(())
}

/// Writes the words of all memories anew, so that nothing is left of those that were removed. They are few beside those of
/// messages.
pub fn purge_memories(connection: &Connection) -> Result<(), StoreError> {
    connection.prepare_cached("INSERT INTO memory_words (memory_words) VALUES ('optimize')")?.execute([])?;
    Ok(())
}

/// Writes a part of the messages' words anew, so that nothing is left of what was removed: `begins` at the first of several
/// calls. Answers whether there is more to do.
pub fn purge_said(connection: &Connection, begins: bool) -> Result<bool, StoreError> {
    /// Pages; some milliseconds.
    const PIECE: i64 = 64;
    let changes =
        |connection: &Connection| connection.query_row("SELECT total_changes()", [], |row| row.get::<_, i64>(0));
    let before = changes(connection)?;
    connection
        .prepare_cached("INSERT INTO said_words (said_words, rank) VALUES ('merge', ?)")?
        .execute([if begins { -PIECE } else { PIECE }])?;
    // https://www.sqlite.org/fts5.html#the_merge_command
    Ok(changes(connection)? - before >= 2)
}

/// Empties everything, were it damaged.
pub fn clear(connection: &Connection) -> Result<(), StoreError> {
    for shelf in Shelf::ALL {
        let table = shelf.table();
        let make: String =
            connection.query_row("SELECT sql FROM sqlite_schema WHERE name = ?", [table], |row| row.get(0))?;
        connection.execute_batch(&format!("DROP TABLE {table}; {make};"))?;
    }
    // With triggers SQLite deletes row by row: a million rows would hold up everybody for ten seconds.
    let triggers = triggers(connection, &["said", "said_vectors"])?;
    for (name, _) in &triggers {
        connection.execute_batch(&format!("DROP TRIGGER {name}"))?;
    }
    for table in MADE {
        connection.execute_batch(&format!("DELETE FROM {table}"))?;
    }
    for (_, make) in &triggers {
        connection.execute_batch(make)?;
    }
    meta::set(connection, meta::VECTORS_SAID, "")?;
    // Ids are a measure of how many there are.
    connection.execute("DELETE FROM sqlite_sequence WHERE name = 'said'", [])?;
    Ok(())
}

/// The triggers of tables: their names, and what makes them.
fn triggers(connection: &Connection, tables: &[&str]) -> Result<Vec<(String, String)>, StoreError> {
    let mut statement = connection.prepare("SELECT name, sql, tbl_name FROM sqlite_schema WHERE type = 'trigger'")?;
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get::<_, String>(2)?)))?;
    let all = rows.collect::<Result<Vec<(String, String, String)>, _>>()?;
    let of_these = all.into_iter().filter(|(_, _, table)| tables.contains(&table.as_str()));
    Ok(of_these.map(|(name, make, _)| (name, make)).collect())
}

/// What is wrong with the index, in SQLite's words or ours; nothing if it is sound. Reads all of it.
pub fn faults(connection: &Connection) -> Result<Vec<String>, StoreError> {
    let mut faults = Vec::new();
    for shelf in Shelf::ALL {
        let table = shelf.table();
        // The check believes what this connection has seen of the index before, however long ago; a look at it asks anew.
        connection.query_row(&format!("SELECT EXISTS (SELECT 1 FROM {table} WHERE rowid = 0)"), [], |_| Ok(()))?;
        let mut statement = connection.prepare(&format!("PRAGMA integrity_check({table})"))?;
        let lines = statement.query_map([], |row| row.get::<_, String>(0))?.collect::<Result<Vec<_>, _>>()?;
        faults.extend(lines.into_iter().filter(|line| line != "ok"));
    }
    let missing: i64 = connection.query_row(
        "SELECT count(*) FROM said WHERE id NOT IN (SELECT id FROM said_words_docsize)",
        [],
        |row| row.get(0),
    )?;
    if missing > 0 {
        faults.push(format!("{missing} messages have no words"));
    }
    Ok(faults)
}

fn one(connection: &Connection, sql: &str, parameters: &[&dyn rusqlite::ToSql]) -> Result<Option<Said>, StoreError> {
    let read = |row: &rusqlite::Row<'_>| {
        Ok(Said {
            id: row.get(0)?,
            session: row.get(1)?,
            seq: row.get(2)?,
            owner: row.get(3)?,
            speaker: row.get(4)?,
            epoch: row.get(5)?,
            role: row.get(6)?,
            body: row.get(7)?,
            at: row.get(8)?,
        })
    };
    Ok(connection.prepare_cached(sql)?.query_row(parameters, read).optional()?)
}
