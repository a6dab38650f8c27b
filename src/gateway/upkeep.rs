//! What a gateway does for its store from time to time.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use daoyou_channels::outgoing::OutgoingFiles;

use crate::bus::{MessageBus, OutboundBody};
use crate::home::{Home, modes};
use crate::live::Live;
use crate::memory;
use crate::store::{Commit, Connection, Store, StoreConfig, StoreError, meta, now_ms, outbox, retention, space};

/// How often all of it is read, to find damage before somebody needs what is damaged.
const CHECK_EVERY: Duration = Duration::from_secs(86_400);

/// How long after the start the first of these checks may come.
const FIRST_CHECK: Duration = Duration::from_secs(30);

/// The rest between two pieces of work.
const BREATH: Duration = Duration::from_millis(20);

/// Pages given back to the disk in one piece: some milliseconds of the writer's time.
const PIECE: u32 = 100;

/// How long a quiet moment is waited for, and how often it is looked for.
const PATIENCE: Duration = Duration::from_secs(1_800);
const LOOK: Duration = Duration::from_secs(1);

/// How long it is known what a channel passed over: a mail from a list, a stranger's.
const SKIPPED: Duration = Duration::from_secs(30 * 86_400);

/// How long the runs of a job are known that is gone.
const JOB_RUNS: Duration = Duration::from_secs(90 * 86_400);

/// Jobs whose runs are looked for in one piece.
const JOBS_AT_ONCE: usize = 100;

/// How long a copy of a file stays that no message needs: a call may have made it whose message is about to be committed.
const UNUSED_FILES: Duration = Duration::from_secs(86_400);

type Prune = fn(&Connection, i64) -> Result<usize, StoreError>;

/// Looks after a store.
pub struct Upkeep {
    pub home: Home,
    pub bus: Arc<MessageBus>,
    pub config: Arc<Live<StoreConfig>>,
    pub memory: Arc<memory::MemoryService>,
    /// How long notes are kept: channel, kind, time.
    pub note_ages: Vec<(String, &'static str, Duration)>,
}

impl Upkeep {
    /// Looks once for what a crash may have left damaged, a little after the start: better now than in an hour.
    pub async fn begin(&self) {
        tokio::time::sleep(FIRST_CHECK).await;
        self.look_for_damage().await;
    }

    /// Does all that is done from time to time.
    pub async fn go_round(&self) {
        repair_modes(&self.home).await;
        self.prune().await;
        self.sweep_outgoing().await;
        if let Err(error) = self.vacuum().await {
            tracing::warn!(%error, "free space of the database could not be given back");
        }
        self.look_for_damage().await;
    }

    async fn look_for_damage(&self) {
        if let Err(error) = self.check().await {
            tracing::warn!(%error, "the database could not be checked");
        }
    }

    fn store(&self) -> &Store {
        self.bus.store()
    }

    /// Deletes what is older than `retain` says.
    async fn prune(&self) {
        let config = self.config.get();
        let retain = &config.retain;
        let sessions = retain.sessions.map(Duration::from);
        let rules: [(&str, Option<Duration>, Prune); 7] = [
            ("turns", retain.turns.map(Duration::from), retention::prune_turn_steps),
            ("sub-agents", retain.turns.map(Duration::from), retention::prune_spawns),
            ("outbox", retain.outbox.map(Duration::from), retention::prune_outbox),
            ("sessions", sessions, memory::prune_sessions),
            ("summaries", sessions, memory::prune_orphaned_summaries),
            ("snapshots", Some(Duration::ZERO), memory::sweep_snapshots),
            ("skipped", Some(SKIPPED), retention::prune_skipped),
        ];
        for (what, keep, prune) in rules {
            let Some(keep) = keep else { continue };
            self.clear(what, keep, prune).await;
        }
        for (channel, kind, keep) in &self.note_ages {
            let (channel, kind) = (channel.clone(), *kind);
            let prune =
                move |connection: &Connection, before| retention::prune_notes(connection, &channel, kind, before);
            self.clear(kind, *keep, prune).await;
        }
        self.prune_job_runs().await;
    }

    /// Removes the copies of files that no message needs any more that is still to be sent.
    async fn sweep_outgoing(&self) {
        let rows = match self.store().read(outbox::bodies_with_files).await {
            Ok(rows) => rows,
            // The gateway is going.
            Err(StoreError::Closed) => return,
            Err(error) => return tracing::warn!(%error, "the files of messages could not be looked up"),
        };
        let mut in_use = HashSet::new();
        for body in rows {
            match serde_json::from_str::<OutboundBody>(&body) {
                Ok(body) => in_use.extend(body.attachments.into_iter().map(|file| file.digest)),
                // What it needs is not known, so nothing is removed.
                Err(error) => {
                    return tracing::warn!(%error, "a message of the outbox cannot be read; no file is removed");
                }
            }
        }
        let files = OutgoingFiles::of_home(self.home.dir());
        match tokio::task::spawn_blocking(move || files.sweep(&in_use, UNUSED_FILES)).await {
            Ok(Ok(0)) => {}
            Ok(Ok(files)) => tracing::info!(files, "copies of sent files deleted"),
            Ok(Err(error)) => tracing::warn!(%error, "copies of sent files could not be deleted"),
            Err(error) => tracing::error!(%error, "deleting copies of sent files broke off"),
        }
    }

