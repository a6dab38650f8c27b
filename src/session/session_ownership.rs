//! Tracks the writers of a session, which decide whose memory the session uses.

use crate::memory::{Identities, MemoryOwner};
use crate::origin::{TurnCause, TurnOrigin};
use crate::store::inbox::InboxRow;
use crate::store::messages::{Ownership, SessionHead};
use crate::store::{Connection, StoreError, ownership, session_memory};

/// The maximum number of turns of a log that are searched for their writers.
const MAX_SEARCHED: u32 = 20_000;

/// Records the writer of a turn in its first commit, so that a shared session is known as shared before the turn gets its context.
/// `ownership` is that of the session before the turn.
///
/// # Errors
/// The writers or the owner of the session cannot be read or written.
pub fn begin(
    connection: &Connection,
    (session, ownership): (&str, Ownership),
    rows: &[InboxRow],
    identities: &Identities,
) -> Result<(), StoreError> {
    let Some(last) = rows.last().filter(|row| is_written(row)) else { return Ok(()) };
    let writer = identities.writer_of(last);
    let Ownership { owner, is_shared } = ownership;
    let Some(owner) = owner else { return begin_unowned(connection, session, identities, &writer) };
    let is_owner = owner == writer.as_str();
    if is_owner && !is_shared {
        return Ok(());
    }
    // `[identities]` may have merged senders since.
    let digest = identities.digest();
    if is_shared && ownership::identities_digest(connection, session)?.as_ref() == Some(&digest) {
        return Ok(());
    }
    let is_known_as = !is_shared && identities.current_owner(&MemoryOwner::from_stored(&owner)) == writer;
    if is_known_as || is_only_writer(connection, session, identities, (last, &writer))? {
        let owner = Some(writer.as_str().to_owned());
        return ownership::set(connection, session, &Ownership { owner, is_shared: false });
    }
    ownership::record_writer(connection, session, writer.as_str())?;
    ownership::set_identities_digest(connection, session, &digest)
}

/// Records the writers of the messages of a session without an owner, then `writer`. If no person has written in it
/// yet, records nothing.
fn begin_unowned(
    connection: &Connection,
    session: &str,
    identities: &Identities,
    writer: &MemoryOwner,
) -> Result<(), StoreError> {
    // The messages may be older than the records of session owners.
    for row in ownership::writers(connection, session)?.iter().filter(|row| is_written(row)) {
        ownership::record_writer(connection, session, identities.writer_of(row).as_str())?;
    }
    match ownership::of_session(connection, session)?.owner {
        Some(_) => ownership::record_writer(connection, session, writer.as_str()),
        None => Ok(()),
    }
}

/// Returns true if `writer`, who begins a turn with `last`, wrote the whole log according to the current identities; false for a log
/// that is too long to check.
fn is_only_writer(
    connection: &Connection,
    session: &str,
    identities: &Identities,
    (last, writer): (&InboxRow, &MemoryOwner),
) -> Result<bool, StoreError> {
    let Some(rows) = ownership::all_writers(connection, session, MAX_SEARCHED)? else { return Ok(false) };
    let mut others = rows.iter().filter(|row| row.turn != last.turn && is_written(row)).peekable();
    Ok(others.peek().is_some() && others.all(|row| identities.writer_of(row) == *writer))
}

/// Returns true if a person, or a job or sub-agent acting for one, wrote this row; false for a note to the session.
pub fn is_written(row: &InboxRow) -> bool {
    TurnOrigin::parse(&row.origin).note().is_none()
}

/// Returns true if a turn is part of a conversation that gets a summary; false for the turn of a sub-agent, a heartbeat, or a job
/// with fresh sessions.
pub fn is_conversation(row: &InboxRow) -> bool {
    let origin = TurnOrigin::parse(&row.origin);
    !matches!(origin.cause, TurnCause::SubAgent(_) | TurnCause::Heartbeat) && !origin.settings.fresh
}

/// The change that the end of a turn makes to the memory of its session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionMemoryUpdate {
    /// The writer, who becomes the owner if the session has none.
    pub writer: MemoryOwner,
    /// The number of unsummarised messages from which on a summary is due; `None` means never.
    pub consolidate_at: Option<u32>,
}

