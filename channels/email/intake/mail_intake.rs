//! Accepts mails: parses and authenticates each, finds its thread, and hands it over to the inbox. A failing mail does not
//! block the mails after it.

use std::sync::Arc;

use async_trait::async_trait;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;

use super::attachments::save_attachments;
use super::content::{ShownFields, SubscriptionRequest, about, content, subject_line};
use super::failures::{IntakeError, record_failure};
use super::identity::{ArrivedMail, MailIdentity, header_key, header_of, inline_code};
use super::notes::{ANSWERED, BOUNCED, HOURLY, MailNotes, REFUSED, SENDER, SKIPPED, THREAD, UNSUBSCRIBED};
use super::quota::{HourlyQuota, QuotaState};
use super::reply_context::{readers, replies_elsewhere, reply_context};
use crate::attachment_folder::AttachmentFolder;
use crate::email::address::EmailAddress;
use crate::email::auth::{Bounce, SenderAuthenticator, SenderDecision, classify_bounce, listing_of};
use crate::email::config::{EmailConfig, NAME};
use crate::email::mail::{FetchedContent, FetchedMail, Intake, IntakeOutcome, ParsedMail, ReplyContext};
use crate::email::parse::{ParseLimits, parse_mail};
use crate::email::subject::BaseSubject;
use crate::email::texts::NoticeTexts;
use crate::email::threads::{Correspondents, MailThread, ReferencedId, hash, match_thread};
use crate::inbox::{AcceptExtras, Inbox, Note, Refusal};
use crate::message::{InboundMessage, Trust};
use crate::text::{catch_panic, fill, format_size};
use crate::trust::{SenderListing, TrustLists};

const DAY: i64 = 24 * 3_600;
/// The maximum number of refusals to unknown senders in a day, for all senders together.
const MAX_REFUSALS: u32 = 100;
/// The note key of the day's refusal count; it cannot be an address.
const ALL_SENDERS: &str = "all";
/// The reason to skip a mail whose sender has unsubscribed.
const UNSUBSCRIBED_REASON: &str = "its sender has unsubscribed";

/// The intake of the account's mails.
pub struct MailIntake {
    authenticator: SenderAuthenticator,
    lists: TrustLists,
    own: Option<EmailAddress>,
    replies_to_all: bool,
    hourly_limit: u32,
    max_size: u64,
    quote: bool,
    notes: MailNotes,
    files: Arc<AttachmentFolder>,
    texts: &'static NoticeTexts,
    /// Serializes the mailboxes, so that two of them cannot both use the last mail of a quota.
    lock: Mutex<()>,
    clock: fn() -> Timestamp,
}

/// The refusals of one day.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
struct RefusalCount {
    count: u32,
    /// The start of the day, in Unix seconds.
    since: i64,
}

impl MailIntake {
    /// Creates the intake. `lists` name the trusted senders; `texts` are in the owner's language.
    pub fn new(
        config: &EmailConfig,
        lists: TrustLists,
        inbox: Arc<dyn Inbox>,
        files: Arc<AttachmentFolder>,
        texts: &'static NoticeTexts,
    ) -> Self {
        Self {
            authenticator: SenderAuthenticator::new(config, lists.clone()),
            lists,
            own: EmailAddress::parse(&config.address),
            replies_to_all: config.reply_all,
            hourly_limit: config.hourly_limit,
            max_size: config.max_size.0,
            quote: config.quote,
            notes: MailNotes { inbox },
            files,
            texts,
            lock: Mutex::new(()),
            clock: Timestamp::now,
        }
    }

    #[cfg(test)]
    pub fn with(self, authenticator: SenderAuthenticator, clock: fn() -> Timestamp) -> Self {
        Self { authenticator, clock, ..self }
    }

    fn inbox(&self) -> &dyn Inbox {
        &*self.notes.inbox
    }

