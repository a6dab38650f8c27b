//! `exec`.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use daoyou_channels::Trust;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::capture::Capture;
use super::run::{Ended, run};
use crate::chat::ToolSpec;
use crate::guard::{self, Background, Ending, Limits, MEND, Namespaces, Order, Policy, Sandbox, SandboxMode};
use crate::tools::executor::SPILL_KEY;
use crate::tools::private_folders::{Covered, PrivateFolders};
use crate::tools::process::{GRACE, Launch, Processes};
use crate::tools::{ExecConfig, OutputLimit, Replay, Spill, Tool, ToolContext, ToolOutcome, ToolResult, tool_spec};

/// The longest command, in bytes: one argument of a program has at most 128 KiB on Linux (execve(2)).
const COMMAND_BYTES: usize = 100_000;
/// What a command's own limit is given to end in order.
const SLACK: Duration = Duration::from_secs(15);
/// The longest name of what runs in the background, in characters.
const LABEL_CHARS: usize = 60;
/// What stands before the output of a failed command, in characters and lines.
const HEAD: OutputLimit = OutputLimit { chars: 120, lines: 2 };
/// What of the gateway's environment commands see, beside `LC_*` and what the configuration names.
const PASSED: [&str; 5] = ["PATH", "LANG", "TERM", "TZ", "USER"];
/// Where the gateway has no PATH of its own.
const USUAL_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

#[derive(Deserialize, JsonSchema)]
struct Args {
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

/// Folders that commands are kept to, or kept out of.
pub struct Kept {
    /// Holds the private temp folders.
    pub temp: PathBuf,
    /// Not for any command.
    pub protected: Vec<PathBuf>,
    /// Of the workspace, not for every turn's commands.
    pub private: PrivateFolders,
    /// What stays free on the disk, in bytes.
    pub reserve: u64,
}

/// Runs shell commands below a supervisor, in the sandbox unless the configuration says otherwise.
pub struct ExecTool {
    spec: ToolSpec,
    config: ExecConfig,
    workspace: PathBuf,
    kept: Kept,
    exe: PathBuf,
    spill: Arc<Spill>,
    processes: Option<Arc<Processes>>,
}

impl ExecTool {
    /// `exe` is this program, which is started again as the supervisor. Without `processes` nothing runs in the background.
    pub fn new(
        config: ExecConfig,
        workspace: &Path,
        kept: Kept,
        exe: PathBuf,
        spill: Arc<Spill>,
        processes: Option<Arc<Processes>>,
    ) -> Self {
        let network = if config.network { "" } else { ", no network" };
        let held = match sandbox_of(config.sandbox, &exe) {
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
            "Run a shell command in the workspace, at most {limit} s.{held} What it leaves running ends with it, but for background."
        );
        let spec = tool_spec::<Args>("exec", description);
        Self { spec, config, workspace: workspace.to_owned(), kept, exe, spill, processes }
    }

    /// What is to run, and in which sandbox.
    async fn order(&self, command: String, context: &ToolContext) -> Result<Order, String> {
        let (mode, exe) = (self.config.sandbox, self.exe.clone());
        let found = tokio::task::spawn_blocking(move || {
            sandbox_of(mode, &exe).map(|sandbox| (sandbox, guard::namespaces(&exe)))
        });
        let (sandbox, namespaces) = found.await.map_err(|error| error.to_string())??;
        if sandbox != Sandbox::Namespaces && context.trust != Trust::Owner {
            return Err(not_the_owner(sandbox));
        }
        let mut order = Order {
            command,
            folder: self.workspace.clone(),
            temp: self.kept.temp.clone(),
            sandbox: if sandbox == Sandbox::Off { None } else { Some(self.policy()?) },
            bwrap: None,
            shares_proc: false,
            // The temp folder lies directly in the home, as does the workspace that daoyou made itself.
            hands_over: self
                .kept
                .temp
                .parent()
                .is_some_and(|home| home != Path::new("/") && self.workspace == home.join(crate::home::WORKSPACE)),
            hidden: Vec::new(),
            shown: Vec::new(),
            limits: self.limits(),
            background: None,
        };
        if let (Sandbox::Namespaces, Namespaces::Work { bwrap, shares_proc }) = (sandbox, namespaces) {
            let Covered { hidden, shown } = self.covered(context).await?;
            order = Order { bwrap: Some(bwrap), shares_proc, hidden, shown, ..order };
        }
        Ok(order)
    }

