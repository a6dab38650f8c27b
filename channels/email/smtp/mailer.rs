//! Sends messages as mails.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use tokio::sync::Semaphore;

use super::compose::{AttachmentLoader, ComposedMail, MAX_MAIL, MailComposer};
use super::connect::SmtpTimeouts;
use super::failure::{SmtpFailure, SmtpStage};
use super::pool::{RecipientPolicy, SmtpPool};
use crate::channel::{Receipt, SendError};
use crate::email::account::{Account, Login};
use crate::email::config::{EmailConfig, Tls};
use crate::email::mail::ReplyContext;
use crate::email::texts::MailTexts;
use crate::finding::Finding;
use crate::message::{Attachment, OutboundMessage};
use crate::outgoing::OutgoingFiles;

/// The maximum number of sent-mail copies that are stored at the same time.
const MAX_COPIES: usize = 8;
/// The maximum bytes of the copies that are stored or wait for it.
const MAX_COPY_BYTES: usize = 64 * 1024 * 1024;
const NAME: &str = "smtp";
/// The name of the notice that a call waits for the owner's approval.
const APPROVAL: &str = "approval";

/// Stores a copy of a sent mail. The error is one line: the copy could not be stored.
pub type StoreCopy = dyn Fn(Vec<u8>) -> BoxFuture<'static, Result<(), String>> + Send + Sync;

/// The result of sending a mail.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SentMail {
    pub receipt: Receipt,
    /// The refused recipients, each with the server's reply, in one line.
    pub refused: Vec<String>,
}

/// Sends messages as mails of one account.
pub struct Mailer {
    account: Arc<Account>,
    composer: MailComposer,
    pool: Arc<SmtpPool>,
    load: Arc<AttachmentLoader>,
    store_copy: Option<Arc<StoreCopy>>,
    copying: Arc<Semaphore>,
    /// The bytes that further waiting copies may take.
    copy_room: Arc<Semaphore>,
}

impl Mailer {
    /// Creates the mailer of `account`.
    ///
    /// # Errors
    ///
    /// One line: the account's address is invalid.
    pub fn new(
        account: Arc<Account>,
        config: &EmailConfig,
        texts: &'static MailTexts,
        files: OutgoingFiles,
    ) -> Result<Self, String> {
        let load = Arc::new(move |file: &Attachment, limit| files.load(file, limit));
        Self::with_parts(account, config, texts, load, SmtpTimeouts::default())
    }

    pub(super) fn with_parts(
        account: Arc<Account>,
        config: &EmailConfig,
        texts: &'static MailTexts,
        load: Arc<AttachmentLoader>,
        limits: SmtpTimeouts,
    ) -> Result<Self, String> {
        let composer = MailComposer::new(&account.address, &account.name, config.reply_all, texts)?;
        let pool = SmtpPool::new(Arc::clone(&account), limits);
        let copying = Arc::new(Semaphore::new(MAX_COPIES));
        let copy_room = Arc::new(Semaphore::new(MAX_COPY_BYTES));
        Ok(Self { account, composer, pool, load, store_copy: None, copying, copy_room })
    }

    /// Stores a copy of each sent mail, if possible.
    #[must_use]
    pub fn storing_copies(self, store_copy: Arc<StoreCopy>) -> Self {
        Self { store_copy: Some(store_copy), ..self }
    }

    /// Sends a message. A `chat_id` in angle brackets names the thread that the mail belongs to; with `context`, the mail
    /// is a reply; otherwise `chat_id` is the address to which a new thread begins. A notice is not sent, since one turn
    /// gives one mail, except the notice that a call waits for the owner's approval, which may take a day.
    ///
    /// # Errors
    ///
    /// The variant of the error says what the channel manager does next; its text contains the server's reply.
    pub async fn send(
        &self,
        message: &OutboundMessage,
        context: Option<ReplyContext>,
        which: RecipientPolicy,
    ) -> Result<SentMail, SendError> {
        if message.context.notice.as_deref().is_some_and(|notice| notice != APPROVAL) {
            return Ok(SentMail::default());
        }
        let mail = self.compose(message, context.clone(), MAX_MAIL).await?;
        let (mail, done) = match self.pool.deliver(&mail, which).await {
            // The text matters more than the attachments.
            Err(SmtpFailure { room: Some(room), .. }) if mail.has_files => {
                let smaller = self.compose(message, context, room).await?;
                let done = self.pool.deliver(&smaller, which).await;
                (smaller, done)
            }
            done => (mail, done),
        };
        let refused = done.map_err(|failure| self.failed(failure))?;
        for refused in &refused {
            tracing::warn!(message = %message.id, refused, "a mail was sent, but not to all of its recipients");
        }
        let receipt = Receipt { provider_id: Some(mail.id.clone()) };
        self.store_copy(mail);
        Ok(SentMail { receipt, refused })
    }

