//! The rules of remembering: duplicates, contradictions, limits. `forgetting` has the rules of removal.

use serde_json::{Value, json};

use super::contradictions::{ExclusiveClaim, exclusive_claim};
use super::rule_extraction::IMPLIED;
use super::validation::validate_truncated;
use super::{MemoryConfig, MemoryEntry, MemoryKind, MemoryOrigin, MemoryOwner, NewMemoryEntry, vectors, word_index};
use crate::store::memories::{self, MemoryRow, NewMemory};
use crate::store::{Connection, StoreError};
use crate::text::comparison_key;

/// The outcome of remembering an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RememberOutcome {
    New(i64),
    /// The entry was known already; its confidence has grown.
    Known(i64),
    /// The entry replaced a contradicting memory, which stays as history.
    Replaced {
        id: i64,
        old: i64,
    },
}

impl RememberOutcome {
    /// Returns the id of the memory that holds the entry now.
    pub fn id(self) -> i64 {
        match self {
            Self::New(id) | Self::Known(id) | Self::Replaced { id, .. } => id,
        }
    }
}

/// The changes that remembering an entry needs, based on the state of the store when the plan was made.
#[derive(Clone, Debug, PartialEq)]
pub struct RememberPlan {
    /// The entry as it is stored.
    pub entry: NewMemoryEntry,
    /// The known memory with the same content.
    pub known: Option<MemoryEntry>,
    /// The memory that the entry replaces.
    pub replaces: Option<MemoryEntry>,
}

/// The share of the difference to full confidence that a repetition adds.
const CONFIRMATION_GAIN: f64 = 0.3;
/// The maximum number of further turns with the same statement that are recorded for a memory, the newest.
const MAX_FURTHER_TURNS: usize = 16;
/// The maximum number of replaced memories that are kept as the history of one memory.
const MAX_HISTORY: usize = 10;

/// Remembers `new` in the caller's write, and indexes it. An entry that is known already confirms the known memory, an entry
/// that contradicts a known fact replaces it, and a text that is too long is truncated. [`super::validate_entry`] reports such
/// a text to callers that can shorten it.
///
/// # Errors
/// The store cannot be written, or there are no words to remember.
pub fn remember(
    connection: &Connection,
    new: &NewMemoryEntry,
    config: &MemoryConfig,
) -> Result<RememberOutcome, StoreError> {
    let entry = validate_truncated(new).map_err(|invalid| StoreError::Row(invalid.to_string()))?;
    let plan = plan(connection, entry, None)?;
    apply_plan(connection, &plan, None, config)
}

/// Remembers `new` as [`remember`] does, and replaces the memory `old` of the same owner.
///
/// # Errors
/// The same as those of [`remember`].
pub fn remember_replacing(
    connection: &Connection,
    new: &NewMemoryEntry,
    old: i64,
    config: &MemoryConfig,
) -> Result<RememberOutcome, StoreError> {
    let entry = validate_truncated(new).map_err(|invalid| StoreError::Row(invalid.to_string()))?;
    let old = MemoryEntry::find(connection, old)?;
    let plan = plan(connection, entry, old)?;
    apply_plan(connection, &plan, None, config)
}

/// Plans how to remember a valid `entry`; `instead` is the memory that the caller wants to replace.
///
/// # Errors
/// The store cannot be read.
pub fn plan(
    connection: &Connection,
    entry: NewMemoryEntry,
    instead: Option<MemoryEntry>,
) -> Result<RememberPlan, StoreError> {
    let (owner, kind) = (entry.owner.as_str(), entry.kind.as_str());
    let named = || -> Result<_, StoreError> {
        Ok(memories::find_by_name(connection, owner, kind, &entry.name)?.and_then(MemoryEntry::from_row))
    };
    let same = comparison_key(&entry.text);
    let (known, contradicted) = match entry.kind {
        MemoryKind::Task => (None, None),
        MemoryKind::Fact => {
            let texts = memories::current_texts(connection, owner, kind)?;
            let known = texts.iter().find(|(_, text)| comparison_key(text) == same).map(|(id, _)| *id);
            let contradicted = || exclusive_claim(&entry.text).and_then(|new| contradicted_fact(&texts, &new));
            let get = |id: i64| MemoryEntry::find(connection, id);
            match known {
                Some(id) => (get(id)?, None),
                None => (None, contradicted().map(get).transpose()?.flatten()),
            }
        }
        MemoryKind::Preference => match named()? {
            Some(known) if comparison_key(&known.text) == same || outweighs(&known, &entry) => (Some(known), None),
            old => (None, old),
        },
        MemoryKind::Case => match named()? {
            Some(known) if comparison_key(&known.text) == same => (Some(known), None),
            old => (None, old),
        },
        // A summary continues the one before it, as long as both are of the same epoch.
        MemoryKind::Summary => (None, named()?.filter(|old| old.detail["epoch"] == entry.detail["epoch"])),
    };
    let instead = instead.filter(|old| known.as_ref().is_none_or(|known| known.id != old.id));
    Ok(RememberPlan { entry, replaces: instead.or(contradicted), known })
}

