//! Runs commands below a supervisor, in the sandbox unless the configuration says otherwise: for `exec`, the git tools,
//! `run_test`, language servers and MCP servers.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cap_std::ambient_authority;
use cap_std::fs::{Dir, OpenOptions};
use daoyou_channels::Trust;

use super::foreign;
use super::run::{CommandOutcome, OutputSink, run};
use super::server_process::{ServerCommand, ServerError, ServerProcess, ServerSocket};
use crate::guard::{
    self, CommandLimits, ExecRequest, NAMESPACE_HELP, NamespaceSupport, Sandbox, SandboxMode, SandboxPolicy, Taint,
    create_dir_beneath,
};
use crate::home::{WORKSPACE, modes::restore_access};
use crate::text::shell_quote;
use crate::tools::private_folders::{FolderVisibility, PrivateFolders};
use crate::tools::{ExecConfig, ToolContext};

/// How much longer a call may take than the time limit of its command.
pub(in crate::tools) const END_MARGIN: Duration = Duration::from_secs(15);
/// The maximum length of a command, in bytes. Linux limits one argument of a program to 128 KiB (execve(2)).
pub(in crate::tools) const COMMAND_BYTES: usize = 100_000;
/// The size of the start, and of the end, of an output that [`CommandRunner::collect`] keeps, in bytes.
const COLLECTED_BYTES: usize = 2_000_000;
/// The source of an output that may come from the network.
const NETWORK_SOURCE: &str = "network";
/// The variables of the gateway's environment that commands see, in addition to `LC_*` and the configured ones.
const PASSED_VARIABLES: [&str; 5] = ["PATH", "LANG", "TERM", "TZ", "USER"];
/// The folders and files of the workspace that become part of the system prompt or of the agent's tasks, besides the configured
/// folders of skills.
const INSTRUCTION_FOLDERS: [&str; 3] = ["skills", ".claude", ".agents"];
const INSTRUCTION_FILES: [&str; 5] = ["AGENTS.md", "SOUL.md", "USER.md", "TOOLS.md", "HEARTBEAT.md"];
/// How deep a skill may lie in a folder of skills: `GROUP/NAME`.
const SKILL_LEVELS: usize = 2;
/// The PATH for commands if the gateway has none.
const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// The runner of shell commands in the workspace.
pub struct CommandRunner {
    pub(in crate::tools) config: ExecConfig,
    /// The real path of the workspace.
    pub(in crate::tools) workspace: PathBuf,
    /// The folder for private temp folders.
    pub(in crate::tools) temp: PathBuf,
    /// Paths that no command may use.
    pub(in crate::tools) protected: Vec<PathBuf>,
    /// Folders of the workspace that only some turns may use.
    pub(in crate::tools) private: PrivateFolders,
    /// The number of bytes that must stay free on the disk.
    pub(in crate::tools) reserve: u64,
    /// The path of this program, which runs again as the supervisor.
    pub(in crate::tools) exe: PathBuf,
    /// The real paths of the folders of skills, which sandboxed servers cannot change.
    pub(crate) skill_folders: Vec<PathBuf>,
}

/// A command, its environment and its time limit.
pub(in crate::tools) struct ShellCommand {
    pub command: String,
    pub environment: Vec<(String, String)>,
    pub limit: Duration,
    /// What the command sees of further folders, in addition to the private ones. The paths are relative to the workspace.
    pub further: FolderVisibility,
}

/// How a command ended, and its output.
pub(in crate::tools) struct CollectedOutput {
    pub outcome: CommandOutcome,
    /// Standard output and errors. If they exceed 4 MB, a part in the middle is missing.
    pub bytes: Vec<u8>,
    /// True if no part is missing.
    pub is_whole: bool,
}

impl CommandRunner {
    /// Runs a command within `limit`, and passes its output to `sink`.
    ///
    /// # Errors
    /// The command cannot be run; the error is for the model.
    pub(in crate::tools) async fn run(
        &self,
        command: ShellCommand,
        context: &ToolContext,
        sink: &mut OutputSink<'_>,
    ) -> Result<CommandOutcome, String> {
        let ShellCommand { command, environment, limit, further } = command;
        let request = self.request(command, further, context).await?;
        let ended = run(&self.exe, &environment, &request, limit, &context.cancel, sink).await;
        self.restore_workspace();
        ended.map_err(|error| format!("The command could not be run to its end: {error}"))
    }

