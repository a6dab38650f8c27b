//! Where reading begins: at the first start, after a restart, and where the server has numbered its mails anew.

use jiff::{SignedDuration, Timestamp};

use super::error::Trouble;
use super::reader::{Place, Reader};
use super::session::{About, Link, Opened};
use crate::email::config::Done;
use crate::email::source::Taken;
use crate::inbox::{Alongside, Note, Refusal};

/// The mails just below the cursor that are looked at after a restart. One at a time is accepted and then marked, so it is
/// the last one that a crash may have kept from being marked; the others are for those that the server refused to mark.
const LOOK_BACK: u32 = 50;

/// Since when mails are answered; its key is the mailbox.
const NOTE_SINCE: &str = "since";
/// Up to which place the mailbox is gone through again; its key is the mailbox.
const NOTE_AGAIN: &str = "again";

/// What is gone through again: mails that came since `at`, with UIDs up to `upto`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Since {
    at: Timestamp,
    upto: u32,
}

impl Since {
    pub fn covers(&self, about: &About) -> bool {
        // INTERNALDATE knows no fractions.
        about.received_at.is_some_and(|received_at| received_at.as_second() >= self.at.as_second())
    }

    /// What may be covered, of the mails behind `uid`. SEARCH looks at the day alone, in whatever zone it was written
    /// (RFC 3501, section 6.4.4).
    fn query(&self, uid: u32) -> String {
        const DAY: SignedDuration = SignedDuration::from_hours(24);
        let day = self.at.checked_sub(DAY).unwrap_or(self.at);
        format!("UID {}:{} SINCE {}", uid.saturating_add(1), self.upto, day.strftime("%-d-%b-%Y"))
    }
}

impl Reader {
    /// Finds where to read on. Answers what is to be gone through again first.
    pub fn resume(&mut self, link: &mut Link, opened: Opened) -> Result<Option<Since>, Trouble> {
        let validity = opened.validity.ok_or_else(|| {
            Trouble::Denied("the mailbox gives its mails no lasting numbers (UIDVALIDITY)".to_owned())
        })?;
        let last = match opened.next {
            Some(next) => next.saturating_sub(1),
            None => link.search("UID *")?.last().copied().unwrap_or(0),
        };
        let end = Place { validity, uid: last };
        let Some(kept) = self.kept_cursor()? else { return self.first_start(end) };
        match kept.parse::<Place>() {
            Ok(place) if place.validity == validity && place.uid <= last => {
                self.at = place;
                let again = self.kept_note(NOTE_AGAIN)?.and_then(|note| note.parse::<Place>().ok());
                match again {
                    Some(again) if again.validity == validity && place.uid < again.uid => {
                        Ok(Some(Since { at: self.since()?, upto: again.uid }))
                    }
                    _ => Ok(None),
                }
            }
            _ => {
                let reason =
                    format!("the server has numbered the mails anew: they were read up to {kept}, and end at {end}");
                tracing::warn!(mailbox = %self.settings.mailbox, "{reason}; those not accepted yet are taken");
                self.go_through(end, Vec::new(), &reason)
            }
        }
    }

    /// Notes when the mailbox was to be opened for the first time, where that failed: what comes until it is opened is answered.
    pub fn note_first_start(&mut self, began: Timestamp) {
        let note = || -> Result<(), Trouble> {
            if self.kept_cursor()?.is_none() && self.kept_note(NOTE_SINCE)?.is_none() {
                let notes = vec![self.note(NOTE_SINCE, self.backlog_before(began).to_string())];
                let alongside = Alongside { notes, ..Alongside::default() };
                let reason = "the mailbox could not be opened yet";
                self.patiently(|| self.rest.handle.block_on(self.inbox.skip(alongside.clone(), reason)))?;
            }
            Ok(())
        };
        if let Err(trouble) = note() {
            tracing::warn!(mailbox = %self.settings.mailbox, "when it was started first could not be noted: {trouble}");
        }
    }

    fn backlog_before(&self, at: Timestamp) -> Timestamp {
        let backlog = SignedDuration::try_from(self.settings.backlog).unwrap_or(SignedDuration::MAX);
        at.checked_sub(backlog).unwrap_or(Timestamp::UNIX_EPOCH)
    }

    fn first_start(&mut self, end: Place) -> Result<Option<Since>, Trouble> {
        if self.kept_note(NOTE_SINCE)?.is_some() {
            return self.go_through(end, Vec::new(), "the first start, which could not open the mailbox at once");
        }
        let since = self.backlog_before(Timestamp::now());
        let notes = vec![self.note(NOTE_SINCE, since.to_string())];
        if self.settings.backlog.is_zero() {
            self.keep(end, notes, "mails from before the first start are not answered")?;
            return Ok(None);
        }
        self.go_through(end, notes, "the first start")
    }

