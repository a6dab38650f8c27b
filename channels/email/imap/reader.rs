//! The mails of one mailbox, one after the other, in the order of their UIDs. Only one is in memory at a time.

use std::collections::VecDeque;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use super::catchup::Since;
use super::error::Trouble;
use super::session::{About, Fetched, Link, Opened};
use super::settings::WatchSettings;
use crate::backoff::Backoff;
use crate::email::config::Done;
use crate::email::source::{Intake, RawContent, RawMail, Taken};
use crate::inbox::{Alongside, Cursor, Inbox, Refusal};

/// A mail that the server hands out in no way is given up after so many tries.
const MOST_FAILURES: u32 = 3;
/// As many tries are lost with the connection before that counts as the mail's own fault: a large mail over a bad line
/// deserves patience.
pub const MOST_LOSSES: u32 = 10;
/// Accepted mails that could not be marked yet; more are left as they lie.
const MOST_UNMARKED: usize = 100;
/// Where the server cannot idle, it is asked at least so often whether it is there.
const LONGEST_WAIT: Duration = Duration::from_secs(45);

/// A place in a mailbox (RFC 3501, section 2.3.1.1), written `UIDVALIDITY:UID`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub validity: u32,
    pub uid: u32,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.validity, self.uid)
    }
}

impl FromStr for Place {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (validity, uid) = text.split_once(':').ok_or(())?;
        Ok(Self { validity: validity.parse().map_err(|_| ())?, uid: uid.parse().map_err(|_| ())? })
    }
}

/// Waiting, in a thread that may block.
pub struct Rest {
    pub handle: Handle,
    pub stop: CancellationToken,
}

impl Rest {
    /// Waits, at most until the reading is to end.
    pub fn rest(&self, wait: Duration) {
        self.handle.block_on(async {
            tokio::select! {
                () = self.stop.cancelled() => {}
                () = tokio::time::sleep(wait) => {}
            }
        });
    }
}

/// Reads a mailbox, over one connection after the other.
pub struct Reader {
    pub settings: WatchSettings,
    pub intake: Arc<dyn Intake>,
    pub inbox: Arc<dyn Inbox>,
    pub rest: Rest,
    /// Up to where the mailbox was read; mails that are nobody's business may lie between it and the cursor on disk.
    pub at: Place,
    /// Accepted, and not marked yet.
    unmarked: VecDeque<Place>,
    pub mended: bool,
    idles: bool,
    failing: Failing,
}

/// The mail that fails, how often it did, and how often the connection was lost over it.
#[derive(Default)]
struct Failing {
    uid: u32,
    failures: u32,
    losses: u32,
}

/// What became of one step.
enum Step {
    Done,
    Again,
}

impl Reader {
    pub fn new(settings: WatchSettings, intake: Arc<dyn Intake>, inbox: Arc<dyn Inbox>, rest: Rest) -> Self {
        Self {
            settings,
            intake,
            inbox,
            rest,
            at: Place { validity: 0, uid: 0 },
            unmarked: VecDeque::new(),
            mended: false,
            idles: true,
            failing: Failing::default(),
        }
    }

    /// Takes what is there and what arrives, until it is told to end or the connection is lost.
    ///
    /// # Errors
    /// Why the connection is of no use any more.
    pub fn read(&mut self, link: &mut Link, opened: Opened) -> Result<(), Trouble> {
        if opened.read_only && self.settings.done != Done::Keep {
            tracing::warn!(mailbox = %self.settings.mailbox, "the mailbox is read-only: accepted mails cannot be marked");
        }
        let mut since = self.resume(link, opened)?;
        self.mend(link)?;
        self.mark_left(link)?;
        while !self.is_ending() {
            if let Some(behind) = since.take() {
                self.catch_up(link, &behind)?;
                continue;
            }
            link.take_news();
            let from = self.at.uid;
            // `*` is the last mail, even where that is older (RFC 3501, section 6.4.8).
            for uid in link.search(&format!("UID {}:*", from.saturating_add(1)))? {
                if uid > self.at.uid && !self.is_ending() {
                    self.offer(link, uid, None)?;
                }
            }
            if !self.is_ending() && !link.take_news() {
                self.wait(link)?;
            }
        }
        Ok(())
    }

    pub fn is_ending(&self) -> bool {
        self.rest.stop.is_cancelled()
    }

