//! Failed deliveries: their cause, and what the channel does next.

use std::io;

use lettre::transport::smtp::Error;

use crate::channel::SendError;
use crate::email::account::redact;
use crate::email::certificate::describe_certificate_error;
use crate::settings::Secret;
use crate::text::{innermost_cause, one_line};

/// The maximum length of a server's reply in a reason, in characters.
const MAX_REPLY: usize = 300;

/// The step of the delivery that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SmtpStage {
    Connect,
    Tls,
    Hello,
    Login,
    Sender,
    Recipient,
    Data,
    /// The mail itself, and the server's reply to it.
    Content,
}

/// The consequence of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SmtpOutcome {
    /// Not delivered; another attempt may succeed.
    Retry,
    /// Not delivered; no attempt will succeed.
    Permanent,
    /// Unknown: the server may have accepted the mail.
    Unknown,
}

/// A failed delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SmtpFailure {
    pub stage: SmtpStage,
    pub outcome: SmtpOutcome,
    /// The reason in one line, with the server's reply; never contains a secret.
    pub reason: String,
    /// The server's reply code, if it gave one.
    pub code: Option<u16>,
    /// For a mail that is too large: the number of bytes that would fit.
    pub room: Option<u64>,
    /// True if the server did not answer in time.
    pub is_silence: bool,
}

impl SmtpFailure {
    /// Creates a failure without a reply of the server.
    pub fn new(stage: SmtpStage, outcome: SmtpOutcome, reason: impl AsRef<str>) -> Self {
        let reason: String = one_line(reason.as_ref()).chars().take(MAX_REPLY + 200).collect();
        Self { stage, outcome, reason, code: None, room: None, is_silence: false }
    }

    /// Creates the failure of a lost connection or of a refusal by the server. `is_data_ended` is true if the whole mail was written.
    pub fn of(stage: SmtpStage, error: &Error, is_data_ended: bool) -> Self {
        let code = error.status().map(u16::from);
        let outcome = match code {
            Some(code) => outcome_of(stage, code),
            None if is_data_ended => SmtpOutcome::Unknown,
            None => SmtpOutcome::Retry,
        };
        let text = match code {
            Some(code) => format!("{code} {}", short_cause(error)),
            None => short_cause(error),
        };
        // 552: the mail exceeds the limit of the server or of the mailbox (RFC 1870, section 6).
        let room = (code == Some(552)).then_some(0);
        Self { code, room, ..Self::new(stage, outcome, format!("{}: {text}", describe_stage(stage))) }
    }

    pub fn of_io(stage: SmtpStage, error: &io::Error) -> Self {
        let text = certificate_error(error).unwrap_or_else(|| error.to_string());
        Self::new(stage, SmtpOutcome::Retry, format!("{}: {text}", describe_stage(stage)))
    }

    /// Creates the failure of a missing answer. `is_data_ended` is true if the whole mail was written.
    pub fn of_silence(stage: SmtpStage, seconds: f64, is_data_ended: bool) -> Self {
        let outcome = if is_data_ended { SmtpOutcome::Unknown } else { SmtpOutcome::Retry };
        let stage_text =
            if stage == SmtpStage::Login { "the server does not answer the login" } else { describe_stage(stage) };
        Self { is_silence: true, ..Self::new(stage, outcome, format!("{stage_text}: nothing came for {seconds} s")) }
    }

    /// Returns true if a kept connection may have ended, which says nothing about the mail.
    pub fn is_of_connection(&self) -> bool {
        self.outcome == SmtpOutcome::Retry && matches!(self.code, None | Some(421))
    }

    /// Returns true if no mail can be sent, because the server refused the login or did not answer it.
    pub fn is_of_every_mail(&self) -> bool {
        self.is_refused_login() || (self.stage == SmtpStage::Login && self.is_silence)
    }

    /// Returns true if the login was refused.
    pub fn is_refused_login(&self) -> bool {
        self.stage == SmtpStage::Login && self.code.is_some_and(|code| code >= 500)
    }

    /// Removes the secret of a login from the reason.
    pub fn redacted(self, username: &str, secret: &Secret) -> Self {
        Self { reason: redact(&self.reason, username, secret), ..self }
    }

    /// Adds the name of the server before the reason.
    #[must_use]
    pub fn at(mut self, place: &str) -> Self {
        self.reason = format!("{place}: {}", self.reason);
        self
    }
}

impl From<SmtpFailure> for SendError {
    fn from(failure: SmtpFailure) -> Self {
        let reason = failure.reason;
        match failure.outcome {
            SmtpOutcome::Retry => Self::Retry { after: None, reason },
            SmtpOutcome::Permanent => Self::Permanent { reason },
            SmtpOutcome::Unknown => Self::Unknown { reason },
        }
    }
}

/// Classifies a reply code. By RFC 5321, section 4.2.1, 4yz may succeed later and 5yz will not. Faults between the account
/// and its server are an exception: the owner must fix them, and no mail may be lost because of them. These are refusals of
/// the connection, of TLS and of the login (530, 534, 535, 538, RFC 4954, section 6).
fn outcome_of(stage: SmtpStage, code: u16) -> SmtpOutcome {
    let is_about_us = matches!(stage, SmtpStage::Connect | SmtpStage::Tls | SmtpStage::Hello | SmtpStage::Login);
    let is_login = matches!(code, 530 | 534 | 535 | 538);
    if code < 500 || is_about_us || is_login { SmtpOutcome::Retry } else { SmtpOutcome::Permanent }
}

fn describe_stage(stage: SmtpStage) -> &'static str {
    match stage {
        SmtpStage::Connect => "cannot connect",
        SmtpStage::Tls => "no private connection (TLS)",
        SmtpStage::Hello => "no session",
        SmtpStage::Login => "login refused",
        SmtpStage::Sender => "sender refused",
        SmtpStage::Recipient => "recipient refused",
        SmtpStage::Data | SmtpStage::Content => "mail refused",
    }
}

fn short_cause(error: &Error) -> String {
    let text = one_line(&innermost_cause(error));
    let text = if text == "incomplete response" { "the connection was closed".to_owned() } else { text };
    text.chars().take(MAX_REPLY).collect()
}

/// Describes the fault of the server's certificate if that is the cause.
fn certificate_error(cause: &(dyn std::error::Error + 'static)) -> Option<String> {
    if let Some(rustls::Error::InvalidCertificate(fault)) = cause.downcast_ref::<rustls::Error>() {
        return Some(describe_certificate_error(fault, "that it was reached by"));
    }
    // An I/O error hides its inner error from the chain of sources.
    certificate_error(cause.downcast_ref::<io::Error>()?.get_ref()?)
}
