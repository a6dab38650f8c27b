//! The screens that follow the chats of the channel `cli`.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{oneshot, watch};

use crate::event::SessionEvent;
use crate::message::{OutboundMessage, SessionKey};

/// The channel's name.
pub const NAME: &str = "cli";
/// Set in a message's metadata that every screen is to show, whatever it follows.
pub const FOR_ALL: &str = "all_terminals";
/// How many messages may wait for one screen.
const SCREEN_CAPACITY: usize = 64;
/// How long a screen may take to show a message.
const SHOW_TIMEOUT: Duration = Duration::from_secs(30);

/// One screen that follows a chat of the channel. Detaches when dropped; what it was given and did not show goes back.
pub struct ScreenHandle {
    id: u64,
    chat_id: String,
    session: SessionKey,
    deliveries: async_channel::Receiver<ScreenDelivery>,
    screens: Arc<ScreenHub>,
}

impl ScreenHandle {
    /// What this screen is to show. Each is to be answered with [`ScreenDelivery::shown`].
    pub fn deliveries(&self) -> &async_channel::Receiver<ScreenDelivery> {
        &self.deliveries
    }

    /// Whether `event` belongs on this screen.
    pub fn follows(&self, event: &SessionEvent) -> bool {
        event.chat_id == self.chat_id && event.session == self.session
    }
}

impl Drop for ScreenHandle {
    fn drop(&mut self) {
        self.screens.book().list.retain(|screen| screen.id != self.id);
        self.deliveries.close();
        while self.deliveries.try_recv().is_ok() {}
    }
}

/// A message for one screen. Dropped unshown it counts as not delivered there.
pub struct ScreenDelivery {
    message: OutboundMessage,
    shown: Option<oneshot::Sender<()>>,
}

impl ScreenDelivery {
    pub fn message(&self) -> &OutboundMessage {
        &self.message
    }

    /// The screen shows it.
    pub fn shown(self) {
        if let Some(shown) = self.shown {
            // The sender may have stopped waiting; then nobody needs to know.
            let _ = shown.send(());
        }
    }
}

impl From<OutboundMessage> for ScreenDelivery {
    /// A delivery that nobody waits for, e.g. one that was answered for when it left the gateway.
    fn from(message: OutboundMessage) -> Self {
        Self { message, shown: None }
    }
}

#[derive(Default)]
pub(super) struct ScreenHub {
    book: Mutex<ScreenRegistry>,
    pub arrived: watch::Sender<()>,
}

#[derive(Default)]
pub(super) struct ScreenRegistry {
    pub list: Vec<AttachedScreen>,
    /// How many screens ever came.
    pub arrivals: u64,
    /// How many had come when somebody was last told that nobody is there.
    pub answered_away: u64,
}

pub(super) struct AttachedScreen {
    id: u64,
    chat_id: String,
    session: SessionKey,
    sender: async_channel::Sender<ScreenDelivery>,
}

/// What one screen made of a message, the best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ShowOutcome {
    Shown,
    /// It has it, and has not shown it in time.
    Unclear,
    /// It takes no more.
    Busy,
    Gone,
}

impl ScreenHub {
    pub fn attach(self: &Arc<Self>, chat_id: &str, session: Option<SessionKey>) -> ScreenHandle {
        let (sender, deliveries) = async_channel::bounded(SCREEN_CAPACITY);
        let session = session.unwrap_or_else(|| SessionKey::of_chat(NAME, chat_id));
        let mut book = self.book();
        book.arrivals += 1;
        let id = book.arrivals;
        book.list.push(AttachedScreen { id, chat_id: chat_id.to_owned(), session: session.clone(), sender });
        drop(book);
        self.arrived.send_replace(());
        ScreenHandle { id, chat_id: chat_id.to_owned(), session, deliveries, screens: Arc::clone(self) }
    }

    pub fn book(&self) -> MutexGuard<'_, ScreenRegistry> {
        // Nothing panics while it holds the lock halfway through a change.
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The screens of the message's session; when there is none, all of its chat. What is for all goes to all.
    pub fn of(&self, message: &OutboundMessage) -> Vec<async_channel::Sender<ScreenDelivery>> {
        let book = self.book();
        if message.metadata.get(FOR_ALL).is_some_and(|v| v == true) {
            return book.list.iter().map(|screen| screen.sender.clone()).collect();
        }
        let chat = || book.list.iter().filter(|screen| screen.chat_id == message.chat_id);
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
    // Holding the sender would keep what a closed screen left behind.
    drop(screen);
    match tokio::time::timeout(SHOW_TIMEOUT, shown).await {
        Ok(Ok(())) => ShowOutcome::Shown,
        Ok(Err(_)) => ShowOutcome::Gone,
        Err(_) => ShowOutcome::Unclear,
    }
}
