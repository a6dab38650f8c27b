//! The identity of a mail.

use jiff::Timestamp;

use crate::email::auth::SenderAuthenticator;
use crate::email::mail::ParsedMail;
use crate::email::threads::{hash, own_id};
use crate::inbox::Cursor;
use crate::text::{one_line, truncate};

/// A mail that the intake is processing.
pub struct ArrivedMail {
    pub cursor: Cursor,
    pub received_at: Timestamp,
    /// The hash of the mail's header, which identifies the mail when nothing else can be read.
    pub key: String,
}

/// The author and the ids of a mail.
pub struct MailIdentity {
    pub sender: String,
    pub message_id: String,
    pub external_id: String,
}

impl MailIdentity {
    /// Returns the identity of a mail, or `None` if it has no single usable sender; such a mail is never accepted.
    pub fn of(mail: &ParsedMail, key: &str) -> Option<Self> {
        let sender = SenderAuthenticator::sender(mail)?.as_str().to_owned();
        let message_id = own_id(mail, key);
        let external_id = format!("{message_id} {sender}");
        Some(Self { sender, message_id, external_id })
    }
}

/// Returns the header of a mail without the empty line after it, for any line endings.
pub fn header_of(raw: &[u8]) -> &[u8] {
    let end = |within: &[u8], mark: &[u8]| within.windows(mark.len()).position(|window| window == mark);
    let crlf_end = end(raw, b"\r\n\r\n").unwrap_or(raw.len());
    let end = end(&raw[..crlf_end], b"\n\n").unwrap_or(crlf_end);
    raw[..end].trim_ascii_end()
}

/// Returns the hash of a header.
pub fn header_key(header: &[u8]) -> String {
    hash(&[&String::from_utf8_lossy(header)])
}

/// Returns the raw values of From and Subject, for a notice about a mail that may be unreadable.
pub fn from_and_subject(header: &[u8]) -> (String, String) {
    let text = String::from_utf8_lossy(header);
    let value = |name: &str| {
        let found = text
            .lines()
            .filter_map(|line| line.split_once(':'))
            .find(|(known, _)| known.trim().eq_ignore_ascii_case(name));
        found.map_or_else(|| "?".to_owned(), |(_, value)| value.trim().to_owned())
    };
    (value("from"), value("subject"))
}

/// Writes a sender's text as inline code, so that Markdown in it has no effect in a notice.
pub fn inline_code(text: &str) -> String {
    format!("`{}`", truncate(&one_line(&text.replace('`', "'")), 200))
}
