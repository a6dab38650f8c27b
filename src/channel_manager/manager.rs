//! Starts every channel, restarts it after a failure, and wakes its delivery worker when there are messages to deliver.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use daoyou_channels::backoff::Backoff;
use daoyou_channels::text::catch_panic;
use daoyou_channels::{Channel, ChannelContext, StartError};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::delivery::{DeliveryWorker, describe_panic};
use crate::bus::{ChannelHealth, ChannelState, MessageBus};
use crate::metrics::DeliveryOutcome;
use crate::store::{Connection, Durability, StoreError, millis, outbox};

/// The number of an unknown channel's outbox rows that one transaction handles.
const UNKNOWN_BATCH: u32 = 1_000;

/// The first and the longest wait before a failed task restarts.
const FIRST_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_secs(300);
/// The longest wait before a channel starts again. Checking whether the other side is back is cheap, and people wait for its
/// messages.
const LONGEST_START_WAIT: Duration = Duration::from_secs(50);

/// All channels of a gateway.
pub struct ChannelManager {
    bus: Arc<MessageBus>,
    channels: Vec<Arc<dyn Channel>>,
    /// Channels that are configured but not enabled; their messages wait.
    disabled: BTreeSet<String>,
    health: Arc<ChannelHealth>,
}

impl ChannelManager {
    /// Creates the manager. `disabled` names the channels that are configured but not enabled. Each of `channels` counts as starting
    /// from now on, so that no health check succeeds before all have started.
    pub fn new(
        bus: Arc<MessageBus>,
        channels: Vec<Arc<dyn Channel>>,
        disabled: BTreeSet<String>,
        health: Arc<ChannelHealth>,
    ) -> Self {
        for channel in &channels {
            health.set(channel.name(), ChannelState::Starting);
        }
        Self { bus, channels, disabled, health }
    }

    /// Returns the time for which notes are kept: channel, kind, time.
    pub fn note_ages(&self) -> Vec<(String, &'static str, Duration)> {
        let of = |channel: &Arc<dyn Channel>| {
            let ages = channel.note_ages().iter();
            ages.map(|(kind, keep)| (channel.name().to_owned(), *kind, *keep)).collect::<Vec<_>>()
        };
        self.channels.iter().flat_map(of).collect()
    }

    /// Recovers deliveries that the last run left unfinished: they become `unknown`, or are sent again if their row says so.
    ///
    /// # Errors
    /// The outbox cannot be read or written.
    pub async fn recover(&self) -> Result<(), StoreError> {
        let longest = self.channels.iter().map(|channel| channel.retry().longest()).max().unwrap_or_default() * 2;
        let bound = move |connection: &Connection| outbox::bound_waits(connection, millis(longest));
        self.bus.store().write(Durability::Synced, bound).await?;
        let messages = recover(&self.bus, None).await?;
        if messages > 0 {
            tracing::warn!(messages, "deliveries were interrupted when the gateway stopped");
        }
        Ok(())
    }

    /// Receives until `context.shutdown`; delivers until `flush`, and then delivers the messages that are due at that moment.
    pub async fn run(self, context: ChannelContext, flush: CancellationToken) {
        let mut tasks = JoinSet::new();
        let mut wakers = HashMap::new();
        for channel in &self.channels {
            tasks.spawn(supervise_receiving(channel.clone(), context.clone(), self.health.clone()));
            let waker = Arc::new(Notify::new());
            wakers.insert(channel.name().to_owned(), waker.clone());
            tasks.spawn(supervise_delivery(
                channel.clone(),
                self.bus.clone(),
                waker,
                self.health.clone(),
                flush.clone(),
            ));
        }
        self.wake_all(&wakers).await;
        loop {
            tokio::select! {
                () = flush.cancelled() => break,
                name = self.bus.consume_outbound() => match name {
                    Some(name) => self.wake(&wakers, &name).await,
                    None => self.wake_all(&wakers).await,
                },
            }
        }
        while let Some(ended) = tasks.join_next().await {
            if let Err(error) = ended {
                tracing::error!(%error, "a channel did not end in order");
            }
        }
    }

    async fn wake_all(&self, wakers: &HashMap<String, Arc<Notify>>) {
        match self.bus.store().read(outbox::open_by_channel).await {
            Ok(open) => {
                for (name, _) in open {
                    self.wake(wakers, &name).await;
                }
            }
            Err(error) => tracing::error!(%error, "the outbox could not be read"),
        }
    }

    /// Wakes the worker of a channel; messages to an unknown channel become dead letters.
    async fn wake(&self, wakers: &HashMap<String, Arc<Notify>>, name: &str) {
        if let Some(waker) = wakers.get(name) {
            waker.notify_one();
        } else if !self.disabled.contains(name)
            && let Err(error) = self.dead_letter_messages_to(name).await
        {
            tracing::error!(channel = name, %error, "messages to an unknown channel could not become dead letters");
        }
    }

