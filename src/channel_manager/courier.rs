//! Delivers what one channel has to deliver.

use std::sync::Arc;
use std::time::Duration;

use daoyou_channels::{Channel, OutboundMessage, Receipt, Resend, SendError};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::queue::ChatQueues;
use crate::bus::{MessageBus, message_of};
use crate::crash;
use crate::store::outbox::{self, Pending};
use crate::store::{Commit, StoreError, now_ms};

/// Messages of one channel that are out at once, each of another chat.
const OUT_LIMIT: usize = 32;

/// Rows taken up at a time.
const BATCH: u32 = 1_000;

/// The longest sleep; the clock may jump meanwhile.
const LOOK_AGAIN: Duration = Duration::from_secs(60);

/// The queue of one channel, and the task that works it off.
pub struct Courier {
    channel: Arc<dyn Channel>,
    bus: Arc<MessageBus>,
    look: Arc<Notify>,
    queues: ChatQueues,
    taken_up_to: i64,
    out: JoinSet<(Pending, Next)>,
}

/// What is to be done with a message that was out.
enum Next {
    Ended,
    Retry { at: i64 },
    Away,
}

impl Courier {
    /// A courier that looks at the outbox whenever `look` is notified.
    pub fn new(channel: Arc<dyn Channel>, bus: Arc<MessageBus>, look: Arc<Notify>) -> Self {
        Self { channel, bus, look, queues: ChatQueues::default(), taken_up_to: 0, out: JoinSet::new() }
    }

    /// Delivers until `flush`, then what is due at that moment, and ends.
    pub async fn run(mut self, flush: CancellationToken) {
        let channel = self.channel.clone();
        let mut present = channel.present();
        loop {
            if let Err(error) = self.take_up().await {
                tracing::error!(channel = self.channel.name(), %error, "the outbox could not be read");
                if flush.is_cancelled() {
                    return;
                }
            }
            self.send_due();
            if flush.is_cancelled() && self.out.is_empty() {
                return;
            }
            let wait = self.until_next();
            tokio::select! {
                () = self.look.notified() => {}
                Some(ended) = self.out.join_next() => self.after(ended),
                () = tokio::time::sleep(wait) => self.queues.bound(now_ms() + millis(self.longest_wait())),
                () = &mut present => {
                    self.queues.present();
                    present = channel.present();
                }
                () = flush.cancelled(), if !flush.is_cancelled() => {}
            }
        }
    }

    async fn take_up(&mut self) -> Result<(), StoreError> {
        loop {
            let (channel, after) = (self.channel.name().to_owned(), self.taken_up_to);
            let store = self.bus.store();
            let rows = store.read(move |connection| outbox::pending_after(connection, &channel, after, BATCH)).await?;
            let count = rows.len();
            for row in rows {
                self.taken_up_to = row.seq;
                self.queues.push(row);
            }
            if count < usize::try_from(BATCH).unwrap_or(usize::MAX) {
                return Ok(());
            }
        }
    }

    fn send_due(&mut self) {
        let now = now_ms();
        while self.out.len() < OUT_LIMIT
            && let Some(pending) = self.queues.take_due(now)
        {
            let (channel, bus) = (self.channel.clone(), self.bus.clone());
            self.out.spawn(async move {
                let next = deliver(channel.as_ref(), &bus, &pending).await.unwrap_or_else(|error| {
                    tracing::error!(channel = channel.name(), id = %pending.id, %error, "a delivery could not be recorded");
                    Next::Retry { at: now_ms() + 1_000 }
                });
                if matches!(next, Next::Ended) {
                    bus.outbound_ended(channel.name());
                }
                (pending, next)
            });
        }
    }

    fn after(&mut self, ended: Result<(Pending, Next), tokio::task::JoinError>) {
        match ended {
            Ok((pending, Next::Ended)) => self.queues.finished(&pending.chat_id),
            Ok((mut pending, Next::Retry { at })) => {
                pending.tries += 1;
                pending.next_at = at;
                self.queues.retry(pending);
            }
            Ok((pending, Next::Away)) => self.queues.away(pending),
            // The row stays `sending` and is looked at as `unknown` by the next start.
            Err(error) => tracing::error!(channel = self.channel.name(), %error, "a delivery panicked"),
        }
    }

    fn until_next(&self) -> Duration {
        let Some(at) = self.queues.next_at().filter(|_| self.out.len() < OUT_LIMIT) else { return LOOK_AGAIN };
        let wait = u64::try_from(at - now_ms()).unwrap_or(0);
        Duration::from_millis(wait).min(LOOK_AGAIN)
    }

