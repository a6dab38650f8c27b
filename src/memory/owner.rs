//! Owners of memories and conversations. The memories of one owner are never shown to another.

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use daoyou_channels::Trust;
use daoyou_channels::text::hex;
use sha2::{Digest, Sha256};

use crate::origin::{OwnerIdentity, TurnOrigin};
use crate::store::inbox::InboxRow;
use crate::store::{Connection, StoreError, memory_queries};

/// The owner of memories, in the stored form.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MemoryOwner(String);

impl MemoryOwner {
    /// Returns the owner of this gateway.
    pub fn gateway() -> Self {
        Self("owner".to_owned())
    }

    /// Returns the owner of memories that all trusted people share.
    pub fn everyone() -> Self {
        Self("everyone".to_owned())
    }

    /// Returns the owner with this name in `[identities]`, which may list several senders for it.
    pub fn named(name: &str) -> Self {
        Self(format!("name:{name}"))
    }

    /// Returns the owner for a sender without a name.
    pub fn sender(channel: &str, sender: &str) -> Self {
        Self(format!("sender:{channel}:{sender}"))
    }

    /// Returns the owner for a sender whose identity is not proven. Such senders own sessions, but no memories.
    pub fn unproven_sender(channel: &str, sender: &str) -> Self {
        Self(format!("stranger:{channel}:{sender}"))
    }

    /// Returns the conversation itself as an owner. Its memories are used in this conversation only.
    pub fn conversation(session: &str) -> Self {
        Self(format!("session:{session}"))
    }

    /// Returns the owner of the memories that the agent `name` has of this person.
    #[must_use]
    pub fn of_agent(&self, name: &str) -> Self {
        Self(format!("agent:{name}:{}", self.0))
    }

