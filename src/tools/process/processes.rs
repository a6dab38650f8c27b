//! The background processes of this gateway. The table in the store is authoritative. Each running process also has a task and a
//! slot.

use std::collections::{HashMap, HashSet};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use daoyou_channels::Trust;
use parking_lot::{Mutex, MutexGuard};
use rustix::process::Signal;
use tokio::sync::{oneshot, watch};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use super::end::{KillRequester, ProcessEnd, ProcessEndAnnouncer};
use super::files::{OutputFiles, OutputTail};
use super::supervised::{END_LIMIT, GRACE, LaunchRequest, ProcessRequest, SupervisedProcess};
use super::visibility::{belongs_to, newest_of_session};
use crate::guard::{is_same_process, process_start_identity, signal_group};
use crate::origin::TurnOrigin;
use crate::store::processes::{self, NewProcess, ProcessRow};
use crate::store::{Connection, Durability, Store, StoreError};
use crate::text::{one_line, truncate};
use crate::tools::ToolContext;
use crate::tools::private_folders::ConversationFolder;
use crate::tools::supervisor_client::START_LIMIT;

/// The number of characters of an id. 36 to the power of 6 gives two billion ids.
const ID_CHARS: u32 = 6;
/// The length of the stored prefix of a command, in characters.
const COMMAND_CHARS: usize = 200;
/// The number of ended processes that are kept.
const MAX_ENDED: u32 = 100;
/// The maximum size of the output in an announcement.
const ANNOUNCED_LINES: usize = 20;
const ANNOUNCED_CHARS: usize = 2_000;
/// How often a process that is not this gateway's child is checked.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);
/// How often a detached process of an earlier gateway is checked.
const WATCH_INTERVAL: Duration = Duration::from_secs(1);

/// The background processes of a home folder, and the slots of those that run under this gateway.
pub struct Processes {
    store: Store,
    files: Arc<OutputFiles>,
    announcer: OnceLock<Arc<dyn ProcessEndAnnouncer>>,
    running: Mutex<RunningProcesses>,
    /// True if this program ends with its answer, and nothing that it starts can be awaited.
    is_short_lived: AtomicBool,
    tasks: TaskTracker,
    /// Cancelled when the gateway stops watching detached processes of earlier gateways.
    stopping: CancellationToken,
}

#[derive(Default)]
struct RunningProcesses {
    by_id: HashMap<String, ProcessHandle>,
    /// The processes of earlier gateways that a call is killing. That call records their ends.
    being_killed: HashSet<String>,
    /// True once the gateway stops, and starts no more processes.
    is_closed: bool,
}

/// A process that runs or is about to run.
struct ProcessHandle {
    session: String,
    /// The label of the process, otherwise its command.
    name: String,
    request: watch::Sender<ProcessRequest>,
    end: watch::Receiver<Option<ProcessEnd>>,
}

/// A started process.
pub(in crate::tools) struct LaunchedProcess {
    pub id: String,
    pub pid: i32,
}

/// A process that was started, and whether it is still alive.
pub(super) struct ProcessStatus {
    pub row: ProcessRow,
    pub lives: bool,
}

impl Processes {
    /// The time that all processes need to end at most.
    pub const STOP_LIMIT: Duration = END_LIMIT.saturating_add(GRACE);

    /// Opens the processes of the home folder with this store and this workspace.
    ///
    /// # Errors
    /// The workspace cannot be opened.
    pub fn open(store: Store, workspace: &Path) -> io::Result<Self> {
        Ok(Self {
            store,
            files: Arc::new(OutputFiles::open(workspace)?),
            announcer: OnceLock::new(),
            running: Mutex::default(),
            is_short_lived: AtomicBool::new(false),
            tasks: TaskTracker::new(),
            stopping: CancellationToken::new(),
        })
    }

    /// Sets the announcer of ends. Without one, ends are only recorded. Only the first call has an effect.
    pub fn set_announcer(&self, announcer: Arc<dyn ProcessEndAnnouncer>) {
        let _ = self.announcer.set(announcer);
    }

    /// Notes that this program ends with its answer, as `agent -m` does where no gateway runs. Then only detached processes start.
    pub fn set_short_lived(&self) {
        self.is_short_lived.store(true, Ordering::Relaxed);
    }

