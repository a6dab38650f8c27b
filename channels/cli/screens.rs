//! The screens that follow the chats of the channel `cli`.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{oneshot, watch};

use crate::event::SessionEvent;
use crate::message::{OutboundMessage, SessionKey};

/// The channel's name.
pub const NAME: &str = "cli";
/// The maximum number of messages that wait for one screen.
const SCREEN_CAPACITY: usize = 64;
/// The time within which a screen must show a message.
const SHOW_TIMEOUT: Duration = Duration::from_secs(30);

/// A screen that follows a chat of the channel. Dropping the handle detaches the screen and returns the messages that it did not show.
pub struct ScreenHandle {
    id: u64,
    chat_id: String,
    session: SessionKey,
    deliveries: async_channel::Receiver<ScreenDelivery>,
    screens: Arc<ScreenHub>,
}

impl ScreenHandle {
    /// Returns the queue of messages for this screen. The screen must confirm each with [`ScreenDelivery::shown`].
    pub fn deliveries(&self) -> &async_channel::Receiver<ScreenDelivery> {
        &self.deliveries
    }

    /// Returns true if `event` belongs to this screen's conversation.
    pub fn follows(&self, event: &SessionEvent) -> bool {
        event.chat_id == self.chat_id && event.session == self.session
    }
}

impl Drop for ScreenHandle {
    fn drop(&mut self) {
        self.screens.registry.lock().list.retain(|screen| screen.id != self.id);
        self.deliveries.close();
        while self.deliveries.try_recv().is_ok() {}
    }
}

/// A message for one screen. Dropping it without a confirmation counts as not delivered there.
pub struct ScreenDelivery {
    message: OutboundMessage,
    shown: Option<oneshot::Sender<()>>,
}

impl ScreenDelivery {
    pub fn message(&self) -> &OutboundMessage {
        &self.message
    }

    /// Confirms that the screen shows the message.
    pub fn shown(self) {
        if let Some(shown) = self.shown {
            // The sender may have stopped waiting.
            let _ = shown.send(());
        }
    }
}

impl From<OutboundMessage> for ScreenDelivery {
    /// Creates a delivery that needs no confirmation, e.g. because it was confirmed when it left the gateway.
    fn from(message: OutboundMessage) -> Self {
        Self { message, shown: None }
    }
}

#[derive(Default)]
pub(super) struct ScreenHub {
    pub registry: Mutex<ScreenRegistry>,
    pub arrived: watch::Sender<()>,
}

#[derive(Default)]
pub(super) struct ScreenRegistry {
    pub list: Vec<AttachedScreen>,
    /// The number of times that a screen attached.
    pub arrivals: u64,
    /// The value of `arrivals` when a delivery last ended with `RecipientAbsent`.
    pub answered_away: u64,
}

pub(super) struct AttachedScreen {
    id: u64,
    chat_id: String,
    session: SessionKey,
    sender: async_channel::Sender<ScreenDelivery>,
}

/// The outcome of a message on one screen, the best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ShowOutcome {
    Shown,
    /// The screen has the message but did not show it in time.
    Unclear,
    /// The screen's queue is full.
    Busy,
    Gone,
}

impl ScreenHub {
    pub fn attach(self: &Arc<Self>, chat_id: &str, session: Option<SessionKey>) -> ScreenHandle {
        let (sender, deliveries) = async_channel::bounded(SCREEN_CAPACITY);
        let session = session.unwrap_or_else(|| SessionKey::of_chat(NAME, chat_id));
        let mut registry = self.registry.lock();
        registry.arrivals += 1;
        let id = registry.arrivals;
        registry.list.push(AttachedScreen { id, chat_id: chat_id.to_owned(), session: session.clone(), sender });
        drop(registry);
        self.arrived.send_replace(());
        ScreenHandle { id, chat_id: chat_id.to_owned(), session, deliveries, screens: Arc::clone(self) }
    }

    /// Returns the screens of the message's session, or else all screens of its chat. A message for all terminals goes to all.
    pub fn of(&self, message: &OutboundMessage) -> Vec<async_channel::Sender<ScreenDelivery>> {
        let registry = self.registry.lock();
        if message.context.is_for_all_terminals {
            return registry.list.iter().map(|screen| screen.sender.clone()).collect();
        }
        let chat = || registry.list.iter().filter(|screen| screen.chat_id == message.chat_id);
        let session: Vec<_> = chat().filter(|s| s.session == message.session).map(|s| s.sender.clone()).collect();
        if session.is_empty() { chat().map(|s| s.sender.clone()).collect() } else { session }
    }
}

pub(super) async fn show(screen: async_channel::Sender<ScreenDelivery>, message: OutboundMessage) -> ShowOutcome {
    let (sender, shown) = oneshot::channel();
    match screen.try_send(ScreenDelivery { message, shown: Some(sender) }) {
        Ok(()) => {}
        Err(async_channel::TrySendError::Full(_)) => return ShowOutcome::Busy,
        Err(async_channel::TrySendError::Closed(_)) => return ShowOutcome::Gone,
    }
    // A held sender would keep the messages of a closed screen.
    drop(screen);
    match tokio::time::timeout(SHOW_TIMEOUT, shown).await {
        Ok(Ok(())) => ShowOutcome::Shown,
        Ok(Err(_)) => ShowOutcome::Gone,
        Err(_) => ShowOutcome::Unclear,
    }
}