    /// Runs a command and returns its output.
    ///
    /// # Errors
    /// As [`CommandRunner::run`].
    pub(in crate::tools) async fn collect(
        &self,
        command: ShellCommand,
        context: &ToolContext,
    ) -> Result<CollectedOutput, String> {
        let (mut front, mut back, mut total) = (Vec::<u8>::new(), VecDeque::<u8>::new(), 0_usize);
        let outcome = self
            .run(command, context, &mut |bytes| {
                total = total.saturating_add(bytes.len());
                let (first, rest) = bytes.split_at((COLLECTED_BYTES - front.len()).min(bytes.len()));
                front.extend_from_slice(first);
                back.extend(rest);
                back.drain(..back.len().saturating_sub(COLLECTED_BYTES));
            })
            .await?;
        let is_whole = total == front.len() + back.len();
        if !is_whole {
            front.extend_from_slice(b"\n[... the middle is left out ...]\n");
        }
        front.extend(back);
        Ok(CollectedOutput { outcome, bytes: front, is_whole })
    }

    /// Returns the sources of the output of a command: the folders with foreign content that it names, the sources of the turn, and
    /// the network if the configuration opens it.
    pub(in crate::tools) fn output_sources(&self, command: &str, context: &ToolContext) -> Taint {
        let network = self.config.network.then(|| NETWORK_SOURCE.to_owned());
        foreign::sources(command, context).into_iter().chain(network).collect()
    }

    /// Builds the request for a command, with the sandbox of this machine. `further` are the [`ShellCommand::further`] folders.
    pub(in crate::tools) async fn request(
        &self,
        command: String,
        further: FolderVisibility,
        context: &ToolContext,
    ) -> Result<ExecRequest, String> {
        let mut visibility = self.private.visibility_for(context);
        for folder in further.hidden {
            if !visibility.hidden.contains(&folder) {
                visibility.hidden.push(folder);
            }
        }
        // The conversation's folder may hold foreign content, so only a command that names it sees it.
        visibility.shown = further.shown;
        self.request_seeing(command, visibility, context.is_for_owner_alone()).await
    }

    /// Builds a request like [`CommandRunner::request`], for a process that serves several conversations. The process sees only
    /// what all of them may see.
    pub(in crate::tools) async fn shared_request(&self, command: String, trust: Trust) -> Result<ExecRequest, String> {
        let is_there = |folder: &&PathBuf| self.workspace.join(folder).symlink_metadata().is_ok();
        let mut visibility = self.private.default_visibility();
        // A folder that does not exist is left out, since hiding it would create it.
        visibility.hidden.extend(foreign::folders().filter(|folder| is_there(&folder)));
        self.request_seeing(command, visibility, trust == Trust::Owner).await
    }

    /// Starts a program of the owner's configuration that serves several conversations.
    ///
    /// # Errors
    /// The sandbox is not available, or the program cannot be started.
    pub async fn start_server(&self, command: ServerCommand) -> Result<(ServerProcess, ServerSocket), ServerError> {
        let ServerCommand { words, environment: own, home, network, is_sandboxed } = command;
        let words: Vec<_> = words.iter().map(|word| shell_quote(word)).collect();
        // The program's standard output is the same socket as its input. The program starts in its own folder: files that the
        // agent writes into the workspace must not become code of a program with network and secrets.
        let script = format!("cd \"$HOME\" && exec {} <&1", words.join(" "));
        let mut visibility = self.private.default_visibility();
        visibility.hidden.extend(foreign::folders());
        let request = self.request_seeing(script, visibility, true).await;
        let mut request = request.map_err(ServerError::lasting)?;
        match &mut request.sandbox {
            Some(policy) if is_sandboxed => {
                policy.network = network;
                policy.write.extend(home.clone());
                request.own.extend(home.clone());
                request.read_only = self.instructions(&policy.write).map_err(ServerError::lasting)?;
            }
            _ => request = ExecRequest { sandbox: None, bwrap: None, hidden: Vec::new(), shown: Vec::new(), ..request },
        }
        let mut environment = self.environment();
        let user_home = || std::env::home_dir().unwrap_or_else(|| self.workspace.clone());
        let home = home.filter(|_| request.sandbox.is_some()).unwrap_or_else(user_home);
        let own = own.into_iter().chain([("HOME".to_owned(), home.display().to_string())]);
        for (name, value) in own.collect::<Vec<_>>().into_iter().rev() {
            environment.retain(|(set, _)| *set != name);
            environment.push((name, value));
        }
        ServerProcess::start(&self.exe, &environment, &request).await
    }

