//! A mail as it was read: decoded, bounded, and without anything that would run.

use jiff::Timestamp;

/// Somebody's address, with the name that stands beside it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mailbox {
    /// May be empty.
    pub name: String,
    /// `local@domain` as written, but for the domain, which is in lower case.
    pub address: String,
}

/// A file that came with a mail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Enclosed {
    /// As the sender named it; not safe as a file's name.
    pub name: String,
    /// Media type, e.g. `image/png`.
    pub media_type: String,
    pub bytes: Vec<u8>,
}

/// A mail. Message-IDs stand with their angle brackets, as `<left@right>`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Letter {
    pub message_id: Option<String>,
    pub in_reply_to: Vec<String>,
    /// The oldest first.
    pub references: Vec<String>,
    pub from: Vec<Mailbox>,
    pub reply_to: Vec<Mailbox>,
    pub to: Vec<Mailbox>,
    pub cc: Vec<Mailbox>,
    pub subject: String,
    pub date: Option<Timestamp>,
    /// Every header field of the mail itself: its name in lower case, its value unfolded and else as it came; the topmost
    /// first.
    pub headers: Vec<(String, String)>,
    /// What its writer says, as Markdown, without the signature and the quoted history; a quotation that it asks about stays.
    pub text: String,
    /// What was cut off: quoted history, signature.
    pub cut: String,
    /// It hands on or asks about somebody else's words: what is in [`Letter::text`] is not its sender's own word alone.
    pub is_forward: bool,
    pub enclosed: Vec<Enclosed>,
    /// What could not be read or was left out, each in a sentence: "encrypted, unreadable".
    pub remarks: Vec<String>,
}

impl Letter {
    /// The values of a header field, the topmost first; `name` in lower case.
    pub fn header<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.headers.iter().filter(move |(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}