    /// Takes one mail, and offers it again for as long as it is not taken. `since` is set where the mailbox is gone through
    /// again: then an older one is passed by, and one that was accepted before is only marked.
    pub fn offer(&mut self, link: &mut Link, uid: u32, since: Option<&Since>) -> Result<(), Trouble> {
        let (first, longest) = self.settings.pace.retry;
        let mut backoff = Backoff::new(first, longest);
        while !self.is_ending() {
            let step = match self.try_offer(link, uid, since, &mut backoff) {
                Err(trouble) => self.failed(uid, trouble, &mut backoff)?,
                Ok(step) => step,
            };
            if matches!(step, Step::Done) {
                self.at.uid = uid;
                return Ok(());
            }
        }
        Ok(())
    }

    fn try_offer(
        &mut self,
        link: &mut Link,
        uid: u32,
        since: Option<&Since>,
        backoff: &mut Backoff,
    ) -> Result<Step, Trouble> {
        // It may have gone since the search.
        let Some(about) = link.about(uid)? else { return Ok(Step::Done) };
        if let Some(since) = since {
            if !since.covers(&about) {
                return Ok(Step::Done);
            }
            let Some(header) = link.header(uid)? else { return gone(link, uid) };
            match self.known(&header) {
                Ok(Some(Taken::Accepted)) => return self.mark(link, uid).map(|()| Step::Done),
                Ok(Some(Taken::PassedOver)) => return Ok(Step::Done),
                Ok(None) => {}
                Err(refusal) => return Ok(self.refused(&refusal, backoff)),
            }
        }
        let Some(content) = self.content(link, uid, about)? else { return gone(link, uid) };
        let mail = RawMail {
            cursor: self.cursor(uid),
            received_at: about.received_at.unwrap_or_else(Timestamp::now),
            content,
        };
        // The server does hand it out.
        self.failing = Failing::default();
        match self.rest.handle.block_on(self.intake.take(mail)) {
            Ok(Taken::Accepted) => self.mark(link, uid).map(|()| Step::Done),
            Ok(Taken::PassedOver) => Ok(Step::Done),
            Err(refusal) => Ok(self.refused(&refusal, backoff)),
        }
    }

    fn content(&self, link: &mut Link, uid: u32, about: About) -> Result<Option<RawContent>, Trouble> {
        if about.size <= self.settings.max_size {
            match link.whole(uid, about.size, self.settings.max_size)? {
                Fetched::Whole(mail) => return Ok(Some(RawContent::Whole(mail))),
                Fetched::Vanished => return Ok(None),
                Fetched::TooLarge => {}
            }
        }
        let size = about.size.max(self.settings.max_size.saturating_add(1));
        Ok(link.header(uid)?.map(|header| RawContent::TooLarge { size, header }))
    }

    pub fn known(&self, header: &[u8]) -> Result<Option<Taken>, Refusal> {
        self.rest.handle.block_on(self.intake.known(header))
    }

    /// It was not taken: it is offered again, later.
    fn refused(&self, refusal: &Refusal, backoff: &mut Backoff) -> Step {
        let wait = wait_after(refusal, backoff.next_wait()).min(self.settings.pace.retry.1);
        tracing::warn!(mailbox = %self.settings.mailbox, seconds = wait.as_secs(), "a mail was not taken: {refusal}");
        self.rest.rest(wait);
        Step::Again
    }

    /// The server did not hand it out.
    fn failed(&mut self, uid: u32, trouble: Trouble, backoff: &mut Backoff) -> Result<Step, Trouble> {
        if self.is_ending() {
            return Err(trouble);
        }
        if self.failing.uid != uid {
            self.failing = Failing { uid, ..Failing::default() };
        }
        match trouble {
            Trouble::Lost(_) => self.failing.losses += 1,
            _ => self.failing.failures += 1,
        }
        if self.failing.failures >= MOST_FAILURES || self.failing.losses >= MOST_LOSSES {
            match self.give_up(uid, &trouble) {
                Err(refusal) => return Ok(self.refused(&refusal, backoff)),
                Ok(()) if matches!(trouble, Trouble::Denied(_)) => return Ok(Step::Done),
                Ok(()) => return Err(trouble),
            }
        }
        if let Trouble::Denied(said) = &trouble {
            tracing::warn!(mailbox = %self.settings.mailbox, uid, "the server does not hand out a mail: {said}");
            self.rest.rest(backoff.next_wait());
            return Ok(Step::Again);
        }
        Err(trouble)
    }

