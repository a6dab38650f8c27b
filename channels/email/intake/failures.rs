//! Counts failures of mails. A failed mail is retried and finally skipped, so that it does not block the mails after it.

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::identity::{ArrivedMail, from_and_subject, inline_code};
use super::notes::{FAILED, MailNotes, SKIPPED};
use crate::email::mail::IntakeOutcome;
use crate::email::texts::NoticeTexts;
use crate::inbox::{AcceptExtras, Refusal};
use crate::text::fill;

/// The number of failures after which a mail is skipped.
const MAX_FAILURES: u32 = 3;
/// How long a mail is retried whose sender cannot be checked, in seconds; it is retried at least [`MAX_FAILURES`] times.
const MAX_UNCHECKED_SECS: i64 = 15 * 60;
/// The wait before a sender is checked again.
const CHECK_AGAIN: Duration = Duration::from_secs(60);

/// The reason why a mail was not accepted.
pub enum IntakeError {
    /// The inbox or the machine accepts nothing at the moment.
    Refused(Refusal),
    /// The mail or this program is at fault.
    Failed(String),
    /// The sender cannot be checked at the moment.
    Unchecked { sender: String, reason: String },
}

impl From<Refusal> for IntakeError {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Invalid(reason) => Self::Failed(reason),
            refusal => Self::Refused(refusal),
        }
    }
}

/// The failures of one mail.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
struct IntakeFailures {
    count: u32,
    /// The time of the first failure, in Unix seconds.
    since: i64,
}

/// Counts a failure. After the last permitted one, skips the mail and notifies the owner.
///
/// # Errors
/// The refusal of the gateway, or the count of failures cannot be read or written; the mail is offered again.
pub async fn record_failure(
    notes: &MailNotes,
    texts: &NoticeTexts,
    now: Timestamp,
    error: IntakeError,
    arrived: &ArrivedMail,
    header: &[u8],
) -> Result<IntakeOutcome, Refusal> {
    let (reason, unchecked) = match error {
        IntakeError::Refused(refusal) => return Err(refusal),
        IntakeError::Failed(reason) => (reason, None),
        IntakeError::Unchecked { sender, reason } => (reason, Some(sender)),
    };
    let now = now.as_second();
    let before = notes.read::<IntakeFailures>(FAILED, &arrived.key).await?;
    let mut failures = before.map_or(IntakeFailures { count: 0, since: now }, |(failures, _)| failures);
    failures.count = failures.count.saturating_add(1);
    let is_last = failures.count >= MAX_FAILURES && (unchecked.is_none() || now - failures.since >= MAX_UNCHECKED_SECS);
    let mut changed = vec![notes.write(FAILED, &arrived.key, &failures)];
    let position = &arrived.cursor.position;
    if !is_last {
        tracing::warn!(position, reason, tries = failures.count, "a mail failed and is tried again");
        notes.inbox.skip(AcceptExtras { notes: changed, ..AcceptExtras::default() }, &reason).await?;
        return Err(match unchecked {
            Some(_) => Refusal::Store { reason, retry_after: CHECK_AGAIN },
            None => Refusal::Invalid(reason),
        });
    }
    tracing::error!(position, reason, "a mail failed too often and is skipped");
    let notice = match unchecked {
        Some(sender) => fill(texts.unchecked_notice, &[&inline_code(&sender), &reason]),
        None => {
            let (from, subject) = from_and_subject(header);
            fill(texts.failed_notice, &[&inline_code(&from), &inline_code(&subject), &reason])
        }
    };
    changed.push(notes.write(SKIPPED, &arrived.key, &true));
    let extras = AcceptExtras { cursor: Some(arrived.cursor.clone()), notes: changed, notice: Some(notice) };
    notes.inbox.skip(extras, &reason).await?;
    Ok(IntakeOutcome::Skipped)
}