    async fn take_whole(&self, arrived: &ArrivedMail, raw: Vec<u8>) -> Result<IntakeOutcome, IntakeError> {
        let reading = tokio::task::spawn_blocking(move || {
            let mail = parse_mail(&raw, &ParseLimits::default());
            (raw, mail)
        });
        let (raw, mail) = reading.await.map_err(|error| IntakeError::Failed(format!("reading it failed: {error}")))?;
        let identity = MailIdentity::of(&mail, &arrived.key);
        if let Some(identity) = &identity
            && let Some(earlier) = self.earlier_outcome(identity).await?
        {
            self.skip(arrived, "it was taken before").await?;
            return Ok(earlier);
        }
        let decision = self.authenticator.authenticate(&raw, &mail).await;
        if let SenderDecision::Ignore { reason } = &decision
            && let Some(bounce) = classify_bounce(&mail, &raw)
        {
            return self.report_bounce(arrived, &bounce, reason).await;
        }
        drop(raw);
        match (decision, identity) {
            (SenderDecision::Accept { trust }, Some(identity)) => self.accept(arrived, mail, identity, trust).await,
            (SenderDecision::Refuse { reason }, Some(identity)) => self.refuse(arrived, &mail, identity, &reason).await,
            (SenderDecision::Defer { sender, reason }, _) => Err(IntakeError::Unchecked { sender, reason }),
            (SenderDecision::Ignore { reason }, _) => self.skip(arrived, &reason).await,
            // The authenticator accepts no mail without a sender.
            (_, None) => self.skip(arrived, "it has no sender").await,
        }
    }

    /// Handles a mail that was not fetched because of its size.
    async fn take_header(&self, arrived: &ArrivedMail, head: &[u8], bytes: u64) -> Result<IntakeOutcome, IntakeError> {
        let mail = parse_mail(head, &ParseLimits::default());
        let limit = format_size(self.max_size);
        let reason = format!("it is larger than {limit}");
        let Some(identity) = MailIdentity::of(&mail, &arrived.key) else { return self.skip(arrived, &reason).await };
        if self.earlier_outcome(&identity).await?.is_some() {
            return self.skip(arrived, "it was answered before").await;
        }
        match self.authenticator.authenticate_header(&mail) {
            SenderDecision::Accept { trust } => {
                let _lock = self.lock.lock().await;
                if self.is_unsubscribed(&identity.sender).await? {
                    return self.skip(arrived, UNSUBSCRIBED_REASON).await;
                }
                let thread = self.find_thread(&mail, &identity).await?;
                let at = arrived.received_at;
                let notes = self.count(at, &identity.sender, &thread.root).await?;
                let message = self.message_without_turn(arrived, &mail, identity, &thread, trust);
                let Some(notes) = notes else { return self.exceed_quota(arrived, message).await };
                self.answer(arrived, message, fill(self.texts.too_large, &[&limit]), notes, None).await
            }
            SenderDecision::Defer { sender, .. } => {
                tracing::warn!(sender, bytes, "a mail is too large and is skipped");
                let notice = fill(self.texts.too_large_notice, &[&inline_code(&sender), &format_size(bytes), &limit]);
                self.skip_with(arrived, &reason, Vec::new(), Some(notice)).await
            }
            SenderDecision::Refuse { reason } => self.refuse(arrived, &mail, identity, &reason).await,
            SenderDecision::Ignore { reason } => self.skip(arrived, &reason).await,
        }
    }

    async fn accept(
        &self,
        arrived: &ArrivedMail,
        mail: ParsedMail,
        identity: MailIdentity,
        trust: Trust,
    ) -> Result<IntakeOutcome, IntakeError> {
        let _lock = self.lock.lock().await;
        let thread = self.find_thread(&mail, &identity).await?;
        let request = SubscriptionRequest::of(&mail);
        let is_unsubscribed = self.is_unsubscribed(&identity.sender).await?;
        if is_unsubscribed && request != Some(SubscriptionRequest::Subscribe) {
            return self.skip(arrived, UNSUBSCRIBED_REASON).await;
        }
        let Some(mut notes) = self.count(arrived.received_at, &identity.sender, &thread.root).await? else {
            let message = self.message_without_turn(arrived, &mail, identity, &thread, trust);
            return self.exceed_quota(arrived, message).await;
        };
        if let Some(request) = request.filter(|request| is_unsubscribed || *request == SubscriptionRequest::Unsubscribe)
        {
            let unsubscribes = request == SubscriptionRequest::Unsubscribe;
            tracing::info!(sender = identity.sender, unsubscribes, "a sender subscribes or unsubscribes");
            notes.push(self.notes.write(UNSUBSCRIBED, &identity.sender, &unsubscribes));
            let reply = if unsubscribes { self.texts.unsubscribed } else { self.texts.subscribed };
            let message = self.message_without_turn(arrived, &mail, identity, &thread, trust);
            return self.answer(arrived, message, reply.to_owned(), notes, None).await;
        }
        let mail = Arc::new(mail);
        let saved = save_attachments(self.files.clone(), thread.session(), &identity, mail.clone()).await?;
        let context = self.reply_context(&mail);
        let subject = BaseSubject::of(&mail.subject);
        let shown = ShownFields {
            subject: thread.is_new() || subject.core != thread.state.subject,
            sender: thread.is_new() || thread.state.last != identity.sender,
            cut: saved.cut.as_deref(),
        };
        let mut state = thread.state.clone();
        state.join(&self.correspondents(&context, &identity), &subject.core);
        notes.extend(self.notes.thread_notes(&thread.root, &identity.message_id, &state).await?);
        notes.push(self.notes.write(THREAD, &thread.root, &context));
        let mut message = self.message(arrived, identity, &thread, trust, content(&mail));
        message.settings.about = about(&mail, &shown);
        message.attachments.clone_from(&saved.attachments);
        // The answer to a command may hold what only the sender may read.
        let is_command = message.content.starts_with('/');
        let context = if is_command { context.for_sender_alone(&message.sender) } else { context };
        message.settings.is_read_by_others =
            readers(&context, self.replies_to_all).iter().any(|reader| !self.is_one_person(&message.sender, reader));
        context.put(&mut message.metadata);
        let cursor = Some(arrived.cursor.clone());
        self.inbox().accept(message, AcceptExtras { cursor, notes, notice: None }).await?;
        Ok(IntakeOutcome::Accepted)
    }

