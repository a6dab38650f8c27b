//! Watches one mailbox on a separate thread while the channel runs.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::error::ImapError;
use super::reader::{BlockingContext, MAX_LOSSES, MailboxReader, ReportState};
use super::session::{ImapSession, SelectedMailbox};
use super::settings::WatchSettings;
use super::stream::ConnectionCloser;
use crate::backoff::{Backoff, jittered};
use crate::channel::StartError;
use crate::email::account::Account;
use crate::email::config::DoneAction;
use crate::email::mail::Intake;
use crate::inbox::Inbox;

/// The time limit for the thread to stop, in which it finishes the current mail.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);
/// The lifetime from which a connection counts as stable, which resets the failure counts.
const STABLE: Duration = Duration::from_secs(60);
/// The number of consecutive connections that do not open the mailbox, after which the watch fails visibly.
const MAX_CLOSED: u32 = 5;
/// The number of consecutive connections that open the mailbox and are lost soon, after which the watch fails visibly. It
/// exceeds the losses of one mail, because only the reader that counted them skips that mail.
const MAX_SHORT: u32 = MAX_LOSSES + 5;
/// The longest interval between checks of the connection if the server does not support IDLE.
const MAX_POLL_WAIT: Duration = Duration::from_secs(45);

/// Reads a mailbox until `shutdown` and reconnects if the connection is lost. `report` learns when the mailbox is open.
///
/// # Errors
/// The first connection failed, a login was refused, or too many consecutive connections failed. The supervisor shows the
/// error and retries.
pub async fn watch(
    account: Arc<Account>,
    settings: WatchSettings,
    intake: Arc<dyn Intake>,
    inbox: Arc<dyn Inbox>,
    shutdown: CancellationToken,
    report: ReportState,
) -> Result<(), StartError> {
    let closer = ConnectionCloser::default();
    let stop = shutdown.child_token();
    // Stops the thread even if this future is dropped.
    let _stop_on_drop = StopOnDrop { stop: stop.clone(), closer: closer.clone() };
    let mailbox = settings.mailbox.clone();
    let context = BlockingContext { handle: Handle::current(), stop: stop.clone() };
    let reader = MailboxReader::new(settings, intake, inbox, context, report);
    let watcher = MailboxWatcher { account, reader, closer: closer.clone(), opened: 0 };
    let (ended, mut end) = oneshot::channel();
    thread::Builder::new()
        .name("imap".to_owned())
        // Sending fails only if the receiver was dropped.
        .spawn(move || drop(ended.send(watcher.run())))
        .map_err(|error| StartError(format!("no thread for {mailbox}: {error}")))?;
    tokio::select! {
        result = &mut end => result.unwrap_or_else(|_| Err(StartError(format!("the thread that reads {mailbox} panicked")))),
        () = stop.cancelled() => {
            closer.close();
            // If the thread does not stop in time, the next start completes its work.
            let _ = tokio::time::timeout(STOP_TIMEOUT, end).await;
            Ok(())
        }
    }
}

struct StopOnDrop {
    stop: CancellationToken,
    closer: ConnectionCloser,
}

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.stop.cancel();
        self.closer.close();
    }
}

struct MailboxWatcher {
    account: Arc<Account>,
    reader: MailboxReader,
    closer: ConnectionCloser,
    /// The number of times that the mailbox was opened.
    opened: u64,
}

/// The consecutive failed connections.
#[derive(Default)]
struct FailedConnections {
    /// Connections that did not open the mailbox.
    closed: u32,
    /// Connections that opened the mailbox and were lost soon after.
    short: u32,
}

impl FailedConnections {
    /// Counts one more connection. Returns true if the limit is reached.
    fn count(&mut self, was_opened: bool, lasted: Duration) -> bool {
        if was_opened && lasted >= STABLE {
            *self = Self::default();
            return false;
        }
        if was_opened {
            self.closed = 0;
            self.short += 1;
        } else {
            self.closed += 1;
        }
        self.closed >= MAX_CLOSED || self.short >= MAX_SHORT
    }
}

impl MailboxWatcher {
    fn run(mut self) -> Result<(), StartError> {
        let (first, longest) = self.reader.settings.timings.reconnect;
        let mut backoff = Backoff::new(first, longest);
        let mut failed = FailedConnections::default();
        let began = Timestamp::now();
        if let Err(error) = self.reader.begin(began) {
            // The store fails only when the channel stops.
            tracing::warn!(mailbox = %self.reader.settings.mailbox, "the time of the start could not be stored: {error}");
            return Ok(());
        }
        loop {
            let (since, before) = (Instant::now(), self.opened);
            let end = self.run_connection();
            let Err(error) = end else { return Ok(()) };
            if self.reader.is_stopping() {
                return Ok(());
            }
            let server = &self.account.imap;
            let description =
                format!("IMAP {}:{}, {}: {error}", server.host, server.port, self.reader.settings.mailbox);
            let is_limit_reached = failed.count(self.opened > before, since.elapsed());
            if is_limit_reached || self.opened == 0 || matches!(error, ImapError::Login(_)) {
                return Err(StartError(description));
            }
            if since.elapsed() >= STABLE {
                backoff.reset();
            }
            if self.opened == before {
                self.reader.report(Err(description.clone()));
            }
            let wait = jittered(backoff.next_wait());
            tracing::warn!(seconds = wait.as_secs(), "{description}; reconnecting");
            self.reader.context.pause(wait);
        }
    }

