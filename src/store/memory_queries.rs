//! Lists, counts and maintenance of memories, for one owner, several or all.

use rusqlite::{Connection, params};

use super::memories::MemoryRow;
use super::sql::{execute, find_rows, select, select_value};
use super::{StoreError, meta};

/// `summaries`: the summaries of a session, with the summaries that they replaced. `others`: those of them from which another
/// session's summary continues.
const SUMMARIES: &str = "WITH RECURSIVE summaries(id) AS (
        SELECT summary FROM session_memory WHERE session = ?1 AND summary IS NOT NULL
        UNION SELECT m.id FROM summaries JOIN memories m ON m.replaced_by = summaries.id),
    newer(id, by) AS (
        SELECT id, id FROM summaries
        UNION SELECT n.id, m.replaced_by FROM newer n JOIN memories m ON m.id = n.by WHERE m.replaced_by IS NOT NULL),
    others(id) AS (
        SELECT DISTINCT id FROM newer
        WHERE by IN (SELECT summary FROM session_memory WHERE session <> ?1 AND summary IS NOT NULL))";

/// The number of memories of an owner and kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryCount {
    pub owner: String,
    pub kind: String,
    /// The number of memories that are not replaced.
    pub current: u64,
    /// The number of memories that a newer one replaced.
    pub replaced: u64,
}

/// Returns the current memories, the newest first. `owner`, `kind` and the id `before` restrict the result.
pub fn page(
    connection: &Connection,
    owner: Option<&str>,
    kind: Option<&str>,
    before: Option<i64>,
    limit: u32,
) -> Result<Vec<MemoryRow>, StoreError> {
    let page = "memories WHERE replaced_by IS NULL AND (?1 IS NULL OR owner = ?1) AND (?2 IS NULL OR kind = ?2)
             AND (?3 IS NULL OR id < ?3)
         ORDER BY id DESC LIMIT ?4";
    find_rows(connection, page, params![owner, kind, before, limit])
}

/// Returns the numbers of memories by owner and kind.
pub fn counts(connection: &Connection) -> Result<Vec<MemoryCount>, StoreError> {
    let sql = "SELECT owner, kind, count(*) FILTER (WHERE replaced_by IS NULL), count(*) FILTER (WHERE replaced_by IS NOT NULL)
         FROM memories GROUP BY owner, kind ORDER BY owner, kind";
    select(connection, sql, [], |row| {
        Ok(MemoryCount { owner: row.get(0)?, kind: row.get(1)?, current: row.get(2)?, replaced: row.get(3)? })
    })
}

/// Returns all owners of memories and conversations; the empty one stands for conversations without an owner.
pub fn owners(connection: &Connection) -> Result<Vec<String>, StoreError> {
    let sql = "SELECT owner FROM memories UNION SELECT owner FROM message_owners
         UNION SELECT owner FROM sessions WHERE owner IS NOT NULL ORDER BY owner";
    select(connection, sql, [], |row| row.get(0))
}

/// A fingerprint of an owner's facts. Any change of the facts, except of their wording, changes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnerFacts {
    pub owner: String,
    pub count: i64,
    pub newest: i64,
}

/// Returns the fingerprints of all owners with facts, ordered by name.
pub fn facts_of_owners(connection: &Connection) -> Result<Vec<OwnerFacts>, StoreError> {
    let sql = "SELECT owner, count(*), max(id) FROM memories WHERE kind = 'fact' AND replaced_by IS NULL
         GROUP BY owner ORDER BY owner";
    select(connection, sql, [], |row| Ok(OwnerFacts { owner: row.get(0)?, count: row.get(1)?, newest: row.get(2)? }))
}

/// Returns the bytes of the memories' texts and of the snapshots in prompts.
pub fn sizes(connection: &Connection) -> Result<(u64, u64), StoreError> {
    let sum = |sql: &str| Ok::<_, StoreError>(select_value::<Option<u64>>(connection, sql, [])?.unwrap_or(0));
    let memories = sum("SELECT sum(octet_length(text) + octet_length(detail)) FROM memories")?;
    Ok((memories, sum("SELECT sum(octet_length(text)) FROM snapshots")?))
}

/// The state of the search index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SearchIndexState {
    /// The number of messages that the index can find.
    pub messages: u64,
    /// The number of rows of the log that are not indexed yet.
    pub behind: u64,
    /// The index is being rebuilt, or the next gateway will rebuild it.
    pub needs_rebuild: bool,
}

/// Returns the state of the search index.
pub fn search_index_state(connection: &Connection) -> Result<SearchIndexState, StoreError> {
    let count = |sql: &str| -> Result<u64, StoreError> { select_value(connection, sql, []) };
    let left = meta::get(connection, meta::INDEX_NEXT_MEMORY)?.unwrap_or_default();
    let made_by = meta::get(connection, meta::INDEX_VERSION)?.unwrap_or_default();
    Ok(SearchIndexState {
        messages: count("SELECT count(*) FROM indexed_messages")?,
        behind: count(
            "SELECT ifnull(sum(s.next_seq - ifnull(i.seq, 0)), 0) FROM sessions s LEFT JOIN index_progress i ON i.session = s.session
             WHERE s.next_seq > ifnull(i.seq, 0)",
        )?,
        needs_rebuild: made_by.is_empty() || !left.is_empty(),
    })
}

