//! The processes that this gateway started in the background. The table is the truth; what runs has a task, and a place
//! among those that run at once.

use std::collections::{HashMap, HashSet};
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use daoyou_channels::Trust;
use rustix::process::Signal;
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use super::files::{OutputFiles, Tail};
use super::watch::{Ask, END_LIMIT, GRACE, Launch, START_LIMIT, Watched};
use super::whose::{is_for, newest_for};
use super::{Announce, Killer, ProcessEnd};
use crate::guard::{birth_of, end_group, is_still};
use crate::origin::TurnOrigin;
use crate::store::processes::{self, NewProcess, ProcessRow};
use crate::store::{Commit, Connection, Store, StoreError};
use crate::text::{one_line, truncate};
use crate::tools::ToolContext;
use crate::tools::private_folders::ConversationFolder;

/// Characters of an id: 36 to the power of 6 are two thousand millions.
const ID_CHARS: usize = 6;
/// The beginning of a command that is kept, in characters.
const COMMAND_CHARS: usize = 200;
/// Processes that ended and are still known.
const KEEP: u32 = 100;
/// What an announcement shows of the output.
const TOLD_LINES: usize = 20;
const TOLD_CHARS: usize = 2_000;
/// How often a process that is not this gateway's own child is looked at.
const LOOK: Duration = Duration::from_millis(50);

/// All processes of a home, and those that run under this gateway.
pub struct Processes {
    store: Store,
    files: Arc<OutputFiles>,
    announce: OnceLock<Arc<dyn Announce>>,
    running: Mutex<Running>,
    tasks: TaskTracker,
}

#[derive(Default)]
struct Running {
    by_id: HashMap<String, Handle>,
    /// The gateway stops: nothing is started any more.
    is_closed: bool,
}

/// A process that runs, or is about to.
struct Handle {
    session: String,
    /// For people: its label, or else its command.
    name: String,
    ask: watch::Sender<Ask>,
    end: watch::Receiver<Option<ProcessEnd>>,
}

/// A process that was started.
pub(in crate::tools) struct Launched {
    pub id: String,
    pub pid: i32,
}

impl Processes {
    /// Those of the home with this store and this workspace.
    ///
    /// # Errors
    /// When the workspace cannot be opened.
    pub fn open(store: Store, workspace: &Path) -> io::Result<Self> {
        Ok(Self {
            store,
            files: Arc::new(OutputFiles::open(workspace)?),
            announce: OnceLock::new(),
            running: Mutex::default(),
            tasks: TaskTracker::new(),
        })
    }

    /// From now on ends are announced; before that they are only known. The first one who is named does it.
    pub fn announce_by(&self, announce: Arc<dyn Announce>) {
        let _ = self.announce.set(announce);
    }

