//! Takes mails: reads, judges, finds the thread, and hands over. Whatever goes wrong with one mail, those behind it come
//! to their turn.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::FutureExt;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;

use super::content::{Shown, content, size, subject_alone};
use super::hours::{Hours, Room};
use super::notes::{FAILED, HOURLY, Notes, REFUSED, SENDER, THREAD};
use super::replying::{answering, line};
use crate::email::config::EmailConfig;
use crate::email::files::{MailFiles, SavedFiles};
use crate::email::judge::{Address, Judge, Verdict};
use crate::email::letter::Letter;
use crate::email::read::{ReadLimits, read};
use crate::email::source::{Intake, RawContent, RawMail, Taken};
use crate::email::threads::{Named, Place, Subject, hash, own_id, place};
use crate::email::words::{Words, fill};
use crate::inbox::{Alongside, Cursor, Inbox, Note, Refusal};
use crate::message::{InboundMessage, SessionKey, Trust};

/// A mail that fails as often as this is passed over.
const MAX_FAILURES: u32 = 3;
/// A sender that cannot be checked is tried again for as long as this, in seconds, and at least [`MAX_FAILURES`] times.
const UNCHECKED_FOR: i64 = 15 * 60;
/// When a sender is to be checked again.
const CHECK_AGAIN: Duration = Duration::from_secs(60);
/// When a mail is to be tried again that the disk had no room for.
const ROOM_AGAIN: Duration = Duration::from_secs(30);
const DAY: i64 = 24 * 3_600;
/// Strangers that are told something within a day, all together.
const MAX_REFUSALS: u32 = 100;
/// Under this key the refusals of a day are counted; no address looks like it.
const ALL_STRANGERS: &str = "all";

/// The intake of one account.
pub struct MailIntake {
    judge: Judge,
    own: Option<Address>,
    hourly_limit: u32,
    max_size: u64,
    quote: bool,
    notes: Notes,
    files: Arc<MailFiles>,
    words: Words,
    /// Several mailboxes do not take the last place of a limit twice.
    turn: Mutex<()>,
    clock: fn() -> Timestamp,
}

/// A mail on its way.
struct Arrived {
    cursor: Cursor,
    received_at: Timestamp,
    /// Names it where nothing else is certain: the hash of its header.
    key: String,
}

/// Who wrote a mail, and which one it is.
struct Identity {
    sender: String,
    message_id: String,
    external_id: String,
}

/// Why a mail was not taken.
enum Trouble {
    /// Not now.
    Refused(Refusal),
    /// It is this mail's fault, or ours.
    Failed(String),
    /// Who sent it cannot be found out now.
    Unchecked { sender: String, reason: String },
}

impl From<Refusal> for Trouble {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Invalid(reason) => Self::Failed(reason),
            refusal => Self::Refused(refusal),
        }
    }
}

/// How often a mail failed, and since when.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
struct Failures {
    count: u32,
    /// Unix seconds.
    since: i64,
}

/// How many strangers were refused on the day that began then.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
struct Refusals {
    count: u32,
    /// Unix seconds.
    since: i64,
}

impl MailIntake {
    /// `owners` are the owner's own mail addresses, plain; `words` are in his language.
    pub fn new(
        config: &EmailConfig,
        owners: &[String],
        channel: String,
        inbox: Arc<dyn Inbox>,
        files: Arc<MailFiles>,
        words: Words,
    ) -> Self {
        Self {
            judge: Judge::new(config, owners),
            own: Address::parse(&config.address),
            hourly_limit: config.hourly_limit,
            max_size: config.max_size.0,
            quote: config.quote,
            notes: Notes { channel, inbox },
            files,
            words,
            turn: Mutex::new(()),
            clock: Timestamp::now,
        }
    }

    #[cfg(test)]
    pub fn with(self, judge: Judge, clock: fn() -> Timestamp) -> Self {
        Self { judge, clock, ..self }
    }

    fn inbox(&self) -> &dyn Inbox {
        &*self.notes.inbox
    }