    /// Returns the files and folders in the `writable` folders that become part of the system prompt or of the agent's tasks.
    /// Creates missing ones empty, so that they can be mounted read-only, and a program cannot create them with its own content.
    fn instructions(&self, writable: &[PathBuf]) -> Result<Vec<PathBuf>, String> {
        let workspace = &self.workspace;
        let failed = |error: std::io::Error| format!("the workspace: {error}");
        let workspace_dir = Dir::open_ambient_dir(workspace, ambient_authority()).map_err(failed)?;
        let mut folders = Vec::new();
        for name in INSTRUCTION_FOLDERS {
            let folder = workspace.join(name);
            // A mount is a folder, too.
            if !folder.symlink_metadata().is_ok_and(|found| found.is_dir()) {
                let failed = |error: std::io::Error| format!("{} cannot be made read-only: {error}", folder.display());
                create_dir_beneath(&workspace_dir, Path::new(name)).map_err(failed)?;
            }
            folders.push(folder);
        }
        for root in writable {
            for part in self.skill_folders.iter().filter_map(|skills| part_with_skills(skills, root)) {
                if !folders.iter().any(|folder| part.starts_with(folder)) {
                    folders.extend(skill_folder(&part, root, writable));
                }
            }
        }
        for file in INSTRUCTION_FILES {
            let made = workspace_dir.open_with(file, OpenOptions::new().write(true).create_new(true));
            match made {
                Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => return Err(failed(error)),
                _ => {}
            }
        }
        let files = INSTRUCTION_FILES.iter().map(|name| workspace.join(name));
        Ok(folders.into_iter().chain(files).collect())
    }

    /// Returns true if private folders can be hidden from commands on this machine.
    pub fn hides_folders(&self) -> bool {
        sandbox_of(self.config.sandbox, &self.exe).is_ok_and(|sandbox| sandbox == Sandbox::Namespaces)
    }

    /// Returns the folders, relative to the workspace, that a process which serves several conversations does not see.
    pub(in crate::tools) fn unshared_folders(&self) -> Vec<PathBuf> {
        self.private.default_visibility().hidden.into_iter().chain(foreign::folders()).collect()
    }

    /// Returns true if commands can read the whole folder.
    pub(in crate::tools) fn can_read(&self, folder: &Path) -> bool {
        let Ok(folder) = folder.canonicalize() else { return false };
        let readable = || guard::readable_paths(&self.config.read_paths, &self.protected);
        self.config.sandbox == SandboxMode::Off || readable().iter().any(|path| folder.starts_with(path))
    }

    async fn request_seeing(
        &self,
        command: String,
        visibility: FolderVisibility,
        may_see_all: bool,
    ) -> Result<ExecRequest, String> {
        self.restore_workspace();
        let (mode, exe) = (self.config.sandbox, self.exe.clone());
        let found = tokio::task::spawn_blocking(move || {
            sandbox_of(mode, &exe).map(|sandbox| (sandbox, guard::namespace_support(&exe)))
        });
        let (sandbox, namespaces) = found.await.map_err(|error| error.to_string())??;
        if sandbox != Sandbox::Namespaces && !may_see_all {
            return Err(owner_only_error(sandbox));
        }
        let mut request = ExecRequest {
            command,
            folder: self.workspace.clone(),
            temp: self.temp.clone(),
            sandbox: if sandbox == Sandbox::Off { None } else { Some(self.policy()?) },
            bwrap: None,
            shares_proc: false,
            hands_over: self.is_workspace_in_home(),
            hidden: Vec::new(),
            shown: Vec::new(),
            read_only: Vec::new(),
            own: Vec::new(),
            limits: self.limits(),
            background: None,
        };
        if let (Sandbox::Namespaces, NamespaceSupport::Available { bwrap, shares_proc }) = (sandbox, namespaces) {
            let workspace = self.workspace.clone();
            let found = tokio::task::spawn_blocking(move || visibility.for_command(&workspace)).await;
            let absolute = found.map_err(|error| error.to_string())?;
            let FolderVisibility { hidden, shown } =
                absolute.map_err(|error| format!("a private folder of the workspace cannot be hidden: {error}"))?;
            request = ExecRequest { bwrap: Some(bwrap), shares_proc, hidden, shown, ..request };
        }
        Ok(request)
    }

