//! One try to deliver one message: `pending → sending → sent`, or what comes instead.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use daoyou_channels::backoff::Backoff;
use daoyou_channels::{Channel, OutboundMessage, Receipt, Resend, SendError};
use uuid::Uuid;

use crate::bus::{ChannelHealth, ChannelState, DeadLetter, MessageBus, message_of};
use crate::crash;
use crate::metrics::DeliveryOutcome;
use crate::store::outbox::{self, Pending};
use crate::store::{Commit, Connection, StoreError, now_ms};

/// What is to be done with a message that was out.
pub(super) enum Next {
    Ended,
    /// Somebody has dropped it, and counted that.
    Dropped,
    Retry {
        tries: u32,
        at: i64,
    },
    Away,
}

/// Whether a channel can send at all, as far as its deliveries say: shown as its state, and the owner is told once.
pub(super) struct Hold {
    health: Arc<ChannelHealth>,
    /// The state that is shown, and the one before.
    shown: Mutex<Option<(ChannelState, ChannelState)>>,
}

impl Hold {
    pub fn new(health: Arc<ChannelHealth>) -> Self {
        Self { health, shown: Mutex::default() }
    }

    /// It cannot; answers whether that is news.
    fn held(&self, channel: &str, reason: &str) -> bool {
        let failed = ChannelState::Failed { error: format!("sending: {reason}") };
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        let before = self.health.exchange(channel, failed.clone()).unwrap_or(ChannelState::Running);
        let is_news = shown.is_none();
        let before = match shown.take() {
            Some((was, earlier)) if was == before => earlier,
            _ => before,
        };
        *shown = Some((failed, before));
        is_news
    }

    /// It can.
    fn sends(&self, channel: &str) {
        let shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some((failed, before)) = shown {
            tracing::info!(channel, "the channel sends again");
            self.health.change(channel, &failed, before);
        }
    }
}

/// `pending → sending → …`: one try.
pub(super) async fn deliver(
    channel: &dyn Channel,
    bus: &MessageBus,
    hold: &Hold,
    pending: &Pending,
) -> Result<Next, StoreError> {
    let id = pending.id;
    let resend = match channel.capabilities().resend {
        Resend::SameId => "same_id",
        Resend::Again => "again",
        Resend::Never => "never",
    };
    let claimed = bus.store().write(Commit::Synced, move |connection| outbox::claim(connection, id, resend)).await?;
    let Some(row) = claimed else { return Ok(Next::Dropped) };
    let (turn, tries) = (row.turn, row.tries);
    let (slot, chat_id) = (row.slot.clone(), row.chat_id.clone());
    let delivery = Delivery { channel, bus, hold, id, turn, slot, chat_id, tries };
    match message_of(row) {
        Ok(message) => delivery.send(&message).await,
        Err(error) => delivery.end("dead", format!("the row cannot be read: {error}")).await,
    }
}

/// One try of one message, claimed.
struct Delivery<'a> {
    channel: &'a dyn Channel,
    bus: &'a MessageBus,
    hold: &'a Hold,
    id: Uuid,
    turn: Uuid,
    slot: String,
    chat_id: String,
    /// This one included.
    tries: u32,
}

