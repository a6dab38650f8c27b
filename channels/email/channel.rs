//! An e-mail account as a channel.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use tokio::task::JoinSet;

use super::account::Account;
use super::ages::NOTE_AGES;
use super::answering::Answering;
use super::config::{EmailConfig, NAME, TrustBy};
use super::files::MailFiles;
use super::imap::{self, SKIPPED_CHINESE, SKIPPED_ENGLISH, WatchSettings};
use super::intake::{MailIntake, code};
use super::judge::Pin;
use super::probe::{forged_field, forged_to_oneself, not_tried, results, round_trip, to_oneself, with_advice};
use super::send::{MailWords, Mailer, Recipients, Sent, SentCopy};
use super::source::Intake;
use super::words::{Words, fill};
use crate::backoff::RetryTable;
use crate::channel::{Capabilities, Channel, ChannelContext, Receipt, Resend, SendError, StartError};
use crate::finding::Finding;
use crate::inbox::{AcceptExtras, Inbox};
use crate::message::OutboundMessage;
use crate::outgoing::OutgoingFiles;
use crate::trust::TrustLists;

/// How soon a reply is tried again that came before the channel had begun.
const BEFORE_START: Duration = Duration::from_secs(1);

/// What the gateway knows and the channel needs beside its own settings.
pub struct Surroundings<'a> {
    /// Where enclosed files are kept.
    pub workspace: &'a Path,
    /// Where the copies of files that are sent are kept.
    pub outgoing: OutgoingFiles,
    /// Who is trusted.
    pub lists: TrustLists,
    pub language: MailLanguage,
}

/// The language of what the channel itself says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MailLanguage {
    English,
    Chinese,
}

/// The channel `email`: mails come from the mailboxes of one account, and each is answered in its thread.
pub struct EmailChannel {
    config: EmailConfig,
    account: Arc<Account>,
    files: Arc<MailFiles>,
    mailer: Mailer,
    lists: TrustLists,
    language: MailLanguage,
    retry: RetryTable,
    /// Known from the start on; the threads stand there.
    inbox: OnceLock<Arc<dyn Inbox>>,
}

impl EmailChannel {
    /// Needs rustls' default provider installed.
    ///
    /// # Errors
    /// One line that says which setting is at fault.
    pub fn new(config: EmailConfig, around: Surroundings<'_>) -> Result<Self, String> {
        let fault = |words: String| format!("channels.email: {words}");
        let account = Arc::new(Account::new(&config).map_err(fault)?);
        let files = MailFiles::open(around.workspace).map_err(|error| fault(format!("the workspace: {error}")))?;
        let files = Arc::new(files);
        let mut mailer = Mailer::new(account.clone(), &config, around.outgoing.clone()).map_err(fault)?;
        if around.language == MailLanguage::Chinese {
            mailer = mailer.speaking(MailWords::CHINESE);
        }
        if !config.sent_mailbox.is_empty() {
            mailer =
                mailer.keeping(Arc::new(SentFolder { account: account.clone(), mailbox: config.sent_mailbox.clone() }));
        }
        let retry = RetryTable::new(config.retry.iter().copied().map(Duration::from).collect());
        let Surroundings { lists, language, .. } = around;
        Ok(Self { config, account, files, mailer, lists, language, retry, inbox: OnceLock::new() })
    }

    /// What a reply needs to find its thread: what came along with it, else what was last noted of the thread.
    async fn answering(&self, message: &OutboundMessage) -> Result<Option<Answering>, SendError> {
        if !is_thread(&message.chat_id) {
            return Ok(None);
        }
        if let Some(answering) = Answering::of(&message.metadata) {
            return Ok(Some(answering));
        }
        let later = |after: Option<Duration>, reason: String| SendError::Retry { after, reason };
        let Some(inbox) = self.inbox.get() else {
            return Err(later(Some(BEFORE_START), "the channel is starting".to_owned()));
        };
        let noted = inbox.note(NAME, "thread", &message.chat_id).await;
        let noted = noted.map_err(|refusal| later(None, refusal.to_string()))?;
        let Some(noted) = noted else {
            let reason = format!("no mail of the thread {} is known", message.chat_id);
            return Err(SendError::Permanent { reason });
        };
        let answering = serde_json::from_str(&noted.value);
        answering.map(Some).map_err(|error| SendError::Permanent { reason: format!("the thread's note: {error}") })
    }
}

impl EmailChannel {
    /// The owner is told of recipients that were left out, once the mail is out.
    async fn send_to(&self, message: &OutboundMessage, which: Recipients) -> Result<Receipt, SendError> {
        let answering = self.answering(message).await?;
        let Sent { receipt, refused } = self.mailer.send(message, answering, which).await?;
        if let Some(inbox) = self.inbox.get().filter(|_| !refused.is_empty()) {
            let said = refused.iter().map(|refused| code(refused)).collect::<Vec<_>>().join(", ");
            let notice = Some(fill(self.words().partly_notice, &[&message.id.to_string(), &said]));
            let told = inbox.skip(AcceptExtras { notice, ..AcceptExtras::default() }, "a mail was sent in part").await;
            if let Err(refusal) = told {
                // The mail is out and must not go out again for that; the log has said who did not get it.
                tracing::error!(message = %message.id, "the owner could not be told of left out recipients: {refusal}");
            }
        }
        Ok(receipt)
    }