    async fn is_unsubscribed(&self, sender: &str) -> Result<bool, Refusal> {
        Ok(self.notes.read::<bool>(UNSUBSCRIBED, sender).await?.is_some_and(|(is_unsubscribed, _)| is_unsubscribed))
    }

    /// Counts one more mail of `sender` in the thread `root`. Returns the changed notes, or `None` if a limit is reached.
    async fn count(&self, at: Timestamp, sender: &str, root: &str) -> Result<Option<Vec<Note>>, IntakeError> {
        let mut notes = Vec::new();
        for (kind, key) in [(SENDER, sender), (HOURLY, root)] {
            let mut quota = self.quota(kind, key).await?;
            if quota.state(at, self.hourly_limit) != QuotaState::Free {
                return Ok(None);
            }
            quota.count(at);
            notes.push(self.notes.write(kind, key, &quota));
        }
        Ok(Some(notes))
    }

    /// Notifies the sender of `message` and the owner once that a limit is reached; further mails are skipped.
    async fn exceed_quota(&self, arrived: &ArrivedMail, message: InboundMessage) -> Result<IntakeOutcome, IntakeError> {
        let (sender, limit) = (&message.sender, self.hourly_limit.to_string());
        let mut notes = Vec::new();
        for (kind, key) in [(SENDER, sender), (HOURLY, &message.chat_id)] {
            let mut quota = self.quota(kind, key).await?;
            if quota.state(arrived.received_at, self.hourly_limit) == QuotaState::UsedUp {
                let reason = format!("more than {limit} mails within an hour came from {sender} or into its thread");
                return self.skip(arrived, &reason).await;
            }
            quota.mark_notified(arrived.received_at);
            notes.push(self.notes.write(kind, key, &quota));
        }
        tracing::warn!(sender, limit, "too many mails within an hour: the sender is notified once");
        let notice = fill(self.texts.too_many_notice, &[&inline_code(sender), &limit]);
        self.answer(arrived, message, fill(self.texts.too_many, &[&limit]), notes, Some(notice)).await
    }

    /// Tells a sender whose address is proven, once a day, that the gateway does not read the mail.
    async fn refuse(
        &self,
        arrived: &ArrivedMail,
        mail: &ParsedMail,
        identity: MailIdentity,
        reason: &str,
    ) -> Result<IntakeOutcome, IntakeError> {
        let _lock = self.lock.lock().await;
        let now = (self.clock)();
        let last = self.notes.read::<i64>(REFUSED, &identity.sender).await?;
        if last.is_some_and(|(at, _)| now.as_second() - at < DAY) {
            return self.skip(arrived, &format!("{reason}, and got a refusal today")).await;
        }
        let all = self.notes.read::<RefusalCount>(REFUSED, ALL_SENDERS).await?;
        let mut all = all.map(|(all, _)| all).filter(|all| now.as_second() - all.since < DAY).unwrap_or_default();
        if all.count == 0 {
            all.since = now.as_second();
        } else if all.count >= MAX_REFUSALS {
            return self.skip(arrived, &format!("{reason}; enough strangers got a refusal today")).await;
        }
        all.count += 1;
        tracing::info!(sender = identity.sender, reason, "a mail is refused");
        let notes = vec![
            self.notes.write(REFUSED, &identity.sender, &now.as_second()),
            self.notes.write(REFUSED, ALL_SENDERS, &all),
        ];
        // The mail of an unknown sender begins a new thread, whatever it references.
        let sender = Correspondents { sender: identity.sender.clone(), readers: Vec::new() };
        let thread = match_thread(&sender, &self.own_reference(&identity).await?, &[], None);
        let message = self.message_without_turn(arrived, mail, identity, &thread, Trust::Untrusted);
        self.answer(arrived, message, self.texts.refused.to_owned(), notes, None).await
    }

