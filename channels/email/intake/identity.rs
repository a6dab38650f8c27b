//! Which mail it is.

use super::replying::line;
use crate::email::judge::Judge;
use crate::email::letter::Letter;
use crate::email::threads::{hash, own_id};

/// Who wrote a mail, and which one it is.
pub struct Identity {
    pub sender: String,
    pub message_id: String,
    pub external_id: String,
}

/// A mail's header without the empty line behind it, however its lines end.
pub fn header_of(raw: &[u8]) -> &[u8] {
    let end = |within: &[u8], mark: &[u8]| within.windows(mark.len()).position(|window| window == mark);
    let end_of_one = end(raw, b"\r\n\r\n").unwrap_or(raw.len());
    let end = end(&raw[..end_of_one], b"\n\n").unwrap_or(end_of_one);
    raw[..end].trim_ascii_end()
}

pub fn key_of(header: &[u8]) -> String {
    hash(&[&String::from_utf8_lossy(header)])
}

/// `None` where a mail has no usable sender: nobody is listened to then.
pub fn identity(letter: &Letter, key: &str) -> Option<Identity> {
    let sender = Judge::sender(letter)?.as_str().to_owned();
    let message_id = own_id(letter, key);
    let external_id = format!("{message_id} {sender}");
    Some(Identity { sender, message_id, external_id })
}

/// From and subject for the owner, of a mail that may not be readable at all.
pub fn seen(header: &[u8]) -> (String, String) {
    let text = String::from_utf8_lossy(header);
    let value = |name: &str| {
        let lines = text.lines().filter_map(|line| line.split_once(':'));
        let found = lines.into_iter().find(|(known, _)| known.trim().eq_ignore_ascii_case(name));
        found.map_or_else(|| "?".to_owned(), |(_, value)| value.trim().to_owned())
    };
    (value("from"), value("subject"))
}

/// A sender's words in the owner's notice: shown, and nothing else.
pub fn code(text: &str) -> String {
    format!("`{}`", line(&text.replace('`', "'"), 200))
}
