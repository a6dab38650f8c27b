//! What a channel keeps in the commit of what it took in.

use daoyou_channels::AcceptExtras;
use uuid::Uuid;

use super::Notices;
use crate::store::{Connection, StoreError, cursors, notes};

/// Writes it within the caller's commit. The owner's notice goes where `notices` says; answers the channel that now has
/// it to deliver.
pub(super) fn keep(
    connection: &Connection,
    alongside: &AcceptExtras,
    notices: Option<&Notices>,
) -> Result<Option<String>, StoreError> {
    if let Some(cursor) = &alongside.cursor {
        cursors::set(connection, &cursor.channel, &cursor.source, &cursor.position)?;
    }
    for note in &alongside.notes {
        notes::set(connection, &note.channel, note.kind, &note.key, &note.value)?;
    }
    match &alongside.notice {
        Some(content) => tell(connection, notices, daoyou_channels::new_id(), "notice:channel", content.clone()),
        None => Ok(None),
    }
}

/// Puts what the owner is to be told into the outbox; answers the channel that has it to deliver. Without one it is in the log.
pub(super) fn tell(
    connection: &Connection,
    notices: Option<&Notices>,
    turn: Uuid,
    slot: &str,
    content: String,
) -> Result<Option<String>, StoreError> {
    let Some(notices) = notices else {
        tracing::warn!(notice = content, "for the owner, who is told nowhere else (owner.notify)");
        return Ok(None);
    };
    notices.draft(turn, slot.to_owned(), content).insert(connection)?;
    Ok(Some(notices.channel.clone()))
}
