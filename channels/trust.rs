//! Decides which senders a channel accepts ([`AllowList`]), and how far the sender of a message is trusted, by one rule for all
//! channels.
//!
//! A channel reports what it knows of the author of a message ([`Author`]), the configuration gives the sender's listing
//! ([`SenderListing`]), and [`trust_of`] combines both. Nothing else in the program grants trust. A turn, and everything
//! that it starts, has the trust of its message.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::message::Trust;

/// The senders that a channel accepts: an empty list allows nobody, `"*"` everybody. Names are compared exactly, since a
/// sender whose name differs in case may be another person. White space around an entry does not count. E-mail has its own
/// comparison, `AddressList`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct AllowList(Vec<String>);

impl AllowList {
    pub fn new(senders: impl IntoIterator<Item: Into<String>>) -> Self {
        Self(senders.into_iter().map(Into::into).collect())
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the configured entries, without surrounding white space.
    pub fn entries(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|entry| entry.trim())
    }

    /// Returns true if the list allows `sender`. Only `"*"` allows an empty sender.
    pub fn allows(&self, sender: &str) -> bool {
        self.allows_everyone() || self.names(sender)
    }

    /// Returns true if the list contains `sender` by name; `"*"` does not count.
    pub fn names(&self, sender: &str) -> bool {
        !sender.is_empty() && self.entries().any(|entry| entry != "*" && entry == sender)
    }

    /// Returns true if the list holds `"*"`.
    pub fn allows_everyone(&self) -> bool {
        self.entries().any(|entry| entry == "*")
    }
}

/// What a channel knows about the author of a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Author {
    /// The owner: a person at the gateway's own terminal, a holder of its token, or the gateway on the owner's behalf.
    Owner,
    /// A holder of the channel's secret, who wrote the text and chose the sender's name.
    Holder,
    /// A sender whose name a service vouches for: GitHub, Slack, a mail server. Anybody may write through the service.
    Named,
    /// An author whose identity nothing proves.
    #[default]
    Unproven,
}

/// The listing of a sender in the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SenderListing {
    /// The sender is in `owner.identities`.
    Owner,
    /// The sender is named in the channel's `trusted_from`.
    Listed,
    /// Only a `"*"` in `trusted_from` covers the sender.
    Everybody,
    /// The sender is in none of the lists.
    Unlisted,
}

/// Decides how far the sender of a message is trusted. A `"*"` covers only holders of a secret, because anybody may write
/// through a service.
pub fn trust_of(author: Author, listing: SenderListing) -> Trust {
    match (author, listing) {
        (Author::Owner, _) | (Author::Holder | Author::Named, SenderListing::Owner) => Trust::Owner,
        (Author::Holder, SenderListing::Listed | SenderListing::Everybody) | (Author::Named, SenderListing::Listed) => {
            Trust::Known
        }
        (Author::Holder | Author::Named, SenderListing::Unlisted)
        | (Author::Named, SenderListing::Everybody)
        | (Author::Unproven, _) => Trust::Untrusted,
    }
}

/// The configured senders of one channel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SenderLists {
    /// The owner's names on this channel, from `owner.identities`.
    pub owners: Vec<String>,
    /// The entries of the channel's `trusted_from`.
    pub trusted: AllowList,
}

impl SenderLists {
    /// Looks up a sender by its name.
    pub fn listing(&self, sender: &str) -> SenderListing {
        if self.owners.iter().any(|owner| owner == sender) {
            SenderListing::Owner
        } else if self.trusted.names(sender) {
            SenderListing::Listed
        } else if self.trusted.allows(sender) {
            SenderListing::Everybody
        } else {
            SenderListing::Unlisted
        }
    }
}

/// The sender lists of all channels, by channel name. A reload of the configuration replaces them while the channels run.
#[derive(Clone)]
pub struct TrustLists(Arc<dyn Fn() -> Arc<HashMap<String, SenderLists>> + Send + Sync>);

impl TrustLists {
    /// Creates lists that never change.
    pub fn new(lists: HashMap<String, SenderLists>) -> Self {
        let lists = Arc::new(lists);
        Self::following(move || lists.clone())
    }