    /// Returns the private folders that a command of this turn finds empty, and those in them that it sees.
    async fn covered(&self, context: &ToolContext) -> Result<Covered, String> {
        let (workspace, covered) = (self.workspace.clone(), self.kept.private.covered_for(context));
        let found = tokio::task::spawn_blocking(move || covered.for_command(&workspace)).await;
        let found = found.map_err(|error| error.to_string())?;
        found.map_err(|error| format!("a private folder of the workspace cannot be hidden: {error}"))
    }

    fn limits(&self) -> Limits {
        let ExecConfig { max_processes, max_memory, max_disk, .. } = &self.config;
        Limits { processes: *max_processes, memory: max_memory.0, disk: max_disk.0, reserve: self.kept.reserve }
    }

    fn policy(&self) -> Result<Policy, String> {
        // Nothing can be taken back of a part of a folder that is allowed.
        if let Some(secret) = self.kept.protected.iter().find(|secret| secret.starts_with(&self.workspace)) {
            return Err(format!(
                "Commands are off: the workspace holds {}, which no command may read. Choose a workspace of its own",
                secret.display()
            ));
        }
        Ok(Policy {
            read: guard::readable_paths(&self.config.read_paths, &self.kept.protected),
            links: guard::readable_links(&self.config.read_paths),
            write: vec![self.workspace.clone()],
            network: self.config.network,
        })
    }

    fn environment(&self) -> Vec<(String, String)> {
        let passed = |name: &str| {
            let named = self.config.env.iter().any(|extra| extra == name);
            (PASSED.contains(&name) || name.starts_with("LC_") || named) && !["HOME", "TMPDIR"].contains(&name)
        };
        let mut environment: Vec<(String, String)> = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .filter(|(name, _)| passed(name))
            .collect();
        if !environment.iter().any(|(name, _)| name == "PATH") {
            environment.push(("PATH".to_owned(), USUAL_PATH.to_owned()));
        }
        environment.push(("HOME".to_owned(), self.workspace.display().to_string()));
        environment
    }

    /// Starts a command that nobody waits for.
    async fn launch(&self, args: Args, context: &ToolContext) -> Result<ToolOutcome, String> {
        context.origin.follow_ups.check()?;
        let processes = self.processes.as_ref().ok_or("No gateway runs here that could look after it")?;
        let detached = args.detach == Some(true);
        let longest = self.config.background_timeout.0;
        let asked = args.timeout.map_or(longest, |secs| Duration::from_secs(secs).min(longest));
        let label = args.label.map(|label| label.trim().to_owned()).filter(|label| !label.is_empty());
        let output_bytes = self.config.background_output.0;
        let grace_ms = u64::try_from(GRACE.as_millis()).unwrap_or(u64::MAX);
        let mut order = self.order(args.command, context).await?;
        order.background = Some(Background { output_bytes, grace_ms, detached });
        let launch = Launch {
            exe: self.exe.clone(),
            environment: self.environment(),
            order,
            label: label.clone(),
            timeout: (!detached).then_some(asked),
            at_once: self.config.background,
        };
        let launched = processes.start(launch, context).await?;
        let (id, pid) = (&launched.id, launched.pid);
        let told = if detached {
            let label = label.map(|label| format!(" [{label}]")).unwrap_or_default();
            format!("Spawned in background (pid: {pid}){label}. Process will run independently. Its id is {id}.")
        } else {
            let label = label.map(|label| format!(", {label}")).unwrap_or_default();
            format!("Started in background (id: {id}, pid: {pid}){label}. Its end is announced.")
        };
        let mut result = ToolResult::ok(told);
        result.metadata.insert("process".to_owned(), Value::from(launched.id));
        Ok(result.into())
    }

