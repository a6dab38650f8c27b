//! Delivers mails over a few connections, which are kept for a while. Own code because lettre's pool does not distinguish a
//! failure before the end of the data from a failure after it.

use std::sync::Arc;
use std::time::Duration;

use lettre::address::Address;
use lettre::transport::smtp::commands::{Data, Mail as MailFrom, Noop, Quit, Rcpt};
use lettre::transport::smtp::extension::{Extension, MailBodyParameter, MailParameter};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::compose::ComposedMail;
use super::connect::{self, SmtpSession, SmtpTimeouts, run_step};
use super::failure::{SmtpFailure, SmtpOutcome, SmtpStage};
use crate::backoff::Backoff;
use crate::email::account::Account;

/// The maximum number of simultaneous connections; providers allow few.
const MAX_CONNECTIONS: usize = 4;
/// The maximum number of idle connections that are kept.
const MAX_IDLE: usize = 2;
/// The first pause after a refused login. The pause doubles with each refusal up to the longest one, because providers lock accounts.
const FIRST_HOLD: Duration = Duration::from_secs(30);
const LONGEST_HOLD: Duration = Duration::from_secs(600);
/// The slowest acceptable transmission of a mail, in bytes per second.
const MIN_SPEED: usize = 8 << 10;
/// The time limit for the server's answer to QUIT or NOOP.
const PATIENCE: Duration = Duration::from_secs(5);

/// The recipients that the server must accept before the mail is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecipientPolicy {
    /// All recipients that are not refused for good.
    All,
    /// Only the recipients that the server accepts now.
    AcceptedOnly,
}

/// The connections to the account's SMTP server.
pub struct SmtpPool {
    account: Arc<Account>,
    limits: SmtpTimeouts,
    permits: Semaphore,
    idle: parking_lot::Mutex<Vec<(SmtpSession, Instant)>>,
    hold: parking_lot::Mutex<Option<LoginHold>>,
}

/// A pause of all logins after the server refused one or did not answer it.
struct LoginHold {
    until: Instant,
    backoff: Backoff,
    failure: SmtpFailure,
}

impl LoginHold {
    fn is_active(&self) -> bool {
        self.until > Instant::now()
    }
}

impl SmtpPool {
    pub fn new(account: Arc<Account>, limits: SmtpTimeouts) -> Arc<Self> {
        let permits = Semaphore::new(MAX_CONNECTIONS);
        Arc::new(Self {
            account,
            limits,
            permits,
            idle: parking_lot::Mutex::default(),
            hold: parking_lot::Mutex::default(),
        })
    }

    /// Delivers a mail and returns the recipients that the server refused. The mail is delivered if the server accepts at
    /// least one recipient in To; recipients refused for good are only reported. If a recipient may be accepted later,
    /// nothing is sent unless `which` permits it, because a mail is sent only once.
    ///
    /// # Errors
    /// Nothing is delivered, or it is not known whether the mail was delivered: no connection, a refused mail or
    /// sender, or no accepted recipient.
    pub async fn deliver(
        self: &Arc<Self>,
        mail: &ComposedMail,
        which: RecipientPolicy,
    ) -> Result<Vec<String>, SmtpFailure> {
        let server = &self.account.smtp;
        let place = format!("SMTP server {}:{}", server.host, server.port);
        self.try_deliver(mail, which).await.map_err(|failure| failure.at(&place))
    }

    /// Connects, logs in and disconnects. Returns the server's size limit.
    ///
    /// # Errors
    /// The server cannot be reached, or refuses the login.
    pub async fn probe(&self) -> Result<Option<u64>, SmtpFailure> {
        let mut session = self.open().await?;
        let size_limit = session.size_limit;
        close(&mut session).await;
        Ok(size_limit)
    }

    async fn try_deliver(
        self: &Arc<Self>,
        mail: &ComposedMail,
        which: RecipientPolicy,
    ) -> Result<Vec<String>, SmtpFailure> {
        let closed = |_| SmtpFailure::new(SmtpStage::Connect, SmtpOutcome::Retry, "the gateway is stopping");
        let _permit = self.permits.acquire().await.map_err(closed)?;
        if let Some(hold) = self.hold.lock().as_ref().filter(|hold| hold.is_active()) {
            return Err(hold.failure.clone());
        }
        if let Some(session) = self.take_idle().await {
            match self.send_mail(session, mail, which).await {
                Err(failure) if failure.is_of_connection() => {
                    tracing::debug!(reason = failure.reason, "a kept connection had ended");
                }
                done => return done,
            }
        }
        let session = self.open().await?;
        self.send_mail(session, mail, which).await
    }

