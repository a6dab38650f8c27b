//! The files that file tools may access in a turn, and the thread on which the tools work.

use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use daoyou_channels::Trust;
use daoyou_channels::email::ATTACHMENTS as MAIL_FOLDER;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::tree_stamp::{STAMP_LIMIT, tree_stamp};
use crate::crash;
use crate::guard::{AccessKind, EntryKind, Jail, StopSignal, Taint, WalkSelection};
use crate::tools::private_folders::{GATEWAY_FOLDER, HISTORY, MEMORY_FOLDER, PrivateFolders};
use crate::tools::spill::is_foreign;
use crate::tools::{ToolContext, ToolOutcome, ToolResult, read_arguments};

/// The folder of the workspace where a turn that has read foreign content (content from anyone but the owner) writes without
/// approval. Its content counts as foreign as well.
const SCRATCH: &str = "scratch";
/// The folders of the workspace with foreign content.
pub const FOREIGN_FOLDERS: [&str; 2] = [MAIL_FOLDER, SCRATCH];

/// The path jail of the workspace, with the private folders that some turns may not see.
#[derive(Clone)]
pub struct WorkspaceJail {
    jail: Arc<Jail>,
    private: PrivateFolders,
}

impl WorkspaceJail {
    /// Creates the jail. `private` are the folders of the workspace that only some turns may use.
    pub fn new(jail: Jail, private: PrivateFolders) -> Self {
        Self { jail: Arc::new(jail), private }
    }

    /// Returns true if a folder with foreign content has entries. Commands create these folders, so empty ones are usual.
    pub(in crate::tools) fn has_foreign_content(&self) -> bool {
        let has_entries = |foreign| match std::fs::read_dir(self.jail.root().join(foreign)) {
            Ok(mut entries) => entries.next().is_some(),
            Err(error) => error.kind() != std::io::ErrorKind::NotFound,
        };
        FOREIGN_FOLDERS.iter().any(has_entries)
    }

    /// Returns the path relative to the workspace, with links and `..` resolved; `None` if it lies elsewhere or does not exist.
    pub(in crate::tools) fn real_path(&self, path: &str) -> Option<PathBuf> {
        real_workspace_path(&self.jail, path)
    }

    /// Returns the folders of the workspace that the turn of `context` may not see.
    pub(in crate::tools) fn hidden_folders(&self, context: &ToolContext) -> Vec<PathBuf> {
        self.private.visibility_for(context).hidden
    }

    /// Returns the jail for the turn of `context`.
    pub fn for_turn(&self, context: &ToolContext) -> Arc<Jail> {
        self.for_turn_to(context, AccessKind::Read)
    }

    /// Returns the jail for the turn of `context`, with the rules for this kind of access.
    fn for_turn_to(&self, context: &ToolContext, kind: AccessKind) -> Arc<Jail> {
        let visibility = self.private.visibility_for(context);
        let jail = self.jail.with_closed(&visibility.hidden);
        // The folders that a turn sees hold results that the gateway stored; only the gateway changes them.
        let jail = if kind == AccessKind::Write { jail } else { jail.with_reopened(&visibility.shown) };
        let rules = &context.agent.rules;
        Arc::new(if rules.is_empty() { jail } else { jail.with_rules(rules.clone(), kind) })
    }
}

/// The files that a turn may change.
#[derive(Clone)]
pub struct WriteScope {
    /// The jail of the files that the configuration allows.
    configured: WorkspaceJail,
    /// The jail without links and without paths outside the workspace, for turns that have read foreign content.
    strict: WorkspaceJail,
}

impl WriteScope {
    pub fn new(configured: WorkspaceJail, strict: WorkspaceJail) -> Self {
        Self { configured, strict }
    }

    /// Returns the jail for the changes of the turn of `context`.
    pub fn for_turn(&self, context: &ToolContext) -> Arc<Jail> {
        let is_free = context.taint.is_empty() || context.is_approved;
        let jail = if is_free { &self.configured } else { &self.strict };
        jail.for_turn_to(context, AccessKind::Write)
    }