    /// Returns true if the workspace is the one that daoyou created in its home.
    fn is_workspace_in_home(&self) -> bool {
        // The temp folder lies directly in the home, and so does a workspace that daoyou created.
        let home = self.temp.parent();
        home.is_some_and(|home| home != Path::new("/") && self.workspace == home.join(WORKSPACE))
    }

    /// Repairs the mode of the workspace in the home: a command can take the rights of all conversations away.
    fn restore_workspace(&self) {
        if self.is_workspace_in_home() {
            restore_access(&self.workspace);
        }
    }

    fn limits(&self) -> CommandLimits {
        let ExecConfig { max_processes, max_memory, max_disk, .. } = &self.config;
        CommandLimits { processes: *max_processes, memory: max_memory.0, disk: max_disk.0, reserve: self.reserve }
    }

    fn policy(&self) -> Result<SandboxPolicy, String> {
        // Landlock cannot exclude a part of an allowed folder.
        let is_inside = |secret: &&PathBuf| secret.starts_with(&self.workspace) && secret.exists();
        if let Some(secret) = self.protected.iter().find(is_inside) {
            return Err(format!(
                "Commands are off: the workspace holds {}, which no command may read. Choose a workspace of its own",
                secret.display()
            ));
        }
        Ok(SandboxPolicy {
            read: guard::readable_paths(&self.config.read_paths, &self.protected),
            links: guard::readable_links(&self.config.read_paths),
            write: vec![self.workspace.clone()],
            network: self.config.network,
        })
    }

    /// Returns the environment of commands.
    pub(in crate::tools) fn environment(&self) -> Vec<(String, String)> {
        let passed = |name: &str| {
            let named = self.config.env.iter().any(|extra| extra == name);
            (PASSED_VARIABLES.contains(&name) || name.starts_with("LC_") || named)
                && !["HOME", "TMPDIR"].contains(&name)
        };
        let mut environment: Vec<(String, String)> = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .filter(|(name, _)| passed(name))
            .collect();
        if !environment.iter().any(|(name, _)| name == "PATH") {
            environment.push(("PATH".to_owned(), DEFAULT_PATH.to_owned()));
        }
        environment.push(("HOME".to_owned(), self.workspace.display().to_string()));
        // Bytecode files that Python writes next to its sources would change installed skills.
        environment.push(("PYTHONDONTWRITEBYTECODE".to_owned(), "1".to_owned()));
        environment
    }
}

/// Returns the part of the folder `root` in which a skill of the folder `skills` can lie: `skills` itself, or all of `root` if the
/// search for skills reaches into it.
fn part_with_skills(skills: &Path, root: &Path) -> Option<PathBuf> {
    if skills.starts_with(root) {
        return Some(skills.to_owned());
    }
    let between: Vec<_> = root.strip_prefix(skills).ok()?.iter().collect();
    // The search leaves out hidden folders.
    let is_searched =
        between.len() <= SKILL_LEVELS && !between.iter().any(|name| name.as_encoded_bytes().starts_with(b"."));
    is_searched.then(|| root.to_owned())
}

/// Returns the folder that protects the skills of `part`, a path in the writable folder `root`: the real folder, if a program could
/// write into it. A missing folder is created. One that cannot be protected is left out, with a warning.
fn skill_folder(part: &Path, root: &Path, writable: &[PathBuf]) -> Option<PathBuf> {
    const LEFT_OUT: &str = "a folder of skills.paths cannot be protected from the programs of MCP servers";
    let folder = part.display();
    match part.canonicalize() {
        Ok(real) if real.is_dir() => {
            if real != part {
                tracing::warn!(%folder, reason = "a part of its path is a link, which a program can replace", "{LEFT_OUT}");
            }
            writable.iter().any(|root| real.starts_with(root)).then_some(real)
        }
        Ok(_) => {
            tracing::warn!(%folder, reason = "it is not a folder", "{LEFT_OUT}");
            None
        }
        Err(_) => {
            let created = Dir::open_ambient_dir(root, ambient_authority())
                .and_then(|dir| create_dir_beneath(&dir, part.strip_prefix(root).unwrap_or(part)));
            match created {
                Ok(_) => {
                    tracing::warn!(%folder, "a folder of skills.paths was missing: it was created, so that no program creates it");
                    Some(part.to_owned())
                }
                Err(error) => {
                    tracing::warn!(%folder, reason = %error, "{LEFT_OUT}");
                    None
                }
            }
        }
    }
}

