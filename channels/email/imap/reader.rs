//! Reads the mails of one mailbox in UID order and hands them over. Only one mail is in memory at a time.

use std::collections::VecDeque;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use super::error::ImapError;
use super::session::{FetchOutcome, ImapSession, MailSummary};
use super::settings::WatchSettings;
use crate::backoff::Backoff;
use crate::email::config::{DoneAction, NAME};
use crate::email::mail::{FetchedContent, FetchedMail, Intake, IntakeOutcome};
use crate::inbox::{AcceptExtras, Cursor, Inbox, Refusal};
use crate::text::fill;

/// The number of failures after which the reader skips a mail that the server does not deliver.
const MAX_FAILURES: u32 = 3;
/// The number of lost connections that count as the fault of one mail. It is high, since a large mail over a bad line deserves patience.
pub const MAX_LOSSES: u32 = 10;
/// The maximum number of accepted mails that wait to be marked. Older ones are dropped from the list and stay unmarked.
const MAX_UNMARKED: usize = 100;

/// A position in a mailbox (RFC 3501, section 2.3.1.1), written `UIDVALIDITY:UID`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MailPosition {
    pub uid_validity: u32,
    pub uid: u32,
}

impl fmt::Display for MailPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.uid_validity, self.uid)
    }
}

impl FromStr for MailPosition {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (uid_validity, uid) = text.split_once(':').ok_or(())?;
        Ok(Self { uid_validity: uid_validity.parse().map_err(|_| ())?, uid: uid.parse().map_err(|_| ())? })
    }
}

/// A scan of mails that may have been read before: those received since `since` with UIDs up to `last_uid`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BacklogScan {
    pub since: Timestamp,
    pub last_uid: u32,
}

impl BacklogScan {
    /// Returns true if the mail was received since `since`.
    pub fn covers(&self, summary: &MailSummary) -> bool {
        // INTERNALDATE has no fractions of a second.
        summary.received_at.is_some_and(|received_at| received_at.as_second() >= self.since.as_second())
    }

    /// Returns the search query for mails after `uid`. SEARCH compares only the day, in the time zone of the mail's date
    /// (RFC 3501, section 6.4.4).
    pub fn query(&self, uid: u32) -> String {
        const DAY: SignedDuration = SignedDuration::from_hours(24);
        let day = self.since.checked_sub(DAY).unwrap_or(self.since);
        format!("UID {}:{} SINCE {}", uid.saturating_add(1), self.last_uid, day.strftime("%-d-%b-%Y"))
    }
}

/// The async runtime and the stop signal, for a thread that may block.
pub struct BlockingContext {
    pub handle: Handle,
    pub stop: CancellationToken,
}

impl BlockingContext {
    /// Sleeps for `wait`, or until the stop signal.
    pub fn pause(&self, wait: Duration) {
        self.handle.block_on(async {
            tokio::select! {
                () = self.stop.cancelled() => {}
                () = tokio::time::sleep(wait) => {}
            }
        });
    }
}

/// Reads a mailbox over successive connections.
pub struct MailboxReader {
    pub settings: WatchSettings,
    pub intake: Arc<dyn Intake>,
    pub inbox: Arc<dyn Inbox>,
    pub context: BlockingContext,
    /// The position where reading continues. Skipped mails may lie between it and the stored cursor.
    pub position: MailPosition,
    /// Accepted mails that are not marked yet.
    unmarked: VecDeque<MailPosition>,
    /// True after [`MailboxReader::recover_marks`] has run.
    pub marks_recovered: bool,
    pub supports_idle: bool,
    failing: FetchFailures,
    report: ReportState,
    reported: Option<Result<(), String>>,
}

/// Receives the state of a mailbox at each change: `Ok` while its mails are read, or the reason why they are not.
pub type ReportState = Arc<dyn Fn(Result<(), String>) + Send + Sync>;

/// The failures and lost connections of one mail.
#[derive(Default)]
struct FetchFailures {
    uid: u32,
    failures: u32,
    losses: u32,
}

/// The result of one attempt to hand over a mail.
enum OfferStep {
    Done,
    Again,
}

impl MailboxReader {
    pub fn new(
        settings: WatchSettings,
        intake: Arc<dyn Intake>,
        inbox: Arc<dyn Inbox>,
        context: BlockingContext,
        report: ReportState,
    ) -> Self {
        Self {
            settings,
            intake,
            inbox,
            context,
            position: MailPosition { uid_validity: 0, uid: 0 },
            unmarked: VecDeque::new(),
            marks_recovered: false,
            supports_idle: true,
            failing: FetchFailures::default(),
            report,
            reported: None,
        }
    }

    /// Reports the state of the mailbox if it has changed.
    pub fn report(&mut self, state: Result<(), String>) {
        if self.reported.as_ref() != Some(&state) {
            self.reported = Some(state.clone());
            (self.report)(state);
        }
    }

