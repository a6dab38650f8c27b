//! Ids of calls as the service takes them: `^[a-zA-Z0-9_-]+$`, and each only once in a whole conversation, where other
//! services count anew in each answer.

use std::collections::HashSet;

use sha2::{Digest, Sha256};

/// Longer ones are shortened: the service's own have 30 characters, and what it refuses is not said.
const ID_LIMIT: usize = 64;

/// The ids that stand in the conversation so far.
#[derive(Default)]
pub(super) struct Ids {
    used: HashSet<String>,
}

impl Ids {
    /// The id of the next call of the conversation, which depends on nothing after it.
    pub(super) fn next(&mut self, id: &str) -> String {
        let wanted = cleaned(id);
        let mut sent = wanted.clone();
        let mut number = 2;
        while !self.used.insert(sent.clone()) {
            sent = format!("{wanted}_{number}");
            number += 1;
        }
        sent
    }
}

fn cleaned(id: &str) -> String {
    let is_clean = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    if (1..=ID_LIMIT).contains(&id.len()) && id.bytes().all(is_clean) {
        return id.to_owned();
    }
    let hash = Sha256::digest(id.as_bytes());
    hash[..12].iter().fold("toolu_".to_owned(), |text, byte| text + &format!("{byte:02x}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_clean_and_stand_once() {
        let mut ids = Ids::default();
        let long = "x".repeat(65);
        let sent: Vec<_> = ["a", "a", "a_2", "a", "b.c", "b c", "", &long].map(|id| ids.next(id)).into();
        assert_eq!(sent[..4], ["a", "a_2", "a_2_2", "a_3"]);
        assert!(sent[4..].iter().all(|id| id.starts_with("toolu_") && id.len() == 30), "{sent:?}");
        assert_eq!(sent.iter().collect::<HashSet<_>>().len(), sent.len());
    }
}
