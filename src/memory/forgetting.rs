//! Forgetting: removes memories for good, wherever they were copied to.

use std::collections::BTreeSet;

use super::mentions::{MentionDetector, without_mentions};
use super::prompt_memory::{self, forget_turn};
use super::remember::{further_turns, remove, replaced_before};
use super::{MemoryEntry, MemoryKind, MemoryOwner, vectors, word_index};
use crate::store::forgetting::{self, FORGOTTEN};
use crate::store::memory_lines::{self, SummaryRow};
use crate::store::{Connection, StoreError, memories, messages, meta, session_memory};

/// The outcome of [`forget`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ForgetOutcome {
    /// The forgotten entries, and the entries that they had replaced.
    pub entries: Vec<MemoryEntry>,
    /// The number of turns removed from the log because the entries came from them.
    pub turns: usize,
}

/// The key in `meta` of the changed summaries, as JSON of session and time. The writer of HISTORY.md updates them in the file.
pub(super) const CHANGED_SUMMARIES_KEY: &str = "memory_retold";
/// The field in the detail of memories that earlier versions guessed from single words. Their sources are unreliable.
const GUESS_FIELD: &str = "guess";
/// The session of a summary, and its creation time.
type SummaryKey = (String, i64);
/// The maximum number of changed summaries that are recorded; more than a file holds.
const MAX_CHANGED_SUMMARIES: usize = 10_000;

/// Forgets memories for good, in the caller's write: their rows, the rows that they replaced, their terms and embeddings, the
/// snapshots and summaries that mention them, the words of the turns that stated them, and their copies in other turns. Unknown
/// ids are ignored.
///
/// # Errors
/// The store cannot be written.
pub fn forget(connection: &Connection, ids: &[i64]) -> Result<ForgetOutcome, StoreError> {
    let entries = remove_entries(connection, ids)?;
    if entries.is_empty() {
        return Ok(ForgetOutcome::default());
    }
    forgetting::record(connection)?;
    let owners: BTreeSet<&MemoryOwner> = entries.iter().map(|entry| &entry.owner).collect();
    for owner in &owners {
        drop_prompt_snapshots(connection, owner)?;
    }
    let detectors = mention_detectors(connection, &entries)?;
    let of = |owner: &MemoryOwner| -> Vec<MentionDetector> {
        detectors.iter().filter(|(of, _)| *of == owner).map(|(_, detector)| detector.clone()).collect()
    };
    let (mut turns, mut sessions) = (0, BTreeSet::new());
    let sources = source_turns(connection, &entries)?;
    for owner in &owners {
        let of_owner: Vec<&MemoryEntry> = entries.iter().filter(|entry| entry.owner == **owner).collect();
        sessions.extend(prompt_memory::redact_prompts(connection, owner, (&of_owner, of(owner)), &sources)?);
    }
    for (session, turn) in &sources {
        turns += usize::from(forget_turn(connection, session, turn)?);
        sessions.insert(session.clone());
    }
    let summaries = entries.iter().filter(|entry| entry.kind == MemoryKind::Summary);
    let mut changed: Vec<SummaryKey> = summaries.map(|entry| (entry.name.clone(), entry.created_at)).collect();
    for owner in &owners {
        let own_detectors = of(owner);
        let summaries = memory_lines::summaries_of(connection, owner.as_str())?;
        changed.extend(redact_summaries(connection, summaries, &own_detectors)?);
        prompt_memory::redact_running_turns(connection, owner, own_detectors)?;
    }
    // Summaries of shared conversations belong to no person.
    let detectors: Vec<MentionDetector> = detectors.into_iter().map(|(_, detector)| detector).collect();
    for session in &sessions {
        changed.extend(redact_summaries(
            connection,
            memory_lines::summaries_of_session(connection, session)?,
            &detectors,
        )?);
    }
    record_changed_summaries(connection, changed)?;
    word_index::purge_memories(connection)?;
    Ok(ForgetOutcome { entries, turns })
}

/// Removes the rows of the entries, and the rows that these had replaced. Returns them.
fn remove_entries(connection: &Connection, ids: &[i64]) -> Result<Vec<MemoryEntry>, StoreError> {
    let mut entries = Vec::new();
    for id in ids {
        let Some(row) = memories::find(connection, *id)? else { continue };
        let older = replaced_before(connection, *id)?;
        entries.extend(std::iter::once(row).chain(older).filter_map(MemoryEntry::from_row));
        remove(connection, *id)?;
        forgetting::detach_summary(connection, *id)?;
    }
    Ok(entries)
}

/// Drops the memory snapshots of an owner from all prompts. The next turn of each session gets a new one.
///
/// # Errors
/// The store cannot be written.
pub fn drop_prompt_snapshots(connection: &Connection, owner: &MemoryOwner) -> Result<(), StoreError> {
    if *owner == MemoryOwner::everyone() {
        return forgetting::drop_all_snapshots(connection);
    }
    session_memory::drop_snapshots(connection, owner.as_str())
}

/// Returns the turns in which the entries were stated.
fn source_turns(connection: &Connection, entries: &[MemoryEntry]) -> Result<BTreeSet<(String, String)>, StoreError> {
    let mut turns = BTreeSet::new();
    // The turns that a summary covers stay.
    let has_source_turn = |entry: &&MemoryEntry| entry.kind != MemoryKind::Summary && entry.detail[GUESS_FIELD] != true;
    for entry in entries.iter().filter(has_source_turn) {
        turns.extend(further_turns(&entry.detail));
        let Some(source) = &entry.source else { continue };
        let turn = match (&source.turn, source.seq) {
            (Some(turn), _) => Some(turn.clone()),
            (None, Some(seq)) => messages::turn_of(connection, &source.session, seq)?,
            (None, None) => None,
        };
        turns.extend(turn.map(|turn| (source.session.clone(), turn)));
    }
    Ok(turns)
}