    async fn whole(&self, arrived: &Arrived, raw: Vec<u8>) -> Result<Taken, Trouble> {
        let reading = tokio::task::spawn_blocking(move || {
            let letter = read(&raw, &ReadLimits::default());
            (raw, letter)
        });
        let (raw, letter) = reading.await.map_err(|error| Trouble::Failed(format!("reading it failed: {error}")))?;
        let identity = identity(&letter, &arrived.key);
        if let Some(identity) = &identity
            && self.is_known(identity).await?
        {
            self.pass(arrived, "it was accepted before").await?;
            return Ok(Taken::Accepted);
        }
        let verdict = self.judge.judge(&raw, &letter, arrived.received_at).await;
        drop(raw);
        match (verdict, identity) {
            (Verdict::Listen { trust, .. }, Some(identity)) => self.listen(arrived, letter, identity, trust).await,
            (Verdict::Refuse { reason, .. }, Some(identity)) => self.refuse(arrived, &letter, identity, &reason).await,
            (Verdict::Later { sender, reason }, _) => Err(Trouble::Unchecked { sender, reason }),
            (Verdict::Ignore { reason }, _) => self.pass(arrived, &reason).await,
            // The judge lets nobody in without a sender.
            (_, None) => self.pass(arrived, "it has no sender").await,
        }
    }

    /// Of a mail that was not fetched the header alone is known.
    async fn too_large(&self, arrived: &Arrived, header: &[u8], bytes: u64) -> Result<Taken, Trouble> {
        let letter = read(header, &ReadLimits::default());
        let limit = size(self.max_size);
        let reason = format!("it is larger than {limit}");
        let Some(identity) = identity(&letter, &arrived.key) else { return self.pass(arrived, &reason).await };
        if self.is_known(&identity).await? {
            return self.pass(arrived, "it was answered before").await;
        }
        match self.judge.judge_header(&letter) {
            Verdict::Listen { trust, .. } => {
                let _turn = self.turn.lock().await;
                let place = self.place(&letter, &identity).await?;
                let told = fill(self.words.too_large, &[&limit]);
                self.answer(arrived, &letter, identity, (place.root, trust), told, Alongside::default()).await
            }
            Verdict::Later { sender, .. } => {
                tracing::warn!(sender, bytes, "a mail is too large and is passed over");
                let notice = fill(self.words.too_large_notice, &[&code(&sender), &size(bytes), &limit]);
                self.pass_with(arrived, &reason, Vec::new(), Some(notice)).await
            }
            Verdict::Refuse { reason, .. } => self.refuse(arrived, &letter, identity, &reason).await,
            Verdict::Ignore { reason } => self.pass(arrived, &reason).await,
        }
    }

    async fn listen(
        &self,
        arrived: &Arrived,
        letter: Letter,
        identity: Identity,
        trust: Trust,
    ) -> Result<Taken, Trouble> {
        let _turn = self.turn.lock().await;
        let place = self.place(&letter, &identity).await?;
        let mut by_sender = self.hours(SENDER, &identity.sender).await?;
        let mut by_thread = self.hours(HOURLY, &place.root).await?;
        let at = arrived.received_at;
        let rooms = [&by_sender, &by_thread].map(|hours| hours.room(at, self.hourly_limit));
        if rooms != [Room::There; 2] {
            let is_told = rooms.contains(&Room::None);
            return self.too_many(arrived, &letter, identity, (place.root, trust), is_told).await;
        }
        by_sender.count(at);
        by_thread.count(at);
        let mut notes = vec![
            self.notes.write(SENDER, &identity.sender, &by_sender),
            self.notes.write(HOURLY, &place.root, &by_thread),
        ];
        let session = SessionKey::of_chat(&self.notes.channel, &place.root);
        let letter = Arc::new(letter);
        let saved = self.save(session, &identity, letter.clone()).await?;
        let answering = answering(&letter, self.own.as_ref(), self.quote);
        let subject = Subject::of(&letter.subject);
        let shown = Shown {
            subject: place.is_new || subject.core != place.talk.subject,
            sender: !place.is_new && place.talk.last != identity.sender,
            attachments: &saved.attachments,
            cut: saved.cut.as_deref(),
        };
        let mut talk = place.talk;
        talk.join(&identity.sender, self.others(&letter), &subject.core);
        notes.extend(self.notes.of_thread(&place.root, &identity.message_id, &talk).await?);
        notes.push(self.notes.write(THREAD, &place.root, &answering));
        let mut message = self.message(arrived, identity, &place.root, trust, content(&letter, &shown));
        message.attachments.clone_from(&saved.attachments);
        answering.put(&mut message.metadata);
        let cursor = Some(arrived.cursor.clone());
        self.inbox().accept(message, Alongside { cursor, notes, notice: None }).await?;
        Ok(Taken::Accepted)
    }