    /// Answers without a turn. The mail itself is skipped and stays unread for people who read the mailbox.
    async fn answer(
        &self,
        arrived: &ArrivedMail,
        message: InboundMessage,
        reply: String,
        mut notes: Vec<Note>,
        notice: Option<String>,
    ) -> Result<IntakeOutcome, IntakeError> {
        notes.extend(message.external_id.as_ref().map(|id| self.notes.write(ANSWERED, hash(&[id]), &true)));
        let cursor = Some(arrived.cursor.clone());
        self.inbox().answer(message, reply, AcceptExtras { cursor, notes, notice }).await?;
        Ok(IntakeOutcome::Skipped)
    }

    /// Notifies the owner once for each sent message that bounced. Anybody who received the mail can forge a report, so a
    /// report has no other effect. A bounced notice is only logged, since the next notice might bounce too.
    async fn report_bounce(
        &self,
        arrived: &ArrivedMail,
        bounce: &Bounce,
        reason: &str,
    ) -> Result<IntakeOutcome, IntakeError> {
        let _lock = self.lock.lock().await;
        let Bounce { outbox, recipient, reason: diagnosis } = bounce;
        let Some(sent) = self.inbox().sent(NAME, *outbox).await? else {
            return self.skip(arrived, reason).await;
        };
        let key = outbox.to_string();
        if self.notes.read::<bool>(BOUNCED, &key).await?.is_some() {
            return self.skip(arrived, &format!("{reason}; its report was passed on before")).await;
        }
        tracing::warn!(message = %outbox, recipient, diagnosis, "a sent mail bounced");
        let notes = vec![self.notes.write(BOUNCED, key.as_str(), &true)];
        let notice = fill(self.texts.bounced_notice, &[&inline_code(recipient), &inline_code(diagnosis), &key]);
        let notice = (!sent.is_notice).then_some(notice);
        self.skip_with(arrived, &format!("{reason}; it reports that message {outbox} came back"), notes, notice).await
    }

    /// Returns the message for a mail that is answered without a turn. The answer goes to the sender alone and quotes nothing: in the
    /// account's name, anybody could otherwise mail third persons.
    fn message_without_turn(
        &self,
        arrived: &ArrivedMail,
        mail: &ParsedMail,
        identity: MailIdentity,
        thread: &MailThread,
        trust: Trust,
    ) -> InboundMessage {
        let mut message = self.message(arrived, identity, thread, trust, subject_line(mail));
        self.reply_context(mail).for_sender_alone(&message.sender).put(&mut message.metadata);
        message
    }

    fn message(
        &self,
        arrived: &ArrivedMail,
        identity: MailIdentity,
        thread: &MailThread,
        trust: Trust,
        content: String,
    ) -> InboundMessage {
        let mut message = InboundMessage::text(NAME, &thread.root, &identity.sender, trust, content);
        message.session = (!thread.state.chat.is_empty()).then(|| thread.session());
        message.external_id = Some(identity.external_id);
        message.received_at = arrived.received_at;
        message
    }

    async fn find_thread(&self, mail: &ParsedMail, identity: &MailIdentity) -> Result<MailThread, IntakeError> {
        let own = self.own_reference(identity).await?;
        let referenced = self.notes.referenced(mail).await?;
        let subject = BaseSubject::of(&mail.subject);
        // A subject is not a secret, so a mail with a forged sender and a foreign Reply-To must not reach a thread by its subject.
        let by_subject = if self.authenticator.proves() || !replies_elsewhere(mail, &identity.sender) {
            self.notes.thread_by_subject(&identity.sender, &subject, (self.clock)()).await?
        } else {
            None
        };
        let correspondents = self.correspondents(&self.reply_context(mail), identity);
        Ok(match_thread(&correspondents, &own, &referenced, by_subject.as_ref()))
    }

