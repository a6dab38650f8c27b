//! A message whose reply a terminal waits for.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::time::Instant;
use uuid::Uuid;

use crate::event::SessionEvent;
use crate::inbox::{Acceptance, Inbox, MessageState, MessageStatus, Refusal, Reply};
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
    inbox: Arc<dyn Inbox>,
    ending: BoxFuture<'static, Result<Option<MessageState>, Refusal>>,
    /// The reply of the ended turn, and the time at which it is overdue.
    ended: Option<(Option<Reply>, Instant)>,
    /// The messages of the turn that are on the screen.
    shown: HashSet<String>,
}

/// The progress of a turn.
pub(super) enum PendingTurnState {
    /// The message answered a question; the turn that asked it continues.
    Continues,
    /// The turn ended; its reply may still arrive.
    Ended,
    /// The reply was not delivered in time.
    Overdue(Reply),
    /// The gateway does not respond and may be gone.
    Away(String),
    /// The gateway does not know the message.
    Lost(String),
}

impl PendingTurn {
    /// Creates the pending turn of an accepted message. `asked` is the message whose question this message may answer.
    pub(super) fn new(inbox: Arc<dyn Inbox>, acceptance: Acceptance, asked: Option<Uuid>) -> Self {
        let id = acceptance.id();
        let (Acceptance::Accepted { session, .. } | Acceptance::Duplicate { session, .. }) = acceptance;
        let ending = Box::pin(ending(Arc::clone(&inbox), id));
        Self { id, asked, session, inbox, ending, ended: None, shown: HashSet::new() }
    }

    /// Returns true if an event comes from the turn, and not from one that another client started in the same session.
    pub(super) fn concerns(&self, event: &SessionEvent) -> bool {
        self.is_own(event.turn)
    }

    /// Returns true if a message is the reply.
    pub(super) fn is_answered_by(&self, message: &OutboundMessage) -> bool {
        // A turn that joined several messages answers the last of them.
        message.in_reply_to.is_some_and(|id| self.is_own(id) || self.is_own(message.turn))
    }

    /// Returns true if a message is a question of this or another turn of the session.
    pub(super) fn is_asked_by(&self, message: &OutboundMessage) -> bool {
        message.context.is_question && message.session == self.session
    }

    /// Records that a message was shown.
    pub(super) fn note(&mut self, message: &OutboundMessage) {
        if self.is_own(message.turn) || self.is_answered_by(message) {
            self.shown.insert(message.content.clone());
        }
    }

    /// Returns true for the id of a turn or message that belongs to this turn.
    fn is_own(&self, id: Uuid) -> bool {
        id == self.id || Some(id) == self.asked
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
            Ok(Some(MessageState { continues: Some(asked), .. })) => {
                self.asked = Some(asked);
                self.ending = Box::pin(ending(Arc::clone(&self.inbox), asked));
                PendingTurnState::Continues
            }
            Ok(Some(state)) => {
                self.ended = Some((state.reply, Instant::now() + GRACE));
                PendingTurnState::Ended
            }
            Ok(None) => PendingTurnState::Lost("the message is not known any more".to_owned()),
            Err(refusal) => PendingTurnState::Away(refusal.to_string()),
        }
    }

    /// Continues the wait through a gateway that has returned.
    pub(super) fn wait_on(&mut self, inbox: Arc<dyn Inbox>) {
        self.inbox = inbox;
        if self.ended.is_none() {
            self.ending = Box::pin(ending(Arc::clone(&self.inbox), self.id));
        }
    }
}

/// Waits until the message has ended, or until it is known to continue an earlier turn; returns its state, or `None` for an unknown
/// message.
async fn ending(inbox: Arc<dyn Inbox>, id: Uuid) -> Result<Option<MessageState>, Refusal> {
    loop {
        let Some(mut state) = inbox.wait(id, STATE_WAIT).await? else { return Ok(None) };
        // The reply to an answer belongs to the turn that continues.
        state.continues.take_if(|asked| *asked == id);
        if state.continues.is_some() || matches!(state.status, MessageStatus::Done | MessageStatus::Dead) {
            return Ok(Some(state));
        }
        tokio::time::sleep(PAUSE).await;
    }
}