    /// Returns the remaining pause of logins.
    pub fn remaining_hold(&self) -> Option<Duration> {
        let hold = self.hold.lock();
        hold.as_ref().map(|hold| hold.until.saturating_duration_since(Instant::now())).filter(|left| !left.is_zero())
    }

    /// Allows the next mail to log in, whatever the outcome of the last login.
    pub fn release(&self) {
        if let Some(hold) = &mut *self.hold.lock() {
            hold.until = Instant::now();
        }
    }

    async fn open(&self) -> Result<SmtpSession, SmtpFailure> {
        let opened = connect::open(&self.account.smtp, &self.account.tls, &self.limits).await;
        let mut hold = self.hold.lock();
        match &opened {
            Ok(_) => *hold = None,
            // Mails that fail at the same time count as one refusal.
            Err(failure) if failure.is_of_every_mail() && hold.as_ref().is_some_and(LoginHold::is_active) => {
                tracing::debug!(reason = failure.reason, "another login failed at the same time");
            }
            Err(failure) if failure.is_of_every_mail() => {
                let before = hold.take().map(|hold| hold.backoff);
                let mut backoff = before.unwrap_or_else(|| Backoff::new(FIRST_HOLD, LONGEST_HOLD));
                *hold =
                    Some(LoginHold { until: Instant::now() + backoff.next_wait(), backoff, failure: failure.clone() });
            }
            Err(_) => {}
        }
        opened
    }

    async fn send_mail(
        self: &Arc<Self>,
        mut session: SmtpSession,
        mail: &ComposedMail,
        which: RecipientPolicy,
    ) -> Result<Vec<String>, SmtpFailure> {
        let done = run_transaction(&mut session, mail, which, &self.limits).await;
        match &done {
            Ok(_) => self.return_idle(session),
            Err(failure) if failure.code.is_some() => close(&mut session).await,
            // The connection is gone.
            Err(_) => {}
        }
        done
    }

    /// Takes an idle connection whose server still answers.
    async fn take_idle(&self) -> Option<SmtpSession> {
        loop {
            let (mut session, since) = self.idle.lock().pop()?;
            if since.elapsed() < self.limits.idle {
                let reply = tokio::time::timeout(PATIENCE, session.smtp.command(Noop)).await;
                if matches!(reply, Ok(Ok(_))) {
                    return Some(session);
                }
            }
        }
    }

    fn return_idle(self: &Arc<Self>, session: SmtpSession) {
        let mut idle = self.idle.lock();
        idle.push((session, Instant::now()));
        let too_many = if idle.len() > MAX_IDLE { Some(idle.remove(0)) } else { None };
        drop(idle);
        let delivery = Arc::downgrade(self);
        let wait = self.limits.idle;
        tokio::spawn(async move {
            if let Some((mut session, _)) = too_many {
                close(&mut session).await;
            }
            tokio::time::sleep(wait).await;
            if let Some(delivery) = delivery.upgrade() {
                delivery.close_old().await;
            }
        });
    }

    async fn close_old(&self) {
        let old: Vec<_> = {
            let mut idle = self.idle.lock();
            let (old, young) = idle.drain(..).partition(|(_, since)| since.elapsed() >= self.limits.idle);
            *idle = young;
            old
        };
        for (mut session, _) in old {
            close(&mut session).await;
        }
    }
}

async fn close(session: &mut SmtpSession) {
    let reply = tokio::time::timeout(PATIENCE, session.smtp.command(Quit)).await;
    tracing::trace!(is_answered = matches!(reply, Ok(Ok(_))), "a connection is closed");
}

