//! What is kept of a mail so that a reply finds its way into its thread.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Goes along in the metadata of a message, and so of its reply. The newest of each thread is noted, too, for what is
/// written into it without a mail to answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Answering {
    /// Of the mail, with its angle brackets; empty where it had none.
    pub message_id: String,
    /// What stood in its References, the oldest first.
    pub references: Vec<String>,
    pub subject: String,
    /// Who the reply goes to: the mail's Reply-To as far as they may have it, else its From; each as a header writes it,
    /// `Name <local@domain>`.
    pub to: Vec<String>,
    /// Who else got the mail, without ourselves.
    pub cc: Vec<String>,
    /// Who wrote it and when, and how it begins, where replies quote.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quote: Option<Quote>,
}

/// A short quotation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quote {
    pub from: String,
    /// RFC 3339.
    pub date: String,
    pub text: String,
}

impl Answering {
    /// Under this name it stands in a message's metadata.
    const KEY: &str = "email";

    /// Puts it into a message's metadata.
    pub fn put(&self, metadata: &mut Map<String, Value>) {
        metadata.insert(Self::KEY.to_owned(), serde_json::json!(self));
    }

    /// Reads it out of a message's metadata.
    pub fn of(metadata: &Map<String, Value>) -> Option<Self> {
        serde_json::from_value(metadata.get(Self::KEY)?.clone()).ok()
    }
}
