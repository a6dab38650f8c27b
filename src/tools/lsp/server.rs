//! The language server of one project: its start, its open documents, and its readiness.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use lsp_types::{FileChangeType, Url};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until, timeout_at};
use tokio_util::sync::CancellationToken;

use super::connection::LspConnection;
use super::languages::ServerKind;
use super::positions::PositionEncoding;
use super::project_files::{DiskStamp, ProjectFiles, changes, list_files};
use crate::tools::ServerError;

/// The maximum number of files that stay open in a server. Beyond it, the least recently used file is closed.
const MAX_OPEN: usize = 24;
/// The maximum number of changed files in one notification.
const MAX_CHANGES: usize = 1_000;
/// How long to wait for a server's first progress report. A server that has reported none by then counts as ready.
const FIRST_PROGRESS: Duration = Duration::from_millis(500);
/// How long a server may take to end by itself.
const SHUTDOWN_LIMIT: Duration = Duration::from_secs(2);

/// An initialized language server.
pub(super) struct LanguageServer {
    pub kind: &'static ServerKind,
    pub connection: LspConnection,
    pub encoding: PositionEncoding,
    /// The real path of the outermost project that the server's folder belongs to. The files of this project are watched.
    pub project: PathBuf,
    /// Folders that the server does not see.
    hidden: Vec<PathBuf>,
    capabilities: Value,
    initialized: Instant,
    documents: tokio::sync::Mutex<Documents>,
}

#[derive(Default)]
struct Documents {
    open: HashMap<PathBuf, OpenDocument>,
    files: ProjectFiles,
    /// A counter that increases with each call.
    clock: u64,
    /// A counter that increases with each change that the server learns of.
    generation: u64,
}

struct OpenDocument {
    version: i32,
    text: Arc<str>,
    stamp: Option<DiskStamp>,
    used: u64,
}

/// The state of a file that the server has just been informed about.
#[derive(Clone, Debug)]
pub(super) struct SyncedDocument {
    pub url: Url,
    pub path: PathBuf,
    pub text: Arc<str>,
    pub version: i32,
    /// The number of the newest diagnostics before the server learned of the changes.
    pub serial: u64,
    /// True if the server did not know the text before.
    pub is_new_text: bool,
    /// True if the server learned of a change of any file.
    pub is_changed: bool,
    /// The number of changes that the server has learned of so far.
    pub generation: u64,
}

/// The version of a file that a server knows.
pub(super) enum ServerFileState {
    /// The file is open with this text.
    Open(Arc<str>),
    /// The file is closed, and the server knows its content as of this stamp.
    Closed(DiskStamp),
    Unknown,
}

/// A function that reads the text of a file that the call may read.
pub(super) type ReadText = dyn Fn(&Path) -> Result<String, String> + Send + Sync;

/// The current files.
struct FilesNow {
    text: Arc<str>,
    stamp: Option<DiskStamp>,
    /// Other open files that changed; the text is `None` if the file can no longer be read.
    others: Vec<(PathBuf, Option<Arc<str>>, Option<DiskStamp>)>,
    files: ProjectFiles,
}

/// Returns the URL of a file.
///
/// # Errors
/// The path is not absolute.
pub(super) fn url_of(path: &Path) -> Result<Url, ServerError> {
    Url::from_file_path(path).map_err(|()| ServerError::lasting(format!("{}: not an absolute path", path.display())))
}

impl LanguageServer {
    /// Initializes a server that was started in `root`, a folder of `project`.
    ///
    /// # Errors
    /// The server does not answer in time, or not as a language server does.
    pub(super) async fn initialize(
        kind: &'static ServerKind,
        connection: LspConnection,
        (root, project): (&Path, PathBuf),
        hidden: Vec<PathBuf>,
        limit: Duration,
        cancel: &CancellationToken,
    ) -> Result<Self, ServerError> {
        let params = initialize_params(kind, &url_of(root)?);
        let result = connection.request("initialize", params, limit, cancel).await?;
        let name = &connection.name;
        if !result["capabilities"].is_object() {
            return Err(ServerError::lasting(format!("{name} does not answer as a language server does")));
        }
        let is_pylsp = result["serverInfo"]["name"] == "pylsp";
        // pylsp violates the protocol: it counts characters as Python does.
        let default = if is_pylsp { "utf-32" } else { "utf-16" };
        let encoding = result["capabilities"]["positionEncoding"].as_str().unwrap_or(default);
        let encoding =
            PositionEncoding::named(encoding).map_err(|error| ServerError::lasting(format!("{name}: {error}")))?;
        let (below, unseen) = (project.clone(), hidden.clone());
        let files = tokio::task::spawn_blocking(move || list_files(kind, &below, &unseen)).await.unwrap_or_default();
        connection.notify("initialized", json!({})).await?;
        connection.notify("workspace/didChangeConfiguration", json!({"settings": {}})).await?;
        Ok(Self {
            kind,
            connection,
            encoding,
            project,
            hidden,
            capabilities: result["capabilities"].clone(),
            initialized: Instant::now(),
            documents: tokio::sync::Mutex::new(Documents { files, ..Documents::default() }),
        })
    }