/// Runs one mail transaction (RFC 5321, section 3.3), command by command, so that the failed step is known.
async fn run_transaction(
    session: &mut SmtpSession,
    mail: &ComposedMail,
    which: RecipientPolicy,
    limits: &SmtpTimeouts,
) -> Result<Vec<String>, SmtpFailure> {
    let parameters = mail_parameters(session, mail)?;
    let sender = MailFrom::new(Some(mail.from.clone()), parameters);
    run_step(SmtpStage::Sender, limits.command, &session.data_end, session.smtp.command(sender)).await?;
    let refused = send_recipients(session, mail, which, limits).await?;
    let SmtpSession { smtp, data_end, .. } = session;
    let reply = run_step(SmtpStage::Data, limits.command, data_end, smtp.command(Data)).await?;
    if !reply.has_code(354) {
        let reason = format!("mail refused: {} in reply to DATA", reply.code());
        return Err(SmtpFailure::new(SmtpStage::Data, SmtpOutcome::Retry, reason));
    }
    let seconds = u64::try_from(mail.bytes.len() / MIN_SPEED).unwrap_or(0);
    let limit = limits.reply.saturating_add(Duration::from_secs(seconds));
    // The end-of-data mark begins with a line end, and lettre would add an empty line.
    let content = mail.bytes.strip_suffix(b"\r\n").unwrap_or(&mail.bytes);
    run_step(SmtpStage::Content, limit, data_end, smtp.message(content)).await?;
    Ok(refused)
}

/// Sends the recipients and returns those that the server refused.
async fn send_recipients(
    session: &mut SmtpSession,
    mail: &ComposedMail,
    which: RecipientPolicy,
    limits: &SmtpTimeouts,
) -> Result<Vec<String>, SmtpFailure> {
    let SmtpSession { smtp, data_end, .. } = session;
    let mut refused = Vec::new();
    let mut decisive: Option<SmtpFailure> = None;
    let mut accepted = 0;
    for (number, recipient) in mail.to.iter().chain(&mail.cc).enumerate() {
        let is_main = number < mail.to.len();
        if !is_main && accepted == 0 {
            break;
        }
        let command = smtp.command(Rcpt::new(recipient.clone(), Vec::new()));
        match run_step(SmtpStage::Recipient, limits.command, data_end, command).await {
            Ok(_) => accepted += 1,
            Err(failure) if failure.is_of_connection() => return Err(failure),
            // Nothing is delivered at this point.
            Err(failure) if failure.outcome == SmtpOutcome::Retry && which == RecipientPolicy::All => {
                return Err(failure);
            }
            Err(failure) => {
                refused.push(format!("{recipient}: {}", failure.reason));
                // A recipient in To that may be accepted later decides the outcome for all.
                if is_main && decisive.as_ref().is_none_or(|known| known.outcome == SmtpOutcome::Permanent) {
                    decisive = Some(failure);
                }
            }
        }
    }
    if accepted == 0 {
        let nobody = || SmtpFailure::new(SmtpStage::Recipient, SmtpOutcome::Permanent, "the mail has no recipients");
        return Err(decisive.unwrap_or_else(nobody));
    }
    Ok(refused)
}

/// Returns the parameters of MAIL FROM; fails for a mail that the server cannot accept.
fn mail_parameters(session: &SmtpSession, mail: &ComposedMail) -> Result<Vec<MailParameter>, SmtpFailure> {
    let mut parameters = Vec::new();
    if let Some(limit) = session.size_limit {
        let size = u64::try_from(mail.bytes.len()).unwrap_or(u64::MAX);
        if size > limit {
            let reason = format!("mail refused: it has {size} bytes, and the server takes {limit}");
            return Err(SmtpFailure {
                room: Some(limit),
                ..SmtpFailure::new(SmtpStage::Sender, SmtpOutcome::Permanent, reason)
            });
        }
        parameters.push(MailParameter::Size(mail.bytes.len()));
    }
    let is_plain = |address: &Address| AsRef::<str>::as_ref(address).is_ascii();
    // RFC 6531, section 3.4: only mails that need SMTPUTF8 request it.
    if !mail.to.iter().chain(&mail.cc).chain([&mail.from]).all(is_plain) {
        if !session.smtp.server_info().supports_feature(Extension::SmtpUtfEight) {
            let reason = "recipient refused: an address beyond ASCII, and the server does not take those (SMTPUTF8)";
            return Err(SmtpFailure::new(SmtpStage::Recipient, SmtpOutcome::Permanent, reason));
        }
        parameters.push(MailParameter::SmtpUtfEight);
    }
    if !mail.bytes.is_ascii() && session.smtp.server_info().supports_feature(Extension::EightBitMime) {
        parameters.push(MailParameter::Body(MailBodyParameter::EightBitMime));
    }
    Ok(parameters)
}
