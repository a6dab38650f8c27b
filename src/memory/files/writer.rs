//! Keeps MEMORY.md and HISTORY.md up to date: after each commit that concerns them, and after edits of MEMORY.md.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use daoyou_channels::cli::Language;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::history;
use super::import::{MemoryPageContext, import, record_rendering};
use super::state::{FileRead, MEMORY_FILE, older_histories, read, replace, stamp as stamp_of, write_older_history};
use crate::crash;
use crate::live::LivePart;
use crate::memory::forgetting::CHANGED_SUMMARIES_KEY;
use crate::memory::{MemoryService, MemorySettings};
use crate::store::memory_lines::{self, SummaryRow};
use crate::store::{Connection, Durability, StoreError, forgetting, memory_queries, meta};
use crate::tools::{HISTORY, SpillStore};

/// The interval between checks of the file for edits, and before the next try if the file was incomplete.
const CHECK_INTERVAL: Duration = Duration::from_secs(10);
const RETRY_INTERVAL: Duration = Duration::from_secs(2);
/// The pause after a commit, so that one update handles all commits in it.
const SETTLE: Duration = Duration::from_millis(100);
/// The minimum time between two writes of HISTORY.md, each of which writes the whole file.
const MIN_LOG_INTERVAL: Duration = Duration::from_secs(5);
/// The maximum number of tries to update a file that is being edited.
const MAX_TRIES: usize = 3;
/// The size above which the log continues in a new file, in bytes.
const MAX_LOG_BYTES: usize = 500_000;
/// The maximum number of summaries of one write.
const SUMMARIES_PER_WRITE: u32 = 200;

/// The key in `meta` of the last summary that HISTORY.md contains.
const HISTORY_KEY: &str = "memory_history";

/// The initial MEMORY.md.
const TEMPLATE: &str = include_str!("../../../workspace/memory/MEMORY.md");

/// The worker that keeps the files of one home up to date.
pub struct MemoryFileWriter {
    live: LivePart<MemoryService>,
    /// The time of the last write of HISTORY.md.
    logged: Option<Instant>,
    /// The log already says that a file could not be removed.
    is_logged: bool,
}

/// The progress of an update.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FileProgress {
    Complete,
    /// A file is being edited, or was written a moment ago.
    NotYet,
}

/// The outcome of an update of HISTORY.md.
#[derive(Clone, Copy, PartialEq, Eq)]
enum HistoryProgress {
    Unchanged,
    Written,
    /// There are additions to write, and they can wait.
    Waiting,
}

impl MemoryFileWriter {
    pub fn new(live: LivePart<MemoryService>) -> Self {
        Self { live, logged: None, is_logged: false }
    }

    /// Runs until `stop`, and then updates the files once more, so that they are complete when the process ends.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut changes = self.live.get().subscribe_to_changes();
        let mut is_due = true;
        loop {
            let is_last = stop.is_cancelled();
            let progress = if is_due { self.update(is_last).await } else { FileProgress::Complete };
            if is_last {
                return;
            }
            let pause = if progress == FileProgress::Complete { CHECK_INTERVAL } else { RETRY_INTERVAL };
            tokio::select! {
                () = stop.cancelled() => is_due = true,
                _ = changes.changed() => {
                    is_due = true;
                    stop.run_until_cancelled(tokio::time::sleep(SETTLE)).await;
                    changes.mark_unchanged();
                }
                () = tokio::time::sleep(pause) => {
                    let memory = self.live.get();
                    is_due = progress == FileProgress::NotYet || memory.files.is_edited(&memory.settings.workspace);
                }
            }
        }
    }

    async fn update(&mut self, is_last: bool) -> FileProgress {
        let service = self.live.get();
        let memory = service.update_memory_file().await;
        let may_wait = !is_last && self.logged.is_some_and(|at| at.elapsed() < MIN_LOG_INTERVAL);
        let history = service.update_history_file(may_wait).await.map(|logged| match logged {
            HistoryProgress::Unchanged => FileProgress::Complete,
            HistoryProgress::Waiting => FileProgress::NotYet,
            HistoryProgress::Written => {
                self.logged = Some(Instant::now());
                FileProgress::Complete
            }
        });
        let outputs = service.remove_outputs(&mut self.is_logged).await;
        let kept = [memory, history, outputs].map(|kept| {
            kept.unwrap_or_else(|error| {
                log_failure(&error);
                FileProgress::Complete
            })
        });
        if kept.contains(&FileProgress::NotYet) { FileProgress::NotYet } else { FileProgress::Complete }
    }
}