    pub fn is_stopping(&self) -> bool {
        self.context.stop.is_cancelled()
    }

    /// Hands over one mail and retries until it is accepted. During a `scan`, skips a mail that is too old, and only marks
    /// a mail that was accepted before.
    ///
    /// # Errors
    /// The connection fails. A mail that cannot be accepted is not an error: it is offered again, or skipped.
    pub fn offer(&mut self, session: &mut ImapSession, uid: u32, scan: Option<&BacklogScan>) -> Result<(), ImapError> {
        let (first, longest) = self.settings.timings.retry;
        let mut backoff = Backoff::new(first, longest);
        while !self.is_stopping() {
            let step = match self.try_offer(session, uid, scan, &mut backoff) {
                Err(error) => self.handle_fetch_failure(uid, error, &mut backoff)?,
                Ok(step) => step,
            };
            if matches!(step, OfferStep::Done) {
                self.report(Ok(()));
                self.position.uid = uid;
                return Ok(());
            }
        }
        Ok(())
    }

    fn try_offer(
        &mut self,
        session: &mut ImapSession,
        uid: u32,
        scan: Option<&BacklogScan>,
        backoff: &mut Backoff,
    ) -> Result<OfferStep, ImapError> {
        // The mail may have vanished since the search.
        let Some(summary) = session.fetch_summary(uid)? else { return Ok(OfferStep::Done) };
        if let Some(scan) = scan {
            if !scan.covers(&summary) {
                return Ok(OfferStep::Done);
            }
            let Some(header) = session.fetch_header(uid)? else { return check_vanished(session, uid) };
            match self.known(&header) {
                Ok(Some(IntakeOutcome::Accepted)) => return self.mark(session, uid).map(|()| OfferStep::Done),
                Ok(Some(IntakeOutcome::Skipped)) => return Ok(OfferStep::Done),
                Ok(None) => {}
                Err(refusal) => return Ok(self.retry_later(&refusal, backoff)),
            }
        }
        let Some(content) = self.fetch_content(session, uid, summary)? else {
            return check_vanished(session, uid);
        };
        let mail = FetchedMail {
            cursor: self.cursor(uid),
            received_at: summary.received_at.unwrap_or_else(Timestamp::now),
            content,
        };
        // The server delivered the mail, so its failures no longer count.
        self.failing = FetchFailures::default();
        match self.context.handle.block_on(self.intake.take(mail)) {
            Ok(IntakeOutcome::Accepted) => self.mark(session, uid).map(|()| OfferStep::Done),
            Ok(IntakeOutcome::Skipped) => Ok(OfferStep::Done),
            Err(refusal) => Ok(self.retry_later(&refusal, backoff)),
        }
    }

    fn fetch_content(
        &self,
        session: &mut ImapSession,
        uid: u32,
        summary: MailSummary,
    ) -> Result<Option<FetchedContent>, ImapError> {
        if summary.size <= self.settings.max_size {
            match session.fetch_mail(uid, summary.size, self.settings.max_size)? {
                FetchOutcome::Whole(mail) => return Ok(Some(FetchedContent::Whole(mail))),
                FetchOutcome::Vanished => return Ok(None),
                FetchOutcome::TooLarge => {}
            }
        }
        let size = summary.size.max(self.settings.max_size.saturating_add(1));
        Ok(session.fetch_header(uid)?.map(|header| FetchedContent::TooLarge { size, header }))
    }

    /// Returns the earlier outcome of a mail with this header; `None` if the mail is new.
    ///
    /// # Errors
    /// The earlier outcome cannot be read from the gateway's store.
    pub fn known(&self, header: &[u8]) -> Result<Option<IntakeOutcome>, Refusal> {
        self.context.handle.block_on(self.intake.known(header))
    }

    /// Waits after the gateway refused a mail, so that the mail is offered again later.
    fn retry_later(&mut self, refusal: &Refusal, backoff: &mut Backoff) -> OfferStep {
        // The refusal may ask for a longer wait.
        let wait =
            backoff.next_wait().max(refusal.retry_after().unwrap_or_default()).min(self.settings.timings.retry.1);
        let mailbox = self.settings.mailbox.clone();
        tracing::warn!(mailbox, seconds = wait.as_secs(), "a mail was refused and is offered again: {refusal}");
        if matches!(refusal, Refusal::Store { .. }) {
            self.report(Err(format!("{mailbox}: no mail is taken: {refusal}")));
        }
        self.context.pause(wait);
        OfferStep::Again
    }

