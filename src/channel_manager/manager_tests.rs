//! Channels that fail in ways in which no channel should fail.

use std::sync::atomic::AtomicUsize;

use async_trait::async_trait;
use daoyou_channels::backoff::RetryTable;
use daoyou_channels::conformance::{ScriptedAnswer, ScriptedInbox};
use daoyou_channels::{OutboundMessage, Receipt, Resend, SendError};
use tokio::sync::watch;

use super::*;
use crate::bus::testing::bus;
use crate::channel_manager::delivery::tests::draft;
use crate::store::Store;

/// Panics at its first start and at its worker's first wait for the other side; works from then on. The chat "new" rejects every
/// message except at the last attempt.
struct PanickingChannel {
    retry: RetryTable,
    starts: AtomicUsize,
    waits: AtomicUsize,
    sent: watch::Sender<usize>,
}

#[async_trait]
impl Channel for PanickingChannel {
    fn name(&self) -> &str {
        "clumsy"
    }

    fn resend(&self) -> Resend {
        Resend::SameId
    }

    fn retry(&self) -> &RetryTable {
        &self.retry
    }

    async fn start(&self, context: ChannelContext) -> Result<(), StartError> {
        assert!(self.starts.fetch_add(1, Ordering::SeqCst) > 0, "the first start fails");
        (context.started)();
        context.shutdown.cancelled().await;
        Ok(())
    }

    async fn send(&self, message: &OutboundMessage) -> Result<Receipt, SendError> {
        if message.chat_id == "new" {
            return Err(SendError::Retry { after: None, reason: "not yet".to_owned() });
        }
        self.send_finally(message).await
    }

    async fn send_finally(&self, _: &OutboundMessage) -> Result<Receipt, SendError> {
        self.sent.send_modify(|sent| *sent += 1);
        Ok(Receipt::default())
    }

    async fn wait_for_recipient(&self) {
        assert!(self.waits.fetch_add(1, Ordering::SeqCst) > 0, "lost the way");
        std::future::pending::<()>().await;
    }
}

#[tokio::test]
async fn a_panic_is_a_failure_as_any_other() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(&folder.path().join("daoyou.db")).unwrap();
    let bus = bus(store.clone(), 9);
    bus.publish_outbound(draft("clumsy", "new", "hello")).await.unwrap();
    let out = bus.publish_outbound(draft("clumsy", "out", "hello")).await.unwrap();
    // One message was being sent when the worker panicked.
    store.write(Durability::Synced, move |connection| outbox::claim(connection, out, "same_id")).await.unwrap();
    let (sent, mut is_sent) = watch::channel(0);
    let channel = Arc::new(PanickingChannel {
        retry: RetryTable::new(vec![Duration::from_millis(1)]),
        starts: AtomicUsize::new(0),
        waits: AtomicUsize::new(0),
        sent,
    });
    let health = Arc::new(ChannelHealth::default());
    let inbox = ScriptedInbox::new(|_| ScriptedAnswer::Hold);
    let shutdown = CancellationToken::new();
    let context = ChannelContext {
        inbox: inbox.clone(),
        events: inbox,
        shutdown: shutdown.clone(),
        started: Arc::new(|| {}),
        impaired: Arc::new(|_| {}),
    };
    let flush = CancellationToken::new();
    let receiving = tokio::spawn(supervise_receiving(channel.clone(), context, health.clone()));
    let waker = Arc::new(Notify::new());
    let delivering = tokio::spawn(supervise_delivery(channel.clone(), bus, waker, health.clone(), flush.clone()));

    let both = async {
        is_sent.wait_for(|sent| *sent == 2).await.map(drop).unwrap();
        while health.all()["clumsy"] != ChannelState::Running {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), both).await.expect("it is started again, and delivers");
    assert_eq!([&channel.starts, &channel.waits].map(|count| count.load(Ordering::SeqCst)), [2, 2]);
    shutdown.cancel();
    flush.cancel();
    receiving.await.unwrap();
    delivering.await.unwrap();
}

/// Before a channel has started, it counts as starting, so that no health check reports success.
#[tokio::test]
async fn channels_that_are_built_count_as_starting() {
    let folder = tempfile::tempdir().unwrap();
    let health = Arc::new(ChannelHealth::default());
    let bus = bus(Store::open(&folder.path().join("daoyou.db")).unwrap(), 10);
    let channel = PanickingChannel {
        retry: RetryTable::new(vec![Duration::from_millis(1)]),
        starts: AtomicUsize::new(0),
        waits: AtomicUsize::new(0),
        sent: watch::Sender::new(0),
    };
    let _manager = ChannelManager::new(bus, vec![Arc::new(channel)], BTreeSet::new(), health.clone());
    assert_eq!(health.all().into_iter().collect::<Vec<_>>(), [("clumsy".to_owned(), ChannelState::Starting)]);
}