    /// Returns true if the server has this capability.
    pub(super) fn can(&self, capability: &str) -> bool {
        !matches!(self.capabilities[capability], Value::Null | Value::Bool(false))
    }

    /// Checks that the server has a capability.
    ///
    /// # Errors
    /// The server lacks the capability.
    pub(super) fn require(&self, capability: &str, what: &str) -> Result<(), ServerError> {
        if self.can(capability) {
            return Ok(());
        }
        Err(ServerError::lasting(format!("{} cannot do this: {what}", self.connection.name)))
    }

    /// Informs the server of the current content of `path` and of its other open files, and of the project's files that changed.
    ///
    /// # Errors
    /// The file cannot be read, or the server has ended.
    pub(super) async fn sync(&self, path: &Path, read: Arc<ReadText>) -> Result<SyncedDocument, ServerError> {
        let mut documents = self.documents.lock().await;
        let now = self.read_present_files(path, &documents, read).await?;
        let serial = self.connection.state.serial();
        let mut is_changed = self.notify_changes(&mut documents, now.files).await?;
        for (other, text, stamp) in now.others {
            match text {
                Some(text) => is_changed |= self.notify_text(&mut documents, &other, text, stamp).await?,
                None => self.close(&mut documents, &other).await?,
            }
        }
        let is_new_text = self.notify_text(&mut documents, path, Arc::clone(&now.text), now.stamp).await?;
        let is_changed = is_changed || is_new_text;
        documents.clock += 1;
        let clock = documents.clock;
        let version = documents.open.get_mut(path).map_or(1, |document| {
            document.used = clock;
            document.version
        });
        while documents.open.len() > MAX_OPEN {
            let oldest = documents.open.iter().min_by_key(|(_, document)| document.used);
            let Some(oldest) = oldest.map(|(path, _)| path.clone()) else { break };
            self.close(&mut documents, &oldest).await?;
        }
        let (url, path, text, generation) = (url_of(path)?, path.to_owned(), now.text, documents.generation);
        Ok(SyncedDocument { url, path, text, version, serial, is_new_text, is_changed, generation })
    }

    /// Reads the changed files, on a thread that may block.
    async fn read_present_files(
        &self,
        path: &Path,
        documents: &Documents,
        read: Arc<ReadText>,
    ) -> Result<FilesNow, ServerError> {
        let known: Vec<_> = documents
            .open
            .iter()
            .filter(|(open, _)| *open != path)
            .map(|(open, one)| (open.clone(), one.stamp))
            .collect();
        let (kind, project, hidden, path) = (self.kind, self.project.clone(), self.hidden.clone(), path.to_owned());
        let read_all = move || {
            let stamp = DiskStamp::of(&path);
            let text = Arc::from(read(&path)?);
            let changed = known.into_iter().filter_map(|(open, known)| {
                let stamp = DiskStamp::of(&open);
                (stamp.is_none() || stamp != known).then(|| {
                    let text = read(&open).ok().map(Arc::from);
                    (open, text, stamp)
                })
            });
            let others = changed.collect();
            Ok::<_, String>(FilesNow { text, stamp, others, files: list_files(kind, &project, &hidden) })
        };
        let now = tokio::task::spawn_blocking(read_all).await.unwrap_or_else(|error| Err(error.to_string()));
        now.map_err(ServerError::lasting)
    }

    /// Informs the server of the project's files that changed. Returns true if there are any.
    async fn notify_changes(&self, documents: &mut Documents, files: ProjectFiles) -> Result<bool, ServerError> {
        let changed = changes(&documents.files, &files);
        let event = |(path, kind): &(PathBuf, FileChangeType)| Some(json!({"uri": url_of(path).ok()?, "type": kind}));
        let events: Vec<_> = changed.iter().filter_map(event).collect();
        if !events.is_empty() {
            documents.generation += 1;
            if changed.iter().any(|(path, _)| self.kind.is_marker(path)) {
                self.connection.state.forget_shown_error();
            }
            for events in events.chunks(MAX_CHANGES) {
                self.connection.notify("workspace/didChangeWatchedFiles", json!({ "changes": events })).await?;
            }
        }
        documents.files = files;
        Ok(!events.is_empty())
    }

