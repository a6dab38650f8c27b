//! Keeps MEMORY.md and HISTORY.md up to date: after each commit that concerns them, and after edits of MEMORY.md.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use daoyou_channels::cli::Language;
use jiff::Timestamp;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::history;
use super::import::{ImportOutcome, PageContext, import, settle};
use super::state::{FileRead, HISTORY, MEMORY, older_histories, read, replace, stamp as stamp_of};
use crate::crash;
use crate::live::LivePart;
use crate::memory::forgetting::RETOLD;
use crate::memory::{MemoryService, MemorySettings};
use crate::store::memory_lines::{self, SummaryRow};
use crate::store::{Connection, Durability, StoreError, forgetting, memory_lists, meta};
use crate::tools::SpillStore;

/// The interval between checks of the file for edits, and before the next try if the file was incomplete.
const LOOK: Duration = Duration::from_secs(10);
const SOON: Duration = Duration::from_secs(2);
/// The pause in which more commits gather.
const SETTLE: Duration = Duration::from_millis(100);
/// The least time between two writes of HISTORY.md, each of which writes the whole file.
const LOG_PAUSE: Duration = Duration::from_secs(5);
/// The most tries to update a file that is being edited.
const TRIES: usize = 3;
/// The size above which the log continues in a new file, in bytes.
const LOG_BYTES: usize = 500_000;
/// The most summaries of one write.
const PIECE: u32 = 200;

/// The key in `meta` of the last summary that HISTORY.md contains.
const TOLD: &str = "memory_history";

/// The initial MEMORY.md.
const TEMPLATE: &str = include_str!("../../../workspace/memory/MEMORY.md");

/// The worker that keeps the files of one home up to date.
pub struct MemoryFileWriter {
    live: LivePart<MemoryService>,
    /// The time of the last write of HISTORY.md.
    logged: Option<Instant>,
    /// A file could not be removed, and this is logged already.
    is_stuck: bool,
}

/// The progress of an update.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FileProgress {
    Whole,
    /// A file is being edited, or was written a moment ago.
    NotYet,
}

/// The outcome of an update of HISTORY.md.
#[derive(Clone, Copy, PartialEq, Eq)]
enum HistoryProgress {
    Nothing,
    Written,
    /// There is something to write, and it can wait.
    Waits,
}

impl MemoryFileWriter {
    pub fn new(live: LivePart<MemoryService>) -> Self {
        Self { live, logged: None, is_stuck: false }
    }

    /// Runs until `stop`, and then updates the files once more, so that they are complete when the process ends.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut changes = self.live.get().subscribe_to_changes();
        let mut is_due = true;
        loop {
            let is_last = stop.is_cancelled();
            let kept = if is_due { self.keep(is_last).await } else { FileProgress::Whole };
            if is_last {
                return;
            }
            let pause = if kept == FileProgress::Whole { LOOK } else { SOON };
            tokio::select! {
                () = stop.cancelled() => is_due = true,
                _ = changes.changed() => {
                    is_due = true;
                    stop.run_until_cancelled(tokio::time::sleep(SETTLE)).await;
                    changes.mark_unchanged();
                }
                () = tokio::time::sleep(pause) => {
                    let memory = self.live.get();
                    is_due = kept == FileProgress::NotYet || memory.files.is_edited(&memory.settings.workspace);
                }
            }
        }
    }

    async fn keep(&mut self, is_last: bool) -> FileProgress {
        let service = self.live.get();
        let memory = service.keep_memory_file().await;
        let may_wait = !is_last && self.logged.is_some_and(|at| at.elapsed() < LOG_PAUSE);
        let history = service.keep_history_file(may_wait).await.map(|logged| match logged {
            HistoryProgress::Nothing => FileProgress::Whole,
            HistoryProgress::Waits => FileProgress::NotYet,
            HistoryProgress::Written => {
                self.logged = Some(Instant::now());
                FileProgress::Whole
            }
        });
        let outputs = service.remove_outputs(&mut self.is_stuck).await;
        let kept = [memory, history, outputs].map(|kept| {
            kept.unwrap_or_else(|error| {
                tell(&error);
                FileProgress::Whole
            })
        });
        if kept.contains(&FileProgress::NotYet) { FileProgress::NotYet } else { FileProgress::Whole }
    }
}

fn tell(error: &StoreError) {
    if !matches!(error, StoreError::Closed) {
        tracing::warn!(%error, "the files of the memory could not be kept up with the store; the next change tries again");
    }
}

