//! The word index, by which searches find memories and messages.

use std::sync::atomic::{AtomicBool, Ordering};

use daoyou_channels::text::hex;
use sha2::{Digest, Sha256};

use super::owner_migration::migrate_owners;
use super::{Identities, MemoryKind, MemoryOwner};
use crate::store::memories::{self, MemoryRow};
use crate::store::{Connection, StoreError, meta, search_index};
use crate::text::{SEGMENT_VERSION, index_terms};

/// True after a reader met damage in an index; readers cannot write to the store. A false alarm costs one check.
static DAMAGE_REPORTED: AtomicBool = AtomicBool::new(false);

/// Indexes a memory, in the caller's write; its row must exist. A replaced memory is removed from the index instead.
///
/// # Errors
/// The store cannot be written, or has no such row.
pub fn put(connection: &Connection, id: i64) -> Result<(), StoreError> {
    let Some(row) = memories::find(connection, id)? else {
        return Err(StoreError::Row(format!("memory {id} has no row, so it cannot be indexed")));
    };
    if row.replaced_by.is_some() {
        return remove(connection, id);
    }
    mark_if_damaged(connection, search_index::put_memory(connection, id, &memory_terms(&row)))
}

/// Removes a memory from the index, in the caller's write. [`purge_memories`] removes its terms from the file; without it, they
/// disappear with later writes.
///
/// # Errors
/// The store cannot be written.
pub fn remove(connection: &Connection, id: i64) -> Result<(), StoreError> {
    mark_if_damaged(connection, search_index::remove_memory(connection, id))
}

/// Removes the messages of a turn from the index, in the caller's write, while their rows still exist. The indexer then
/// removes the last of their terms from the file.
///
/// # Errors
/// The store cannot be written.
pub fn remove_turn(connection: &Connection, session: &str, turn: &str) -> Result<(), StoreError> {
    search_index::remove_turn(connection, session, turn)?;
    remove_terms(connection)
}

/// Removes these messages of a session from the index, as [`remove_turn`] does.
///
/// # Errors
/// The store cannot be written.
pub fn remove_messages(connection: &Connection, session: &str, seqs: &[i64]) -> Result<(), StoreError> {
    if seqs.is_empty() {
        return Ok(());
    }
    seqs.iter().try_for_each(|seq| search_index::remove_message(connection, session, *seq))?;
    remove_terms(connection)
}

/// Removes the terms of messages that were just removed.
fn remove_terms(connection: &Connection) -> Result<(), StoreError> {
    meta::set(connection, meta::INDEX_PURGE, "yes")?;
    sweep(connection, usize::from(u16::MAX)).map(drop)
}

/// Reads the whole index and returns its faults; none if it is sound.
///
/// # Errors
/// The store cannot be read.
pub fn check(connection: &Connection) -> Result<Vec<String>, StoreError> {
    match search_index::faults(connection) {
        Err(error) if error.is_index_fault() => Ok(vec![error.to_string()]),
        other => other,
    }
}

/// Marks the index as damaged. A running gateway rebuilds it in the background, at once after
/// [`super::MemoryService::notify_changes`].
///
/// # Errors
/// The store cannot be written.
pub fn mark_damaged(connection: &Connection) -> Result<(), StoreError> {
    meta::set(connection, meta::INDEX_VERSION, "")
}

/// Removes the terms of deleted messages, of at most `limit`. Returns true if the index is not marked as damaged.
pub(super) fn sweep(connection: &Connection, limit: usize) -> Result<bool, StoreError> {
    mark_if_damaged(connection, search_index::sweep(connection, limit))?;
    is_trusted(connection)
}

/// Removes the last terms of removed memories from the index, in the caller's write.
///
/// # Errors
/// The store cannot be written.
pub fn purge_memories(connection: &Connection) -> Result<(), StoreError> {
    mark_if_damaged(connection, search_index::purge_memories(connection))
}

/// Removes the last terms of removed entries from the file, one step at a time. Returns true if there is more to do.
pub(super) fn purge(connection: &Connection, begins: bool) -> Result<bool, StoreError> {
    if begins {
        purge_memories(connection)?;
    }
    match search_index::purge_messages(connection, begins) {
        Err(error) if error.is_index_fault() => mark_damaged(connection).map(|()| false),
        other => other,
    }
}

/// Returns true if the index is not marked as damaged.
pub(super) fn is_trusted(connection: &Connection) -> Result<bool, StoreError> {
    Ok(meta::get(connection, meta::INDEX_VERSION)?.is_some_and(|version| !version.is_empty()))
}

/// Returns true if a reader met damage in an index since the last call.
pub(super) fn was_damage_reported() -> bool {
    DAMAGE_REPORTED.swap(false, Ordering::Relaxed)
}

