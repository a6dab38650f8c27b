use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use async_trait::async_trait;
use daoyou_channels::backoff::RetryTable;
use daoyou_channels::{ChannelContext, OutboundMessage, Receipt, Resend, SendError, SessionKey, StartError};
use tokio::sync::Semaphore;
use uuid::Uuid;

use super::*;
use crate::bus::testing::bus;
use crate::bus::{NoticeKind, OutboundBody, OutboundDraft, OutboxSlot};
use crate::store::{Connection, Durability, GroupCommit, Store};

/// A channel whose recipient is absent for the first message, and returns after the worker has seen that and before the outcome is written.
struct LateScreen {
    store: Store,
    retry: RetryTable,
    sends: AtomicUsize,
    arrivals: AtomicUsize,
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
        Err(SendError::RecipientAbsent)
    }

    async fn wait_for_recipient(&self) {
        if self.arrivals.fetch_add(1, Ordering::SeqCst) > 0 {
            // Called again: the worker has noticed.
            self.noticed.try_send(()).ok();
            return std::future::pending().await;
        }
        self.arrived.acquire().await.unwrap().forget();
    }
}

/// Returns a message with unique content in its chat.
pub(in crate::channel_manager) fn draft(channel: &str, chat_id: &str, content: &str) -> OutboundDraft {
    let body = OutboundBody::new(content.to_owned(), SessionKey::of_chat(channel, chat_id));
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
        arrivals: AtomicUsize::new(0),
        arrived: Semaphore::new(0),
        noticed,
        until_noticed: std::sync::Mutex::new(Some(until_noticed)),
    });
    let flush = CancellationToken::new();
    let worker = DeliveryWorker::new(channel.clone(), bus, Arc::new(Notify::new()), Arc::default()).run(flush.clone());
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
    let channel =
        Arc::new(SlowChannel { retry: RetryTable::new(Vec::new()), is_new: AtomicBool::new(true), began, may_send });
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

/// A channel that delivers everything.
struct PlainChannel {
    retry: RetryTable,
    resend: Resend,
    sent: Semaphore,
}

impl PlainChannel {
    fn new(resend: Resend) -> Arc<Self> {
        Arc::new(Self { retry: RetryTable::new(Vec::new()), resend, sent: Semaphore::new(0) })
    }
}

#[async_trait]
impl Channel for PlainChannel {
    fn name(&self) -> &str {
        "plain"
    }

    fn resend(&self) -> Resend {
        self.resend
    }

    fn retry(&self) -> &RetryTable {
        &self.retry
    }

    async fn start(&self, _: ChannelContext) -> Result<(), StartError> {
        Ok(())
    }

    async fn send(&self, _: &OutboundMessage) -> Result<Receipt, SendError> {
        self.sent.add_permits(1);
        Ok(Receipt::default())
    }
}

/// Input: the rule for interrupted deliveries. Expected: the synced commits between the message and its delivery.
#[tokio::test]
async fn only_a_delivery_that_must_not_be_repeated_waits_for_the_disk() {
    for (resend, expected) in [(Resend::SameId, 0), (Resend::Again, 0), (Resend::Never, 1)] {
        let folder = tempfile::tempdir().unwrap();
        let synced = Arc::new(AtomicUsize::new(0));
        let count = synced.clone();
        let on_commit = move |committed: GroupCommit| {
            count.fetch_add(usize::from(committed.durability == Durability::Synced), Ordering::SeqCst);
        };
        let store = Store::open_to_serve(&folder.path().join("daoyou.db"), Box::new(on_commit)).unwrap();
        let bus = bus(store, 9);
        bus.publish_outbound(draft("plain", "c", "hello")).await.unwrap();
        let before = synced.load(Ordering::SeqCst);
        let (channel, flush) = (PlainChannel::new(resend), CancellationToken::new());
        let worker = DeliveryWorker::new(channel.clone(), bus, Arc::new(Notify::new()), Arc::default());
        let worker = tokio::spawn(worker.run(flush.clone()));
        channel.sent.acquire().await.unwrap().forget();
        assert_eq!(synced.load(Ordering::SeqCst) - before, expected, "{resend:?}");
        flush.cancel();
        worker.await.unwrap();
    }
}

/// The flush begins at varying moments of the worker's loop, because a worker that misses it waits for a minute.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flush_ends_an_idle_worker_whenever_it_begins() {
    let folder = tempfile::tempdir().unwrap();
    let bus = bus(Store::open(&folder.path().join("daoyou.db")).unwrap(), 1);
    let channel = PlainChannel::new(Resend::Never);
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
