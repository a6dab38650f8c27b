//! One mailbox, read by a thread of its own for as long as the channel runs.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::enter::enter;
use super::error::Trouble;
use super::reader::{MOST_LOSSES, Reader, Rest};
use super::settings::WatchSettings;
use super::stream::Closer;
use crate::backoff::Backoff;
use crate::channel::StartError;
use crate::email::account::Account;
use crate::email::source::Intake;
use crate::inbox::Inbox;

/// How long the thread has to end when it is told to: a mail that is just being taken is taken to its end.
const GRACE: Duration = Duration::from_secs(5);
/// A connection that lasted so long was a good one: the next failure is a new one.
const GOOD: Duration = Duration::from_secs(60);
/// After so many connections in a row that did not even open the mailbox the account is not read, and that is to be seen.
const MOST_CLOSED: u32 = 5;
/// The same for those that opened it and were lost soon. More than a single mail is given, which only the reader that
/// counted passes over.
const MOST_SHORT: u32 = MOST_LOSSES + 5;

/// Reads a mailbox until `shutdown`, and connects anew where the connection is lost. `started` is called when the mailbox
/// was opened for the first time.
///
/// # Errors
/// The first connection failed, a login was refused, or one connection after the other fails: then whoever supervises
/// shows it, and tries again.
pub async fn watch(
    account: Arc<Account>,
    settings: WatchSettings,
    intake: Arc<dyn Intake>,
    inbox: Arc<dyn Inbox>,
    shutdown: CancellationToken,
    started: Arc<dyn Fn() + Send + Sync>,
) -> Result<(), StartError> {
    let closer = Closer::default();
    let stop = shutdown.child_token();
    // Also where this future is dropped: nobody else ends the thread.
    let _ending = Ending { stop: stop.clone(), closer: closer.clone() };
    let mailbox = settings.mailbox.clone();
    let rest = Rest { handle: Handle::current(), stop: stop.clone() };
    let reader = Reader::new(settings, intake, inbox, rest);
    let watcher = Watcher { account, reader, closer: closer.clone(), stop: stop.clone(), started, opened: 0 };
    let (ended, mut end) = oneshot::channel();
    thread::Builder::new()
        .name("imap".to_owned())
        // Whoever is gone wants to know nothing.
        .spawn(move || drop(ended.send(watcher.run())))
        .map_err(|error| StartError(format!("no thread for {mailbox}: {error}")))?;
    tokio::select! {
        result = &mut end => result.unwrap_or_else(|_| Err(StartError(format!("reading {mailbox} stopped by a fault")))),
        () = stop.cancelled() => {
            closer.close();
            // What it did not finish it does at the next start.
            let _ = tokio::time::timeout(GRACE, end).await;
            Ok(())
        }
    }
}

struct Ending {
    stop: CancellationToken,
    closer: Closer,
}

impl Drop for Ending {
    fn drop(&mut self) {
        self.stop.cancel();
        self.closer.close();
    }
}

struct Watcher {
    account: Arc<Account>,
    reader: Reader,
    closer: Closer,
    stop: CancellationToken,
    started: Arc<dyn Fn() + Send + Sync>,
    /// How often the mailbox was opened.
    opened: u64,
}

/// Connections in a row that were of no use.
#[derive(Default)]
struct Vain {
    closed: u32,
    short: u32,
}

impl Vain {
    /// One more connection ended; whether that is enough.
    fn count(&mut self, was_opened: bool, lasted: Duration) -> bool {
        if was_opened && lasted >= GOOD {
            *self = Self::default();
            return false;
        }
        if was_opened {
            self.closed = 0;
            self.short += 1;
        } else {
            self.closed += 1;
        }
        self.closed >= MOST_CLOSED || self.short >= MOST_SHORT
    }
}

impl Watcher {
    fn run(mut self) -> Result<(), StartError> {
        let (first, longest) = self.reader.settings.pace.reconnect;
        let mut backoff = Backoff::new(first, longest);
        let mut vain = Vain::default();
        let began = Timestamp::now();
        loop {
            let (since, before) = (Instant::now(), self.opened);
            let end = self.connection();
            if self.stop.is_cancelled() {
                return Ok(());
            }
            let Err(trouble) = end else { return Ok(()) };
            let server = &self.account.imap;
            let what = format!("IMAP {}:{}, {}: {trouble}", server.host, server.port, self.reader.settings.mailbox);
            let is_enough = vain.count(self.opened > before, since.elapsed());
            if self.opened == 0 {
                self.reader.note_first_start(began);
            }
            if is_enough || self.opened == 0 || matches!(trouble, Trouble::Login(_)) {
                return Err(StartError(what));
            }
            if since.elapsed() >= GOOD {
                backoff.reset();
            }
            let wait = jittered(backoff.next_wait());
            tracing::warn!(seconds = wait.as_secs(), "{what}; connecting again");
            self.reader.rest.rest(wait);
        }
    }

    /// One connection, from its beginning to its end.
    fn connection(&mut self) -> Result<(), Trouble> {
        let silence = self.reader.settings.pace.silence;
        let mut link = enter(&self.account, &self.reader.rest.handle, silence, &self.closer)?;
        let opened = link.select(&self.reader.settings.mailbox).map_err(|trouble| match trouble {
            Trouble::Denied(said) => Trouble::Denied(format!("the mailbox cannot be opened: {said}")),
            other => other,
        })?;
        self.opened += 1;
        if self.opened == 1 {
            (self.started)();
        }
        self.reader.read(&mut link, opened)
    }
}

/// Between half of `wait` and all of it: so that not everybody whom a server lost comes back in the same moment.
fn jittered(wait: Duration) -> Duration {
    let chance = f64::from(Uuid::new_v4().as_bytes()[0]) / 255.0;
    wait.mul_f64(0.5 + chance / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_in_vain_are_counted_until_a_good_one() {
        let (moment, long) = (Duration::from_secs(1), GOOD);
        let counts = |ends: &[(bool, Duration, u32)]| {
            let mut vain = Vain::default();
            let mut ends = ends.iter().flat_map(|(opened, lasted, times)| (0..*times).map(move |_| (*opened, *lasted)));
            ends.by_ref().position(|(opened, lasted)| vain.count(opened, lasted)).map(|at| at + 1)
        };
        for (what, ends, expected) in [
            ("never opened", &[(false, moment, 9_u32)] as &[_], Some(5)),
            ("a server that only hangs", &[(false, long, 9)], Some(5)),
            ("opened between", &[(false, moment, 4), (true, moment, 1), (false, moment, 9)], Some(10)),
            ("a mail that breaks each connection is passed over first", &[(true, moment, MOST_LOSSES)], None),
            ("opened and lost for ever", &[(true, moment, 99)], Some(15)),
            ("a good one", &[(false, moment, 4), (true, moment, 14), (true, long, 1), (false, moment, 4)], None),
        ] {
            assert_eq!(counts(ends), expected, "{what}");
        }
    }
}
