//! The periodic maintenance of the store.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use daoyou_channels::outgoing::OutgoingFiles;

use super::program_pages::release_program_pages;
use super::runtime::Runtime;
use crate::bus::{MessageBus, NoticeKind, OutboundBody, OutboxSlot};
use crate::home::{Home, modes};
use crate::http::sweep_uploads;
use crate::live::Live;
use crate::memory;
use crate::phrases::{Phrases, fill};
use crate::store::{
    Connection, DETACHED, Durability, Store, StoreError, disk_usage, meta, millis, now_ms, outbox, retention,
};
use crate::tools::{Trash, prepare_temp};

/// The interval of complete checks. They find damage before the damaged data is needed.
const CHECK_INTERVAL: Duration = Duration::from_secs(86_400);

/// The delay of the first check after the start.
const FIRST_CHECK: Duration = Duration::from_secs(30);

/// The time after the start at which the background work of the start has ended.
const FIRST_RELEASE: Duration = Duration::from_secs(10);

/// The pause between two writes.
const WRITE_PAUSE: Duration = Duration::from_millis(20);

/// The pages that one write returns to the disk: this takes some milliseconds of the writer's time.
const PAGES_PER_WRITE: u32 = 100;

/// The longest wait for a moment without messages, and its polling interval.
const IDLE_WAIT: Duration = Duration::from_secs(1_800);
const IDLE_POLL: Duration = Duration::from_secs(1);

/// The time for which records of skipped messages are kept, such as mail from a list or from an unknown sender.
const SKIPPED_AGE: Duration = Duration::from_secs(30 * 86_400);

/// The time for which the runs of a removed job are kept.
const JOB_RUNS_AGE: Duration = Duration::from_secs(90 * 86_400);

/// How many unused sessions one write empties at most, and of how many removed jobs it deletes the runs.
const OWNERS_PER_WRITE: usize = 100;

/// The age at which an unused copy of a file is deleted. The message of a newer copy may not be committed yet.
const UNUSED_FILE_AGE: Duration = Duration::from_secs(86_400);

type Prune = fn(&Connection, i64) -> Result<usize, StoreError>;

/// Maintains a store.
pub struct Upkeep {
    pub home: Home,
    pub bus: Arc<MessageBus>,
    pub runtime: Arc<Live<Runtime>>,
    /// The time for which notes are kept: channel, kind, age.
    pub note_ages: Vec<(String, &'static str, Duration)>,
}

impl Upkeep {
    /// Checks the database shortly after the start, since a crash may have damaged it. Before, gives back the code that the background
    /// work of the first seconds needed.
    pub async fn check_after_start(&self) {
        tokio::time::sleep(FIRST_RELEASE).await;
        release_program_pages();
        tokio::time::sleep(FIRST_CHECK.saturating_sub(FIRST_RELEASE)).await;
        self.check_or_log().await;
        release_program_pages();
    }

    /// Does all maintenance work that is due.
    pub async fn maintain(&self) {
        repair_modes(&self.home).await;
        self.prune().await;
        self.sweep_outgoing().await;
        self.sweep_uploads().await;
        self.sweep_trash().await;
        if let Err(error) = self.vacuum().await {
            tracing::warn!(%error, "free space of the database could not be given back");
        }
        self.check_or_log().await;
        release_program_pages();
    }

    /// Copies the database if its file was deleted or replaced, or brings the copy up to date, and tells the owner once.
    pub async fn rescue_database(&self) {
        let was_rescued = self.store().is_rescued();
        match self.store().rescue().await {
            Ok(None) | Err(StoreError::Closed) => {}
            // What was running goes on and is written.
            Ok(Some(copy)) if was_rescued => tracing::debug!(copy = %copy.display(), "the copy is up to date"),
            Ok(Some(copy)) => {
                tracing::error!(copy = %copy.display(), "{DETACHED}; no more messages are accepted, and a copy was made");
                if let Err(error) = self.notify_of_rescue(&copy).await {
                    tracing::error!(%error, "the owner could not be notified");
                }
            }
            Err(error) => tracing::error!(%error, "{DETACHED}, and it could not be copied"),
        }
    }

    /// Makes the folder of temporary files again if it was deleted: commands need it.
    pub async fn restore_temp_folder(&self) {
        let home = self.home.clone();
        let made = tokio::task::spawn_blocking(move || prepare_temp(home.dir()).map(drop));
        if let Ok(Err(error)) = made.await {
            tracing::warn!("{error}");
        }
    }

    async fn notify_of_rescue(&self, copy: &Path) -> Result<(), StoreError> {
        let phrases = Phrases::of(self.runtime.get().config.agent.locale.resolve());
        let content = fill(phrases.database_gone, &[&copy.display().to_string()]);
        let bus = self.bus.clone();
        let write = move |connection: &Connection| {
            let slot = OutboxSlot::notice(NoticeKind::Loss);
            bus.write_owner_notice(connection, daoyou_channels::new_id(), slot, content.clone())
        };
        if let Some(channel) = self.store().write(Durability::Synced, write).await? {
            self.bus.outbound_written(&channel, 1);
        }
        Ok(())
    }

