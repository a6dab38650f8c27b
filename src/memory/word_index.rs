//! The words that memories and messages are found by.

use std::sync::atomic::{AtomicBool, Ordering};

use daoyou_channels::text::hex;
use sha2::{Digest, Sha256};

use super::owner_migration::migrate_owners;
use super::{Identities, MemoryKind, Owner};
use crate::store::memories::{self, MemoryRow};
use crate::store::{Connection, StoreError, meta, search_index};
use crate::text::{SEGMENT_VERSION, index_terms};

/// A reader, which cannot say so in the store, met damage in an index. A false alarm costs one check.
static SUSPECTED: AtomicBool = AtomicBool::new(false);

/// Has a memory found by what stands in its row, in the caller's write; the row is there already. One that was replaced is not
/// found.
///
/// # Errors
/// The store cannot be written, or has no such row.
pub fn put(connection: &Connection, id: i64) -> Result<(), StoreError> {
    let Some(row) = memories::find(connection, id)? else {
        return Err(StoreError::Row(format!("memory {id} has no row, so no words can lead to it")));
    };
    if row.replaced_by.is_some() {
        return remove(connection, id);
    }
    tolerate(connection, search_index::put_memory(connection, id, &memory_words(&row)))
}

/// Has a memory found no more, in the caller's write. Its words leave the file with [`purge_memories`], or with time.
///
/// # Errors
/// The store cannot be written.
pub fn remove(connection: &Connection, id: i64) -> Result<(), StoreError> {
    tolerate(connection, search_index::remove_memory(connection, id))
}

/// Has the messages of a turn found no more, in the caller's write; their rows are still there. The indexer then takes the
/// last of their words out of the file.
///
/// # Errors
/// The store cannot be written.
pub fn remove_turn(connection: &Connection, session: &str, turn: &str) -> Result<(), StoreError> {
    search_index::remove_turn(connection, session, turn)?;
    meta::set(connection, meta::WORDS_REMOVED, "yes")?;
    sweep(connection, usize::from(u16::MAX)).map(drop)
}

/// As [`remove_turn`], of these messages of a session.
///
/// # Errors
/// The store cannot be written.
pub fn remove_said(connection: &Connection, session: &str, seqs: &[i64]) -> Result<(), StoreError> {
    if seqs.is_empty() {
        return Ok(());
    }
    seqs.iter().try_for_each(|seq| search_index::remove_message(connection, session, *seq))?;
    meta::set(connection, meta::WORDS_REMOVED, "yes")?;
    sweep(connection, usize::from(u16::MAX)).map(drop)
}

/// What is wrong with the index; nothing if it is sound. Reads all of it.
///
/// # Errors
/// The store cannot be read.
pub fn check(connection: &Connection) -> Result<Vec<String>, StoreError> {
    match search_index::faults(connection) {
        Err(error) if error.is_index_fault() => Ok(vec![error.to_string()]),
        other => other,
    }
}

/// Has a running gateway make the index anew, beside its other work: at once after [`super::MemoryService::notify_changes`].
///
/// # Errors
/// The store cannot be written.
pub fn distrust(connection: &Connection) -> Result<(), StoreError> {
    meta::set(connection, meta::WORDS, "")
}

/// Removes the words of messages that are gone, of so many at most; answers whether the index is sound.
pub(super) fn sweep(connection: &Connection, limit: usize) -> Result<bool, StoreError> {
    tolerate(connection, search_index::sweep(connection, limit))?;
    is_trusted(connection)
}

/// Takes the last of the words of memories that were removed out of the index, in the caller's write.
///
/// # Errors
/// The store cannot be written.
pub fn purge_memories(connection: &Connection) -> Result<(), StoreError> {
    tolerate(connection, search_index::purge_memories(connection))
}

/// Takes the last of what was removed out of the file, a piece at a time; answers whether there is more to do.
pub(super) fn purge(connection: &Connection, begins: bool) -> Result<bool, StoreError> {
    if begins {
        purge_memories(connection)?;
    }
    match search_index::purge_messages(connection, begins) {
        Err(error) if error.is_index_fault() => distrust(connection).map(|()| false),
        other => other,
    }
}

/// Whether nobody has found the index damaged.
pub(super) fn is_trusted(connection: &Connection) -> Result<bool, StoreError> {
    Ok(meta::get(connection, meta::WORDS)?.is_some_and(|made_by| !made_by.is_empty()))
}

