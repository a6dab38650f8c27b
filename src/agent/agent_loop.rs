//! The single consumer of inbound messages.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use async_channel::{Receiver, Sender};
use daoyou_channels::SessionKey;
use daoyou_channels::text::catch_panic;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::turn_runner::TurnRunner;
use crate::bus::{InboundSignal, MessageBus};
use crate::live::LivePart;
use crate::session::lanes::Lanes;
use crate::session::retry_scheduler::RetryScheduler;
use crate::store::{Durability, StoreError, inbox, meta};

/// After an unclean stop, a message with this many starts without progress runs alone.
const SUSPECT_AFTER: i64 = 2;

/// A request for a sign of life from the loop. It also makes the loop check whether more turns may start.
pub type LivenessProbe = Sender<oneshot::Sender<()>>;

/// Takes messages from the bus and runs the lanes.
pub struct AgentLoop {
    runner: LivePart<TurnRunner>,
    bus: Arc<MessageBus>,
    lanes: Lanes,
    turns: JoinSet<(SessionKey, bool)>,
    progressed: (Sender<SessionKey>, Receiver<SessionKey>),
    retries: Arc<RetryScheduler>,
    probes: (LivenessProbe, Receiver<oneshot::Sender<()>>),
    /// This process runs only messages that it accepts itself, and leaves recovery to the next gateway.
    is_single_session: bool,
    /// Turns that were only waiting for a model when the last process ended.
    waited: HashSet<Uuid>,
}

impl AgentLoop {
    /// Creates a loop for all sessions, or for the session `only`. `waited` comes from the flight recorder of the last process.
    pub fn new(runner: LivePart<TurnRunner>, only: Option<SessionKey>, waited: HashSet<Uuid>) -> Self {
        let current = runner.get();
        let is_single_session = only.is_some();
        Self {
            bus: current.bus.clone(),
            lanes: Lanes::new(current.limits, only),
            runner,
            turns: JoinSet::new(),
            retries: current.running.retries.clone(),
            progressed: async_channel::bounded(64),
            probes: async_channel::bounded(1),
            is_single_session,
            waited,
        }
    }

    /// Returns the probe of the loop. A draining loop does not answer.
    pub fn probe(&self) -> LivenessProbe {
        self.probes.0.clone()
    }

    /// Resumes all unfinished work of the last run. After an unclean stop, suspected messages run alone, and a message that crashed
    /// the gateway while it ran alone is given up.
    ///
    /// # Errors
    /// The unfinished work cannot be read from the store, or the isolation of suspected messages cannot be recorded.
    pub async fn recover(&mut self) -> Result<(), StoreError> {
        if !self.is_single_session {
            self.isolate_suspects().await?;
            self.runner.get().conversations.parking.restore_waits().await?;
        }
        let unfinished = self.rescan().await?;
        tracing::info!(unfinished, "resumed unfinished messages");
        Ok(())
    }

    async fn isolate_suspects(&mut self) -> Result<(), StoreError> {
        let store = self.bus.store().clone();
        let waited = std::mem::take(&mut self.waited);
        let (given_up, suspects) = store
            .write(Durability::Synced, move |connection| {
                let clean = meta::get(connection, meta::CLEAN)?.is_none_or(|clean| clean == "yes");
                meta::set(connection, meta::CLEAN, "no")?;
                let alone = meta::get(connection, meta::ISOLATED_TURN)?.and_then(|turn| turn.parse::<Uuid>().ok());
                meta::set(connection, meta::ISOLATED_TURN, "")?;
                let mut given_up = Vec::new();
                // A turn that was only waiting did not crash the gateway, so its start does not count.
                for turn in &waited {
                    inbox::undo_start(connection, *turn)?;
                }
                if let Some(turn) = alone.filter(|turn| !clean && !waited.contains(turn)) {
                    given_up = inbox::of_turn(connection, turn)?;
                    given_up.retain(|row| row.state == inbox::MessageStatus::Running && row.stalled >= SUSPECT_AFTER);
                }
                let suspects = if clean { Vec::new() } else { inbox::stalled(connection, SUSPECT_AFTER)? };
                Ok((given_up, suspects))
            })
            .await?;
        let dead: HashSet<_> = given_up.iter().map(|row| row.turn).collect();
        self.runner.get().give_up(given_up).await;
        for row in suspects.into_iter().filter(|row| !dead.contains(&row.turn)) {
            tracing::warn!(turn = %row.turn, session = row.session, "a message may have crashed the gateway; it runs alone");
            self.lanes.suspect(row.session.into());
        }
        Ok(())
    }

