//! The tool `exec`, which runs shell commands.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use daoyou_channels::Trust;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::capture::OutputCapture;
use super::run::{CommandOutcome, run};
use crate::chat::ToolSpec;
use crate::guard::{
    self, BackgroundOptions, CommandExit, CommandLimits, ExecRequest, NAMESPACE_HELP, NamespaceSupport, Sandbox,
    SandboxMode, SandboxPolicy,
};
use crate::tools::executor::SPILL_KEY;
use crate::tools::output_limits::note_cut;
use crate::tools::private_folders::{FolderVisibility, PrivateFolders};
use crate::tools::process::{GRACE, LaunchRequest, Processes};
use crate::tools::{
    ExecConfig, OutputLimit, ReplayPolicy, SpillStore, Tool, ToolContext, ToolOutcome, ToolResult, tool_spec,
};

/// The longest command, in bytes: one argument of a program has at most 128 KiB on Linux (execve(2)).
const COMMAND_BYTES: usize = 100_000;
/// How much longer than the command's own limit the call may take.
const END_MARGIN: Duration = Duration::from_secs(15);
/// The longest label of a background command, in characters.
const LABEL_CHARS: usize = 60;
/// The size of the line before the output of a failed command.
const FAILURE_LINE: OutputLimit = OutputLimit { chars: 120, lines: 2 };
/// The variables of the gateway's environment that commands see, in addition to `LC_*` and configured ones.
const PASSED_VARIABLES: [&str; 5] = ["PATH", "LANG", "TERM", "TZ", "USER"];
/// The PATH for commands if the gateway has none.
const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

#[derive(Deserialize, JsonSchema)]
struct ExecArgs {
    /// For sh -c.
    command: String,
    /// Seconds.
    #[schemars(range(min = 1))]
    timeout: Option<u64>,
    /// Do not wait; its end is announced.
    background: Option<bool>,
    /// Its name there.
    label: Option<String>,
    /// It outlives the gateway, too.
    detach: Option<bool>,
}

/// The dependencies of [`ExecTool`].
pub struct ExecDeps {
    pub workspace: PathBuf,
    /// The folder for private temp folders.
    pub temp: PathBuf,
    /// Paths that no command may use.
    pub protected: Vec<PathBuf>,
    /// Folders of the workspace that only some turns may use.
    pub private: PrivateFolders,
    /// Bytes that stay free on the disk.
    pub reserve: u64,
    /// This program, which is started again as the supervisor.
    pub exe: PathBuf,
    pub spill: Arc<SpillStore>,
    /// `None`: nothing runs in the background.
    pub processes: Option<Arc<Processes>>,
}

/// Runs shell commands below a supervisor, in the sandbox unless the configuration says otherwise.
pub struct ExecTool {
    spec: ToolSpec,
    config: ExecConfig,
    deps: ExecDeps,
}

impl ExecTool {
    pub fn new(config: ExecConfig, deps: ExecDeps) -> Self {
        let network = if config.network { "" } else { ", no network" };
        let sandbox = match sandbox_of(config.sandbox, &deps.exe) {
            Ok(Sandbox::Off) => String::new(),
            Ok(Sandbox::Landlock) => {
                format!(" Sandboxed (landlock): only workspace and $TMPDIR can be written{network}, no chmod.")
            }
            Ok(Sandbox::Namespaces) => {
                format!(" Sandboxed (namespaces): only workspace and $TMPDIR can be written{network}.")
            }
            Err(_) => " Off: the machine cannot sandbox commands.".to_owned(),
        };
        let limit = config.timeout.0.as_secs();
        let description = format!(
            "Run a shell command in the workspace, at most {limit} s.{sandbox} What it leaves running is ended."
        );
        Self { spec: tool_spec::<ExecArgs>("exec", description), config, deps }
    }

    /// Builds the request for a command, with the sandbox of this machine.
    async fn request(&self, command: String, context: &ToolContext) -> Result<ExecRequest, String> {
        let (mode, exe) = (self.config.sandbox, self.deps.exe.clone());
        let found = tokio::task::spawn_blocking(move || {
            sandbox_of(mode, &exe).map(|sandbox| (sandbox, guard::namespace_support(&exe)))
        });
        let (sandbox, namespaces) = found.await.map_err(|error| error.to_string())??;
        if sandbox != Sandbox::Namespaces && context.trust != Trust::Owner {
            return Err(owner_only_error(sandbox));
        }
        let mut request =
            ExecRequest {
                command,
                folder: self.deps.workspace.clone(),
                temp: self.deps.temp.clone(),
                sandbox: if sandbox == Sandbox::Off { None } else { Some(self.policy()?) },
                bwrap: None,
                shares_proc: false,
                // The temp folder lies directly in the home, and so does the workspace that daoyou created.
                hands_over: self.deps.temp.parent().is_some_and(|home| {
                    home != Path::new("/") && self.deps.workspace == home.join(crate::home::WORKSPACE)
                }),
                hidden: Vec::new(),
                shown: Vec::new(),
                limits: self.limits(),
                background: None,
            };
        if let (Sandbox::Namespaces, NamespaceSupport::Available { bwrap, shares_proc }) = (sandbox, namespaces) {
            let FolderVisibility { hidden, shown } = self.visibility(context).await?;
            request = ExecRequest { bwrap: Some(bwrap), shares_proc, hidden, shown, ..request };
        }
        Ok(request)
    }

