//! Delivers the messages of one channel.

use std::sync::Arc;
use std::time::Duration;

use daoyou_channels::text::catch_panic;
use daoyou_channels::{Channel, OutboundMessage, Receipt, Resend, SendError};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::queue::ChatQueues;
use crate::bus::{ChannelHealth, ChannelState, DeadLetter, MessageBus, message_of};
use crate::crash;
use crate::metrics::DeliveryOutcome;
use crate::store::outbox::{self, PendingDelivery};
use crate::store::{Connection, Durability, StoreError, millis, now_ms};

/// The maximum number of messages of one channel in flight, each for a different chat.
const MAX_IN_FLIGHT: usize = 32;

/// The number of rows that one read returns.
const BATCH: u32 = 1_000;

/// The wait before the outbox is read again after a failure.
const READ_RETRY: Duration = Duration::from_secs(1);

/// The longest sleep, which is also the interval at which the clock is checked for jumps.
const CLOCK_CHECK: Duration = Duration::from_secs(60);

/// The queue of one channel, and the task that delivers it.
pub struct DeliveryWorker {
    channel: Arc<dyn Channel>,
    bus: Arc<MessageBus>,
    waker: Arc<Notify>,
    queues: ChatQueues,
    /// The `seq` of the last row that was read.
    read_up_to: i64,
    /// The number of times that the other side has returned.
    arrivals: u64,
    in_flight: JoinSet<FinishedAttempt>,
    sending: Arc<SendingHealth>,
    /// A message waits for its next attempt, or did so recently.
    has_failed: bool,
}

/// The attempt of a message that was in flight.
struct FinishedAttempt {
    pending: PendingDelivery,
    next: NextStep,
    /// The value of [`DeliveryWorker::arrivals`] when the message was sent.
    arrivals: u64,
}

impl DeliveryWorker {
    /// Creates a worker, which reads the outbox whenever `waker` is notified.
    pub fn new(
        channel: Arc<dyn Channel>,
        bus: Arc<MessageBus>,
        waker: Arc<Notify>,
        health: Arc<ChannelHealth>,
    ) -> Self {
        Self {
            channel,
            bus,
            waker,
            queues: ChatQueues::default(),
            read_up_to: 0,
            arrivals: 0,
            in_flight: JoinSet::new(),
            sending: Arc::new(SendingHealth::new(health)),
            has_failed: false,
        }
    }

    /// Delivers until `flush`, then delivers the messages that are due at that moment, and ends.
    pub async fn run(mut self, flush: CancellationToken) {
        let channel = self.channel.clone();
        let mut arrival = channel.wait_for_recipient();
        // The clock may have jumped back since the last check.
        let mut clock = tokio::time::interval(CLOCK_CHECK);
        // The end of a delivery adds nothing to the outbox, so the outbox is not read again then.
        let mut is_read = false;
        loop {
            // Looked at once: a flush that begins after this line still ends the wait below.
            let is_flushing = flush.is_cancelled();
            match if is_read { Ok(()) } else { self.read_outbox().await } {
                Ok(()) => is_read = true,
                Err(error) => {
                    tracing::error!(channel = self.channel.name(), %error, "the outbox could not be read");
                    // During the flush there is no further try: the rows stay for the next start. Messages in flight still end.
                    is_read = is_flushing;
                }
            }
            self.send_due();
            if is_flushing && self.in_flight.is_empty() {
                return;
            }
            let wait = if is_read { self.until_next() } else { READ_RETRY };
            tokio::select! {
                () = self.waker.notified() => {
                    is_read = false;
                    if self.has_failed {
                        self.make_due();
                    }
                }
                Some(ended) = self.in_flight.join_next() => self.finish(ended),
                () = tokio::time::sleep(wait) => is_read = false,
                _ = clock.tick() => {
                    is_read = false;
                    self.queues.cap_due_times(now_ms() + millis(self.longest_wait()));
                    self.has_failed &= self.queues.next_at().is_some();
                }
                () = &mut arrival => {
                    is_read = false;
                    self.arrivals += 1;
                    self.queues.release_held();
                    arrival = channel.wait_for_recipient();
                }
                () = flush.cancelled(), if !is_flushing => is_read = false,
            }
        }
    }

    async fn read_outbox(&mut self) -> Result<(), StoreError> {
        loop {
            let (channel, after) = (self.channel.name().to_owned(), self.read_up_to);
            let store = self.bus.store();
            let rows = store.read_here(|connection| outbox::pending_after(connection, &channel, after, BATCH))?;
            let count = rows.len();
            for row in rows {
                self.has_failed |= row.next_at > now_ms();
                self.read_up_to = row.seq;
                self.queues.push(row);
            }
            if count < usize::try_from(BATCH).unwrap_or(usize::MAX) {
                return Ok(());
            }
        }
    }

    /// Makes the messages due that the owner wants delivered at once.
    fn make_due(&mut self) {
        let name = self.channel.name().to_owned();
        match self.bus.store().read_here(|connection| outbox::made_due(connection, &name)) {
            Ok(requested) if requested.is_empty() => {}
            Ok(requested) => {
                self.channel.release();
                self.queues.make_due(&requested);
            }
            Err(error) => tracing::error!(channel = name, %error, "the outbox could not be read"),
        }
    }