    /// Runs one connection until it ends.
    fn run_connection(&mut self) -> Result<(), ImapError> {
        let silence = self.reader.settings.timings.silence;
        let mut session = ImapSession::connect(&self.account, &self.reader.context.handle, silence, &self.closer)?;
        let selected = session.select(&self.reader.settings.mailbox).map_err(|error| match error {
            ImapError::Rejected(reason) => ImapError::Rejected(format!("the mailbox cannot be opened: {reason}")),
            other => other,
        })?;
        self.opened += 1;
        self.reader.report(Ok(()));
        self.reader.read(&mut session, selected)
    }
}

impl MailboxReader {
    /// Reads existing and arriving mails until the stop signal or the loss of the connection.
    ///
    /// # Errors
    /// The connection is unusable.
    fn read(&mut self, session: &mut ImapSession, selected: SelectedMailbox) -> Result<(), ImapError> {
        if selected.read_only && self.settings.done != DoneAction::Keep {
            let mailbox = &self.settings.mailbox;
            tracing::warn!(%mailbox, "the mailbox is read-only: accepted mails cannot be marked");
        }
        let scan = self.resume(session, selected)?;
        self.recover_marks(session)?;
        self.mark_pending(session)?;
        if let Some(scan) = scan {
            self.catch_up(session, &scan)?;
        }
        let mut is_announced = false;
        while !self.is_stopping() {
            session.take_new_mail();
            let from = self.position.uid;
            // `*` is the last mail, even if its UID is smaller (RFC 3501, section 6.4.8).
            for uid in session.search(&format!("UID {}:*", from.saturating_add(1)))? {
                if uid > self.position.uid && !self.is_stopping() {
                    self.offer(session, uid, None)?;
                }
            }
            if is_announced && self.position.uid == from {
                // A server that keeps announcing mail that does not exist must not cause searches without a pause.
                self.context.pause(self.settings.timings.retry.0);
            }
            if !self.is_stopping() {
                is_announced = session.take_new_mail() || self.wait_for_mail(session)?;
            }
        }
        Ok(())
    }

    /// Waits until there may be new mail. Returns true if the server announced some.
    fn wait_for_mail(&mut self, session: &mut ImapSession) -> Result<bool, ImapError> {
        let timings = self.settings.timings;
        if self.supports_idle && session.supports("IDLE") {
            match session.idle(timings.idle_silence, timings.longest_idle, timings.idle_answer) {
                Ok(is_announced) => return Ok(is_announced),
                Err(ImapError::Rejected(reason)) => {
                    let mailbox = &self.settings.mailbox;
                    tracing::warn!(%mailbox, "the server refused IDLE and is polled instead: {reason}");
                    self.supports_idle = false;
                }
                Err(error) => return Err(error),
            }
        }
        let end = Instant::now() + self.settings.poll_interval;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            self.context.pause(left.min(MAX_POLL_WAIT));
            if self.is_stopping() || left <= MAX_POLL_WAIT {
                return Ok(false);
            }
            session.noop()?;
            if session.take_new_mail() {
                return Ok(true);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_connections_are_counted_until_a_stable_one() {
        let (moment, long) = (Duration::from_secs(1), STABLE);
        let counts = |ends: &[(bool, Duration, u32)]| {
            let mut failed = FailedConnections::default();
            let mut ends = ends.iter().flat_map(|(opened, lasted, times)| (0..*times).map(move |_| (*opened, *lasted)));
            ends.by_ref().position(|(opened, lasted)| failed.count(opened, lasted)).map(|at| at + 1)
        };
        for (what, ends, expected) in [
            ("never opened", &[(false, moment, 9_u32)] as &[_], Some(5)),
            ("a server that never answers", &[(false, long, 9)], Some(5)),
            ("opened between", &[(false, moment, 4), (true, moment, 1), (false, moment, 9)], Some(10)),
            ("a mail that breaks each connection is passed over first", &[(true, moment, MAX_LOSSES)], None),
            ("opened and lost each time", &[(true, moment, 99)], Some(15)),
            ("a good one", &[(false, moment, 4), (true, moment, 14), (true, long, 1), (false, moment, 4)], None),
        ] {
            assert_eq!(counts(ends), expected, "{what}");
        }
    }
}