impl SessionMemoryUpdate {
    /// Writes the update after the turn's messages, given the session's `head`. `is_context_full` means that the history filled its
    /// window, or nearly, or had to be compacted.
    ///
    /// # Errors
    /// The owner or the state of consolidation cannot be read or written.
    pub fn write(
        &self,
        connection: &Connection,
        session: &str,
        head: &SessionHead,
        is_context_full: bool,
    ) -> Result<(), StoreError> {
        if head.ownership.owner.is_none() {
            ownership::record_writer(connection, session, self.writer.as_str())?;
        }
        let Some(most) = self.consolidate_at else { return Ok(()) };
        let most = i64::from(most);
        // A short epoch needs no look at the messages that a summary covers.
        let is_full = head.next_seq - head.first_seq >= most
            && head.next_seq - session_memory::get(connection, session, head.epoch)?.cursor >= most;
        if is_full {
            session_memory::set_due(connection, session, head.epoch, "full")?;
        } else if is_context_full {
            session_memory::set_due(connection, session, head.epoch, "context_full")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use daoyou_channels::Trust;
    use uuid::Uuid;

    use super::*;
    use crate::store::inbox::{self, NewInboxRow};
    use crate::store::{Durability, Store, messages};

    /// Begins a turn of `sender`; the sender `?` is untrusted.
    fn turn(connection: &Connection, session: &str, sender: &str, identities: &Identities) -> Result<(), StoreError> {
        let id = Uuid::now_v7();
        let trust = match sender {
            "me" => Trust::Owner,
            "eve" => Trust::Untrusted,
            _ => Trust::Known,
        };
        let own = str::to_owned;
        let (channel, trust) = (own("in"), trust.as_str());
        let row = NewInboxRow { channel, sender: own(sender), trust, ..NewInboxRow::sample(id, session) };
        inbox::insert(connection, &row)?;
        let rows = inbox::of_turn(connection, id)?;
        begin(connection, (session, ownership::of_session(connection, session)?), &rows, identities)?;
        let head = messages::append(connection, session, id, [("user", "{}".to_owned())].into_iter())?;
        let memory_update = SessionMemoryUpdate { writer: identities.writer_of(&rows[0]), consolidate_at: Some(3) };
        memory_update.write(connection, session, &head, sender == "full")
    }

    #[tokio::test]
    async fn a_session_belongs_to_its_first_writer_until_others_write_there() {
        let (_folder, store) = Store::temporary();
        for (number, (writers, owner, is_shared, due)) in [
            ("me", "owner", false, None),
            ("me me", "owner", false, None),
            ("ann me", "sender:in:ann", true, None),
            ("me eve", "owner", true, None),
            ("eve", "stranger:in:eve", false, None),
            ("eve ann", "stranger:in:eve", true, None),
            ("ann bob ann", "sender:in:ann", true, Some("full")),
            ("full", "sender:in:full", false, Some("context_full")),
            // From before sessions had owners.
            ("ann bob ? bob", "sender:in:ann", true, Some("full")),
            ("ann ? ann", "sender:in:ann", false, None),
            // From `=` on, ann and annie are the same identity.
            ("ann = ann", "name:ann", false, None),
            ("ann = annie", "name:ann", false, None),
            ("ann = bob", "sender:in:ann", true, None),
            ("ann annie = ann", "name:ann", false, Some("full")),
            ("ann annie bob = ann ann", "sender:in:ann", true, Some("full")),
            ("ann annie = eve annie", "sender:in:ann", true, Some("full")),
        ]
        .into_iter()
        .enumerate()
        {
            let session = format!("s{number}");
            let check = move |connection: &Connection| {
                let mut identities = Identities::default();
                for sender in writers.split(' ') {
                    if sender == "?" {
                        let forget = "UPDATE sessions SET owner = NULL, is_shared = 0 WHERE session = ?";
                        connection.execute(forget, [&session])?;
                    } else if sender == "=" {
                        let ann = ["in:ann", "in:annie"].map(str::to_owned).to_vec();
                        identities = Identities::new(&[("ann".to_owned(), ann)].into());
                    } else {
                        turn(connection, &session, sender, &identities)?;
                    }
                }
                let due = session_memory::get(connection, &session, 0)?.due_reason;
                Ok((ownership::of_session(connection, &session)?, due))
            };
            let (found, noted) = store.write(Durability::Logged, check).await.unwrap();
            let expected = Ownership { owner: Some(owner.to_owned()), is_shared };
            assert_eq!((found, noted.as_deref()), (expected, due), "{writers}");
        }
    }
}
