//! The channel `email`, which connects the account to the gateway.

use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;

use super::account::Account;
use super::auth::TrustedAuthserv;
use super::config::{ATTACHMENTS, DoneAction, EmailConfig, NAME, TrustMethod};
use super::imap::{self, WatchSettings};
use super::intake::{MailIntake, NOTE_AGES, THREAD, inline_code};
use super::mail::{Intake, ReplyContext};
use super::mailboxes::watch_mailboxes;
use super::message_id::is_thread;
use super::self_test::{
    evaluate_results, forged_field, forged_test_message, results_untested, round_trip, test_message, with_advice,
};
use super::smtp::{Mailer, RecipientPolicy, SentMail};
use super::texts::{MailTexts, NoticeTexts};
use crate::attachment_folder::AttachmentFolder;
use crate::backoff::RetryTable;
use crate::channel::{Channel, ChannelContext, Receipt, Resend, SendError, StartError};
use crate::finding::Finding;
use crate::inbox::{AcceptExtras, Inbox};
use crate::message::OutboundMessage;
use crate::outgoing::OutgoingFiles;
use crate::text::{Language, fill};
use crate::trust::TrustLists;

/// The wait of a reply that is due before the channel has started.
const BEFORE_START: Duration = Duration::from_secs(1);

/// The parts of the gateway that the channel needs besides its settings.
pub struct EmailSetup<'a> {
    /// The workspace, where the channel saves the attachments of mails.
    pub workspace: &'a Path,
    /// The store of files to send.
    pub outgoing: OutgoingFiles,
    /// The trusted senders.
    pub lists: TrustLists,
    pub language: Language,
}

/// The channel `email`. It accepts mails from the mailboxes of one account and answers each in its thread.
pub struct EmailChannel {
    config: EmailConfig,
    account: Arc<Account>,
    files: Arc<AttachmentFolder>,
    mailer: Mailer,
    lists: TrustLists,
    language: Language,
    retry: RetryTable,
    /// Set at the start. It holds the notes about threads.
    inbox: OnceLock<Arc<dyn Inbox>>,
}

impl EmailChannel {
    /// Builds the channel. The caller must have installed rustls' default provider.
    ///
    /// # Errors
    /// One line that names the wrong setting.
    pub fn new(config: EmailConfig, setup: EmailSetup<'_>) -> Result<Self, String> {
        let invalid = |reason: String| format!("channels.email: {reason}");
        let account = Arc::new(Account::new(&config).map_err(invalid)?);
        let files = AttachmentFolder::open(setup.workspace, ATTACHMENTS)
            .map_err(|error| invalid(format!("the workspace: {error}")))?;
        let files = Arc::new(files);
        let texts = MailTexts::of(setup.language);
        let mut mailer = Mailer::new(account.clone(), &config, texts, setup.outgoing.clone()).map_err(invalid)?;
        if !config.sent_mailbox.is_empty() {
            let (account, mailbox) = (account.clone(), config.sent_mailbox.clone());
            mailer = mailer.storing_copies(Arc::new(move |mail| {
                let (account, mailbox) = (account.clone(), mailbox.clone());
                Box::pin(async move { imap::append(&account, &mailbox, mail).await })
            }));
        }
        let retry = RetryTable::new(config.retry.iter().copied().map(Duration::from).collect());
        let EmailSetup { lists, language, .. } = setup;
        Ok(Self { config, account, files, mailer, lists, language, retry, inbox: OnceLock::new() })
    }

    /// Returns the reply context of a message, from its metadata or else from the note of its thread.
    async fn reply_context(&self, message: &OutboundMessage) -> Result<Option<ReplyContext>, SendError> {
        if !is_thread(&message.chat_id) {
            return Ok(None);
        }
        if let Some(reply_context) = ReplyContext::of(&message.metadata) {
            return Ok(Some(reply_context));
        }
        let Some(inbox) = self.inbox.get() else {
            let reason = "the channel is starting".to_owned();
            return Err(SendError::Retry { after: Some(BEFORE_START), reason });
        };
        let Some(noted) = inbox.note(NAME, THREAD, &message.chat_id).await? else {
            let reason = format!("no mail of the thread {} is known", message.chat_id);
            return Err(SendError::Permanent { reason });
        };
        let reply_context = serde_json::from_str(&noted.value);
        reply_context.map(Some).map_err(|error| SendError::Permanent { reason: format!("the thread's note: {error}") })
    }

