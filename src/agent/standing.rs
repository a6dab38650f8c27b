//! Who writes in a session, and what that means for its memory.

use crate::bus::Told;
use crate::memory::{Identities, Owner};
use crate::store::inbox::InboxRow;
use crate::store::ownership::{self, Ownership};
use crate::store::{Connection, StoreError, messages, session_memory};

/// Notes who begins a turn, in its first commit: before it is given anything, a session of several is known as one.
pub(super) fn begin(
    connection: &Connection,
    session: &str,
    rows: &[InboxRow],
    identities: &Identities,
) -> Result<(), StoreError> {
    let Some(last) = rows.last().filter(|row| is_written(row)) else { return Ok(()) };
    let writer = identities.writer_of(last);
    let Ownership { owner, is_shared } = ownership::of(connection, session)?;
    if is_shared || owner.as_deref() == Some(writer.as_str()) {
        return Ok(());
    }
    if owner.is_none() {
        // What was said before sessions had owners.
        for row in ownership::writers(connection, session)?.iter().filter(|row| is_written(row)) {
            ownership::write_there(connection, session, identities.writer_of(row).as_str())?;
        }
        if ownership::of(connection, session)?.owner.is_none() {
            return Ok(());
        }
    }
    ownership::write_there(connection, session, writer.as_str())
}

/// Whether somebody wrote it, himself or by a job or sub-agent of his: not what daoyou notes for a session to know.
pub(super) fn is_written(row: &InboxRow) -> bool {
    Told::of(&row.metadata).is_none()
}

/// What the end of a turn means for the memory of its session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settling {
    /// Who wrote: a session that was nobody's is his.
    pub writer: Owner,
    /// From so many messages on that no summary tells, the session is to be consolidated; never without.
    pub consolidate_at: Option<u32>,
}

impl Settling {
    /// Writes it, behind the turn's messages. `is_tight` says that the model could not be given all of the conversation.
    pub(super) fn write(&self, connection: &Connection, session: &str, is_tight: bool) -> Result<(), StoreError> {
        let Ownership { owner, .. } = ownership::of(connection, session)?;
        if owner.is_none() {
            ownership::write_there(connection, session, self.writer.as_str())?;
        }
        let Some(most) = self.consolidate_at else { return Ok(()) };
        let head = messages::session(connection, session)?;
        let cursor = session_memory::get(connection, session, head.epoch)?.cursor.max(head.first_seq);
        if head.next_seq - cursor >= i64::from(most) {
            session_memory::set_due(connection, session, head.epoch, "full")?;
        } else if is_tight {
            session_memory::set_due(connection, session, head.epoch, "tight")?;
        }
        Ok(())
    }
}