    /// Returns which private folders are empty for a command of this turn, and which parts of them it sees.
    async fn visibility(&self, context: &ToolContext) -> Result<FolderVisibility, String> {
        let (workspace, visibility) = (self.deps.workspace.clone(), self.deps.private.visibility_for(context));
        let found = tokio::task::spawn_blocking(move || visibility.for_command(&workspace)).await;
        let found = found.map_err(|error| error.to_string())?;
        found.map_err(|error| format!("a private folder of the workspace cannot be hidden: {error}"))
    }

    fn limits(&self) -> CommandLimits {
        let ExecConfig { max_processes, max_memory, max_disk, .. } = &self.config;
        CommandLimits { processes: *max_processes, memory: max_memory.0, disk: max_disk.0, reserve: self.deps.reserve }
    }

    fn policy(&self) -> Result<SandboxPolicy, String> {
        // Landlock cannot exclude a part of an allowed folder.
        let is_inside = |secret: &&PathBuf| secret.starts_with(&self.deps.workspace) && secret.exists();
        if let Some(secret) = self.deps.protected.iter().find(is_inside) {
            return Err(format!(
                "Commands are off: the workspace holds {}, which no command may read. Choose a workspace of its own",
                secret.display()
            ));
        }
        Ok(SandboxPolicy {
            read: guard::readable_paths(&self.config.read_paths, &self.deps.protected),
            links: guard::readable_links(&self.config.read_paths),
            write: vec![self.deps.workspace.clone()],
            network: self.config.network,
        })
    }

    fn environment(&self) -> Vec<(String, String)> {
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
        environment.push(("HOME".to_owned(), self.deps.workspace.display().to_string()));
        environment
    }

    /// Starts a background command.
    async fn start_in_background(&self, args: ExecArgs, context: &ToolContext) -> Result<ToolOutcome, String> {
        context.origin.follow_ups.check()?;
        let processes = self.deps.processes.as_ref().ok_or("No gateway runs here that could look after it")?;
        let detached = args.detach == Some(true);
        let longest = self.config.background_timeout.0;
        let asked = args.timeout.map_or(longest, |secs| Duration::from_secs(secs).min(longest));
        let label = args.label.map(|label| label.trim().to_owned()).filter(|label| !label.is_empty());
        let output_bytes = self.config.background_output.0;
        let grace_ms = u64::try_from(GRACE.as_millis()).unwrap_or(u64::MAX);
        let mut request = self.request(args.command, context).await?;
        request.background = Some(BackgroundOptions { output_bytes, grace_ms, detached });
        let launch = LaunchRequest {
            exe: self.deps.exe.clone(),
            environment: self.environment(),
            request,
            label: label.clone(),
            timeout: (!detached).then_some(asked),
            at_once: self.config.background,
        };
        let launched = processes.start(launch, context).await?;
        let (id, pid) = (&launched.id, launched.pid);
        let text = if detached {
            let label = label.map(|label| format!(" [{label}]")).unwrap_or_default();
            format!("Spawned in background (pid: {pid}){label}. Process will run independently. Its id is {id}.")
        } else {
            let label = label.map(|label| format!(", {label}")).unwrap_or_default();
            format!("Started in background (id: {id}, pid: {pid}){label}. Its end is announced.")
        };
        let mut result = ToolResult::ok(text);
        result.metadata.insert("process".to_owned(), Value::from(launched.id));
        Ok(result.into())
    }

    async fn run(&self, args: ExecArgs, context: &ToolContext) -> Result<ToolOutcome, String> {
        if args.background == Some(true) || args.detach == Some(true) {
            return self.start_in_background(args, context).await;
        }
        let limit =
            args.timeout.map_or(self.config.timeout.0, |secs| Duration::from_secs(secs).min(self.config.timeout.0));
        let request = self.request(args.command, context).await?;
        let mut capture = OutputCapture::new(Arc::clone(&self.deps.spill), context);
        let ended = run(&self.deps.exe, &self.environment(), &request, limit, &context.cancel, &mut capture).await;
        let ended = ended.map_err(|error| format!("The command could not be run to its end: {error}"))?;
        let whole = self.output_limit();
        let output_limit =
            OutputLimit { chars: whole.chars - FAILURE_LINE.chars, lines: whole.lines - FAILURE_LINE.lines };
        let exceeding = capture.exceeding_length();
        let (content, spill) = capture.finish(output_limit);
        let mut result = result_of(ended, limit);
        result.content = content;
        if let Some(length) = exceeding {
            note_cut(&mut result.metadata, length);
        }
        if let Some(path) = spill {
            result.metadata.insert(SPILL_KEY.to_owned(), Value::from(path));
        }
        Ok(result.into())
    }
}

