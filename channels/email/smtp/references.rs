//! Builds the References of a reply (RFC 5322, section 3.6.4).

use crate::email::mail::ReplyContext;
use crate::email::message_id::is_message_id;

/// How many of the newest ids are kept besides the first, which names the thread. The intake reads the same number.
const MAX_NEWEST: usize = 100;
/// The longest field, in bytes. Servers refuse headers that are much longer (Postfix: 102,400).
const MAX_CHAIN: usize = 48_000;

/// Returns the Message-ID of the answered mail, for In-Reply-To.
pub fn in_reply_to(context: &ReplyContext) -> Option<String> {
    message_id(&context.message_id).map(str::to_owned)
}

/// Returns References: the ids of the answered mail's References, followed by its own id.
pub fn chain(context: &ReplyContext) -> Option<String> {
    let mut ids: Vec<&str> = Vec::new();
    for id in context.references.iter().map(String::as_str).chain([context.message_id.as_str()]) {
        let Some(id) = message_id(id) else { continue };
        // Some programs repeat the whole chain. Then the last occurrence of an id counts, except for the first id.
        if let Some(at) = ids.iter().position(|known| *known == id) {
            if at == 0 {
                continue;
            }
            ids.remove(at);
        }
        ids.push(id);
    }
    if ids.len() > MAX_NEWEST + 1 {
        ids.drain(1..ids.len() - MAX_NEWEST);
    }
    let mut room = MAX_CHAIN;
    let fits =
        ids.iter().rev().take_while(|id| room.checked_sub(id.len() + 1).map(|left| room = left).is_some()).count();
    if fits < ids.len() {
        ids.drain(1..=ids.len() - fits);
    }
    (!ids.is_empty()).then(|| ids.join(" "))
}

/// Returns the Message-ID if it is valid in a header.
fn message_id(id: &str) -> Option<&str> {
    Some(id.trim()).filter(|id| is_message_id(id))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn context(references: &[&str], message_id: &str) -> ReplyContext {
        ReplyContext {
            references: references.iter().map(|id| (*id).to_owned()).collect(),
            message_id: message_id.to_owned(),
            ..ReplyContext::default()
        }
    }

    #[test]
    fn the_chain_holds_all_valid_ids_once() {
        for (references, id, expected) in [
            (&["<a@x>", "<b@x>"][..], "<c@x>", Some("<a@x> <b@x> <c@x>")),
            (&[], "<c@x>", Some("<c@x>")),
            (&["<a@x>"], "", Some("<a@x>")),
            (&[], "", None),
            (&["<a@x>", "<b@x>", "<a@x>", "<b@x>"], "<c@x>", Some("<a@x> <b@x> <c@x>")),
            (&["<a@x>", "b@x", "<c x@x>", "<d@x>\r\nBcc: eve@x", "<é@x>"], "<c@x>", Some("<a@x> <c@x>")),
        ] {
            assert_eq!(chain(&context(references, id)).as_deref(), expected);
        }
    }

    #[test]
    fn a_long_chain_keeps_its_first_and_its_newest_ids() {
        let ids: Vec<String> = (0..500).map(|n| format!("<{n}@x>")).collect();
        let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
        let chain = chain(&context(&ids, "<last@x>")).unwrap();
        assert!(chain.starts_with("<0@x> <401@x> ") && chain.ends_with(" <499@x> <last@x>"), "{chain}");
        assert_eq!(chain.split(' ').count(), MAX_NEWEST + 1);
        let long: Vec<String> = (0..200).map(|n| format!("<{n}-{}@x>", "y".repeat(380))).collect();
        let long: Vec<&str> = long.iter().map(String::as_str).collect();
        let chain = super::chain(&context(&long, "<last@x>")).unwrap();
        assert!(
            chain.len() <= MAX_CHAIN && chain.starts_with("<0-y") && chain.ends_with(" <last@x>"),
            "{}",
            chain.len()
        );
        assert!(chain.split(' ').count() >= 100, "{}", chain.split(' ').count());
    }
}
