//! The Message-IDs of mails that the gateway sends: `<daoyou.OUTBOXUUID.HASH16@domain>` (RFC 5322, section 3.6.4). An id is
//! a function of the message and its thread, so a mail that is sent again has the same id. The id also identifies the
//! thread when the References of a reply are missing.

use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::text::hex;

/// The longest Message-ID that counts, in bytes; longer ids are ignored. Together with the longest address, an id of this
/// length fits into an external id. In References each id is on a separate line, whose length is limited too.
pub const MAX_ID: usize = 400;
const PREFIX: &str = "daoyou.";
/// The number of hex digits of the hash.
const HASH_DIGITS: usize = 16;

/// The parsed content of one of the gateway's own Message-IDs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnId {
    /// The outbox message that this mail delivered.
    pub outbox: Uuid,
    /// The [`root_hash`] of the thread's root. For the root mail itself, it is the hash of the beginning of its own id.
    pub hash: String,
}

/// Returns the Message-ID, with angle brackets, of the mail that delivers the message `outbox` into the thread of `root`, a
/// Message-ID with angle brackets. Without `root`, the mail begins a thread. `domain` is the account's domain in ASCII.
pub fn message_id(outbox: Uuid, root: Option<&str>, domain: &str) -> String {
    let beginning = beginning(outbox);
    let hash = root_hash(root.unwrap_or(&beginning));
    format!("{beginning}.{hash}@{domain}>")
}

/// Parses one of the gateway's own Message-IDs, with or without angle brackets; returns `None` for all others. Anybody
/// can forge such an id.
pub fn own_message_id(id: &str) -> Option<OwnId> {
    let id = id.trim();
    let id = id.strip_prefix('<').map_or(Some(id), |inner| inner.strip_suffix('>'))?;
    let (left, domain) = id.split_once('@')?;
    // Some servers change the case.
    let left = left.to_ascii_lowercase();
    let (outbox, hash) = left.strip_prefix(PREFIX)?.split_once('.')?;
    let is_hash = hash.len() == HASH_DIGITS && hash.bytes().all(|b| b.is_ascii_hexdigit());
    // The gateway writes only the hyphenated form.
    let outbox = Uuid::try_parse(outbox).ok().filter(|uuid| uuid.to_string() == outbox)?;
    (is_hash && !domain.is_empty()).then(|| OwnId { outbox, hash: hash.to_owned() })
}

/// Returns the outbox message that one of the gateway's own Message-IDs names, if its mail began a thread; `None` for all other ids.
pub fn begins_thread(id: &str) -> Option<Uuid> {
    own_message_id(id).filter(|own| own.hash == root_hash(&beginning(own.outbox))).map(|own| own.outbox)
}

/// Returns true for `<left@right>` of at most [`MAX_ID`] bytes in printable ASCII. Some programs leave out the `@`.
pub fn is_message_id(id: &str) -> bool {
    let inner = id.strip_prefix('<').and_then(|id| id.strip_suffix('>')).unwrap_or_default();
    let is_plain = inner.bytes().all(|b| b.is_ascii_graphic() && !matches!(b, b'<' | b'>'));
    is_plain && !inner.is_empty() && id.len() <= MAX_ID
}

/// Returns true if a chat is a thread, named by the Message-ID of its first mail, and not an address.
pub fn is_thread(chat_id: &str) -> bool {
    chat_id.starts_with('<') && chat_id.ends_with('>')
}

/// Returns the first 16 hex digits of the SHA-256 of a thread's root, a Message-ID with angle brackets.
pub fn root_hash(root: &str) -> String {
    hex(&Sha256::digest(root.trim().as_bytes())[..HASH_DIGITS / 2])
}

fn beginning(outbox: Uuid) -> String {
    format!("<{PREFIX}{outbox}")
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTBOX: Uuid = Uuid::from_u128(0x0192_f0c1_2345_7abc_8def_0123_4567_89ab);

    #[test]
    fn a_message_id_is_a_function_of_outbox_and_thread() {
        let reply = message_id(OUTBOX, Some("<root@example.org>"), "example.net");
        assert_eq!(reply, "<daoyou.0192f0c1-2345-7abc-8def-0123456789ab.4e7ea1b065858dae@example.net>");
        let own = own_message_id(&reply).unwrap();
        assert_eq!(own, OwnId { outbox: OUTBOX, hash: root_hash("<root@example.org>") });

        let first = message_id(OUTBOX, None, "example.net");
        assert_eq!(own_message_id(&first).unwrap().hash, root_hash(&beginning(OUTBOX)));
        assert_eq!(message_id(OUTBOX, None, "example.net"), first);
        assert_eq!([begins_thread(&first), begins_thread(&reply)], [Some(OUTBOX), None]);
    }

    #[test]
    fn own_ids_are_recognized() {
        for (id, ours) in [
            ("<daoyou.0192f0c1-2345-7abc-8def-0123456789ab.0123456789abcdef@example.net>", true),
            (" DAOYOU.0192F0C1-2345-7ABC-8DEF-0123456789AB.0123456789ABCDEF@example.net ", true),
            ("<daoyou.0192f0c123457abc8def0123456789ab.0123456789abcdef@example.net>", false),
            ("<daoyou.0192f0c1-2345-7abc-8def-0123456789ab.0123@example.net>", false),
            ("<daoyou.0192f0c1-2345-7abc-8def-0123456789ab.0123456789abcdeg@example.net>", false),
            ("<daoyou.0192f0c1-2345-7abc-8def-0123456789ab.0123456789abcdef@>", false),
            ("<daoyou.0192f0c1-2345-7abc-8def-0123456789ab.0123456789abcdef@example.net", false),
            ("<CAF=x1@mail.example.org>", false),
            ("", false),
        ] {
            assert_eq!(own_message_id(id).is_some(), ours, "{id}");
        }
    }
}