    async fn check_or_log(&self) {
        if let Err(error) = self.check().await {
            tracing::warn!(%error, "the database could not be checked");
        }
    }

    fn store(&self) -> &Store {
        self.bus.store()
    }

    /// Deletes rows that are older than `store.retain` allows.
    async fn prune(&self) {
        let runtime = self.runtime.get();
        let retain = &runtime.config.store.retain;
        let [turns, outbox, sessions] =
            [retain.turns, retain.outbox, retain.sessions].map(|age| age.map(Duration::from));
        let rules: [(&str, Option<Duration>, Prune); 9] = [
            ("turns", turns, retention::prune_turn_steps),
            ("sub-agents", turns, retention::prune_spawns),
            ("approvals", turns, retention::prune_approvals),
            ("questions", turns, retention::prune_questions),
            ("outbox", outbox, retention::prune_outbox),
            ("sessions", sessions, memory::prune_sessions),
            ("summaries", sessions, memory::prune_orphaned_summaries),
            ("snapshots", Some(Duration::ZERO), memory::sweep_snapshots),
            ("skipped", Some(SKIPPED_AGE), retention::prune_skipped),
        ];
        for (what, age, prune) in rules {
            let Some(age) = age else { continue };
            self.delete_old(what, age, prune).await;
        }
        for (channel, kind, age) in &self.note_ages {
            let (channel, kind) = (channel.clone(), *kind);
            let prune =
                move |connection: &Connection, before| retention::prune_notes(connection, &channel, kind, before);
            self.delete_old(kind, *age, prune).await;
        }
        let (find, prune) = (retention::gone_jobs, retention::prune_job_runs);
        self.delete_old_of_owners("runs of removed jobs", JOB_RUNS_AGE, find, prune).await;
        if let Some(age) = sessions {
            let (find, prune) = (retention::sessions_with_content, retention::empty_inbox_rows);
            self.delete_old_of_owners("inbox", age, find, prune).await;
        }
    }

    /// Deletes rows that are older than `age` and belong to the jobs or sessions that `find` returns. This search does not occupy
    /// the writer.
    async fn delete_old_of_owners(
        &self,
        what: &str,
        age: Duration,
        find: fn(&Connection, i64) -> Result<Vec<String>, StoreError>,
        prune: fn(&Connection, &[String], i64) -> Result<usize, StoreError>,
    ) {
        let before = now_ms().saturating_sub(millis(age));
        let found = self.store().read(move |connection| find(connection, before)).await;
        let found = match found {
            Ok(found) => found,
            // The gateway is stopping.
            Err(StoreError::Closed) => return,
            Err(error) => return tracing::warn!(what, %error, "old rows could not be looked up"),
        };
        for owners in found.chunks(OWNERS_PER_WRITE) {
            let owners = owners.to_vec();
            self.delete_old(what, age, move |connection: &Connection, before| prune(connection, &owners, before)).await;
        }
    }

    /// Deletes the copies of files that no undelivered message uses.
    async fn sweep_outgoing(&self) {
        let rows = match self.store().read(outbox::bodies_with_files).await {
            Ok(rows) => rows,
            // The gateway is stopping.
            Err(StoreError::Closed) => return,
            Err(error) => return tracing::warn!(%error, "the files of messages could not be looked up"),
        };
        let mut in_use = HashSet::new();
        for body in rows {
            match serde_json::from_str::<OutboundBody>(&body) {
                Ok(body) => in_use.extend(body.attachments.into_iter().map(|file| file.digest)),
                // The files of the messages are unknown, so nothing is deleted.
                Err(error) => {
                    return tracing::warn!(%error, "a message of the outbox cannot be read; no file is deleted");
                }
            }
        }
        let files = OutgoingFiles::of_home(self.home.dir());
        remove_files("copies of sent files", move || Ok(files.sweep(&in_use, UNUSED_FILE_AGE)?)).await;
    }

    /// Deletes unused uploads of the page.
    async fn sweep_uploads(&self) {
        let workspace = self.home.workspace(&self.runtime.get().config.agent.workspace);
        match sweep_uploads(self.store(), &workspace).await {
            // The gateway is stopping.
            Ok(()) | Err(StoreError::Closed) => {}
            Err(error) => tracing::warn!(%error, "uploads that nothing needs could not be deleted"),
        }
    }

    /// Removes trash entries that are older than `tools.trash` allows.
    async fn sweep_trash(&self) {
        let runtime = self.runtime.get();
        let workspace = self.home.workspace(&runtime.config.agent.workspace);
        let age = runtime.config.tools.trash.0;
        remove_files("old entries of the trash", move || Ok(Trash::open(&workspace)?.remove_older(age)?)).await;
    }

