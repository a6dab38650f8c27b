//! What is known again after a restart: a channel's notes, read and written as JSON.

use std::sync::Arc;

use jiff::Timestamp;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::email::ids::{own_message_id, root_hash};
use crate::email::letter::Letter;
use crate::email::threads::{Known, Named, Subject, Talk, hash, named_ids};
use crate::inbox::{Inbox, Note, Refusal};

/// Message-ID (its hash) -> the root of its thread.
pub const MID: &str = "mid";
/// [`root_hash`] -> the root.
pub const ROOT: &str = "root";
/// Root -> the newest mail's `Answering`.
pub const THREAD: &str = "thread";
/// Root -> `Talk`.
pub const PEOPLE: &str = "people";
/// Sender and subject (their hash) -> the root of the thread in which they last stood.
pub const SUBJECT: &str = "subject";
/// Sender -> `Hours`.
pub const SENDER: &str = "sender";
/// Root -> `Hours`.
pub const HOURLY: &str = "hourly";
/// Sender -> that he was refused.
pub const REFUSED: &str = "refused";
/// Sender -> whether he wants no answers.
pub const SILENT: &str = "silent";
/// A mail (the hash of its id in the inbox) that was answered on the spot.
pub const SPOT: &str = "spot";
/// A message in the outbox -> that its mail came back.
pub const BOUNCED: &str = "bounced";
/// A mail (the hash of its header) -> how often it failed.
pub const FAILED: &str = "failed";

/// A subject makes a thread for as long as this, in seconds.
const SUBJECT_AGE: i64 = 30 * 24 * 3_600;

/// The notes of one channel.
pub struct Notes {
    pub channel: String,
    pub inbox: Arc<dyn Inbox>,
}

impl Notes {
    pub fn write(&self, kind: &'static str, key: impl Into<String>, value: &impl Serialize) -> Note {
        // Plain data: strings, numbers and lists always are JSON.
        let value = serde_json::json!(value).to_string();
        Note { channel: self.channel.clone(), kind, key: key.into(), value }
    }

    /// What is noted, and since when. What cannot be read is as nothing, and is written anew.
    pub async fn read<T: DeserializeOwned>(&self, kind: &str, key: &str) -> Result<Option<(T, Timestamp)>, Refusal> {
        let note = self.inbox.note(&self.channel, kind, key).await?;
        Ok(note.and_then(|note| Some((serde_json::from_str(&note.value).ok()?, note.at))))
    }

    /// The thread that `id` is known to be of.
    pub async fn thread_of(&self, id: &str) -> Result<Option<Known>, Refusal> {
        let mut root: Option<(String, _)> = self.read(MID, &hash(&[id])).await?;
        if let (None, Some(own)) = (&root, own_message_id(id)) {
            root = self.read(ROOT, &own.hash).await?;
        }
        if let Some((root, _)) = root {
            return Ok(Some(self.thread(root).await?));
        }
        // The id leads nowhere any more, and names the thread itself all the same.
        let talk: Option<(Talk, _)> = self.read(PEOPLE, id).await?;
        Ok(talk.map(|(talk, _)| Known { root: id.to_owned(), talk }))
    }

    pub async fn named(&self, letter: &Letter) -> Result<Vec<Named>, Refusal> {
        let mut named = Vec::new();
        for id in named_ids(letter) {
            let thread = self.thread_of(&id).await?;
            named.push(Named { id, thread });
        }
        Ok(named)
    }

    /// The thread in which `sender` last wrote or got mail of this subject.
    pub async fn by_subject(&self, sender: &str, subject: &Subject, now: Timestamp) -> Result<Option<Known>, Refusal> {
        if !subject.is_reply || subject.core.is_empty() {
            return Ok(None);
        }
        match self.read::<String>(SUBJECT, &hash(&[sender, &subject.core])).await? {
            Some((root, at)) if now.as_second() - at.as_second() < SUBJECT_AGE => Ok(Some(self.thread(root).await?)),
            _ => Ok(None),
        }
    }

    /// What a mail `own_id` leaves behind in the thread `root`, so that what answers it finds its way. Ids that are known
    /// as somebody else's stay as they are.
    pub async fn of_thread(&self, root: &str, own_id: &str, talk: &Talk) -> Result<Vec<Note>, Refusal> {
        let mut notes = vec![self.write(ROOT, root_hash(root), &root), self.write(PEOPLE, root, talk)];
        for id in [root, own_id] {
            if self.thread_of(id).await?.is_none_or(|known| known.root == root) {
                notes.push(self.write(MID, hash(&[id]), &root));
            }
        }
        if !talk.subject.is_empty() {
            // Most threads are between few; the others have programs that name ids.
            let people = talk.people.iter().take(5);
            notes.extend(people.map(|person| self.write(SUBJECT, hash(&[person, &talk.subject]), &root)));
        }
        Ok(notes)
    }

    async fn thread(&self, root: String) -> Result<Known, Refusal> {
        let talk = self.read(PEOPLE, &root).await?.map(|(talk, _)| talk).unwrap_or_default();
        Ok(Known { root, talk })
    }
}
