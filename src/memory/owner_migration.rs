//! Moves memories to the owners that `[identities]` names after a change of the configuration.

use super::{Identities, MemoryOwner};
use crate::store::{Connection, StoreError, forgetting, inbox, memories, ownership};

/// Moves stored memories and sessions to the current names of their owners. Returns true if any moved. The memories of a
/// name that no longer exists return to the senders who stated them.
///
/// # Errors
/// The store cannot be written.
pub fn migrate_owners(connection: &Connection, identities: &Identities) -> Result<bool, StoreError> {
    let mut is_changed = false;
    for (sender, name) in identities.pairs() {
        let old = MemoryOwner::from_stored(&format!("sender:{sender}"));
        is_changed |= ownership::transfer(connection, old.as_str(), MemoryOwner::named(name).as_str())?;
    }
    for (memory, owner, turn) in ownership::memories_of_names(connection)? {
        let Some(turn) = turn.and_then(|turn| turn.parse().ok()) else { continue };
        let stated_by = inbox::of_turn(connection, turn)?.pop().and_then(|row| identities.owner_of_row(&row));
        if let Some(stated_by) = stated_by.filter(|stated_by| stated_by.as_str() != owner) {
            memories::set_owner(connection, memory, stated_by.as_str())?;
            is_changed = true;
        }
    }
    if is_changed {
        forgetting::drop_all_snapshots(connection)?;
    }
    Ok(is_changed)
}

#[cfg(test)]
mod tests {
    use daoyou_channels::Trust;
    use uuid::Uuid;

    use super::*;
    use crate::memory::{
        MemoryConfig, MemoryKind, MemoryOrigin, MemorySource, NewMemoryEntry, list, rebuild_index, remember,
    };
    use crate::store::Durability;
    use crate::store::Store;
    use crate::store::inbox::{MessageStatus, NewInboxRow};

    /// Stores one fact by webhook and one by mail, both of Ann.
    fn remember_facts(connection: &Connection) -> Result<(), StoreError> {
        for (channel, sender, text) in [("webhook:in", "ann", "My cat is Momo"), ("email", "ann@x.org", "I like tea")] {
            let turn = Uuid::now_v7();
            let message = NewInboxRow {
                id: turn,
                channel: channel.to_owned(),
                external_id: turn.to_string(),
                session: format!("{channel}:1"),
                chat_id: "1".to_owned(),
                sender: sender.to_owned(),
                trust: Trust::Known.as_str(),
                content: text.to_owned(),
                attachments: "[]".to_owned(),
                metadata: "{}".to_owned(),
                origin: "{}".to_owned(),
                received_at: 0,
                state: MessageStatus::Done,
            };
            inbox::insert(connection, &message)?;
            connection.execute("UPDATE inbox SET turn = ?1 WHERE id = ?1", [turn.to_string()])?;
            let new = NewMemoryEntry {
                source: Some(MemorySource { session: format!("{channel}:1"), seq: None, turn: Some(turn.to_string()) }),
                confidence: 0.9,
                ..NewMemoryEntry::new(
                    MemoryOwner::sender(channel, sender),
                    MemoryKind::Fact,
                    text,
                    MemoryOrigin::Stated,
                )
            };
            remember(connection, &new, &MemoryConfig::default())?;
        }
        Ok(())
    }

    #[tokio::test]
    async fn memories_follow_the_identities_of_their_senders() {
        let (_folder, store) = Store::temporary();
        store.write(Durability::Logged, remember_facts).await.unwrap();
        let both = vec!["webhook:in:ann".to_owned(), "email:ann@x.org".to_owned()];
        let known = async |owner: MemoryOwner| {
            let read = move |connection: &Connection| list(connection, &owner, MemoryKind::Fact, 9);
            store.read(read).await.unwrap().into_iter().map(|entry| entry.text).collect::<Vec<_>>()
        };
        let (ann, by_mail) = (MemoryOwner::named("ann"), MemoryOwner::sender("email", "ann@x.org"));
        for (senders, of_ann, of_mail) in [
            (both.clone(), vec!["I like tea", "My cat is Momo"], vec![]),
            (both[..1].to_vec(), vec!["My cat is Momo"], vec!["I like tea"]),
            (both, vec!["I like tea", "My cat is Momo"], vec![]),
        ] {
            let identities = Identities::new(&[("ann".to_owned(), senders.clone())].into());
            let rebuild = move |connection: &Connection| rebuild_index(connection, &identities);
            store.write(Durability::Logged, rebuild).await.unwrap();
            assert_eq!(
                (known(ann.clone()).await, known(by_mail.clone()).await),
                (
                    of_ann.iter().map(|text| (*text).to_owned()).collect(),
                    of_mail.iter().map(|text: &&str| (*text).to_owned()).collect()
                ),
                "{senders:?}"
            );
        }
    }
}