    /// Converts the stored form.
    pub fn from_stored(text: &str) -> Self {
        Self(text.to_owned())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for MemoryOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The senders that belong to the same person: `[identities]`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identities {
    /// The names, by `CHANNEL:SENDER`.
    names: HashMap<String, String>,
}

impl Identities {
    /// Creates identities from names, each with its `CHANNEL:SENDER`s.
    pub fn new(identities: &BTreeMap<String, Vec<String>>) -> Self {
        let pairs = identities.iter().flat_map(|(name, all)| all.iter().map(move |one| (one.clone(), name.clone())));
        Self { names: pairs.collect() }
    }

    /// Returns each `CHANNEL:SENDER` that has a name, with the name.
    pub fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.names.iter().map(|(sender, name)| (sender.as_str(), name.as_str()))
    }

    /// Returns true if a person has this name.
    pub fn has_name(&self, name: &str) -> bool {
        self.names.values().any(|known| known == name)
    }

    /// Returns a hash that is equal for equal identities.
    pub fn digest(&self) -> String {
        let mut pairs: Vec<_> = self.names.iter().collect();
        pairs.sort();
        let mut hash = Sha256::new();
        for (one, name) in pairs {
            hash.update(format!("{one:?} {name:?}\n"));
        }
        hex(&hash.finalize()[..8])
    }

    /// Returns the owner whose memory a message reads and extends. `None` if the sender's identity is not proven.
    pub fn owner_of(&self, channel: &str, sender: &str, trust: Trust) -> Option<MemoryOwner> {
        match trust {
            Trust::Untrusted => None,
            Trust::Owner => Some(MemoryOwner::gateway()),
            Trust::Known => Some(match self.names.get(&format!("{channel}:{sender}")) {
                Some(name) => MemoryOwner::named(name),
                None => MemoryOwner::sender(channel, sender),
            }),
        }
    }

    /// Returns the owner whose memory the turn of this message reads, as [`Self::owner_of`] does. A job or sub-agent reads the
    /// memory of the person who created it.
    pub fn owner_of_row(&self, row: &InboxRow) -> Option<MemoryOwner> {
        self.owner_of(&row.channel, &sender_of(row), Trust::parse(&row.trust))
    }

    /// Returns the current owner for an owner that was stored under earlier identities.
    pub fn current_owner(&self, owner: &MemoryOwner) -> MemoryOwner {
        let name = owner.as_str().strip_prefix("sender:").and_then(|one| self.names.get(one));
        name.map_or_else(|| owner.clone(), |name| MemoryOwner::named(name))
    }

    /// Returns true if a chat token of a person other than `owner` gives access to a session. Its holder reads all of the session,
    /// whoever writes there first.
    pub fn is_read_by_token(&self, session: &str, owner: Option<&MemoryOwner>) -> bool {
        let Some(name) = token_of_session(session) else { return false };
        self.owner_of(PAGE, &format!("token:{name}"), Trust::Known).as_ref() != owner
    }

    /// Returns the owner for the writer of a message. A writer without a memory counts as an unproven sender.
    pub fn writer_of(&self, row: &InboxRow) -> MemoryOwner {
        self.owner_of_row(row).unwrap_or_else(|| MemoryOwner::unproven_sender(&row.channel, &row.sender))
    }
}

/// The channel of the page.
const PAGE: &str = "page";

/// Returns the name of the token to whose holder a session belongs: NAME in `page:NAME.CHAT`. A token's name has no dot.
pub fn token_of_session(session: &str) -> Option<&str> {
    let (name, chat) = session.strip_prefix(PAGE)?.strip_prefix(':')?.split_once('.')?;
    (!name.is_empty() && !chat.is_empty()).then_some(name)
}

/// Returns the sender of a message, or the sender that it acts for.
pub fn sender_of(row: &InboxRow) -> String {
    TurnOrigin::parse(&row.origin).on_behalf_of.unwrap_or_else(|| row.sender.clone())
}

/// Returns the origin that the messages of a message's turn carry: its own origin, with the sender that it acts for. Nothing is
/// added if the trust of the message alone identifies that sender. For the owner, it is the identity that gives the trust.
pub fn origin_on_behalf(row: &InboxRow) -> TurnOrigin {
    let mut origin = TurnOrigin::parse(&row.origin);
    match Trust::parse(&row.trust) {
        Trust::Known if origin.on_behalf_of.is_none() => origin.on_behalf_of = Some(row.sender.clone()),
        Trust::Owner if origin.is_from_person() => {
            origin.owner_identity = OwnerIdentity::of(&row.channel, &row.sender);
        }
        _ => {}
    }
    origin
}

/// The forms of an owner that [`parse_owner`] accepts.
const ALLOWED_FORMS: &str =
    "\"owner\", \"everyone\", a name of [identities], or CHANNEL:SENDER such as \"email:ann@example.org\"";

/// Returns all owners of memories and conversations, the gateway's owner first.
///
/// # Errors
/// The store cannot be read.
pub fn all_owners(connection: &Connection) -> Result<Vec<MemoryOwner>, StoreError> {
    let mut owners = vec![MemoryOwner::gateway(), MemoryOwner::everyone()];
    let others = memory_queries::owners(connection)?.into_iter().map(MemoryOwner);
    owners.extend(others.filter(|owner| *owner != MemoryOwner::gateway() && *owner != MemoryOwner::everyone()));
    Ok(owners)
}

/// Parses an owner in the form that people write.
///
/// # Errors
/// The text names no owner; the error lists the accepted forms.
pub fn parse_owner(text: &str, identities: &Identities) -> Result<MemoryOwner, String> {
    match text.trim() {
        "owner" => Ok(MemoryOwner::gateway()),
        "everyone" => Ok(MemoryOwner::everyone()),
        name if identities.has_name(name) => Ok(MemoryOwner::named(name)),
        text => {
            // The channel of a webhook contains a colon. The stored form is the same whichever colon splits the text.
            let sender = text.split_once(':').filter(|(channel, sender)| !channel.is_empty() && !sender.is_empty());
            sender
                .and_then(|(channel, sender)| identities.owner_of(channel, sender, Trust::Known))
                .ok_or_else(|| format!("{text:?} is not an owner; allowed: {ALLOWED_FORMS}"))
        }
    }
}

/// Formats an owner as [`parse_owner`] reads it.
pub fn owner_label(owner: &MemoryOwner) -> &str {
    let stored = owner.as_str();
    stored.strip_prefix("name:").or_else(|| stored.strip_prefix("sender:")).unwrap_or(stored)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_depend_on_sender_and_trust() {
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
            assert_eq!(owner.as_ref().map(MemoryOwner::as_str), expected, "{channel}:{sender}");
        }
    }

