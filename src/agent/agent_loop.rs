//! The single consumer of inbound messages.

use std::collections::HashSet;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use async_channel::{Receiver, Sender};
use daoyou_channels::SessionKey;
use futures_util::FutureExt;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::lane::LaneRunner;
use super::lanes::Lanes;
use super::waiting::WaitingRoom;
use crate::bus::{Inbound, MessageBus};
use crate::live::Live;
use crate::store::{Commit, StoreError, inbox, meta};

/// A message that was started so often without getting anywhere runs alone after an unclean stop.
const SUSPECT_AFTER: i64 = 2;

/// Asks the loop for a sign of life, and makes it look whether more turns may start.
pub type Probe = Sender<oneshot::Sender<()>>;

/// Takes what the bus says, and keeps the lanes running.
pub struct AgentLoop {
    runner: Arc<Live<LaneRunner>>,
    bus: Arc<MessageBus>,
    lanes: Lanes,
    turns: JoinSet<(SessionKey, bool)>,
    proven: (Sender<SessionKey>, Receiver<SessionKey>),
    room: Arc<WaitingRoom>,
    probes: (Probe, Receiver<oneshot::Sender<()>>),
    /// Runs what comes to it only: what the last gateway left is the next gateway's to judge.
    is_guest: bool,
    /// Turns that only waited for a model when the last process ended.
    waited: HashSet<Uuid>,
}

impl AgentLoop {
    /// A loop for all sessions, or for `only` one. `waited` is what the flight recorder told of the last process.
    pub fn new(runner: Arc<Live<LaneRunner>>, only: Option<SessionKey>, waited: HashSet<Uuid>) -> Self {
        let current = runner.get();
        let is_guest = only.is_some();
        Self {
            bus: current.bus.clone(),
            lanes: Lanes::new(current.at_once(), only),
            runner,
            turns: JoinSet::new(),
            room: current.room.clone(),
            proven: async_channel::bounded(64),
            probes: async_channel::bounded(1),
            is_guest,
            waited,
        }
    }

    /// Where the loop is asked for a sign of life. While it drains it gives none.
    pub fn probe(&self) -> Probe {
        self.probes.0.clone()
    }

    /// Looks at what the last run of the gateway left: everything unfinished goes on. After an unclean stop, what may
    /// have caused it runs alone, and what stopped the gateway while it ran alone is given up.
    pub async fn recover(&mut self) -> Result<(), StoreError> {
        if !self.is_guest {
            self.judge().await?;
        }
        let unfinished = self.rescan().await?;
        tracing::info!(unfinished, "looked at what was left");
        Ok(())
    }

    async fn judge(&mut self) -> Result<(), StoreError> {
        let store = self.bus.store().clone();
        let waited = std::mem::take(&mut self.waited);
        let (buried, suspects) = store
            .write(Commit::Synced, move |connection| {
                let clean = meta::get(connection, meta::CLEAN)?.is_none_or(|clean| clean == "yes");
                meta::set(connection, meta::CLEAN, "no")?;
                let alone = meta::get(connection, meta::ALONE)?.and_then(|turn| turn.parse::<Uuid>().ok());
                meta::set(connection, meta::ALONE, "")?;
                let mut buried = Vec::new();
                // Who only waited did not stop the gateway: its start does not count, as after an orderly stop.
                for turn in &waited {
                    inbox::undo_start(connection, *turn)?;
                }
                if let Some(turn) = alone.filter(|turn| !clean && !waited.contains(turn)) {
                    buried = inbox::of_turn(connection, turn)?;
                    buried.retain(|row| row.state == inbox::State::Running && row.stalled >= SUSPECT_AFTER);
                }
                let suspects = if clean { Vec::new() } else { inbox::suspects(connection, SUSPECT_AFTER)? };
                Ok((buried, suspects))
            })
            .await?;
        let dead: HashSet<_> = buried.iter().map(|row| row.turn).collect();
        self.runner.get().bury(buried).await;
        for row in suspects.into_iter().filter(|row| !dead.contains(&row.turn)) {
            tracing::warn!(turn = %row.turn, session = row.session, "a message may have stopped the gateway; it runs alone");
            self.lanes.suspect(row.session.into());
        }
        Ok(())
    }

