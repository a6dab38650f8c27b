//! What a channel keeps in the commit of what it took in.

use daoyou_channels::Alongside;
use uuid::Uuid;

use super::Notices;
use crate::store::{Connection, StoreError, cursors, notes};

/// Writes it within the caller's commit. The owner's notice goes where `notices` says; answers the channel that now has
/// it to deliver.
pub(super) fn keep(
    connection: &Connection,
    alongside: &Alongside,
    notices: Option<&Notices>,
) -> Result<Option<String>, StoreError> {
    if let Some(cursor) = &alongside.cursor {
        cursors::set(connection, &cursor.channel, &cursor.source, &cursor.position)?;
    }
    for note in &alongside.notes {
        notes::set(connection, &note.channel, note.kind, &note.key, &note.value)?;
    }
    let Some(content) = &alongside.notice else { return Ok(None) };
    let Some(notices) = notices else {
        tracing::warn!(notice = content, "for the owner, who is told nowhere else (owner.notify)");
        return Ok(None);
    };
    notices.draft(Uuid::now_v7(), "notice:channel".to_owned(), content.clone()).insert(connection)?;
    Ok(Some(notices.channel.clone()))
}