fn log_failure(error: &StoreError) {
    if !matches!(error, StoreError::Closed) {
        tracing::warn!(%error, "the memory files could not be updated; retrying after the next change");
    }
}

impl MemoryService {
    /// Imports the edits of MEMORY.md since the last check, before memories are shown. Without edits this costs one check of
    /// the file. An unreadable file is logged once.
    pub async fn import_by_hand(&self) {
        if !self.files.is_edited(&self.settings.workspace) {
            return;
        }
        if let Err(error) = self.update_memory_file().await {
            log_failure(&error);
        }
    }

    /// Updates both files after a change by a command, in a home without a running gateway.
    pub async fn keep_files(&self) {
        let kept = [
            self.update_memory_file().await.map(drop),
            self.update_history_file(false).await.map(drop),
            self.remove_outputs(&mut false).await.map(drop),
        ];
        kept.iter().filter_map(|kept| kept.as_ref().err()).for_each(log_failure);
    }

    /// Runs work on the files of the workspace on a blocking thread.
    async fn in_workspace<T: Send + 'static>(&self, work: impl FnOnce(&Path) -> T + Send + 'static) -> T {
        let settings = self.settings.clone();
        match tokio::task::spawn_blocking(move || work(&settings.workspace)).await {
            Ok(done) => done,
            // A panic continues in the caller. Any other error means that the runtime stops, which also stops this task.
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            Err(_) => std::future::pending().await,
        }
    }

    async fn update_memory_file(&self) -> Result<FileProgress, StoreError> {
        let _alone = self.files.working.lock().await;
        let settings = self.settings.clone();
        let facts = self.store.read(memory_queries::facts_of_owners).await?;
        if !self.files.is_edited(&settings.workspace) && self.files.is_written(&facts) {
            return Ok(FileProgress::Complete);
        }
        let heading = match settings.language {
            Language::En => "Private",
            Language::Zh => "私人",
        };
        for _ in 0..MAX_TRIES {
            let (before, is_fresh, stamp) = match self.in_workspace(|at| read(at, MEMORY_FILE)).await {
                FileRead::Missing => (None, false, None),
                FileRead::Text { text, is_fresh, stamp } => (Some(text), is_fresh, stamp),
                FileRead::Unusable(reason) => {
                    self.files.log_once(MEMORY_FILE, Some(&reason));
                    self.files.set_seen(Some(stamp_of(&settings.workspace)));
                    return Ok(FileProgress::Complete);
                }
            };
            self.files.log_once(MEMORY_FILE, None);
            // An empty file counts as lost. To forget everything, a person removes the bullets and keeps the heading.
            let is_lost = before.as_ref().is_none_or(|text| text.trim().is_empty());
            let page = if is_lost { TEMPLATE.to_owned() } else { before.clone().unwrap_or_default() };
            if is_lost && is_fresh {
                return Ok(FileProgress::NotYet);
            }
            let (settings_of_page, secrets) = (settings.clone(), self.secrets.clone());
            let write = move |connection: &Connection| {
                if is_lost {
                    memory_lines::clear(connection)?;
                }
                let MemorySettings { config, identities, .. } = &*settings_of_page;
                let context = MemoryPageContext { config, identities, heading };
                let imported = import(connection, &page, is_fresh, context, |new| {
                    secrets.redact(&mut new.text);
                })?;
                // The facts are read in the same write, since the page does not have later facts.
                Ok((imported, memory_queries::facts_of_owners(connection)?))
            };
            let (Some(rendering), facts) = self.store.write(Durability::Logged, write).await? else {
                return Ok(FileProgress::NotYet);
            };
            if before.as_ref() != Some(&rendering.text) {
                crash::point("memory_file_begun", &rendering.text);
                let (text, expected) = (rendering.text.clone(), before.clone());
                match self.in_workspace(move |at| replace(at, MEMORY_FILE, expected.as_deref(), &text)).await {
                    Ok(Some(stamp)) => self.files.set_seen(Some(stamp)),
                    Ok(None) => continue,
                    Err(reason) => {
                        self.files.log_once(MEMORY_FILE, Some(&reason));
                        self.files.set_seen(Some(stamp));
                        return Ok(FileProgress::Complete);
                    }
                }
                crash::point("memory_file_written", &rendering.text);
            } else {
                self.files.set_seen(Some(stamp));
            }
            if !(rendering.more.is_empty() && rendering.gone.is_empty()) {
                self.store
                    .write(Durability::Logged, move |connection| record_rendering(connection, &rendering))
                    .await?;
            }
            self.files.set_written_facts(facts);
            return Ok(FileProgress::Complete);
        }
        Ok(FileProgress::NotYet)
    }

    /// Removes the tool output files of turns that were redacted.
    async fn remove_outputs(&self, is_logged: &mut bool) -> Result<FileProgress, StoreError> {
        let stored = self.store.read(forgetting::marked_outputs).await?;
        if stored.is_empty() {
            return Ok(FileProgress::Complete);
        }
        let turns: Vec<Uuid> = stored.iter().filter_map(|turn| turn.parse().ok()).collect();
        if let Err(error) = self.in_workspace(move |at| SpillStore::remove(at, &turns)).await {
            if !std::mem::replace(is_logged, true) {
                tracing::warn!(%error, "a file that may contain forgotten text could not be removed; retrying");
            }
            return Ok(FileProgress::NotYet);
        }
        *is_logged = false;
        let done = move |connection: &Connection| forgetting::outputs_removed(connection, &stored);
        self.store.write(Durability::Logged, done).await.map(|()| FileProgress::Complete)
    }

    /// Removes forgotten text from older history files.
    async fn redact_older_logs(&self, due: &DueHistory) {
        for file in self.in_workspace(older_histories).await {
            if let Err(reason) = self.redact_older_log(due, file.clone()).await {
                tracing::warn!(file, reason, "an older HISTORY file may still contain forgotten text");
            }
        }
    }

    /// Removes forgotten text from a file. The error is a text.
    async fn redact_older_log(&self, due: &DueHistory, file: String) -> Result<(), String> {
        for _ in 0..MAX_TRIES {
            let name = file.clone();
            let text = match self.in_workspace(move |at| read(at, &name)).await {
                FileRead::Missing => return Ok(()),
                FileRead::Text { text, .. } => text,
                FileRead::Unusable(reason) => return Err(reason),
            };
            let (log, name) = (due.redact(&text, &self.settings), file.clone());
            if log == text || self.in_workspace(move |at| replace(at, &name, Some(&text), &log)).await?.is_some() {
                return Ok(());
            }
        }
        Err("the file is being edited".to_owned())
    }

    /// Updates HISTORY.md. With `may_wait`, additions wait; the removal of forgotten text never does.
    async fn update_history_file(&self, may_wait: bool) -> Result<HistoryProgress, StoreError> {
        let _alone = self.files.working.lock().await;
        let settings = self.settings.clone();
        let mut logged = HistoryProgress::Unchanged;
        loop {
            let due = self.store.read(due_for_history).await?;
            if due.rows.is_empty() && due.changed.is_empty() {
                return Ok(logged);
            }
            if may_wait && due.changed.is_empty() {
                return Ok(HistoryProgress::Waiting);
            }
            let before = match self.in_workspace(|at| read(at, HISTORY)).await {
                FileRead::Missing => None,
                FileRead::Text { text, .. } => Some(text),
                FileRead::Unusable(reason) => {
                    self.files.log_once(HISTORY, Some(&reason));
                    return Ok(logged);
                }
            };
            self.files.log_once(HISTORY, None);
            let log = due.redact(before.as_deref().unwrap_or_default(), &settings);
            let section = |row: &SummaryRow| history::section(row, settings.language, &settings.zone);
            let sections: Vec<String> = due.rows.iter().map(section).collect();
            if !due.changed.is_empty() {
                self.redact_older_logs(&due).await;
            }
            let is_long = log.len() > MAX_LOG_BYTES;
            let text = history::append_sections(if is_long { "" } else { &log }, &sections);
            let replaced = self.in_workspace(move |at| {
                if is_long && !write_older_history(at, &log)? {
                    return Ok(None);
                }
                replace(at, HISTORY, before.as_deref(), &text)
            });
            match replaced.await {
                Ok(Some(_)) => logged = HistoryProgress::Written,
                // The file was edited meanwhile, or no name was free for the older log; the next change tries again.
                Ok(None) => return Ok(logged),
                Err(reason) => {
                    self.files.log_once(HISTORY, Some(&reason));
                    return Ok(logged);
                }
            }
            crash::point("history_file_written", "");
            self.store.write(Durability::Logged, move |connection| due.mark_done(connection)).await?;
        }
    }
}

