//! Takes mails: reads, judges, finds the thread, and hands over. Whatever goes wrong with one mail, those behind it come
//! to their turn.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::FutureExt;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;

use super::content::{Shown, about, content, size, subject_alone};
use super::failing::{Trouble, said};
use super::hours::{Hours, Room};
use super::identity::{Identity, code, header_of, identity, key_of};
use super::notes::{HOURLY, Notes, REFUSED, SENDER, SILENT, SPOT, THREAD};
use super::replying::{answering, leads_elsewhere};
use super::wishes::Wish;
use crate::email::answering::Answering;
use crate::email::config::EmailConfig;
use crate::email::files::MailFiles;
use crate::email::judge::{Address, Judge, Verdict, bounce};
use crate::email::letter::Letter;
use crate::email::parse::{ParseLimits, parse_mail};
use crate::email::source::{Intake, RawContent, RawMail, Taken};
use crate::email::threads::{Named, Place, Subject, hash, place};
use crate::email::words::{Words, fill};
use crate::inbox::{AcceptExtras, Cursor, Inbox, Note, Refusal};
use crate::message::{InboundMessage, SessionKey, Trust, TurnSettings};
use crate::trust::TrustLists;

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
    pub(super) notes: Notes,
    pub(super) files: Arc<MailFiles>,
    pub(super) words: Words,
    /// Several mailboxes do not take the last place of a limit twice.
    pub(super) turn: Mutex<()>,
    pub(super) clock: fn() -> Timestamp,
}

/// A mail on its way.
pub struct Arrived {
    pub cursor: Cursor,
    pub received_at: Timestamp,
    /// Names it where nothing else is certain: the hash of its header.
    pub key: String,
}

/// How many strangers were refused on the day that began then.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
struct Refusals {
    count: u32,
    /// Unix seconds.
    since: i64,
}