/// Returns true if `new` must not replace `known`: `known` is more certain, `new` was extracted, and `known` was stated or written
/// by hand or `new` is only implied.
fn outweighs(known: &MemoryEntry, new: &NewMemoryEntry) -> bool {
    new.origin == MemoryOrigin::Noticed
        && known.confidence > new.confidence
        && (known.origin != MemoryOrigin::Noticed || new.confidence <= IMPLIED)
}

fn contradicted_fact(texts: &[(i64, String)], new: &ExclusiveClaim) -> Option<i64> {
    let contradicts =
        |text: &str| exclusive_claim(text).is_some_and(|old| old.subject == new.subject && old.value != new.value);
    texts.iter().find(|(_, text)| contradicts(text)).map(|(id, _)| *id)
}

/// Executes a plan, with a reserved id if there is one.
///
/// # Errors
/// The store cannot be written.
pub fn apply_plan(
    connection: &Connection,
    plan: &RememberPlan,
    reserved: Option<i64>,
    config: &MemoryConfig,
) -> Result<RememberOutcome, StoreError> {
    let new = &plan.entry;
    let id = if let Some(known) = &plan.known {
        confirm(connection, known.id, new)?;
        known.id
    } else {
        let id = insert(connection, new, reserved)?;
        word_index::put(connection, id)?;
        id
    };
    let old = plan.replaces.as_ref().map(|old| old.id);
    if let Some(old) = old {
        memories::replace(connection, old, id)?;
        word_index::remove(connection, old)?;
    }
    if plan.known.is_some() {
        return Ok(RememberOutcome::Known(id));
    }
    if matches!(new.kind, MemoryKind::Preference | MemoryKind::Case) {
        let name = (new.owner.as_str(), new.kind.as_str(), new.name.as_str());
        for old in memories::replace_named(connection, name, id)? {
            word_index::remove(connection, old)?;
        }
    }
    for row in replaced_before(connection, id)?.into_iter().skip(MAX_HISTORY) {
        remove(connection, row.id)?;
    }
    enforce_limit(connection, &new.owner, new.kind, id, config)?;
    Ok(old.map_or(RememberOutcome::New(id), |old| RememberOutcome::Replaced { id, old }))
}

fn insert(connection: &Connection, new: &NewMemoryEntry, reserved: Option<i64>) -> Result<i64, StoreError> {
    let source = new.source.as_ref();
    let detail = if new.detail.is_null() { json!({}) } else { new.detail.clone() }.to_string();
    let row = NewMemory {
        owner: new.owner.as_str(),
        kind: new.kind.as_str(),
        name: &new.name,
        text: &new.text,
        detail: &detail,
        origin: new.origin.as_str(),
        session: source.map(|source| source.session.as_str()),
        seq: source.and_then(|source| source.seq),
        turn: source.and_then(|source| source.turn.as_deref()),
        confidence: new.confidence,
    };
    // The first attempt of a retried commit was rolled back, so a reserved id is free.
    memories::insert_as(connection, reserved, &row)
}

