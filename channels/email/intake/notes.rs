//! The notes of the channel. They are JSON and survive a restart.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::email::address::EmailAddress;
use crate::email::config::NAME;
use crate::email::mail::ParsedMail;
use crate::email::message_id::{begins_thread, own_message_id, root_hash};
use crate::email::smtp::mailbox;
use crate::email::subject::BaseSubject;
use crate::email::threads::{MailThread, ReferencedId, ThreadState, hash, referenced_ids};
use crate::inbox::{Inbox, Note, Refusal};

/// Hash of a Message-ID -> the root of its thread.
const MID: &str = "mid";
/// [`root_hash`] -> the root.
const ROOT: &str = "root";
/// Root -> the `ReplyContext` of the newest mail.
pub const THREAD: &str = "thread";
/// Root -> `ThreadState`.
const PEOPLE: &str = "people";
/// Hash of sender and subject -> the root of their latest thread.
const SUBJECT: &str = "subject";
/// Sender -> `HourlyQuota`.
pub const SENDER: &str = "sender";
/// Root -> `HourlyQuota`.
pub const HOURLY: &str = "hourly";
/// Sender -> the time of the last refusal.
pub const REFUSED: &str = "refused";
/// Sender -> true if the sender has unsubscribed.
pub const UNSUBSCRIBED: &str = "silent";
/// Hash of a mail's id in the inbox -> exists if the mail was answered without a turn.
pub const ANSWERED: &str = "spot";
/// Outbox message -> exists if its mail bounced.
pub const BOUNCED: &str = "bounced";
/// Hash of a mail's header -> its failures.
pub const FAILED: &str = "failed";
/// Hash of a mail's header -> exists if the mail was skipped.
pub const SKIPPED: &str = "skipped";

const DAY: Duration = Duration::from_secs(86_400);
const THREAD_AGE: Duration = DAY.saturating_mul(400);

/// The kinds of notes, each with the time that it is kept after its last change. Other kinds never expire: `account`,
/// `since`, `again`, `silent`, `thread` and `people`. A thread's session never expires either, and must stay closed to other people
/// when all other traces of the thread are gone. Known mails are recognized by their rows in the inbox, which are never
/// deleted.
pub const NOTE_AGES: &[(&str, Duration)] = &[
    (MID, THREAD_AGE),
    (ROOT, THREAD_AGE),
    (BOUNCED, THREAD_AGE),
    (ANSWERED, THREAD_AGE),
    (SKIPPED, THREAD_AGE),
    // One day more than `SUBJECT_AGE`.
    (SUBJECT, DAY.saturating_mul(31)),
    // These count within an hour or a day.
    (SENDER, DAY.saturating_mul(2)),
    (HOURLY, DAY.saturating_mul(2)),
    (REFUSED, DAY.saturating_mul(2)),
    (FAILED, DAY.saturating_mul(2)),
];

/// How long a subject identifies a thread, in seconds.
const SUBJECT_AGE: i64 = 30 * 24 * 3_600;

/// Reads and builds the notes of the channel.
pub struct MailNotes {
    pub inbox: Arc<dyn Inbox>,
}

impl MailNotes {
    pub fn write(&self, kind: &'static str, key: impl Into<String>, value: &impl Serialize) -> Note {
        // Conversion to JSON cannot fail for plain data (strings, numbers and lists).
        let value = serde_json::json!(value).to_string();
        Note { channel: NAME.to_owned(), kind, key: key.into(), value }
    }

    /// Returns a note and the time of its last change. An unreadable note counts as missing and is overwritten.
    ///
    /// # Errors
    /// The note cannot be read from the gateway's store.
    pub async fn read<T: DeserializeOwned>(&self, kind: &str, key: &str) -> Result<Option<(T, Timestamp)>, Refusal> {
        let note = self.inbox.note(NAME, kind, key).await?;
        Ok(note.and_then(|note| Some((serde_json::from_str(&note.value).ok()?, note.at))))
    }

    /// Returns the known thread of the Message-ID `id`.
    pub async fn thread_of(&self, id: &str) -> Result<Option<MailThread>, Refusal> {
        let mut root: Option<(String, _)> = self.read(MID, &hash(&[id])).await?;
        if let (None, Some(own)) = (&root, own_message_id(id)) {
            root = self.read(ROOT, &own.hash).await?;
        }
        if let Some((root, _)) = root {
            return Ok(Some(self.thread(root).await?));
        }
        // The id itself may be the root of a thread, even if no note leads from it any more.
        let state: Option<(ThreadState, _)> = self.read(PEOPLE, id).await?;
        let state = match state {
            Some((state, _)) => Some(state),
            None => self.state_of_sent(id).await?,
        };
        Ok(state.map(|state| MailThread { root: id.to_owned(), state }))
    }

    /// Returns the state of the thread that a mail of the gateway with this id began, before anybody has answered it.
    async fn state_of_sent(&self, id: &str) -> Result<Option<ThreadState>, Refusal> {
        let Some(outbox) = begins_thread(id) else { return Ok(None) };
        let Some(sent) = self.inbox.sent(NAME, outbox).await? else { return Ok(None) };
        let address = mailbox(&sent.chat_id).ok().and_then(|mailbox| EmailAddress::parse(mailbox.email.as_ref()));
        Ok(address.map(|address| ThreadState::begun_by_gateway(address.as_str(), sent.chat_id)))
    }

    pub async fn referenced(&self, mail: &ParsedMail) -> Result<Vec<ReferencedId>, Refusal> {
        let mut referenced = Vec::new();
        for id in referenced_ids(mail) {
            let thread = self.thread_of(&id).await?;
            referenced.push(ReferencedId { id, thread });
        }
        Ok(referenced)
    }

    /// Returns the latest thread with this subject in which `sender` wrote or received a mail.
    pub async fn thread_by_subject(
        &self,
        sender: &str,
        subject: &BaseSubject,
        now: Timestamp,
    ) -> Result<Option<MailThread>, Refusal> {
        if !subject.is_reply || subject.core.is_empty() {
            return Ok(None);
        }
        match self.read::<String>(SUBJECT, &hash(&[sender, &subject.core])).await? {
            Some((root, at)) if now.as_second() - at.as_second() < SUBJECT_AGE => Ok(Some(self.thread(root).await?)),
            _ => Ok(None),
        }
    }

    /// Returns the notes by which replies to the mail `own_id` find the thread `root`. Ids that belong to another thread stay unchanged.
    pub async fn thread_notes(&self, root: &str, own_id: &str, state: &ThreadState) -> Result<Vec<Note>, Refusal> {
        let mut notes = vec![self.write(ROOT, root_hash(root), &root), self.write(PEOPLE, root, state)];
        for id in [root, own_id] {
            if self.thread_of(id).await?.is_none_or(|known| known.root == root) {
                notes.push(self.write(MID, hash(&[id]), &root));
            }
        }
        if !state.subject.is_empty() {
            // Most threads have few people. In larger ones, mail programs write References, so the subject is not needed.
            let people = state.people.iter().take(5);
            notes.extend(people.map(|person| self.write(SUBJECT, hash(&[person, &state.subject]), &root)));
        }
        Ok(notes)
    }

    async fn thread(&self, root: String) -> Result<MailThread, Refusal> {
        let state = self.read(PEOPLE, &root).await?.map(|(state, _)| state).unwrap_or_default();
        Ok(MailThread { root, state })
    }
}
