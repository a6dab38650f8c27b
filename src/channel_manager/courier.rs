//! Delivers what one channel has to deliver.

use std::sync::Arc;
use std::time::Duration;

use daoyou_channels::backoff::Backoff;
use daoyou_channels::{Channel, Receipt, Resend, SendError};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::queue::ChatQueues;
use crate::bus::{MessageBus, message_of};
use crate::crash;
use crate::store::outbox::{self, Pending};
use crate::store::{Commit, Connection, StoreError, now_ms};

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
    /// How often somebody was there again.
    presences: u64,
    out: JoinSet<Try>,
}

/// A message that was out.
struct Try {
    pending: Pending,
    next: Next,
    /// [`Courier::presences`] when it went out.
    presences: u64,
}

/// What is to be done with a message that was out.
enum Next {
    Ended,
    /// Somebody has dropped it, and counted that.
    Dropped,
    Retry {
        tries: u32,
        at: i64,
    },
    Away,
}

impl Courier {
    /// A courier that looks at the outbox whenever `look` is notified.
    pub fn new(channel: Arc<dyn Channel>, bus: Arc<MessageBus>, look: Arc<Notify>) -> Self {
        Self { channel, bus, look, queues: ChatQueues::default(), taken_up_to: 0, presences: 0, out: JoinSet::new() }
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
                    self.presences += 1;
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
            let (channel, bus, presences) = (self.channel.clone(), self.bus.clone(), self.presences);
            self.out.spawn(async move {
                let next = deliver(channel.as_ref(), &bus, &pending).await.unwrap_or_else(|error| {
                    tracing::error!(channel = channel.name(), id = %pending.id, %error, "a delivery could not be recorded");
                    Next::Retry { tries: pending.tries, at: now_ms() + 1_000 }
                });
                if matches!(next, Next::Ended) {
                    bus.outbound_ended(channel.name());
                }
                Try { pending, next, presences }
            });
        }
    }

    fn after(&mut self, ended: Result<Try, tokio::task::JoinError>) {
        let Try { pending, next, presences } = match ended {
            Ok(ended) => ended,
            // The row stays `sending` and is looked at as `unknown` by the next start.
            Err(error) => {
                tracing::error!(channel = self.channel.name(), %error, "a delivery panicked");
                return;
            }
        };
        match next {
            Next::Ended | Next::Dropped => self.queues.finished(&pending.chat_id),
            Next::Retry { tries, at } => self.queues.retry(Pending { tries, next_at: at, ..pending }),
            // Whoever came while this was on its way back has not seen it.
            Next::Away if presences != self.presences => self.queues.retry(pending),
            Next::Away => self.queues.away(pending),
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
    let Some(row) = claimed else { return Ok(Next::Dropped) };
    let (tries, slot) = (row.tries, row.slot.clone());
    let message = match message_of(row) {
        Ok(message) => message,
        Err(error) => return end(bus, id, "dead", format!("the row cannot be read: {error}")).await,
    };
    crash::point("sending_committed", &message.content);
    let name = channel.name();
    let (turn, session) = (message.turn, message.session.clone());
    match channel.send(&message).await {
        Ok(Receipt { provider_id }) => {
            crash::point("sent_unmarked", &message.content);
            tracing::info!(channel = name, %id, %turn, %session, slot, "sent");
            let sent = move |connection: &_| outbox::mark_sent(connection, id, provider_id.as_deref());
            record(bus, Commit::Logged, sent).await?;
            Ok(Next::Ended)
        }
        Err(SendError::Away) => {
            record(bus, Commit::Logged, move |connection| outbox::mark_away(connection, id)).await?;
            Ok(Next::Away)
        }
        Err(SendError::Permanent { reason }) => {
            tracing::warn!(channel = name, %id, %turn, %session, reason, "cannot be delivered: dead letter");
            end(bus, id, "dead", reason).await
        }
        Err(SendError::Unknown { reason }) if channel.capabilities().resend == Resend::Never => {
            tracing::warn!(channel = name, %id, %turn, %session, reason, "whether it arrived is unknown");
            end(bus, id, "unknown", reason).await
        }
        Err(SendError::Unknown { reason }) => again(channel, bus, id, tries, None, reason).await,
        Err(SendError::Retry { after, reason }) => again(channel, bus, id, tries, after, reason).await,
    }
}

/// `sending → pending` after `tries` failures, or a dead letter when the channel's table is used up.
async fn again(
    channel: &dyn Channel,
    bus: &MessageBus,
    id: uuid::Uuid,
    tries: u32,
    after: Option<Duration>,
    reason: String,
) -> Result<Next, StoreError> {
    let name = channel.name();
    let Some(wait) = channel.retry().wait_after(tries) else {
        tracing::warn!(channel = name, %id, tries, reason, "given up: dead letter");
        return end(bus, id, "dead", format!("given up after {tries} tries: {reason}")).await;
    };
    // The other side may ask for more patience, but not for more than the table would ever have.
    let wait = wait.max(after.unwrap_or_default().min(channel.retry().longest()));
    let at = now_ms() + millis(wait.mul_f64(1.0 + jitter(id)));
    tracing::info!(channel = name, %id, tries, ?wait, reason, "not delivered; trying again");
    record(bus, Commit::Logged, move |connection| outbox::mark_retry(connection, id, at, &reason)).await?;
    Ok(Next::Retry { tries, at })
}

async fn end(bus: &MessageBus, id: uuid::Uuid, state: &'static str, reason: String) -> Result<Next, StoreError> {
    record(bus, Commit::Synced, move |connection| outbox::mark_ended(connection, id, state, &reason)).await?;
    Ok(Next::Ended)
}

/// Writes what became of a try. A store that cannot take it is asked again until it can: a row that stayed `sending`
/// would not be looked at before the next start.
async fn record(
    bus: &MessageBus,
    commit: Commit,
    write: impl Fn(&Connection) -> Result<(), StoreError> + Clone + Send + 'static,
) -> Result<(), StoreError> {
    let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(5));
    loop {
        match bus.store().write(commit, write.clone()).await {
            Err(error) if !matches!(error, StoreError::Closed) => {
                tracing::error!(%error, "what became of a delivery could not be written; its chat waits");
                tokio::time::sleep(backoff.next_wait()).await;
            }
            written => return written,
        }
    }
}

