//! `/memory` and `/forget`: what is remembered of whoever asks.

use daoyou_channels::Trust;

use super::history::{clock, shorten};
use super::phrases::fill;
use super::slash::{Answered, SessionChange, SlashCommands};
use crate::memory::{self, HitLocation, MemoryEntry, MemoryKind, Owner, RecallQuery};
use crate::store::inbox::InboxRow;
use crate::store::{Connection, StoreError, memories, ownership};

/// Memories that are listed.
const LISTED: usize = 10;
/// How much of one is shown, in characters.
const SHOWN_CHARS: usize = 200;
/// Memories of a kind that are looked through for words.
const LOOKED_AT: u32 = 5_000;

/// What is listed; tasks and summaries come and go by themselves.
const KINDS: [MemoryKind; 3] = [MemoryKind::Fact, MemoryKind::Preference, MemoryKind::Case];

impl SlashCommands {
    /// The newest memories of whoever asks.
    pub(super) async fn memory(&self, row: &InboxRow) -> Result<String, StoreError> {
        let Some(owner) = self.owner(row) else { return Ok(self.phrases.no_memory_of_strangers.to_owned()) };
        if self.is_read_by_others(row, &owner).await? {
            return Ok(self.phrases.memory_is_private.to_owned());
        }
        let newest = self.memory.store.read(move |connection| newest(connection, &owner)).await?;
        if newest.is_empty() {
            return Ok(self.phrases.no_memories.to_owned());
        }
        Ok(format!("{}\n{}\n\n{}", self.phrases.memories_are, self.lines(&newest), self.phrases.memories_use))
    }

    /// Forgets the memory of an id, or the only one that holds the words; of several, lists them, where nobody reads along.
    pub(super) async fn forget(&self, wanted: &str, row: &InboxRow) -> Result<Answered, StoreError> {
        if wanted.is_empty() {
            return Ok(self.memory(row).await?.into());
        }
        let Some(owner) = self.owner(row) else { return Ok(self.phrases.no_memory_of_strangers.to_owned().into()) };
        let wanted = wanted.trim_start_matches('#');
        if let Ok(id) = wanted.parse::<i64>() {
            // What was listed may have been replaced since: it is the newer one that would still be known.
            let found = self.memory.store.read(move |connection| memory::current_entry(connection, id)).await?;
            let is_his = |entry: &MemoryEntry| may_forget(&owner, entry);
            return Ok(match found.filter(is_his) {
                Some(entry) => self.forgets(&entry),
                None => {
                    let reply = fill(self.phrases.no_such_memory, &[wanted]);
                    Answered { reply, change: SessionChange::None, error: Some("no_such_memory") }
                }
            });
        }
        let (words, whose) = (wanted.to_lowercase(), owner.clone());
        let holding = self.memory.store.read(move |connection| holding(connection, &whose, &words)).await?;
        if let [only] = holding.as_slice() {
            return Ok(self.forgets(only));
        }
        let fitting = if holding.is_empty() { self.fitting(wanted, &owner).await? } else { holding };
        if fitting.is_empty() {
            return Ok(fill(self.phrases.nothing_to_forget, &[&shorten(wanted, SHOWN_CHARS)]).into());
        }
        if self.is_read_by_others(row, &owner).await? {
            return Ok(self.phrases.memory_is_private.to_owned().into());
        }
        let shown = &fitting[..fitting.len().min(LISTED)];
        Ok(format!("{}\n{}", self.phrases.forget_which, self.lines(shown)).into())
    }

    /// What it was is not said again: it would stand in what was delivered.
    fn forgets(&self, entry: &MemoryEntry) -> Answered {
        let reply = fill(self.phrases.forgotten, &[&entry.id.to_string()]);
        Answered { reply, change: SessionChange::Forget(entry.id), error: None }
    }

