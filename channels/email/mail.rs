//! The types that pass between the stages: a fetched mail, a parsed mail, and the context of a reply.

use async_trait::async_trait;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::attachment_folder::IncomingFile;
use crate::inbox::{Cursor, Refusal};

/// A mail as fetched from a mailbox.
#[derive(Clone, Debug)]
pub struct FetchedMail {
    /// The position of this mail. Once the mail is handled, the mailbox is read up to this position.
    pub cursor: Cursor,
    /// The time at which the server received the mail (INTERNALDATE, RFC 3501, section 2.3.3).
    pub received_at: Timestamp,
    pub content: FetchedContent,
}

/// The fetched bytes of a mail.
#[derive(Clone, Debug)]
pub enum FetchedContent {
    Whole(Vec<u8>),
    /// Only the header, because the mail is larger than `max_size`.
    TooLarge {
        size: u64,
        header: Vec<u8>,
    },
}

/// The outcome of a mail. Outcome and cursor are on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IntakeOutcome {
    /// The mail is in the inbox, from now or earlier. The reader may mark it as read, or move it.
    Accepted,
    /// The mail is not for the agent and stays unchanged in its mailbox.
    Skipped,
}

/// Decides about mails, one at a time.
#[async_trait]
pub trait Intake: Send + Sync {
    /// Decides about a mail, and stores the outcome together with the mail's cursor.
    ///
    /// # Errors
    /// Nothing was stored; the caller must offer the same mail again later.
    async fn take(&self, mail: FetchedMail) -> Result<IntakeOutcome, Refusal>;

    /// Returns the outcome of the mail with this header, in whichever mailbox it was; `None` for a new mail.
    async fn known(&self, header: &[u8]) -> Result<Option<IntakeOutcome>, Refusal>;
}

/// An address with its display name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamedAddress {
    /// The display name; may be empty.
    pub name: String,
    /// `local@domain` as written, except that the domain is in lower case.
    pub address: String,
}

/// A parsed mail: decoded, limited in size, and without active content. Message-IDs keep their angle brackets: `<left@right>`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ParsedMail {
    pub message_id: Option<String>,
    pub in_reply_to: Vec<String>,
    /// The ids of References, oldest first.
    pub references: Vec<String>,
    pub from: Vec<NamedAddress>,
    pub reply_to: Vec<NamedAddress>,
    pub to: Vec<NamedAddress>,
    pub cc: Vec<NamedAddress>,
    pub subject: String,
    pub date: Option<Timestamp>,
    /// The header fields of the mail itself, topmost first: the name in lower case, the value unfolded but not decoded.
    pub headers: Vec<(String, String)>,
    /// The text that the author wrote, as Markdown, without the signature and quoted history. A quotation that the text asks about stays.
    pub text: String,
    /// The removed part of the text: quoted history and signature.
    pub cut: String,
    /// The mail forwards another person's text, asks about it, or holds an invitation. [`ParsedMail::text`] then contains
    /// more than the sender's own text.
    pub is_forward: bool,
    /// The body fits Content-Type and Content-Transfer-Encoding, and cannot have been written for others that show more.
    pub fits_its_type: bool,
    pub attachments: Vec<IncomingFile>,
    /// Remarks about parts that could not be read or were left out, one sentence each, e.g. "encrypted, unreadable".
    pub remarks: Vec<String>,
}

impl ParsedMail {
    /// Returns the values of a header field, topmost first; `name` is in lower case.
    pub fn header<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.headers.iter().filter(move |(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

/// The data of a mail that its reply needs. It travels in the metadata of the message and of its reply. The newest context
/// of each thread is also stored as a note, for messages that are sent into the thread without answering a mail.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ReplyContext {
    /// The Message-ID of the mail, with angle brackets; empty if it had none.
    pub message_id: String,
    /// The References of the mail, oldest first.
    pub references: Vec<String>,
    pub subject: String,
    /// The recipients of the reply, each in header form, `Name <local@domain>`: the permitted addresses of Reply-To, or
    /// else those of From.
    pub to: Vec<String>,
    /// The other recipients of the mail, without the account itself.
    pub cc: Vec<String>,
    /// The author, the date and the beginning of the mail, if replies quote.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quote: Option<ReplyQuote>,
}

/// A short quotation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplyQuote {
    pub from: String,
    /// The date of the mail (RFC 3339).
    pub date: String,
    pub text: String,
}

impl ReplyContext {
    /// The key in the metadata of a message.
    const KEY: &str = "email";

    /// Returns the context of a reply to the sender's address alone, without a quotation. Reply-To does not count: it may name somebody
    /// else.
    pub fn for_sender_alone(self, sender: &str) -> Self {
        Self { to: vec![sender.to_owned()], cc: Vec::new(), quote: None, ..self }
    }

    /// Writes the context into the metadata of a message.
    pub fn put(&self, metadata: &mut Map<String, Value>) {
        metadata.insert(Self::KEY.to_owned(), serde_json::json!(self));
    }

    /// Reads the context from the metadata of a message.
    pub fn of(metadata: &Map<String, Value>) -> Option<Self> {
        serde_json::from_value(metadata.get(Self::KEY)?.clone()).ok()
    }
}
