//! Runs git on a repository of the workspace, so that nothing in the repository can run a program.
//!
//! Git reads the configuration, hooks and attributes of a repository from its common folder (`GIT_COMMON_DIR`). Here that is a
//! temporary folder with daoyou's own configuration, no hooks, no attributes, and links to the repository's objects and branches.
//! HEAD and the index are the repository's own. `.gitattributes` can then name filters and drivers, but none is defined. The
//! sandbox of commands is the second line of defence.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::repository::Repository;
use super::settings::compose;
use crate::guard::{Jail, Taint};
use crate::text::{shell_quote, truncate};
use crate::tools::ToolContext;
use crate::tools::exec::{COMMAND_BYTES, CommandRunner, END_MARGIN, ShellCommand};
use crate::tools::files::{FOREIGN_FOLDERS, ForeignFiles, WorkspaceJail};
use crate::tools::private_folders::{FolderVisibility, MEMORY_FOLDER};

/// The parts of a repository that git reads in addition to HEAD and the index.
const LINKED: &str = "objects refs logs packed-refs reftable shallow";
/// The environment variables of every call.
const ENVIRONMENT: &[(&str, &str)] = &[
    ("GIT_ASKPASS", "/bin/false"),
    ("GIT_ATTR_NOSYSTEM", "1"),
    ("GIT_CONFIG_GLOBAL", "/dev/null"),
    ("GIT_CONFIG_NOSYSTEM", "1"),
    ("GIT_CONFIG_SYSTEM", "/dev/null"),
    ("GIT_EDITOR", "/bin/false"),
    ("GIT_LITERAL_PATHSPECS", "1"),
    ("GIT_NO_LAZY_FETCH", "1"),
    ("GIT_PAGER", "cat"),
    ("GIT_SSH_COMMAND", "/bin/false"),
    ("GIT_TERMINAL_PROMPT", "0"),
    ("LC_ALL", "C"),
    ("SSH_ASKPASS", "/bin/false"),
];
/// The exit code of a shell that does not find a program (POSIX).
const NOT_FOUND: i32 = 127;
/// The longest error of git that is repeated, in characters.
const ERROR_CHARS: usize = 1_500;

/// The runner of git for the git tools.
#[derive(Clone)]
pub struct GitRunner {
    runner: Arc<CommandRunner>,
    files: WorkspaceJail,
}

/// Whether a call of git may write to the repository.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum GitAccess {
    Reads,
    Writes,
}

/// The output of a git call.
pub(super) struct GitOutput {
    pub bytes: Vec<u8>,
    /// The output as it is shown: bytes that are not UTF-8 are replaced.
    pub text: String,
    /// True if no part of the output is missing.
    pub is_whole: bool,
}

/// A repository with the configuration for git, for the calls of one turn.
pub(super) struct GitSession<'a> {
    runner: &'a CommandRunner,
    context: &'a ToolContext,
    deadline: Instant,
    settings: String,
    /// The folders of the workspace that the turn may not see.
    hidden: Vec<PathBuf>,
    pub repository: Repository,
    pub jail: Arc<Jail>,
}

impl GitRunner {
    pub fn new(runner: Arc<CommandRunner>, files: WorkspaceJail) -> Self {
        Self { runner, files }
    }

    /// Returns true if a call may show foreign content.
    pub(super) fn may_show_foreign(&self) -> bool {
        self.files.has_foreign_content()
    }

    /// Returns true if a path of a call contains the name of `memory/`, or leads into that folder through a link.
    pub(super) fn may_be_memory(&self, path: &str) -> bool {
        path.contains(MEMORY_FOLDER) || self.files.real_path(path).is_some_and(|real| real.starts_with(MEMORY_FOLDER))
    }

    /// Returns the time limit of a call of a tool.
    pub(super) fn timeout(&self) -> Duration {
        self.runner.config.timeout.0.saturating_add(END_MARGIN)
    }