impl Delivery<'_> {
    async fn send(&self, message: &OutboundMessage) -> Result<Next, StoreError> {
        crash::point("sending_committed", &message.content);
        let id = self.id;
        let is_last = self.channel.retry().wait_after(self.tries).is_none();
        let sent = match is_last {
            false => self.channel.send(message).await,
            true => self.channel.send_finally(message).await,
        };
        match sent {
            Ok(Receipt { provider_id }) => {
                crash::point("sent_unmarked", &message.content);
                let (channel, turn, session, slot) =
                    (self.channel.name(), self.turn, &message.session, self.slot.as_str());
                tracing::info!(channel, %id, %turn, %session, slot, "sent");
                let sent = move |connection: &_| outbox::mark_sent(connection, id, provider_id.as_deref());
                self.record(Commit::Logged, sent).await?;
                self.hold.sends(channel);
                self.count(DeliveryOutcome::Sent);
                Ok(Next::Ended)
            }
            Err(SendError::Away) => {
                self.record(Commit::Logged, move |connection| outbox::mark_away(connection, id)).await?;
                Ok(Next::Away)
            }
            Err(SendError::Held { after, reason }) => self.held(after, reason).await,
            // Whoever judges a message has let the channel in.
            Err(SendError::Permanent { reason }) => {
                self.hold.sends(self.channel.name());
                self.end("dead", reason).await
            }
            Err(SendError::Unknown { reason }) if self.channel.capabilities().resend == Resend::Never => {
                self.end("unknown", reason).await
            }
            Err(SendError::Unknown { reason }) => self.again(None, reason).await,
            Err(SendError::Retry { after, reason }) => self.again(after, reason).await,
        }
    }

    /// `sending → pending`, without a try: the channel cannot send, whatever the message.
    async fn held(&self, after: Duration, reason: String) -> Result<Next, StoreError> {
        let (id, channel) = (self.id, self.channel.name());
        let at = now_ms() + millis(after.mul_f64(1.0 + jitter(id)));
        let told = reason.clone();
        self.record(Commit::Logged, move |connection: &_| outbox::mark_held(connection, id, at, &reason)).await?;
        if self.hold.held(channel, &told) {
            tracing::error!(channel, reason = told, "the channel cannot send; its messages wait");
            self.bus.notify_held(channel, &told).await;
        }
        self.count(DeliveryOutcome::Retry);
        Ok(Next::Retry { tries: self.tries - 1, at })
    }

    /// `sending → pending`, or a dead letter when the channel's table is used up.
    async fn again(&self, after: Option<Duration>, reason: String) -> Result<Next, StoreError> {
        let (id, turn, tries, table) = (self.id, self.turn, self.tries, self.channel.retry());
        let Some(wait) = table.wait_after(tries) else {
            return self.end("dead", format!("given up after {tries} tries: {reason}")).await;
        };
        // The other side may ask for more patience, but not for more than the table would ever have.
        let wait = wait.max(after.unwrap_or_default().min(table.longest()));
        let at = now_ms() + millis(wait.mul_f64(1.0 + jitter(id)));
        tracing::info!(channel = self.channel.name(), %id, %turn, tries, ?wait, reason, "not delivered; trying again");
        let write = move |connection: &_| outbox::mark_retry(connection, id, at, &reason);
        self.record(Commit::Logged, write).await?;
        self.count(DeliveryOutcome::Retry);
        Ok(Next::Retry { tries, at })
    }

    /// `sending → dead`, or `unknown` for good.
    async fn end(&self, state: &'static str, reason: String) -> Result<Next, StoreError> {
        let (channel, id, turn) = (self.channel.name(), self.id, self.turn);
        tracing::warn!(channel, %id, %turn, state, reason, "not delivered, and not tried again");
        let told = reason.clone();
        let write = move |connection: &_| outbox::mark_ended(connection, id, state, &reason);
        self.record(Commit::Synced, write).await?;
        self.count(if state == "dead" { DeliveryOutcome::Dead } else { DeliveryOutcome::Unknown });
        if state == "dead" {
            let (slot, chat_id) = (self.slot.as_str(), self.chat_id.as_str());
            let letter = DeadLetter { turn, slot, id, channel, chat_id, reason: &told };
            self.bus.notify_dead_letter(letter).await;
        }
        Ok(Next::Ended)
    }

    fn count(&self, how: DeliveryOutcome) {
        self.bus.metrics().messages.channel(self.channel.name()).delivered(how, 1);
    }

    /// Writes what became of the try. A store that cannot take it is asked again until it can: a row that stayed
    /// `sending` would not be looked at before the next start.
    async fn record(
        &self,
        commit: Commit,
        write: impl Fn(&Connection) -> Result<(), StoreError> + Clone + Send + 'static,
    ) -> Result<(), StoreError> {
        let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(5));
        loop {
            match self.bus.store().write(commit, write.clone()).await {
                Err(error) if !matches!(error, StoreError::Closed) => {
                    tracing::error!(id = %self.id, %error, "what became of a delivery could not be written; its chat waits");
                    tokio::time::sleep(backoff.next_wait()).await;
                }
                written => return written,
            }
        }
    }
}

/// Up to a tenth more, so that what failed together does not come back together.
fn jitter(id: Uuid) -> f64 {
    f64::from(id.as_bytes()[15]) / 2_550.0
}

/// In the store's unit.
pub(super) fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX / 2)
}
