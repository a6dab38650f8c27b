//! The trait that every channel implements. Receiving (`start`) and sending are separate: one may work while the other
//! fails.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use tokio_util::sync::CancellationToken;

use crate::backoff::RetryTable;
use crate::event::EventSource;
use crate::finding::Finding;
use crate::inbox::{Inbox, Refusal};
use crate::message::OutboundMessage;

/// What follows for a message whose delivery was interrupted, so that its arrival is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resend {
    /// Send again under the same id: the receiver knows our ids and drops a second copy.
    SameId,
    /// Send again, although the receiver may show it twice.
    Again,
    /// Do not send again.
    Never,
}

/// The capabilities of a channel.
#[derive(Clone, Copy, Debug)]
pub struct Capabilities {
    /// The channel shows turns while they run, and subscribes to their events.
    pub streaming: bool,
    pub resend: Resend,
}

/// The inputs of [`Channel::start`].
#[derive(Clone)]
pub struct ChannelContext {
    pub inbox: Arc<dyn Inbox>,
    pub events: Arc<dyn EventSource>,
    /// Cancelled when the channel must stop receiving.
    pub shutdown: CancellationToken,
    /// The channel calls it when it receives (connected, logged in); it resets the supervisor's backoff.
    pub started: Arc<dyn Fn() + Send + Sync>,
}

/// Receiving could not start or broke off. The supervisor restarts it with growing waits.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct StartError(pub String);

/// A delivery that the other side accepted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Receipt {
    /// The id that the other side assigned.
    pub provider_id: Option<String>,
}

/// A delivery that failed, by what follows.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// Certainly not delivered; the next attempt is after `after`, else by the channel's own table.
    #[error("{reason}")]
    Retry { after: Option<Duration>, reason: String },
    /// Certainly not delivered, and no attempt will succeed.
    #[error("{reason}")]
    Permanent { reason: String },
    /// It may or may not have arrived.
    #[error("{reason}")]
    Unknown { reason: String },
    /// Certainly not delivered, and no message would be: the other side refuses the channel as a whole (a login). It does not
    /// count as an attempt; `after` is the time until the next.
    #[error("{reason}")]
    Held { after: Duration, reason: String },
    /// The other side is away (a closed terminal). The message waits, without counting an attempt, for [`Channel::present`].
    #[error("the channel is away")]
    Away,
}

impl From<Refusal> for SendError {
    /// The state of a message could not be read.
    fn from(refusal: Refusal) -> Self {
        Self::Retry { after: None, reason: refusal.to_string() }
    }
}

/// Receiving and delivering of a channel whose clients fetch from the store what belongs to their own requests: these come by routes, and
/// nothing is sent.
#[derive(Default)]
pub struct PickupDelivery {
    /// Set at the start; it is the same at a later one.
    inbox: OnceLock<Arc<dyn Inbox>>,
}

impl PickupDelivery {
    /// Receives until the shutdown.
    pub async fn run(&self, context: ChannelContext) {
        let _ = self.inbox.set(context.inbox.clone());
        (context.started)();
        context.shutdown.cancelled().await;
    }

    /// Takes what belongs to a request, which stays in the store, where the request finds it.
    ///
    /// # Errors
    /// `refusal` for everything else; the store cannot be read.
    pub async fn deliver(&self, message: &OutboundMessage, refusal: &str) -> Result<Receipt, SendError> {
        let is_for_asker = match self.inbox.get() {
            Some(inbox) if !message.context.is_picked_up => inbox.is_for_asker(message).await?,
            _ => message.context.is_picked_up,
        };
        if is_for_asker { Ok(Receipt::default()) } else { Err(SendError::Permanent { reason: refusal.to_owned() }) }
    }
}

/// A way to reach people.
#[async_trait]
pub trait Channel: Send + Sync + 'static {
    /// Returns `cli`, `email` or `webhook:NAME`, the value of `InboundMessage::channel`.
    fn name(&self) -> &str;

    fn capabilities(&self) -> Capabilities;

    /// Returns the waits between attempts of a delivery.
    fn retry(&self) -> &RetryTable;

    /// Receives until `context.shutdown`, and hands each message to `context.inbox`. Returns `Ok` after the shutdown or at
    /// the end of input.
    async fn start(&self, context: ChannelContext) -> Result<(), StartError>;

    /// Delivers one message. It is called for one message of a chat at a time.
    async fn send(&self, message: &OutboundMessage) -> Result<Receipt, SendError>;

    /// Delivers like [`Channel::send`], as the last attempt: a message that can be delivered only in part is, and the channel
    /// notifies the owner of the rest.
    async fn send_finally(&self, message: &OutboundMessage) -> Result<Receipt, SendError> {
        self.send(message).await
    }

    /// Completes when deliveries that ended with [`SendError::Away`] are worth another attempt.
    async fn present(&self) {
        std::future::pending::<()>().await;
    }

    /// Ends the wait of [`SendError::Held`]: the owner wants those messages attempted at once.
    fn release(&self) {}

    /// Returns the routes that an HTTP channel mounts on the gateway's server.
    fn routes(&self, _context: &ChannelContext) -> Option<axum::Router> {
        None
    }

    /// Returns the routes that callers with the gateway's token alone may use.
    fn owner_routes(&self, _context: &ChannelContext) -> Option<axum::Router> {
        None
    }

    /// Returns how long notes of a kind are kept after the last write; notes of other kinds are kept for ever.
    fn note_ages(&self) -> &[(&'static str, Duration)] {
        &[]
    }

    /// Checks whether the channel works, without sending anything that the other side takes for a message. Each finding's
    /// name is one word; the caller puts the channel's name before it.
    async fn test(&self) -> Vec<Finding> {
        Vec::new()
    }

    /// Runs further checks for `channels test` of this channel alone, not for `doctor`: they take up to two minutes, or leave
    /// a trace such as a mail to oneself.
    async fn test_whole_way(&self) -> Vec<Finding> {
        Vec::new()
    }
}
