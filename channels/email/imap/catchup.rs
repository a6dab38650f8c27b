//! Finds the position where reading starts: at the first start, after a restart, and after the server renumbered its mails.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::error::ImapError;
use super::reader::{BacklogScan, MailPosition, MailboxReader};
use super::session::{ImapSession, SelectedMailbox};
use super::settings::WatchSettings;
use crate::email::config::{DoneAction, NAME};
use crate::email::mail::IntakeOutcome;
use crate::inbox::{AcceptExtras, Note, Refusal};
use crate::text::fill;

/// The number of mails just below the cursor that are checked after a restart. Mails are accepted and marked one at a time,
/// so a crash leaves at most the last one unmarked. The others cover mails that the server refused to mark.
const LOOK_BACK: u32 = 50;

/// The kind of the note, by mailbox, with the time since which mails are answered.
const NOTE_SINCE: &str = "since";
/// The kind of the note, by mailbox, with the last position of an unfinished scan.
const NOTE_AGAIN: &str = "again";
/// The kind of the note, by mailbox, with the account that the other notes and the cursor belong to.
const NOTE_ACCOUNT: &str = "account";

/// The position in a mailbox that has not been read yet. No server uses the number 0 (RFC 3501, section 2.3.1.1).
const NO_POSITION: MailPosition = MailPosition { uid_validity: 0, uid: 0 };

impl MailboxReader {
    /// Stores the time from which mails are answered: at the first start, and at the first start with another account, whose
    /// mailbox has other positions. `began` is the time of the start; a slow server does not delay it.
    ///
    /// # Errors
    /// The notes cannot be read or written.
    pub fn begin(&mut self, began: Timestamp) -> Result<(), ImapError> {
        let account = self.load_note(NOTE_ACCOUNT)?;
        let is_other = account.as_ref().is_some_and(|known| *known != self.settings.account);
        let is_first = is_other || (self.load_cursor()?.is_none() && self.load_note(NOTE_SINCE)?.is_none());
        let mut notes = vec![self.note(NOTE_ACCOUNT, self.settings.account.clone())];
        if is_first {
            let backlog = SignedDuration::try_from(self.settings.backlog).unwrap_or(SignedDuration::MAX);
            let since = began.checked_sub(backlog).unwrap_or(Timestamp::UNIX_EPOCH);
            notes.push(self.note(NOTE_SINCE, since.to_string()));
            notes.push(self.note(NOTE_AGAIN, String::new()));
        } else if account.is_some() {
            return Ok(());
        }
        if !is_other {
            let extras = AcceptExtras { notes, ..AcceptExtras::default() };
            return self.retry_store(|| self.inbox.skip(extras.clone(), "the account is noted"));
        }
        let reason = format!("the account is now {}: this is its first start", self.settings.account);
        tracing::warn!(mailbox = %self.settings.mailbox, "{reason}; mails from before it are not answered");
        self.position = NO_POSITION;
        let values = [self.settings.mailbox.as_str(), &self.settings.account];
        let notice = Some(fill(self.settings.texts.account_notice, &values));
        let extras = AcceptExtras { notes, notice, ..AcceptExtras::from(self.cursor(NO_POSITION.uid)) };
        self.retry_store(|| self.inbox.skip(extras.clone(), &reason))
    }

    /// Finds the position where reading continues. Returns the scan that must run first, if any.
    ///
    /// # Errors
    /// The mailbox has no UIDVALIDITY, the connection fails, or the position cannot be read or written.
    pub fn resume(
        &mut self,
        session: &mut ImapSession,
        selected: SelectedMailbox,
    ) -> Result<Option<BacklogScan>, ImapError> {
        let uid_validity = selected
            .uid_validity
            .ok_or_else(|| ImapError::Rejected("the mailbox reports no UIDVALIDITY".to_owned()))?;
        let last = match selected.uid_next {
            Some(next) => next.saturating_sub(1),
            None => session.search("UID *")?.last().copied().unwrap_or(0),
        };
        let end = MailPosition { uid_validity, uid: last };
        let Some(cursor) = self.load_cursor()? else { return self.first_start(end) };
        match cursor.parse::<MailPosition>() {
            Ok(NO_POSITION) => self.first_start(end),
            Ok(position) if position.uid_validity == uid_validity && position.uid <= last => {
                self.position = position;
                let again = self.load_note(NOTE_AGAIN)?.and_then(|note| note.parse::<MailPosition>().ok());
                match again {
                    Some(again) if again.uid_validity == uid_validity && position.uid < again.uid => {
                        Ok(Some(BacklogScan { since: self.answered_since()?, last_uid: again.uid }))
                    }
                    _ => Ok(None),
                }
            }
            _ => {
                let reason =
                    format!("the server renumbered its mails: the cursor is {cursor}, and the last mail is {end}");
                tracing::warn!(mailbox = %self.settings.mailbox, "{reason}; mails that were not accepted before are taken");
                self.start_scan(end, &reason)
            }
        }
    }

    fn first_start(&mut self, end: MailPosition) -> Result<Option<BacklogScan>, ImapError> {
        // If the mailbox opens within the second of the start, no mail can have arrived since, as far as a server's times tell.
        if Timestamp::now().as_second() <= self.answered_since()?.as_second() {
            self.save_position(end, Vec::new(), "mails from before the first start are not answered")?;
            return Ok(None);
        }
        self.start_scan(end, "the first start")
    }