    /// Opens a file or changes it, and reports it as saved. Returns true if the text is new to the server. The recorded state
    /// changes after each message, so that both sides agree even if the call is cancelled in between.
    async fn notify_text(
        &self,
        documents: &mut Documents,
        path: &Path,
        text: Arc<str>,
        stamp: Option<DiskStamp>,
    ) -> Result<bool, ServerError> {
        let url = url_of(path)?;
        if let Some(document) = documents.open.get_mut(path).filter(|document| document.text == text) {
            document.stamp = stamp;
            return Ok(false);
        }
        // A file that the server read from the disk, and that has not changed since, is not a change.
        if documents.open.contains_key(path) || stamp.is_none() || documents.files.get(path).copied() != stamp {
            documents.generation += 1;
        }
        if let Some(document) = documents.open.get_mut(path) {
            let version = document.version.wrapping_add(1).max(1);
            let change =
                json!({"textDocument": {"uri": url, "version": version}, "contentChanges": [{"text": &*text}]});
            self.connection.notify("textDocument/didChange", change).await?;
            (document.version, document.text, document.stamp) = (version, text, stamp);
        } else {
            self.connection.state.set_open(path, true);
            let language = self.kind.language_id(path).unwrap_or_default();
            let document = json!({"uri": url, "languageId": language, "version": 1, "text": &*text});
            self.connection.notify("textDocument/didOpen", json!({ "textDocument": document })).await?;
            let opened = OpenDocument { version: 1, text, stamp, used: documents.clock };
            documents.open.insert(path.to_owned(), opened);
        }
        let sync = &self.capabilities["textDocumentSync"];
        if !matches!(sync["save"], Value::Null | Value::Bool(false)) {
            self.connection.notify("textDocument/didSave", json!({"textDocument": {"uri": url}})).await?;
        }
        Ok(true)
    }

    async fn close(&self, documents: &mut Documents, path: &Path) -> Result<(), ServerError> {
        let closed = json!({"textDocument": {"uri": url_of(path)?}});
        self.connection.notify("textDocument/didClose", closed).await?;
        documents.open.remove(path);
        self.connection.state.set_open(path, false);
        Ok(())
    }

    /// Opens those of `paths` whose current text the server may not know. Returns the number of changes that the server has
    /// learned of, or `None` if it has learned of other changes since `generation`.
    ///
    /// # Errors
    /// A file cannot be read, there are too many files, or the server has ended.
    pub(super) async fn open_unknown(
        &self,
        generation: u64,
        paths: &[PathBuf],
        read: Arc<ReadText>,
    ) -> Result<Option<u64>, ServerError> {
        let mut documents = self.documents.lock().await;
        if documents.generation != generation {
            return Ok(None);
        }
        let is_known = |path: &PathBuf| documents.open.contains_key(path) || documents.files.contains_key(path);
        let unknown: Vec<PathBuf> = paths.iter().filter(|path| !is_known(path)).cloned().collect();
        if unknown.len() > MAX_OPEN {
            let (count, first) = (unknown.len(), unknown[0].display());
            return Err(ServerError::lasting(format!(
                "{count} of the files, such as {first}, are in folders that are not watched for changes; such files are changed up to \
                 {MAX_OPEN}"
            )));
        }
        let read_all = move || {
            let text_of = |path: PathBuf| {
                let stamp = DiskStamp::of(&path);
                Ok::<_, String>((Arc::<str>::from(read(&path)?), path, stamp))
            };
            unknown.into_iter().map(text_of).collect::<Result<Vec<_>, _>>()
        };
        let texts = tokio::task::spawn_blocking(read_all).await.unwrap_or_else(|error| Err(error.to_string()));
        let texts = texts.map_err(ServerError::lasting)?;
        for (text, path, stamp) in texts {
            self.notify_text(&mut documents, &path, text, stamp).await?;
        }
        Ok(Some(documents.generation))
    }

