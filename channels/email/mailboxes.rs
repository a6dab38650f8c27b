//! Watches all mailboxes of the account. A mailbox that cannot be read does not stop the others.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::task::JoinSet;

use super::account::Account;
use super::imap::{self, ReportState, WatchSettings};
use super::mail::Intake;
use crate::backoff::{Backoff, jittered};
use crate::channel::{ChannelContext, StartError};

/// The first and the longest wait before a mailbox that failed is watched again.
const RETRY: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(30 * 60));

/// The states of all mailboxes, from which the state of the channel follows.
struct MailboxStates {
    /// The state that each mailbox reported last.
    states: Mutex<Vec<Option<Result<(), String>>>>,
    context: ChannelContext,
}

impl MailboxStates {
    fn new(mailboxes: usize, context: ChannelContext) -> Self {
        Self { states: Mutex::new(vec![None; mailboxes]), context }
    }

    /// Records the state of a mailbox. The channel has started when each mailbox was tried and one is read.
    fn record(&self, mailbox: usize, state: Result<(), String>) {
        let mut states = self.states.lock();
        let is_complete = |states: &[Option<Result<(), String>>]| states.iter().all(Option::is_some);
        let fault = |states: &[Option<Result<(), String>>]| {
            states.iter().flatten().find_map(|state| state.as_ref().err().cloned())
        };
        let (was_complete, before) = (is_complete(&states), fault(&states));
        states[mailbox] = Some(state);
        let now = fault(&states);
        if !was_complete && is_complete(&states) && states.iter().flatten().any(Result::is_ok) {
            (self.context.started)();
            if now.is_some() {
                (self.context.impaired)(now);
            }
        } else if was_complete && now != before {
            (self.context.impaired)(now);
        }
    }

    fn is_read(&self, mailbox: usize) -> bool {
        self.states.lock()[mailbox] == Some(Ok(()))
    }

    fn is_none_read(&self) -> bool {
        self.states.lock().iter().all(|state| matches!(state, Some(Err(_))))
    }
}

/// Reads the mailboxes until the shutdown. A mailbox whose watch fails is watched again later.
///
/// # Errors
/// No mailbox can be read. The supervisor shows the error and retries.
pub async fn watch_mailboxes(
    account: Arc<Account>,
    mailboxes: Vec<WatchSettings>,
    intake: Arc<dyn Intake>,
    context: ChannelContext,
) -> Result<(), StartError> {
    let ended = context.shutdown.child_token();
    let inbox = context.inbox.clone();
    let states = Arc::new(MailboxStates::new(mailboxes.len(), context));
    let watch = |mailbox: usize, wait: Duration| {
        let (account, settings, ended) = (account.clone(), mailboxes[mailbox].clone(), ended.clone());
        let (intake, inbox, states) = (intake.clone(), inbox.clone(), states.clone());
        let report: ReportState = Arc::new(move |state| states.record(mailbox, state));
        async move {
            // The channel may end during the wait.
            if tokio::time::timeout(wait, ended.cancelled()).await.is_ok() {
                (mailbox, Ok(()))
            } else {
                (mailbox, imap::watch(account, settings, intake, inbox, ended, report).await)
            }
        }
    };
    let mut backoffs = vec![Backoff::new(RETRY.0, RETRY.1); mailboxes.len()];
    let mut watches = JoinSet::new();
    for mailbox in 0..mailboxes.len() {
        watches.spawn(watch(mailbox, Duration::ZERO));
    }
    let mut outcome = Ok(());
    while let Some(watched) = watches.join_next().await {
        let (mailbox, error) = match watched {
            Ok((_, Ok(()))) => continue,
            Ok((mailbox, Err(error))) => (mailbox, error),
            Err(error) => {
                ended.cancel();
                outcome = outcome.and(Err(StartError(error.to_string())));
                continue;
            }
        };
        if states.is_read(mailbox) {
            backoffs[mailbox].reset();
        }
        states.record(mailbox, Err(error.to_string()));
        if ended.is_cancelled() || states.is_none_read() {
            ended.cancel();
            outcome = outcome.and(Err(error));
        } else {
            let wait = jittered(backoffs[mailbox].next_wait());
            tracing::warn!(seconds = wait.as_secs(), "a mailbox is not read, the others are: {error}");
            watches.spawn(watch(mailbox, wait));
        }
    }
    outcome
}

#[cfg(test)]
mod tests {
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::conformance::{ScriptedAnswer, ScriptedInbox};

    #[test]
    fn the_channel_starts_with_one_mailbox_and_reports_the_others() {
        let calls = Arc::new(Mutex::new(Vec::new()));
        let inbox = ScriptedInbox::new(|_| ScriptedAnswer::Hold);
        let (started, impaired) = (calls.clone(), calls.clone());
        let context = ChannelContext {
            inbox: inbox.clone(),
            events: inbox,
            shutdown: CancellationToken::new(),
            started: Arc::new(move || started.lock().push("started".to_owned())),
            impaired: Arc::new(move |reason| impaired.lock().push(reason.unwrap_or_else(|| "well".to_owned()))),
        };
        let states = MailboxStates::new(2, context);
        let fails = |reason: &str| Err(reason.to_owned());
        for (mailbox, state, expected, is_none_read) in [
            (0, Ok(()), &[] as &[&str], false),
            (1, fails("no Projects"), &["started", "no Projects"], false),
            (1, fails("no Projects"), &[], false),
            (0, fails("no INBOX"), &["no INBOX"], true),
            (0, Ok(()), &["no Projects"], false),
            (1, Ok(()), &["well"], false),
        ] {
            states.record(mailbox, state.clone());
            assert_eq!(std::mem::take(&mut *calls.lock()), expected, "{mailbox} {state:?}");
            assert_eq!(states.is_none_read(), is_none_read, "{mailbox} {state:?}");
        }
    }
}
