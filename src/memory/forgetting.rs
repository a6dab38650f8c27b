//! Forgetting: removes memories for good, wherever they were copied to.

use std::collections::BTreeSet;

use super::mentions::{MentionDetector, without_mentions};
use super::prompt_memory::{self, forget_turn};
use super::remember::{also_said, remove, replaced_before};
use super::{MemoryEntry, MemoryKind, Owner, vectors, word_index};
use crate::store::forgetting::{self, FORGOTTEN};
use crate::store::memory_lines::{self, SummaryRow};
use crate::store::{Connection, StoreError, memories, messages, meta, session_memory};

/// What [`forget`] removed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ForgetOutcome {
    /// The entries, and those that they had replaced.
    pub entries: Vec<MemoryEntry>,
    /// The number of turns removed from the log because the entries came from them.
    pub turns: usize,
}

/// The key in `meta` of the changed summaries, as JSON of session and time. The writer of HISTORY.md replaces them there.
pub(super) const RETOLD: &str = "memory_retold";
/// The field in the detail of memories that earlier versions guessed from single words. Their sources are unreliable.
const GUESS: &str = "guess";
/// The session of a summary, and its creation time.
type SummaryKey = (String, i64);
/// The most changed summaries that are recorded; more than a file holds.
const MOST_RETOLD: usize = 10_000;

/// Forgets memories for good, in the caller's write: their rows, the rows that they replaced, their terms and embeddings,
/// the snapshots and summaries that mention them, the words of the turns that stated them, and what other turns were shown
/// of them. Unknown ids are ignored.
///
/// # Errors
/// The store cannot be written.
pub fn forget(connection: &Connection, ids: &[i64]) -> Result<ForgetOutcome, StoreError> {
    let entries = take(connection, ids)?;
    if entries.is_empty() {
        return Ok(ForgetOutcome::default());
    }
    forgetting::record(connection)?;
    let owners: BTreeSet<&Owner> = entries.iter().map(|entry| &entry.owner).collect();
    for owner in &owners {
        drop_prompt_snapshots(connection, owner)?;
    }
    let detectors = mention_detectors(connection, &entries)?;
    let of = |owner: &Owner| -> Vec<MentionDetector> {
        detectors.iter().filter(|(of, _)| *of == owner).map(|(_, detector)| detector.clone()).collect()
    };
    let (mut turns, mut sessions) = (0, BTreeSet::new());
    let sources = sources(connection, &entries)?;
    for owner in &owners {
        let of_owner: Vec<&MemoryEntry> = entries.iter().filter(|entry| entry.owner == **owner).collect();
        sessions.extend(prompt_memory::redact_prompts(connection, owner, (&of_owner, of(owner)), &sources)?);
    }
    for (session, turn) in &sources {
        turns += usize::from(forget_turn(connection, session, turn)?);
        sessions.insert(session.clone());
    }
    let summaries = entries.iter().filter(|entry| entry.kind == MemoryKind::Summary);
    let mut retold: Vec<SummaryKey> = summaries.map(|entry| (entry.name.clone(), entry.created_at)).collect();
    for owner in &owners {
        let telling = of(owner);
        retold.extend(retell(connection, memory_lines::summaries_of(connection, owner.as_str())?, &telling)?);
        prompt_memory::redact_running_turns(connection, owner, telling)?;
    }
    // Summaries of shared conversations belong to no person.
    let telling: Vec<MentionDetector> = detectors.into_iter().map(|(_, detector)| detector).collect();
    for session in &sessions {
        retold.extend(retell(connection, memory_lines::summaries_of_session(connection, session)?, &telling)?);
    }
    note_retold(connection, retold)?;
    word_index::purge_memories(connection)?;
    Ok(ForgetOutcome { entries, turns })
}