/// The changes that HISTORY.md lacks.
struct DueHistory {
    rows: Vec<SummaryRow>,
    changed: Vec<(String, i64, Vec<SummaryRow>)>,
    /// The list of changed summaries, as stored.
    stored: Option<String>,
}

impl DueHistory {
    /// Returns a log with the changed summaries as they are now.
    fn redact(&self, log: &str, MemorySettings { language, zone, .. }: &MemorySettings) -> String {
        self.changed.iter().fold(log.to_owned(), |log, (session, at, rows)| {
            history::replace_sections(&log, session, *at, rows, *language, zone)
        })
    }

    fn mark_done(&self, connection: &Connection) -> Result<(), StoreError> {
        if let Some(last) = self.rows.last() {
            meta::set(connection, HISTORY_KEY, &last.id.to_string())?;
        }
        // Summaries that have changed since then stay on the list.
        if self.stored.is_some() && meta::get(connection, CHANGED_SUMMARIES_KEY)? == self.stored {
            meta::set(connection, CHANGED_SUMMARIES_KEY, "")?;
        }
        Ok(())
    }
}

fn due_for_history(connection: &Connection) -> Result<DueHistory, StoreError> {
    let after = meta::get(connection, HISTORY_KEY)?.and_then(|id| id.parse().ok()).unwrap_or(0);
    let rows = memory_lines::summaries_after(connection, after, SUMMARIES_PER_WRITE)?;
    let stored = meta::get(connection, CHANGED_SUMMARIES_KEY)?.filter(|stored| !stored.is_empty());
    let summaries: BTreeSet<(String, i64)> =
        stored.as_deref().and_then(|stored| serde_json::from_str(stored).ok()).unwrap_or_default();
    let mut changed = Vec::new();
    for (session, at) in summaries {
        let rows = memory_lines::summaries_of_session(connection, &session)?;
        changed.push((session, at, rows));
    }
    Ok(DueHistory { rows, changed, stored })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::testing::settings;
    use crate::store::Store;

    #[tokio::test]
    async fn an_older_log_that_cannot_be_redacted_is_reported() {
        let (folder, store) = Store::temporary();
        let service = MemoryService::new(store, settings(folder.path()));
        let due = DueHistory { rows: Vec::new(), changed: Vec::new(), stored: None };
        let file = "memory/HISTORY-20260101-000000.md";
        assert_eq!(service.redact_older_log(&due, file.to_owned()).await, Ok(()));
        let path = service.settings.workspace.join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, b"\xff").unwrap();
        let error = service.redact_older_log(&due, file.to_owned()).await.unwrap_err();
        assert!(error.contains("is not UTF-8 text"), "{error}");
    }
}