    /// Opens the repository of a call: the one that contains `repo_path`, otherwise the workspace, otherwise `path`.
    ///
    /// # Errors
    /// There is no repository, or git is missing.
    pub(super) async fn open<'a>(
        &'a self,
        repo_path: Option<&str>,
        path: Option<&str>,
        context: &'a ToolContext,
    ) -> Result<GitSession<'a>, String> {
        let jail = self.files.for_turn(context);
        let (searched, start, path) = (Arc::clone(&jail), repo_path.map(str::to_owned), path.map(str::to_owned));
        let found =
            tokio::task::spawn_blocking(move || Repository::find(&searched, start.as_deref(), path.as_deref())).await;
        let repository = found.map_err(|error| error.to_string())??;
        let deadline = Instant::now() + self.runner.config.timeout.0;
        let (hidden, settings) = (self.files.hidden_folders(context), String::new());
        let mut session = GitSession { runner: &self.runner, context, deadline, settings, hidden, repository, jail };
        session.settings = session.read_settings().await?;
        Ok(session)
    }
}

impl GitSession<'_> {
    /// Runs a script that calls `git`, in the work tree.
    ///
    /// # Errors
    /// The script does not run to its end, or fails; the error is that of git.
    pub(super) async fn run(&self, script: &str, access: GitAccess) -> Result<GitOutput, String> {
        let Repository { work_tree, git_dir, common_dir } = &self.repository;
        let mut environment = self.environment();
        environment.extend(
            [("GIT_DIR", git_dir), ("GIT_WORK_TREE", work_tree)]
                .map(|(name, path)| (name.to_owned(), path.display().to_string())),
        );
        if access == GitAccess::Reads {
            environment.push(("GIT_OPTIONAL_LOCKS".to_owned(), "0".to_owned()));
        }
        let common = quote_path(common_dir);
        let logs = if access == GitAccess::Writes { format!("mkdir -p {common}/logs\n") } else { String::new() };
        let command = format!(
            "g=$(mktemp -d \"$TMPDIR/git.XXXXXX\") && mkdir \"$g/info\" && cd {tree} || exit\n\
             {logs}for n in {LINKED}; do [ ! -e {common}/$n ] || ln -s {common}/$n \"$g/$n\"; done\n\
             [ ! -f {common}/info/exclude ] || ln -s {common}/info/exclude \"$g/info/exclude\"\n\
             printf %s {settings} > \"$g/config\"\n\
             export GIT_COMMON_DIR=\"$g\" HOME=\"$g\" XDG_CONFIG_HOME=\"$g\"\n\
             run() {{\n{script}\n}}\n\
             run 2> \"$g/errors\"; code=$?\n\
             [ $code -eq 0 ] || cat \"$g/errors\"\n\
             exit $code",
            tree = quote_path(work_tree),
            settings = shell_quote(&self.settings),
        );
        self.collect(command, environment).await
    }

    /// Returns the sources of a result of git: the repository, if others may have written it, and those of the `shown` files that
    /// have foreign content. The files are relative to the work tree.
    pub(super) fn sources<'p>(&self, shown: impl IntoIterator<Item = &'p str>) -> Taint {
        let (root, foreign) = (self.root(), ForeignFiles::of(self.context));
        let shown = shown.into_iter().map(|path| root.join(path));
        [root.to_owned()].into_iter().chain(shown).filter_map(|path| foreign.source(&path)).collect()
    }

    /// Returns the sources of a result that shows only the names of these files, which are relative to the work tree.
    pub(super) fn name_sources<'p>(&self, shown: impl IntoIterator<Item = &'p str>) -> Taint {
        let (root, foreign) = (self.root(), ForeignFiles::of(self.context));
        shown.into_iter().filter_map(|path| foreign.name_source(&root.join(path))).collect()
    }

    /// Returns the work tree relative to the workspace; empty if it contains the workspace.
    fn root(&self) -> &Path {
        self.repository.work_tree.strip_prefix(self.jail.root()).unwrap_or(Path::new(""))
    }

    /// Returns the folders in the work tree whose files are committed only by name: those with foreign content, and that of the
    /// memory. The folders are relative to the work tree.
    pub(super) fn folders_by_name(&self) -> Vec<String> {
        let folders = FOREIGN_FOLDERS.iter().copied().chain([MEMORY_FOLDER]);
        folders.filter_map(|folder| self.in_work_tree(Path::new(folder))).collect()
    }

    /// Returns the folders in the work tree that the turn may not see, relative to the work tree.
    pub(super) fn hidden_folders(&self) -> Vec<String> {
        self.hidden.iter().filter_map(|folder| self.in_work_tree(folder)).collect()
    }

    /// Returns the pathspecs (gitglossary(7)) of a diff of `path`. They leave out the folders that the turn may not see, and
    /// `memory/` unless `path` is in it: others may read the conversation later.
    pub(super) fn diff_pathspecs(&self, path: Option<&str>) -> String {
        let is_memory = path.is_some_and(|path| self.root().join(path).starts_with(MEMORY_FOLDER));
        let memory = self.in_work_tree(Path::new(MEMORY_FOLDER)).filter(|_| !is_memory);
        let left_out = self.hidden_folders().into_iter().chain(memory);
        let left_out = left_out.map(|folder| format!(":(exclude,literal){folder}"));
        let wanted = format!(":(literal){}", path.unwrap_or("."));
        let specs: Vec<String> = std::iter::once(wanted).chain(left_out).map(|spec| shell_quote(&spec)).collect();
        specs.join(" ")
    }

    /// Returns a folder of the workspace relative to the work tree; `None` if it is not inside.
    fn in_work_tree(&self, folder: &Path) -> Option<String> {
        let folder = self.jail.root().join(folder);
        let inside = folder.strip_prefix(&self.repository.work_tree).ok()?.to_str()?;
        (!inside.is_empty()).then(|| inside.to_owned())
    }

    /// Reads the repository's own configuration, without its includes, and composes git's configuration from it.
    async fn read_settings(&self) -> Result<String, String> {
        let config = self.repository.common_dir.join("config");
        match config.symlink_metadata() {
            Ok(metadata) if metadata.is_file() => {}
            Ok(_) => {
                return Err(format!("{}: the config of its .git is not a file", self.repository.shown(&self.jail)));
            }
            Err(_) => return Ok(compose(b"")),
        }
        // git starts outside of every repository, so that it reads no other configuration. It lists what it can read before it
        // fails; an error must not repeat that, since a configuration may contain passwords.
        let command = format!(
            "d=$(mktemp -d \"$TMPDIR/git.XXXXXX\") && cd / || exit\n\
             git config --file {} --no-includes --list -z > \"$d/list\" 2> \"$d/errors\"; code=$?\n\
             if [ $code -eq 0 ]; then cat \"$d/list\"; else cat \"$d/errors\"; fi\n\
             exit $code",
            quote_path(&config)
        );
        let listed = self.collect(command, self.environment()).await?;
        Ok(compose(&listed.bytes))
    }

    /// Returns the environment of commands, with [`ENVIRONMENT`] in place of all variables of git.
    fn environment(&self) -> Vec<(String, String)> {
        let is_ours = |name: &str| ENVIRONMENT.iter().any(|(ours, _)| *ours == name);
        let mut environment = self.runner.environment();
        environment.retain(|(name, _)| !name.starts_with("GIT_") && !is_ours(name));
        environment.extend(ENVIRONMENT.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        environment
    }

    /// Runs a command, and returns its output.
    ///
    /// # Errors
    /// The command does not run to its end, or its exit code is not 0. Then its output is the error of git.
    async fn collect(&self, command: String, environment: Vec<(String, String)>) -> Result<GitOutput, String> {
        if command.len() > COMMAND_BYTES {
            return Err("too much for one call: name fewer files, or folders".to_owned());
        }
        let limit = self.deadline.saturating_duration_since(Instant::now());
        let command = ShellCommand { command, environment, limit, further: FolderVisibility::default() };
        let ended = self.runner.collect(command, self.context).await?;
        let code = ended.outcome.exit_code(self.runner.config.timeout.0)?;
        let text = String::from_utf8_lossy(&ended.bytes).into_owned();
        if code == NOT_FOUND && text.contains("git") && text.contains("not found") {
            return Err(
                "git is not installed where commands can use it; the owner can install it, or add its folder to \
                        tools.exec.read_paths"
                    .to_owned(),
            );
        }
        if code != 0 {
            let message = truncate(text.trim(), ERROR_CHARS);
            return Err(match message.as_str() {
                "" => format!("git ended with exit code {code}"),
                _ => format!("git: {message}"),
            });
        }
        Ok(GitOutput { text, bytes: ended.bytes, is_whole: ended.is_whole })
    }
}

fn quote_path(path: &Path) -> String {
    shell_quote(&path.display().to_string())
}
