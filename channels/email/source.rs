//! Between a mailbox and what becomes of its mails.

use async_trait::async_trait;
use jiff::Timestamp;

use crate::inbox::{Cursor, Refusal};

/// A mail as it lies in a mailbox.
#[derive(Clone, Debug)]
pub struct RawMail {
    /// The place of this mail: once it is taken, the mailbox has been read up to here.
    pub cursor: Cursor,
    /// When the server got it (INTERNALDATE, RFC 3501, section 2.3.3).
    pub received_at: Timestamp,
    pub content: RawContent,
}

/// Its bytes, or as many of them as are wanted.
#[derive(Clone, Debug)]
pub enum RawContent {
    Whole(Vec<u8>),
    /// It is larger than `max_size`: its header alone.
    TooLarge {
        size: u64,
        header: Vec<u8>,
    },
}

/// What became of a mail; in both cases it is on disk, and so is the cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// It is in the inbox, now or since long: it may be marked as read, or moved.
    Accepted,
    /// It is nobody's business here, and stays as it lies.
    PassedOver,
}

/// Takes mails, one after the other.
#[async_trait]
pub trait Intake: Send + Sync {
    /// Decides what becomes of a mail, and keeps it together with its cursor.
    ///
    /// # Errors
    /// Nothing was kept: the same mail is to be offered again, later.
    async fn take(&self, mail: RawMail) -> Result<Taken, Refusal>;

    /// What became of the mail with this header, wherever it lay then; `None` when it is new.
    async fn known(&self, header: &[u8]) -> Result<Option<Taken>, Refusal>;
}