/// Confirms a memory that was stated again: raises its confidence, and records the turn, which forgetting needs.
fn confirm(connection: &Connection, id: i64, again: &NewMemoryEntry) -> Result<(), StoreError> {
    let Some(known) = MemoryEntry::find(connection, id)? else { return Ok(()) };
    // A different value that was too weak to replace the memory does not confirm it.
    if comparison_key(&known.text) != comparison_key(&again.text) {
        return Ok(());
    }
    let raised = known.confidence + (1.0 - known.confidence) * CONFIRMATION_GAIN;
    let confidence = raised.max(again.confidence).min(1.0);
    let mut detail = known.detail;
    let is_other = |source: &&super::MemorySource| known.source.as_ref().is_none_or(|known| known.turn != source.turn);
    if let Some(turn) = again
        .source
        .as_ref()
        .filter(is_other)
        .and_then(|source| source.turn.as_ref().map(|turn| json!([source.session, turn])))
        && let Some(fields) = detail.as_object_mut()
    {
        let also = fields.entry("also").or_insert_with(|| json!([]));
        if let Some(also) = also.as_array_mut()
            && !also.contains(&turn)
        {
            also.push(turn);
            let surplus = also.len().saturating_sub(MAX_FURTHER_TURNS);
            also.drain(..surplus);
        }
    }
    memories::confirm(connection, id, confidence, &detail.to_string())
}

/// Returns the further turns in which a memory was stated, as session and turn.
pub(super) fn further_turns(detail: &Value) -> Vec<(String, String)> {
    let pairs = detail["also"].as_array().into_iter().flatten();
    pairs.filter_map(|pair| Some((pair[0].as_str()?.to_owned(), pair[1].as_str()?.to_owned()))).collect()
}

/// Returns the memory of this id, or the newest one that replaced it.
///
/// # Errors
/// The store cannot be read.
pub fn current_entry(connection: &Connection, id: i64) -> Result<Option<MemoryEntry>, StoreError> {
    // A limit that no chain of replaced memories reaches.
    const MAX_STEPS: usize = 32;
    let mut found = MemoryEntry::find(connection, id)?;
    for _ in 0..MAX_STEPS {
        let Some(next) = found.as_ref().and_then(|entry| entry.replaced_by) else { break };
        found = MemoryEntry::find(connection, next)?.or(found);
    }
    Ok(found)
}

/// Returns all memories that `id` replaced, directly or not, the nearest first.
pub(super) fn replaced_before(connection: &Connection, id: i64) -> Result<Vec<MemoryRow>, StoreError> {
    const MOST: usize = 1_000;
    let mut found: Vec<MemoryRow> = memories::replaced_memories(connection, id)?;
    let mut at = 0;
    while let Some(row) = found.get(at).filter(|_| found.len() < MOST) {
        let older = memories::replaced_memories(connection, row.id)?;
        found.extend(older.into_iter().filter(|row| row.id != id));
        at += 1;
    }
    Ok(found)
}

/// Removes surplus tasks, or the least used memory, if an owner has more than the limit.
fn enforce_limit(
    connection: &Connection,
    owner: &MemoryOwner,
    kind: MemoryKind,
    newest: i64,
    config: &MemoryConfig,
) -> Result<(), StoreError> {
    let surplus = match kind {
        MemoryKind::Task => memories::tasks_beyond(connection, owner.as_str(), config.keep_tasks)?,
        MemoryKind::Summary => Vec::new(),
        MemoryKind::Fact | MemoryKind::Preference | MemoryKind::Case => {
            let over = memories::count_known(connection, owner.as_str())? - i64::from(config.max_entries);
            let least = if over > 0 { memories::least_used(connection, owner.as_str(), newest)? } else { None };
            if let Some(id) = least {
                tracing::info!(id, %owner, most = config.max_entries, "the least used memory is deleted: the owner has more than the limit");
            }
            least.into_iter().collect()
        }
    };
    surplus.into_iter().try_for_each(|id| remove(connection, id))
}

/// Removes a memory and those that it had replaced, with their index entries.
pub(super) fn remove(connection: &Connection, id: i64) -> Result<(), StoreError> {
    let older = replaced_before(connection, id)?.into_iter().map(|row| row.id);
    for id in older.chain([id]) {
        word_index::remove(connection, id)?;
        vectors::remove(connection, id)?;
        memories::delete(connection, id)?;
    }
    Ok(())
}

/// Returns the current memories of an owner, the newest first.
///
/// # Errors
/// The store cannot be read.
pub fn list(
    connection: &Connection,
    owner: &MemoryOwner,
    kind: MemoryKind,
    limit: u32,
) -> Result<Vec<MemoryEntry>, StoreError> {
    let rows = memories::current(connection, owner.as_str(), kind.as_str(), limit)?;
    Ok(rows.into_iter().filter_map(MemoryEntry::from_row).collect())
}