    /// Begins anew, in a way that a restart goes on with.
    fn go_through(&mut self, end: Place, mut notes: Vec<Note>, reason: &str) -> Result<Option<Since>, Trouble> {
        notes.push(self.note(NOTE_AGAIN, end.to_string()));
        self.keep(Place { uid: 0, ..end }, notes, reason)?;
        Ok(Some(Since { at: self.since()?, upto: end.uid }))
    }

    /// Goes through the mailbox again: what was accepted is marked, what was not is taken.
    pub fn catch_up(&mut self, link: &mut Link, since: &Since) -> Result<(), Trouble> {
        if self.at.uid < since.upto {
            for uid in link.search(&since.query(self.at.uid))? {
                if self.at.uid < uid && uid <= since.upto && !self.is_ending() {
                    self.offer(link, uid, Some(since))?;
                }
            }
        }
        if self.is_ending() {
            return Ok(());
        }
        let end = Place { uid: self.at.uid.max(since.upto), ..self.at };
        let notes = vec![self.note(NOTE_AGAIN, String::new())];
        self.keep(end, notes, "what is left is older, or was accepted before")
    }

    /// Marks what was accepted when the process ended before it could mark it.
    pub fn mend(&mut self, link: &mut Link) -> Result<(), Trouble> {
        let open = match self.settings.done {
            Done::Seen => "UNSEEN",
            Done::Move => "UNDELETED",
            Done::Keep => return Ok(()),
        };
        if self.at.uid == 0 || std::mem::replace(&mut self.mended, true) {
            return Ok(());
        }
        let from = self.at.uid.saturating_sub(LOOK_BACK - 1).max(1);
        for uid in link.search(&format!("UID {from}:{} {open}", self.at.uid))? {
            if !(from..=self.at.uid).contains(&uid) || self.is_ending() {
                continue;
            }
            let header = match link.header(uid) {
                Ok(Some(header)) => header,
                Ok(None) | Err(Trouble::Denied(_)) => continue,
                Err(trouble) => return Err(trouble),
            };
            match self.known(&header) {
                Ok(Some(Taken::Accepted)) => self.mark(link, uid)?,
                Ok(Some(Taken::PassedOver) | None) => {}
                Err(refusal) => {
                    tracing::warn!(mailbox = %self.settings.mailbox, "mails could not be looked up, and not marked: {refusal}");
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn since(&self) -> Result<Timestamp, Trouble> {
        let kept = self.kept_note(NOTE_SINCE)?.and_then(|note| note.parse().ok());
        // Without the note nothing that lies there is answered.
        Ok(kept.unwrap_or_else(Timestamp::now))
    }

    fn keep(&mut self, place: Place, notes: Vec<Note>, reason: &str) -> Result<(), Trouble> {
        self.at = place;
        let alongside = Alongside { notes, ..Alongside::from(self.cursor(place.uid)) };
        self.patiently(|| self.rest.handle.block_on(self.inbox.skip(alongside.clone(), reason)))
    }

    fn kept_cursor(&self) -> Result<Option<String>, Trouble> {
        let (channel, mailbox) = (&self.settings.channel, &self.settings.mailbox);
        let cursor = self.patiently(|| self.rest.handle.block_on(self.inbox.cursor(channel, mailbox)))?;
        Ok(cursor.map(|cursor| cursor.position))
    }

    fn kept_note(&self, kind: &str) -> Result<Option<String>, Trouble> {
        let (channel, mailbox) = (&self.settings.channel, &self.settings.mailbox);
        let note = self.patiently(|| self.rest.handle.block_on(self.inbox.note(channel, kind, mailbox)))?;
        Ok(note.map(|note| note.value))
    }

    fn note(&self, kind: &'static str, value: String) -> Note {
        Note { channel: self.settings.channel.clone(), kind, key: self.settings.mailbox.clone(), value }
    }

    /// Asks the store until it answers: nothing can be done without.
    fn patiently<A>(&self, ask: impl Fn() -> Result<A, Refusal>) -> Result<A, Trouble> {
        loop {
            match ask() {
                Ok(answer) => return Ok(answer),
                Err(refusal) if self.is_ending() => return Err(Trouble::Lost(refusal.to_string())),
                Err(refusal) => {
                    let wait = self.settings.pace.retry.1.min(std::time::Duration::from_secs(5));
                    tracing::warn!(mailbox = %self.settings.mailbox, seconds = wait.as_secs(), "the store does not answer: {refusal}");
                    self.rest.rest(wait);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_search_covers_a_day_more_and_the_date_decides() {
        let since = Since { at: "2026-03-01T12:00:00.9Z".parse().unwrap(), upto: 90 };
        assert_eq!(since.query(7), "UID 8:90 SINCE 28-Feb-2026");
        for (received_at, covered) in [
            (Some("2026-03-01T12:00:00Z"), true),
            (Some("2026-03-01T20:00:00+08:00"), true),
            (Some("2026-03-01T11:59:59Z"), false),
            (None, false),
        ] {
            let about = About { size: 1, received_at: received_at.map(|at| at.parse().unwrap()) };
            assert_eq!(since.covers(&about), covered, "{received_at:?}");
        }
    }
}