    fn words(&self) -> Words {
        match self.language {
            MailLanguage::English => Words::ENGLISH,
            MailLanguage::Chinese => Words::CHINESE,
        }
    }
}

/// The folder that gets a copy of what is sent.
struct SentFolder {
    account: Arc<Account>,
    mailbox: String,
}

#[async_trait]
impl SentCopy for SentFolder {
    async fn keep(&self, mail: Vec<u8>) -> Result<(), String> {
        imap::append(&self.account, &self.mailbox, mail).await
    }
}

/// Whether a chat is a thread, named by the Message-ID of its first mail, and not an address.
fn is_thread(chat_id: &str) -> bool {
    chat_id.starts_with('<') && chat_id.ends_with('>')
}

#[async_trait]
impl Channel for EmailChannel {
    fn name(&self) -> &str {
        NAME
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { streaming: false, resend: Resend::SameId }
    }

    fn retry(&self) -> &RetryTable {
        &self.retry
    }

    async fn start(&self, context: ChannelContext) -> Result<(), StartError> {
        let inbox = self.inbox.get_or_init(|| context.inbox.clone()).clone();
        let words = self.words();
        let skipped = match self.language {
            MailLanguage::English => SKIPPED_ENGLISH,
            MailLanguage::Chinese => SKIPPED_CHINESE,
        };
        let files = self.files.clone();
        let intake = MailIntake::new(&self.config, self.lists.clone(), NAME.to_owned(), inbox.clone(), files, words);
        let intake: Arc<dyn Intake> = Arc::new(intake);
        let mailboxes = self.config.mailbox.names();
        let missing = Arc::new(AtomicUsize::new(mailboxes.len()));
        let started: Arc<dyn Fn() + Send + Sync> = Arc::new(move || {
            // One that comes back after a reconnect counts again: only the first time of the last one matters.
            if missing.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)) == Ok(1) {
                (context.started)();
            }
        });
        let ended = context.shutdown.child_token();
        let mut watches = JoinSet::new();
        for name in mailboxes {
            let mut settings = WatchSettings::new(&self.config, NAME, name);
            settings.skipped = skipped;
            let (account, intake, inbox) = (self.account.clone(), intake.clone(), inbox.clone());
            watches.spawn(imap::watch(account, settings, intake, inbox, ended.clone(), started.clone()));
        }
        let mut outcome = Ok(());
        while let Some(watched) = watches.join_next().await {
            let watched = watched.unwrap_or_else(|error| Err(StartError(error.to_string())));
            // The others end with the first that failed, and all are started anew.
            ended.cancel();
            outcome = outcome.and(watched);
        }
        outcome
    }

    async fn send(&self, message: &OutboundMessage) -> Result<Receipt, SendError> {
        self.send_to(message, Recipients::All).await
    }

    async fn send_finally(&self, message: &OutboundMessage) -> Result<Receipt, SendError> {
        self.send_to(message, Recipients::Taken).await
    }

    fn release(&self) {
        self.mailer.release();
    }

    async fn test(&self) -> Vec<Finding> {
        let (mut findings, sending) =
            tokio::join!(imap::probe(&self.account, self.config.mailbox.names()), self.mailer.probe());
        findings.extend(sending);
        findings.extend(self.account.certificates.findings(Timestamp::now()));
        with_advice(findings, self.config.preset())
    }

    async fn test_whole_way(&self) -> Vec<Finding> {
        let send = |mail: OutboundMessage| async move {
            self.mailer.send(&mail, None, Recipients::All).await.map(|sent| sent.receipt)
        };
        let mailboxes = self.config.mailbox.names();
        let find = |id: String| async move { imap::find(&self.account, mailboxes, &id).await };
        let address = &self.account.address;
        let (finding, header) = round_trip(to_oneself(NAME, address), send, find).await;
        let mut findings = vec![finding];
        if let Some(own) = header.filter(|_| self.config.trust == TrustBy::Authserv) {
            let pin = Pin::of(&self.config);
            let field = forged_field(&pin);
            let send = |mail: OutboundMessage| async move { self.mailer.send_below(&field, &mail).await };
            let (finding, forged) = round_trip(forged_to_oneself(NAME, address), send, find).await;
            findings.push(match forged {
                Some(forged) => results(&own, &forged, &pin),
                None => not_tried(&finding),
            });
        }
        findings
    }

    fn note_ages(&self) -> &[(&'static str, Duration)] {
        NOTE_AGES
    }
}
