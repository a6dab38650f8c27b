//! One attempt to deliver one message: `pending → sending → sent`, or another outcome.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use daoyou_channels::{Channel, OutboundMessage, Receipt, Resend, SendError};
use futures_util::FutureExt;
use parking_lot::Mutex;
use uuid::Uuid;

use crate::bus::{ChannelHealth, ChannelState, DeadLetter, MessageBus, message_of};
use crate::crash;
use crate::metrics::DeliveryOutcome;
use crate::store::outbox::{self, PendingDelivery};
use crate::store::{Connection, Durability, StoreError, now_ms};
use crate::text::panic_message;

/// The next step for a message after an attempt.
pub(super) enum NextStep {
    Ended,
    /// The message leaves the queue and is not counted: another task has removed and counted it, or its attempt panicked.
    Dropped,
    Retry {
        tries: u32,
        at: i64,
    },
    Away,
}

/// Tracks whether a channel can send at all, from the results of its deliveries. Sets the channel's state and notifies the owner
/// once.
pub(super) struct SendingHealth {
    health: Arc<ChannelHealth>,
    /// The current failure state, and the state that it replaced.
    shown: Mutex<Option<(ChannelState, ChannelState)>>,
}

impl SendingHealth {
    pub fn new(health: Arc<ChannelHealth>) -> Self {
        Self { health, shown: Mutex::default() }
    }

    /// Records that the channel cannot send; returns true if it could send before.
    fn record_held(&self, channel: &str, reason: &str) -> bool {
        let failed = ChannelState::Failed { error: format!("sending: {reason}") };
        let mut shown = self.shown.lock();
        let before = self.health.exchange(channel, failed.clone()).unwrap_or(ChannelState::Running);
        let is_news = shown.is_none();
        let before = match shown.take() {
            Some((was, earlier)) if was == before => earlier,
            _ => before,
        };
        *shown = Some((failed, before));
        is_news
    }

    /// Records that the channel can send.
    fn record_working(&self, channel: &str) {
        let shown = self.shown.lock().take();
        if let Some((failed, before)) = shown {
            tracing::info!(channel, "the channel sends again");
            self.health.compare_and_set(channel, &failed, before);
        }
    }
}

/// Claims a message and makes one attempt: `pending → sending → …`.
pub(super) async fn deliver(
    channel: &dyn Channel,
    bus: &MessageBus,
    sending: &SendingHealth,
    pending: &PendingDelivery,
) -> Result<NextStep, StoreError> {
    let id = pending.id;
    let resend = match channel.resend() {
        Resend::SameId => "same_id",
        Resend::Again => "again",
        Resend::Never => "never",
    };
    let claimed =
        bus.store().write(Durability::Synced, move |connection| outbox::claim(connection, id, resend)).await?;
    let Some(row) = claimed else { return Ok(NextStep::Dropped) };
    let (turn, tries) = (row.turn, row.tries);
    let (slot, chat_id) = (row.slot.clone(), row.chat_id.clone());
    let delivery = DeliveryAttempt { channel, bus, sending, id, turn, slot, chat_id, tries };
    match message_of(row) {
        Ok(message) => delivery.send(&message).await,
        Err(error) => delivery.end("dead", format!("the row cannot be read: {error}")).await,
    }
}

/// One attempt to deliver one claimed message.
struct DeliveryAttempt<'a> {
    channel: &'a dyn Channel,
    bus: &'a MessageBus,
    sending: &'a SendingHealth,
    id: Uuid,
    turn: Uuid,
    slot: String,
    chat_id: String,
    /// The number of attempts, including this one.
    tries: u32,
}

