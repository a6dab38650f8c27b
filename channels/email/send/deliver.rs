//! Hands mails over, each on a connection that works.

use std::sync::Arc;
use std::time::Duration;

use lettre::address::Address;
use lettre::transport::smtp::commands::{Data, Mail as MailFrom, Noop, Quit, Rcpt};
use lettre::transport::smtp::extension::{Extension, MailBodyParameter, MailParameter};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::compose::Mail;
use super::connect::{self, Limits, Session, step};
use super::failure::{Failure, Outcome, Stage};
use crate::backoff::Backoff;
use crate::email::account::Account;

/// Connections at a time; providers grant few.
const MAX_CONNECTIONS: usize = 4;
/// Those that are kept for the next mail.
const MAX_IDLE: usize = 2;
/// After a refused login nobody logs in for so long, doubled with each refusal up to the longest: accounts are locked for less.
const FIRST_HOLD: Duration = Duration::from_secs(30);
const LONGEST_HOLD: Duration = Duration::from_secs(600);
/// How slow a mail may go out: bytes a second.
const MIN_SPEED: usize = 8 << 10;
/// How long a server may take to say goodbye, or that it still listens.
const PATIENCE: Duration = Duration::from_secs(5);

/// Whom a mail is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recipients {
    /// All, as far as any server would ever take them.
    All,
    /// Those that are taken now.
    Taken,
}

/// The way to the account's server, with connections that wait for the next mail.
pub struct Delivery {
    account: Arc<Account>,
    limits: Limits,
    places: Semaphore,
    idle: std::sync::Mutex<Vec<(Session, Instant)>>,
    held: std::sync::Mutex<Option<Held>>,
}

/// The server has refused the login, or says nothing to it.
struct Held {
    until: Instant,
    backoff: Backoff,
    failure: Failure,
}

impl Held {
    fn is_on(&self) -> bool {
        self.until > Instant::now()
    }
}

impl Delivery {
    pub fn new(account: Arc<Account>, limits: Limits) -> Arc<Self> {
        let places = Semaphore::new(MAX_CONNECTIONS);
        Arc::new(Self { account, limits, places, idle: std::sync::Mutex::default(), held: std::sync::Mutex::default() })
    }

    /// Hands over a mail, and says which recipients the server did not take. To decides: the mail is delivered if any
    /// of it was taken, and those that never will be are only named. For one that may be taken later all wait, unless
    /// `which` says otherwise: a mail goes out once.
    pub async fn deliver(self: &Arc<Self>, mail: &Mail, which: Recipients) -> Result<Vec<String>, Failure> {
        let place = connect::place(&self.account.smtp);
        self.try_to(mail, which).await.map_err(|failure| failure.at(&place))
    }

    /// Connects, logs in and leaves.
    pub async fn probe(&self) -> Result<Option<u64>, Failure> {
        let mut session = self.open().await?;
        let size_limit = session.size_limit;
        close(&mut session).await;
        Ok(size_limit)
    }

    async fn try_to(self: &Arc<Self>, mail: &Mail, which: Recipients) -> Result<Vec<String>, Failure> {
        let closed = |_| Failure::new(Stage::Connect, Outcome::Later, "the gateway is stopping");
        let _place = self.places.acquire().await.map_err(closed)?;
        if self.held().is_some()
            && let Some(held) = &*self.lock_held()
        {
            return Err(held.failure.clone());
        }
        if let Some(session) = self.kept().await {
            match self.hand_over(session, mail, which).await {
                Err(failure) if failure.is_of_connection() => {
                    tracing::debug!(reason = failure.reason, "a kept connection had ended");
                }
                done => return done,
            }
        }
        let session = self.open().await?;
        self.hand_over(session, mail, which).await
    }

    /// How long nobody logs in, as the server has refused that or says nothing to it.
    pub fn held(&self) -> Option<Duration> {
        let held = self.lock_held();
        held.as_ref().map(|held| held.until.saturating_duration_since(Instant::now())).filter(|left| !left.is_zero())
    }

    /// The next mail logs in, whatever became of the last login.
    pub fn release(&self) {
        if let Some(held) = &mut *self.lock_held() {
            held.until = Instant::now();
        }
    }

    async fn open(&self) -> Result<Session, Failure> {
        let opened = connect::open(&self.account.smtp, &self.account.tls_config(), &self.limits).await;
        let mut held = self.lock_held();
        match &opened {
            Ok(_) => *held = None,
            // Mails that tried at the same time say no more than one of them.
            Err(failure) if failure.is_of_every_mail() && held.as_ref().is_some_and(Held::is_on) => {
                tracing::debug!(reason = failure.reason, "the server lets nobody in");
            }
            Err(failure) if failure.is_of_every_mail() => {
                let before = held.take().map(|held| held.backoff);
                let mut backoff = before.unwrap_or_else(|| Backoff::new(FIRST_HOLD, LONGEST_HOLD));
                *held = Some(Held { until: Instant::now() + backoff.next_wait(), backoff, failure: failure.clone() });
            }
            Err(_) => {}
        }
        opened
    }

    fn lock_held(&self) -> std::sync::MutexGuard<'_, Option<Held>> {
        self.held.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    async fn hand_over(
        self: &Arc<Self>,
        mut session: Session,
        mail: &Mail,
        which: Recipients,
    ) -> Result<Vec<String>, Failure> {
        let done = hand_over(&mut session, mail, which, &self.limits).await;
        match &done {
            Ok(_) => self.keep(session),
            Err(failure) if failure.code.is_some() => close(&mut session).await,
            // Nobody listens any more.
            Err(_) => {}
        }
        done
    }

