//! Starts every channel, starts it again when it fails, and tells each courier when there is something to deliver.

use std::any::Any;
use std::collections::{BTreeSet, HashMap};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use daoyou_channels::backoff::Backoff;
use daoyou_channels::{Channel, ChannelContext, StartError};
use futures_util::FutureExt;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::courier::Courier;
use crate::bus::{ChannelHealth, ChannelState, MessageBus};
use crate::metrics::DeliveryOutcome;
use crate::store::{Commit, Connection, StoreError, outbox};

/// Outbox rows of a channel that does not exist, looked at in one go.
const UNKNOWN_BATCH: u32 = 1_000;

/// The waits before something that failed is started again: the first and the longest.
const FIRST_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_secs(300);
/// To look whether the other side is back costs little, and people wait for what it has.
const LONGEST_START_WAIT: Duration = Duration::from_secs(50);

/// All channels of a gateway.
pub struct ChannelManager {
    bus: Arc<MessageBus>,
    channels: Vec<Arc<dyn Channel>>,
    /// Configured but switched off: what they have to deliver waits for them.
    resting: BTreeSet<String>,
    health: Arc<ChannelHealth>,
}

impl ChannelManager {
    /// A manager of `channels`; `resting` names those that are configured but not enabled. From now on each of `channels`
    /// counts as starting: nobody who asks is told that all is well before they were started.
    pub fn new(
        bus: Arc<MessageBus>,
        channels: Vec<Arc<dyn Channel>>,
        resting: BTreeSet<String>,
        health: Arc<ChannelHealth>,
    ) -> Self {
        for channel in &channels {
            health.set(channel.name(), ChannelState::Starting);
        }
        Self { bus, channels, resting, health }
    }

    /// How long notes are kept: channel, kind, time.
    pub fn note_ages(&self) -> Vec<(String, &'static str, Duration)> {
        let of = |channel: &Arc<dyn Channel>| {
            let ages = channel.note_ages().iter();
            ages.map(|(kind, keep)| (channel.name().to_owned(), *kind, *keep)).collect::<Vec<_>>()
        };
        self.channels.iter().flat_map(of).collect()
    }

    /// Looks at what the last run left: what was being sent becomes `unknown`, and then by the rule in its row.
    pub async fn recover(&self) -> Result<(), StoreError> {
        let longest = self.channels.iter().map(|channel| channel.retry().longest()).max().unwrap_or_default() * 2;
        let longest = i64::try_from(longest.as_millis()).unwrap_or(i64::MAX / 2);
        let bound = move |connection: &Connection| outbox::bound_waits(connection, longest);
        self.bus.store().write(Commit::Synced, bound).await?;
        let messages = recover(&self.bus, None).await?;
        if messages > 0 {
            tracing::warn!(messages, "were being sent when the gateway stopped");
        }
        Ok(())
    }

    /// Receives until `context.shutdown`, delivers until `flush` and then what is due at that moment.
    pub async fn run(self, context: ChannelContext, flush: CancellationToken) {
        let mut tasks = JoinSet::new();
        let mut looks = HashMap::new();
        for channel in &self.channels {
            tasks.spawn(supervise(channel.clone(), context.clone(), self.health.clone()));
            let look = Arc::new(Notify::new());
            looks.insert(channel.name().to_owned(), look.clone());
            tasks.spawn(carry(channel.clone(), self.bus.clone(), look, self.health.clone(), flush.clone()));
        }
        self.look_everywhere(&looks).await;
        loop {
            tokio::select! {
                () = flush.cancelled() => break,
                name = self.bus.consume_outbound() => match name {
                    Some(name) => self.look_at(&looks, &name).await,
                    None => self.look_everywhere(&looks).await,
                },
            }
        }
        while let Some(ended) = tasks.join_next().await {
            if let Err(error) = ended {
                tracing::error!(%error, "a channel did not end in order");
            }
        }
    }

    async fn look_everywhere(&self, looks: &HashMap<String, Arc<Notify>>) {
        match self.bus.store().read(outbox::open_by_channel).await {
            Ok(open) => {
                for (name, _) in open {
                    self.look_at(looks, &name).await;
                }
            }
            Err(error) => tracing::error!(%error, "the outbox could not be looked at"),
        }
    }

    async fn look_at(&self, looks: &HashMap<String, Arc<Notify>>, name: &str) {
        if let Some(look) = looks.get(name) {
            look.notify_one();
        } else if !self.resting.contains(name)
            && let Err(error) = self.give_up(name).await
        {
            tracing::error!(channel = name, %error, "messages to an unknown channel could not be put away");
        }
    }