    /// Tests the mailboxes into which the channel stores mails.
    async fn test_targets(&self) -> Vec<Finding> {
        let move_to = if self.config.done == DoneAction::Move { self.config.move_to.trim() } else { "" };
        let mut findings = Vec::new();
        for (key, name) in [("sent_mailbox", self.config.sent_mailbox.as_str()), ("move_to", move_to)] {
            if name.is_empty() {
                continue;
            }
            findings.push(match imap::ensure_mailbox(&self.account, name).await {
                Ok(()) => Finding::ok(key, format!("{name} can be opened")),
                Err(error) => {
                    let mend = "create that folder in your mail program, or name another one";
                    Finding::fail(key, format!("{name} can neither be opened nor created: {error}"), mend)
                }
            });
        }
        findings
    }

    /// Sends a message, then notifies the owner of the recipients that were left out.
    async fn send_to(&self, message: &OutboundMessage, which: RecipientPolicy) -> Result<Receipt, SendError> {
        let reply_context = self.reply_context(message).await?;
        let SentMail { receipt, refused } = self.mailer.send(message, reply_context, which).await?;
        if let Some(inbox) = self.inbox.get().filter(|_| !refused.is_empty()) {
            let refused = refused.iter().map(|refused| inline_code(refused)).collect::<Vec<_>>().join(", ");
            let notice = Some(fill(NoticeTexts::of(self.language).partly_notice, &[&message.id.to_string(), &refused]));
            let stored =
                inbox.skip(AcceptExtras { notice, ..AcceptExtras::default() }, "a mail was sent in part").await;
            if let Err(refusal) = stored {
                // The mail is sent and must not be sent again. The log names the missing recipients.
                tracing::error!(message = %message.id, "the notice about refused recipients could not be stored: {refusal}");
            }
        }
        Ok(receipt)
    }
}

#[async_trait]
impl Channel for EmailChannel {
    fn name(&self) -> &str {
        NAME
    }

    fn resend(&self) -> Resend {
        Resend::SameId
    }

    fn retry(&self) -> &RetryTable {
        &self.retry
    }

    async fn start(&self, context: ChannelContext) -> Result<(), StartError> {
        let inbox = self.inbox.get_or_init(|| context.inbox.clone()).clone();
        let texts = NoticeTexts::of(self.language);
        let files = self.files.clone();
        let intake = MailIntake::new(&self.config, self.lists.clone(), inbox, files, texts);
        let intake: Arc<dyn Intake> = Arc::new(intake);
        let settings = |name: &String| WatchSettings::new(&self.config, name, texts);
        let mailboxes = self.config.mailbox.names().iter().map(settings).collect();
        watch_mailboxes(self.account.clone(), mailboxes, intake, context).await
    }

    async fn send(&self, message: &OutboundMessage) -> Result<Receipt, SendError> {
        self.send_to(message, RecipientPolicy::All).await
    }

    async fn send_finally(&self, message: &OutboundMessage) -> Result<Receipt, SendError> {
        self.send_to(message, RecipientPolicy::AcceptedOnly).await
    }

    fn release(&self) {
        self.mailer.release();
    }

    async fn test(&self) -> Vec<Finding> {
        let (mut findings, sending) =
            tokio::join!(imap::probe(&self.account, self.config.mailbox.names()), self.mailer.probe());
        findings.extend(sending);
        findings.extend(self.account.tls.expiries.findings(Timestamp::now()));
        with_advice(findings, self.config.preset())
    }

    async fn test_end_to_end(&self) -> Vec<Finding> {
        let send = |mail: OutboundMessage| async move {
            self.mailer.send(&mail, None, RecipientPolicy::All).await.map(|sent| sent.receipt)
        };
        let mailboxes = self.config.mailbox.names();
        let find = |id: String| async move { imap::find(&self.account, mailboxes, &id).await };
        let address = &self.account.address;
        let (finding, header) = round_trip(test_message(address), send, find).await;
        let mut findings = self.test_targets().await;
        findings.push(finding);
        if let Some(own) = header.filter(|_| self.config.trust == TrustMethod::Authserv) {
            let authserv = TrustedAuthserv::of(&self.config);
            let field = forged_field(&authserv);
            let send = |mail: OutboundMessage| async move { self.mailer.send_below(&field, &mail).await };
            let (finding, forged) = round_trip(forged_test_message(address), send, find).await;
            findings.push(match forged {
                Some(forged) => evaluate_results(&own, &forged, &authserv),
                None => results_untested(&finding),
            });
        }
        findings
    }

    fn note_ages(&self) -> &[(&'static str, Duration)] {
        NOTE_AGES
    }
}
