//! Whose memories are meant, as people write it and read it.

use super::{Identities, Owner};
use crate::store::{Connection, StoreError, memory_lists};
use daoyou_channels::Trust;

/// Whose memories are looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Whose {
    One(Owner),
    Everybodys,
}

/// What may stand for an owner.
const ALLOWED: &str =
    "\"owner\", \"everyone\", a name of [identities], or CHANNEL:SENDER such as \"email:ann@example.org\"";

impl Whose {
    /// Their names in the store.
    ///
    /// # Errors
    /// The store cannot be read.
    pub fn owners(&self, connection: &Connection) -> Result<Vec<Owner>, StoreError> {
        Ok(match self {
            Self::One(owner) => vec![owner.clone()],
            Self::Everybodys => {
                let mut owners = vec![Owner::gateway(), Owner::everyone()];
                let all =
                    memory_lists::owners(connection)?.iter().map(|owner| Owner::from_stored(owner)).collect::<Vec<_>>();
                owners
                    .extend(all.into_iter().filter(|owner| *owner != Owner::gateway() && *owner != Owner::everyone()));
                owners
            }
        })
    }
}

/// Reads an owner as a person writes him.
///
/// # Errors
/// Nobody is called that; says what may be written.
pub fn owner_called(text: &str, identities: &Identities) -> Result<Owner, String> {
    match text.trim() {
        "owner" => Ok(Owner::gateway()),
        "everyone" => Ok(Owner::everyone()),
        name if identities.has(name) => Ok(Owner::named(name)),
        text => {
            // A webhook's name holds a colon itself; what stands behind it does not matter to the store's form.
            let sender = text.split_once(':').filter(|(channel, sender)| !channel.is_empty() && !sender.is_empty());
            sender
                .and_then(|(channel, sender)| identities.owner_of(channel, sender, Trust::Known))
                .ok_or_else(|| format!("{text:?} is no owner; allowed: {ALLOWED}"))
        }
    }
}

/// The owner as [`owner_called`] reads him.
pub fn called(owner: &Owner) -> &str {
    let stored = owner.as_str();
    stored.strip_prefix("name:").or_else(|| stored.strip_prefix("sender:")).unwrap_or(stored)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn owners_are_read_as_they_are_shown() {
        let all = BTreeMap::from([("ann".to_owned(), vec!["webhook:in:ann".to_owned()])]);
        let identities = Identities::new(&all);
        for (text, stored, shown) in [
            ("owner", "owner", "owner"),
            ("everyone", "everyone", "everyone"),
            ("ann", "name:ann", "ann"),
            ("webhook:in:ann", "name:ann", "ann"),
            ("webhook:in:bob", "sender:webhook:in:bob", "webhook:in:bob"),
        ] {
            let owner = owner_called(text, &identities).unwrap();
            assert_eq!((owner.as_str(), called(&owner)), (stored, shown), "{text}");
        }
        for text in ["bob", "", ":x", "email:"] {
            assert!(owner_called(text, &identities).unwrap_err().contains("CHANNEL:SENDER"), "{text}");
        }
    }
}