    fn longest_wait(&self) -> Duration {
        self.channel.retry().longest() * 2
    }
}

/// `pending → sending → …`: one try.
async fn deliver(channel: &dyn Channel, bus: &MessageBus, pending: &Pending) -> Result<Next, StoreError> {
    let id = pending.id;
    let resend = match channel.capabilities().resend {
        Resend::SameId => "same_id",
        Resend::Again => "again",
        Resend::Never => "never",
    };
    let claimed = bus.store().write(Commit::Synced, move |connection| outbox::claim(connection, id, resend)).await?;
    let Some(row) = claimed else { return Ok(Next::Ended) };
    let delivery = Delivery { channel, bus, id, turn: row.turn, slot: row.slot.clone(), tries: row.tries };
    match message_of(row) {
        Ok(message) => delivery.send(&message).await,
        Err(error) => delivery.end("dead", format!("the row cannot be read: {error}")).await,
    }
}

/// One try of one message, claimed.
struct Delivery<'a> {
    channel: &'a dyn Channel,
    bus: &'a MessageBus,
    id: Uuid,
    turn: Uuid,
    slot: String,
    /// This one included.
    tries: u32,
}

impl Delivery<'_> {
    async fn send(&self, message: &OutboundMessage) -> Result<Next, StoreError> {
        crash::point("sending_committed", &message.content);
        let id = self.id;
        match self.channel.send(message).await {
            Ok(Receipt { provider_id }) => {
                crash::point("sent_unmarked", &message.content);
                let (channel, turn, session, slot) =
                    (self.channel.name(), self.turn, &message.session, self.slot.as_str());
                tracing::info!(channel, %id, %turn, %session, slot, "sent");
                let sent = move |connection: &_| outbox::mark_sent(connection, id, provider_id.as_deref());
                self.bus.store().write(Commit::Logged, sent).await?;
                Ok(Next::Ended)
            }
            Err(SendError::Away) => {
                self.bus.store().write(Commit::Logged, move |connection| outbox::mark_away(connection, id)).await?;
                Ok(Next::Away)
            }
            Err(SendError::Permanent { reason }) => self.end("dead", reason).await,
            Err(SendError::Unknown { reason }) if self.channel.capabilities().resend == Resend::Never => {
                self.end("unknown", reason).await
            }
            Err(SendError::Unknown { reason }) => self.again(None, reason).await,
            Err(SendError::Retry { after, reason }) => self.again(after, reason).await,
        }
    }

    /// `sending → pending`, or a dead letter when the channel's table is used up.
    async fn again(&self, after: Option<Duration>, reason: String) -> Result<Next, StoreError> {
        let (id, turn, tries, table) = (self.id, self.turn, self.tries, self.channel.retry());
        let Some(wait) = table.wait_after(tries) else {
            return self.end("dead", format!("given up after {tries} tries: {reason}")).await;
        };
        // The other side may ask for patience, but not for more than the table would ever wait.
        let wait = after.map_or(wait, |after| after.min(table.longest())).max(Duration::from_millis(1));
        let at = now_ms() + millis(wait.mul_f64(1.0 + jitter(id)));
        tracing::info!(channel = self.channel.name(), %id, %turn, tries, ?wait, reason, "not delivered; trying again");
        let write = move |connection: &_| outbox::mark_retry(connection, id, at, &reason);
        self.bus.store().write(Commit::Logged, write).await?;
        Ok(Next::Retry { at })
    }

    /// `sending → dead`, or `unknown` for good.
    async fn end(&self, state: &'static str, reason: String) -> Result<Next, StoreError> {
        let (channel, id, turn) = (self.channel.name(), self.id, self.turn);
        tracing::warn!(channel, %id, %turn, state, reason, "not delivered, and not tried again");
        let told = reason.clone();
        let write = move |connection: &_| outbox::mark_ended(connection, id, state, &reason);
        self.bus.store().write(Commit::Synced, write).await?;
        if state == "dead" {
            self.bus.notify_dead_letter(turn, &self.slot, channel, id, &told).await;
        }
        Ok(Next::Ended)
    }
}

/// Up to a tenth more, so that what failed together does not come back together.
fn jitter(id: Uuid) -> f64 {
    f64::from(id.as_bytes()[15]) / 2_550.0
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX / 2)
}