    async fn run(&self, args: Args, context: &ToolContext) -> Result<ToolOutcome, String> {
        if args.background == Some(true) || args.detach == Some(true) {
            return self.launch(args, context).await;
        }
        let limit =
            args.timeout.map_or(self.config.timeout.0, |secs| Duration::from_secs(secs).min(self.config.timeout.0));
        let order = self.order(args.command, context).await?;
        let mut capture = Capture::new(Arc::clone(&self.spill), context);
        let ended = run(&self.exe, &self.environment(), &order, limit, &context.cancel, &mut capture).await;
        let ended = ended.map_err(|error| format!("The command could not be run to its end: {error}"))?;
        let whole = self.output_limit();
        let inner = OutputLimit { chars: whole.chars - HEAD.chars, lines: whole.lines - HEAD.lines };
        let (content, spill) = capture.finish(inner);
        let mut result = told(ended, limit);
        result.content = content;
        if let Some(path) = spill {
            result.metadata.insert(SPILL_KEY.to_owned(), Value::from(path));
        }
        Ok(result.into())
    }
}

/// The sandbox that commands get on this machine. `exe` is this program.
///
/// # Errors
/// There is none that the configuration accepts, in words for the model and the owner.
pub fn sandbox_of(mode: SandboxMode, exe: &Path) -> Result<Sandbox, String> {
    if mode == SandboxMode::Off {
        return Ok(Sandbox::Off);
    }
    let missing = match guard::namespaces(exe) {
        Namespaces::Work { .. } => return Ok(Sandbox::Namespaces),
        Namespaces::Missing(reason) => reason,
    };
    if mode == SandboxMode::Require {
        return Err(format!(
            "Commands are off: tools.exec.sandbox = \"require\" needs namespaces, and {missing}. The owner can {MEND}"
        ));
    }
    let status = guard::status();
    if status.is_enough() {
        return Ok(Sandbox::Landlock);
    }
    Err(format!(
        "Commands are off: this machine cannot sandbox them ({missing}; {status}). The owner can {MEND}; or run them without \
         protection by `sandbox = \"off\"` in [tools.exec]"
    ))
}

/// Why somebody who is not the owner runs no command.
fn not_the_owner(sandbox: Sandbox) -> String {
    let why = "only the owner's turns can run commands here: what is not for this conversation can be hidden from a command in \
               namespaces alone";
    match sandbox {
        Sandbox::Off => format!("Refused: {why}, and tools.exec.sandbox is \"off\""),
        _ => format!("Refused: {why}, and this machine has none (sandbox: {sandbox}). The owner can {MEND}"),
    }
}

/// The result but for its output.
fn told(ended: Ended, limit: Duration) -> ToolResult {
    let code = match &ended {
        Ended::By(Ending::Code(code)) => Some(*code),
        _ => None,
    };
    let mut result = match ended {
        Ended::By(Ending::Code(0)) => ToolResult::ok(""),
        Ended::By(Ending::Code(code)) => ToolResult::failed(format!("Exit code: {code}")),
        Ended::By(Ending::Signal(signal)) => ToolResult::failed(format!("Killed by signal {signal}")),
        Ended::By(Ending::Exceeded(limit)) => ToolResult::failed(format!("The command was ended: {limit}")),
        Ended::TimedOut => ToolResult::failed(format!("Command timed out after {} seconds", limit.as_secs())),
        Ended::Cancelled => ToolResult::failed("Cancelled; the command was killed"),
        Ended::Refused(reason) => ToolResult::failed(format!("The command was not started: {reason}")),
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

    fn aliases(&self) -> &'static [&'static str] {
        &["bash", "run_command", "shell", "sh", "execute", "execute_command", "run_shell_command", "run", "terminal"]
    }

    fn replay(&self) -> Replay {
        Replay::Once
    }

    fn timeout(&self) -> Option<Duration> {
        Some(self.config.timeout.0.saturating_add(SLACK))
    }

    /// What a file or a page says must not become a command that nobody has read.
    fn sealed_arguments(&self) -> &'static [&'static str] {
        &["command"]
    }

    fn check(&self, arguments: &Value, context: &ToolContext) -> Result<(), String> {
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
        let done = match serde_json::from_value(arguments) {
            Ok(args) => self.run(args, context).await,
            Err(error) => Err(error.to_string()),
        };
        done.unwrap_or_else(|error| ToolResult::failed(error).into())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::chat::ToolCall;
    use crate::origin::TurnOrigin;
    use crate::tools::testing::{World, context};
    use crate::tools::{ToolContext, ToolsConfig};

    #[tokio::test]
    async fn what_feeds_itself_leaves_nothing_in_the_background() {
        let world = World::new(&ToolsConfig::default());
        let arguments = json!({"command": "true", "background": true}).to_string();
        let call = ToolCall { id: "c".to_owned(), name: "exec".to_owned(), arguments };
        for (origin, expected) in
            [("{}", "No gateway runs here"), (r#"{"follow_ups":10}"#, "without a message from a person")]
        {
            let context = ToolContext { origin: std::sync::Arc::new(TurnOrigin::parse(origin)), ..context() };
            let told = world.executor.run(&call, &context).await.result.render();
            assert!(told.contains(expected), "{told}");
        }
    }
}
