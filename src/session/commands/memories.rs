//! `/memory` and `/forget`: the memories of the sender.

use daoyou_channels::Trust;

use super::history::{clock, shorten};
use super::slash_command::{CommandContext, CommandReply, SessionChange};
use crate::memory::{self, HitLocation, MemoryEntry, MemoryKind, MemoryOwner, RecallQuery};
use crate::phrases::fill;
use crate::store::inbox::InboxRow;
use crate::store::{Connection, StoreError, memories, ownership};

/// The maximum number of memories in a list.
const LISTED: usize = 10;
/// The maximum number of shown characters of one memory.
const SHOWN_CHARS: usize = 200;
/// The maximum number of memories of a kind that are searched.
const MAX_SEARCHED: u32 = 5_000;

/// The kinds that are listed; tasks and summaries are managed automatically.
const KINDS: [MemoryKind; 3] = [MemoryKind::Fact, MemoryKind::Preference, MemoryKind::Case];

/// Lists the newest memories of the sender.
///
/// # Errors
/// The memories or the readers of the chat cannot be read from the store.
pub async fn list(context: &CommandContext, row: &InboxRow) -> Result<String, StoreError> {
    let Some(owner) = owner(context, row) else { return Ok(context.phrases.no_memory_of_strangers.to_owned()) };
    if is_read_by_others(context, row, &owner).await? {
        return Ok(context.phrases.memory_is_private.to_owned());
    }
    let newest = context.memory.store.read(move |connection| newest(connection, &owner)).await?;
    if newest.is_empty() {
        return Ok(context.phrases.no_memories.to_owned());
    }
    Ok(format!("{}\n{}\n\n{}", context.phrases.memories_are, lines(context, &newest), context.phrases.memories_use))
}

/// Forgets the memory with the given id, or the only one that contains the given words. Otherwise lists the matching memories, if
/// nobody else reads the chat.
///
/// # Errors
/// The store cannot be read. A memory that does not exist is not an error: the reply says so.
pub async fn forget(context: &CommandContext, wanted: &str, row: &InboxRow) -> Result<CommandReply, StoreError> {
    let wanted = without_number_sign(wanted);
    if wanted.is_empty() {
        return Ok(list(context, row).await?.into());
    }
    let Some(owner) = owner(context, row) else { return Ok(context.phrases.no_memory_of_strangers.to_owned().into()) };
    if let Ok(id) = wanted.parse::<i64>() {
        // The listed memory may have been replaced since; then its replacement is forgotten.
        let found = context.memory.store.read(move |connection| memory::current_entry(connection, id)).await?;
        let is_allowed = |entry: &MemoryEntry| may_forget(&owner, entry);
        return Ok(match found.filter(is_allowed) {
            Some(entry) => forget_reply(context, &entry),
            None => CommandReply::failed(fill(context.phrases.no_such_memory, &[wanted]), "no_such_memory"),
        });
    }
    let (words, whose) = (wanted.to_lowercase(), owner.clone());
    let exact = context.memory.store.read(move |connection| memories_containing(connection, &whose, &words)).await?;
    if let [only] = exact.as_slice() {
        return Ok(forget_reply(context, only));
    }
    let listed = if exact.is_empty() { similar_memories(context, wanted, &owner).await? } else { exact };
    if listed.is_empty() {
        return Ok(fill(context.phrases.nothing_to_forget, &[&shorten(wanted, SHOWN_CHARS)]).into());
    }
    if is_read_by_others(context, row, &owner).await? {
        return Ok(context.phrases.memory_is_private.to_owned().into());
    }
    let shown = &listed[..listed.len().min(LISTED)];
    Ok(format!("{}\n{}", context.phrases.forget_which, lines(context, shown)).into())
}

/// Returns the id or the words without the `#` before an id. If nothing else is left, the text names no memory.
fn without_number_sign(wanted: &str) -> &str {
    wanted.trim_start_matches('#').trim()
}

/// Returns the reply, which omits the memory's text because the delivered message would keep that text.
fn forget_reply(context: &CommandContext, entry: &MemoryEntry) -> CommandReply {
    let reply = fill(context.phrases.forgotten, &[&entry.id.to_string()]);
    CommandReply::changing(reply, SessionChange::Forget(entry.id))
}

