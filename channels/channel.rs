//! What every channel implements. Receiving (`start`) and sending are separate: a channel that cannot do the one at
//! the moment may still do the other.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio_util::sync::CancellationToken;

use crate::backoff::RetryTable;
use crate::event::EventSource;
use crate::finding::Finding;
use crate::inbox::Inbox;
use crate::message::OutboundMessage;

/// What becomes of a message whose delivery was cut off, so that nobody knows whether it arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resend {
    /// The receiver knows our ids and drops a second copy: send again under the same id.
    SameId,
    /// The receiver would show it twice; twice is better than never.
    Again,
    /// Not at all.
    Never,
}

/// What a channel can do.
#[derive(Clone, Copy, Debug)]
pub struct Capabilities {
    /// It shows turns while they run, and subscribes to their events.
    pub streaming: bool,
    pub resend: Resend,
}

/// What a channel is given when it starts.
#[derive(Clone)]
pub struct ChannelContext {
    pub inbox: Arc<dyn Inbox>,
    pub events: Arc<dyn EventSource>,
    /// Cancelled when the channel is to stop receiving.
    pub shutdown: CancellationToken,
    /// Called by the channel once it really receives (connected, logged in); resets the supervisor's backoff.
    pub started: Arc<dyn Fn() + Send + Sync>,
}

/// Receiving could not start or broke off. The supervisor starts it again, later each time.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct StartError(pub String);

/// A delivery that the other side took.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Receipt {
    /// The id that the other side gave it.
    pub provider_id: Option<String>,
}

/// A delivery that did not work, by what is to be done about it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// Surely not delivered, worth another try: after `after`, else by the channel's own table.
    #[error("{reason}")]
    Retry { after: Option<Duration>, reason: String },
    /// Surely not delivered and never will be.
    #[error("{reason}")]
    Permanent { reason: String },
    /// It may or may not have arrived.
    #[error("{reason}")]
    Unknown { reason: String },
    /// Surely not delivered, and nothing would be now: the other side refuses the channel as a whole (a login). No try of the message;
    /// `after` is when the next may be worth it.
    #[error("{reason}")]
    Held { after: Duration, reason: String },
    /// Nobody is there (a closed terminal). Kept, untried, until the channel is back; see [`Channel::present`].
    #[error("the channel is away")]
    Away,
}

/// A way to reach people.
#[async_trait]
pub trait Channel: Send + Sync + 'static {
    /// `cli`, `email`, `webhook:NAME`; what stands in `InboundMessage::channel`.
    fn name(&self) -> &str;

    fn capabilities(&self) -> Capabilities;

    /// When a failed delivery is tried again, and when it is given up.
    fn retry(&self) -> &RetryTable;

    /// Receives until `context.shutdown`, handing each message to `context.inbox`. Returns `Ok` when it was told to
    /// stop or has no more to receive (end of input).
    async fn start(&self, context: ChannelContext) -> Result<(), StartError>;

    /// Delivers one message. Called for one message of a chat at a time.
    async fn send(&self, message: &OutboundMessage) -> Result<Receipt, SendError>;

    /// Delivers as [`Channel::send`] does, for the last time: what then can be delivered only in part is, and the channel
    /// tells the owner of the rest.
    async fn send_finally(&self, message: &OutboundMessage) -> Result<Receipt, SendError> {
        self.send(message).await
    }

    /// Completes when deliveries that were answered [`SendError::Away`] are worth another try.
    async fn present(&self) {
        std::future::pending::<()>().await;
    }

    /// Somebody wants what was answered [`SendError::Held`] tried at once, whatever was to be waited for.
    fn release(&self) {}

    /// What a channel that is reached by HTTP wants to be mounted on the gateway's server.
    fn routes(&self, _context: &ChannelContext) -> Option<axum::Router> {
        None
    }

    /// How long its notes of a kind are kept after they were last written; those of other kinds are kept for ever.
    fn note_ages(&self) -> &[(&'static str, Duration)] {
        &[]
    }

    /// Tries whether it works, without sending anything that the other side would take for a message. Each finding's
    /// name is one word; the caller puts the channel's before it.
    async fn test(&self) -> Vec<Finding> {
        Vec::new()
    }

    /// What is tried beside [`Channel::test`] where somebody asks for this channel alone, and is not tried by `doctor`: it
    /// takes up to two minutes, or leaves a trace such as a mail to oneself.
    async fn test_whole_way(&self) -> Vec<Finding> {
        Vec::new()
    }
}
