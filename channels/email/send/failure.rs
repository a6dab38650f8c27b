//! What went wrong on the way to the server, and what is to be done about it.

use std::error::Error as _;
use std::io;

use lettre::transport::smtp::Error;

use super::address::one_line;
use crate::channel::SendError;
use crate::email::certificate::fault_in_words;

/// How much of a server's words is kept, in characters.
const MAX_WORDS: usize = 300;

/// How far it had got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    Connect,
    Tls,
    Hello,
    Login,
    Sender,
    Recipient,
    Data,
    /// The mail itself, and the reply to it.
    Content,
}

/// What is to be done about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Not delivered; later it may be.
    Later,
    /// Not delivered, and never will be.
    Never,
    /// The server may have taken it.
    Unknown,
}

/// A delivery that did not work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    pub stage: Stage,
    pub outcome: Outcome,
    /// One line, with the server's own words; never a secret.
    pub reason: String,
    /// The server's reply code, where it gave one.
    pub code: Option<u16>,
    /// The mail was too large: how many bytes would do.
    pub room: Option<u64>,
    /// The server said nothing for too long.
    pub is_silence: bool,
}

impl Failure {
    /// Something else than the server's reply.
    pub fn new(stage: Stage, outcome: Outcome, reason: impl AsRef<str>) -> Self {
        let reason: String = one_line(reason.as_ref()).chars().take(MAX_WORDS + 200).collect();
        Self { stage, outcome, reason, code: None, room: None, is_silence: false }
    }

    /// The connection failed, or the server said no. `is_data_ended`: the whole mail had been written.
    pub fn of(stage: Stage, error: &Error, is_data_ended: bool) -> Self {
        let code = error.status().map(u16::from);
        let outcome = match code {
            Some(code) => outcome_of(stage, code),
            None if is_data_ended => Outcome::Unknown,
            None => Outcome::Later,
        };
        let words = match code {
            Some(code) => format!("{code} {}", words(error)),
            None => words(error),
        };
        // 552: more than the server, or the mailbox, takes (RFC 1870, section 6).
        let room = (code == Some(552)).then_some(0);
        Self { code, room, ..Self::new(stage, outcome, format!("{}: {words}", doing(stage))) }
    }

    pub fn of_io(stage: Stage, error: &io::Error) -> Self {
        let words = certificate(error).unwrap_or_else(|| error.to_string());
        Self::new(stage, Outcome::Later, format!("{}: {words}", doing(stage)))
    }

    /// Nothing came within a time. `is_data_ended`: the whole mail had been written.
    pub fn of_silence(stage: Stage, seconds: f64, is_data_ended: bool) -> Self {
        let outcome = if is_data_ended { Outcome::Unknown } else { Outcome::Later };
        let doing = if stage == Stage::Login { "the server does not answer the login" } else { doing(stage) };
        Self { is_silence: true, ..Self::new(stage, outcome, format!("{doing}: nothing came for {seconds} s")) }
    }

    /// Whether a connection that had been kept may just have ended: that says nothing of the mail.
    pub fn is_of_connection(&self) -> bool {
        self.outcome == Outcome::Later && matches!(self.code, None | Some(421))
    }

    /// No mail can be sent, whichever it is: the login was refused, or nothing was said to it.
    pub fn is_of_every_mail(&self) -> bool {
        self.is_refused_login() || (self.stage == Stage::Login && self.is_silence)
    }

    /// The login was refused.
    pub fn is_refused_login(&self) -> bool {
        self.stage == Stage::Login && self.code.is_some_and(|code| code >= 500)
    }

    /// The same, with the server's name before it.
    #[must_use]
    pub fn at(mut self, place: &str) -> Self {
        self.reason = format!("{place}: {}", self.reason);
        self
    }
}

impl From<Failure> for SendError {
    fn from(failure: Failure) -> Self {
        let reason = failure.reason;
        match failure.outcome {
            Outcome::Later => Self::Retry { after: None, reason },
            Outcome::Never => Self::Permanent { reason },
            Outcome::Unknown => Self::Unknown { reason },
        }
    }
}

/// RFC 5321, section 4.2.1: 4yz may work later, 5yz will not. But what is wrong between this account and its server is
/// the owner's to mend, and no mail's death: a server that does not want us, TLS, the login (530, 534, 535, 538,
/// RFC 4954, section 6).
fn outcome_of(stage: Stage, code: u16) -> Outcome {
    let is_about_us = matches!(stage, Stage::Connect | Stage::Tls | Stage::Hello | Stage::Login);
    let is_login = matches!(code, 530 | 534 | 535 | 538);
    if code < 500 || is_about_us || is_login { Outcome::Later } else { Outcome::Never }
}

fn doing(stage: Stage) -> &'static str {
    match stage {
        Stage::Connect => "cannot connect",
        Stage::Tls => "no private connection (TLS)",
        Stage::Hello => "no session",
        Stage::Login => "login refused",
        Stage::Sender => "sender refused",
        Stage::Recipient => "recipient refused",
        Stage::Data | Stage::Content => "mail refused",
    }
}

/// The innermost cause; what lies around it only names a layer.
fn words(error: &Error) -> String {
    let mut words = None;
    let mut source = error.source();
    while let Some(cause) = source {
        words = Some(cause.to_string());
        source = cause.source();
    }
    let words = one_line(&words.unwrap_or_else(|| error.to_string()));
    let words = if words == "incomplete response" { "the connection was closed".to_owned() } else { words };
    words.chars().take(MAX_WORDS).collect()
}

/// What is wrong with the server's certificate, if that is the cause.
fn certificate(cause: &(dyn std::error::Error + 'static)) -> Option<String> {
    if let Some(rustls::Error::InvalidCertificate(fault)) = cause.downcast_ref::<rustls::Error>() {
        return Some(fault_in_words(fault, "that it was reached by"));
    }
    // An IO error hides what it carries from the chain of sources.
    certificate(cause.downcast_ref::<io::Error>()?.get_ref()?)
}
