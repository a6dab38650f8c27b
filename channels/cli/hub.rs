//! The channel `cli`: every screen that follows one of its chats.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::sync::{oneshot, watch};

use super::host::{Conversation, Directory, Following, Host, Names};
use super::terminal::{Front, Left, Terminal};
use crate::backoff::RetryTable;
use crate::channel::{Capabilities, Channel, ChannelContext, Receipt, Resend, SendError, StartError};
use crate::event::{EventSource, SessionEvent};
use crate::finding::Finding;
use crate::message::{OutboundMessage, SessionKey};

/// The channel's name.
pub const NAME: &str = "cli";
/// How many messages may wait for one screen.
const SCREEN_CAPACITY: usize = 64;
/// How long a screen may take to show a message.
const SHOW_TIMEOUT: Duration = Duration::from_secs(30);
/// The waits after which a screen that shows nothing (stopped by Ctrl-S) is asked again.
const RETRY_SECS: [u64; 5] = [5, 30, 300, 1_800, 7_200];

/// The channel `cli`. Its screens are the gateway's own terminal, when it has one, and whatever else attaches.
pub struct CliChannel {
    screens: Arc<Screens>,
    front: Mutex<Option<Front>>,
    left: watch::Sender<Option<Left>>,
    retry: RetryTable,
}

impl CliChannel {
    /// Without a `front` the channel has no terminal of its own. It is used up by the first start.
    pub fn new(front: Option<Front>) -> Self {
        Self {
            screens: Arc::default(),
            front: Mutex::new(front),
            left: watch::Sender::new(None),
            retry: RetryTable::new(RETRY_SECS.map(Duration::from_secs).to_vec()),
        }
    }

    /// A new screen on `chat_id`, from now until it is dropped. `session` is that of the messages written there, when
    /// it is not the chat's own.
    pub fn attach(&self, chat_id: &str, session: Option<SessionKey>) -> Attachment {
        self.screens.attach(chat_id, session)
    }

    /// Returns true if a screen is attached.
    pub fn is_open(&self) -> bool {
        !self.screens.book().list.is_empty()
    }

    /// Completes when whoever sat at the channel's own terminal has left, and how.
    pub async fn left(&self) -> Left {
        let mut watched = self.left.subscribe();
        match watched.wait_for(Option::is_some).await.map(|left| *left) {
            Ok(Some(left)) => left,
            _ => std::future::pending().await,
        }
    }
}

/// One screen that follows a chat of the channel. Detaches when dropped; what it was given and did not show goes back.
pub struct Attachment {
    id: u64,
    chat_id: String,
    session: SessionKey,
    deliveries: async_channel::Receiver<Delivery>,
    screens: Arc<Screens>,
}

impl Attachment {
    /// What this screen is to show. Each is to be answered with [`Delivery::shown`].
    pub fn deliveries(&self) -> &async_channel::Receiver<Delivery> {
        &self.deliveries
    }

    /// Whether `event` belongs on this screen.
    pub fn follows(&self, event: &SessionEvent) -> bool {
        event.chat_id == self.chat_id && event.session == self.session
    }
}

impl Drop for Attachment {
    fn drop(&mut self) {
        self.screens.book().list.retain(|screen| screen.id != self.id);
        self.deliveries.close();
        while self.deliveries.try_recv().is_ok() {}
    }
}

/// A message for one screen. Dropped unshown it counts as not delivered there.
pub struct Delivery {
    message: OutboundMessage,
    shown: Option<oneshot::Sender<()>>,
}

impl Delivery {
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

impl From<OutboundMessage> for Delivery {
    /// A delivery that nobody waits for, e.g. one that was answered for when it left the gateway.
    fn from(message: OutboundMessage) -> Self {
        Self { message, shown: None }
    }
}

/// The gateway of this process, as its own terminal sees it.
struct OwnHost {
    screens: Arc<Screens>,
    events: Arc<dyn EventSource>,
    directory: Arc<dyn Directory>,
}

#[async_trait]
impl Directory for OwnHost {
    async fn names(&self) -> Names {
        self.directory.names().await
    }

    async fn model(&self, conversation: &Conversation) -> Result<String, String> {
        self.directory.model(conversation).await
    }
}

#[async_trait]
impl Host for OwnHost {
    async fn follow(&self, conversation: &Conversation) -> Result<Following, StartError> {
        let attachment = self.screens.attach(&conversation.chat_id, conversation.session.clone());
        let deliveries = attachment.deliveries().clone();
        Ok(Following { deliveries, events: self.events.subscribe(NAME), attachment: Some(attachment) })
    }
}

#[derive(Default)]
struct Screens {
    book: Mutex<Book>,
    arrived: watch::Sender<()>,
}

#[derive(Default)]
struct Book {
    list: Vec<Screen>,
    /// How many screens ever came.
    arrivals: u64,
    /// How many had come when somebody was last told that nobody is there.
    answered_away: u64,
}

struct Screen {
    id: u64,
    chat_id: String,
    session: SessionKey,
    sender: async_channel::Sender<Delivery>,
}

/// What one screen made of a message, the best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Outcome {
    Shown,
    /// It has it, and has not shown it in time.
    Unclear,
    /// It takes no more.
    Busy,
    Gone,
}

