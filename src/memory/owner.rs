//! Whose a memory is. Nobody is given another one's.

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use daoyou_channels::Trust;
use sha2::{Digest, Sha256};

use crate::store::turn_steps::hex;

/// Whose a memory is, as it stands in the store.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Owner(String);

impl Owner {
    /// The owner of this gateway.
    pub fn gateway() -> Self {
        Self("owner".to_owned())
    }

    /// The workspace's: known to all who are trusted.
    pub fn everyone() -> Self {
        Self("everyone".to_owned())
    }

    /// One who has several identities.
    pub fn named(name: &str) -> Self {
        Self(format!("name:{name}"))
    }

    /// Whoever writes by this name on this channel.
    pub fn sender(channel: &str, sender: &str) -> Self {
        Self(format!("sender:{channel}:{sender}"))
    }

    /// Reads the store's form.
    pub fn from_stored(text: &str) -> Self {
        Self(text.to_owned())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Which senders are one and the same: `[identities]`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identities {
    /// By `CHANNEL:SENDER`.
    names: HashMap<String, String>,
}

impl Identities {
    /// Of names, each with its `CHANNEL:SENDER`s.
    pub fn new(identities: &BTreeMap<String, Vec<String>>) -> Self {
        let pairs = identities.iter().flat_map(|(name, all)| all.iter().map(move |one| (one.clone(), name.clone())));
        Self { names: pairs.collect() }
    }

    /// Whether somebody has this name.
    pub fn has(&self, name: &str) -> bool {
        self.names.values().any(|known| known == name)
    }

    /// The same for the same identities.
    pub fn digest(&self) -> String {
        let mut pairs: Vec<_> = self.names.iter().collect();
        pairs.sort();
        let mut hash = Sha256::new();
        for (one, name) in pairs {
            hash.update(format!("{one:?} {name:?}\n"));
        }
        hex(&hash.finalize()[..8])
    }

    /// Whose memory a message adds to and is answered from. Nobody's, where the sender may not be who he says he is.
    pub fn owner_of(&self, channel: &str, sender: &str, trust: Trust) -> Option<Owner> {
        match trust {
            Trust::Untrusted => None,
            Trust::Owner => Some(Owner::gateway()),
            Trust::Known => Some(match self.names.get(&format!("{channel}:{sender}")) {
                Some(name) => Owner::named(name),
                None => Owner::sender(channel, sender),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_who() {
        let all =
            BTreeMap::from([("ann".to_owned(), vec!["email:ann@example.org".to_owned(), "webhook:in:ann".to_owned()])]);
        let identities = Identities::new(&all);
        for (channel, sender, trust, expected) in [
            ("cli", "direct", Trust::Owner, Some("owner")),
            ("email", "ann@example.org", Trust::Known, Some("name:ann")),
            ("webhook:in", "ann", Trust::Known, Some("name:ann")),
            ("webhook:in", "bob", Trust::Known, Some("sender:webhook:in:bob")),
            ("email", "ann@example.org", Trust::Untrusted, None),
            ("email", "ann@example.org", Trust::Owner, Some("owner")),
        ] {
            let owner = identities.owner_of(channel, sender, trust);
            assert_eq!(owner.as_ref().map(Owner::as_str), expected, "{channel}:{sender}");
        }
    }
}
