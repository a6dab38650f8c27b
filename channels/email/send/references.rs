//! The chain of a thread (RFC 5322, section 3.6.4).

use crate::email::answering::Answering;

/// The newest that are kept beside the first, which names the thread: as many as are read of a mail.
const MAX_NEWEST: usize = 100;
/// The longest chain, in bytes: servers refuse headers that are much longer (Postfix: 102,400).
const MAX_CHAIN: usize = 48_000;
/// The longest Message-ID that is passed on; it stands on a line of its own, and lines have an end (section 2.1.1).
const MAX_ID: usize = 400;

/// The Message-ID of what is answered, as it stands in In-Reply-To.
pub fn in_reply_to(answering: &Answering) -> Option<String> {
    message_id(&answering.message_id).map(str::to_owned)
}

/// What stands in References: those of what is answered, and itself.
pub fn chain(answering: &Answering) -> Option<String> {
    let mut ids: Vec<&str> = Vec::new();
    for id in answering.references.iter().map(String::as_str).chain([answering.message_id.as_str()]) {
        let Some(id) = message_id(id) else { continue };
        // Some programs repeat the whole chain; the place nearest to the end counts, but for the first.
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

/// A Message-ID that may stand in a header: in angle brackets, printable, without white space.
fn message_id(id: &str) -> Option<&str> {
    let id = id.trim();
    let inner = id.strip_prefix('<')?.strip_suffix('>')?;
    let is_plain = inner.bytes().all(|b| b.is_ascii_graphic() && !matches!(b, b'<' | b'>'));
    (is_plain && !inner.is_empty() && id.len() <= MAX_ID).then_some(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answering(references: &[&str], message_id: &str) -> Answering {
        Answering {
            references: references.iter().map(|id| (*id).to_owned()).collect(),
            message_id: message_id.to_owned(),
            ..Answering::default()
        }
    }

    #[test]
    fn the_chain_is_whole_and_holds_nothing_else() {
        for (references, id, expected) in [
            (&["<a@x>", "<b@x>"][..], "<c@x>", Some("<a@x> <b@x> <c@x>")),
            (&[], "<c@x>", Some("<c@x>")),
            (&["<a@x>"], "", Some("<a@x>")),
            (&[], "", None),
            (&["<a@x>", "<b@x>", "<a@x>", "<b@x>"], "<c@x>", Some("<a@x> <b@x> <c@x>")),
            (&["<a@x>", "b@x", "<c x@x>", "<d@x>\r\nBcc: eve@x", "<é@x>"], "<c@x>", Some("<a@x> <c@x>")),
        ] {
            assert_eq!(chain(&answering(references, id)).as_deref(), expected);
        }
    }

    #[test]
    fn a_long_chain_keeps_its_first_and_its_newest() {
        let ids: Vec<String> = (0..500).map(|n| format!("<{n}@x>")).collect();
        let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
        let chain = chain(&answering(&ids, "<last@x>")).unwrap();
        assert!(chain.starts_with("<0@x> <401@x> ") && chain.ends_with(" <499@x> <last@x>"), "{chain}");
        assert_eq!(chain.split(' ').count(), MAX_NEWEST + 1);
        let long: Vec<String> = (0..200).map(|n| format!("<{n}-{}@x>", "y".repeat(380))).collect();
        let long: Vec<&str> = long.iter().map(String::as_str).collect();
        let chain = super::chain(&answering(&long, "<last@x>")).unwrap();
        assert!(
            chain.len() <= MAX_CHAIN && chain.starts_with("<0-y") && chain.ends_with(" <last@x>"),
            "{}",
            chain.len()
        );
        assert!(chain.split(' ').count() >= 100, "{}", chain.split(' ').count());
    }
}