fn mention_detectors<'a>(
    connection: &Connection,
    entries: &'a [MemoryEntry],
) -> Result<Vec<(&'a MemoryOwner, MentionDetector)>, StoreError> {
    let mentionable = entries.iter().filter(|entry| entry.kind != MemoryKind::Summary);
    mentionable.map(|entry| Ok((&entry.owner, MentionDetector::with_rare_terms(connection, entry)?))).collect()
}

/// Removes the sentences that mention the entries from summaries, and returns the changed ones.
fn redact_summaries(
    connection: &Connection,
    summaries: Vec<SummaryRow>,
    detectors: &[MentionDetector],
) -> Result<Vec<SummaryKey>, StoreError> {
    let mut changed = Vec::new();
    for SummaryRow { id, session, text, at, .. } in summaries {
        let Some(left) = without_mentions(&text, detectors) else { continue };
        let left = if left.is_empty() { FORGOTTEN.to_owned() } else { left };
        memories::set_text(connection, id, &left)?;
        word_index::remove(connection, id)?;
        vectors::remove(connection, id)?;
        word_index::put(connection, id)?;
        changed.push((session, at));
    }
    Ok(changed)
}

fn record_changed_summaries(connection: &Connection, changed: Vec<SummaryKey>) -> Result<(), StoreError> {
    if changed.is_empty() {
        return Ok(());
    }
    let stored = meta::get(connection, CHANGED_SUMMARIES_KEY)?
        .and_then(|text| serde_json::from_str::<BTreeSet<SummaryKey>>(&text).ok());
    let all: BTreeSet<SummaryKey> = stored.unwrap_or_default().into_iter().chain(changed).collect();
    let newest: Vec<SummaryKey> = all.into_iter().rev().take(MAX_CHANGED_SUMMARIES).collect();
    meta::set(connection, CHANGED_SUMMARIES_KEY, &serde_json::to_string(&newest)?)
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use uuid::Uuid;

    use super::*;
    use crate::memory::{MemoryConfig, MemoryOrigin, MemorySource, NewMemoryEntry, RememberOutcome, remember};
    use crate::store::Store;
    use crate::store::{Durability, messages};

    #[tokio::test]
    async fn forgetting_removes_all_traces_of_a_memory() {
        let (_folder, store) = Store::temporary();
        let left = store.write(Durability::Logged, |connection| {
            let config = MemoryConfig::default();
            let new = |kind, name: &str, text: &str, turn: &str| NewMemoryEntry {
                name: name.to_owned(),
                source: Some(MemorySource { session: "s".to_owned(), seq: None, turn: Some(turn.to_owned()) }),
                confidence: 0.5,
                ..NewMemoryEntry::new(MemoryOwner::gateway(), kind, text, MemoryOrigin::Stated)
            };
            let append = |connection: &Connection, turn: Uuid, text: &str| {
                let body = json!({"role": "user", "content": text}).to_string();
                messages::append(connection, "s", turn, std::iter::once(("user", body)))
            };
            let turns = [Uuid::now_v7(), Uuid::now_v7(), Uuid::now_v7()];
            for (turn, text) in turns.iter().zip(["my cat is Momo", "her name is Nini now", "something else"]) {
                append(connection, *turn, text)?;
            }
            let [one, two, three] = turns.map(|turn| turn.to_string());
            let old = remember(connection, &new(MemoryKind::Fact, "", "My cat is called Momo", &one), &config)?;
            let now = remember(connection, &new(MemoryKind::Fact, "", "My cat is called Nini", &two), &config)?;
            assert_eq!(now, RememberOutcome::Replaced { id: now.id(), old: old.id() });
            remember(connection, &new(MemoryKind::Task, "", "look for the cat Nini", &two), &config)?;
            let other = remember(connection, &new(MemoryKind::Fact, "", "Rex is a dog", &three), &config)?.id();
            let summary =
                new(MemoryKind::Summary, "s", "- The cat is called Momo, later Nini.\n- Rex is a dog.", &three);
            let summary = remember(connection, &summary, &config)?.id();
            session_memory::keep_snapshot(connection, "h", "owner", "- My cat is called Nini")?;
            let forgotten = forget(connection, &[now.id()])?;
            assert_eq!((forgotten.entries.len(), forgotten.turns), (2, 2));
            let mut left = vec![session_memory::snapshot(connection, "h")?.unwrap_or_default()];
            for id in 1..=summary {
                left.extend(memories::find(connection, id)?.map(|row| row.text));
            }
            left.extend(messages::range(connection, "s", 0, 10)?.into_iter().map(|row| row.body));
            assert!(memories::find(connection, other)?.is_some());
            assert!(meta::get(connection, CHANGED_SUMMARIES_KEY)?.is_some_and(|stored| stored.starts_with("[[\"s\",")));
            assert_eq!(forget(connection, &[now.id(), 99])?, ForgetOutcome::default());
            Ok(left)
        });
        let left = left.await.unwrap();
        let gone = r#"{"content":"[forgotten]","role":"user"}"#;
        let kept = r#"{"content":"something else","role":"user"}"#;
        assert_eq!(left, ["", "Rex is a dog", "- Rex is a dog.", gone, gone, kept]);
    }
}
