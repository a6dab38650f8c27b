//! The search index: the terms by which memories and messages are found; rows only. The `memory` module defines terms and queries.

use std::collections::HashSet;

use rusqlite::{Connection, Params, params};

use super::sql::{StoredRow, execute, find_rows, select, select_optional_parsed, select_value, stored_row};
use super::{StoreError, meta};

/// Tables that are derived from others. A repaired database begins without them.
pub const DERIVED_TABLES: [&str; 6] =
    ["message_codes", "indexed_messages", "message_vectors", "index_deletions", "message_owners", "index_progress"];

/// The kind of entries to search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SearchCorpus {
    /// Memories, by their ids.
    Memories,
    /// Messages, by their ids in the index.
    Messages,
}

impl SearchCorpus {
    pub const ALL: [Self; 2] = [Self::Memories, Self::Messages];

    /// Returns the beginning of the names of the tables that are derived from the entries: `…_words`, `…_vectors`, `…_codes`. It is
    /// also the column of the entry's id in the table of vectors.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Memories => "memory",
            Self::Messages => "message",
        }
    }

    /// Returns the table with the ids and the owners of the entries.
    pub(super) fn entries(self) -> &'static str {
        match self {
            Self::Memories => "memories",
            Self::Messages => "indexed_messages",
        }
    }

    fn words(self) -> String {
        format!("{}_words", self.name())
    }
}

/// An indexed message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexedMessage {
    pub id: i64,
    pub session: String,
    pub seq: i64,
    /// The owner of the session; empty if it has none.
    pub owner: String,
    pub speaker: String,
    pub epoch: i64,
    pub role: String,
    /// JSON.
    pub body: String,
    /// UTC milliseconds.
    pub at: i64,
}

stored_row! { IndexedMessage: id, session, seq, owner, speaker, epoch, role, body, at }

/// A message to index.
#[derive(Clone, Debug)]
pub struct NewIndexedMessage {
    pub seq: i64,
    /// The body at the time of reading. A message whose body has changed since is skipped.
    pub body: String,
    pub owner: String,
    pub speaker: String,
    pub words: String,
}

/// A message that is not indexed yet.
#[derive(Clone, Debug)]
pub struct UnindexedMessage {
    pub seq: i64,
    pub role: String,
    /// JSON.
    pub body: String,
    pub turn: String,
}

stored_row! { UnindexedMessage: seq, role, body, turn }

/// Returns the ids that match `ask`, an expression of terms, the newest first.
pub fn find(connection: &Connection, corpus: SearchCorpus, ask: &str, limit: usize) -> Result<Vec<i64>, StoreError> {
    let table = corpus.words();
    let sql = format!("SELECT rowid FROM {table} WHERE {table} MATCH ? ORDER BY rowid DESC LIMIT ?");
    select(connection, &sql, params![ask, limit], |row| row.get(0))
}

/// Returns the highest id, which is about the number of entries.
pub fn highest_id(connection: &Connection, corpus: SearchCorpus) -> Result<i64, StoreError> {
    let sql = format!("SELECT ifnull(max(id), 0) FROM {}", corpus.entries());
    select_value(connection, &sql, [])
}

