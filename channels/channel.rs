//! The trait that every channel implements. Receiving (`start`) and sending are separate: one may work while the other
//! fails.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use tokio_util::sync::CancellationToken;

use crate::backoff::{ONE_RETRY, RetryTable};
use crate::event::EventSource;
use crate::finding::Finding;
use crate::inbox::{Inbox, Refusal};
use crate::message::OutboundMessage;

/// What the channel manager does with a message after an interrupted delivery whose outcome is unknown. The store keeps the word of a
/// variant in the column `outbox.resend` and compares it in SQL, so a renamed variant must keep its word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum Resend {
    /// Send again under the same id: the receiver knows our ids and drops a second copy.
    SameId,
    /// Send again, although the receiver may show it twice.
    Again,
    /// Do not send again.
    Never,
}

/// The inputs of [`Channel::start`].
#[derive(Clone)]
pub struct ChannelContext {
    pub inbox: Arc<dyn Inbox>,
    pub events: Arc<dyn EventSource>,
    /// Cancelled when the channel must stop receiving.
    pub shutdown: CancellationToken,
    /// The channel calls it once it receives messages (connected, logged in). The call resets the supervisor's backoff.
    pub started: Arc<dyn Fn() + Send + Sync>,
    /// A started channel calls it with the reason when it does not receive, or not from everywhere, and with `None` when it receives
    /// again.
    pub impaired: Arc<dyn Fn(Option<String>) + Send + Sync>,
}

/// The reason why receiving did not start or stopped. The supervisor restarts the channel after growing waits.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct StartError(pub String);

/// A delivery that the other side accepted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Receipt {
    /// The id that the other side assigned.
    pub provider_id: Option<String>,
}

/// A failed delivery, classified by what the channel manager does next.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// Certainly not delivered. The next attempt follows by the channel's [`RetryTable`], or after `after` if that is longer, up to the
    /// table's longest wait.
    #[error("{reason}")]
    Retry { after: Option<Duration>, reason: String },
    /// Certainly not delivered, and no attempt will succeed.
    #[error("{reason}")]
    Permanent { reason: String },
    /// It may or may not have arrived.
    #[error("{reason}")]
    Unknown { reason: String },
    /// Certainly not delivered, and no other message would be: the other side refuses the whole channel, for example its
    /// login. The failure does not count as an attempt; `after` is the time until the next one.
    #[error("{reason}")]
    Held { after: Duration, reason: String },
    /// The recipient is absent (a closed terminal). The message waits for [`Channel::wait_for_recipient`], and no attempt is counted.
    #[error("the recipient is absent")]
    RecipientAbsent,
}

impl From<Refusal> for SendError {
    /// A refusal here means that the channel could not read the state of a message.
    fn from(refusal: Refusal) -> Self {
        Self::Retry { after: None, reason: refusal.to_string() }
    }
}

/// A channel whose clients fetch their replies from the store. Its requests arrive by routes, and the channel sends nothing itself.
pub struct PickupChannel {
    name: &'static str,
    refusal: &'static str,
    /// Set at the first start. A later start brings the same inbox.
    inbox: OnceLock<Arc<dyn Inbox>>,
}

impl PickupChannel {
    /// Creates the channel `name`. `refusal` is the error for a message that belongs to no request.
    pub fn new(name: &'static str, refusal: &'static str) -> Self {
        Self { name, refusal, inbox: OnceLock::new() }
    }
}

#[async_trait]
impl Channel for PickupChannel {
    fn name(&self) -> &'static str {
        self.name
    }

    fn resend(&self) -> Resend {
        Resend::Again
    }

    async fn start(&self, context: ChannelContext) -> Result<(), StartError> {
        let _ = self.inbox.set(context.inbox.clone());
        (context.started)();
        context.shutdown.cancelled().await;
        Ok(())
    }

    /// Accepts a message that belongs to a request. The message stays in the store, where the request finds it.
    async fn send(&self, message: &OutboundMessage) -> Result<Receipt, SendError> {
        let is_for_asker = match self.inbox.get() {
            Some(inbox) if !message.context.is_picked_up => inbox.is_for_asker(message).await?,
            _ => message.context.is_picked_up,
        };
        is_for_asker.then(Receipt::default).ok_or_else(|| SendError::Permanent { reason: self.refusal.to_owned() })
    }
}

/// A channel: one way to exchange messages with people and programs.
#[async_trait]
pub trait Channel: Send + Sync + 'static {
    /// Returns the channel's name (`cli`, `email` or `webhook:NAME`), the value of `InboundMessage::channel`.
    fn name(&self) -> &str;

    /// Returns what happens to a message whose delivery was interrupted.
    fn resend(&self) -> Resend;

    /// Returns the waits between the attempts of a delivery.
    fn retry(&self) -> &RetryTable {
        &ONE_RETRY
    }

    /// Receives until `context.shutdown` and hands each message to `context.inbox`. Returns `Ok` after the shutdown or at
    /// the end of input. A channel whose messages arrive by routes only reports its start.
    async fn start(&self, context: ChannelContext) -> Result<(), StartError> {
        (context.started)();
        context.shutdown.cancelled().await;
        Ok(())
    }

    /// Delivers one message. The channel manager calls it for one message of a chat at a time.
    async fn send(&self, message: &OutboundMessage) -> Result<Receipt, SendError>;

    /// Delivers like [`Channel::send`] on the last attempt. If only a part can be delivered, the channel delivers that part
    /// and notifies the owner of the rest.
    async fn send_finally(&self, message: &OutboundMessage) -> Result<Receipt, SendError> {
        self.send(message).await
    }

    /// Completes when deliveries that ended with [`SendError::RecipientAbsent`] are worth another attempt.
    async fn wait_for_recipient(&self) {
        std::future::pending::<()>().await;
    }

    /// Ends the wait of [`SendError::Held`], because the owner wants these messages attempted at once.
    fn release(&self) {}

    /// Returns the routes that an HTTP channel mounts on the gateway's server.
    fn routes(&self, _context: &ChannelContext) -> Option<axum::Router> {
        None
    }

    /// Returns the routes that the server puts behind its access check: for the gateway's token, and for named tokens and page
    /// logins as far as their scope allows.
    fn owner_routes(&self, _context: &ChannelContext) -> Option<axum::Router> {
        None
    }

    /// Returns the kinds of notes that expire, each with its age limit since the last write. Notes of other kinds never expire.
    fn note_ages(&self) -> &[(&'static str, Duration)] {
        &[]
    }

    /// Checks whether the channel works, and sends nothing that a recipient would take for a message. The name of each
    /// finding is one word; the caller prefixes it with the channel's name.
    async fn test(&self) -> Vec<Finding> {
        Vec::new()
    }

    /// Runs the slow checks of `channels test` for this channel alone; `doctor` does not run them. They take up to two
    /// minutes or leave a trace, such as a mail to the gateway's own mailbox.
    async fn test_end_to_end(&self) -> Vec<Finding> {
        Vec::new()
    }
}