    /// Returns true if a turn that has read foreign content needs approval to change these paths: a path lies outside the scratch
    /// folder, or the sender is untrusted. The taint itself is not checked here.
    pub fn is_restricted<'a>(&self, paths: impl IntoIterator<Item = &'a str>, context: &ToolContext) -> bool {
        let is_scratch =
            |path| relative_path(&self.configured.jail, path).is_some_and(|path| path.starts_with(SCRATCH));
        context.trust == Trust::Untrusted || !paths.into_iter().all(is_scratch)
    }
}

/// The files that a turn may read.
#[derive(Clone)]
pub struct ReadScope {
    /// The jail of the files that the configuration allows.
    configured: WorkspaceJail,
    /// The jail of the workspace alone, for untrusted senders.
    workspace: WorkspaceJail,
    /// The paths of the workspace that untrusted senders may read in addition to their own files.
    public: Arc<[PathBuf]>,
}

impl ReadScope {
    /// Creates the scope. `public` are the paths that untrusted senders may read.
    pub fn new(configured: WorkspaceJail, workspace: WorkspaceJail, public: &[String]) -> Self {
        let public = public.iter().filter_map(|path| relative_path(&workspace.jail, path)).collect();
        Self { configured, workspace, public }
    }

    /// Returns the jail for the reads of the turn of `context`.
    pub fn for_turn(&self, context: &ToolContext) -> Arc<Jail> {
        let jail = if context.trust == Trust::Untrusted { &self.workspace } else { &self.configured };
        jail.for_turn(context)
    }

    /// Returns a stamp of the files that a call reads below the folder `path`, for [`Tool::cache_stamp`]. `select` is the filter
    /// of the call's walk. Returns `None` if caching is not worthwhile or not safe.
    ///
    /// [`Tool::cache_stamp`]: crate::tools::Tool::cache_stamp
    pub(super) async fn tree_stamp(
        &self,
        path: String,
        select: impl Fn(&Path, EntryKind) -> WalkSelection + Send + Sync + 'static,
        context: &ToolContext,
    ) -> Option<String> {
        let (jail, stop) = (self.for_turn(context), StopSignal::new(STAMP_LIMIT, context.cancel.clone()));
        let stamp = move || tree_stamp(&jail, &path, &select, &stop, SystemTime::now());
        let stamp = tokio::task::spawn_blocking(stamp).await.ok()??;
        // Files that came with the message count as the sender's own, so they are part of the stamp.
        Some(format!("{stamp} {}", context.files.join("\n")))
    }

    /// Returns true if an untrusted sender may read the `path` in these arguments: the file came with the sender's own message,
    /// or is public.
    pub fn allows_untrusted(&self, arguments: &Value, context: &ToolContext) -> bool {
        let Some(path) = relative_path(&self.workspace.jail, arguments["path"].as_str().unwrap_or(".")) else {
            return false;
        };
        let is_own = || context.files.iter().any(|own| Path::new(own) == path);
        self.public.iter().any(|public| path.starts_with(public)) || is_own()
    }

    /// Returns the source of a file's content if the content is foreign: the file lies in the scratch folder, came with a mail, is a
    /// log of summaries, or is a stored tool output or image that is marked as foreign. A file that came with the message that this
    /// turn answers is not foreign if the owner or a known sender sent the message.
    pub fn sources(&self, arguments: &Value, context: &ToolContext) -> Taint {
        self.sources_of(arguments["path"].as_str().unwrap_or("."), context)
    }

    /// Returns the sources like [`ReadScope::sources`], for the file at `path`.
    pub(super) fn sources_of(&self, path: &str, context: &ToolContext) -> Taint {
        let foreign = ForeignFiles::of(context);
        self.meant_paths(path).iter().find_map(|path| foreign.source(path)).into_iter().collect()
    }