    /// Looks at what the last gateway left: what it had started is gone with it, or is ended now, and is announced as
    /// interrupted; what was detached goes on. Returns when it is known what there is; the rest is done beside.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn recover(self: &Arc<Self>) -> Result<(), StoreError> {
        let left = self.store.read(processes::open).await?;
        for row in left {
            let processes = Arc::clone(self);
            self.tasks.spawn(async move { processes.settle(row).await });
        }
        Ok(())
    }

    async fn settle(&self, row: ProcessRow) {
        if row.detached {
            self.look_after(&row).await;
            return;
        }
        // Whoever supervises it has noticed the death of the gateway, and ends it; unless that one is dead, too.
        if !is_gone_within(&row, GRACE + GRACE).await {
            kill(&row).await;
        }
        tracing::warn!(id = row.id, session = row.session, "a background process was interrupted by the gateway's end");
        self.write_end(&row.id, &folder_of(&row), &ProcessEnd::Interrupted).await;
    }

    /// Notes that a detached process is gone; answers whether it lives.
    async fn look_after(&self, row: &ProcessRow) -> bool {
        if is_alive(row) {
            return true;
        }
        self.write_end(&row.id, &folder_of(row), &ProcessEnd::Unwatched).await;
        false
    }

    /// Starts a process for the turn of `context`, and watches over it from then on, whether or not somebody waits here.
    ///
    /// # Errors
    /// Why there is none, in words for the model.
    pub(in crate::tools) async fn start(
        self: &Arc<Self>,
        launch: Launch,
        context: &ToolContext,
    ) -> Result<Launched, String> {
        let command = truncate(&one_line(&launch.order.command), COMMAND_CHARS);
        let process = NewProcess {
            id: new_id(),
            turn: context.turn,
            session: context.session.to_string(),
            channel: context.channel.clone(),
            chat_id: context.chat_id.clone(),
            trust: context.trust.as_str(),
            metadata: context.metadata.to_string(),
            origin: context.origin.to_column(),
            label: launch.label.clone(),
            command,
            detached: is_detached(&launch),
        };
        let id = process.id.clone();
        let life = self.take_place(&process, launch.at_once, context)?;
        let (answer, answered) = oneshot::channel();
        let processes = Arc::clone(self);
        self.tasks.spawn(async move { processes.live(process, launch, life, answer).await });
        match timeout(START_LIMIT + END_LIMIT, answered).await {
            Ok(Ok(started)) => started.map(|pid| Launched { id, pid }),
            Ok(Err(_)) => Err("The command could not be started; the fault is in the gateway's log".to_owned()),
            Err(_) => Err(format!("Whether the command was started is not known yet; look with process list ({id})")),
        }
    }

    /// A place among those that run at once.
    fn take_place(&self, process: &NewProcess, at_once: u32, context: &ToolContext) -> Result<Life, String> {
        let mut running = self.lock();
        if running.is_closed {
            return Err("The gateway is stopping; nothing is started any more".to_owned());
        }
        let most = usize::try_from(at_once).unwrap_or(usize::MAX);
        if running.by_id.len() >= most {
            return Err(too_many(&running, most, context));
        }
        let (ask, asked) = watch::channel(Ask::Nothing);
        let (ended, end) = watch::channel(None);
        let name = process.label.clone().unwrap_or_else(|| truncate(&one_line(&process.command), 40));
        let handle = Handle { session: process.session.clone(), name, ask, end };
        running.by_id.insert(process.id.clone(), handle);
        Ok(Life { asked, ended })
    }

    /// The whole life of a process.
    async fn live(
        &self,
        process: NewProcess,
        launch: Launch,
        life: Life,
        answer: oneshot::Sender<Result<i32, String>>,
    ) {
        let id = process.id.clone();
        let folder = ConversationFolder::of_turn(
            &process.session,
            &TurnOrigin::parse(&process.origin),
            Trust::parse(process.trust),
        );
        let _place = Place { processes: self, id: &id };
        let watched = match self.begin(process, &folder, &launch).await {
            Ok(watched) => watched,
            Err(reason) => {
                self.write_end(&id, &folder, &ProcessEnd::NotStarted(reason.clone())).await;
                let _ = answer.send(Err(format!("The command was not started: {reason}")));
                return;
            }
        };
        tracing::info!(id, pid = watched.pid, "a command runs in the background");
        // Whoever asked for it may be gone; it runs all the same.
        let _ = answer.send(Ok(watched.pid));
        let Some(end) = watched.attend(launch.timeout, is_detached(&launch), life.asked).await else { return };
        tracing::info!(id, how = %end, "a background process ended");
        self.write_end(&id, &folder, &end).await;
        let _ = life.ended.send(Some(end));
    }

    /// Its row is on disk before it is started: whatever happens then, it is known.
    async fn begin(
        &self,
        process: NewProcess,
        folder: &ConversationFolder,
        launch: &Launch,
    ) -> Result<Watched, String> {
        let id = process.id.clone();
        let insert = move |connection: &Connection| processes::insert(connection, &process, KEEP);
        match self.store.write(Commit::Synced, insert).await {
            Ok(true) => {}
            Ok(false) => return Err("its id was taken; try again".to_owned()),
            Err(error) => return Err(format!("the store does not take it: {error}")),
        }
        let running: HashSet<String> = self.lock().by_id.keys().cloned().collect();
        let (name, own) = (id.clone(), folder.clone());
        let file = self.on_disk(move |files| files.create(&own, &name, &running)).await;
        let path = || OutputFiles::path_of(folder, &id);
        let file = file.map_err(|error| format!("the file for its output, {}: {error}", path()))?;
        let watched = Watched::start(launch, file).await?;
        let (pid, birth) = (watched.pid, birth_of(watched.pid));
        let note = move |connection: &Connection| processes::started(connection, &id, pid, birth.as_deref());
        if let Err(error) = self.store.write(Commit::Logged, note).await {
            tracing::warn!(pid, %error, "the process id of a command in the background could not be kept");
        }
        Ok(watched)
    }

    /// Writes the end, and in the same commit its announcement if that is news; a store that cannot take it is tried again
    /// until it can.
    async fn write_end(&self, id: &str, folder: &ConversationFolder, end: &ProcessEnd) {
        let printed = self.printed(id, folder, TOLD_LINES, TOLD_CHARS).await.unwrap_or_default();
        let announce = self.announce.get().filter(|_| end.is_news()).cloned();
        let make = || {
            let (id, end, printed, announce) = (id.to_owned(), end.clone(), printed.clone(), announce.clone());
            move |connection: &Connection| match (processes::end(connection, &id, &end.to_string())?, announce) {
                (Some(row), Some(announce)) => announce.write(connection, &row, &end, &printed).map(Some),
                _ => Ok(None),
            }
        };
        let failed = |error: &StoreError| {
            tracing::error!(%error, "the end of a background process could not be written; trying again");
        };
        // Where the store is closed, the next start announces it.
        let Some(told) = self.store.write_until(Commit::Synced, make, failed).await else { return };
        if let (Some(session), Some(announce)) = (told, announce) {
            announce.written(session);
        }
    }

    /// The end of what a process printed.
    ///
    /// # Errors
    /// Its file is gone, or is not what it was.
    pub(super) async fn tail(&self, row: &ProcessRow, lines: usize, chars: usize) -> io::Result<Tail> {
        self.printed(&row.id, &folder_of(row), lines, chars).await
    }

    async fn printed(&self, id: &str, folder: &ConversationFolder, lines: usize, chars: usize) -> io::Result<Tail> {
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

    /// Those that `context` may see, those of his own session first, and whether each lives.
    ///
    /// # Errors
    /// The store cannot be read.
    pub(super) async fn list(&self, context: &ToolContext, limit: u32) -> Result<Vec<(ProcessRow, bool)>, StoreError> {
        let session = context.session.to_string();
        let only = (context.trust != Trust::Owner).then(|| session.clone());
        let look = move |connection: &Connection| match only {
            Some(session) => newest_for(connection, &session, limit),
            None => processes::newest(connection, limit),
        };
        let rows = self.store.read(look).await?;
        let mut listed = Vec::with_capacity(rows.len());
        for row in rows {
            let lives = row.ended_at.is_none() && self.lives(&row).await;
            listed.push((row, lives));
        }
        listed.sort_by_key(|(row, _)| row.session != session);
        Ok(listed)
    }

    /// A process that `context` may see, and whether it lives.
    ///
    /// # Errors
    /// There is none, in words for the model.
    pub(super) async fn find(&self, id: &str, context: &ToolContext) -> Result<(ProcessRow, bool), String> {
        let wanted = id.trim().to_ascii_lowercase();
        let (is_owner, session) = (context.trust == Trust::Owner, context.session.to_string());
        let look = move |connection: &Connection| {
            let Some(row) = processes::find(connection, &wanted)? else { return Ok(None) };
            Ok((is_owner || is_for(connection, &row, &session)?).then_some(row))
        };
        let found = self.store.read(look).await.map_err(|error| format!("The store cannot be read: {error}"))?;
        let Some(row) = found else {
            return Err(format!("There is no background process {:?}; process list names those there are", id.trim()));
        };
        let lives = row.ended_at.is_none() && self.lives(&row).await;
        Ok((row, lives))
    }

    /// Whether a process whose end is not known lives.
    async fn lives(&self, row: &ProcessRow) -> bool {
        self.lock().by_id.contains_key(&row.id) || (row.detached && self.look_after(row).await)
    }

    /// Ends a process; answers how it ended, in words.
    ///
    /// # Errors
    /// It could not be ended, in words for the model.
    pub(super) async fn kill(&self, row: &ProcessRow, context: &ToolContext) -> Result<String, String> {
        let (asked, session) = (row.clone(), context.session.to_string());
        let is_own = self.store.read(move |connection| is_for(connection, &asked, &session)).await;
        // Whoever would be told of the end is the one who asks for it.
        let by = match is_own.map_err(|error| format!("The store cannot be read: {error}"))? {
            true => Killer::Itself,
            false => Killer::Another,
        };
        let killed = ProcessEnd::Killed { ending: None, by };
        let handle = {
            let running = self.lock();
            running.by_id.get(&row.id).map(|handle| {
                // Nobody listens when it has just ended by itself.
                let _ = handle.ask.send(Ask::Kill(by));
                handle.end.clone()
            })
        };
        let Some(mut end) = handle else {
            // One that an earlier gateway had detached.
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

    /// The gateway stops: what is not detached is ended and announced, for the next one to answer. Nothing is started from
    /// now on.
    pub async fn stop(&self) {
        {
            let mut running = self.lock();
            running.is_closed = true;
            for handle in running.by_id.values() {
                // One that was asked to end already does.
                handle.ask.send_if_modified(|ask| {
                    let is_free = *ask == Ask::Nothing;
                    if is_free {
                        *ask = Ask::Stop;
                    }
                    is_free
                });
            }
        }
        self.tasks.close();
        if timeout(self.stop_limit(), self.tasks.wait()).await.is_err() {
            tracing::warn!("background processes did not end in time; they end with the gateway");
        }
    }

    /// What [`Processes::stop`] may take.
    pub fn stop_limit(&self) -> Duration {
        END_LIMIT + GRACE
    }

    fn lock(&self) -> MutexGuard<'_, Running> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the task of a process listens to, and what it tells.
struct Life {
    asked: watch::Receiver<Ask>,
    ended: watch::Sender<Option<ProcessEnd>>,
}

/// The place of a running process, given back however its task ends.
struct Place<'a> {
    processes: &'a Processes,
    id: &'a str,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.processes.lock().by_id.remove(self.id);
    }
}

/// Where the output of a process is.
fn folder_of(row: &ProcessRow) -> ConversationFolder {
    ConversationFolder::of_turn(&row.session, &TurnOrigin::parse(&row.origin), Trust::parse(&row.trust))
}

fn is_detached(launch: &Launch) -> bool {
    launch.order.background.as_ref().is_some_and(|background| background.detached)
}

fn too_many(running: &Running, most: usize, context: &ToolContext) -> String {
    if most == 0 {
        return "No command runs in the background here: tools.exec.background = 0".to_owned();
    }
    let may_see = |handle: &Handle| context.trust == Trust::Owner || handle.session == context.session.as_str();
    let seen = running.by_id.iter().filter(|(_, handle)| may_see(handle));
    let mut named: Vec<String> = seen.map(|(id, handle)| format!("{id} ({})", handle.name)).collect();
    named.sort();
    let others = running.by_id.len() - named.len();
    if others > 0 {
        named.push(format!("{others} of other sessions"));
    }
    format!(
        "{} processes run in the background, and {most} are the most: {}. Wait for one to end, or end one with process \
         kill",
        running.by_id.len(),
        named.join(", ")
    )
}

/// Whether the process of a row is still itself.
fn is_alive(row: &ProcessRow) -> bool {
    matches!((row.pid, &row.birth), (Some(pid), Some(birth)) if is_still(pid, birth))
}

async fn is_gone_within(row: &ProcessRow, limit: Duration) -> bool {
    let deadline = Instant::now() + limit;
    while is_alive(row) {
        if Instant::now() > deadline {
            return false;
        }
        sleep(LOOK).await;
    }
    true
}

/// Ends a process that is nobody's child here: asked first, then killed. Answers whether it is gone.
async fn kill(row: &ProcessRow) -> bool {
    for signal in [Signal::TERM, Signal::KILL] {
        let Some(pid) = row.pid.filter(|_| is_alive(row)) else { return true };
        end_group(pid, signal);
        if is_gone_within(row, GRACE).await {
            return true;
        }
    }
    false
}

fn new_id() -> String {
    let mut number = Uuid::new_v4().as_u128();
    let mut digit = || {
        let digit = u32::try_from(number % 36).unwrap_or(0);
        number /= 36;
        char::from_digit(digit, 36).unwrap_or('0')
    };
    (0..ID_CHARS).map(|_| digit()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_short_and_commands_are_cut() {
        let ids: HashSet<String> = (0..100).map(|_| new_id()).collect();
        assert!(ids.len() == 100 && ids.iter().all(|id| id.len() == 6));
        assert!(ids.iter().flat_map(|id| id.chars()).all(|c| c.is_ascii_digit() || c.is_ascii_lowercase()));
        for (text, expected) in [("a\n  b", "a b"), ("一二三四五", "一二三…"), ("abc", "abc")] {
            assert_eq!(truncate(&one_line(text), 4), expected, "{text:?}");
        }
    }
}
