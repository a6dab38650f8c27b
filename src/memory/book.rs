//! The rules by which something is remembered. `forgetting` has those by which it goes.

use serde_json::{Value, json};

use super::claims::{Claim, claim};
use super::learned::IMPLIED;
use super::wording;
use super::{Entry, Kind, MemoryConfig, NewEntry, Origin, Owner, vectors, words};
use crate::store::memories::{self, MemoryRow, NewMemory};
use crate::store::{Connection, StoreError, now_ms, remembering};
use crate::text::comparison_key;

/// What became of something that was to be remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remembered {
    New(i64),
    /// It was known, and is all the more.
    Known(i64),
    /// It contradicts what was known, which stays as history.
    Replaced {
        id: i64,
        old: i64,
    },
}

impl Remembered {
    /// The memory that says it now.
    pub fn id(self) -> i64 {
        match self {
            Self::New(id) | Self::Known(id) | Self::Replaced { id, .. } => id,
        }
    }
}

/// What is to be done to remember something, as things stood when it was looked at.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// As it is kept.
    pub entry: NewEntry,
    /// What says the same already.
    pub known: Option<Entry>,
    /// What it takes the place of.
    pub replaces: Option<Entry>,
}

/// How much of what is missing to certainty is added when something is said again.
const CONFIRMED: f64 = 0.3;
/// Other turns of the same words that are noted with a memory, the newest.
const ALSO: usize = 16;
/// What a memory has replaced, and what that had: so many of them stay.
const HISTORY: usize = 10;

/// Remembers `new` in the caller's write: its row, and the words that it is found by. What says the same is not written again,
/// what contradicts a known fact replaces it, and what is too long is cut; `fit` tells whoever can shorten it.
///
/// # Errors
/// The store cannot be written, or there are no words to remember.
pub fn remember(connection: &Connection, new: &NewEntry, config: &MemoryConfig) -> Result<Remembered, StoreError> {
    let entry = wording::cut_to_fit(new).map_err(|unfit| StoreError::Row(unfit.to_string()))?;
    let plan = plan(connection, entry, None)?;
    carry_out(connection, &plan, None, config)
}

/// As [`remember`], in the place of the memory `old` of the same owner.
///
/// # Errors
/// As [`remember`].
pub fn remember_instead(
    connection: &Connection,
    new: &NewEntry,
    old: i64,
    config: &MemoryConfig,
) -> Result<Remembered, StoreError> {
    let entry = wording::cut_to_fit(new).map_err(|unfit| StoreError::Row(unfit.to_string()))?;
    let old = memories::get(connection, old)?.and_then(Entry::of);
    let plan = plan(connection, entry, old)?;
    carry_out(connection, &plan, None, config)
}

/// Looks what is to be done to remember `entry`, which fits; `instead` is what its teller wants it to replace.
///
/// # Errors
/// The store cannot be read.
pub fn plan(connection: &Connection, entry: NewEntry, instead: Option<Entry>) -> Result<Plan, StoreError> {
    let (owner, kind) = (entry.owner.as_str(), entry.kind.as_str());
    let named = || Ok::<_, StoreError>(memories::named(connection, owner, kind, &entry.name)?.and_then(Entry::of));
    let same = comparison_key(&entry.text);
    let (known, rival) = match entry.kind {
        Kind::Task => (None, None),
        Kind::Fact => {
            let texts = remembering::texts(connection, owner, kind)?;
            let known = texts.iter().find(|(_, text)| comparison_key(text) == same).map(|(id, _)| *id);
            let rival = || claim(&entry.text).and_then(|new| contradicted(&texts, &new));
            let get = |id: i64| Ok::<_, StoreError>(memories::get(connection, id)?.and_then(Entry::of));
            match known {
                Some(id) => (get(id)?, None),
                None => (None, rival().map(get).transpose()?.flatten()),
            }
        }
        Kind::Preference => match named()? {
            Some(known) if comparison_key(&known.text) == same || outweighs(&known, &entry) => (Some(known), None),
            old => (None, old),
        },
        Kind::Case => match named()? {
            Some(known) if comparison_key(&known.text) == same => (Some(known), None),
            old => (None, old),
        },
        // Each builds on the one before, as long as it is of the same conversation.
        Kind::Summary => (None, named()?.filter(|old| old.detail["epoch"] == entry.detail["epoch"])),
    };
    let instead = instead.filter(|old| known.as_ref().is_none_or(|known| known.id != old.id));
    Ok(Plan { entry, replaces: instead.or(rival), known })
}

/// What was concluded from few words does not weigh against what somebody said or wrote himself; what is only implied replaces
/// nothing that is surer.
fn outweighs(known: &Entry, new: &NewEntry) -> bool {
    new.origin == Origin::Noticed
        && known.confidence > new.confidence
        && (known.origin != Origin::Noticed || new.confidence <= IMPLIED)
}

fn contradicted(texts: &[(i64, String)], new: &Claim) -> Option<i64> {
    let contradicts = |text: &str| claim(text).is_some_and(|old| old.subject == new.subject && old.value != new.value);
    texts.iter().find(|(_, text)| contradicts(text)).map(|(id, _)| *id)
}