    /// Starts a scan of the whole mailbox; a restart continues it.
    fn start_scan(&mut self, end: MailPosition, reason: &str) -> Result<Option<BacklogScan>, ImapError> {
        let notes = vec![self.note(NOTE_AGAIN, end.to_string())];
        self.save_position(MailPosition { uid: 0, ..end }, notes, reason)?;
        Ok(Some(BacklogScan { since: self.answered_since()?, last_uid: end.uid }))
    }

    /// Scans the mailbox: marks the mails that were accepted earlier and hands over the others.
    ///
    /// # Errors
    /// The search or a fetch fails, or the position cannot be written.
    pub fn catch_up(&mut self, session: &mut ImapSession, scan: &BacklogScan) -> Result<(), ImapError> {
        if self.position.uid < scan.last_uid {
            for uid in session.search(&scan.query(self.position.uid))? {
                if self.position.uid < uid && uid <= scan.last_uid && !self.is_stopping() {
                    self.offer(session, uid, Some(scan))?;
                }
            }
        }
        if self.is_stopping() {
            return Ok(());
        }
        let end = MailPosition { uid: self.position.uid.max(scan.last_uid), ..self.position };
        let notes = vec![self.note(NOTE_AGAIN, String::new())];
        self.save_position(end, notes, "the remaining mails are older, or were accepted before")
    }

    /// Marks the mails that were accepted just before the process ended.
    ///
    /// # Errors
    /// The connection fails. A mail that cannot be fetched or marked is skipped.
    pub fn recover_marks(&mut self, session: &mut ImapSession) -> Result<(), ImapError> {
        let unmarked = match self.settings.done {
            DoneAction::Seen => "UNSEEN",
            DoneAction::Move => "UNDELETED",
            DoneAction::Keep => return Ok(()),
        };
        if self.position.uid == 0 || std::mem::replace(&mut self.marks_recovered, true) {
            return Ok(());
        }
        let from = self.position.uid.saturating_sub(LOOK_BACK - 1).max(1);
        for uid in session.search(&format!("UID {from}:{} {unmarked}", self.position.uid))? {
            if !(from..=self.position.uid).contains(&uid) || self.is_stopping() {
                continue;
            }
            let header = match session.fetch_header(uid) {
                Ok(Some(header)) => header,
                Ok(None) | Err(ImapError::Rejected(_)) => continue,
                Err(error) => return Err(error),
            };
            match self.known(&header) {
                Ok(Some(IntakeOutcome::Accepted)) => self.mark(session, uid)?,
                Ok(Some(IntakeOutcome::Skipped) | None) => {}
                Err(refusal) => {
                    let mailbox = &self.settings.mailbox;
                    tracing::warn!(%mailbox, "accepted mails could not be looked up and are not marked: {refusal}");
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn answered_since(&self) -> Result<Timestamp, ImapError> {
        let since = self.load_note(NOTE_SINCE)?.and_then(|note| note.parse().ok());
        // Without the note, mails that already exist are not answered.
        Ok(since.unwrap_or_else(Timestamp::now))
    }

    fn save_position(&mut self, position: MailPosition, notes: Vec<Note>, reason: &str) -> Result<(), ImapError> {
        self.position = position;
        let extras = AcceptExtras { notes, ..AcceptExtras::from(self.cursor(position.uid)) };
        self.retry_store(|| self.inbox.skip(extras.clone(), reason))
    }

    fn load_cursor(&self) -> Result<Option<String>, ImapError> {
        Ok(self.load(|mailbox| self.inbox.cursor(NAME, mailbox))?.map(|cursor| cursor.position))
    }

    fn load_note(&self, kind: &str) -> Result<Option<String>, ImapError> {
        Ok(self.load(|mailbox| self.inbox.note(NAME, kind, mailbox))?.map(|note| note.value))
    }

    /// Loads a value of the mailbox, or else the value that an earlier version stored by the configured name.
    fn load<'a, A, F>(&'a self, request: impl Fn(&'a str) -> F) -> Result<Option<A>, ImapError>
    where
        F: Future<Output = Result<Option<A>, Refusal>>,
    {
        let WatchSettings { mailbox, configured_name, .. } = &self.settings;
        match self.retry_store(|| request(mailbox))? {
            None if mailbox != configured_name => self.retry_store(|| request(configured_name)),
            found => Ok(found),
        }
    }

    fn note(&self, kind: &'static str, value: String) -> Note {
        Note { channel: NAME.to_owned(), kind, key: self.settings.mailbox.clone(), value }
    }

    /// Repeats a request to the store until it succeeds or the reader stops.
    fn retry_store<A, F>(&self, request: impl Fn() -> F) -> Result<A, ImapError>
    where
        F: Future<Output = Result<A, Refusal>>,
    {
        loop {
            match self.context.handle.block_on(request()) {
                Ok(answer) => return Ok(answer),
                Err(refusal) if self.is_stopping() => return Err(ImapError::Disconnected(refusal.to_string())),
                Err(refusal) => {
                    let wait = self.settings.timings.retry.1.min(Duration::from_secs(5));
                    let (mailbox, seconds) = (&self.settings.mailbox, wait.as_secs());
                    tracing::warn!(%mailbox, seconds, "the store does not answer: {refusal}");
                    self.context.pause(wait);
                }
            }
        }
    }
}