/// Removes the rows and those that they had replaced, and returns them.
fn take(connection: &Connection, ids: &[i64]) -> Result<Vec<MemoryEntry>, StoreError> {
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
pub fn drop_prompt_snapshots(connection: &Connection, owner: &Owner) -> Result<(), StoreError> {
    if *owner == Owner::everyone() {
        return forgetting::drop_all_snapshots(connection);
    }
    session_memory::drop_snapshots(connection, owner.as_str())
}

/// Returns the turns in which the entries were stated.
fn sources(connection: &Connection, entries: &[MemoryEntry]) -> Result<BTreeSet<(String, String)>, StoreError> {
    let mut turns = BTreeSet::new();
    // The turns that a summary covers stay.
    let is_said = |entry: &&MemoryEntry| entry.kind != MemoryKind::Summary && entry.detail[GUESS] != true;
    for entry in entries.iter().filter(is_said) {
        turns.extend(also_said(&entry.detail));
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
) -> Result<Vec<(&'a Owner, MentionDetector)>, StoreError> {
    let told = entries.iter().filter(|entry| entry.kind != MemoryKind::Summary);
    told.map(|entry| Ok((&entry.owner, MentionDetector::with_rare_terms(connection, entry)?))).collect()
}

/// Removes the sentences that mention the entries from summaries, and returns the changed ones.
fn retell(
    connection: &Connection,
    summaries: Vec<SummaryRow>,
    telling: &[MentionDetector],
) -> Result<Vec<SummaryKey>, StoreError> {
    let mut changed = Vec::new();
    for SummaryRow { id, session, text, at, .. } in summaries {
        let Some(left) = without_mentions(&text, telling) else { continue };
        let left = if left.is_empty() { FORGOTTEN.to_owned() } else { left };
        memories::set_text(connection, id, &left)?;
        word_index::remove(connection, id)?;
        vectors::remove(connection, id)?;
        word_index::put(connection, id)?;
        changed.push((session, at));
    }
    Ok(changed)
}

fn note_retold(connection: &Connection, changed: Vec<SummaryKey>) -> Result<(), StoreError> {
    if changed.is_empty() {
        return Ok(());
    }
    let noted =
        meta::get(connection, RETOLD)?.and_then(|text| serde_json::from_str::<BTreeSet<SummaryKey>>(&text).ok());
    let all: BTreeSet<SummaryKey> = noted.unwrap_or_default().into_iter().chain(changed).collect();
    let newest: Vec<SummaryKey> = all.into_iter().rev().take(MOST_RETOLD).collect();
    meta::set(connection, RETOLD, &serde_json::to_string(&newest)?)
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use uuid::Uuid;

    use super::*;
    use crate::memory::{MemoryConfig, MemoryOrigin, MemorySource, NewMemoryEntry, RememberOutcome, remember};
    use crate::store::{Durability, Store, messages};

    #[tokio::test]
    async fn nothing_is_left_of_what_is_forgotten() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(&folder.path().join("daoyou.db")).unwrap();
        let left = store.write(Durability::Logged, |connection| {
            let config = MemoryConfig::default();
            let new = |kind, name: &str, text: &str, turn: &str| NewMemoryEntry {
                owner: Owner::gateway(),
                kind,
                name: name.to_owned(),
                text: text.to_owned(),
                detail: json!({}),
                origin: MemoryOrigin::Told,
                source: Some(MemorySource { session: "s".to_owned(), seq: None, turn: Some(turn.to_owned()) }),
                confidence: 0.5,
            };
            let said = |connection: &Connection, turn: Uuid, text: &str| {
                let body = json!({"role": "user", "content": text}).to_string();
                messages::append(connection, "s", turn, std::iter::once(("user", body)))
            };
            let turns = [Uuid::now_v7(), Uuid::now_v7(), Uuid::now_v7()];
            for (turn, text) in turns.iter().zip(["my cat is Momo", "her name is Nini now", "something else"]) {
                said(connection, *turn, text)?;
            }
            let [one, two, three] = turns.map(|turn| turn.to_string());
            let old = remember(connection, &new(MemoryKind::Fact, "", "My cat is called Momo", &one), &config)?;
            let now = remember(connection, &new(MemoryKind::Fact, "", "My cat is called Nini", &two), &config)?;
            assert_eq!(now, RememberOutcome::Replaced { id: now.id(), old: old.id() });
            remember(connection, &new(MemoryKind::Task, "", "look for the cat Nini", &two), &config)?;
            let other = remember(connection, &new(MemoryKind::Fact, "", "Rex is a dog", &three), &config)?.id();
            let told = new(MemoryKind::Summary, "s", "- The cat is called Momo, later Nini.\n- Rex is a dog.", &three);
            let summary = remember(connection, &told, &config)?.id();
            session_memory::keep_snapshot(connection, "h", "owner", "- My cat is called Nini")?;
            let forgotten = forget(connection, &[now.id()])?;
            assert_eq!((forgotten.entries.len(), forgotten.turns), (2, 2));
            let mut left = vec![session_memory::snapshot(connection, "h")?.unwrap_or_default()];
            for id in 1..=summary {
                left.extend(memories::find(connection, id)?.map(|row| row.text));
            }
            left.extend(messages::range(connection, "s", 0, 10)?.into_iter().map(|row| row.body));
            assert!(memories::find(connection, other)?.is_some());
            assert!(meta::get(connection, RETOLD)?.is_some_and(|noted| noted.starts_with("[[\"s\",")));
            assert_eq!(forget(connection, &[now.id(), 99])?, ForgetOutcome::default());
            Ok(left)
        });
        let left = left.await.unwrap();
        let gone = r#"{"content":"[forgotten]","role":"user"}"#;
        let kept = r#"{"content":"something else","role":"user"}"#;
        assert_eq!(left, ["", "Rex is a dog", "- Rex is a dog.", gone, gone, kept]);
    }
}
