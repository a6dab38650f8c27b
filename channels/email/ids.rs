//! The Message-IDs of our own mails: `<daoyou.OUTBOXUUID.HASH16@domain>` (RFC 5322, section 3.6.4). Each is a function of
//! what it stands on, so that a mail that is sent again is the same mail; and it leads back to its thread where a
//! reply's References are gone.

use sha2::{Digest, Sha256};
use uuid::Uuid;

const PREFIX: &str = "daoyou.";
/// Hex digits of the hash.
const HASH_DIGITS: usize = 16;

/// What one of our Message-IDs says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnId {
    /// The message in the outbox that this mail delivered.
    pub outbox: Uuid,
    /// [`root_hash`] of its thread's root; of its own beginning where it is the root itself.
    pub hash: String,
}

/// The Message-ID, with its angle brackets, of the mail that delivers the outbox's message `outbox` into the thread of
/// `root`, a Message-ID with its angle brackets; without one the mail begins a thread. `domain` is the account's, in
/// ASCII.
pub fn message_id(outbox: Uuid, root: Option<&str>, domain: &str) -> String {
    let beginning = beginning(outbox);
    let hash = root_hash(root.unwrap_or(&beginning));
    format!("{beginning}.{hash}@{domain}>")
}

/// Reads one of our Message-IDs, with or without its angle brackets; `None` for everybody else's. Anybody can write one
/// that looks like ours.
pub fn own_message_id(id: &str) -> Option<OwnId> {
    let id = id.trim();
    let id = id.strip_prefix('<').map_or(Some(id), |inner| inner.strip_suffix('>'))?;
    let (left, domain) = id.split_once('@')?;
    // Some servers change the case of what they pass on.
    let left = left.to_ascii_lowercase();
    let (outbox, hash) = left.strip_prefix(PREFIX)?.split_once('.')?;
    let is_hash = hash.len() == HASH_DIGITS && hash.bytes().all(|b| b.is_ascii_hexdigit());
    // As it is written by us: hyphenated.
    let outbox = Uuid::try_parse(outbox).ok().filter(|uuid| uuid.to_string() == outbox)?;
    (is_hash && !domain.is_empty()).then(|| OwnId { outbox, hash: hash.to_owned() })
}

/// The first 16 hex digits of the SHA-256 of a thread's root Message-ID, taken with its angle brackets.
pub fn root_hash(root: &str) -> String {
    let digest = Sha256::digest(root.trim().as_bytes());
    digest.iter().take(HASH_DIGITS / 2).map(|byte| format!("{byte:02x}")).collect()
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
    }

    #[test]
    fn our_ids_are_known_among_others() {
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
