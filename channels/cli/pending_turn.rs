//! A message whose reply a terminal waits for.

use std::collections::HashSet;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use uuid::Uuid;

use crate::event::SessionEvent;
use crate::inbox::{Acceptance, Inbox, MessageStatus, Reply};
use crate::message::{OutboundMessage, SessionKey};

/// How long one wait for the message's state lasts.
const STATE_WAIT: Duration = Duration::from_secs(60);
/// The pause before the next wait if the last one ended early.
const PAUSE: Duration = Duration::from_millis(200);
/// How long a reply may take to arrive after the end of its turn. After that, the terminal takes the reply from the message's state.
const GRACE: Duration = Duration::from_secs(2);

/// A turn that this terminal started, until its reply is on the screen.
pub(super) struct PendingTurn {
    pub id: Uuid,
    /// The message whose question this message answers.
    asked: Option<Uuid>,
    session: SessionKey,
    ending: Pin<Box<dyn Future<Output = Result<Option<Reply>, WaitFailure>> + Send>>,
    /// The reply of the ended turn, and the time at which it is overdue.
    ended: Option<(Option<Reply>, Instant)>,
    /// The messages shown since the start.
    shown: HashSet<String>,
}

/// The progress of a turn.
pub(super) enum PendingTurnState {
    /// The turn ended; its reply may still arrive.
    Ended,
    /// The reply was not delivered in time.
    Overdue(Reply),
    /// The gateway does not respond and may be gone.
    Away(String),
    /// The gateway does not know the message.
    Lost(String),
}

/// The reason why the terminal cannot wait for the end of a turn.
enum WaitFailure {
    Away(String),
    Unknown,
}

impl PendingTurn {
    /// Creates the pending turn of an accepted message. `asked` is the message whose question this message may answer.
    pub(super) fn new(inbox: Arc<dyn Inbox>, acceptance: Acceptance, asked: Option<Uuid>) -> Self {
        let id = acceptance.id();
        let (Acceptance::Accepted { session, .. } | Acceptance::Duplicate { session, .. }) = acceptance;
        Self { id, asked, session, ending: Box::pin(ending(inbox, id)), ended: None, shown: HashSet::new() }
    }

    pub(super) fn concerns(&self, event: &SessionEvent) -> bool {
        event.session == self.session
    }

    /// Returns true if a message is the reply.
    pub(super) fn is_answered_by(&self, message: &OutboundMessage) -> bool {
        message.in_reply_to.is_some_and(|id| id == self.id || Some(id) == self.asked)
    }

    /// Returns the message that gets the reply.
    pub(super) fn reply_to(&self) -> Uuid {
        self.asked.unwrap_or(self.id)
    }

    /// Returns true if a message comes from a turn of the conversation.
    pub(super) fn is_of_turn(&self, message: &OutboundMessage) -> bool {
        message.session == self.session
    }

    /// Records that a message was shown.
    pub(super) fn note(&mut self, message: &OutboundMessage) {
        if message.session == self.session {
            self.shown.insert(message.content.clone());
        }
    }

    /// Returns true if the turn has ended and its reply, if any, is on the screen.
    pub(super) fn is_over(&self) -> bool {
        match &self.ended {
            Some((Some(reply), _)) => reply.content.trim().is_empty() || self.shown.contains(&reply.content),
            Some((None, _)) => true,
            None => false,
        }
    }

    /// Waits for the next progress; cancel-safe.
    pub(super) async fn progress(&mut self) -> PendingTurnState {
        if let Some((reply, overdue)) = &self.ended {
            tokio::time::sleep_until(*overdue).await;
            return match reply {
                Some(reply) => PendingTurnState::Overdue(reply.clone()),
                None => PendingTurnState::Ended,
            };
        }
        match self.ending.as_mut().await {
            Ok(reply) => {
                self.ended = Some((reply, Instant::now() + GRACE));
                PendingTurnState::Ended
            }
            Err(WaitFailure::Away(reason)) => PendingTurnState::Away(reason),
            Err(WaitFailure::Unknown) => PendingTurnState::Lost("the message is not known any more".to_owned()),
        }
    }

    /// Continues the wait through a gateway that has returned.
    pub(super) fn wait_on(&mut self, inbox: Arc<dyn Inbox>) {
        if self.ended.is_none() {
            self.ending = Box::pin(ending(inbox, self.id));
        }
    }
}

async fn ending(inbox: Arc<dyn Inbox>, mut id: Uuid) -> Result<Option<Reply>, WaitFailure> {
    loop {
        let state = inbox.wait(id, STATE_WAIT).await.map_err(|refusal| WaitFailure::Away(refusal.to_string()))?;
        let state = state.ok_or(WaitFailure::Unknown)?;
        if let Some(asked) = state.continues.filter(|asked| *asked != id) {
            // The message was an answer: the reply belongs to the turn that continues.
            id = asked;
            continue;
        }
        if matches!(state.status, MessageStatus::Done | MessageStatus::Dead) {
            return Ok(state.reply);
        }
        tokio::time::sleep(PAUSE).await;
    }
}
