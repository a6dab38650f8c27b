//! Starts every channel, starts it again when it fails, and tells each courier when there is something to deliver.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use daoyou_channels::backoff::Backoff;
use daoyou_channels::{Channel, ChannelContext};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::courier::Courier;
use crate::bus::{ChannelHealth, ChannelState, MessageBus};
use crate::metrics::Delivered;
use crate::store::{Commit, StoreError, outbox};

/// Outbox rows of a channel that does not exist, looked at in one go.
const UNKNOWN_BATCH: u32 = 1_000;

/// All channels of a gateway.
pub struct ChannelManager {
    bus: Arc<MessageBus>,
    channels: Vec<Arc<dyn Channel>>,
    /// Configured but switched off: what they have to deliver waits for them.
    resting: BTreeSet<String>,
    health: Arc<ChannelHealth>,
}

impl ChannelManager {
    /// A manager of `channels`; `resting` names those that are configured but not enabled.
    pub fn new(
        bus: Arc<MessageBus>,
        channels: Vec<Arc<dyn Channel>>,
        resting: BTreeSet<String>,
        health: Arc<ChannelHealth>,
    ) -> Self {
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
        let cut_off = self
            .bus
            .store()
            .write(Commit::Synced, move |connection| {
                outbox::bound_waits(connection, longest)?;
                outbox::recover(connection)
            })
            .await?;
        for row in cut_off.iter().filter(|row| !row.is_sent_again) {
            self.bus.outbound_ended(&row.channel);
            self.bus.metrics().messages.channel(&row.channel).delivered(Delivered::Unknown, 1);
        }
        if !cut_off.is_empty() {
            tracing::warn!(messages = cut_off.len(), "were being sent when the gateway stopped");
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
            tasks.spawn(Courier::new(channel.clone(), self.bus.clone(), look).run(flush.clone()));
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
        while tasks.join_next().await.is_some() {}
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
            self.bus.metrics().messages.channel(name).delivered(Delivered::Dead, given_up);
            tracing::warn!(channel = name, messages = given_up, "there is no such channel: dead letters");
        }
    }
}

/// Keeps a channel receiving: a failed start is tried again, later each time, and takes no other channel down.
async fn supervise(channel: Arc<dyn Channel>, context: ChannelContext, health: Arc<ChannelHealth>) {
    let name = channel.name().to_owned();
    let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(300));
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
        match channel.start(context).await {
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
