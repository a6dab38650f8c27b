//! Delivers the messages of one channel.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use daoyou_channels::Channel;
use futures_util::FutureExt;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::delivery::{NextStep, SendingHealth, deliver, describe_panic, millis};
use super::queue::ChatQueues;
use crate::bus::{ChannelHealth, MessageBus};
use crate::store::outbox::{self, PendingDelivery};
use crate::store::{StoreError, now_ms};

/// The most messages of one channel in flight, each for a different chat.
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
    presences: u64,
    in_flight: JoinSet<FinishedAttempt>,
    sending: Arc<SendingHealth>,
    /// A message waits for its next attempt, or did so recently.
    has_failed: bool,
}

/// The attempt of a message that was in flight.
struct FinishedAttempt {
    pending: PendingDelivery,
    next: NextStep,
    /// The value of [`DeliveryWorker::presences`] when the message was sent.
    presences: u64,
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
            presences: 0,
            in_flight: JoinSet::new(),
            sending: Arc::new(SendingHealth::new(health)),
            has_failed: false,
        }
    }

    /// Delivers until `flush`, then delivers the messages that are due at that moment, and ends.
    pub async fn run(mut self, flush: CancellationToken) {
        let channel = self.channel.clone();
        let mut present = channel.present();
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
                () = &mut present => {
                    is_read = false;
                    self.presences += 1;
                    self.queues.present();
                    present = channel.present();
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
            let (channel, bus, presences) = (self.channel.clone(), self.bus.clone(), self.presences);
            let sending = self.sending.clone();
            self.in_flight.spawn(async move {
                let attempt = deliver(channel.as_ref(), &bus, &sending, &pending);
                let next = match AssertUnwindSafe(attempt).catch_unwind().await {
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
                        let reason = describe_panic(panic.as_ref());
                        tracing::error!(channel = channel.name(), id = %pending.id, reason, "a delivery panicked");
                        NextStep::Dropped
                    }
                };
                if matches!(next, NextStep::Ended) {
                    bus.outbound_ended(channel.name());
                }
                FinishedAttempt { pending, next, presences }
            });
        }
    }

    fn finish(&mut self, ended: Result<FinishedAttempt, tokio::task::JoinError>) {
        let FinishedAttempt { pending, next, presences } = match ended {
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
            NextStep::Away if presences != self.presences => self.queues.retry(pending),
            NextStep::Away => self.queues.away(pending),
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

#[cfg(test)]
pub(super) mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use async_trait::async_trait;
    use daoyou_channels::backoff::RetryTable;
    use daoyou_channels::{ChannelContext, OutboundMessage, Receipt, Resend, SendError, SessionKey, StartError};
    use tokio::sync::Semaphore;
    use uuid::Uuid;

    use super::*;
    use crate::bus::testing::bus;
    use crate::bus::{NoticeKind, OutboundBody, OutboundDraft, OutboxSlot};
    use crate::store::{Connection, Durability, Store};

    /// A channel that is away for the first message, and returns after the worker has seen that and before the outcome is written.
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

        fn resend(&self) -> Resend {
            Resend::Never
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
            let (busy, is_busy) = async_channel::bounded(1);
            tokio::spawn(async move {
                let wait = move |_: &Connection| {
                    busy.try_send(()).unwrap();
                    until_noticed.recv().map_err(|error| StoreError::Row(error.to_string()))
                };
                store.write(Durability::Logged, wait).await
            });
            is_busy.recv().await.unwrap();
            self.arrived.add_permits(1);
            Err(SendError::Away)
        }

        async fn present(&self) {
            if self.presences.fetch_add(1, Ordering::SeqCst) > 0 {
                // Called again: the worker has noticed.
                self.noticed.try_send(()).ok();
                return std::future::pending().await;
            }
            self.arrived.acquire().await.unwrap().forget();
        }
    }

    /// Returns a message with unique content in its chat.
    pub(in crate::channel_manager) fn draft(channel: &str, chat_id: &str, content: &str) -> OutboundDraft {
        let body = OutboundBody {
            content: content.to_owned(),
            session: SessionKey::of_chat(channel, chat_id),
            in_reply_to: None,
            attachments: Vec::new(),
            metadata: serde_json::Map::new(),
            context: daoyou_channels::OutboundContext::default(),
            error: None,
        };
        let slot = OutboxSlot::notice_about(NoticeKind::Channel, format!("{chat_id} {content}"));
        let (channel, chat_id) = (channel.to_owned(), chat_id.to_owned());
        OutboundDraft { turn: Uuid::nil(), slot, channel, chat_id, body }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_channel_that_comes_back_while_its_absence_is_recorded_gets_the_message() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(&folder.path().join("daoyou.db")).unwrap();
        let bus = bus(store.clone(), 1);
        let id = bus.publish_outbound(draft("screen", "c", "hello")).await.unwrap();
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
        let worker =
            DeliveryWorker::new(channel.clone(), bus, Arc::new(Notify::new()), Arc::default()).run(flush.clone());
        let worker = tokio::spawn(worker);
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
        worker.await.unwrap();
    }

    /// A channel that panics before its first delivery and at the message "panic", and sends other messages when it is allowed to.
    struct SlowChannel {
        retry: RetryTable,
        is_new: AtomicBool,
        began: Semaphore,
        may_send: Semaphore,
    }

    #[async_trait]
    impl Channel for SlowChannel {
        fn name(&self) -> &str {
            "slow"
        }

        fn resend(&self) -> Resend {
            assert!(!self.is_new.swap(false, Ordering::SeqCst), "the first delivery fails");
            Resend::Never
        }

        fn retry(&self) -> &RetryTable {
            &self.retry
        }

        async fn start(&self, _: ChannelContext) -> Result<(), StartError> {
            Ok(())
        }

        async fn send(&self, message: &OutboundMessage) -> Result<Receipt, SendError> {
            assert_ne!(message.content, "panic");
            self.began.add_permits(1);
            self.may_send.acquire().await.unwrap().forget();
            Ok(Receipt::default())
        }
    }

    /// If a delivery panics, its chat continues; if it was being sent, it is unknown whether its message arrived. At the end,
    /// messages in flight are awaited although the outbox cannot be read.
    #[tokio::test]
    async fn panics_and_unreadable_outboxes_leave_other_deliveries_alone() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(&folder.path().join("daoyou.db")).unwrap();
        let bus = bus(store.clone(), 9);
        let unsent = bus.publish_outbound(draft("slow", "c", "unsent")).await.unwrap();
        let panics = bus.publish_outbound(draft("slow", "c", "panic")).await.unwrap();
        let hello = bus.publish_outbound(draft("slow", "c", "hello")).await.unwrap();
        let (began, may_send) = (Semaphore::new(0), Semaphore::new(0));
        let channel = Arc::new(SlowChannel {
            retry: RetryTable::new(Vec::new()),
            is_new: AtomicBool::new(true),
            began,
            may_send,
        });
        let flush = CancellationToken::new();
        let worker = DeliveryWorker::new(channel.clone(), bus, Arc::new(Notify::new()), Arc::default());
        let worker = tokio::spawn(worker.run(flush.clone()));
        channel.began.acquire().await.unwrap().forget();
        let state_of = |id| {
            let store = store.clone();
            async move { store.read(move |connection| outbox::find(connection, id)).await.unwrap().unwrap().state }
        };
        assert_eq!((state_of(unsent).await.as_str(), state_of(panics).await.as_str()), ("pending", "unknown"));

        let other = Connection::open(folder.path().join("daoyou.db")).unwrap();
        other.execute_batch("ALTER TABLE outbox RENAME TO outbox_elsewhere").unwrap();
        flush.cancel();
        // The worker runs on this thread, and reads the outbox without waiting.
        for _ in 0..9 {
            tokio::task::yield_now().await;
        }
        other.execute_batch("ALTER TABLE outbox_elsewhere RENAME TO outbox").unwrap();
        channel.may_send.add_permits(1);
        worker.await.unwrap();
        assert_eq!(state_of(hello).await, "sent");
    }

    /// A channel that has nothing to send.
    struct IdleChannel(RetryTable);

    #[async_trait]
    impl Channel for IdleChannel {
        fn name(&self) -> &str {
            "idle"
        }

        fn resend(&self) -> Resend {
            Resend::Never
        }

        fn retry(&self) -> &RetryTable {
            &self.0
        }

        async fn start(&self, _: ChannelContext) -> Result<(), StartError> {
            Ok(())
        }

        async fn send(&self, _: &OutboundMessage) -> Result<Receipt, SendError> {
            Ok(Receipt::default())
        }
    }

    /// The flush begins at varying moments of the worker's loop, because a worker that misses it waits for a minute.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_flush_ends_an_idle_worker_whenever_it_begins() {
        let folder = tempfile::tempdir().unwrap();
        let bus = bus(Store::open(&folder.path().join("daoyou.db")).unwrap(), 1);
        let channel = Arc::new(IdleChannel(RetryTable::new(Vec::new())));
        for round in 0..20_000 {
            let (flush, waker) = (CancellationToken::new(), Arc::new(Notify::new()));
            let worker = DeliveryWorker::new(channel.clone(), bus.clone(), waker.clone(), Arc::default());
            let worker = tokio::spawn(worker.run(flush.clone()));
            waker.notify_one();
            for _ in 0..round * 7 % 9_001 {
                std::hint::spin_loop();
            }
            flush.cancel();
            tokio::time::timeout(Duration::from_secs(10), worker).await.expect("the worker ends").unwrap();
        }
    }
}