impl MemoryService {
    /// Imports the edits of MEMORY.md since the last check, before memories are shown to anybody. Without edits this costs
    /// one check of the file. An unreadable file is logged once.
    pub async fn import_by_hand(&self) {
        if !self.files.is_edited(&self.settings.workspace) {
            return;
        }
        if let Err(error) = self.keep_memory_file().await {
            tell(&error);
        }
    }

    /// Updates both files in a home where no gateway does: after a change by a command.
    pub async fn keep_files(&self) {
        let kept = [
            self.keep_memory_file().await.map(drop),
            self.keep_history_file(false).await.map(drop),
            self.remove_outputs(&mut false).await.map(drop),
        ];
        kept.iter().filter_map(|kept| kept.as_ref().err()).for_each(tell);
    }

    async fn keep_memory_file(&self) -> Result<FileProgress, StoreError> {
        let _alone = self.files.working.lock().await;
        let settings = self.settings.clone();
        let facts = self.store.read(memory_lists::facts_of_owners).await?;
        if !self.files.is_edited(&settings.workspace) && self.files.is_kept(&facts) {
            return Ok(FileProgress::Whole);
        }
        let heading = match settings.language {
            Language::En => "Private",
            Language::Zh => "私人",
        };
        for _ in 0..TRIES {
            let (before, is_fresh, stamp) = match in_file(settings.workspace.clone(), |at| read(&at, MEMORY)).await {
                FileRead::Missing => (None, false, None),
                FileRead::Text { text, is_fresh, stamp } => (Some(text), is_fresh, stamp),
                FileRead::Unusable(reason) => {
                    self.files.tell(MEMORY, Some(&reason));
                    self.files.saw(Some(stamp_of(&settings.workspace)));
                    return Ok(FileProgress::Whole);
                }
            };
            self.files.tell(MEMORY, None);
            // An empty file is a lost one. To forget everything, a person removes the bullets and keeps the heading.
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
                let ways = PageContext { config, identities, heading };
                let imported = import(connection, &page, is_fresh, ways, |new| {
                    secrets.redact(&mut new.text);
                })?;
                // Read in the same write: later facts are not on this page.
                Ok((imported, memory_lists::facts_of_owners(connection)?))
            };
            let (ImportOutcome::Ready(rendering), facts) = self.store.write(Durability::Logged, write).await? else {
                return Ok(FileProgress::NotYet);
            };
            if before.as_ref() != Some(&rendering.text) {
                crash::point("memory_file_begun", &rendering.text);
                let (text, expected) = (rendering.text.clone(), before.clone());
                let replaced =
                    in_file(settings.workspace.clone(), move |at| replace(&at, MEMORY, expected.as_deref(), &text));
                match replaced.await {
                    Ok(Some(stamp)) => self.files.saw(Some(stamp)),
                    Ok(None) => continue,
                    Err(reason) => {
                        self.files.tell(MEMORY, Some(&reason));
                        self.files.saw(Some(stamp));
                        return Ok(FileProgress::Whole);
                    }
                }
                crash::point("memory_file_written", &rendering.text);
            } else {
                self.files.saw(Some(stamp));
            }
            if !(rendering.more.is_empty() && rendering.gone.is_empty()) {
                self.store.write(Durability::Logged, move |connection| settle(connection, &rendering)).await?;
            }
            self.files.kept(facts);
            return Ok(FileProgress::Whole);
        }
        Ok(FileProgress::NotYet)
    }

    /// Removes the spilled outputs of turns that were redacted.
    async fn remove_outputs(&self, is_stuck: &mut bool) -> Result<FileProgress, StoreError> {
        let noted = self.store.read(forgetting::marked_outputs).await?;
        if noted.is_empty() {
            return Ok(FileProgress::Whole);
        }
        let turns: Vec<Uuid> = noted.iter().filter_map(|turn| turn.parse().ok()).collect();
        let removed = in_file(self.settings.workspace.clone(), move |at| SpillStore::remove(&at, &turns)).await;
        if let Err(error) = removed {
            if !std::mem::replace(is_stuck, true) {
                tracing::warn!(%error, "a file that may hold what was forgotten could not be removed; it is tried again and again");
            }
            return Ok(FileProgress::NotYet);
        }
        *is_stuck = false;
        let done = move |connection: &Connection| forgetting::outputs_removed(connection, &noted);
        self.store.write(Durability::Logged, done).await.map(|()| FileProgress::Whole)
    }

    /// Removes forgotten text from older history files.
    async fn retell_older(&self, settings: &MemorySettings, due: &DueHistory) {
        for file in in_file(settings.workspace.clone(), |at| older_histories(&at)).await {
            let name = file.clone();
            let FileRead::Text { text, .. } = in_file(settings.workspace.clone(), move |at| read(&at, &name)).await
            else {
                continue;
            };
            let mut log = text.clone();
            for (session, at, rows) in &due.retold {
                log = history::retold(&log, session, *at, rows, settings.language, &settings.zone);
            }
            if log != text {
                let write = move |at: PathBuf| replace(&at, &file, Some(&text), &log);
                if let Err(reason) = in_file(settings.workspace.clone(), write).await {
                    tracing::warn!(reason, "an older HISTORY file still tells what was forgotten");
                }
            }
        }
    }

    /// Updates HISTORY.md. With `may_wait`, additions wait; the removal of forgotten text never does.
    async fn keep_history_file(&self, may_wait: bool) -> Result<HistoryProgress, StoreError> {
        let _alone = self.files.working.lock().await;
        let settings = self.settings.clone();
        let mut logged = HistoryProgress::Nothing;
        loop {
            let due = self.store.read(due_for_history).await?;
            if due.rows.is_empty() && due.retold.is_empty() {
                return Ok(logged);
            }
            if may_wait && due.retold.is_empty() {
                return Ok(HistoryProgress::Waits);
            }
            let before = match in_file(settings.workspace.clone(), |at| read(&at, HISTORY)).await {
                FileRead::Missing => None,
                FileRead::Text { text, .. } => Some(text),
                FileRead::Unusable(reason) => {
                    self.files.tell(HISTORY, Some(&reason));
                    return Ok(logged);
                }
            };
            self.files.tell(HISTORY, None);
            let (language, zone) = (settings.language, settings.zone.clone());
            let mut log = before.clone().unwrap_or_default();
            for (session, at, rows) in &due.retold {
                log = history::retold(&log, session, *at, rows, language, &zone);
            }
            let sections: Vec<String> = due.rows.iter().map(|row| history::section(row, language, &zone)).collect();
            if !due.retold.is_empty() {
                self.retell_older(&settings, &due).await;
            }
            let is_long = log.len() > LOG_BYTES;
            let text = history::with(if is_long { "" } else { &log }, &sections);
            let aside = is_long.then(|| format!("memory/HISTORY-{}.md", Timestamp::now().strftime("%Y%m%d-%H%M%S")));
            let replaced = in_file(settings.workspace.clone(), move |at| {
                if let Some(aside) = aside {
                    replace(&at, &aside, None, &log)?;
                }
                replace(&at, HISTORY, before.as_deref(), &text)
            });
            match replaced.await {
                Ok(Some(_)) => logged = HistoryProgress::Written,
                // The file was edited meanwhile; the next change tries again.
                Ok(None) => return Ok(logged),
                Err(reason) => {
                    self.files.tell(HISTORY, Some(&reason));
                    return Ok(logged);
                }
            }
            crash::point("history_file_written", "");
            self.store.write(Durability::Logged, move |connection| due.done(connection)).await?;
        }
    }
}