    /// Returns true if this program ends with its answer.
    pub(in crate::tools) fn is_short_lived(&self) -> bool {
        self.is_short_lived.load(Ordering::Relaxed)
    }

    /// Takes over the processes that the previous gateway left. Detached processes continue and are watched. The others are killed if necessary,
    /// and announced as interrupted. Returns once the processes are known; tasks do the rest.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn recover(self: &Arc<Self>) -> Result<(), StoreError> {
        let left = self.store.read(processes::open).await?;
        for row in left {
            let processes = Arc::clone(self);
            self.tasks.spawn(async move { processes.recover_process(row).await });
        }
        Ok(())
    }

    async fn recover_process(&self, row: ProcessRow) {
        if row.detached {
            while self.check_detached(&row).await {
                tokio::select! {
                    () = self.stopping.cancelled() => return,
                    () = sleep(WATCH_INTERVAL) => {}
                }
            }
            return;
        }
        // The supervisor of the process notices the death of the gateway and kills the process, unless the supervisor is dead as
        // well.
        if !is_gone_within(&row, GRACE + GRACE).await {
            kill(&row).await;
        }
        tracing::warn!(id = row.id, session = row.session, "a background process was interrupted by the gateway's end");
        self.write_end(&row.id, &folder_of(&row), &ProcessEnd::Interrupted).await;
    }

    /// Records the end of a detached process if it is gone. Returns true if it is alive.
    async fn check_detached(&self, row: &ProcessRow) -> bool {
        if is_process_alive(row) {
            return true;
        }
        if !self.lock().being_killed.contains(&row.id) {
            self.write_end(&row.id, &folder_of(row), &ProcessEnd::Unwatched).await;
        }
        false
    }

    /// Starts a process for the turn of `context`, and supervises it, even if the caller no longer waits.
    ///
    /// # Errors
    /// The process was not started; the error is for the model.
    pub(in crate::tools) async fn start(
        self: &Arc<Self>,
        launch: LaunchRequest,
        context: &ToolContext,
    ) -> Result<LaunchedProcess, String> {
        let command = truncate(&one_line(&launch.request.command), COMMAND_CHARS);
        let process = NewProcess {
            id: new_id(),
            turn: context.turn,
            session: context.session.to_string(),
            channel: context.channel.clone(),
            chat_id: context.chat_id.clone(),
            trust: context.trust.as_str(),
            metadata: context.metadata.to_string(),
            // The end of the process starts a turn. That turn inherits the taint of this one.
            origin: TurnOrigin { taint: context.taint.as_ref().clone(), ..context.origin.as_ref().clone() }.to_column(),
            label: launch.label.clone(),
            command,
            detached: is_detached(&launch),
        };
        let id = process.id.clone();
        let channels = self.take_slot(&process, launch.at_once, context)?;
        let (answer, answered) = oneshot::channel();
        let processes = Arc::clone(self);
        self.tasks.spawn(async move { processes.run(process, launch, channels, answer).await });
        match timeout(START_LIMIT + END_LIMIT, answered).await {
            Ok(Ok(started)) => started.map(|pid| LaunchedProcess { id, pid }),
            Ok(Err(_)) => Err("The command could not be started; the fault is in the gateway's log".to_owned()),
            Err(_) => Err(format!("Whether the command was started is not known yet; look with process list ({id})")),
        }
    }

    /// Takes a slot for a running process.
    fn take_slot(&self, process: &NewProcess, at_once: u32, context: &ToolContext) -> Result<ProcessChannels, String> {
        let mut running = self.lock();
        if running.is_closed {
            return Err("The gateway is stopping; nothing is started any more".to_owned());
        }
        let most = usize::try_from(at_once).unwrap_or(usize::MAX);
        if running.by_id.len() >= most {
            return Err(too_many_error(&running, most, context));
        }
        let (request, requests) = watch::channel(ProcessRequest::Nothing);
        let (ended, end) = watch::channel(None);
        let name = process.label.clone().unwrap_or_else(|| truncate(&one_line(&process.command), 40));
        let handle = ProcessHandle { session: process.session.clone(), name, request, end };
        running.by_id.insert(process.id.clone(), handle);
        Ok(ProcessChannels { requests, ended })
    }

    /// Runs a process from its start to its end.
    async fn run(
        &self,
        process: NewProcess,
        launch: LaunchRequest,
        channels: ProcessChannels,
        answer: oneshot::Sender<Result<i32, String>>,
    ) {
        let id = process.id.clone();
        let origin = TurnOrigin::parse(&process.origin);
        let folder = ConversationFolder::of_turn(&process.session, &origin, Trust::parse(process.trust));
        scopeguard::defer!(drop(self.lock().by_id.remove(&id)));
        let supervised = match self.launch(process, &folder, !origin.taint.is_empty(), &launch).await {
            Ok(supervised) => supervised,
            Err(reason) => {
                self.write_end(&id, &folder, &ProcessEnd::NotStarted(reason.clone())).await;
                let _ = answer.send(Err(format!("The command was not started: {reason}")));
                return;
            }
        };
        tracing::info!(id, pid = supervised.pid, "a command runs in the background");
        // The caller may no longer wait; the process runs anyway.
        let _ = answer.send(Ok(supervised.pid));
        let Some(end) = supervised.wait(launch.timeout, is_detached(&launch), channels.requests).await else { return };
        tracing::info!(id, how = %end, "a background process ended");
        self.write_end(&id, &folder, &end).await;
        let _ = channels.ended.send(Some(end));
    }

    /// Launches a process. The row is on disk before the start, so that the process is known whatever happens then.
    async fn launch(
        &self,
        process: NewProcess,
        folder: &ConversationFolder,
        is_foreign: bool,
        launch: &LaunchRequest,
    ) -> Result<SupervisedProcess, String> {
        let id = process.id.clone();
        let insert = move |connection: &Connection| processes::insert(connection, &process, MAX_ENDED);
        match self.store.write(Durability::Synced, insert).await {
            Ok(true) => {}
            Ok(false) => return Err("its id was taken; try again".to_owned()),
            Err(error) => return Err(format!("the store does not take it: {error}")),
        }
        let running: HashSet<String> = self.lock().by_id.keys().cloned().collect();
        let (name, own) = (id.clone(), folder.clone());
        let file = self.on_disk(move |files| files.create(&own, &name, is_foreign, &running)).await;
        let path = || OutputFiles::path_of(folder, &id, is_foreign);
        let file = file.map_err(|error| format!("the file for its output, {}: {error}", path()))?;
        let supervised = SupervisedProcess::start(launch, file).await?;
        let (pid, start_identity) = (supervised.pid, process_start_identity(supervised.pid));
        let note =
            move |connection: &Connection| processes::record_start(connection, &id, pid, start_identity.as_deref());
        if let Err(error) = self.store.write(Durability::Logged, note).await {
            tracing::warn!(pid, %error, "the process id of a command in the background could not be kept");
        }
        Ok(supervised)
    }

    /// Writes the end of a process, with its announcement if there is one in the same commit. Retries until the store accepts. An
    /// announcement that the store refuses permanently is dropped.
    async fn write_end(&self, id: &str, folder: &ConversationFolder, end: &ProcessEnd) {
        let printed = self.read_tail(id, folder, ANNOUNCED_LINES, ANNOUNCED_CHARS).await.unwrap_or_default();
        let announcer = self.announcer.get().filter(|_| end.needs_announcement()).cloned();
        let make = |announcer: &Option<Arc<dyn ProcessEndAnnouncer>>| {
            let (id, end, printed, announcer) = (id.to_owned(), end.clone(), printed.clone(), announcer.clone());
            move |connection: &Connection| match (processes::record_end(connection, &id, &end.to_string())?, &announcer)
            {
                (Some(row), Some(announcer)) => announcer.write(connection, &row, &end, &printed).map(Some),
                _ => Ok(None),
            }
        };
        let failed = |error: &StoreError| {
            tracing::error!(%error, "the end of a background process could not be written; trying again");
        };
        let mut written = self.store.write_until(Durability::Synced, || make(&announcer), failed).await;
        if let Err(error) = written.as_ref()
            && error.is_permanent()
        {
            tracing::error!(id, %error, "the end of a background process cannot be announced");
            written = self.store.write_until(Durability::Synced, || make(&None), failed).await;
        }
        // If the store is closed, the next start of the gateway announces the end.
        let Ok(session) = written else { return };
        if let (Some(session), Some(announcer)) = (session, announcer) {
            announcer.committed(session);
        }
    }

    /// Returns the end of a process's output.
    ///
    /// # Errors
    /// The file is gone or was changed.
    pub(super) async fn tail(&self, row: &ProcessRow, lines: usize, chars: usize) -> io::Result<OutputTail> {
        self.read_tail(&row.id, &folder_of(row), lines, chars).await
    }

    async fn read_tail(
        &self,
        id: &str,
        folder: &ConversationFolder,
        lines: usize,
        chars: usize,
    ) -> io::Result<OutputTail> {
        let (id, folder) = (id.to_owned(), folder.clone());
        self.on_disk(move |files| files.tail(&folder, &id, lines, chars)).await
    }

    async fn on_disk<T: Send + 'static>(
        &self,
        work: impl FnOnce(&OutputFiles) -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let files = Arc::clone(&self.files);
        tokio::task::spawn_blocking(move || work(&files)).await.unwrap_or_else(|error| Err(io::Error::other(error)))
    }

    /// Returns the processes that `context` may see, those of its session first.
    ///
    /// # Errors
    /// The store cannot be read.
    pub(super) async fn list(&self, context: &ToolContext, limit: u32) -> Result<Vec<ProcessStatus>, StoreError> {
        let session = context.session.to_string();
        let only = (!context.is_for_owner_alone()).then(|| session.clone());
        let read = move |connection: &Connection| match only {
            Some(session) => newest_of_session(connection, &session, limit),
            None => processes::newest(connection, limit),
        };
        let rows = self.store.read(read).await?;
        let mut listed = Vec::with_capacity(rows.len());
        for row in rows {
            listed.push(self.status(row).await);
        }
        listed.sort_by_key(|process| process.row.session != session);
        Ok(listed)
    }

    /// Returns a process that `context` may see.
    ///
    /// # Errors
    /// There is no such process; the error is for the model.
    pub(super) async fn find(&self, id: &str, context: &ToolContext) -> Result<ProcessStatus, String> {
        let wanted = id.trim().to_ascii_lowercase();
        let (is_owner, session) = (context.is_for_owner_alone(), context.session.to_string());
        let read = move |connection: &Connection| {
            let Some(row) = processes::find(connection, &wanted)? else { return Ok(None) };
            Ok((is_owner || belongs_to(connection, &row, &session)?).then_some(row))
        };
        let found = self.store.read(read).await.map_err(|error| format!("The store cannot be read: {error}"))?;
        let Some(row) = found else {
            return Err(format!("There is no background process {:?}; process list names those there are", id.trim()));
        };
        Ok(self.status(row).await)
    }

    /// Returns the row of a process, and whether the process lives.
    async fn status(&self, row: ProcessRow) -> ProcessStatus {
        let lives = row.ended_at.is_none()
            && (self.lock().by_id.contains_key(&row.id) || row.detached && self.check_detached(&row).await);
        ProcessStatus { row, lives }
    }

    /// Ends a process. Returns a text that states how the process ended.
    ///
    /// # Errors
    /// The process could not be ended; the error is for the model.
    pub(super) async fn kill(&self, row: &ProcessRow, context: &ToolContext) -> Result<String, String> {
        let (asked, session) = (row.clone(), context.session.to_string());
        let is_own = self.store.read(move |connection| belongs_to(connection, &asked, &session)).await;
        // If the announcement would go to the requesting session itself, the result of its call reports the end instead.
        let by = match is_own.map_err(|error| format!("The store cannot be read: {error}"))? {
            true => KillRequester::OwnSession,
            false => KillRequester::OtherSession,
        };
        let killed = ProcessEnd::Killed { ending: None, by };
        let end = self.lock().by_id.get(&row.id).map(|handle| {
            // The receiver is gone if the process has just ended.
            let _ = handle.request.send(ProcessRequest::Kill(by));
            handle.end.clone()
        });
        let Some(mut end) = end else {
            // An earlier gateway started the process detached, so no task supervises it.
            self.lock().being_killed.insert(row.id.clone());
            scopeguard::defer! {
                self.lock().being_killed.remove(&row.id);
            }
            if !kill(row).await {
                return Err(format!("process {} did not end", row.id));
            }
            self.write_end(&row.id, &folder_of(row), &killed).await;
            return Ok(killed.to_string());
        };
        match timeout(END_LIMIT + GRACE, end.wait_for(Option::is_some)).await {
            Ok(Ok(end)) => Ok(end.as_ref().map_or_else(String::new, ProcessEnd::to_string)),
            Ok(Err(_)) => Ok(killed.to_string()),
            Err(_) => Err(format!("process {} did not end in time; look again with process list", row.id)),
        }
    }

    /// Stops all processes that are not detached, and records announcements of their ends for the next gateway to answer. No more
    /// processes start. After `limit`, which is useful up to [`Processes::STOP_LIMIT`], the rest is left to end with the gateway.
    pub async fn stop(&self, limit: Duration) {
        {
            let mut running = self.lock();
            running.is_closed = true;
            for handle in running.by_id.values() {
                // A process that is already being killed is left alone.
                handle.request.send_if_modified(|request| {
                    let is_free = *request == ProcessRequest::Nothing;
                    if is_free {
                        *request = ProcessRequest::Stop;
                    }
                    is_free
                });
            }
        }
        self.stopping.cancel();
        self.tasks.close();
        if timeout(limit, self.tasks.wait()).await.is_err() {
            tracing::warn!("background processes did not end in time; they end with the gateway");
        }
    }

    fn lock(&self) -> MutexGuard<'_, RunningProcesses> {
        self.running.lock()
    }
}