/// Returns what a reader found in the index. If the reader met damage, reports the damage and returns nothing.
pub(super) fn found_or_damaged<T>(found: Result<Vec<T>, StoreError>) -> Result<Vec<T>, StoreError> {
    match found {
        Err(error) if error.is_index_fault() => {
            tracing::warn!(%error, "the word index may be damaged, and is rebuilt if a check confirms it; nothing else is affected");
            DAMAGE_REPORTED.store(true, Ordering::Relaxed);
            Ok(Vec::new())
        }
        other => other,
    }
}

/// Returns the version that a valid index has: that of the segmentation, and that of the identities.
pub(super) fn expected_version(identities: &Identities) -> String {
    format!("{} {}", SEGMENT_VERSION, identities.digest())
}

/// Clears the index, which is then refilled in steps, and moves memories to the current owners of the identities.
pub(super) fn reset_index(connection: &Connection, identities: &Identities) -> Result<(), StoreError> {
    migrate_owners(connection, identities)?;
    search_index::clear(connection)?;
    meta::set(connection, meta::INDEX_NEXT_MEMORY, "0")?;
    meta::set(connection, meta::INDEX_PURGE, "")?;
    meta::set(connection, meta::INDEX_VERSION, &expected_version(identities))
}

/// Adds the next memories to an index that is being rebuilt. Returns true if there are more.
pub(super) fn put_memories(connection: &Connection) -> Result<bool, StoreError> {
    const MEMORIES_PER_STEP: usize = 32;
    let next = meta::get(connection, meta::INDEX_NEXT_MEMORY)?.unwrap_or_default();
    let Ok(from) = next.parse::<i64>() else { return Ok(false) };
    let ids = search_index::memory_ids(connection, from, MEMORIES_PER_STEP)?;
    for id in &ids {
        put(connection, *id)?;
    }
    let next = ids.last().map_or(String::new(), |last| (last + 1).to_string());
    meta::set(connection, meta::INDEX_NEXT_MEMORY, &next)?;
    Ok(!next.is_empty())
}

/// Returns the terms of a message, as the index stores them.
pub(super) fn message_terms(text: &str, session: &str, owner: &str, speaker: &str) -> String {
    let mut terms = index_terms(text);
    terms.extend(index_terms(speaker));
    terms.push(owner_term(owner));
    terms.push(session_term(session));
    terms.join(" ")
}

/// Returns the indexed text of a memory besides its name and text: its tags, and the result of a task.
pub(super) fn extra_indexed_text(row: &MemoryRow) -> String {
    let detail: serde_json::Value = serde_json::from_str(&row.detail).unwrap_or_default();
    let tags = detail["tags"].as_array().into_iter().flatten().filter_map(|tag| tag.as_str());
    tags.chain(detail["result"].as_str()).collect::<Vec<_>>().join("\n")
}

fn memory_terms(row: &MemoryRow) -> String {
    let name = if row.kind == MemoryKind::Summary.as_str() { "" } else { row.name.as_str() };
    let mut terms = index_terms(&format!("{name}\n{}\n{}", row.text, extra_indexed_text(row)));
    terms.push(owner_term(&row.owner));
    if let Some(session) = &row.session {
        terms.push(session_term(session));
    }
    terms.join(" ")
}

/// Returns the term by which searches select an owner. It begins with a character that no term of a text contains.
fn owner_term(owner: &str) -> String {
    format!("\u{e000}{}", short_hash(owner))
}

fn session_term(session: &str) -> String {
    format!("\u{e001}{}", short_hash(session))
}

fn short_hash(text: &str) -> String {
    hex(&Sha256::digest(text)[..8])
}

/// Returns the expression that all hits must match; `None` without a restriction.
pub(super) fn scope(owners: Option<&[MemoryOwner]>, session: Option<&str>) -> Option<String> {
    let owners = owners.map(|owners| {
        let terms: Vec<_> = owners.iter().map(|owner| format!("\"{}\"", owner_term(owner.as_str()))).collect();
        format!("({})", terms.join(" OR "))
    });
    let session = session.map(|session| format!("\"{}\"", session_term(session)));
    let both: Vec<_> = owners.into_iter().chain(session).collect();
    (!both.is_empty()).then(|| both.join(" AND "))
}

/// Marks a damaged index for a rebuild instead of failing the caller's write.
fn mark_if_damaged(connection: &Connection, outcome: Result<(), StoreError>) -> Result<(), StoreError> {
    match outcome {
        Err(error) if error.is_index_fault() => {
            tracing::warn!(%error, "the word index is damaged and is rebuilt; nothing else is affected");
            mark_damaged(connection)
        }
        other => other,
    }
}
