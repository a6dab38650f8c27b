//! One mailbox, read by a thread of its own for as long as the channel runs.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::enter::enter;
use super::reader::{Reader, Rest};
use super::settings::WatchSettings;
use super::trouble::Trouble;
use super::wire::Closer;
use crate::backoff::Backoff;
use crate::channel::StartError;
use crate::email::account::Account;
use crate::email::source::Intake;
use crate::inbox::Inbox;

/// How long the thread has to end when it is told to: a mail that is just being taken is taken to its end.
const GRACE: Duration = Duration::from_secs(5);
/// A connection that lasted so long was a good one: the next failure is a new one.
const GOOD: Duration = Duration::from_secs(60);

/// Reads a mailbox until `shutdown`, and connects anew where the connection is lost. `started` is called when the mailbox
/// was opened for the first time.
///
/// # Errors
/// The first connection failed, or a login was refused.
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
    let watcher = Watcher { account, reader, closer: closer.clone(), stop: stop.clone(), started, opened: false };
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
    /// The mailbox was opened once.
    opened: bool,
}

impl Watcher {
    fn run(mut self) -> Result<(), StartError> {
        let (first, longest) = self.reader.settings.pace.reconnect;
        let mut backoff = Backoff::new(first, longest);
        loop {
            let since = Instant::now();
            let end = self.connection();
            if self.stop.is_cancelled() {
                return Ok(());
            }
            let Err(trouble) = end else { return Ok(()) };
            let server = &self.account.imap;
            let what = format!("IMAP {}:{}, {}: {trouble}", server.host, server.port, self.reader.settings.mailbox);
            if !self.opened || matches!(trouble, Trouble::Login(_)) {
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
        if !std::mem::replace(&mut self.opened, true) {
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
