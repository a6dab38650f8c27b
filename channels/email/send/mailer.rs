//! Sends messages as mails.

use std::io;
use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::Semaphore;

use super::compose::{Composer, MAX_MAIL, Mail};
use super::connect::Limits;
use super::deliver::{Delivery, Recipients};
use super::failure::{Failure, Stage};
use super::words::MailWords;
use crate::channel::{Receipt, SendError};
use crate::email::account::{Account, Login};
use crate::email::answering::Answering;
use crate::email::config::{EmailConfig, Tls};
use crate::finding::Finding;
use crate::message::{Attachment, OutboundMessage};
use crate::outgoing::OutgoingFiles;

/// Copies that are put into the folder of sent mail at a time.
const MAX_COPIES: usize = 8;
const NAME: &str = "smtp";

/// Reads a file that goes along, up to a number of bytes; it blocks.
pub type LoadFile = dyn Fn(&Attachment, u64) -> io::Result<Vec<u8>> + Send + Sync;

/// Keeps a copy of what was sent.
#[async_trait]
pub trait SentCopy: Send + Sync {
    /// # Errors
    ///
    /// It could not be kept; one line.
    async fn keep(&self, mail: Vec<u8>) -> Result<(), String>;
}

/// A mail that went out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    pub receipt: Receipt,
    /// The recipients that the server did not take, each with its words, in one line.
    pub refused: Vec<String>,
}

/// Sends messages as mails of one account.
pub struct Mailer {
    account: Arc<Account>,
    composer: Composer,
    delivery: Arc<Delivery>,
    load: Arc<LoadFile>,
    sent_copy: Option<Arc<dyn SentCopy>>,
    copying: Arc<Semaphore>,
}

impl Mailer {
    /// # Errors
    ///
    /// The account's address is none; one line.
    pub fn new(account: Arc<Account>, config: &EmailConfig, files: OutgoingFiles) -> Result<Self, String> {
        Self::with_parts(account, config, Arc::new(move |file, limit| files.load(file, limit)), Limits::default())
    }

    pub(super) fn with_parts(
        account: Arc<Account>,
        config: &EmailConfig,
        load: Arc<LoadFile>,
        limits: Limits,
    ) -> Result<Self, String> {
        let composer = Composer::new(&account.address, &account.name, config.reply_all)?;
        let delivery = Delivery::new(Arc::clone(&account), limits);
        let copying = Arc::new(Semaphore::new(MAX_COPIES));
        Ok(Self { account, composer, delivery, load, sent_copy: None, copying })
    }

    /// Says what it says itself in other words than English.
    #[must_use]
    pub fn speaking(mut self, words: MailWords) -> Self {
        self.composer.speak(words);
        self
    }

    /// Has a copy kept of each mail that was sent, as well as it goes.
    #[must_use]
    pub fn keeping(mut self, sent_copy: Arc<dyn SentCopy>) -> Self {
        self.sent_copy = Some(sent_copy);
        self
    }

    /// Sends a message: into the thread that its `chat_id` names in angle brackets, as an answer to `answering`, or as
    /// a mail of its own to the address that it is. A notice is not sent: one turn, one mail.
    ///
    /// # Errors
    ///
    /// By what is to be done about it, with the server's words.
    pub async fn send(
        &self,
        message: &OutboundMessage,
        answering: Option<Answering>,
        which: Recipients,
    ) -> Result<Sent, SendError> {
        if message.context.notice.is_some() {
            return Ok(Sent::default());
        }
        let mail = self.compose(message, answering.clone(), MAX_MAIL).await?;
        let (mail, done) = match self.delivery.deliver(&mail, which).await {
            // The words matter more than what goes along with them.
            Err(Failure { room: Some(room), .. }) if mail.has_files => {
                let smaller = self.compose(message, answering, room).await?;
                let done = self.delivery.deliver(&smaller, which).await;
                (smaller, done)
            }
            done => (mail, done),
        };
        let refused = done.map_err(|failure| self.failed(failure))?;
        for refused in &refused {
            tracing::warn!(message = %message.id, refused, "a mail went out, but not to all of its recipients");
        }
        let receipt = Receipt { provider_id: Some(mail.id.clone()) };
        self.keep_copy(mail);
        Ok(Sent { receipt, refused })
    }

    /// Logs in with the next mail, though the last login was refused.
    pub fn release(&self) {
        self.delivery.release();
    }

    /// A refused login is no mail's fault, and holds all of them.
    fn failed(&self, failure: Failure) -> SendError {
        match self.delivery.held().filter(|_| failure.is_of_every_mail()) {
            Some(after) => SendError::Held { after, reason: failure.reason },
            None => failure.into(),
        }
    }

    /// Sends a message as a mail of its own, with a field of the header, written out, above all others. No copy is kept.
    ///
    /// # Errors
    ///
    /// As [`Mailer::send`].
    pub async fn send_below(&self, field: &str, message: &OutboundMessage) -> Result<Receipt, SendError> {
        let mut mail = self.compose(message, None, MAX_MAIL).await?;
        mail.bytes.splice(..0, format!("{field}\r\n").into_bytes());
        self.delivery.deliver(&mail, Recipients::All).await?;
        Ok(Receipt { provider_id: Some(mail.id) })
    }

    /// Whether the server can be reached and lets us in; nothing is sent.
    pub async fn probe(&self) -> Vec<Finding> {
        let server = &self.account.smtp;
        let place = format!("{}:{}", server.host, server.port);
        vec![match self.delivery.probe().await {
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
            Err(failure) => Finding::fail(NAME, format!("{place}: {}", failure.reason), mend(&failure)),
        }]
    }

    async fn compose(
        &self,
        message: &OutboundMessage,
        answering: Option<Answering>,
        room: u64,
    ) -> Result<Mail, SendError> {
        let (composer, load, message) = (self.composer.clone(), Arc::clone(&self.load), message.clone());
        let composing =
            tokio::task::spawn_blocking(move || composer.compose(&message, answering.as_ref(), &*load, room));
        match composing.await {
            Ok(made) => made.map_err(|reason| SendError::Permanent { reason }),
            Err(error) => Err(SendError::Retry { after: None, reason: format!("the mail could not be made: {error}") }),
        }
    }

    /// What was sent is sent: a copy that fails is only said in the log.
    fn keep_copy(&self, mail: Mail) {
        let Some(sent_copy) = self.sent_copy.clone() else { return };
        let Ok(place) = Arc::clone(&self.copying).try_acquire_owned() else {
            tracing::warn!(mail = mail.id, "no copy of a sent mail is kept: too many wait for their place");
            return;
        };
        tokio::spawn(async move {
            if let Err(reason) = sent_copy.keep(mail.bytes).await {
                tracing::warn!(mail = mail.id, reason, "no copy of a sent mail is kept");
            }
            drop(place);
        });
    }
}

fn mend(failure: &Failure) -> String {
    match failure.stage {
        Stage::Connect => "set smtp_host and smtp_port to the provider's, or start the server; mails wait meanwhile",
        Stage::Tls => {
            "set smtp_tls to what the port speaks (\"implicit\" on 465, \"starttls\" on 587), smtp_host to the name in \
             the server's certificate, and ca_file to your own CA's certificate"
        }
        Stage::Login if failure.is_silence => {
            "ask the provider: the server can be reached and does not answer; mails wait meanwhile"
        }
        Stage::Login => {
            "set smtp_username and smtp_password (most providers want an app password), or token_command for OAuth 2"
        }
        Stage::Hello | Stage::Sender | Stage::Recipient | Stage::Data | Stage::Content => {
            "ask the server's owner what its words mean"
        }
    }
    .to_owned()
}