/// Up to a tenth more, so that what failed together does not come back together.
fn jitter(id: uuid::Uuid) -> f64 {
    f64::from(id.as_bytes()[15]) / 2_550.0
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX / 2)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use async_trait::async_trait;
    use daoyou_channels::backoff::RetryTable;
    use daoyou_channels::{Capabilities, ChannelContext, InboundMessage, OutboundMessage, SessionKey, StartError};
    use tokio::sync::Semaphore;
    use uuid::Uuid;

    use super::*;
    use crate::bus::{Capacities, Order, OutboundBody, OutboundDraft, PastLane};
    use crate::store::Store;

    struct NoOrders;

    #[async_trait]
    impl PastLane for NoOrders {
        fn order(&self, _: &InboundMessage) -> Option<Order> {
            None
        }

        fn stopped(&self, _: bool) -> String {
            String::new()
        }

        async fn status(&self, _: &MessageBus) -> String {
            String::new()
        }
    }

    /// Nobody is there for the first message; somebody comes right after that was seen, and before it is written.
    struct LateScreen {
        store: Store,
        retry: RetryTable,
        sends: AtomicUsize,
        presences: AtomicUsize,
        arrived: Semaphore,
        noticed: std::sync::mpsc::SyncSender<()>,
        until_noticed: std::sync::Mutex<Option<std::sync::mpsc::Receiver<()>>>,
    }

    #[async_trait]
    impl Channel for LateScreen {
        fn name(&self) -> &str {
            "screen"
        }

        fn capabilities(&self) -> Capabilities {
            Capabilities { streaming: false, resend: Resend::Never }
        }

        fn retry(&self) -> &RetryTable {
            &self.retry
        }

        async fn start(&self, _: ChannelContext) -> Result<(), StartError> {
            Ok(())
        }

        async fn send(&self, _: &OutboundMessage) -> Result<Receipt, SendError> {
            if self.sends.fetch_add(1, Ordering::SeqCst) > 0 {
                return Ok(Receipt::default());
            }
            let until_noticed = self.until_noticed.lock().unwrap().take().unwrap();
            let store = self.store.clone();
            let (busy, is_busy) = tokio::sync::oneshot::channel();
            tokio::spawn(async move {
                let wait = move |_: &Connection| {
                    busy.send(()).unwrap();
                    until_noticed.recv().map_err(|error| StoreError::Row(error.to_string()))
                };
                store.write(Commit::Logged, wait).await
            });
            is_busy.await.unwrap();
            self.arrived.add_permits(1);
            Err(SendError::Away)
        }

        async fn present(&self) {
            if self.presences.fetch_add(1, Ordering::SeqCst) > 0 {
                // Asked again: the courier has noticed.
                self.noticed.try_send(()).ok();
                return std::future::pending().await;
            }
            self.arrived.acquire().await.unwrap().forget();
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn who_comes_while_a_message_is_on_its_way_back_is_shown_it() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(&folder.path().join("daoyou.db")).unwrap();
        let capacities = Capacities { session: 1, inbound: 1, outbound: 1 };
        let bus = Arc::new(MessageBus::new(store.clone(), capacities, 0, Duration::ZERO, Arc::new(NoOrders)));
        let body = OutboundBody {
            content: "hello".to_owned(),
            session: SessionKey::from("screen:c"),
            in_reply_to: None,
            attachments: Vec::new(),
            metadata: serde_json::Map::new(),
            error: None,
        };
        let (turn, slot, channel) = (Uuid::nil(), "reply".to_owned(), "screen".to_owned());
        let draft = OutboundDraft { turn, slot, channel, chat_id: "c".to_owned(), body };
        let id = bus.publish_outbound(draft).await.unwrap();
        let (noticed, until_noticed) = std::sync::mpsc::sync_channel(1);
        let channel = Arc::new(LateScreen {
            store: store.clone(),
            retry: RetryTable::new(Vec::new()),
            sends: AtomicUsize::new(0),
            presences: AtomicUsize::new(0),
            arrived: Semaphore::new(0),
            noticed,
            until_noticed: std::sync::Mutex::new(Some(until_noticed)),
        });
        let flush = CancellationToken::new();
        let courier = Courier::new(channel.clone(), bus, Arc::new(Notify::new())).run(flush.clone());
        let courier = tokio::spawn(courier);
        let sent = async {
            loop {
                let row = store.read(move |connection| outbox::find(connection, id)).await.unwrap().unwrap();
                if row.state == "sent" {
                    return row.tries;
                }
                tokio::task::yield_now().await;
            }
        };
        let tries = tokio::time::timeout(Duration::from_secs(10), sent).await.expect("it is shown");
        assert_eq!((tries, channel.sends.load(Ordering::SeqCst)), (1, 2));
        flush.cancel();
        courier.await.unwrap();
    }
}