/// The channels of a process's task: for requests to it, and for its end.
struct ProcessChannels {
    requests: watch::Receiver<ProcessRequest>,
    ended: watch::Sender<Option<ProcessEnd>>,
}

/// Returns the folder of a process's output.
fn folder_of(row: &ProcessRow) -> ConversationFolder {
    ConversationFolder::of_turn(&row.session, &TurnOrigin::parse(&row.origin), Trust::parse(&row.trust))
}

fn is_detached(launch: &LaunchRequest) -> bool {
    launch.request.background.as_ref().is_some_and(|background| background.detached)
}

fn too_many_error(running: &RunningProcesses, most: usize, context: &ToolContext) -> String {
    if most == 0 {
        return "No command runs in the background here: tools.exec.background = 0".to_owned();
    }
    let may_see = |handle: &ProcessHandle| context.is_for_owner_alone() || handle.session == context.session.as_str();
    let seen = running.by_id.iter().filter(|(_, handle)| may_see(handle));
    let mut named: Vec<String> = seen.map(|(id, handle)| format!("{id} ({})", handle.name)).collect();
    named.sort();
    let others = running.by_id.len() - named.len();
    if others > 0 {
        named.push(format!("{others} of other sessions"));
    }
    format!(
        "{} processes run in the background, and the maximum is {most}: {}. Wait for one to end, or end one with \
         process kill",
        running.by_id.len(),
        named.join(", ")
    )
}

