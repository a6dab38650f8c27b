//! Shared helpers of the memory tools.

use crate::memory::{
    AnsweredTurn, MemoryEntry, MemoryError, MemoryKind, MemoryOwner, MemoryService, MemorySource, current_entry,
};
use crate::store::{Connection, ownership};
use crate::text::one_line;
use crate::tools::ToolContext;

/// The default and the largest number of hits.
const DEFAULT_LIMIT: usize = 8;
const MAX_LIMIT: usize = 50;

/// Returns the owner of the memory that a call reads and changes.
///
/// # Errors
/// [`MemoryError::Wrong`] if the sender has no memory.
pub fn owner(service: &MemoryService, context: &ToolContext) -> Result<MemoryOwner, MemoryError> {
    let ToolContext { channel, sender, trust, .. } = context;
    let no_owner = || {
        MemoryError::Wrong(
            "an outside sender has no memory here: nothing is remembered or looked up for him".to_owned(),
        )
    };
    let owner = service.settings.identities.owner_of(channel, sender, *trust).ok_or_else(no_owner)?;
    Ok(if context.agent.has_own_memory { owner.of_agent(&context.agent.name) } else { owner })
}

/// Returns true if others than the caller read the answer. Private memories are not shown in it then.
///
/// # Errors
/// The readers of the conversation cannot be read from the store.
pub async fn is_shared(service: &MemoryService, context: &ToolContext) -> Result<bool, MemoryError> {
    let (context, settings) = (context.clone(), service.settings.clone());
    let read = move |connection: &Connection| {
        let ToolContext { session, channel, chat_id, sender, trust, origin, .. } = &context;
        let person = settings.identities.owner_of(channel, sender, *trust);
        let session = session.as_str();
        let is_shared = ownership::of_session(connection, session)?.is_shared;
        let turn = AnsweredTurn { session, is_shared, channel, chat_id, origin };
        turn.is_read_by_others(connection, person.as_ref(), &settings.identities)
    };
    Ok(service.store.read(read).await?)
}

/// Returns the turn of a call as the source of a memory.
pub fn turn_source(context: &ToolContext) -> MemorySource {
    MemorySource { session: context.session.to_string(), seq: None, turn: Some(context.turn.to_string()) }
}

/// Returns the memory with this id, or the one that replaced it, if `owner` may change it.
///
/// # Errors
/// There is no such memory, `owner` may not change it, or the store cannot be read.
pub fn changeable_memory(connection: &Connection, owner: &MemoryOwner, id: i64) -> Result<MemoryEntry, MemoryError> {
    let found = current_entry(connection, id)?;
    let may_change = |entry: &MemoryEntry| {
        entry.owner == *owner || (*owner == MemoryOwner::gateway() && entry.owner == MemoryOwner::everyone())
    };
    let unknown = || {
        MemoryError::Wrong(format!("there is no memory with the id {id}; recall shows the ids of those that there are"))
    };
    found.filter(may_change).ok_or_else(unknown)
}

/// Formats a memory on one line: a preference with its key, a case with its title.
pub fn entry_line(kind: MemoryKind, name: &str, text: &str) -> String {
    let text = one_line(text);
    if name.is_empty() || kind == MemoryKind::Summary { text } else { format!("{name}: {text}") }
}

/// Returns the number of hits that a call asks for, within bounds.
pub fn hit_limit(limit: Option<u32>) -> usize {
    limit.map_or(DEFAULT_LIMIT, |limit| usize::try_from(limit).unwrap_or(MAX_LIMIT)).clamp(1, MAX_LIMIT)
}