/// Removes at most `limit` snapshots that no open epoch uses: no prompt uses the snapshot of a closed epoch.
pub fn sweep_snapshots(connection: &Connection, limit: u32) -> Result<usize, StoreError> {
    let sql = "UPDATE session_memory SET snapshot = NULL WHERE (session, epoch) IN (
                SELECT m.session, m.epoch FROM session_memory m INDEXED BY session_memory_snapshot
                JOIN sessions s ON s.session = m.session WHERE m.snapshot IS NOT NULL AND m.epoch < s.epoch LIMIT ?)";
    execute(connection, sql, [limit])?;
    let sql = "DELETE FROM snapshots WHERE hash IN (
                SELECT p.hash FROM snapshots p WHERE NOT EXISTS (
                    SELECT 1 FROM session_memory m WHERE m.snapshot = p.hash) LIMIT ?)";
    execute(connection, sql, [limit])
}

/// Returns sessions without messages that were not used since `before_ms` and still have other data.
pub fn unused_sessions(connection: &Connection, before_ms: i64, limit: u32) -> Result<Vec<String>, StoreError> {
    let sql = "SELECT s.session FROM sessions s
         WHERE s.updated_at < ?1 AND EXISTS (SELECT 1 FROM session_memory m WHERE m.session = s.session)
             AND NOT EXISTS (SELECT 1 FROM messages m WHERE m.session = s.session)
         LIMIT ?2";
    select(connection, sql, params![before_ms, limit], |row| row.get(0))
}

/// Returns the summaries of a session, with the summaries that they replaced, except those that another session received with a copy
/// of the messages.
pub fn own_summaries(connection: &Connection, session: &str) -> Result<Vec<i64>, StoreError> {
    let sql = format!(
        "{SUMMARIES} SELECT m.id FROM summaries JOIN memories m ON m.id = summaries.id
         WHERE m.kind = 'summary' AND m.id NOT IN (SELECT id FROM others) ORDER BY m.id"
    );
    select(connection, &sql, [session], |row| row.get(0))
}

/// Restores summaries that other sessions use and that a summary of this session alone replaced; returns their ids.
pub fn release_summaries(connection: &Connection, session: &str) -> Result<Vec<i64>, StoreError> {
    let sql = format!(
        "{SUMMARIES} SELECT m.id FROM others JOIN memories m ON m.id = others.id
         WHERE m.replaced_by IN (SELECT id FROM summaries) AND m.replaced_by NOT IN (SELECT id FROM others)"
    );
    let ids: Vec<i64> = select(connection, &sql, [session], |row| row.get(0))?;
    for id in &ids {
        execute(connection, "UPDATE memories SET replaced_by = NULL, replaced_at = NULL WHERE id = ?", [id])?;
    }
    Ok(ids)
}

/// Deletes the consolidation state of all epochs of a session.
pub fn drop_session(connection: &Connection, session: &str) -> Result<usize, StoreError> {
    execute(connection, "DELETE FROM session_memory WHERE session = ?", [session])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::memories::{NewMemory, insert, replace};
    use crate::store::session_memory::{SessionMemory, keep_snapshot, put};
    use crate::store::{Durability, Store, messages, session_memory};

    fn new<'a>(owner: &'a str, kind: &'a str, text: &'a str) -> NewMemory<'a> {
        NewMemory {
            owner,
            kind,
            name: "",
            text,
            detail: "{}",
            origin: "command",
            session: None,
            seq: None,
            turn: None,
            confidence: 1.0,
        }
    }

    #[tokio::test]
    async fn memories_are_listed_and_counted_and_leftovers_removed() {
        let (_folder, store) = Store::temporary();
        let work = |connection: &Connection| -> Result<_, StoreError> {
            let old = insert(connection, &new("owner", "fact", "the cat is grey"))?;
            let known = insert(connection, &new("owner", "fact", "the cat is black"))?;
            replace(connection, old, known)?;
            insert(connection, &new("everyone", "fact", "the office is closed"))?;
            insert(connection, &new("name:ann", "task", "asked"))?;
            let texts = |rows: Vec<MemoryRow>| rows.into_iter().map(|row| row.text).collect::<Vec<_>>();
            let lists = [
                texts(page(connection, None, None, None, 10)?),
                texts(page(connection, Some("everyone"), None, None, 10)?),
                texts(page(connection, Some("owner"), Some("fact"), Some(known + 1), 10)?),
            ];
            messages::new_epoch(connection, "s")?;
            for (epoch, hash) in [(0, "a"), (1, "b")] {
                keep_snapshot(connection, hash, "owner", "text")?;
                put(connection, "s", epoch, &SessionMemory { snapshot: Some(hash.to_owned()), ..Default::default() })?;
            }
            let swept = [sweep_snapshots(connection, 10)?, sweep_snapshots(connection, 10)?];
            let left = session_memory::get(connection, "s", 1)?.snapshot;
            Ok((
                lists,
                counts(connection)?,
                owners(connection)?,
                swept,
                left,
                unused_sessions(connection, i64::MAX, 9)?,
            ))
        };
        let (lists, counts, owners, swept, left, gone) = store.write(Durability::Logged, work).await.unwrap();
        assert_eq!(
            lists,
            [
                vec!["asked", "the office is closed", "the cat is black"],
                vec!["the office is closed"],
                vec!["the cat is black"]
            ]
        );
        let facts = counts.iter().find(|count| count.owner == "owner").unwrap();
        assert_eq!((facts.current, facts.replaced), (1, 1));
        assert_eq!(owners, ["everyone", "name:ann", "owner"]);
        assert_eq!((swept, left.as_deref()), ([1, 0], Some("b")));
        assert_eq!(gone, ["s"]);
    }
}