    fn give_up(&mut self, uid: u32, trouble: &Trouble) -> Result<(), Refusal> {
        let notice = self
            .settings
            .skipped
            .replace("{mailbox}", &self.settings.mailbox)
            .replace("{uid}", &uid.to_string())
            .replace("{reason}", &trouble.to_string());
        tracing::error!(mailbox = %self.settings.mailbox, uid, "a mail is skipped, it cannot be fetched: {trouble}");
        let alongside = Alongside { notice: Some(notice), ..Alongside::from(self.cursor(uid)) };
        self.rest.handle.block_on(self.inbox.skip(alongside, &format!("it cannot be fetched: {trouble}")))
    }

    /// What is done with an accepted mail. It is on disk: nothing that fails here may make it be taken again.
    pub fn mark(&mut self, link: &mut Link, uid: u32) -> Result<(), Trouble> {
        let marked = match self.settings.done {
            Done::Keep => Ok(()),
            Done::Seen => link.mark_seen(uid),
            Done::Move => link.move_to(uid, &self.settings.move_to),
        };
        match marked {
            Ok(()) => Ok(()),
            Err(trouble) => {
                if self.unmarked.len() == MOST_UNMARKED {
                    self.unmarked.pop_front();
                }
                self.unmarked.push_back(Place { uid, ..self.at });
                if let Trouble::Denied(said) = trouble {
                    tracing::warn!(mailbox = %self.settings.mailbox, uid, "an accepted mail cannot be marked: {said}");
                    return Ok(());
                }
                self.at.uid = self.at.uid.max(uid);
                Err(trouble)
            }
        }
    }

    /// What an earlier connection did not get to.
    fn mark_left(&mut self, link: &mut Link) -> Result<(), Trouble> {
        // One at a time: what cannot be marked now goes behind the others, which stay whatever becomes of it.
        for _ in 0..self.unmarked.len() {
            let Some(place) = self.unmarked.pop_front() else { break };
            if place.validity == self.at.validity {
                self.mark(link, place.uid)?;
            }
        }
        Ok(())
    }

    /// Waits until there may be something new.
    fn wait(&mut self, link: &mut Link) -> Result<(), Trouble> {
        let pace = self.settings.pace;
        if self.idles && link.can.idle {
            match link.idle(pace.quiet, pace.longest_idle, pace.patience) {
                Ok(_) => return Ok(()),
                Err(Trouble::Denied(said)) => {
                    tracing::warn!(mailbox = %self.settings.mailbox, "the server does not idle after all: {said}");
                    self.idles = false;
                }
                Err(trouble) => return Err(trouble),
            }
        }
        let end = Instant::now() + self.settings.poll_interval;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            self.rest.rest(left.min(LONGEST_WAIT));
            if self.is_ending() || left <= LONGEST_WAIT {
                return Ok(());
            }
            link.noop()?;
            if link.take_news() {
                return Ok(());
            }
        }
    }

    pub fn cursor(&self, uid: u32) -> Cursor {
        Cursor {
            channel: self.settings.channel.clone(),
            source: self.settings.mailbox.clone(),
            position: Place { uid, ..self.at }.to_string(),
        }
    }
}

/// A mail of which nothing came is not passed by for that alone.
fn gone(link: &mut Link, uid: u32) -> Result<Step, Trouble> {
    match link.about(uid)? {
        None => Ok(Step::Done),
        Some(_) => Err(Trouble::Denied("it is there, and its content was not sent".to_owned())),
    }
}

/// What the refusal asks for, and at least `least`.
fn wait_after(refusal: &Refusal, least: Duration) -> Duration {
    match refusal {
        Refusal::SessionFull { retry_after, .. }
        | Refusal::InboxFull { retry_after, .. }
        | Refusal::OutboxFull { retry_after, .. }
        | Refusal::Draining { retry_after }
        | Refusal::Store { retry_after, .. } => least.max(*retry_after),
        Refusal::Invalid(_) => least,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_written_and_read() {
        let place = Place { validity: u32::MAX, uid: 7 };
        assert_eq!(place.to_string().parse(), Ok(place));
        for wrong in ["", "7", "1:x", "1:-2", "1:2:3", "4294967296:1"] {
            assert!(wrong.parse::<Place>().is_err(), "{wrong}");
        }
    }
}
