//! The tool `exec`, which runs shell commands.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use daoyou_channels::Trust;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::capture::OutputCapture;
use super::foreign;
use super::run::CommandOutcome;
use super::runner::{COMMAND_BYTES, CommandRunner, END_MARGIN, ShellCommand, sandbox_of};
use crate::guard::{BackgroundOptions, Sandbox};
use crate::tools::output_limits::note_cut;
use crate::tools::process::{GRACE, LaunchRequest, Processes};
use crate::tools::{
    OutputLimit, ReplayPolicy, SpillStore, Tool, ToolContext, ToolDefinition, ToolOutcome, ToolResult, with_arguments,
};

/// The maximum length of a background command's label, in characters.
const LABEL_CHARS: usize = 60;
/// The size limit of the line before the output of a failed command.
const FAILURE_LINE: OutputLimit = OutputLimit { chars: 120, lines: 2 };

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

/// The tool `exec`.
pub struct ExecTool {
    definition: ToolDefinition,
    runner: Arc<CommandRunner>,
    spill: Arc<SpillStore>,
    processes: Option<Arc<Processes>>,
}

impl ExecTool {
    /// Creates the tool. Without `processes`, nothing runs in the background.
    pub fn new(runner: Arc<CommandRunner>, spill: Arc<SpillStore>, processes: Option<Arc<Processes>>) -> Self {
        let config = &runner.config;
        let network = if config.network { "" } else { ", no network" };
        let sandbox = match sandbox_of(config.sandbox, &runner.exe) {
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
        let definition = ToolDefinition {
            timeout: Some(config.timeout.0.saturating_add(END_MARGIN)),
            // Text from a file or page must not become a command that neither the model nor the owner has read.
            literal_arguments: &["command", "cwd"],
            ..ToolDefinition::changing::<ExecArgs>("exec", &description, ReplayPolicy::Once)
        };
        Self { definition, runner, spill, processes }
    }

    /// Starts a background command.
    async fn start_in_background(&self, args: ExecArgs, context: &ToolContext) -> Result<ToolOutcome, String> {
        context.origin.follow_ups.check()?;
        let processes = self.processes.as_ref().ok_or("No gateway runs here that could look after it")?;
        let detached = args.detach == Some(true);
        if !detached && processes.is_short_lived() {
            return Err("No gateway runs here that could look after it: this program ends with its answer. Run the command without \
                        background"
                .to_owned());
        }
        let longest = self.runner.config.background_timeout.0;
        let asked = args.timeout.map_or(longest, |secs| Duration::from_secs(secs).min(longest));
        let label = args.label.map(|label| label.trim().to_owned()).filter(|label| !label.is_empty());
        let output_bytes = self.runner.config.background_output.0;
        let grace_ms = u64::try_from(GRACE.as_millis()).unwrap_or(u64::MAX);
        let sources = self.runner.output_sources(&args.command, context);
        let further = foreign::visibility(&args.command, context);
        let mut request = self.runner.request(args.command, further, context).await?;
        request.background = Some(BackgroundOptions { output_bytes, grace_ms, detached });
        let launch = LaunchRequest {
            exe: self.runner.exe.clone(),
            environment: self.runner.environment(),
            request,
            label: label.clone(),
            timeout: (!detached).then_some(asked),
            at_once: self.runner.config.background,
        };
        // The turn that answers the end of the command reads its output.
        let mut process_context = context.clone();
        Arc::make_mut(&mut process_context.taint).extend(sources.iter().cloned());
        let launched = processes.start(launch, &process_context).await?;
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
        result.add_sources(sources);
        Ok(result.into())
    }

    async fn run(&self, args: ExecArgs, context: &ToolContext) -> Result<ToolOutcome, String> {
        if !context.is_approved && context.agent.asks_about(&args.command) {
            return Err(
                "this agent's permissions ask the owner before this command, and nobody was asked here".to_owned()
            );
        }
        if args.background == Some(true) || args.detach == Some(true) {
            return self.start_in_background(args, context).await;
        }
        let longest = self.runner.config.timeout.0;
        let limit = args.timeout.map_or(longest, |secs| Duration::from_secs(secs).min(longest));
        let sources = self.runner.output_sources(&args.command, context);
        let further = foreign::visibility(&args.command, context);
        let environment = self.runner.environment();
        let command = ShellCommand { command: args.command, environment, limit, further };
        let mut capture = OutputCapture::new(&self.spill, context, !sources.is_empty());
        let ended = self.runner.run(command, context, &mut |bytes| capture.push(bytes)).await?;
        let whole = self.definition.output_limit;
        let output_limit =
            OutputLimit { chars: whole.chars - FAILURE_LINE.chars, lines: whole.lines - FAILURE_LINE.lines };
        let exceeding = capture.exceeding_length();
        let (content, spill) = capture.finish(output_limit);
        let mut result = result_of(&ended, limit);
        result.content = content;
        if let Some(length) = exceeding {
            note_cut(&mut result.metadata, length);
        }
        result.spill = spill;
        result.add_sources(sources);
        Ok(result.into())
    }
}

/// Returns the result of a command, without its output.
fn result_of(ended: &CommandOutcome, limit: Duration) -> ToolResult {
    let code = match ended.exit_code(limit) {
        Ok(code) => code,
        Err(error) => return ToolResult::failed(error),
    };
    let mut result = if code == 0 { ToolResult::ok("") } else { ToolResult::failed(format!("Exit code: {code}")) };
    result.metadata.insert("exit_code".to_owned(), Value::from(code));
    result
}

#[async_trait]
impl Tool for ExecTool {
    fn definition(&self) -> &ToolDefinition {
        &self.definition
    }

