//! The shared part of all tools that use language servers: it takes a path that a model wrote, and returns a server that knows
//! the file's current content.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use lsp_types::Position;
use serde_json::{Value, json};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::client_state::ServerHealth;
use super::config::LspConfig;
use super::languages::ServerKind;
use super::pool::{LanguageServers, ServerLease};
use super::positions::PositionIndex;
use super::project_files::list_files;
use super::server::{LanguageServer, ReadText, SyncedDocument};
use crate::guard::{Jail, JailError};
use crate::tools::ToolContext;
use crate::tools::exec::{CommandRunner, ServerError};
use crate::tools::files::{ReadScope, TextFile};

/// The largest file that is sent to a server, in bytes.
const MAX_TEXT: usize = 2_000_000;
/// How much longer a call may take than its parts.
const MARGIN: Duration = Duration::from_secs(30);

/// The language servers, and the files that turns may read.
pub struct LspService {
    servers: Arc<LanguageServers>,
    scope: ReadScope,
}

/// A file, and a server that knows its current content.
pub(super) struct OpenTarget {
    lease: ServerLease,
    pub document: SyncedDocument,
    pub view: ProjectView,
    /// The deadline for all answers of the server.
    pub deadline: Instant,
    pub cancel: CancellationToken,
    /// True if the server has read the whole project.
    pub is_ready: bool,
}

/// The part of the workspace that results may contain.
#[derive(Clone)]
pub(super) struct ProjectView {
    pub jail: Arc<Jail>,
    /// Folders that no server sees.
    pub hidden: Arc<[PathBuf]>,
}

impl ProjectView {
    /// Returns the real path of a file that a server names. The name alone does not suffice, since it may contain links.
    ///
    /// # Errors
    /// The file does not exist, lies outside the workspace, or is hidden from the turn or from servers.
    pub(super) fn resolve(&self, path: &Path) -> Result<PathBuf, JailError> {
        let named = path.to_str().ok_or(JailError::Invalid("it is not UTF-8"))?;
        let real = self.jail.locate(named)?;
        if self.is_hidden(&real) { Err(JailError::Protected(named.to_owned())) } else { Ok(real) }
    }

    /// Returns a path relative to the workspace; `None` if the file lies elsewhere.
    pub(super) fn relative<'a>(&self, path: &'a Path) -> Option<&'a Path> {
        path.strip_prefix(self.jail.root()).ok()
    }

    /// Returns true if the path is hidden from servers.
    pub(super) fn is_hidden(&self, path: &Path) -> bool {
        self.hidden.iter().any(|folder| path.starts_with(folder))
    }

    /// Returns [`ProjectView::text`] as a function.
    pub(super) fn reader(&self) -> Arc<ReadText> {
        let view = self.clone();
        Arc::new(move |path| view.text(path))
    }

    /// Reads a text of the workspace that the turn may read, with LF as line ends.
    ///
    /// # Errors
    /// The jail does not serve the file, or the file is not a text.
    pub(super) fn text(&self, path: &Path) -> Result<String, String> {
        let real = self.resolve(path).map_err(|error| error.to_string())?;
        let opened = self.jail.read(&real.to_string_lossy()).map_err(|error| error.to_string())?;
        if opened.bytes.len() > MAX_TEXT {
            let (shown, most) = (opened.shown, MAX_TEXT / 1_000_000);
            return Err(format!("{shown}: language servers get files of at most {most} MB"));
        }
        let text = TextFile::decode(&opened).map(|file| file.text);
        text.map_err(|error| error.trim_end_matches("; nothing was changed").to_owned())
    }
}

/// A file or folder of the workspace, with the kind of its server.
struct LocatedFile {
    path: PathBuf,
    root: PathBuf,
    kind: &'static ServerKind,
}

impl LspService {
    pub fn new(runner: Arc<CommandRunner>, scope: ReadScope, config: &LspConfig) -> Self {
        Self { servers: Arc::new(LanguageServers::new(runner, config.clone())), scope }
    }

    /// Returns the time limit of a call.
    pub(super) fn limit(&self) -> Duration {
        let config = &self.servers.config;
        let start = config.startup_timeout.0.saturating_mul(2);
        start.saturating_add(config.timeout.0.saturating_mul(2)).saturating_add(MARGIN)
    }

    /// Opens a file in its server, and waits until the server is ready.
    ///
    /// # Errors
    /// The file may not be read or has no server, or the server fails.
    pub(super) async fn open(&self, path: &str, context: &ToolContext) -> Result<OpenTarget, ServerError> {
        let view = self.view(context);
        let located = blocking(&view, path, locate_file).await?;
        self.open_located(located, view, context).await
    }

    /// Opens a file like [`LspService::open`]. For a folder, opens the folder's project with one of its files. Returns true for a
    /// folder.
    ///
    /// # Errors
    /// As [`LspService::open`].
    pub(super) async fn open_project(
        &self,
        path: &str,
        context: &ToolContext,
    ) -> Result<(OpenTarget, bool), ServerError> {
        let view = self.view(context);
        let (located, is_folder) = blocking(&view, path, locate_any).await?;
        Ok((self.open_located(located, view, context).await?, is_folder))
    }

    fn view(&self, context: &ToolContext) -> ProjectView {
        ProjectView { jail: self.scope.for_turn(context), hidden: self.servers.hidden().into() }
    }