/// Searches for similar memories. The command only lists them: it never forgets a memory by guess.
async fn similar_memories(
    context: &CommandContext,
    words: &str,
    owner: &MemoryOwner,
) -> Result<Vec<MemoryEntry>, StoreError> {
    let query = RecallQuery {
        text: words.to_owned(),
        owners: owners(owner),
        kinds: KINDS.to_vec(),
        least: 0.2,
        limit: LISTED,
        ..RecallQuery::default()
    };
    let hits = context.memory.find(query).await?;
    let ids = hits.into_iter().filter_map(|hit| match hit.found {
        HitLocation::Memory(id) => Some(id),
        HitLocation::Message { .. } => None,
    });
    let (ids, owner): (Vec<i64>, MemoryOwner) = (ids.collect(), owner.clone());
    let read = move |connection: &Connection| {
        let rows = ids.iter().map(|id| memories::find(connection, *id)).collect::<Result<Vec<_>, _>>()?;
        Ok(rows
            .into_iter()
            .flatten()
            .filter_map(MemoryEntry::from_row)
            .filter(|entry| may_forget(&owner, entry))
            .collect())
    };
    context.memory.store.read(read).await
}

fn owner(context: &CommandContext, row: &InboxRow) -> Option<MemoryOwner> {
    context.memory.settings.identities.owner_of(&row.channel, &row.sender, Trust::parse(&row.trust))
}

/// Returns true if people other than `owner` write in the chat, or the holder of a chat token reads it, or if the chat belongs to another owner.
async fn is_read_by_others(context: &CommandContext, row: &InboxRow, owner: &MemoryOwner) -> Result<bool, StoreError> {
    let session = row.session.clone();
    let found = context.memory.store.read(move |connection| ownership::of_session(connection, &session)).await?;
    let identities = &context.memory.settings.identities;
    let is_anothers = |first: &str| identities.current_owner(&MemoryOwner::from_stored(first)) != *owner;
    let is_shared = found.is_shared || identities.is_read_by_token(&row.session, Some(owner));
    Ok(is_shared || found.owner.as_deref().is_some_and(is_anothers))
}

fn lines(context: &CommandContext, entries: &[MemoryEntry]) -> String {
    let line = |entry: &MemoryEntry| {
        let name = if entry.name.is_empty() { String::new() } else { format!("{}: ", entry.name) };
        let text = shorten(&format!("{name}{}", entry.text), SHOWN_CHARS);
        format!("- `{}` {} {text}", entry.id, clock(entry.created_at, &context.timezone))
    };
    entries.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// Returns the owners whose memories `owner` may search and forget; only the gateway's owner may forget shared ones.
fn owners(owner: &MemoryOwner) -> Vec<MemoryOwner> {
    if *owner == MemoryOwner::gateway() { vec![owner.clone(), MemoryOwner::everyone()] } else { vec![owner.clone()] }
}

fn may_forget(owner: &MemoryOwner, entry: &MemoryEntry) -> bool {
    owners(owner).contains(&entry.owner)
}

fn newest(connection: &Connection, owner: &MemoryOwner) -> Result<Vec<MemoryEntry>, StoreError> {
    let limit = u32::try_from(LISTED).unwrap_or(u32::MAX);
    let mut found = known(connection, owner, limit)?;
    found.sort_by_key(|entry| std::cmp::Reverse(entry.id));
    found.truncate(LISTED);
    Ok(found)
}

/// Returns the memories that contain the words literally.
fn memories_containing(
    connection: &Connection,
    owner: &MemoryOwner,
    words: &str,
) -> Result<Vec<MemoryEntry>, StoreError> {
    let contains =
        |entry: &MemoryEntry| entry.text.to_lowercase().contains(words) || entry.name.to_lowercase().contains(words);
    Ok(known(connection, owner, MAX_SEARCHED)?.into_iter().filter(contains).collect())
}

fn known(connection: &Connection, owner: &MemoryOwner, limit: u32) -> Result<Vec<MemoryEntry>, StoreError> {
    let mut found = Vec::new();
    for (owner, kind) in owners(owner).iter().flat_map(|owner| KINDS.map(|kind| (owner.clone(), kind))) {
        found.extend(memory::list(connection, &owner, kind, limit)?);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every memory contains the empty text, so it must not choose the only one.
    #[test]
    fn a_number_sign_alone_names_no_memory() {
        for (wanted, expected) in [("#17", "17"), ("# 17", "17"), ("#", ""), ("## ", ""), ("red shoes", "red shoes")] {
            assert_eq!(without_number_sign(wanted), expected, "{wanted:?}");
        }
    }
}