    /// Returns the versions of files that the server knows. Returns `None` if the server has learned of changes since
    /// `generation`: its earlier answers may then refer to other texts.
    pub(super) async fn known_since(&self, generation: u64, paths: &[PathBuf]) -> Option<Vec<ServerFileState>> {
        let documents = self.documents.lock().await;
        let state_of = |path: &PathBuf| match (documents.open.get(path), documents.files.get(path)) {
            (Some(document), _) => ServerFileState::Open(Arc::clone(&document.text)),
            (None, Some(stamp)) => ServerFileState::Closed(*stamp),
            (None, None) => ServerFileState::Unknown,
        };
        (documents.generation == generation).then(|| paths.iter().map(state_of).collect())
    }

    /// Returns the deadline until which a call waits for the server to read its project: a while after the server's start, or a
    /// shorter while from now.
    pub(super) fn ready_deadline(&self, after_start: Duration, from_now: Duration) -> Instant {
        (self.initialized + after_start).max(Instant::now() + from_now)
    }

    /// Waits until the server has read its project, at most until `deadline`. Returns false if it is still reading.
    pub(super) async fn wait_ready(&self, deadline: Instant, cancel: &CancellationToken) -> bool {
        let state = &self.connection.state;
        if self.kind.reports_status {
            return self.wait_until(deadline, cancel, || state.is_quiescent() == Some(true)).await;
        }
        let grace = deadline.min(self.initialized + FIRST_PROGRESS);
        let has_begun = || state.has_reported_progress();
        self.wait_until(grace, cancel, has_begun).await;
        self.wait_until(deadline, cancel, || !state.is_working()).await
    }

    /// Waits until the server's state is as wanted, at most until `deadline`. Returns false if that fails, or if the server has
    /// ended.
    pub(super) async fn wait_until(
        &self,
        deadline: Instant,
        cancel: &CancellationToken,
        is_reached: impl Fn() -> bool,
    ) -> bool {
        let mut changes = self.connection.state.changes();
        loop {
            changes.borrow_and_update();
            if is_reached() {
                return true;
            }
            if self.connection.state.ended().is_some() {
                return false;
            }
            tokio::select! {
                () = cancel.cancelled() => return false,
                () = sleep_until(deadline) => return false,
                changed = changes.changed() => if changed.is_err() { return false },
            }
        }
    }

    /// Asks the server to end, and then ends it.
    pub(super) async fn shut_down(&self) {
        let cancel = CancellationToken::new();
        let asked = async {
            self.connection.request("shutdown", Value::Null, SHUTDOWN_LIMIT, &cancel).await?;
            self.connection.notify("exit", Value::Null).await?;
            self.wait_until(Instant::now() + SHUTDOWN_LIMIT, &cancel, || false).await;
            Ok::<(), ServerError>(())
        };
        // If the server does not end by itself, dropping the connection ends it.
        drop(timeout_at(Instant::now() + SHUTDOWN_LIMIT + SHUTDOWN_LIMIT, asked).await);
    }
}

/// Returns the parameters of `initialize`. The process id is left out: in its namespace the server cannot see the gateway's
/// process, and would end at once.
fn initialize_params(kind: &ServerKind, root: &Url) -> Value {
    let link = json!({"linkSupport": true});
    let text_document = json!({
        "synchronization": {"didSave": true},
        "publishDiagnostics": {"versionSupport": true, "relatedInformation": true},
        "diagnostic": {"dynamicRegistration": false},
        "definition": link,
        "references": {},
        "documentSymbol": {"hierarchicalDocumentSymbolSupport": true},
        "rename": {"prepareSupport": false},
        "codeAction": {
            "codeActionLiteralSupport": {"codeActionKind": {"valueSet": ["", "quickfix", "refactor", "source"]}},
            "isPreferredSupport": true,
            "disabledSupport": true,
        },
    });
    let workspace = json!({
        "applyEdit": true,
        "configuration": true,
        "workspaceFolders": true,
        "workspaceEdit": {"documentChanges": true, "failureHandling": "abort"},
        "didChangeConfiguration": {},
        "didChangeWatchedFiles": {"dynamicRegistration": true},
        "symbol": {},
    });
    json!({
        "processId": null,
        "clientInfo": {"name": "daoyou"},
        "rootUri": root,
        "rootPath": root.to_file_path().ok(),
        "workspaceFolders": [{"uri": root, "name": "workspace"}],
        "initializationOptions": (kind.options)(),
        "capabilities": {
            "general": {"positionEncodings": ["utf-8", "utf-16", "utf-32"]},
            "textDocument": text_document,
            "workspace": workspace,
            "window": {"workDoneProgress": true, "showMessage": {}},
            "experimental": {"serverStatusNotification": true},
        },
    })
}