    async fn open_located(
        &self,
        located: LocatedFile,
        view: ProjectView,
        context: &ToolContext,
    ) -> Result<OpenTarget, ServerError> {
        let LocatedFile { path, root, kind } = located;
        let cancel = context.cancel.clone();
        let lease = self.servers.lease(kind, &root, context.trust, &cancel).await?;
        let document = lease.server.sync(&path, view.reader()).await?;
        let config = &self.servers.config;
        let deadline = lease.server.ready_deadline(config.startup_timeout.0, config.timeout.0);
        let is_ready = lease.server.wait_ready(deadline, &cancel).await;
        if let Some(error) = lease.server.connection.ended() {
            return Err(error);
        }
        let deadline = Instant::now() + config.timeout.0;
        Ok(OpenTarget { lease, document, view, deadline, cancel, is_ready })
    }
}

impl OpenTarget {
    pub(super) fn server(&self) -> &LanguageServer {
        &self.lease.server
    }

    /// Returns the request parameters for a place in the file.
    ///
    /// # Errors
    /// There is no such place.
    pub(super) fn place(&self, line: u32, character: u32) -> Result<Value, ServerError> {
        let position = self.position(line, character)?;
        Ok(json!({"textDocument": {"uri": self.document.url}, "position": position}))
    }

    /// Returns the server's position for a place in the file.
    ///
    /// # Errors
    /// There is no such place.
    pub(super) fn position(&self, line: u32, character: u32) -> Result<Position, ServerError> {
        let found = PositionIndex::new(&self.document.text, self.server().encoding).to_server(line, character);
        found.map_err(ServerError::lasting)
    }

    /// Sends a request to the server.
    ///
    /// # Errors
    /// As [`super::connection::LspConnection::request`].
    pub(super) async fn ask(&self, method: &str, params: Value) -> Result<Value, ServerError> {
        let limit = self.deadline.saturating_duration_since(Instant::now());
        let connection = &self.server().connection;
        connection.request(method, params, limit, &self.cancel).await.map_err(|mut error| {
            if let Some(note) = connection.state.health().note() {
                error.text = format!("{}; it {note}", error.text);
            }
            error
        })
    }

    /// Returns the error for an answer that violates the protocol.
    pub(super) fn invalid(&self, what: &str) -> ServerError {
        ServerError::lasting(format!("{} returned invalid {what}", self.server().connection.name))
    }

    /// Returns why the server may not know the whole project, if that is so.
    pub(super) fn why_incomplete(&self) -> Option<&'static str> {
        let health = self.server().connection.state.health();
        if !self.is_ready && health != ServerHealth::Error {
            return Some("still reads the project");
        }
        health.note()
    }

    /// Returns the note for a result that may be incomplete.
    pub(super) fn note(&self) -> Option<String> {
        let connection = &self.server().connection;
        let why = self.why_incomplete()?;
        Some(format!("[{} {why}: something may be missing]", connection.name))
    }

    /// Returns the path of the file relative to the workspace.
    pub(super) fn shown(&self) -> String {
        let path = self.view.relative(&self.document.path).unwrap_or(&self.document.path);
        crate::guard::quote_controls(&path.display().to_string())
    }
}

/// Does work that reads the disk.
async fn blocking<T: Send + 'static>(
    view: &ProjectView,
    path: &str,
    work: impl FnOnce(&ProjectView, &str) -> Result<T, String> + Send + 'static,
) -> Result<T, ServerError> {
    let (view, path) = (view.clone(), path.to_owned());
    let done = tokio::task::spawn_blocking(move || work(&view, &path)).await;
    done.unwrap_or_else(|error| Err(error.to_string())).map_err(ServerError::lasting)
}

fn locate(view: &ProjectView, path: &str) -> Result<PathBuf, String> {
    let found = view.jail.locate(path).map_err(|error| error.to_string())?;
    if view.is_hidden(&found) {
        return Err(format!("{path}: language servers serve all conversations, so they do not see this folder"));
    }
    Ok(found)
}

fn locate_file(view: &ProjectView, path: &str) -> Result<LocatedFile, String> {
    let found = locate(view, path)?;
    if found.is_dir() {
        return Err(format!("{path} is a folder; name a file"));
    }
    let kind = ServerKind::of_file(&found).map_err(|error| format!("{path}: {error}"))?;
    let root = kind.root_of(view.jail.root(), &found);
    Ok(LocatedFile { path: found, root, kind })
}

/// Locates a file, or one of the files in a folder's project. Returns true for a folder.
fn locate_any(view: &ProjectView, path: &str) -> Result<(LocatedFile, bool), String> {
    let found = locate(view, path)?;
    if !found.is_dir() {
        return Ok((locate_file(view, path)?, false));
    }
    let workspace = view.jail.root();
    let (kind, root) = ServerKind::of_folder(workspace, &found).ok_or_else(|| {
        let markers: Vec<_> =
            super::languages::SERVERS.iter().filter_map(|kind| kind.markers.first()).copied().collect();
        format!(
            "{path}: no project is in this folder or above it: there is none of {} and others; name a file",
            markers.join(", ")
        )
    })?;
    let files = list_files(kind, &root, &view.hidden);
    // Some servers answer only while a file is open.
    let usable = files.into_keys().filter(|file| kind.language_id(file).is_some() && view.resolve(file).is_ok());
    let path = usable.min().ok_or_else(|| format!("{path}: the project has no files of {}", kind.language))?;
    Ok((LocatedFile { path, root, kind }, true))
}