    /// Once it is said, to the sender and to the owner, then there is silence.
    async fn too_many(
        &self,
        arrived: &Arrived,
        letter: &Letter,
        identity: Identity,
        (root, trust): (String, Trust),
        is_told: bool,
    ) -> Result<Taken, Trouble> {
        let sender = identity.sender.clone();
        let limit = self.hourly_limit.to_string();
        if is_told {
            let reason = format!("more than {limit} mails within an hour came from {sender} or into its thread");
            return self.pass(arrived, &reason).await;
        }
        tracing::warn!(sender, limit, "too many mails within an hour: the sender is told, and then left alone");
        let mut notes = Vec::new();
        for (kind, key) in [(SENDER, &sender), (HOURLY, &root)] {
            let mut hours = self.hours(kind, key).await?;
            hours.tell(arrived.received_at);
            notes.push(self.notes.write(kind, key, &hours));
        }
        let notice = Some(fill(self.words.too_many_notice, &[&code(&sender), &limit]));
        let told = fill(self.words.too_many, &[&limit]);
        let alongside = Alongside { cursor: None, notes, notice };
        self.answer(arrived, letter, identity, (root, trust), told, alongside).await
    }

    /// Says once a day, to those only whose address is proven, that they are not listened to.
    async fn refuse(
        &self,
        arrived: &Arrived,
        letter: &Letter,
        identity: Identity,
        reason: &str,
    ) -> Result<Taken, Trouble> {
        let _turn = self.turn.lock().await;
        let now = (self.clock)();
        let last = self.notes.read::<i64>(REFUSED, &identity.sender).await?;
        if last.is_some_and(|(at, _)| now.as_second() - at < DAY) {
            return self.pass(arrived, &format!("{reason}, and was told so today")).await;
        }
        let all = self.notes.read::<Refusals>(REFUSED, ALL_STRANGERS).await?;
        let mut all = all.map(|(all, _)| all).filter(|all| now.as_second() - all.since < DAY).unwrap_or_default();
        if all.count == 0 {
            all.since = now.as_second();
        } else if all.count >= MAX_REFUSALS {
            return self.pass(arrived, &format!("{reason}; enough strangers were told so today")).await;
        }
        all.count += 1;
        tracing::info!(sender = identity.sender, reason, "a mail is refused");
        let notes = vec![
            self.notes.write(REFUSED, &identity.sender, &now.as_second()),
            self.notes.write(REFUSED, ALL_STRANGERS, &all),
        ];
        // A stranger's mail begins a thread of its own, whatever it names.
        let place = place(&identity.sender, &self.own_named(&identity).await?, &[], None);
        let alongside = Alongside { cursor: None, notes, notice: None };
        let told = self.words.refused.to_owned();
        self.answer(arrived, letter, identity, (place.root, Trust::Untrusted), told, alongside).await
    }

    /// Answers on the spot. The mail itself is passed over: it stays unread for whoever reads the mailbox.
    async fn answer(
        &self,
        arrived: &Arrived,
        letter: &Letter,
        identity: Identity,
        (root, trust): (String, Trust),
        reply: String,
        mut alongside: Alongside,
    ) -> Result<Taken, Trouble> {
        let mut message = self.message(arrived, identity, &root, trust, subject_alone(letter));
        answering(letter, self.own.as_ref(), self.quote).put(&mut message.metadata);
        alongside.cursor = Some(arrived.cursor.clone());
        self.inbox().answer(message, reply, alongside).await?;
        Ok(Taken::PassedOver)
    }