/// Returns true if the corpus has entries of owners other than these.
pub fn has_others(connection: &Connection, corpus: SearchCorpus, owners: &[&str]) -> Result<bool, StoreError> {
    let next = match corpus {
        SearchCorpus::Memories => "SELECT min(owner) FROM memories WHERE replaced_by IS NULL AND owner > ?",
        SearchCorpus::Messages => "SELECT min(owner) FROM message_owners WHERE owner > ?",
    };
    let mut statement = connection.prepare_cached(next)?;
    // The empty owner sorts before all others, and is included only by name.
    if corpus == SearchCorpus::Messages && !owners.contains(&"") {
        let nobody = "SELECT EXISTS (SELECT 1 FROM message_owners WHERE owner = '')";
        if select_value(connection, nobody, [])? {
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

/// Replaces the terms of a memory.
pub fn put_memory(connection: &Connection, id: i64, words: &str) -> Result<(), StoreError> {
    let sql = "INSERT OR REPLACE INTO memory_words (rowid, words) VALUES (?, ?)";
    execute(connection, sql, params![id, words]).map(drop)
}

/// Removes the terms of a memory.
pub fn remove_memory(connection: &Connection, id: i64) -> Result<(), StoreError> {
    execute(connection, "DELETE FROM memory_words WHERE rowid = ?", [id]).map(drop)
}

/// Returns the ids of current memories from `from` on, in order.
pub fn memory_ids(connection: &Connection, from: i64, limit: usize) -> Result<Vec<i64>, StoreError> {
    let sql = "SELECT id FROM memories WHERE id >= ? AND replaced_by IS NULL ORDER BY id LIMIT ?";
    select(connection, sql, params![from, limit], |row| row.get(0))
}

/// Returns the indexed message with this id, if it exists.
pub fn find_message(connection: &Connection, id: i64) -> Result<Option<IndexedMessage>, StoreError> {
    find_one(connection, "s.id = ?", [id])
}

/// Returns the indexed message at this position.
pub fn message_at(connection: &Connection, session: &str, seq: i64) -> Result<Option<IndexedMessage>, StoreError> {
    find_one(connection, "s.session = ? AND s.seq = ?", params![session, seq])
}

/// Returns the ids of all indexed messages of a session.
pub fn ids_of_session(connection: &Connection, session: &str) -> Result<HashSet<i64>, StoreError> {
    select(connection, "SELECT id FROM indexed_messages WHERE session = ?", [session], |row| row.get(0))
}

/// Returns the indexed messages right before and right after a position.
pub fn neighbors(connection: &Connection, session: &str, seq: i64) -> Result<[Option<IndexedMessage>; 2], StoreError> {
    let before = "s.session = ? AND s.seq < ? ORDER BY s.seq DESC LIMIT 1";
    let after = "s.session = ? AND s.seq > ? ORDER BY s.seq LIMIT 1";
    Ok([find_one(connection, before, params![session, seq])?, find_one(connection, after, params![session, seq])?])
}

/// Returns sessions used since `since` that have unindexed messages: the key, the begin of the unindexed part, and the end of the
/// log.
pub fn unindexed_sessions(
    connection: &Connection,
    since: i64,
    limit: usize,
) -> Result<Vec<(String, i64, i64)>, StoreError> {
    let sql = "SELECT s.session, ifnull(i.seq, 0), s.next_seq
         FROM sessions s INDEXED BY sessions_updated_at LEFT JOIN index_progress i ON i.session = s.session
         WHERE s.updated_at >= ? AND s.next_seq > ifnull(i.seq, 0) ORDER BY s.updated_at DESC LIMIT ?";
    select(connection, sql, params![since, limit], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
}

/// Returns at most `limit` messages of people and the model in `from..to` of a session.
pub fn unindexed_messages(
    connection: &Connection,
    session: &str,
    (from, to): (i64, i64),
    limit: usize,
) -> Result<Vec<UnindexedMessage>, StoreError> {
    let spoken = "messages WHERE session = ? AND seq >= ? AND seq < ? AND role IN ('user', 'assistant')
                  ORDER BY seq LIMIT ?";
    find_rows(connection, spoken, params![session, from, to, limit])
}

/// Indexes the messages of `from..to` of a session; returns false if the range does not follow the indexed part.
pub fn index_messages(
    connection: &Connection,
    session: &str,
    (from, to): (i64, i64),
    messages: &[NewIndexedMessage],
) -> Result<bool, StoreError> {
    // Not one statement with a SELECT: SQLite would put it behind a savepoint, for which FTS5 writes its pending terms each time.
    let sql = "UPDATE index_progress SET seq = ?3 WHERE session = ?1 AND seq = ?2";
    let mut moved = execute(connection, sql, params![session, from, to])?;
    if moved == 0 && from == 0 {
        let sql = "INSERT OR IGNORE INTO index_progress (session, seq) VALUES (?, ?)";
        moved = execute(connection, sql, params![session, to])?;
    }
    if moved == 0 {
        return Ok(false);
    }
    let mut place = connection.prepare_cached(
        "INSERT OR IGNORE INTO indexed_messages (session, seq, owner, speaker)
         SELECT session, seq, ?4, ?5 FROM messages WHERE session = ?1 AND seq = ?2 AND body = ?3",
    )?;
    let mut words = connection.prepare_cached("INSERT INTO message_words (rowid, words) VALUES (?, ?)")?;
    let mut owner = connection.prepare_cached("INSERT OR IGNORE INTO message_owners VALUES (?)")?;
    let mut last_owner = None;
    for message in messages {
        if place.execute(params![session, message.seq, message.body, message.owner, message.speaker])? > 0 {
            words.execute(params![connection.last_insert_rowid(), message.words])?;
            if last_owner.replace(&message.owner) != Some(&message.owner) {
                owner.execute([&message.owner])?;
            }
        }
    }
    Ok(true)
}

/// Removes the messages of a turn from the index; the next [`sweep`] removes their terms.
pub fn remove_turn(connection: &Connection, session: &str, turn: &str) -> Result<(), StoreError> {
    let of_turn = "SELECT s.id FROM messages m JOIN indexed_messages s ON s.session = m.session AND s.seq = m.seq
                   WHERE m.session = ?1 AND m.turn = ?2";
    execute(connection, &format!("INSERT OR IGNORE INTO index_deletions {of_turn}"), [session, turn])?;
    let sql = format!("DELETE FROM indexed_messages WHERE id IN ({of_turn})");
    execute(connection, &sql, [session, turn]).map(drop)
}

/// Removes one message from the index; the next [`sweep`] removes its terms.
pub fn remove_message(connection: &Connection, session: &str, seq: i64) -> Result<(), StoreError> {
    let of_message = "SELECT id FROM indexed_messages WHERE session = ?1 AND seq = ?2";
    let sql = format!("INSERT OR IGNORE INTO index_deletions {of_message}");
    execute(connection, &sql, params![session, seq])?;
    execute(connection, "DELETE FROM indexed_messages WHERE session = ?1 AND seq = ?2", params![session, seq]).map(drop)
}

/// Returns true if terms of removed messages remain.
pub fn has_removed(connection: &Connection) -> Result<bool, StoreError> {
    select_value(connection, "SELECT EXISTS (SELECT 1 FROM index_deletions)", [])
}

/// Deletes the terms of at most `limit` removed messages.
pub fn sweep(connection: &Connection, limit: usize) -> Result<(), StoreError> {
    let gone: Vec<i64> = select(connection, "SELECT id FROM index_deletions LIMIT ?", [limit], |row| row.get(0))?;
    let mut words = connection.prepare_cached("DELETE FROM message_words WHERE rowid = ?")?;
    let mut done = connection.prepare_cached("DELETE FROM index_deletions WHERE id = ?")?;
    for id in &gone {
        words.execute([id])?;
        done.execute([id])?;
    }
    Ok(())
}

/// Rewrites the terms of all memories, so that nothing of removed memories remains. Memories are few compared with messages.
pub fn purge_memories(connection: &Connection) -> Result<(), StoreError> {
    let sql = "INSERT INTO memory_words (memory_words) VALUES ('optimize')";
    execute(connection, sql, []).map(drop)
}

/// Rewrites a part of the messages' terms, so that nothing of removed messages remains. `begins` marks the first of several calls.
/// Returns whether there is more to do.
pub fn purge_messages(connection: &Connection, begins: bool) -> Result<bool, StoreError> {
    /// The number of pages for one call, which takes some milliseconds.
    const PAGES: i64 = 64;
    let changes =
        |connection: &Connection| connection.query_row("SELECT total_changes()", [], |row| row.get::<_, i64>(0));
    let before = changes(connection)?;
    let sql = "INSERT INTO message_words (message_words, rank) VALUES ('merge', ?)";
    execute(connection, sql, [if begins { -PAGES } else { PAGES }])?;
    // https://www.sqlite.org/fts5.html#the_merge_command
    Ok(changes(connection)? - before >= 2)
}

/// Empties the index, even if it is damaged.
pub fn clear(connection: &Connection) -> Result<(), StoreError> {
    for corpus in SearchCorpus::ALL {
        let table = corpus.words();
        if is_sound_and_empty(connection, &table) {
            continue;
        }
        let make: String =
            connection.query_row("SELECT sql FROM sqlite_schema WHERE name = ?", [&table], |row| row.get(0))?;
        connection.execute_batch(&format!("DROP TABLE {table}; {make};"))?;
    }
    // With triggers, SQLite deletes row by row: a million rows would block all writes for ten seconds.
    let triggers = triggers(connection, &["indexed_messages", "message_vectors"])?;
    for (name, _) in &triggers {
        connection.execute_batch(&format!("DROP TRIGGER {name}"))?;
    }
    for table in DERIVED_TABLES {
        connection.execute_batch(&format!("DELETE FROM {table}"))?;
    }
    for (_, make) in &triggers {
        connection.execute_batch(make)?;
    }
    meta::set(connection, meta::VECTORS_MESSAGES, "")?;
    // The highest id measures the number of entries.
    connection.execute("DELETE FROM sqlite_sequence WHERE name = 'indexed_messages'", [])?;
    Ok(())
}

/// Returns true for an index that need not be dropped, such as that of a new database. Dropping it would move tables in the file
/// (auto_vacuum); after a loss of the first page, they would not be where a new database has them.
fn is_sound_and_empty(connection: &Connection, table: &str) -> bool {
    let is_empty = format!("SELECT NOT EXISTS (SELECT 1 FROM {table}_docsize)");
    let check = format!("INSERT INTO {table} ({table}) VALUES ('integrity-check')");
    connection.query_row(&is_empty, [], |row| row.get(0)).unwrap_or(false) && connection.execute_batch(&check).is_ok()
}

/// Returns the triggers of tables: their names and their SQL.
fn triggers(connection: &Connection, tables: &[&str]) -> Result<Vec<(String, String)>, StoreError> {
    let mut statement = connection.prepare("SELECT name, sql, tbl_name FROM sqlite_schema WHERE type = 'trigger'")?;
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get::<_, String>(2)?)))?;
    let all = rows.collect::<Result<Vec<(String, String, String)>, _>>()?;
    let of_these = all.into_iter().filter(|(_, _, table)| tables.contains(&table.as_str()));
    Ok(of_these.map(|(name, make, _)| (name, make)).collect())
}

/// Checks the whole index and returns its faults; none if it is sound.
pub fn faults(connection: &Connection) -> Result<Vec<String>, StoreError> {
    let mut faults = Vec::new();
    for corpus in SearchCorpus::ALL {
        let table = corpus.words();
        // Without this query, the check would use an older state of the index that this connection has cached.
        connection.query_row(&format!("SELECT EXISTS (SELECT 1 FROM {table} WHERE rowid = 0)"), [], |_| Ok(()))?;
        let mut statement = connection.prepare(&format!("PRAGMA integrity_check({table})"))?;
        let lines = statement.query_map([], |row| row.get::<_, String>(0))?.collect::<Result<Vec<_>, _>>()?;
        faults.extend(lines.into_iter().filter(|line| line != "ok"));
    }
    let missing: i64 = connection.query_row(
        "SELECT count(*) FROM indexed_messages WHERE id NOT IN (SELECT id FROM message_words_docsize)",
        [],
        |row| row.get(0),
    )?;
    if missing > 0 {
        faults.push(format!("{missing} messages have no words"));
    }
    Ok(faults)
}

fn find_one(
    connection: &Connection,
    condition: &str,
    parameters: impl Params,
) -> Result<Option<IndexedMessage>, StoreError> {
    let sql = format!(
        "SELECT s.id, s.session, s.seq, s.owner, s.speaker, m.epoch, m.role, m.body, m.at
         FROM indexed_messages s JOIN messages m ON m.session = s.session AND m.seq = s.seq WHERE {condition}"
    );
    select_optional_parsed(connection, &sql, parameters, IndexedMessage::read)
}