    /// Returns the paths below the workspace that a path may refer to: as written, and with links and `..` resolved.
    fn meant_paths(&self, path: &str) -> Vec<PathBuf> {
        let real = real_workspace_path(&self.workspace.jail, path);
        relative_path(&self.workspace.jail, path).into_iter().chain(real).collect()
    }

    /// Returns true if the `path` in these arguments names the log of summaries or an older part of it, or a folder that holds one.
    pub(super) fn may_hold_history(&self, arguments: &Value) -> bool {
        let paths = self.meant_paths(arguments["path"].as_str().unwrap_or("."));
        let is_above =
            paths.is_empty() || paths.iter().any(|path| Path::new(HISTORY).starts_with(path) || is_history(path));
        let entries =
            || std::fs::read_dir(self.workspace.jail.root().join(MEMORY_FOLDER)).into_iter().flatten().flatten();
        is_above && entries().any(|entry| is_history(&Path::new(MEMORY_FOLDER).join(entry.file_name())))
    }

    /// Returns true if the `path` in these arguments names a file with foreign content, or a folder that may contain one.
    pub fn may_hold_foreign(&self, arguments: &Value, context: &ToolContext) -> bool {
        let path = relative_path(&self.workspace.jail, arguments["path"].as_str().unwrap_or("."));
        if path.as_ref().is_none_or(|path| FOREIGN_FOLDERS.iter().any(|foreign| Path::new(foreign).starts_with(path))) {
            return self.workspace.has_foreign_content();
        }
        !self.sources(arguments, context).is_empty()
    }
}

/// The distinction between files with foreign content and other files, for one turn.
pub(in crate::tools) struct ForeignFiles {
    trust: Trust,
    own: Arc<[String]>,
}

impl ForeignFiles {
    pub(in crate::tools) fn of(context: &ToolContext) -> Self {
        Self { trust: context.trust, own: Arc::clone(&context.files) }
    }

    /// Returns the source of a file's content if the content is foreign. `path` is relative to the workspace.
    /// [`ReadScope::sources`] states the rule.
    pub(in crate::tools) fn source(&self, path: &Path) -> Option<String> {
        let is_own = || self.trust != Trust::Untrusted && self.own.iter().any(|own| Path::new(own) == path);
        let is_of_others = FOREIGN_FOLDERS.iter().any(|foreign| path.starts_with(foreign))
            || path.starts_with(GATEWAY_FOLDER) && is_foreign(path)
            || is_history(path);
        (is_of_others && !is_own()).then(|| format!("file:{}", path.display()))
    }

    /// Returns the source of an entry's name if others may have chosen the name: the folder with foreign content that holds the
    /// entry. `path` is relative to the workspace. The sender's own files are excepted as in [`ForeignFiles::source`].
    pub(in crate::tools) fn name_source(&self, path: &Path) -> Option<String> {
        let folder = foreign_folder_of(path).filter(|folder| path != Path::new(folder))?;
        self.source(path).map(|_| format!("file:{folder}"))
    }
}

/// Returns true if a path relative to the workspace is [`HISTORY`] or an older part of it, `memory/HISTORY-TIME.md`.
fn is_history(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    path.parent() == Some(Path::new(MEMORY_FOLDER)) && name.starts_with("HISTORY")
}

/// Returns the folder with foreign content that holds `path`, or is `path`. The path is relative to the workspace.
pub(in crate::tools) fn foreign_folder_of(path: &Path) -> Option<&'static str> {
    FOREIGN_FOLDERS.into_iter().find(|folder| path.starts_with(folder))
}

/// Returns the path relative to the workspace, with links and `..` resolved. Returns `None` if it lies elsewhere or does not exist.
pub(in crate::tools) fn real_workspace_path(jail: &Jail, path: &str) -> Option<PathBuf> {
    let real = std::fs::canonicalize(jail.root().join(path)).ok()?;
    Some(real.strip_prefix(jail.root()).ok()?.to_owned())
}