    fn message(
        &self,
        arrived: &Arrived,
        identity: Identity,
        root: &str,
        trust: Trust,
        content: String,
    ) -> InboundMessage {
        let mut message = InboundMessage::text(&self.notes.channel, root, &identity.sender, trust, content);
        message.external_id = Some(identity.external_id);
        message.received_at = arrived.received_at;
        message
    }

    async fn save(&self, session: SessionKey, identity: &Identity, letter: Arc<Letter>) -> Result<SavedFiles, Trouble> {
        let files = self.files.clone();
        let key = hash(&[&identity.external_id]);
        let saving = tokio::task::spawn_blocking(move || files.save(&session, &key, &letter));
        let saved = saving.await.map_err(|error| Trouble::Failed(format!("saving its files failed: {error}")))?;
        saved.map_err(|error| match error.kind() {
            // No mail's fault: it waits until there is room.
            std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => {
                let reason = format!("its files could not be saved: {error}");
                Trouble::Refused(Refusal::Store { reason, retry_after: ROOM_AGAIN })
            }
            _ => Trouble::Failed(format!("its files could not be saved: {error}")),
        })
    }

    async fn place(&self, letter: &Letter, identity: &Identity) -> Result<Place, Trouble> {
        let own = self.own_named(identity).await?;
        let named = self.notes.named(letter).await?;
        let subject = Subject::of(&letter.subject);
        let by_subject = self.notes.by_subject(&identity.sender, &subject, (self.clock)()).await?;
        Ok(place(&identity.sender, &own, &named, by_subject.as_ref()))
    }

    async fn own_named(&self, identity: &Identity) -> Result<Named, Trouble> {
        let id = identity.message_id.clone();
        let thread = self.notes.thread_of(&id).await?;
        Ok(Named { id, thread })
    }

    async fn hours(&self, kind: &str, key: &str) -> Result<Hours, Trouble> {
        Ok(self.notes.read(kind, key).await?.map(|(hours, _)| hours).unwrap_or_default())
    }

    /// Who got a mail, without ourselves.
    fn others(&self, letter: &Letter) -> Vec<String> {
        let all = letter.to.iter().chain(&letter.cc).filter_map(|mailbox| Address::parse(&mailbox.address));
        let is_own = |address: &Address| self.own.as_ref().is_some_and(|own| own.untagged() == address.untagged());
        all.filter(|address| !is_own(address)).map(|address| address.as_str().to_owned()).take(50).collect()
    }

    async fn is_known(&self, identity: &Identity) -> Result<bool, Refusal> {
        Ok(self.inbox().state(&self.notes.channel, &identity.external_id).await?.is_some())
    }

    async fn pass(&self, arrived: &Arrived, reason: &str) -> Result<Taken, Trouble> {
        tracing::info!(
            position = arrived.cursor.position,
            source = arrived.cursor.source,
            reason,
            "a mail is passed over"
        );
        self.pass_with(arrived, reason, Vec::new(), None).await
    }

    async fn pass_with(
        &self,
        arrived: &Arrived,
        reason: &str,
        notes: Vec<Note>,
        notice: Option<String>,
    ) -> Result<Taken, Trouble> {
        let cursor = Some(arrived.cursor.clone());
        self.inbox().skip(Alongside { cursor, notes, notice }, reason).await?;
        Ok(Taken::PassedOver)
    }