/// Returns true if the process of a row still lives.
pub fn is_process_alive(row: &ProcessRow) -> bool {
    matches!((row.pid, &row.start_identity), (Some(pid), Some(start_identity)) if is_same_process(pid, start_identity))
}

async fn is_gone_within(row: &ProcessRow, limit: Duration) -> bool {
    let gone = async {
        while is_process_alive(row) {
            sleep(CHECK_INTERVAL).await;
        }
    };
    timeout(limit, gone).await.is_ok() || !is_process_alive(row)
}

/// Kills a process that is not a child of this gateway: with SIGTERM, then SIGKILL. Returns true if it is gone.
async fn kill(row: &ProcessRow) -> bool {
    for signal in [Signal::TERM, Signal::KILL] {
        let Some(pid) = row.pid.filter(|_| is_process_alive(row)) else { return true };
        signal_group(pid, signal);
        if is_gone_within(row, GRACE).await {
            return true;
        }
    }
    false
}

fn new_id() -> String {
    let number = Uuid::new_v4().as_u128();
    let digit = |place: u32| u32::try_from(number / 36_u128.pow(place) % 36).unwrap_or(0);
    (0..ID_CHARS).map(|place| char::from_digit(digit(place), 36).unwrap_or('0')).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_short_and_commands_are_truncated() {
        let ids: HashSet<String> = (0..100).map(|_| new_id()).collect();
        assert!(ids.len() == 100 && ids.iter().all(|id| id.len() == 6));
        assert!(ids.iter().flat_map(|id| id.chars()).all(|c| c.is_ascii_digit() || c.is_ascii_lowercase()));
        for (text, expected) in [("a\n  b", "a b"), ("一二三四五", "一二三…"), ("abc", "abc")] {
            assert_eq!(truncate(&one_line(text), 4), expected, "{text:?}");
        }
    }
}