    /// What a search finds; nothing of it is forgotten by guess.
    async fn fitting(&self, words: &str, owner: &Owner) -> Result<Vec<MemoryEntry>, StoreError> {
        let ask = RecallQuery {
            text: words.to_owned(),
            owners: owners(owner),
            kinds: KINDS.to_vec(),
            messages: false,
            session: None,
            since: None,
            until: None,
            least: 0.2,
            limit: LISTED,
        };
        let hits = self.memory.find(ask).await?;
        let ids = hits.into_iter().filter_map(|hit| match hit.found {
            HitLocation::Memory(id) => Some(id),
            HitLocation::Message { .. } => None,
        });
        let (ids, owner): (Vec<i64>, Owner) = (ids.collect(), owner.clone());
        let read = move |connection: &Connection| {
            let rows = ids.iter().map(|id| memories::get(connection, *id)).collect::<Result<Vec<_>, _>>()?;
            Ok(rows
                .into_iter()
                .flatten()
                .filter_map(MemoryEntry::from_row)
                .filter(|entry| may_forget(&owner, entry))
                .collect())
        };
        self.memory.store.read(read).await
    }

    fn owner(&self, row: &InboxRow) -> Option<Owner> {
        self.memory.settings.get().identities.owner_of(&row.channel, &row.sender, Trust::parse(&row.trust))
    }

    /// Whether others than `owner` write in the chat; of one in which he has only given orders, whether it is another one's.
    async fn is_read_by_others(&self, row: &InboxRow, owner: &Owner) -> Result<bool, StoreError> {
        let session = row.session.clone();
        let found = self.memory.store.read(move |connection| ownership::of(connection, &session)).await?;
        let identities = &self.memory.settings.get().identities;
        let is_anothers = |first: &str| identities.now(&Owner::from_stored(first)) != *owner;
        Ok(found.is_shared || found.owner.as_deref().is_some_and(is_anothers))
    }

    fn lines(&self, entries: &[MemoryEntry]) -> String {
        let line = |entry: &MemoryEntry| {
            let name = if entry.name.is_empty() { String::new() } else { format!("{}: ", entry.name) };
            let text = shorten(&format!("{name}{}", entry.text), SHOWN_CHARS);
            format!("- `{}` {} {text}", entry.id, clock(entry.created_at, &self.timezone))
        };
        entries.iter().map(line).collect::<Vec<_>>().join("\n")
    }
}

/// Whose memories somebody is shown; only the gateway's owner may change what everyone knows.
fn owners(owner: &Owner) -> Vec<Owner> {
    if *owner == Owner::gateway() { vec![owner.clone(), Owner::everyone()] } else { vec![owner.clone()] }
}

fn may_forget(owner: &Owner, entry: &MemoryEntry) -> bool {
    owners(owner).contains(&entry.owner)
}

fn newest(connection: &Connection, owner: &Owner) -> Result<Vec<MemoryEntry>, StoreError> {
    let limit = u32::try_from(LISTED).unwrap_or(u32::MAX);
    let mut found = known(connection, owner, limit)?;
    found.sort_by_key(|entry| std::cmp::Reverse(entry.id));
    found.truncate(LISTED);
    Ok(found)
}

/// What holds the words as they stand.
fn holding(connection: &Connection, owner: &Owner, words: &str) -> Result<Vec<MemoryEntry>, StoreError> {
    let holds =
        |entry: &MemoryEntry| entry.text.to_lowercase().contains(words) || entry.name.to_lowercase().contains(words);
    Ok(known(connection, owner, LOOKED_AT)?.into_iter().filter(holds).collect())
}

fn known(connection: &Connection, owner: &Owner, limit: u32) -> Result<Vec<MemoryEntry>, StoreError> {
    let mut found = Vec::new();
    for (owner, kind) in owners(owner).iter().flat_map(|owner| KINDS.map(|kind| (owner.clone(), kind))) {
        found.extend(memory::list(connection, &owner, kind, limit)?);
    }
    Ok(found)
}