    fn reply_context(&self, mail: &ParsedMail) -> ReplyContext {
        let sender = SenderAuthenticator::sender(mail);
        let may_get = |other: &EmailAddress| {
            sender.as_ref().is_some_and(|sender| self.authenticator.may_answer_to(sender, other))
        };
        reply_context(mail, self.own.as_ref(), may_get, self.quote)
    }

    async fn own_reference(&self, identity: &MailIdentity) -> Result<ReferencedId, IntakeError> {
        let id = identity.message_id.clone();
        let thread = self.notes.thread_of(&id).await?;
        Ok(ReferencedId { id, thread })
    }

    async fn quota(&self, kind: &str, key: &str) -> Result<HourlyQuota, IntakeError> {
        Ok(self.notes.read(kind, key).await?.map(|(quota, _)| quota).unwrap_or_default())
    }

    fn correspondents(&self, context: &ReplyContext, identity: &MailIdentity) -> Correspondents {
        Correspondents { sender: identity.sender.clone(), readers: readers(context, self.replies_to_all) }
    }

    /// Returns true if two addresses are the same, or both are the owner's.
    fn is_one_person(&self, one: &str, other: &str) -> bool {
        let is_owner = |address: &str| listing_of(&self.lists.of(NAME), address) == SenderListing::Owner;
        one == other || (is_owner(one) && is_owner(other))
    }

    /// Returns the earlier outcome of a mail; `None` for a new mail. A mail that was answered without a turn stays unchanged.
    async fn earlier_outcome(&self, identity: &MailIdentity) -> Result<Option<IntakeOutcome>, Refusal> {
        let id = &identity.external_id;
        if self.inbox().state(NAME, id).await?.is_none() {
            return Ok(None);
        }
        let was_answered = self.notes.read::<bool>(ANSWERED, &hash(&[id])).await?.is_some();
        Ok(Some(if was_answered { IntakeOutcome::Skipped } else { IntakeOutcome::Accepted }))
    }

    async fn skip(&self, arrived: &ArrivedMail, reason: &str) -> Result<IntakeOutcome, IntakeError> {
        let cursor = &arrived.cursor;
        tracing::info!(position = cursor.position, source = cursor.source, reason, "a mail is skipped");
        self.skip_with(arrived, reason, Vec::new(), None).await
    }

    async fn skip_with(
        &self,
        arrived: &ArrivedMail,
        reason: &str,
        mut notes: Vec<Note>,
        notice: Option<String>,
    ) -> Result<IntakeOutcome, IntakeError> {
        notes.push(self.notes.write(SKIPPED, arrived.key.as_str(), &true));
        let cursor = Some(arrived.cursor.clone());
        self.inbox().skip(AcceptExtras { cursor, notes, notice }, reason).await?;
        Ok(IntakeOutcome::Skipped)
    }
}

#[async_trait]
impl Intake for MailIntake {
    async fn take(&self, mail: FetchedMail) -> Result<IntakeOutcome, Refusal> {
        let (FetchedContent::Whole(raw) | FetchedContent::TooLarge { header: raw, .. }) = &mail.content;
        let header = header_of(raw).to_vec();
        let arrived = ArrivedMail { cursor: mail.cursor, received_at: mail.received_at, key: header_key(&header) };
        let taking = async {
            match mail.content {
                FetchedContent::Whole(raw) => self.take_whole(&arrived, raw).await,
                FetchedContent::TooLarge { size, header } => self.take_header(&arrived, &header, size).await,
            }
        };
        let taken = catch_panic(taking)
            .await
            .unwrap_or_else(|panic| Err(IntakeError::Failed(format!("a fault inside daoyou: {panic}"))));
        match taken {
            Ok(outcome) => Ok(outcome),
            Err(error) => record_failure(&self.notes, self.texts, (self.clock)(), error, &arrived, &header).await,
        }
    }

    async fn known(&self, header: &[u8]) -> Result<Option<IntakeOutcome>, Refusal> {
        let header = header_of(header);
        let (mail, key) = (parse_mail(header, &ParseLimits::default()), header_key(header));
        if let Some(identity) = MailIdentity::of(&mail, &key)
            && let Some(outcome) = self.earlier_outcome(&identity).await?
        {
            return Ok(Some(outcome));
        }
        Ok(self.notes.read::<bool>(SKIPPED, &key).await?.map(|_| IntakeOutcome::Skipped))
    }
}