    /// Turns messages to an unknown channel into dead letters.
    async fn dead_letter_messages_to(&self, name: &str) -> Result<(), StoreError> {
        loop {
            let channel = name.to_owned();
            let dead = self
                .bus
                .store()
                .write(Durability::Synced, move |connection| {
                    let rows = outbox::pending_after(connection, &channel, 0, UNKNOWN_BATCH)?;
                    let reason = format!("there is no channel {channel:?}");
                    for row in &rows {
                        outbox::mark_ended(connection, row.id, "dead", &reason)?;
                    }
                    Ok(rows.len())
                })
                .await?;
            if dead == 0 {
                return Ok(());
            }
            for _ in 0..dead {
                self.bus.outbound_ended(name);
            }
            self.bus.metrics().messages.channel(name).delivered(DeliveryOutcome::Dead, dead);
            tracing::warn!(channel = name, messages = dead, "there is no such channel: dead letters");
        }
    }
}

/// Keeps a channel receiving: restarts it after a failure, with growing waits, independently of other channels.
async fn supervise_receiving(channel: Arc<dyn Channel>, context: ChannelContext, health: Arc<ChannelHealth>) {
    let name = channel.name().to_owned();
    let mut backoff = Backoff::new(FIRST_WAIT, LONGEST_START_WAIT);
    loop {
        health.set(&name, ChannelState::Starting);
        let started = Arc::new(AtomicBool::new(false));
        let context = ChannelContext {
            started: {
                let (health, name, started) = (health.clone(), name.clone(), started.clone());
                Arc::new(move || {
                    started.store(true, Ordering::SeqCst);
                    health.set(&name, ChannelState::Running);
                    tracing::info!(channel = name, "channel started");
                })
            },
            impaired: {
                let (health, name) = (health.clone(), name.clone());
                Arc::new(move |reason: Option<String>| {
                    health.set(&name, reason.map_or(ChannelState::Running, |error| ChannelState::Failed { error }));
                })
            },
            ..context.clone()
        };
        let shutdown = context.shutdown.clone();
        match start(channel.as_ref(), context).await {
            Ok(()) => {
                health.set(&name, ChannelState::Stopped);
                return;
            }
            Err(_) if shutdown.is_cancelled() => return,
            Err(error) => {
                if started.load(Ordering::SeqCst) {
                    backoff.reset();
                }
                let wait = backoff.next_wait();
                tracing::warn!(channel = name, %error, ?wait, "channel failed; starting it again");
                health.set(&name, ChannelState::Failed { error: error.to_string() });
                tokio::select! {
                    () = tokio::time::sleep(wait) => {}
                    () = shutdown.cancelled() => return,
                }
            }
        }
    }
}

/// Starts a channel; a panic counts as a failure.
async fn start(channel: &dyn Channel, context: ChannelContext) -> Result<(), StartError> {
    let started = catch_panic(channel.start(context)).await;
    started.unwrap_or_else(|panic| Err(StartError(describe_panic(&panic))))
}

/// Delivers a channel's messages until `flush`. After a panic, another worker starts, with growing waits; the messages that were in
/// flight are recovered as after a crash.
async fn supervise_delivery(
    channel: Arc<dyn Channel>,
    bus: Arc<MessageBus>,
    waker: Arc<Notify>,
    health: Arc<ChannelHealth>,
    flush: CancellationToken,
) {
    let name = channel.name().to_owned();
    let mut backoff = Backoff::new(FIRST_WAIT, LONGEST_WAIT);
    loop {
        let since = Instant::now();
        let worker =
            DeliveryWorker::new(channel.clone(), bus.clone(), waker.clone(), health.clone()).run(flush.clone());
        let Err(panic) = catch_panic(worker).await else { return };
        if since.elapsed() >= LONGEST_WAIT {
            backoff.reset();
        }
        let error = format!("delivering: {}", describe_panic(&panic));
        tracing::error!(channel = name, error, "delivering failed; restarting it");
        let failed = ChannelState::Failed { error };
        let before = health.set(&name, failed.clone());
        loop {
            tokio::select! {
                () = tokio::time::sleep(backoff.next_wait()) => {}
                () = flush.cancelled() => return,
            }
            // A row that stays `sending` would not be delivered before the next start.
            match recover(&bus, Some(&name)).await {
                Ok(_) => break,
                Err(error) => {
                    tracing::error!(channel = name, %error, "messages that were being sent could not be recovered");
                }
            }
        }
        // Keeps a state that the receiving side has set in the meantime.
        if let Some(before) = before {
            health.compare_and_set(&name, &failed, before);
        }
    }
}

/// Recovers interrupted deliveries, of one channel or of all, as each row says. Returns their number.
async fn recover(bus: &MessageBus, channel: Option<&str>) -> Result<usize, StoreError> {
    let channel = channel.map(str::to_owned);
    let recover = move |connection: &Connection| outbox::recover(connection, channel.as_deref());
    let interrupted = bus.store().write(Durability::Synced, recover).await?;
    for row in interrupted.iter().filter(|row| !row.is_sent_again) {
        bus.outbound_ended(&row.channel);
        bus.metrics().messages.channel(&row.channel).delivered(DeliveryOutcome::Unknown, 1);
    }
    Ok(interrupted.len())
}

#[cfg(test)]
#[path = "manager_tests.rs"]
mod tests;