impl Screens {
    fn attach(self: &Arc<Self>, chat_id: &str, session: Option<SessionKey>) -> Attachment {
        let (sender, deliveries) = async_channel::bounded(SCREEN_CAPACITY);
        let session = session.unwrap_or_else(|| SessionKey::of_chat(NAME, chat_id));
        let mut book = self.book();
        book.arrivals += 1;
        let id = book.arrivals;
        book.list.push(Screen { id, chat_id: chat_id.to_owned(), session: session.clone(), sender });
        drop(book);
        self.arrived.send_replace(());
        Attachment { id, chat_id: chat_id.to_owned(), session, deliveries, screens: Arc::clone(self) }
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        // Nothing panics while it holds the lock halfway through a change.
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The screens of the message's session; when there is none, all of its chat. What is for all goes to all.
    fn of(&self, message: &OutboundMessage) -> Vec<async_channel::Sender<Delivery>> {
        let book = self.book();
        if message.context.is_for_all_terminals {
            return book.list.iter().map(|screen| screen.sender.clone()).collect();
        }
        let chat = || book.list.iter().filter(|screen| screen.chat_id == message.chat_id);
        let session: Vec<_> = chat().filter(|s| s.session == message.session).map(|s| s.sender.clone()).collect();
        if session.is_empty() { chat().map(|s| s.sender.clone()).collect() } else { session }
    }
}

async fn show(screen: async_channel::Sender<Delivery>, message: OutboundMessage) -> Outcome {
    let (sender, shown) = oneshot::channel();
    match screen.try_send(Delivery { message, shown: Some(sender) }) {
        Ok(()) => {}
        Err(async_channel::TrySendError::Full(_)) => return Outcome::Busy,
        Err(async_channel::TrySendError::Closed(_)) => return Outcome::Gone,
    }
    // Holding the sender would keep what a closed screen left behind.
    drop(screen);
    match tokio::time::timeout(SHOW_TIMEOUT, shown).await {
        Ok(Ok(())) => Outcome::Shown,
        Ok(Err(_)) => Outcome::Gone,
        Err(_) => Outcome::Unclear,
    }
}

#[async_trait]
impl Channel for CliChannel {
    fn name(&self) -> &str {
        NAME
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { streaming: true, resend: Resend::Never }
    }

    fn retry(&self) -> &RetryTable {
        &self.retry
    }

    async fn start(&self, context: ChannelContext) -> Result<(), StartError> {
        let front = self.front.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(front) = front else {
            (context.started)();
            context.shutdown.cancelled().await;
            return Ok(());
        };
        let directory = Arc::clone(&front.directory);
        let host = OwnHost { screens: Arc::clone(&self.screens), events: context.events, directory };
        let following = host.follow(&front.conversation).await?;
        (context.started)();
        let terminal = Terminal::new(front, context.inbox, Arc::new(host), following);
        let left = terminal.run(context.shutdown).await;
        // With its terminal broken nobody sits there any more.
        self.left.send_replace(Some(*left.as_ref().unwrap_or(&Left::EndOfInput)));
        left.map(|_| ())
    }

    async fn send(&self, message: &OutboundMessage) -> Result<Receipt, SendError> {
        let mut best = Outcome::Gone;
        // Counted before the lookup: a screen that comes after it makes `present` complete at once.
        let arrivals = self.screens.book().arrivals;
        let mut showing: FuturesUnordered<_> =
            self.screens.of(message).into_iter().map(|screen| show(screen, message.clone())).collect();
        // One screen is enough; a second one that is slow holds nobody up.
        while let Some(outcome) = showing.next().await {
            best = best.min(outcome);
            if best == Outcome::Shown {
                break;
            }
        }
        match best {
            Outcome::Shown => Ok(Receipt::default()),
            Outcome::Unclear => Err(SendError::Unknown { reason: "the terminal did not say that it showed it".into() }),
            Outcome::Busy => {
                Err(SendError::Retry { after: None, reason: "the terminal takes no more at the moment".into() })
            }
            Outcome::Gone if message.context.is_picked_up => Ok(Receipt::default()),
            Outcome::Gone => {
                self.screens.book().answered_away = arrivals;
                Err(SendError::Away)
            }
        }
    }

    async fn present(&self) {
        let mut arrived = self.screens.arrived.subscribe();
        loop {
            {
                let mut book = self.screens.book();
                if book.arrivals > book.answered_away {
                    // Each arrival counts once, so that a caller in a loop does not spin.
                    book.answered_away = book.arrivals;
                    return;
                }
            }
            if arrived.changed().await.is_err() {
                return std::future::pending().await;
            }
        }
    }

    async fn test(&self) -> Vec<Finding> {
        let message = match self.screens.book().list.len() {
            0 => "no terminal is attached; replies to it wait until one is".to_owned(),
            1 => "1 terminal is attached".to_owned(),
            screens => format!("{screens} terminals are attached"),
        };
        vec![Finding::ok("terminal", message)]
    }
}