    /// Decides after a server failure whether to retry, skip the mail, or end the connection.
    fn handle_fetch_failure(
        &mut self,
        uid: u32,
        error: ImapError,
        backoff: &mut Backoff,
    ) -> Result<OfferStep, ImapError> {
        if self.is_stopping() {
            return Err(error);
        }
        if self.failing.uid != uid {
            self.failing = FetchFailures { uid, ..FetchFailures::default() };
        }
        match error {
            ImapError::Disconnected(_) => self.failing.losses += 1,
            _ => self.failing.failures += 1,
        }
        if self.failing.failures >= MAX_FAILURES || self.failing.losses >= MAX_LOSSES {
            match self.skip_mail(uid, &error) {
                Err(refusal) => return Ok(self.retry_later(&refusal, backoff)),
                Ok(()) if matches!(error, ImapError::Rejected(_)) => return Ok(OfferStep::Done),
                Ok(()) => return Err(error),
            }
        }
        if let ImapError::Rejected(reason) = &error {
            tracing::warn!(mailbox = %self.settings.mailbox, uid, "the server refused to deliver a mail: {reason}");
            self.context.pause(backoff.next_wait());
            return Ok(OfferStep::Again);
        }
        Err(error)
    }

    fn skip_mail(&mut self, uid: u32, error: &ImapError) -> Result<(), Refusal> {
        let values = [self.settings.mailbox.as_str(), &uid.to_string(), &error.to_string()];
        let notice = fill(self.settings.texts.unfetched_notice, &values);
        tracing::error!(mailbox = %self.settings.mailbox, uid, "a mail is skipped because it cannot be fetched: {error}");
        let extras = AcceptExtras { notice: Some(notice), ..AcceptExtras::from(self.cursor(uid)) };
        self.context.handle.block_on(self.inbox.skip(extras, &format!("it cannot be fetched: {error}")))
    }

    /// Marks or moves an accepted mail. The mail is stored already, so a failure here must not cause a second acceptance.
    ///
    /// # Errors
    /// The connection fails. A mark that the server rejects is logged only.
    pub fn mark(&mut self, session: &mut ImapSession, uid: u32) -> Result<(), ImapError> {
        let marked = match self.settings.done {
            DoneAction::Keep => Ok(()),
            DoneAction::Seen => session.mark_seen(uid),
            DoneAction::Move => session.move_to(uid, &self.settings.move_to),
        };
        let Err(error) = marked else { return Ok(()) };
        if self.unmarked.len() == MAX_UNMARKED {
            self.unmarked.pop_front();
        }
        self.unmarked.push_back(MailPosition { uid, ..self.position });
        if let ImapError::Rejected(reason) = error {
            tracing::warn!(mailbox = %self.settings.mailbox, uid, "an accepted mail cannot be marked: {reason}");
            return Ok(());
        }
        self.position.uid = self.position.uid.max(uid);
        Err(error)
    }

    /// Marks the accepted mails that earlier connections could not mark.
    ///
    /// # Errors
    /// The connection fails; the remaining mails stay in the list.
    pub fn mark_pending(&mut self, session: &mut ImapSession) -> Result<(), ImapError> {
        // One at a time: a mail that cannot be marked goes to the end, and the others stay in the list even after an error.
        for _ in 0..self.unmarked.len() {
            let Some(position) = self.unmarked.pop_front() else { break };
            if position.uid_validity == self.position.uid_validity {
                self.mark(session, position.uid)?;
            }
        }
        Ok(())
    }

    /// Returns the cursor at `uid` in the current numbering.
    pub fn cursor(&self, uid: u32) -> Cursor {
        Cursor {
            channel: NAME.to_owned(),
            source: self.settings.mailbox.clone(),
            position: MailPosition { uid, ..self.position }.to_string(),
        }
    }
}

/// Checks that a mail without content no longer exists.
fn check_vanished(session: &mut ImapSession, uid: u32) -> Result<OfferStep, ImapError> {
    match session.fetch_summary(uid)? {
        None => Ok(OfferStep::Done),
        Some(_) => Err(ImapError::Rejected("the mail exists, but its content was not sent".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_is_formatted_and_parsed() {
        let position = MailPosition { uid_validity: u32::MAX, uid: 7 };
        assert_eq!(position.to_string().parse(), Ok(position));
        for wrong in ["", "7", "1:x", "1:-2", "1:2:3", "4294967296:1"] {
            assert!(wrong.parse::<MailPosition>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_search_covers_one_more_day_and_the_date_decides() {
        let scan = BacklogScan { since: "2026-03-01T12:00:00.9Z".parse().unwrap(), last_uid: 90 };
        assert_eq!(scan.query(7), "UID 8:90 SINCE 28-Feb-2026");
        for (received_at, covered) in [
            (Some("2026-03-01T12:00:00Z"), true),
            (Some("2026-03-01T20:00:00+08:00"), true),
            (Some("2026-03-01T11:59:59Z"), false),
            (None, false),
        ] {
            let summary = MailSummary { size: 1, received_at: received_at.map(|at| at.parse().unwrap()) };
            assert_eq!(scan.covers(&summary), covered, "{received_at:?}");
        }
    }
}