    /// A kept connection whose server still answers.
    async fn kept(&self) -> Option<Session> {
        loop {
            let (mut session, since) = self.lock().pop()?;
            if since.elapsed() < self.limits.idle {
                let asked = tokio::time::timeout(PATIENCE, session.smtp.command(Noop)).await;
                if matches!(asked, Ok(Ok(_))) {
                    return Some(session);
                }
            }
        }
    }

    fn keep(self: &Arc<Self>, session: Session) {
        let mut idle = self.lock();
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
            let mut idle = self.lock();
            let (old, young) = idle.drain(..).partition(|(_, since)| since.elapsed() >= self.limits.idle);
            *idle = young;
            old
        };
        for (mut session, _) in old {
            close(&mut session).await;
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<(Session, Instant)>> {
        self.idle.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

async fn close(session: &mut Session) {
    let said = tokio::time::timeout(PATIENCE, session.smtp.command(Quit)).await;
    tracing::trace!(is_polite = matches!(said, Ok(Ok(_))), "a connection is closed");
}

/// One mail transaction (RFC 5321, section 3.3), command by command, so that each failure has its place.
async fn hand_over(
    session: &mut Session,
    mail: &Mail,
    which: Recipients,
    limits: &Limits,
) -> Result<Vec<String>, Failure> {
    let parameters = parameters(session, mail)?;
    let sender = MailFrom::new(Some(mail.from.clone()), parameters);
    step(Stage::Sender, limits.command, &session.data_end, session.smtp.command(sender)).await?;
    let refused = address_all(session, mail, which, limits).await?;
    let Session { smtp, data_end, .. } = session;
    let go_on = step(Stage::Data, limits.command, data_end, smtp.command(Data)).await?;
    if !go_on.has_code(354) {
        let words = format!("mail refused: {} in reply to DATA", go_on.code());
        return Err(Failure::new(Stage::Data, Outcome::Later, words));
    }
    let seconds = u64::try_from(mail.bytes.len() / MIN_SPEED).unwrap_or(0);
    let limit = limits.reply.saturating_add(Duration::from_secs(seconds));
    // What ends the data begins with a line's end; lettre would make an empty line of it.
    let content = mail.bytes.strip_suffix(b"\r\n").unwrap_or(&mail.bytes);
    step(Stage::Content, limit, data_end, smtp.message(content)).await?;
    Ok(refused)
}

/// Names the recipients to the server, and says which it did not take.
async fn address_all(
    session: &mut Session,
    mail: &Mail,
    which: Recipients,
    limits: &Limits,
) -> Result<Vec<String>, Failure> {
    let Session { smtp, data_end, .. } = session;
    let mut refused = Vec::new();
    let mut verdict: Option<Failure> = None;
    let mut taken = 0;
    for (number, recipient) in mail.to.iter().chain(&mail.cc).enumerate() {
        let is_main = number < mail.to.len();
        if !is_main && taken == 0 {
            break;
        }
        let asked = smtp.command(Rcpt::new(recipient.clone(), Vec::new()));
        match step(Stage::Recipient, limits.command, data_end, asked).await {
            Ok(_) => taken += 1,
            Err(failure) if failure.is_of_connection() => return Err(failure),
            // Nobody has got anything yet.
            Err(failure) if failure.outcome == Outcome::Later && which == Recipients::All => return Err(failure),
            Err(failure) => {
                refused.push(format!("{recipient}: {}", failure.reason));
                // One that may be taken later speaks for all.
                if is_main && verdict.as_ref().is_none_or(|known| known.outcome == Outcome::Never) {
                    verdict = Some(failure);
                }
            }
        }
    }
    if taken == 0 {
        let nobody = || Failure::new(Stage::Recipient, Outcome::Never, "the mail has no recipients");
        return Err(verdict.unwrap_or_else(nobody));
    }
    Ok(refused)
}

/// What is said with MAIL FROM; a mail that the server cannot take is not offered.
fn parameters(session: &Session, mail: &Mail) -> Result<Vec<MailParameter>, Failure> {
    let mut parameters = Vec::new();
    if let Some(limit) = session.size_limit {
        let size = u64::try_from(mail.bytes.len()).unwrap_or(u64::MAX);
        if size > limit {
            let reason = format!("mail refused: it has {size} bytes, and the server takes {limit}");
            return Err(Failure { room: Some(limit), ..Failure::new(Stage::Sender, Outcome::Never, reason) });
        }
        parameters.push(MailParameter::Size(mail.bytes.len()));
    }
    let is_plain = |address: &Address| AsRef::<str>::as_ref(address).is_ascii();
    // RFC 6531, section 3.4: only what needs it asks for it.
    if !mail.to.iter().chain(&mail.cc).chain([&mail.from]).all(is_plain) {
        if !session.smtp.server_info().supports_feature(Extension::SmtpUtfEight) {
            let reason = "recipient refused: an address beyond ASCII, and the server does not take those (SMTPUTF8)";
            return Err(Failure::new(Stage::Recipient, Outcome::Never, reason));
        }
        parameters.push(MailParameter::SmtpUtfEight);
    }
    if !mail.bytes.is_ascii() && session.smtp.server_info().supports_feature(Extension::EightBitMime) {
        parameters.push(MailParameter::Body(MailBodyParameter::EightBitMime));
    }
    Ok(parameters)
}