/// Does what `plan` says, under a reserved id where there is one.
///
/// # Errors
/// The store cannot be written.
pub fn carry_out(
    connection: &Connection,
    plan: &Plan,
    reserved: Option<i64>,
    config: &MemoryConfig,
) -> Result<Remembered, StoreError> {
    let new = &plan.entry;
    if let Some(known) = &plan.known {
        confirm(connection, known.id, new)?;
        if let Some(old) = &plan.replaces {
            memories::replace(connection, old.id, known.id)?;
            words::remove(connection, old.id)?;
        }
        return Ok(Remembered::Known(known.id));
    }
    let id = insert(connection, new, reserved)?;
    words::put(connection, id)?;
    let old = plan.replaces.as_ref().map(|old| old.id);
    if let Some(old) = old {
        memories::replace(connection, old, id)?;
        words::remove(connection, old)?;
    }
    if matches!(new.kind, Kind::Preference | Kind::Case) {
        let name = (new.owner.as_str(), new.kind.as_str(), new.name.as_str());
        for old in remembering::replace_named(connection, name, id, now_ms())? {
            words::remove(connection, old)?;
        }
    }
    keep_history_short(connection, id)?;
    keep_within(connection, &new.owner, new.kind, id, config)?;
    Ok(old.map_or(Remembered::New(id), |old| Remembered::Replaced { id, old }))
}

fn insert(connection: &Connection, new: &NewEntry, reserved: Option<i64>) -> Result<i64, StoreError> {
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
    match reserved {
        // A commit that is tried again has taken it back before.
        Some(id) => remembering::insert_as(connection, id, &row, now_ms()).map(|()| id),
        None => memories::insert(connection, &row),
    }
}

/// It was said again, by `again`: it is more certain, and the turn is noted, since forgetting has to find it.
fn confirm(connection: &Connection, id: i64, again: &NewEntry) -> Result<(), StoreError> {
    let Some(known) = memories::get(connection, id)?.and_then(Entry::of) else { return Ok(()) };
    // What does not outweigh it says nothing for it either.
    if comparison_key(&known.text) != comparison_key(&again.text) {
        return Ok(());
    }
    let surer = known.confidence + (1.0 - known.confidence) * CONFIRMED;
    let confidence = surer.max(again.confidence).min(1.0);
    let mut detail = known.detail;
    let is_other = |source: &&super::Source| known.source.as_ref().is_none_or(|known| known.turn != source.turn);
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
            let surplus = also.len().saturating_sub(ALSO);
            also.drain(..surplus);
        }
    }
    remembering::confirm(connection, id, confidence, &detail.to_string())
}

/// Other turns in which a memory was said: session and turn.
pub(super) fn also_said(detail: &Value) -> Vec<(String, String)> {
    let pairs = detail["also"].as_array().into_iter().flatten();
    pairs.filter_map(|pair| Some((pair[0].as_str()?.to_owned(), pair[1].as_str()?.to_owned()))).collect()
}

fn keep_history_short(connection: &Connection, id: i64) -> Result<(), StoreError> {
    for row in replaced_before(connection, id)?.into_iter().skip(HISTORY) {
        remove(connection, row.id)?;
    }
    Ok(())
}

/// The memory of this id; the newest that took its place, where one did.
///
/// # Errors
/// The store cannot be read.
pub fn newest(connection: &Connection, id: i64) -> Result<Option<Entry>, StoreError> {
    // As many as a chain of replaced ones may have, and a few more.
    const STEPS: usize = 32;
    let mut found = memories::get(connection, id)?.and_then(Entry::of);
    for _ in 0..STEPS {
        let Some(next) = found.as_ref().and_then(|entry| entry.replaced_by) else { break };
        found = memories::get(connection, next)?.and_then(Entry::of).or(found);
    }
    Ok(found)
}

/// All that `id` took the place of, and what that had, the nearest first.
pub(super) fn replaced_before(connection: &Connection, id: i64) -> Result<Vec<MemoryRow>, StoreError> {
    const MOST: usize = 1_000;
    let mut found: Vec<MemoryRow> = memories::replaced_by(connection, id)?;
    let mut at = 0;
    while let Some(row) = found.get(at).filter(|_| found.len() < MOST) {
        let older = memories::replaced_by(connection, row.id)?;
        found.extend(older.into_iter().filter(|row| row.id != id));
        at += 1;
    }
    Ok(found)
}

/// One memory more than there may be: what was of least use goes.
fn keep_within(
    connection: &Connection,
    owner: &Owner,
    kind: Kind,
    newest: i64,
    config: &MemoryConfig,
) -> Result<(), StoreError> {
    let surplus = match kind {
        Kind::Task => remembering::old_tasks(connection, owner.as_str(), config.keep_tasks)?,
        Kind::Summary => Vec::new(),
        Kind::Fact | Kind::Preference | Kind::Case => {
            let over = remembering::count_known(connection, owner.as_str())? - i64::from(config.max_entries);
            let least = if over > 0 { remembering::least_used(connection, owner.as_str(), newest)? } else { None };
            if let Some(id) = least {
                tracing::info!(id, %owner, most = config.max_entries, "a memory goes, as there are more than may be kept");
            }
            least.into_iter().collect()
        }
    };
    surplus.into_iter().try_for_each(|id| remove(connection, id))
}

/// Removes a memory and what it had replaced, and what they are found by.
pub(super) fn remove(connection: &Connection, id: i64) -> Result<(), StoreError> {
    for row in replaced_before(connection, id)? {
        words::remove(connection, row.id)?;
        vectors::remove(connection, row.id)?;
        memories::delete(connection, row.id)?;
    }
    words::remove(connection, id)?;
    vectors::remove(connection, id)?;
    memories::delete(connection, id)?;
    Ok(())
}

/// What is known now of an owner, the newest first.
///
/// # Errors
/// The store cannot be read.
pub fn list(connection: &Connection, owner: &Owner, kind: Kind, limit: u32) -> Result<Vec<Entry>, StoreError> {
    let rows = memories::current(connection, owner.as_str(), kind.as_str(), limit)?;
    Ok(rows.into_iter().filter_map(Entry::of).collect())
}