    #[test]
    fn sessions_of_a_chat_token_are_read_by_its_holder() {
        let all = BTreeMap::from([("ann".to_owned(), vec!["page:token:bob".to_owned()])]);
        let identities = Identities::new(&all);
        let (gateway, ann) = (MemoryOwner::gateway(), MemoryOwner::named("ann"));
        for (session, owner, expected) in [
            ("page:bob.1a2b", Some(&gateway), true),
            ("page:bob.1a2b", None, true),
            ("page:bob.1a2b", Some(&ann), false),
            ("page:carl.1a2b", Some(&ann), true),
            ("page:carl.1a2b", Some(&MemoryOwner::sender("page", "token:carl")), false),
            ("page:1a2b", Some(&gateway), false),
            ("page:bob.", Some(&gateway), false),
            ("page:.bob", Some(&gateway), false),
            ("cli:bob.1a2b", Some(&gateway), false),
        ] {
            assert_eq!(identities.is_read_by_token(session, owner), expected, "{session} {owner:?}");
        }
    }

    #[test]
    fn origins_carry_the_sender_that_a_message_acts_for() {
        let row = |sender: &str, trust: Trust, origin: &str| InboxRow {
            channel: "in".to_owned(),
            session: "in:c".to_owned(),
            chat_id: "c".to_owned(),
            sender: sender.to_owned(),
            origin: origin.to_owned(),
            ..InboxRow::unstored(trust)
        };
        let identities = Identities::default();
        for (sender, trust, origin, along, owner) in [
            ("ann", Trust::Known, "{}", r#"{"on_behalf_of":"ann"}"#, Some("sender:in:ann")),
            ("a\"b", Trust::Known, "{}", r#"{"on_behalf_of":"a\"b"}"#, Some("sender:in:a\"b")),
            ("me", Trust::Owner, "{}", "{}", Some("owner")),
            ("cron", Trust::Known, r#"{"on_behalf_of":"ann"}"#, r#"{"on_behalf_of":"ann"}"#, Some("sender:in:ann")),
            ("eve", Trust::Untrusted, "{}", "{}", None),
        ] {
            let row = row(sender, trust, origin);
            assert_eq!(origin_on_behalf(&row).to_column(), along);
            assert_eq!(identities.owner_of_row(&row).as_ref().map(MemoryOwner::as_str), owner, "{sender}");
        }
        for (channel, origin, expected) in [
            ("webhook:in", "{}", Some("me")),
            ("email", "{}", Some("me")),
            ("cli", "{}", None),
            ("webhook:in", r#"{"cause":{"kind":"heartbeat"}}"#, None),
        ] {
            let row = InboxRow { channel: channel.to_owned(), ..row("me", Trust::Owner, origin) };
            let identity = origin_on_behalf(&row).owner_identity.map(|identity| identity.sender);
            assert_eq!(identity.as_deref(), expected, "{channel} {origin}");
        }
        assert_eq!(identities.writer_of(&row("eve", Trust::Untrusted, "{}")).as_str(), "stranger:in:eve");
    }

    #[test]
    fn owner_labels_are_parsed_back() {
        let all = BTreeMap::from([("ann".to_owned(), vec!["webhook:in:ann".to_owned()])]);
        let identities = Identities::new(&all);
        for (text, stored, shown) in [
            ("owner", "owner", "owner"),
            ("everyone", "everyone", "everyone"),
            ("ann", "name:ann", "ann"),
            ("webhook:in:ann", "name:ann", "ann"),
            ("webhook:in:bob", "sender:webhook:in:bob", "webhook:in:bob"),
        ] {
            let owner = parse_owner(text, &identities).unwrap();
            assert_eq!((owner.as_str(), owner_label(&owner)), (stored, shown), "{text}");
        }
        for text in ["bob", "", ":x", "email:"] {
            assert!(parse_owner(text, &identities).unwrap_err().contains("CHANNEL:SENDER"), "{text}");
        }
    }
}