/// Returns the sandbox of commands on this machine. `exe` is this program.
///
/// # Errors
/// The configuration accepts none that is available; the error is for the model and the owner.
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

/// Returns why only the owner may run commands.
fn owner_only_error(sandbox: Sandbox) -> String {
    let why = "only the owner's turns can run commands here: what is not for this conversation can be hidden from a command in \
               namespaces alone";
    match sandbox {
        Sandbox::Off => format!("Refused: {why}, and tools.exec.sandbox is \"off\""),
        _ => format!("Refused: {why}, and this machine has none (sandbox: {sandbox}). The owner can {NAMESPACE_HELP}"),
    }
}

/// Returns the result of a command without its output.
fn result_of(ended: CommandOutcome, limit: Duration) -> ToolResult {
    let code = match &ended {
        CommandOutcome::Exited(CommandExit::Code(code)) => Some(*code),
        _ => None,
    };
    let mut result = match ended {
        CommandOutcome::Exited(CommandExit::Code(0)) => ToolResult::ok(""),
        CommandOutcome::Exited(CommandExit::Code(code)) => ToolResult::failed(format!("Exit code: {code}")),
        CommandOutcome::Exited(CommandExit::Signal(signal)) => ToolResult::failed(format!("Killed by signal {signal}")),
        CommandOutcome::Exited(CommandExit::Exceeded(limit)) => {
            ToolResult::failed(format!("The command was ended: {limit}"))
        }
        CommandOutcome::TimedOut => ToolResult::failed(format!("Command timed out after {} seconds", limit.as_secs())),
        CommandOutcome::Cancelled => ToolResult::failed("Cancelled; the command was killed"),
        CommandOutcome::Refused(reason) => ToolResult::failed(format!("The command was not started: {reason}")),
    };
    if let Some(code) = code {
        result.metadata.insert("exit_code".to_owned(), Value::from(code));
    }
    result
}

#[async_trait]
impl Tool for ExecTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn replay(&self) -> ReplayPolicy {
        ReplayPolicy::Once
    }

    fn timeout(&self) -> Option<Duration> {
        Some(self.config.timeout.0.saturating_add(END_MARGIN))
    }

    /// Text from a file or page must not become a command that nobody has read.
    fn literal_arguments(&self) -> &'static [&'static str] {
        &["command"]
    }

    fn validate(&self, arguments: &Value, context: &ToolContext) -> Result<(), String> {
        let command = arguments.get("command").and_then(Value::as_str).unwrap_or_default();
        if command.trim().is_empty() {
            return Err("command is empty".to_owned());
        }
        if command.len() > COMMAND_BYTES || command.contains('\0') {
            return Err(format!(
                "a command has at most {COMMAND_BYTES} bytes and no NUL; write longer scripts to a file first"
            ));
        }
        let label = arguments.get("label").and_then(Value::as_str).unwrap_or_default();
        if label.chars().count() > LABEL_CHARS || label.contains(char::is_control) {
            return Err(format!("a label has at most {LABEL_CHARS} characters, on one line"));
        }
        if arguments.get("detach") == Some(&Value::Bool(true)) {
            if context.trust != Trust::Owner {
                return Err("only the owner can detach a command; use background".to_owned());
            }
            if arguments.get("timeout").is_some_and(|timeout| !timeout.is_null()) {
                return Err("a detached command has no timeout: nobody is there to end it".to_owned());
            }
        }
        Ok(())
    }

    async fn call(&self, arguments: Value, context: &ToolContext) -> ToolOutcome {
        match serde_json::from_value(arguments) {
            Ok(args) => self.run(args, context).await.unwrap_or_else(|error| ToolResult::failed(error).into()),
            Err(error) => ToolResult::failed(error.to_string()).into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::chat::ToolCall;
    use crate::origin::TurnOrigin;
    use crate::tools::testing::{ToolWorld, context};
    use crate::tools::{ToolContext, ToolsConfig};

    #[tokio::test]
    async fn chained_follow_ups_start_nothing_in_the_background() {
        let world = ToolWorld::new(&ToolsConfig::default());
        let arguments = json!({"command": "true", "background": true}).to_string();
        let call = ToolCall { id: "c".to_owned(), name: "exec".to_owned(), arguments };
        for (origin, expected) in
            [("{}", "No gateway runs here"), (r#"{"follow_ups":10}"#, "without a message from a person")]
        {
            let context = ToolContext { origin: std::sync::Arc::new(TurnOrigin::parse(origin)), ..context() };
            let text = world.executor.run(&call, &context).await.result.render();
            assert!(text.contains(expected), "{text}");
        }
    }
}