    /// Creates lists that `current` supplies anew for each message.
    pub fn following(current: impl Fn() -> Arc<HashMap<String, SenderLists>> + Send + Sync + 'static) -> Self {
        Self(Arc::new(current))
    }

    /// Creates lists for a single channel.
    pub fn of_one(channel: &str, lists: SenderLists) -> Self {
        Self::new(HashMap::from([(channel.to_owned(), lists)]))
    }

    /// Returns the lists of a channel. A channel without an entry trusts nobody.
    pub fn of(&self, channel: &str) -> SenderLists {
        (self.0)().get(channel).cloned().unwrap_or_default()
    }
}

impl Default for TrustLists {
    fn default() -> Self {
        Self::new(HashMap::new())
    }
}

impl fmt::Debug for TrustLists {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TrustLists").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn trust_follows_from_authentication_and_the_lists() {
        use Trust::{Known, Owner, Untrusted};
        let listings = [SenderListing::Owner, SenderListing::Listed, SenderListing::Everybody, SenderListing::Unlisted];
        for (author, expected) in [
            (Author::Owner, [Owner, Owner, Owner, Owner]),
            (Author::Holder, [Owner, Known, Known, Untrusted]),
            (Author::Named, [Owner, Known, Untrusted, Untrusted]),
            (Author::Unproven, [Untrusted; 4]),
        ] {
            assert_eq!(listings.map(|listing| trust_of(author, listing)), expected, "{author:?}");
        }
    }

    #[test]
    fn senders_are_classified_by_the_lists() {
        let of = |owners: &[&str], trusted: &[&str], sender: &str| {
            let owners = owners.iter().map(|name| (*name).to_owned()).collect();
            SenderLists { owners, trusted: AllowList::new(trusted.iter().copied()) }.listing(sender)
        };
        for (owners, trusted, sender, expected) in [
            (&[][..], &[][..], "ann", SenderListing::Unlisted),
            (&["ann"], &[], "ann", SenderListing::Owner),
            (&["ann"], &[], "Ann", SenderListing::Unlisted),
            (&["ann"], &["bob"], "bob", SenderListing::Listed),
            (&["ann"], &["*"], "ann", SenderListing::Owner),
            (&[], &["*", "bob"], "bob", SenderListing::Listed),
            (&[], &["bob"], "BOB", SenderListing::Unlisted),
            (&[], &["*"], "carol", SenderListing::Everybody),
            (&[], &["bob"], "bobby", SenderListing::Unlisted),
            (&[], &["bob"], "", SenderListing::Unlisted),
        ] {
            assert_eq!(of(owners, trusted, sender), expected, "{owners:?} {trusted:?} {sender}");
        }
    }

    #[test]
    fn a_reload_replaces_the_lists_for_all_who_share_them() {
        let owner = SenderLists { owners: vec!["ann".to_owned()], ..SenderLists::default() };
        let lists = Arc::new(Mutex::new(Arc::new(HashMap::from([("c".to_owned(), owner)]))));
        let current = lists.clone();
        let shared = TrustLists::following(move || current.lock().unwrap().clone());
        assert_eq!(shared.of("c").listing("ann"), SenderListing::Owner);
        assert_eq!(shared.of("d").listing("ann"), SenderListing::Unlisted);
        *lists.lock().unwrap() = Arc::default();
        assert_eq!(shared.of("c").listing("ann"), SenderListing::Unlisted);
    }

    #[test]
    fn only_whole_names_are_allowed() {
        let table: &[(&[&str], &str, bool)] = &[
            (&[], "ann", false),
            (&[], "", false),
            (&["*"], "ann", true),
            (&["*"], "", true),
            (&[" ann "], "ann", true),
            (&["ann"], "Ann", false),
            (&["ann"], "ann ", false),
            (&["ann"], "annabel", false),
            (&["annabel"], "ann", false),
            (&["ann", "bob"], "bob", true),
            (&[""], "", false),
            (&["ann"], "", false),
        ];
        for (list, sender, expected) in table {
            let list = AllowList::new(list.iter().copied());
            assert_eq!(list.allows(sender), *expected, "{list:?} {sender:?}");
        }
    }
}
