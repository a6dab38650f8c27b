//! The channel `cli`, which delivers to every screen that follows one of its chats.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use parking_lot::Mutex;
use tokio::sync::watch;

use super::host::{ConversationFeed, TerminalConversation, TerminalHost};
use super::screens::{NAME, ScreenHandle, ScreenHub, ShowOutcome, show};
use super::terminal::{Terminal, TerminalExit, TerminalSetup};
use crate::backoff::RetryTable;
use crate::channel::{Channel, ChannelContext, Receipt, Resend, SendError, StartError};
use crate::event::EventSource;
use crate::finding::Finding;
use crate::message::{OutboundMessage, SessionKey};

/// The waits between attempts for a screen that shows nothing, e.g. one stopped by Ctrl-S.
const RETRY_SECS: [u64; 5] = [5, 30, 300, 1_800, 7_200];

/// The channel `cli`. Its screens are the gateway's own terminal, if it has one, and all attached clients.
pub struct CliChannel {
    screens: Arc<ScreenHub>,
    setup: Mutex<Option<TerminalSetup>>,
    exited: watch::Sender<Option<TerminalExit>>,
    retry: RetryTable,
}

impl CliChannel {
    /// Creates the channel. Without a `setup` it has no terminal of its own; the first start consumes the `setup`.
    pub fn new(setup: Option<TerminalSetup>) -> Self {
        Self {
            screens: Arc::default(),
            setup: Mutex::new(setup),
            exited: watch::Sender::new(None),
            retry: RetryTable::new(RETRY_SECS.map(Duration::from_secs).to_vec()),
        }
    }

    /// Attaches a screen to `chat_id` until the handle is dropped. `session` is the session of messages written there, if
    /// it is not the chat's own.
    pub fn attach(&self, chat_id: &str, session: Option<SessionKey>) -> ScreenHandle {
        self.screens.attach(chat_id, session)
    }

    /// Returns true if at least one screen is attached.
    pub fn is_open(&self) -> bool {
        !self.screens.registry.lock().list.is_empty()
    }

    /// Completes when the user has left the channel's own terminal; returns how the conversation ended.
    pub async fn exited(&self) -> TerminalExit {
        let mut watched = self.exited.subscribe();
        match watched.wait_for(Option::is_some).await.map(|exit| *exit) {
            Ok(Some(exit)) => exit,
            _ => std::future::pending().await,
        }
    }
}

/// The gateway in this process, as the host of its own terminal.
struct InProcessHost {
    screens: Arc<ScreenHub>,
    events: Arc<dyn EventSource>,
}

#[async_trait]
impl TerminalHost for InProcessHost {
    async fn follow(&self, conversation: &TerminalConversation) -> Result<ConversationFeed, StartError> {
        let attachment = self.screens.attach(&conversation.chat_id, conversation.session.clone());
        let deliveries = attachment.deliveries().clone();
        Ok(ConversationFeed { deliveries, events: self.events.subscribe(NAME), attachment: Some(attachment) })
    }
}

#[async_trait]
impl Channel for CliChannel {
    fn name(&self) -> &str {
        NAME
    }

    fn resend(&self) -> Resend {
        Resend::Never
    }

    fn retry(&self) -> &RetryTable {
        &self.retry
    }

    async fn start(&self, context: ChannelContext) -> Result<(), StartError> {
        let setup = self.setup.lock().take();
        let Some(setup) = setup else {
            (context.started)();
            context.shutdown.cancelled().await;
            return Ok(());
        };
        let host = InProcessHost { screens: Arc::clone(&self.screens), events: context.events };
        let following = host.follow(&setup.conversation).await?;
        (context.started)();
        let terminal = Terminal::new(setup, context.inbox, Arc::new(host), following);
        let exit = terminal.run(context.shutdown).await;
        // A broken terminal counts as the end of its input.
        self.exited.send_replace(Some(*exit.as_ref().unwrap_or(&TerminalExit::EndOfInput)));
        if let Err(error) = exit {
            tracing::info!(%error, "the terminal ended");
        }
        Ok(())
    }

    async fn send(&self, message: &OutboundMessage) -> Result<Receipt, SendError> {
        let mut best = ShowOutcome::Gone;
        // Read before the lookup, so that a screen that attaches later makes `wait_for_recipient` complete at once.
        let arrivals = self.screens.registry.lock().arrivals;
        let mut showing: FuturesUnordered<_> =
            self.screens.of(message).into_iter().map(|screen| show(screen, message.clone())).collect();
        // One screen is enough; a second, slow screen must not delay the delivery.
        while let Some(outcome) = showing.next().await {
            best = best.min(outcome);
            if best == ShowOutcome::Shown {
                break;
            }
        }
        match best {
            ShowOutcome::Shown => Ok(Receipt::default()),
            ShowOutcome::Unclear => {
                Err(SendError::Unknown { reason: "the terminal did not say that it showed it".into() })
            }
            ShowOutcome::Busy => {
                Err(SendError::Retry { after: None, reason: "the terminal takes no more at the moment".into() })
            }
            ShowOutcome::Gone if message.context.is_picked_up => Ok(Receipt::default()),
            ShowOutcome::Gone => {
                self.screens.registry.lock().answered_away = arrivals;
                Err(SendError::RecipientAbsent)
            }
        }
    }

    async fn wait_for_recipient(&self) {
        let mut arrived = self.screens.arrived.subscribe();
        loop {
            {
                let mut registry = self.screens.registry.lock();
                if registry.arrivals > registry.answered_away {
                    // Each arrival counts once, so that a looping caller does not spin.
                    registry.answered_away = registry.arrivals;
                    return;
                }
            }
            if arrived.changed().await.is_err() {
                return std::future::pending().await;
            }
        }
    }

    async fn test(&self) -> Vec<Finding> {
        let message = match self.screens.registry.lock().list.len() {
            0 => "no terminal is attached; replies to it wait until one is".to_owned(),
            1 => "1 terminal is attached".to_owned(),
            screens => format!("{screens} terminals are attached"),
        };
        vec![Finding::ok("terminal", message)]
    }
}
