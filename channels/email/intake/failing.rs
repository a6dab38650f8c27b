//! Mails that fail: tried again, and passed over in the end, so that those behind them come to their turn.

use std::any::Any;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::identity::{code, seen};
use super::mail_intake::{Arrived, MailIntake};
use super::notes::FAILED;
use crate::email::source::Taken;
use crate::email::words::fill;
use crate::inbox::{AcceptExtras, Refusal};

/// A mail that fails as often as this is passed over.
const MAX_FAILURES: u32 = 3;
/// A sender that cannot be checked is tried again for as long as this, in seconds, and at least [`MAX_FAILURES`] times.
const UNCHECKED_FOR: i64 = 15 * 60;
/// When a sender is to be checked again.
const CHECK_AGAIN: Duration = Duration::from_secs(60);

/// Why a mail was not taken.
pub enum Trouble {
    /// Not now.
    Refused(Refusal),
    /// It is this mail's fault, or ours.
    Failed(String),
    /// Who sent it cannot be found out now.
    Unchecked { sender: String, reason: String },
}

impl From<Refusal> for Trouble {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Invalid(reason) => Self::Failed(reason),
            refusal => Self::Refused(refusal),
        }
    }
}

/// How often a mail failed, and since when.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
struct Failures {
    count: u32,
    /// Unix seconds.
    since: i64,
}

impl MailIntake {
    /// Counts a failure; after the last one the mail is passed over, and the owner told.
    pub(super) async fn after(&self, trouble: Trouble, arrived: &Arrived, header: &[u8]) -> Result<Taken, Refusal> {
        let (reason, unchecked) = match trouble {
            Trouble::Refused(refusal) => return Err(refusal),
            Trouble::Failed(reason) => (reason, None),
            Trouble::Unchecked { sender, reason } => (reason, Some(sender)),
        };
        let now = (self.clock)().as_second();
        let before = self.notes.read::<Failures>(FAILED, &arrived.key).await?;
        let mut failures = before.map_or(Failures { count: 0, since: now }, |(failures, _)| failures);
        failures.count = failures.count.saturating_add(1);
        let is_last = failures.count >= MAX_FAILURES && (unchecked.is_none() || now - failures.since >= UNCHECKED_FOR);
        let notes = vec![self.notes.write(FAILED, &arrived.key, &failures)];
        let position = &arrived.cursor.position;
        if !is_last {
            tracing::warn!(position, reason, tries = failures.count, "a mail could not be taken and is tried again");
            self.inbox().skip(AcceptExtras { notes, ..AcceptExtras::default() }, &reason).await?;
            return Err(match unchecked {
                Some(_) => Refusal::Store { reason, retry_after: CHECK_AGAIN },
                None => Refusal::Invalid(reason),
            });
        }
        tracing::error!(position, reason, "a mail failed too often and is passed over");
        let notice = match unchecked {
            Some(sender) => fill(self.words.unchecked_notice, &[&code(&sender), &reason]),
            None => {
                let (from, subject) = seen(header);
                fill(self.words.failed_notice, &[&code(&from), &code(&subject), &reason])
            }
        };
        let alongside = AcceptExtras { cursor: Some(arrived.cursor.clone()), notes, notice: Some(notice) };
        self.inbox().skip(alongside, &reason).await?;
        Ok(Taken::PassedOver)
    }
}

/// What a panic said.
pub fn said(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "a panic".to_owned())
}