    /// Allows the next mail to log in although the last login was refused.
    pub fn release(&self) {
        self.pool.release();
    }

    /// Converts a failure. A refused login is not the fault of one mail, so it holds all mails.
    fn failed(&self, failure: SmtpFailure) -> SendError {
        match self.pool.remaining_hold().filter(|_| failure.is_of_every_mail()) {
            Some(after) => SendError::Held { after, reason: failure.reason },
            None => failure.into(),
        }
    }

    /// Sends a message as a mail that begins a thread, with a raw header field above all others. Stores no copy.
    ///
    /// # Errors
    ///
    /// The errors of [`Mailer::send`].
    pub async fn send_below(&self, field: &str, message: &OutboundMessage) -> Result<Receipt, SendError> {
        let mut mail = self.compose(message, None, MAX_MAIL).await?;
        mail.bytes.splice(..0, format!("{field}\r\n").into_bytes());
        self.pool.deliver(&mail, RecipientPolicy::All).await?;
        Ok(Receipt { provider_id: Some(mail.id) })
    }

    /// Tests the connection and the login without sending a mail.
    pub async fn probe(&self) -> Vec<Finding> {
        let server = &self.account.smtp;
        let place = format!("{}:{}", server.host, server.port);
        vec![match self.pool.probe().await {
            Ok(size_limit) => {
                let privacy = match server.tls {
                    Tls::Implicit => "TLS",
                    Tls::Starttls => "STARTTLS",
                    Tls::None => "not encrypted, on this machine",
                };
                let login = match &server.login {
                    Login::None => "without a login".to_owned(),
                    Login::Password(_) | Login::Token(_) => format!("logged in as {}", server.username),
                };
                let size =
                    size_limit.map(|bytes| format!("; mails up to {} MB", bytes / 1_000_000)).unwrap_or_default();
                Finding::ok(NAME, format!("{place} ({privacy}), {login}{size}"))
            }
            Err(failure) => Finding::fail(NAME, format!("{place}: {}", failure.reason), advice(&failure)),
        }]
    }

    async fn compose(
        &self,
        message: &OutboundMessage,
        context: Option<ReplyContext>,
        room: u64,
    ) -> Result<ComposedMail, SendError> {
        let (composer, load, message) = (self.composer.clone(), Arc::clone(&self.load), message.clone());
        let composing = tokio::task::spawn_blocking(move || composer.compose(&message, context.as_ref(), &*load, room));
        match composing.await {
            Ok(made) => made.map_err(|reason| SendError::Permanent { reason }),
            Err(error) => Err(SendError::Retry { after: None, reason: format!("the mail could not be made: {error}") }),
        }
    }

    /// Stores a copy, which waits while many others are being stored. A failure is only logged, because the mail is sent already.
    fn store_copy(&self, mail: ComposedMail) {
        let Some(store_copy) = self.store_copy.clone() else { return };
        let bytes = u32::try_from(mail.bytes.len()).unwrap_or(u32::MAX);
        let Ok(room) = Arc::clone(&self.copy_room).try_acquire_many_owned(bytes) else {
            let (mail, limit) = (mail.id, MAX_COPY_BYTES);
            tracing::warn!(
                mail,
                bytes,
                limit,
                "no copy of a sent mail is stored (sent_mailbox): too many copies are waiting"
            );
            return;
        };
        let copying = Arc::clone(&self.copying);
        tokio::spawn(async move {
            let permit = copying.acquire().await;
            if let Err(reason) = store_copy(mail.bytes).await {
                tracing::warn!(mail = mail.id, reason, "no copy of a sent mail is stored");
            }
            drop((permit, room));
        });
    }
}

fn advice(failure: &SmtpFailure) -> &'static str {
    match failure.stage {
        SmtpStage::Connect => {
            "set smtp_host and smtp_port to the provider's, or start the server; mails wait meanwhile"
        }
        SmtpStage::Tls => {
            "set smtp_tls to what the port speaks (\"implicit\" on 465, \"starttls\" on 587), smtp_host to the name in \
             the server's certificate, and ca_file to your own CA's certificate"
        }
        SmtpStage::Login if failure.is_silence => {
            "ask the provider: the server can be reached and does not answer; mails wait meanwhile"
        }
        SmtpStage::Login => {
            "set smtp_username and smtp_password (most providers want an app password), or token_command for OAuth 2"
        }
        SmtpStage::Hello | SmtpStage::Sender | SmtpStage::Recipient | SmtpStage::Data | SmtpStage::Content => {
            "ask the server's owner what its words mean"
        }
    }
}
