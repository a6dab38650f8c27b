//! Removes the data of deleted conversations, in small batches.

use super::remember::remove;
use super::word_index;
use crate::store::{Connection, StoreError, memory_queries, meta, retention};

/// The maximum number of sessions of one batch.
const SESSIONS_PER_BATCH: u32 = 20;

/// Removes the messages of sessions that were last used before `before_ms`, and their index entries. Returns the number of
/// deleted messages.
///
/// # Errors
/// The store cannot be written.
pub fn prune_sessions(connection: &Connection, before_ms: i64) -> Result<usize, StoreError> {
    let pruned = retention::prune_sessions(connection, before_ms)?;
    if pruned > 0 {
        // The store records each removed message; the indexer then removes the last of their terms from the file.
        meta::set(connection, meta::INDEX_PURGE, "yes")?;
    }
    Ok(pruned)
}

/// Removes the summaries and prompt snapshots of sessions without any messages. Returns the number of deleted rows.
///
/// # Errors
/// The store cannot be written.
pub fn prune_orphaned_summaries(connection: &Connection, before_ms: i64) -> Result<usize, StoreError> {
    let mut rows = 0;
    for session in memory_queries::unused_sessions(connection, before_ms, SESSIONS_PER_BATCH)? {
        // This must precede the removal of the other summaries, which also removes the summaries that they replaced.
        for kept in memory_queries::release_summaries(connection, &session)? {
            word_index::put(connection, kept)?;
        }
        for summary in memory_queries::own_summaries(connection, &session)? {
            remove(connection, summary)?;
            rows += 1;
        }
        rows += memory_queries::drop_session(connection, &session)?;
    }
    Ok(rows)
}

/// Removes snapshots that no prompt uses any more. Returns the number of deleted rows.
///
/// # Errors
/// The store cannot be written.
pub fn sweep_snapshots(connection: &Connection, _before_ms: i64) -> Result<usize, StoreError> {
    memory_queries::sweep_snapshots(connection, retention::BATCH)
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use uuid::Uuid;

    use super::*;
    use crate::memory::testing::row;
    use crate::memory::{Identities, MemoryConfig, MemoryKind, MemoryOrigin, MemoryOwner, NewMemoryEntry, remember};
    use crate::store::Store;
    use crate::store::search_index::SearchCorpus;
    use crate::store::session_memory::{self, SessionMemory};
    use crate::store::{Durability, memories, messages};

    /// A fork began with the first summary and continued, so that the second summary replaced the first.
    #[tokio::test]
    async fn pruning_a_fork_keeps_the_summaries_that_it_shares() {
        let (_folder, store) = Store::temporary();
        let work = |connection: &Connection| -> Result<_, StoreError> {
            let mut left = Vec::new();
            // The current summary of the source and of the fork, and which summary replaced which.
            for (source, copy, replaced) in
                [(1, 2, [(0, 1), (1, 2)]), (2, 1, [(0, 1), (1, 2)]), (1, 1, [(0, 1), (0, 1)])]
            {
                let mut ids = Vec::new();
                for text in ["one", "two", "three"] {
                    ids.push(memories::insert(connection, &row("owner", "summary", "source", text))?);
                }
                for (old, new) in replaced {
                    memories::replace(connection, ids[old], ids[new])?;
                }
                for (session, summary) in [("source", ids[source]), ("copy", ids[copy])] {
                    let state = SessionMemory { summary: Some(summary), ..SessionMemory::default() };
                    messages::new_epoch(connection, session)?;
                    session_memory::put(connection, session, 0, &state)?;
                }
                connection.execute("UPDATE sessions SET updated_at = 1 WHERE session = 'copy'", [])?;
                prune_orphaned_summaries(connection, 2)?;
                let rows = ids.iter().map(|id| memories::find(connection, *id));
                let rows = rows.collect::<Result<Vec<_>, _>>()?;
                left.push(rows.into_iter().flatten().map(|row| row.text).collect::<Vec<_>>().join(" "));
                let named = session_memory::get(connection, "source", 0)?.summary;
                let row = memories::find(connection, named.unwrap_or_default())?;
                assert!(
                    row.is_some_and(|row| row.replaced_by.is_none()),
                    "the summary of a current conversation is not replaced"
                );
            }
            Ok(left)
        };
        assert_eq!(store.write(Durability::Logged, work).await.unwrap(), ["one two", "one two three", "one two three"]);
    }

    #[tokio::test]
    async fn pruning_a_session_removes_its_summaries_and_terms() {
        let (_folder, store) = Store::temporary();
        let work = |connection: &Connection| -> Result<_, StoreError> {
            let body = json!({ "role": "user", "content": "my bicycle is red" }).to_string();
            for session in ["old", "new"] {
                messages::append(connection, session, Uuid::now_v7(), [("user", body.clone())].into_iter())?;
            }
            let summary = NewMemoryEntry {
                name: "old".to_owned(),
                detail: json!({ "epoch": 0 }),
                ..NewMemoryEntry::new(
                    MemoryOwner::gateway(),
                    MemoryKind::Summary,
                    "a red bicycle",
                    MemoryOrigin::Noticed,
                )
            };
            let config = MemoryConfig::default();
            let first = remember(connection, &summary, &config)?.id();
            let summary =
                remember(connection, &NewMemoryEntry { text: "a bicycle, red".to_owned(), ..summary }, &config)?.id();
            let state = SessionMemory { cursor: 1, summary: Some(summary), ..SessionMemory::default() };
            session_memory::put(connection, "old", 0, &state)?;
            crate::memory::rebuild_index(connection, &Identities::default())?;
            connection.execute("UPDATE sessions SET updated_at = 1 WHERE session = 'old'", [])?;
            let pruned = [
                prune_orphaned_summaries(connection, 2)?,
                prune_sessions(connection, 2)?,
                prune_orphaned_summaries(connection, 2)?,
                prune_orphaned_summaries(connection, 2)?,
            ];
            let left = [memories::find(connection, first)?, memories::find(connection, summary)?];
            let state = session_memory::get(connection, "old", 0)?;
            crate::store::search_index::sweep(connection, 10)?;
            let is_swept = !crate::store::search_index::has_removed(connection)?;
            let found = crate::store::search_index::find(connection, SearchCorpus::Messages, "red", 10)?.len();
            let of_memories = crate::store::search_index::find(connection, SearchCorpus::Memories, "red", 10)?.len();
            Ok((pruned, left, state, is_swept, [found, of_memories]))
        };
        let (pruned, left, state, is_swept, found) = store.write(Durability::Logged, work).await.unwrap();
        assert_eq!(pruned, [0, 1, 3, 0], "both summaries and the row of their session, once the messages are deleted");
        assert_eq!((left, state), ([None, None], SessionMemory::default()));
        assert_eq!((is_swept, found), (true, [1, 0]), "only the other session's words are left");
    }
}