    /// Runs until `shutdown`, then gives the running turns the bus's drain timeout to end. What is left stays `running` on
    /// disk and goes on at the next start.
    pub async fn run(mut self, shutdown: CancellationToken) {
        let (bus, room) = (self.bus.clone(), self.room.clone());
        loop {
            self.start_turns();
            tokio::select! {
                () = shutdown.cancelled() => break,
                inbound = bus.consume_inbound() => self.take(inbound).await,
                session = room.due() => self.lanes.wake(session),
                Some(ended) = self.turns.join_next() => self.ended(ended),
                Ok(session) = self.proven.1.recv() => self.lanes.proven(&session),
                // Whoever asked may have stopped waiting.
                Ok(asked) = self.probes.1.recv() => drop(asked.send(())),
            }
        }
        let limit = self.bus.drain_timeout();
        self.drain(limit).await;
    }

    async fn take(&mut self, inbound: Inbound) {
        match inbound {
            Inbound::Work(session) => {
                // Whoever sent a message to this process waits for its answer.
                self.lanes.admit(&session);
                self.lanes.wake(session);
            }
            Inbound::Cancel(turn) => {
                if let Some(cancel) = self.runner.get().lock_cancels().get(&turn) {
                    cancel.cancel();
                }
            }
            Inbound::AskAgain => {
                self.runner.get().models.reset_circuits();
                self.room.call_everybody();
            }
            Inbound::AskSessionAgain(session) => self.room.call_session(&session),
            Inbound::Rescan => {
                if let Err(error) = self.rescan().await {
                    tracing::error!(%error, "the inbox could not be looked at; trying again");
                    tokio::time::sleep(Duration::from_secs(1)).await;
                    self.bus.look_again();
                }
            }
        }
    }

    /// Wakes every session with an unfinished message, and stops what is to be stopped.
    async fn rescan(&mut self) -> Result<usize, StoreError> {
        let (sessions, cancelled) = self
            .bus
            .store()
            .read(|connection| Ok((inbox::open_sessions(connection)?, inbox::cancelled(connection)?)))
            .await?;
        let unfinished = sessions.iter().map(|(_, messages, _)| messages).sum();
        for (session, ..) in sessions {
            self.lanes.wake(session.into());
        }
        let runner = self.runner.get();
        let cancels = runner.lock_cancels();
        for row in cancelled {
            if let Some(cancel) = cancels.get(&row.turn) {
                cancel.cancel();
            }
        }
        Ok(unfinished)
    }

    fn start_turns(&mut self) {
        let current = self.runner.get();
        self.lanes.set_bounds(current.at_once());
        while let Some((session, company)) = self.lanes.next() {
            let (runner, proven) = (current.clone(), self.proven.0.clone());
            self.turns.spawn(async move {
                let turn = AssertUnwindSafe(runner.run_next(&session, company, proven)).catch_unwind().await;
                // What panics outside of a turn leaves its row unfinished: the lane looks again, and not at once, as it
                // may panic again.
                if turn.is_err() {
                    tracing::error!(%session, "a lane panicked; it looks again");
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
                (session, turn.unwrap_or(true))
            });
        }
    }

    fn ended(&mut self, ended: Result<(SessionKey, bool), tokio::task::JoinError>) {
        match ended {
            Ok((session, more)) => self.lanes.ended(&session, more),
            // Panics are caught inside; this is an abort, and only the drain aborts.
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
        let left: Vec<_> = self.runner.get().lock_cancels().drain().map(|(turn, _)| turn).collect();
        if !in_time {
            tracing::warn!(turns = left.len(), "stopped in mid-turn; they go on at the next start");
        }
        let is_guest = self.is_guest;
        let undone = self
            .bus
            .store()
            .write(Commit::Synced, move |connection| {
                for turn in left {
                    inbox::undo_start(connection, turn)?;
                }
                if is_guest {
                    return Ok(());
                }
                meta::set(connection, meta::ALONE, "")?;
                meta::set(connection, meta::CLEAN, "yes")
            })
            .await;
        if let Err(error) = undone {
            tracing::error!(%error, "the orderly stop could not be recorded");
        }
    }
}