    /// Counts a failure; after the last one the mail is passed over, and the owner told.
    async fn after(&self, trouble: Trouble, arrived: &Arrived, header: &[u8]) -> Result<Taken, Refusal> {
        let (reason, unchecked) = match trouble {
            Trouble::Refused(refusal) => return Err(refusal),
            Trouble::Failed(reason) => (reason, None),
            Trouble::Unchecked { sender, reason } => (reason, Some(sender)),
        };
        let now = (self.clock)().as_second();
        let before = self.notes.read::<Failures>(FAILED, &arrived.key).await?;
        let mut failures = before.map_or(Failures { count: 0, since: now }, |(failures, _)| failures);
        failures.count = failures.count.saturating_add(1);
        let is_last = failures.count >= MAX_FAILURES && (unchecked.is_none() || now - failures.since >= UNCHECKED_FOR);
        let notes = vec![self.notes.write(FAILED, &arrived.key, &failures)];
        let position = &arrived.cursor.position;
        if !is_last {
            tracing::warn!(position, reason, tries = failures.count, "a mail could not be taken and is tried again");
            self.inbox().skip(Alongside { notes, ..Alongside::default() }, &reason).await?;
            return Err(match unchecked {
                Some(_) => Refusal::Store { reason, retry_after: CHECK_AGAIN },
                None => Refusal::Invalid(reason),
            });
        }
        tracing::error!(position, reason, "a mail failed too often and is passed over");
        let notice = match unchecked {
            Some(sender) => fill(self.words.unchecked_notice, &[&code(&sender), &reason]),
            None => {
                let (from, subject) = seen(header);
                fill(self.words.failed_notice, &[&code(&from), &code(&subject), &reason])
            }
        };
        let alongside = Alongside { cursor: Some(arrived.cursor.clone()), notes, notice: Some(notice) };
        self.inbox().skip(alongside, &reason).await?;
        Ok(Taken::PassedOver)
    }
}

#[async_trait]
impl Intake for MailIntake {
    async fn take(&self, mail: RawMail) -> Result<Taken, Refusal> {
        let header = match &mail.content {
            RawContent::Whole(raw) => header_of(raw),
            RawContent::TooLarge { header, .. } => header_of(header),
        };
        let header = header.to_vec();
        let arrived = Arrived { cursor: mail.cursor, received_at: mail.received_at, key: key_of(&header) };
        let taking = async {
            match mail.content {
                RawContent::Whole(raw) => self.whole(&arrived, raw).await,
                RawContent::TooLarge { size, header } => self.too_large(&arrived, &header, size).await,
            }
        };
        let taken = AssertUnwindSafe(taking)
            .catch_unwind()
            .await
            .unwrap_or_else(|panic| Err(Trouble::Failed(format!("a fault inside daoyou: {}", said(&*panic)))));
        match taken {
            Ok(taken) => Ok(taken),
            Err(trouble) => self.after(trouble, &arrived, &header).await,
        }
    }

    async fn knows(&self, header: &[u8]) -> Result<bool, Refusal> {
        let header = header_of(header);
        let letter = read(header, &ReadLimits::default());
        match identity(&letter, &key_of(header)) {
            Some(identity) => self.is_known(&identity).await,
            None => Ok(false),
        }
    }
}

/// A mail's header without the empty line behind it, however its lines end.
fn header_of(raw: &[u8]) -> &[u8] {
    let end = |mark: &[u8]| raw.windows(mark.len()).position(|window| window == mark);
    let end = match (end(b"\r\n\r\n"), end(b"\n\n")) {
        (Some(one), Some(other)) => one.min(other),
        (one, other) => one.or(other).unwrap_or(raw.len()),
    };
    raw[..end].trim_ascii_end()
}

fn key_of(header: &[u8]) -> String {
    hash(&[&String::from_utf8_lossy(header)])
}

/// `None` where a mail has no usable sender: nobody is listened to then.
fn identity(letter: &Letter, key: &str) -> Option<Identity> {
    let sender = Judge::sender(letter)?.as_str().to_owned();
    let message_id = own_id(letter, key);
    let external_id = format!("{message_id} {sender}");
    Some(Identity { sender, message_id, external_id })
}

/// From and subject for the owner, of a mail that may not be readable at all.
fn seen(header: &[u8]) -> (String, String) {
    let text = String::from_utf8_lossy(header);
    let value = |name: &str| {
        let lines = text.lines().filter_map(|line| line.split_once(':'));
        let found = lines.into_iter().find(|(known, _)| known.trim().eq_ignore_ascii_case(name));
        found.map_or_else(|| "?".to_owned(), |(_, value)| value.trim().to_owned())
    };
    (value("from"), value("subject"))
}

/// A sender's words in the owner's notice: shown, and nothing else.
fn code(text: &str) -> String {
    format!("`{}`", line(&text.replace('`', "'"), 200))
}

fn said(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "a panic".to_owned())
}