    /// Runs until `shutdown`, then gives running turns the drain timeout to end. The remaining turns stay `running` on disk and
    /// resume at the next start.
    pub async fn run(mut self, shutdown: CancellationToken) {
        let (bus, retries) = (self.bus.clone(), self.retries.clone());
        loop {
            self.start_turns();
            tokio::select! {
                () = shutdown.cancelled() => break,
                inbound = bus.consume_inbound() => self.take(inbound).await,
                session = retries.next_due() => self.lanes.wake(session),
                Some(ended) = self.turns.join_next() => self.ended(ended),
                Ok(session) = self.progressed.1.recv() => self.lanes.end_isolation(&session),
                // The caller may have stopped waiting.
                Ok(asked) = self.probes.1.recv() => drop(asked.send(())),
            }
        }
        let limit = self.bus.drain_timeout();
        self.drain(limit).await;
    }

    async fn take(&mut self, inbound: InboundSignal) {
        match inbound {
            InboundSignal::Work(session) => {
                // A client of this process waits for the reply to this message.
                self.lanes.admit(&session);
                self.lanes.wake(session);
            }
            InboundSignal::Cancel(turn) => {
                self.runner.get().running.cancel(turn);
            }
            InboundSignal::RetryServices => {
                self.runner.get().models().reset_circuits();
                self.retries.retry_all();
            }
            InboundSignal::RetrySession(session) => self.retries.retry_session(&session),
            InboundSignal::Resume(turn, session) => {
                self.retries.resume(turn);
                self.lanes.wake(session);
            }
            InboundSignal::Rescan => {
                if let Err(error) = self.rescan().await {
                    tracing::error!(%error, "the inbox could not be read; trying again");
                    tokio::time::sleep(Duration::from_secs(1)).await;
                    self.bus.request_rescan();
                }
            }
        }
    }

    /// Wakes every session with an unfinished message, and stops cancelled turns.
    async fn rescan(&mut self) -> Result<usize, StoreError> {
        let (sessions, cancelled) = self
            .bus
            .store()
            .read(|connection| Ok((inbox::open_sessions(connection)?, inbox::cancelled(connection)?)))
            .await?;
        // The lost signals may include one that ends a wait.
        self.retries.resume_all();
        let unfinished = sessions.iter().map(|(_, messages, _)| messages).sum();
        for (session, ..) in sessions {
            self.lanes.wake(session.into());
        }
        let runner = self.runner.get();
        cancelled.iter().for_each(|row| runner.running.cancel(row.turn));
        Ok(unfinished)
    }

    fn start_turns(&mut self) {
        let current = self.runner.get();
        self.lanes.set_limits(current.limits);
        while let Some((session, isolation)) = self.lanes.take_next() {
            let (runner, progressed) = (current.clone(), self.progressed.0.clone());
            // Boxed, because a spawned future is copied several times.
            self.turns.spawn(Box::pin(async move {
                let turn = catch_panic(runner.run_next(&session, isolation, progressed)).await;
                // A panic outside of a turn leaves its row unfinished, so the lane runs again, after a pause because it may panic
                // again.
                if turn.is_err() {
                    tracing::error!(%session, "a lane panicked; retrying");
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
                (session, turn.unwrap_or(true))
            }));
        }
    }

    fn ended(&mut self, ended: Result<(SessionKey, bool), tokio::task::JoinError>) {
        match ended {
            Ok((session, more)) => self.lanes.ended(&session, more),
            // Panics are caught above, so this is an abort, and only the drain aborts.
            Err(error) => tracing::error!(%error, "a lane ended unexpectedly"),
        }
    }

    async fn drain(mut self, limit: Duration) {
        let running = self.lanes.running();
        if running > 0 {
            tracing::info!(running, ?limit, "waiting for running turns");
        }
        let all_ended = async { while self.turns.join_next().await.is_some() {} };
        let in_time = tokio::time::timeout(limit, all_ended).await.is_ok();
        self.turns.shutdown().await;
        let left: Vec<_> = self.runner.get().running.lock().drain().map(|(turn, _)| turn).collect();
        if !in_time {
            tracing::warn!(turns = left.len(), "turns were interrupted; they resume at the next start");
        }
        let is_single_session = self.is_single_session;
        let undone = self
            .bus
            .store()
            .write(Durability::Synced, move |connection| {
                for turn in &left {
                    inbox::undo_start(connection, *turn)?;
                }
                if is_single_session {
                    return Ok(());
                }
                meta::set(connection, meta::ISOLATED_TURN, "")?;
                meta::set(connection, meta::CLEAN, "yes")
            })
            .await;
        if let Err(error) = undone {
            tracing::error!(%error, "the orderly stop could not be recorded");
        }
    }
}