    fn send_due(&mut self) {
        let now = now_ms();
        while self.in_flight.len() < MAX_IN_FLIGHT
            && let Some(pending) = self.queues.take_due(now)
        {
            let (channel, bus, arrivals) = (self.channel.clone(), self.bus.clone(), self.arrivals);
            let sending = self.sending.clone();
            self.in_flight.spawn(async move {
                let attempt = deliver(channel.as_ref(), &bus, &sending, &pending);
                let next = match catch_panic(attempt).await {
                    Ok(Ok(next)) => next,
                    Ok(Err(error)) => {
                        tracing::error!(channel = channel.name(), id = %pending.id, %error, "a delivery could not be recorded");
                        match error.is_permanent() {
                            true => NextStep::Ended,
                            false => NextStep::Retry { tries: pending.tries, at: now_ms() + 1_000 },
                        }
                    }
                    // The row keeps its state, and the next start delivers or recovers it. Its chat continues.
                    Err(panic) => {
                        let reason = describe_panic(&panic);
                        tracing::error!(channel = channel.name(), id = %pending.id, reason, "a delivery panicked");
                        NextStep::Dropped
                    }
                };
                if matches!(next, NextStep::Ended) {
                    bus.outbound_ended(channel.name());
                }
                FinishedAttempt { pending, next, arrivals }
            });
        }
    }

    fn finish(&mut self, ended: Result<FinishedAttempt, tokio::task::JoinError>) {
        let FinishedAttempt { pending, next, arrivals } = match ended {
            Ok(ended) => ended,
            Err(error) => {
                tracing::error!(channel = self.channel.name(), %error, "a delivery did not end");
                return;
            }
        };
        match next {
            NextStep::Ended | NextStep::Dropped => self.queues.finished(&pending.chat_id),
            NextStep::Retry { tries, at } => {
                self.has_failed = true;
                self.queues.retry(PendingDelivery { tries, next_at: at, ..pending });
            }
            // A screen that connected in the meantime has not seen the message.
            NextStep::RecipientAbsent if arrivals != self.arrivals => self.queues.retry(pending),
            NextStep::RecipientAbsent => self.queues.hold_for_recipient(pending),
        }
    }

    fn until_next(&self) -> Duration {
        let Some(at) = self.queues.next_at().filter(|_| self.in_flight.len() < MAX_IN_FLIGHT) else {
            return CLOCK_CHECK;
        };
        let wait = u64::try_from(at - now_ms()).unwrap_or(0);
        Duration::from_millis(wait).min(CLOCK_CHECK)
    }

    fn longest_wait(&self) -> Duration {
        self.channel.retry().longest() * 2
    }
}

/// The next step for a message after an attempt.
enum NextStep {
    Ended,
    /// The message leaves the queue and is not counted: another task has removed and counted it, or its attempt panicked.
    Dropped,
    Retry {
        tries: u32,
        at: i64,
    },
    RecipientAbsent,
}

/// Tracks whether a channel can send at all, from the results of its deliveries. Sets the channel's state and notifies the owner
/// once.
struct SendingHealth {
    health: Arc<ChannelHealth>,
    /// The current failure state, and the state that it replaced.
    shown: Mutex<Option<(ChannelState, ChannelState)>>,
}

impl SendingHealth {
    fn new(health: Arc<ChannelHealth>) -> Self {
        Self { health, shown: Mutex::default() }
    }

    /// Records that the channel cannot send; returns true if it could send before.
    fn record_held(&self, channel: &str, reason: &str) -> bool {
        let failed = ChannelState::Failed { error: format!("sending: {reason}") };
        let mut shown = self.shown.lock();
        let before = self.health.set(channel, failed.clone()).unwrap_or(ChannelState::Running);
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
async fn deliver(
    channel: &dyn Channel,
    bus: &MessageBus,
    sending: &SendingHealth,
    pending: &PendingDelivery,
) -> Result<NextStep, StoreError> {
    let id = pending.id;
    // A claim that a power failure undoes leaves the row `pending`: it is sent again, as these rows are with the claim.
    let durability = match channel.resend() {
        Resend::Never => Durability::Synced,
        Resend::SameId | Resend::Again => Durability::Logged,
    };
    let resend: &'static str = channel.resend().into();
    let claimed = bus.store().write(durability, move |connection| outbox::claim(connection, id, resend)).await?;
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
        let sent = catch_panic(sending).await.unwrap_or_else(|panic| {
            let reason = format!("{}; whether it arrived is unknown", describe_panic(&panic));
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
            Err(SendError::RecipientAbsent) => {
                self.record(Durability::Logged, move |connection| outbox::mark_absent(connection, id)).await?;
                Ok(NextStep::RecipientAbsent)
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

/// Describes a panic with the message `panic` for the owner.
pub(super) fn describe_panic(panic: &str) -> String {
    format!("a fault inside daoyou: {panic}")
}

/// Returns a factor of up to 0.1 by which a wait is lengthened, so that messages that failed together are not retried together.
fn jitter(id: Uuid) -> f64 {
    f64::from(id.as_bytes()[15]) / 2_550.0
}

#[cfg(test)]
#[path = "delivery_tests.rs"]
pub(super) mod tests;