impl DeliveryAttempt<'_> {
    async fn send(&self, message: &OutboundMessage) -> Result<NextStep, StoreError> {
        crash::point("sending_committed", &message.content);
        let id = self.id;
        let is_last = self.channel.retry().wait_after(self.tries).is_none();
        let sending = match is_last {
            false => self.channel.send(message),
            true => self.channel.send_finally(message),
        };
        let sent = AssertUnwindSafe(sending).catch_unwind().await.unwrap_or_else(|panic| {
            let reason = format!("{}; whether it arrived is unknown", describe_panic(panic.as_ref()));
            tracing::error!(channel = self.channel.name(), %id, reason, "a delivery panicked");
            Err(SendError::Unknown { reason })
        });
        match sent {
            Ok(Receipt { provider_id }) => {
                crash::point("sent_unmarked", &message.content);
                let (channel, turn, session, slot) =
                    (self.channel.name(), self.turn, &message.session, self.slot.as_str());
                tracing::info!(channel, %id, %turn, %session, slot, "sent");
                let sent = move |connection: &_| outbox::mark_sent(connection, id, provider_id.as_deref());
                self.record(Durability::Logged, sent).await?;
                self.sending.record_working(channel);
                self.count(DeliveryOutcome::Sent);
                Ok(NextStep::Ended)
            }
            Err(SendError::Away) => {
                self.record(Durability::Logged, move |connection| outbox::mark_absent(connection, id)).await?;
                Ok(NextStep::Away)
            }
            Err(SendError::Held { after, reason }) => self.postpone(after, reason).await,
            // The other side rejected this message, which shows that it accepts the channel.
            Err(SendError::Permanent { reason }) => {
                self.sending.record_working(self.channel.name());
                self.end("dead", reason).await
            }
            Err(SendError::Unknown { reason }) if self.channel.resend() == Resend::Never => {
                self.end("unknown", reason).await
            }
            Err(SendError::Unknown { reason }) => self.retry(None, reason).await,
            Err(SendError::Retry { after, reason }) => self.retry(after, reason).await,
        }
    }

    /// `sending → pending`, without counting the attempt, because the channel cannot send any message.
    async fn postpone(&self, after: Duration, reason: String) -> Result<NextStep, StoreError> {
        let (id, channel) = (self.id, self.channel.name());
        let at = now_ms() + millis(after.mul_f64(1.0 + jitter(id)));
        let cause = reason.clone();
        self.record(Durability::Logged, move |connection: &_| outbox::mark_held(connection, id, at, &reason)).await?;
        if self.sending.record_held(channel, &cause) {
            tracing::error!(channel, reason = cause, "the channel cannot send; its messages wait");
            self.bus.notify_held(channel, &cause).await;
        }
        self.count(DeliveryOutcome::Retry);
        Ok(NextStep::Retry { tries: self.tries - 1, at })
    }

    /// `sending → pending`, or a dead letter after the last wait of the channel's retry table.
    async fn retry(&self, after: Option<Duration>, reason: String) -> Result<NextStep, StoreError> {
        let (id, turn, tries, table) = (self.id, self.turn, self.tries, self.channel.retry());
        let Some(wait) = table.wait_after(tries) else {
            return self.end("dead", format!("given up after {tries} tries: {reason}")).await;
        };
        // The other side may ask for a longer wait, up to the longest wait of the table.
        let wait = wait.max(after.unwrap_or_default().min(table.longest()));
        let at = now_ms() + millis(wait.mul_f64(1.0 + jitter(id)));
        tracing::info!(channel = self.channel.name(), %id, %turn, tries, ?wait, reason, "not delivered; trying again");
        let write = move |connection: &_| outbox::mark_retry(connection, id, at, &reason);
        self.record(Durability::Logged, write).await?;
        self.count(DeliveryOutcome::Retry);
        Ok(NextStep::Retry { tries, at })
    }

    /// `sending → dead`, or `unknown` without a further attempt.
    async fn end(&self, state: &'static str, reason: String) -> Result<NextStep, StoreError> {
        let (channel, id, turn) = (self.channel.name(), self.id, self.turn);
        tracing::warn!(channel, %id, %turn, state, reason, "not delivered, and not tried again");
        let cause = reason.clone();
        let write = move |connection: &_| outbox::mark_ended(connection, id, state, &reason);
        self.record(Durability::Synced, write).await?;
        self.count(if state == "dead" { DeliveryOutcome::Dead } else { DeliveryOutcome::Unknown });
        if state == "dead" {
            let (slot, chat_id) = (self.slot.as_str(), self.chat_id.as_str());
            let letter = DeadLetter { turn, slot, id, channel, chat_id, reason: &cause };
            self.bus.notify_dead_letter(letter).await;
        }
        Ok(NextStep::Ended)
    }

    fn count(&self, how: DeliveryOutcome) {
        self.bus.metrics().messages.channel(self.channel.name()).delivered(how, 1);
    }

    /// Records the outcome, and retries until the store accepts it: a row that stays `sending` is not delivered before the next
    /// start. If the store permanently rejects the outcome, the row becomes `unknown`, if the store accepts that.
    async fn record(
        &self,
        durability: Durability,
        write: impl Fn(&Connection) -> Result<(), StoreError> + Clone + Send + Sync + 'static,
    ) -> Result<(), StoreError> {
        let failed = |error: &StoreError| {
            tracing::error!(id = %self.id, %error, "the outcome of a delivery could not be recorded; its chat waits");
        };
        let recorded = self.bus.store().write_until(durability, || write.clone(), failed).await;
        if let Err(error) = recorded.as_ref()
            && error.is_permanent()
        {
            let (id, reason) = (self.id, format!("its outcome cannot be recorded: {error}"));
            let unknown = || {
                let reason = reason.clone();
                move |connection: &Connection| outbox::mark_ended(connection, id, "unknown", &reason)
            };
            self.bus.store().write_until(Durability::Synced, unknown, failed).await?;
            self.count(DeliveryOutcome::Unknown);
        }
        recorded
    }
}

/// Describes a panic for the owner.
pub(super) fn describe_panic(panic: &(dyn Any + Send)) -> String {
    format!("a fault inside daoyou: {}", panic_message(panic))
}

/// Returns a factor of up to 0.1 by which a wait is lengthened, so that messages that failed together are not retried together.
fn jitter(id: Uuid) -> f64 {
    f64::from(id.as_bytes()[15]) / 2_550.0
}

/// Returns a duration in milliseconds, the store's unit.
pub(super) fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX / 2)
}
