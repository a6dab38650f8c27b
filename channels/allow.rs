//! The list of senders who may write to a channel. An empty list allows nobody; `"*"` allows everybody.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The senders that a channel accepts. Names are compared as a whole, without regard to ASCII case and outer white space.
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
        self.has_everybody() || self.names(sender)
    }

    /// Returns true if the list contains `sender` by name; `"*"` does not count.
    pub fn names(&self, sender: &str) -> bool {
        let sender = sender.trim();
        !sender.is_empty() && self.entries().any(|entry| entry != "*" && entry.eq_ignore_ascii_case(sender))
    }

    /// Returns true if the list holds `"*"`.
    pub fn has_everybody(&self) -> bool {
        self.entries().any(|entry| entry == "*")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_names_are_allowed() {
        let table: &[(&[&str], &str, bool)] = &[
            (&[], "ann", false),
            (&[], "", false),
            (&["*"], "ann", true),
            (&["*"], "", true),
            (&["ann"], "Ann ", true),
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