/// Parses the arguments and does the work on a thread that may block. Once started, the work completes even if the caller no
/// longer waits.
pub(in crate::tools) async fn run_on_jail<Args, Done>(
    jail: Arc<Jail>,
    arguments: Value,
    work: impl FnOnce(&Jail, Args) -> Done + Send + 'static,
) -> ToolOutcome
where
    Args: DeserializeOwned + Send + 'static,
    Done: Into<ToolOutcome> + Send + 'static,
{
    let work = |jail: &Jail, args: Args| Ok(work(jail, args));
    work_on_jail(jail, arguments, work).await.map_or_else(|error| ToolResult::failed(error).into(), Into::into)
}

/// Does the work like [`run_on_jail`], but returns its value instead of an outcome.
///
/// # Errors
/// The error of `work`.
pub(super) async fn work_on_jail<Args: DeserializeOwned + Send + 'static, T: Send + 'static>(
    jail: Arc<Jail>,
    arguments: Value,
    work: impl FnOnce(&Jail, Args) -> Result<T, String> + Send + 'static,
) -> Result<T, String> {
    let path = arguments.get("path").and_then(Value::as_str).unwrap_or_default().to_owned();
    let args: Args = read_arguments(&arguments)?;
    let work = move || {
        crash::point("file_work", &path);
        work(&jail, args)
    };
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| {
        tracing::error!(%error, "a file tool panicked");
        Err("The tool failed inside daoyou; the fault is in its log".to_owned())
    })
}