    /// Which jobs are gone is looked up beside the writer.
    async fn prune_job_runs(&self) {
        let before = now_ms().saturating_sub(millis(JOB_RUNS));
        let gone = match self.store().read(move |connection| retention::gone_jobs(connection, before)).await {
            Ok(gone) => gone,
            // The gateway is going.
            Err(StoreError::Closed) => return,
            Err(error) => return tracing::warn!(%error, "the runs of removed jobs could not be looked up"),
        };
        for jobs in gone.chunks(JOBS_AT_ONCE) {
            let jobs = jobs.to_vec();
            let prune = move |connection: &Connection, before| retention::prune_job_runs(connection, &jobs, before);
            self.clear("runs of removed jobs", JOB_RUNS, prune).await;
        }
    }

    /// Deletes by `prune` what is older than `keep`, in small pieces between which others write.
    async fn clear<P>(&self, what: &str, keep: Duration, prune: P)
    where
        P: Fn(&Connection, i64) -> Result<usize, StoreError> + Clone + Send + 'static,
    {
        let before = now_ms().saturating_sub(millis(keep));
        let mut total = 0;
        loop {
            let piece = prune.clone();
            match self.store().write(Commit::Logged, move |connection| piece(connection, before)).await {
                Ok(0) => break,
                Ok(rows) => total += rows,
                // The gateway is going.
                Err(StoreError::Closed) => return,
                Err(error) => return tracing::warn!(what, %error, "old rows could not be deleted"),
            }
            tokio::time::sleep(BREATH).await;
        }
        if total > 0 {
            tracing::info!(what, rows = total, "old rows deleted");
        }
    }

    /// Gives free pages back to the disk, in small pieces between which others write.
    async fn vacuum(&self) -> Result<(), StoreError> {
        let every = self.config.get().vacuum.0;
        if every.is_zero() || !self.is_due(meta::VACUUMED, every).await? {
            return Ok(());
        }
        if self.store().read(space::is_worth_it).await? {
            let is_quiet = self.quiet().await;
            let before = self.store().space().await?;
            if !self.store().write(Commit::Logged, space::is_in_pieces).await? {
                if !is_quiet {
                    return Ok(());
                }
                self.store().write_alone(space::convert).await?;
            }
            while self.store().write(Commit::Logged, |connection| space::give_back(connection, PIECE)).await? > 0 {
                tokio::time::sleep(BREATH).await;
            }
            let after = self.store().space().await?;
            tracing::info!(before = before.size, after = after.size, "free space of the database given back");
        }
        self.is_done(meta::VACUUMED).await
    }

    /// Reads all of the database. What is wrong with it ends the gateway, and the next start mends it.
    async fn check(&self) -> Result<(), StoreError> {
        if self.is_due(meta::CHECKED, CHECK_EVERY).await? {
            self.quiet().await;
            self.store().check().await?;
            self.check_words().await?;
            self.is_done(meta::CHECKED).await?;
        }
        Ok(())
    }

    /// A damaged index of words is made anew, from what it was made of.
    async fn check_words(&self) -> Result<(), StoreError> {
        let faults = self.store().read(memory::word_index::check).await?;
        if !faults.is_empty() {
            tracing::warn!(?faults, "the index of words is damaged, and is made anew; nothing else is harmed");
            self.store().write(Commit::Logged, memory::word_index::distrust).await?;
            self.memory.notify_changes();
        }
        Ok(())
    }

    /// Waits for a moment in which no message is worked on; answers whether there was one.
    async fn quiet(&self) -> bool {
        let quiet = async {
            while self.bus.depths().0 > 0 {
                tokio::time::sleep(LOOK).await;
            }
        };
        tokio::time::timeout(PATIENCE, quiet).await.is_ok()
    }

    async fn is_due(&self, what: &'static str, every: Duration) -> Result<bool, StoreError> {
        let last = self.store().read(move |connection| meta::get(connection, what)).await?;
        let last = last.and_then(|last| last.parse::<i64>().ok()).unwrap_or(0);
        // A clock that was set back must not put it off for ever.
        Ok((now_ms() - last).unsigned_abs() >= every.as_millis().try_into().unwrap_or(u64::MAX))
    }

    async fn is_done(&self, what: &'static str) -> Result<(), StoreError> {
        let now = now_ms().to_string();
        self.store().write(Commit::Logged, move |connection| meta::set(connection, what, &now)).await
    }
}

/// Closes what of the home is open to other users of this machine, and says so in the log.
pub(super) async fn repair_modes(home: &Home) {
    let home = home.clone();
    if let Err(error) = tokio::task::spawn_blocking(move || modes::repair(&home)).await {
        tracing::error!(%error, "looking at the modes of the home broke off");
    }
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}