    fn may_taint(&self, arguments: &Value, context: &ToolContext) -> bool {
        let command = arguments["command"].as_str().unwrap_or_default();
        !self.runner.output_sources(command, context).is_empty()
    }

    fn validate(&self, arguments: &Value, context: &ToolContext) -> Result<(), String> {
        let command = arguments.get("command").and_then(Value::as_str).unwrap_or_default();
        if command.trim().is_empty() {
            return Err("command is empty".to_owned());
        }
        context.agent.rules.iter().try_for_each(|rules| rules.check_command(command))?;
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
        with_arguments(arguments, |args| self.run(args, context)).await
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::chat::ToolCall;
    use crate::guard::{AccessRules, SandboxMode};
    use crate::origin::TurnOrigin;
    use crate::store::Store;
    use crate::tools::config::ExecConfig;
    use crate::tools::testing::{ToolFixture, context};
    use crate::tools::{AgentScope, ToolDeps, ToolsConfig};

    #[tokio::test]
    async fn a_command_that_the_permissions_ask_about_runs_only_after_an_approval() {
        let rule = |pattern: &str, permission: &str| json!({"pattern": pattern, "permission": permission});
        let settings = json!({"execute": [rule("echo*", "ask"), rule("true", "allow")]});
        let rules = AccessRules::new(&serde_json::from_value(settings).unwrap()).unwrap();
        let agent = Arc::new(AgentScope { rules: [Arc::new(rules)].into(), ..AgentScope::default() });
        let off = ExecConfig { sandbox: SandboxMode::Off, ..ExecConfig::default() };
        let fixture = ToolFixture::new(&ToolsConfig { exec: off, ..ToolsConfig::default() });
        let context = ToolContext { agent, ..context() };
        for (name, command, is_asked) in [("exec", "echo", true), ("bash", "echo", true), ("exec", "true", false)] {
            let arguments = json!({ "command": command });
            let call = ToolCall { id: "c".to_owned(), name: name.to_owned(), arguments: arguments.to_string() };
            assert_eq!(fixture.executor.restriction(&call, &context).unwrap().asks_owner, is_asked, "{command}");
            for is_approved in [false, true] {
                let context = ToolContext { is_approved, ..context.clone() };
                let result = fixture.run(name, &arguments, &context).await.result.render();
                assert_eq!(result.contains("nobody was asked"), is_asked && !is_approved, "{command}: {result}");
            }
        }
    }

    #[tokio::test]
    async fn the_output_of_a_background_command_counts_as_foreign_by_the_folders_that_it_names_and_by_the_network() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(&folder.path().join("daoyou.db")).unwrap();
        let processes = Some(Arc::new(Processes::open(store.clone(), folder.path()).unwrap()));
        let off = ExecConfig { sandbox: SandboxMode::Off, ..ExecConfig::default() };
        for (command, network, source) in
            [("cat mail/x", false, Some("file:mail")), ("true", false, None), ("true", true, Some("network"))]
        {
            let config = ToolsConfig { exec: ExecConfig { network, ..off.clone() }, ..ToolsConfig::default() };
            let deps = ToolDeps { processes: processes.clone(), ..ToolDeps::default() };
            let fixture = ToolFixture::with_deps(&config, deps);
            // The test program is not a supervisor, so the command does not run. It is recorded before that.
            let arguments = json!({"command": command, "background": true});
            fixture.run("exec", &arguments, &context()).await;
            let rows = store.read(|connection| crate::store::processes::newest(connection, 9)).await.unwrap();
            let expected: crate::guard::Taint = source.map(str::to_owned).into_iter().collect();
            assert_eq!(TurnOrigin::parse(&rows[0].origin).taint, expected);
            let arguments = json!({"action": "output", "id": rows[0].id});
            let result = fixture.run("process", &arguments, &context()).await.result;
            assert_eq!((result.success, result.taint), (true, expected));
            let may_taint = |tool: &str| {
                let tool = fixture.executor.registry().get(tool).unwrap();
                tool.may_taint(&json!({ "command": command }), &context())
            };
            assert_eq!((may_taint("exec"), may_taint("run_test")), (source.is_some(), network));
        }
    }

    #[tokio::test]
    async fn a_program_that_ends_with_its_answer_starts_nothing_in_the_background() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(&folder.path().join("daoyou.db")).unwrap();
        let processes = Arc::new(Processes::open(store.clone(), folder.path()).unwrap());
        processes.set_short_lived();
        let deps = ToolDeps { processes: Some(processes), ..ToolDeps::default() };
        let fixture = ToolFixture::with_deps(&ToolsConfig::default(), deps);
        let arguments = json!({"command": "sleep 9", "background": true});
        let text = fixture.run("exec", &arguments, &context()).await.result.render();
        assert!(text.starts_with("Error: No gateway runs here that could look after it: this program ends"), "{text}");
        let rows = store.read(|connection| crate::store::processes::newest(connection, 9)).await.unwrap();
        assert!(rows.is_empty());
    }

    #[tokio::test]
    async fn chained_follow_ups_start_nothing_in_the_background() {
        let fixture = ToolFixture::new(&ToolsConfig::default());
        let arguments = json!({"command": "true", "background": true});
        for (origin, expected) in
            [("{}", "No gateway runs here"), (r#"{"follow_ups":10}"#, "without a message from a person")]
        {
            let context = ToolContext { origin: std::sync::Arc::new(TurnOrigin::parse(origin)), ..context() };
            let text = fixture.run("exec", &arguments, &context).await.result.render();
            assert!(text.contains(expected), "{text}");
        }
    }
}