impl MailIntake {
    /// `lists` say who is trusted; `words` are in the owner's language.
    pub fn new(
        config: &EmailConfig,
        lists: TrustLists,
        channel: String,
        inbox: Arc<dyn Inbox>,
        files: Arc<MailFiles>,
        words: Words,
    ) -> Self {
        Self {
            judge: Judge::new(config, lists),
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

    pub(super) fn inbox(&self) -> &dyn Inbox {
        &*self.notes.inbox
    }

    async fn whole(&self, arrived: &Arrived, raw: Vec<u8>) -> Result<Taken, Trouble> {
        let reading = tokio::task::spawn_blocking(move || {
            let letter = parse_mail(&raw, &ParseLimits::default());
            (raw, letter)
        });
        let (raw, letter) = reading.await.map_err(|error| Trouble::Failed(format!("reading it failed: {error}")))?;
        let identity = identity(&letter, &arrived.key);
        if let Some(identity) = &identity
            && let Some(taken) = self.was_taken(identity).await?
        {
            self.pass(arrived, "it was taken before").await?;
            return Ok(taken);
        }
        let verdict = self.judge.judge(&raw, &letter, arrived.received_at).await;
        if let Verdict::Ignore { reason } = &verdict
            && let Some(bounce) = bounce(&letter, &raw)
        {
            return self.came_back(arrived, &bounce, reason).await;
        }
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
        let letter = parse_mail(header, &ParseLimits::default());
        let limit = size(self.max_size);
        let reason = format!("it is larger than {limit}");
        let Some(identity) = identity(&letter, &arrived.key) else { return self.pass(arrived, &reason).await };
        if self.was_taken(&identity).await?.is_some() {
            return self.pass(arrived, "it was answered before").await;
        }
        match self.judge.judge_header(&letter) {
            Verdict::Listen { trust, .. } => {
                let _turn = self.turn.lock().await;
                let place = self.place(&letter, &identity).await?;
                let at = arrived.received_at;
                let Some(notes) = self.counted(at, &identity.sender, &place.root).await? else {
                    return self.too_many(arrived, &letter, identity, (place.root, trust)).await;
                };
                let told = fill(self.words.too_large, &[&limit]);
                let alongside = AcceptExtras { notes, ..AcceptExtras::default() };
                self.answer(arrived, &letter, identity, (place.root, trust), told, alongside).await
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
        let wish = Wish::of(&letter);
        let was_silent = self.notes.read::<bool>(SILENT, &identity.sender).await?.is_some_and(|(silent, _)| silent);
        if was_silent && wish != Some(Wish::Answers) {
            return self.pass(arrived, "its sender has unsubscribed").await;
        }
        let Some(mut notes) = self.counted(arrived.received_at, &identity.sender, &place.root).await? else {
            return self.too_many(arrived, &letter, identity, (place.root, trust)).await;
        };
        if let Some(wish) = wish.filter(|wish| was_silent || *wish == Wish::Silence) {
            return self.grant(wish, arrived, &letter, identity, (place.root, trust), notes).await;
        }
        let session = SessionKey::of_chat(&self.notes.channel, &place.root);
        let letter = Arc::new(letter);
        let saved = self.save(session, &identity, letter.clone()).await?;
        let answering = self.answering(&letter);
        let subject = Subject::of(&letter.subject);
        let shown = Shown {
            subject: place.is_new || subject.core != place.talk.subject,
            sender: place.is_new || place.talk.last != identity.sender,
            cut: saved.cut.as_deref(),
        };
        let mut talk = place.talk;
        talk.join(&identity.sender, self.others(&letter), &subject.core);
        notes.extend(self.notes.of_thread(&place.root, &identity.message_id, &talk).await?);
        notes.push(self.notes.write(THREAD, &place.root, &answering));
        let mut message = self.message(arrived, identity, &place.root, trust, content(&letter));
        let turn = TurnSettings { about: about(&letter, &shown), ..TurnSettings::default() };
        turn.put(&mut message.metadata);
        message.attachments.clone_from(&saved.attachments);
        answering.put(&mut message.metadata);
        let cursor = Some(arrived.cursor.clone());
        self.inbox().accept(message, AcceptExtras { cursor, notes, notice: None }).await?;
        Ok(Taken::Accepted)
    }

    /// What a sender asks for by List-Unsubscribe, or takes back.
    async fn grant(
        &self,
        wish: Wish,
        arrived: &Arrived,
        letter: &Letter,
        identity: Identity,
        place: (String, Trust),
        mut notes: Vec<Note>,
    ) -> Result<Taken, Trouble> {
        let is_silent = wish == Wish::Silence;
        tracing::info!(sender = identity.sender, is_silent, "a sender subscribes or unsubscribes");
        notes.push(self.notes.write(SILENT, &identity.sender, &is_silent));
        let told = if is_silent { self.words.unsubscribed } else { self.words.subscribed }.to_owned();
        self.answer(arrived, letter, identity, place, told, AcceptExtras { notes, ..AcceptExtras::default() }).await
    }

    /// One more mail of `sender` in the thread `root`: what is to be noted of it, unless the limit is reached.
    async fn counted(&self, at: Timestamp, sender: &str, root: &str) -> Result<Option<Vec<Note>>, Trouble> {
        let mut notes = Vec::new();
        for (kind, key) in [(SENDER, sender), (HOURLY, root)] {
            let mut hours = self.hours(kind, key).await?;
            if hours.room(at, self.hourly_limit) != Room::There {
                return Ok(None);
            }
            hours.count(at);
            notes.push(self.notes.write(kind, key, &hours));
        }
        Ok(Some(notes))
    }

    /// Once it is said, to the sender and to the owner, then there is silence.
    async fn too_many(
        &self,
        arrived: &Arrived,
        letter: &Letter,
        identity: Identity,
        (root, trust): (String, Trust),
    ) -> Result<Taken, Trouble> {
        let sender = identity.sender.clone();
        let limit = self.hourly_limit.to_string();
        let mut notes = Vec::new();
        for (kind, key) in [(SENDER, &sender), (HOURLY, &root)] {
            let mut hours = self.hours(kind, key).await?;
            if hours.room(arrived.received_at, self.hourly_limit) == Room::None {
                let reason = format!("more than {limit} mails within an hour came from {sender} or into its thread");
                return self.pass(arrived, &reason).await;
            }
            hours.tell(arrived.received_at);
            notes.push(self.notes.write(kind, key, &hours));
        }
        tracing::warn!(sender, limit, "too many mails within an hour: the sender is told, and then left alone");
        let notice = Some(fill(self.words.too_many_notice, &[&code(&sender), &limit]));
        let told = fill(self.words.too_many, &[&limit]);
        let alongside = AcceptExtras { cursor: None, notes, notice };
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
        let alongside = AcceptExtras { cursor: None, notes, notice: None };
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
        mut alongside: AcceptExtras,
    ) -> Result<Taken, Trouble> {
        alongside.notes.push(self.notes.write(SPOT, hash(&[&identity.external_id]), &true));
        let mut message = self.message(arrived, identity, &root, trust, subject_alone(letter));
        self.answering(letter).put(&mut message.metadata);
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

    async fn place(&self, letter: &Letter, identity: &Identity) -> Result<Place, Trouble> {
        let own = self.own_named(identity).await?;
        let named = self.notes.named(letter).await?;
        let subject = Subject::of(&letter.subject);
        // A subject is no secret: whoever has made up both sender and place of the answer is told nothing of a thread.
        let by_subject = if self.judge.proves() || !leads_elsewhere(letter, &identity.sender) {
            self.notes.by_subject(&identity.sender, &subject, (self.clock)()).await?
        } else {
            None
        };
        Ok(place(&identity.sender, &own, &named, by_subject.as_ref()))
    }

    fn answering(&self, letter: &Letter) -> Answering {
        let sender = Judge::sender(letter);
        let may_get = |other: &Address| sender.as_ref().is_some_and(|sender| self.judge.may_answer_to(sender, other));
        answering(letter, self.own.as_ref(), may_get, self.quote)
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

    /// What became of a mail; `None` when it is new. One that was answered on the spot stays as it lies, now as then.
    async fn was_taken(&self, identity: &Identity) -> Result<Option<Taken>, Refusal> {
        let id = &identity.external_id;
        if self.inbox().state(&self.notes.channel, id).await?.is_none() {
            return Ok(None);
        }
        let on_the_spot = self.notes.read::<bool>(SPOT, &hash(&[id])).await?.is_some();
        Ok(Some(if on_the_spot { Taken::PassedOver } else { Taken::Accepted }))
    }

    pub(super) async fn pass(&self, arrived: &Arrived, reason: &str) -> Result<Taken, Trouble> {
        tracing::info!(
            position = arrived.cursor.position,
            source = arrived.cursor.source,
            reason,
            "a mail is passed over"
        );
        self.pass_with(arrived, reason, Vec::new(), None).await
    }

    pub(super) async fn pass_with(
        &self,
        arrived: &Arrived,
        reason: &str,
        notes: Vec<Note>,
        notice: Option<String>,
    ) -> Result<Taken, Trouble> {
        let cursor = Some(arrived.cursor.clone());
        self.inbox().skip(AcceptExtras { cursor, notes, notice }, reason).await?;
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

    async fn known(&self, header: &[u8]) -> Result<Option<Taken>, Refusal> {
        let header = header_of(header);
        let letter = parse_mail(header, &ParseLimits::default());
        match identity(&letter, &key_of(header)) {
            Some(identity) => self.was_taken(&identity).await,
            None => Ok(None),
        }
    }
}