/// Runs work on files on a blocking thread.
async fn in_file<T: Send + 'static>(workspace: PathBuf, work: impl FnOnce(PathBuf) -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(move || work(workspace)).await {
        Ok(done) => done,
        // A panic continues in the caller. Any other error means that the runtime stops, and this task with it.
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        Err(_) => std::future::pending().await,
    }
}

/// The changes that HISTORY.md lacks.
struct DueHistory {
    rows: Vec<SummaryRow>,
    retold: Vec<(String, i64, Vec<SummaryRow>)>,
    /// The list of changed summaries, as stored.
    noted: Option<String>,
}

impl DueHistory {
    fn done(&self, connection: &Connection) -> Result<(), StoreError> {
        if let Some(last) = self.rows.last() {
            meta::set(connection, TOLD, &last.id.to_string())?;
        }
        // Summaries that have changed since then stay on the list.
        if self.noted.is_some() && meta::get(connection, RETOLD)? == self.noted {
            meta::set(connection, RETOLD, "")?;
        }
        Ok(())
    }
}

fn due_for_history(connection: &Connection) -> Result<DueHistory, StoreError> {
    let after = meta::get(connection, TOLD)?.and_then(|id| id.parse().ok()).unwrap_or(0);
    let rows = memory_lines::summaries_after(connection, after, PIECE)?;
    let noted = meta::get(connection, RETOLD)?.filter(|noted| !noted.is_empty());
    let places: BTreeSet<(String, i64)> =
        noted.as_deref().and_then(|noted| serde_json::from_str(noted).ok()).unwrap_or_default();
    let mut retold = Vec::new();
    for (session, at) in places {
        let rows = memory_lines::summaries_of_session(connection, &session)?;
        retold.push((session, at, rows));
    }
    Ok(DueHistory { rows, retold, noted })
}