/// Whether somebody met damage in an index since this was asked last.
pub(super) fn was_suspected() -> bool {
    SUSPECTED.swap(false, Ordering::Relaxed)
}

/// The index was damaged when it was read.
pub(super) fn suspect(error: &StoreError) {
    tracing::warn!(%error, "the index of words is damaged, and is made anew if a check finds the same; nothing else is harmed");
    SUSPECTED.store(true, Ordering::Relaxed);
}

/// What the index must have been made by to be of use.
pub(super) fn made_by(identities: &Identities) -> String {
    format!("{} {}", SEGMENT_VERSION, identities.digest())
}

/// Empties the index; what is to stand in it follows in pieces. Where others are one and the same now, so are their memories.
pub(super) fn begin_anew(connection: &Connection, identities: &Identities) -> Result<(), StoreError> {
    migrate_owners(connection, identities)?;
    search_index::clear(connection)?;
    meta::set(connection, meta::WORDS_MEMORIES, "0")?;
    meta::set(connection, meta::WORDS_REMOVED, "")?;
    meta::set(connection, meta::WORDS, &made_by(identities))
}

/// Puts the next memories into an index that is made anew; answers whether there are more.
pub(super) fn put_memories(connection: &Connection) -> Result<bool, StoreError> {
    const PIECE: usize = 32;
    let next = meta::get(connection, meta::WORDS_MEMORIES)?.unwrap_or_default();
    let Ok(from) = next.parse::<i64>() else { return Ok(false) };
    let ids = search_index::memory_ids(connection, from, PIECE)?;
    for id in &ids {
        put(connection, *id)?;
    }
    let next = ids.last().map_or(String::new(), |last| (last + 1).to_string());
    meta::set(connection, meta::WORDS_MEMORIES, &next)?;
    Ok(!next.is_empty())
}

/// What stands in the index for a message.
pub(super) fn said_words(text: &str, session: &str, owner: &str, speaker: &str) -> String {
    let mut terms = index_terms(text);
    terms.extend(index_terms(speaker));
    terms.push(of_owner(owner));
    terms.push(of_session(session));
    terms.join(" ")
}

/// What a memory is found by besides its name and its text: its tags, and what a task came to.
pub(super) fn beside(row: &MemoryRow) -> String {
    let detail: serde_json::Value = serde_json::from_str(&row.detail).unwrap_or_default();
    let tags = detail["tags"].as_array().into_iter().flatten().filter_map(|tag| tag.as_str());
    tags.chain(detail["result"].as_str()).collect::<Vec<_>>().join("\n")
}

fn memory_words(row: &MemoryRow) -> String {
    let name = if row.kind == MemoryKind::Summary.as_str() { "" } else { row.name.as_str() };
    let mut terms = index_terms(&format!("{name}\n{}\n{}", row.text, beside(row)));
    terms.push(of_owner(&row.owner));
    if let Some(session) = &row.session {
        terms.push(of_session(session));
    }
    terms.join(" ")
}

/// The terms that keep owners and sessions apart. They begin with a character that no term of a text holds.
fn of_owner(owner: &str) -> String {
    format!("\u{e000}{}", short_hash(owner))
}

fn of_session(session: &str) -> String {
    format!("\u{e001}{}", short_hash(session))
}

fn short_hash(text: &str) -> String {
    hex(&Sha256::digest(text)[..8])
}

/// The expression that all hits fit; `None` where there is nothing to keep apart.
pub(super) fn scope(owners: Option<&[Owner]>, session: Option<&str>) -> Option<String> {
    let owners = owners.map(|owners| {
        let terms: Vec<_> = owners.iter().map(|owner| format!("\"{}\"", of_owner(owner.as_str()))).collect();
        format!("({})", terms.join(" OR "))
    });
    let session = session.map(|session| format!("\"{}\"", of_session(session)));
    let both: Vec<_> = owners.into_iter().chain(session).collect();
    (!both.is_empty()).then(|| both.join(" AND "))
}

/// What met damage in an index is done without it: the index is made anew, and nobody's write fails for it.
fn tolerate(connection: &Connection, outcome: Result<(), StoreError>) -> Result<(), StoreError> {
    match outcome {
        Err(error) if error.is_index_fault() => {
            tracing::warn!(%error, "the index of words is damaged, and is made anew; nothing else is harmed");
            distrust(connection)
        }
        other => other,
    }
}