    /// Deletes rows that are older than `age` with `prune`, in small writes with pauses for other writes.
    async fn delete_old<P>(&self, what: &str, age: Duration, prune: P)
    where
        P: Fn(&Connection, i64) -> Result<usize, StoreError> + Clone + Send + 'static,
    {
        let before = now_ms().saturating_sub(millis(age));
        let mut total = 0;
        loop {
            let piece = prune.clone();
            match self.store().write(Durability::Logged, move |connection| piece(connection, before)).await {
                Ok(0) => break,
                Ok(rows) => total += rows,
                // The gateway is stopping.
                Err(StoreError::Closed) => return,
                Err(error) => return tracing::warn!(what, %error, "old rows could not be deleted"),
            }
            tokio::time::sleep(WRITE_PAUSE).await;
        }
        if total > 0 {
            tracing::info!(what, rows = total, "old rows deleted");
        }
    }

    /// Returns free pages to the disk, in small writes with pauses for other writes.
    async fn vacuum(&self) -> Result<(), StoreError> {
        let every = self.runtime.get().config.store.vacuum.0;
        if every.is_zero() || !self.is_due(meta::VACUUMED, every).await? {
            return Ok(());
        }
        if self.store().read(disk_usage::is_worth_returning).await? {
            let is_idle = self.wait_until_idle().await;
            let before = self.store().disk_usage().await?;
            if !self.store().write(Durability::Logged, disk_usage::is_incremental).await? {
                if !is_idle {
                    return Ok(());
                }
                self.store().write_alone(disk_usage::make_incremental).await?;
            }
            while self
                .store()
                .write(Durability::Logged, |connection| disk_usage::return_pages(connection, PAGES_PER_WRITE))
                .await?
                > 0
            {
                tokio::time::sleep(WRITE_PAUSE).await;
            }
            let after = self.store().disk_usage().await?;
            tracing::info!(before = before.size, after = after.size, "free space of the database given back");
        }
        self.record_run(meta::VACUUMED).await
    }

    /// Reads the whole database. Damage ends the gateway, and the next start repairs it.
    async fn check(&self) -> Result<(), StoreError> {
        if self.is_due(meta::CHECKED, CHECK_INTERVAL).await? {
            self.wait_until_idle().await;
            self.store().check().await?;
            self.check_word_index().await?;
            self.record_run(meta::CHECKED).await?;
        }
        Ok(())
    }

    /// Rebuilds a damaged word index from the messages and memories.
    async fn check_word_index(&self) -> Result<(), StoreError> {
        let faults = self.store().read(memory::word_index::check).await?;
        if !faults.is_empty() {
            tracing::warn!(?faults, "the index of words is damaged and is rebuilt; nothing else is affected");
            self.store().write(Durability::Logged, memory::word_index::mark_damaged).await?;
            self.runtime.get().memory.notify_changes();
        }
        Ok(())
    }

    /// Waits until no message is being processed; returns false if that takes too long.
    async fn wait_until_idle(&self) -> bool {
        let idle = async {
            while self.bus.depths().0 > 0 {
                tokio::time::sleep(IDLE_POLL).await;
            }
        };
        tokio::time::timeout(IDLE_WAIT, idle).await.is_ok()
    }

    async fn is_due(&self, what: &'static str, every: Duration) -> Result<bool, StoreError> {
        let last = self.store().read(move |connection| meta::get(connection, what)).await?;
        let last = last.and_then(|last| last.parse::<i64>().ok()).unwrap_or(0);
        // A clock that was set back must not postpone the work for ever.
        Ok((now_ms() - last).unsigned_abs() >= every.as_millis().try_into().unwrap_or(u64::MAX))
    }

    async fn record_run(&self, what: &'static str) -> Result<(), StoreError> {
        let now = now_ms().to_string();
        self.store().write(Durability::Logged, move |connection| meta::set(connection, what, &now)).await
    }
}

/// Removes files with `remove`, which returns their number, on a thread that may block; logs the result.
async fn remove_files(what: &str, remove: impl FnOnce() -> anyhow::Result<usize> + Send + 'static) {
    match tokio::task::spawn_blocking(remove).await {
        Ok(Ok(0)) => {}
        Ok(Ok(count)) => tracing::info!(count, "{what} removed"),
        Ok(Err(error)) => tracing::warn!(%error, "{what} could not be removed"),
        Err(error) => tracing::error!(%error, "the removal of {what} was aborted"),
    }
}

/// Removes other users' access to files of the home, and logs it.
pub(super) async fn repair_modes(home: &Home) {
    let home = home.clone();
    if let Err(error) = tokio::task::spawn_blocking(move || modes::repair(&home)).await {
        tracing::error!(%error, "the check of the modes of the home was aborted");
    }
}