/// Returns the sandbox for commands on this machine. `exe` is the path of this program.
///
/// # Errors
/// The configuration accepts none of the available sandboxes; the error is for the model and the owner.
pub fn sandbox_of(mode: SandboxMode, exe: &Path) -> Result<Sandbox, String> {
    if mode == SandboxMode::Off {
        return Ok(Sandbox::Off);
    }
    let missing = match guard::namespace_support(exe) {
        NamespaceSupport::Available { .. } => return Ok(Sandbox::Namespaces),
        NamespaceSupport::Unavailable(reason) => reason,
    };
    if mode == SandboxMode::Require {
        return Err(format!(
            "Commands are off: tools.exec.sandbox = \"require\" needs namespaces, and {missing}. The owner can {NAMESPACE_HELP}"
        ));
    }
    let status = guard::status();
    if status.is_enough() {
        return Ok(Sandbox::Landlock);
    }
    Err(format!(
        "Commands are off: this machine cannot sandbox them ({missing}; {status}). The owner can {NAMESPACE_HELP}; or run them without \
         protection by `sandbox = \"off\"` in [tools.exec]"
    ))
}

/// Returns the error that states why only the owner may run commands.
fn owner_only_error(sandbox: Sandbox) -> String {
    let why = "only the owner's turns can run commands here, in chats that nobody else reads: what is not for this conversation can be \
               hidden from a command in namespaces alone";
    match sandbox {
        Sandbox::Off => format!("Refused: {why}, and tools.exec.sandbox is \"off\""),
        _ => format!("Refused: {why}, and this machine has none (sandbox: {sandbox}). The owner can {NAMESPACE_HELP}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_configured_folders_of_skills_are_read_only_for_servers() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let (workspace, own) = (root.join("ws"), root.join("home/.mcp/notes"));
        std::fs::create_dir_all(&workspace).unwrap();
        std::fs::create_dir_all(&own).unwrap();
        for folder in ["ws/real", "elsewhere"] {
            std::fs::create_dir(root.join(folder)).unwrap();
        }
        std::fs::write(root.join("ws/file"), "").unwrap();
        for (link, target) in [("link", "real"), ("up", "a"), ("dangling", "nothing"), ("outside", "../elsewhere")] {
            std::os::unix::fs::symlink(target, workspace.join(link)).unwrap();
        }
        let runner = |skills: &[&str]| CommandRunner {
            config: ExecConfig::default(),
            workspace: workspace.clone(),
            temp: root.clone(),
            protected: Vec::new(),
            private: PrivateFolders::default(),
            reserve: 0,
            exe: PathBuf::new(),
            skill_folders: skills.iter().map(|path| root.join(path)).collect(),
        };
        let found = |skills: &[&str]| {
            let found = runner(skills).instructions(&[workspace.clone(), own.clone()]).unwrap();
            found.into_iter().map(|path| path.strip_prefix(&root).unwrap().display().to_string()).collect::<Vec<_>>()
        };
        let usual = found(&[]);
        assert_eq!(usual[..4], ["ws/skills", "ws/.claude", "ws/.agents", "ws/AGENTS.md"]);
        for (skills, expected) in [
            (&["ws/extra", "elsewhere"][..], &["ws/extra"][..]),
            (&["ws/a/b/c"], &["ws/a/b/c"]),
            (&["ws"], &["ws"]),
            // The search reaches `ws/NAME`, but not the hidden folder `.mcp`.
            (&["."], &["ws"]),
            (&["home/.mcp/notes/skills"], &["home/.mcp/notes/skills"]),
            (&["ws/skills/more"], &[]),
            // What cannot be protected is left out.
            (&["ws/file", "ws/file/below", "ws/dangling", "ws/outside", "ws/extra"], &["ws/extra"]),
            (&["ws/link", "ws/up/b"], &["ws/real", "ws/a/b"]),
        ] {
            let found = found(skills);
            let further: Vec<_> = found.iter().filter(|path| !usual.contains(path)).collect();
            assert_eq!(further, expected, "{skills:?}");
            assert!(found.iter().all(|path| root.join(path).exists()), "{found:?}");
            assert!(!root.join("ws/nothing").exists() && !root.join("ws/skills/more").exists());
        }
    }
}