/// Returns a path relative to the workspace, without `.`. Returns `None` if it contains `..` or lies elsewhere.
fn relative_path(jail: &Jail, path: &str) -> Option<PathBuf> {
    let path = Path::new(path);
    let path = path.strip_prefix(jail.root()).unwrap_or(path);
    let mut plain = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::Normal(name) => plain.push(name),
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    Some(plain)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::tools::ToolsConfig;
    use crate::tools::testing::{ToolFixture, context};

    #[tokio::test]
    async fn private_folders_are_open_to_the_owner_alone() {
        let config = ToolsConfig { strangers_read: vec![".".to_owned()], ..ToolsConfig::default() };
        let fixture = ToolFixture::with_private(&config, PrivateFolders::new(&["memory"]));
        fixture.write(&[("memory/MEMORY.md", "the PIN is 4711")]);
        std::os::unix::fs::symlink("memory", fixture.path("link")).unwrap();
        let absolute = fixture.path("memory/MEMORY.md");
        for (name, arguments) in [
            ("read_file", json!({"path": "memory/MEMORY.md"})),
            ("read_file", json!({"path": "./link/../memory//MEMORY.md"})),
            ("read_file", json!({"path": "link/MEMORY.md"})),
            ("read_file", json!({"path": absolute})),
            ("list_dir", json!({"path": "memory"})),
            ("edit_file", json!({"path": "memory/MEMORY.md", "old_text": "4711", "new_text": "4712"})),
            ("message", json!({"content": "here", "attachments": ["memory/MEMORY.md"]})),
            ("write_file", json!({"path": "memory/new.md", "content": "- all is free"})),
            ("write_file", json!({"path": "memory/a/b.md", "content": "- all is free"})),
        ] {
            for (trust, expected) in [(Trust::Untrusted, ""), (Trust::Known, "off limits"), (Trust::Owner, "")] {
                let result = fixture.run_as(trust, name, &arguments).await;
                assert_eq!(result.success, trust == Trust::Owner, "{trust:?} {name} {arguments}: {}", result.render());
                assert!(result.render().contains(expected), "{trust:?} {name} {arguments}: {}", result.render());
            }
        }
        assert_eq!(std::fs::read_to_string(absolute).unwrap(), "the PIN is 4712");
    }

    #[tokio::test]
    async fn stored_results_are_read_and_never_changed() {
        let fixture = ToolFixture::new(&ToolsConfig::default());
        let long = format!("line {}\n", "x".repeat(80)).repeat(500);
        fixture.write(&[("a.txt", &long)]);
        let listed = fixture.run("grep", &json!({"pattern": "line", "max_results": 500}), &context()).await.result;
        let stored = listed.spill.unwrap().path;
        std::os::unix::fs::symlink(&stored, fixture.path("link")).unwrap();
        let new = std::path::Path::new(&stored).with_file_name("new.txt").display().to_string();
        let patch = format!("*** Begin Patch\n*** Delete File: {stored}\n*** End Patch\n");
        let read = fixture.run_as(Trust::Owner, "read_file", &json!({ "path": stored })).await;
        assert!(read.success, "{}", read.render());
        for (name, arguments) in [
            ("write_file", json!({"path": stored, "content": "x"})),
            ("write_file", json!({"path": "link", "content": "x"})),
            ("write_file", json!({"path": new, "content": "x"})),
            ("create_dir", json!({"path": format!("{new}/x")})),
            ("edit_file", json!({"path": stored, "old_text": "line", "new_text": "x", "replace_all": true})),
            ("delete_file", json!({"path": stored})),
            ("apply_patch", json!({"patch": patch})),
        ] {
            for trust in [Trust::Owner, Trust::Known] {
                let result = fixture.run_as(trust, name, &arguments).await;
                assert!(
                    result.render().contains("off limits, it holds keys or daoyou's own data"),
                    "{}",
                    result.render()
                );
            }
        }
        assert!(std::fs::read_to_string(fixture.path(&stored)).unwrap().contains("line"));
    }

    #[tokio::test]
    async fn neither_dots_nor_links_hide_whose_content_a_file_has() {
        let fixture = ToolFixture::new(&ToolsConfig::default());
        fixture.write(&[("scratch/a.txt", "of others"), ("own.txt", "mine"), ("memory/MEMORY.md", "mine")]);
        fixture.write(&[("memory/HISTORY.md", "what a page said"), ("memory/HISTORY-20260101-000000.md", "older")]);
        std::os::unix::fs::symlink("memory/HISTORY.md", fixture.path("log.txt")).unwrap();
        std::os::unix::fs::symlink("scratch/a.txt", fixture.path("link.txt")).unwrap();
        for (path, is_of_others) in [
            ("scratch/a.txt", true),
            ("scratch/../scratch/a.txt", true),
            ("link.txt", true),
            ("own.txt", false),
            ("scratch/../own.txt", false),
            ("memory/MEMORY.md", false),
            ("memory/HISTORY.md", true),
            ("memory/HISTORY-20260101-000000.md", true),
            ("log.txt", true),
        ] {
            let result = fixture.run_as(Trust::Owner, "read_file", &json!({ "path": path })).await;
            assert_eq!((result.success, !result.taint.is_empty()), (true, is_of_others), "{path}");
        }
    }

    #[tokio::test]
    async fn a_public_path_opens_no_other_file_by_a_link() {
        let config = ToolsConfig { strangers_read: vec!["public".to_owned()], ..ToolsConfig::default() };
        let fixture = ToolFixture::new(&config);
        fixture.write(&[("USER.md", "the owner's birthday"), ("public/hours.md", "open from 9")]);
        std::os::unix::fs::symlink("../USER.md", fixture.path("public/user.md")).unwrap();
        std::os::unix::fs::symlink("..", fixture.path("public/up")).unwrap();
        for (path, trust, is_read) in [
            ("public/hours.md", Trust::Untrusted, true),
            ("public/user.md", Trust::Untrusted, false),
            ("public/up/USER.md", Trust::Untrusted, false),
            ("public/user.md", Trust::Owner, true),
        ] {
            let result = fixture.run_as(trust, "read_file", &json!({ "path": path })).await;
            assert_eq!(result.success, is_read, "{trust:?} {path}: {}", result.render());
            assert!(is_read || !result.render().contains("birthday"), "{path}: {}", result.render());
        }
    }
}