    /// Messages to a channel that does not exist become dead letters.
    async fn give_up(&self, name: &str) -> Result<(), StoreError> {
        loop {
            let channel = name.to_owned();
            let given_up = self
                .bus
                .store()
                .write(Commit::Synced, move |connection| {
                    let rows = outbox::pending_after(connection, &channel, 0, UNKNOWN_BATCH)?;
                    let reason = format!("there is no channel {channel:?}");
                    for row in &rows {
                        outbox::mark_ended(connection, row.id, "dead", &reason)?;
                    }
                    Ok(rows.len())
                })
                .await?;
            if given_up == 0 {
                return Ok(());
            }
            for _ in 0..given_up {
                self.bus.outbound_ended(name);
            }
            self.bus.metrics().messages.channel(name).delivered(DeliveryOutcome::Dead, given_up);
            tracing::warn!(channel = name, messages = given_up, "there is no such channel: dead letters");
        }
    }
}

/// Keeps a channel receiving: a failed start is tried again, later each time, and takes no other channel down.
async fn supervise(channel: Arc<dyn Channel>, context: ChannelContext, health: Arc<ChannelHealth>) {
    let name = channel.name().to_owned();
    let mut backoff = Backoff::new(FIRST_WAIT, LONGEST_START_WAIT);
    loop {
        health.set(&name, ChannelState::Starting);
        let started = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let context = ChannelContext {
            started: {
                let (health, name, started) = (health.clone(), name.clone(), started.clone());
                Arc::new(move || {
                    started.store(true, std::sync::atomic::Ordering::SeqCst);
                    health.set(&name, ChannelState::Running);
                    tracing::info!(channel = name, "channel started");
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
                if started.load(std::sync::atomic::Ordering::SeqCst) {
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

/// A panic of a channel's is a failure as any other.
async fn start(channel: &dyn Channel, context: ChannelContext) -> Result<(), StartError> {
    let started = AssertUnwindSafe(channel.start(context)).catch_unwind().await;
    started.unwrap_or_else(|panic| Err(StartError(fault(panic.as_ref()))))
}

/// Delivers what a channel has to deliver until `flush`. A courier that panics is followed by another, later each time, and
/// what it had out goes by the rule in its row, as after a crash.
async fn carry(
    channel: Arc<dyn Channel>,
    bus: Arc<MessageBus>,
    look: Arc<Notify>,
    health: Arc<ChannelHealth>,
    flush: CancellationToken,
) {
    let name = channel.name().to_owned();
    let mut backoff = Backoff::new(FIRST_WAIT, LONGEST_WAIT);
    loop {
        let since = Instant::now();
        let courier = Courier::new(channel.clone(), bus.clone(), look.clone(), health.clone()).run(flush.clone());
        let Err(panic) = AssertUnwindSafe(courier).catch_unwind().await else { return };
        if since.elapsed() >= LONGEST_WAIT {
            backoff.reset();
        }
        let (error, wait) = (format!("delivering: {}", fault(panic.as_ref())), backoff.next_wait());
        tracing::error!(channel = name, error, ?wait, "delivering stopped; it is begun anew");
        let failed = ChannelState::Failed { error };
        let before = health.exchange(&name, failed.clone());
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = flush.cancelled() => return,
        }
        if let Err(error) = recover(&bus, Some(&name)).await {
            tracing::error!(channel = name, %error, "what was being sent could not be looked at");
        }
        // Receiving may have got elsewhere meanwhile, which counts.
        if let Some(before) = before {
            health.change(&name, &failed, before);
        }
    }
}

/// What was being sent when that broke off, of one channel or of all, goes by the rule in its row; answers how much it was.
async fn recover(bus: &MessageBus, channel: Option<&str>) -> Result<usize, StoreError> {
    let channel = channel.map(str::to_owned);
    let look = move |connection: &Connection| outbox::recover(connection, channel.as_deref());
    let cut_off = bus.store().write(Commit::Synced, look).await?;
    for row in cut_off.iter().filter(|row| !row.is_sent_again) {
        bus.outbound_ended(&row.channel);
        bus.metrics().messages.channel(&row.channel).delivered(DeliveryOutcome::Unknown, 1);
    }
    Ok(cut_off.len())
}

/// What a panic said.
fn fault(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    format!("a fault inside daoyou: {}", text.as_deref().unwrap_or("a panic"))
}

#[cfg(test)]
#[path = "manager_tests.rs"]
mod tests;
