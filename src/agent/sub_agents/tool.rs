//! `spawn`: gives a task to a sub-agent.

use std::sync::Arc;

use async_trait::async_trait;
use daoyou_channels::settings::size;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use uuid::Uuid;

use super::child::{ANSWER, ChildSlots, NewSubAgent, SubAgentTask, id_of};
use crate::agent::config::SpawnConfig;
use crate::bus::{InboundSignal, MessageBus, WeakBus};
use crate::profiles::AgentDirectory;
use crate::store::approvals;
use crate::store::spawns::{self, SpawnEnd, SpawnRow};
use crate::text::{one_line, truncate};
use crate::tools::{
    CallRunner, OutputLimit, ReplayPolicy, RowEffect, Tool, ToolContext, ToolDefinition, ToolEffect, ToolOutcome,
    ToolResult,
};

/// The tool's name.
pub const SPAWN: &str = "spawn";
/// The longest task, in characters.
const MAX_TASK: usize = 20_000;
/// The longest label, in characters.
const MAX_LABEL: usize = 40;

#[derive(Deserialize, JsonSchema)]
struct SpawnArgs {
    task: String,
    /// A short name.
    label: Option<String>,
    /// Who does it. Default: one like you.
    agent: Option<String>,
    /// PROVIDER/MODEL.
    model: Option<String>,
    /// Those it may use. Default: yours.
    tools: Option<Vec<String>>,
    /// True: its answer is this call's result. Default: it comes as a message later.
    #[expect(dead_code, reason = "`SpawnTool::waits` reads it before the call")]
    wait: Option<bool>,
}

/// Starts sub-agents, and returns the answers of those that the call waits for. A repeated call finds the sub-agent that the first
/// call started.
pub struct SpawnTool {
    definition: ToolDefinition,
    config: SpawnConfig,
    bus: WeakBus,
    agents: Arc<AgentDirectory>,
    slots: ChildSlots,
}

impl SpawnTool {
    /// Creates the tool. `bus` may be set later; without a bus no sub-agent can start.
    pub fn new(config: SpawnConfig, bus: WeakBus, agents: Arc<AgentDirectory>) -> Self {
        let description = "Give a task to a sub-agent, which works in parallel with a context of its own. It knows \
             nothing of this conversation: say all it needs.";
        let definition = ToolDefinition {
            output_limit: OutputLimit { chars: ANSWER.chars + 1_000, lines: ANSWER.lines + 50 },
            // Content from others must not choose the tools of a sub-agent.
            literal_arguments: &["agent", "model", "tools", "wait"],
            // The same call yields the same sub-agent.
            ..ToolDefinition::changing::<SpawnArgs>(SPAWN, description, ReplayPolicy::Idempotent)
        };
        Self { definition, config, bus, agents, slots: ChildSlots::default() }
    }

    async fn spawn(
        &self,
        arguments: Value,
        context: &ToolContext,
        runner: &dyn CallRunner,
    ) -> Result<ToolOutcome, String> {
        let waits = self.may_wait(&arguments, context);
        let task = self.task_of(arguments, waits, (context, runner))?;
        if !waits {
            context.origin.follow_ups.check()?;
        }
        let bus = self.bus.get().ok_or("No sub-agent can be started: the gateway does not run")?;
        let (id, session) = (id_of(context.turn, &context.call_id), context.session.to_string());
        let read = move |connection: &_| {
            let taint = approvals::taint_of_session(connection, &spawns::session_of(id))?;
            Ok((spawns::find(connection, id)?, spawns::unfinished(connection, &session)?, taint))
        };
        let (known, unfinished, taint) = bus.store().read(read).await.map_err(|error| error.to_string())?;
        match known {
            Some(known) => {
                let mut outcome = resumed_outcome(&known, waits, &bus);
                outcome.result.add_sources(taint);
                Ok(outcome)
            }
            None => self.begin(task, context, &unfinished, bus, id),
        }
    }

    fn task_of(
        &self,
        arguments: Value,
        waits: bool,
        (context, runner): (&ToolContext, &dyn CallRunner),
    ) -> Result<SubAgentTask, String> {
        let args: SpawnArgs = serde_json::from_value(arguments).map_err(|error| error.to_string())?;
        let text = |word: Option<String>| word.map(|word| word.trim().to_owned()).filter(|word| !word.is_empty());
        let named = match args.tools {
            None => None,
            Some(names) => Some(names.iter().map(|name| known(name, runner)).collect::<Result<Vec<_>, _>>()?),
        };
        let agent = text(args.agent).map(|name| self.agent(&name, context)).transpose()?;
        let team = &context.agent.team;
        if !team.is_empty() && agent.as_ref().is_none_or(|agent| !team.contains(agent)) {
            return Err(format!("Nothing was started: name the agent, one of {}", team.join(", ")));
        }
        let label = label_of(&text(args.label).unwrap_or_else(|| args.task.clone()));
        Ok(SubAgentTask { label, agent, model: text(args.model), tools: named, waits, task: args.task })
    }

    /// Returns the canonical name of the agent `name`.
    fn agent(&self, name: &str, context: &ToolContext) -> Result<String, String> {
        let unknown = || format!("Nothing was started: {}", self.agents.unknown(name));
        let agent = self.agents.find(name).ok_or_else(unknown)?;
        let here = self.agents.find(&context.agent.name).unwrap_or(self.agents.default_agent());
        let is_member = here.team.contains(&agent.name);
        if here.is_restricted() && !is_member && agent.workspace != here.workspace {
            return Err(format!(
                "Nothing was started: {} works in another folder, and yours is your limit",
                agent.name
            ));
        }
        Ok(agent.name.clone())
    }

    fn begin(
        &self,
        task: SubAgentTask,
        context: &ToolContext,
        unfinished: &[Uuid],
        bus: Arc<MessageBus>,
        id: Uuid,
    ) -> Result<ToolOutcome, String> {
        if context.origin.depth() >= self.config.depth {
            return Err("A sub-agent at this depth has none of its own (agent.spawn.depth); do it yourself".to_owned());
        }
        let most = size(self.config.max_children);
        let Some(slot) = self.slots.take(&context.session, unfinished, id, most) else {
            return Err(format!(
                "Nothing was started: {most} sub-agents of this conversation are at work (agent.spawn.max_children); wait for \
                 some to end, or do it yourself"
            ));
        };
        let (waits, text) = (task.waits, begun(&task.label, id));
        let child = NewSubAgent::new(task, context, &self.config, bus, slot);
        let rows = ToolEffect::Rows(RowEffect(Arc::new(child)));
        Ok(if waits {
            ToolOutcome::pending(id, vec![rows])
        } else {
            ToolOutcome { result: ToolResult::ok(text), effects: vec![rows] }
        })
    }
}

fn begun(label: &str, id: Uuid) -> String {
    format!("Sub-agent {label:?} works on it ({id}). Its report will come as a message of its own; do not wait for it.")
}

/// Returns the outcome of a call whose sub-agent was started before.
fn resumed_outcome(known: &SpawnRow, waits: bool, bus: &MessageBus) -> ToolOutcome {
    let SpawnRow { id, label, .. } = known;
    if !waits {
        return ToolResult::ok(begun(label, *id)).into();
    }
    match &known.end {
        Some(SpawnEnd { error: None, result }) => ToolResult::ok(result).into(),
        Some(SpawnEnd { error: Some(code), result }) => {
            ToolResult::failed(format!("Sub-agent {label:?} failed ({code}): {result}")).into()
        }
        None if known.is_over() => {
            ToolResult::failed(format!("Sub-agent {label:?} is over, and what it answered is lost")).into()
        }
        None => {
            // A process that runs only chosen sessions may not run this one yet.
            bus.signal(InboundSignal::Work(spawns::session_of(*id).into()));
            ToolOutcome::pending(*id, Vec::new())
        }
    }
}

/// Returns the tool's canonical name.
fn known(name: &str, runner: &dyn CallRunner) -> Result<String, String> {
    let found = runner.tool(name).map(|tool| tool.spec().name.clone());
    found.ok_or_else(|| {
        format!("Nothing was started: you have no tool {name:?} to give; yours are {}", runner.tool_names().join(", "))
    })
}

fn label_of(text: &str) -> String {
    truncate(&one_line(text), MAX_LABEL)
}

#[async_trait]
impl Tool for SpawnTool {
    fn definition(&self) -> &ToolDefinition {
        &self.definition
    }

    /// Returns false: the taint of the asking turn restricts its sub-agents as well.
    fn is_restricted(&self, _: &Value, _: &ToolContext) -> bool {
        false
    }

    fn hint(&self, arguments: &str) -> Option<&'static str> {
        let has_command = serde_json::from_str::<Value>(arguments).is_ok_and(|value| value.get("command").is_some());
        has_command.then_some("spawn runs no commands; for one in the background use exec with background = true")
    }

    /// Returns true if the call may wait. The end of a job's or sub-agent's turn is awaited (by the job's run or the asking turn), so
    /// its sub-agents end before it.
    fn may_wait(&self, arguments: &Value, context: &ToolContext) -> bool {
        // A lead collects the answers of its team in its own turn.
        let is_lead = !context.agent.team.is_empty();
        let asks = arguments.get("wait").and_then(Value::as_bool).unwrap_or(false);
        asks || is_lead || context.origin.runs_for_job_or_agent()
    }

    fn validate(&self, arguments: &Value, _: &ToolContext) -> Result<(), String> {
        let task = arguments.get("task").and_then(Value::as_str).unwrap_or_default();
        if task.trim().is_empty() {
            return Err("task is empty; say what is to be done, and all that it needs".to_owned());
        }
        if task.chars().count() > MAX_TASK {
            return Err(format!("task is longer than {MAX_TASK} characters; put the material into a file and name it"));
        }
        Ok(())
    }

    async fn call(&self, _: Value, _: &ToolContext) -> ToolOutcome {
        ToolResult::failed("Nothing was started: this tool works among other tools alone").into()
    }

    async fn call_with_runner(&self, arguments: Value, context: &ToolContext, runner: &dyn CallRunner) -> ToolOutcome {
        self.spawn(arguments, context, runner).await.into()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::chat::ToolCall;
    use crate::origin::TurnOrigin;
    use crate::tools::ToolsConfig;
    use crate::tools::testing::{ToolFixture, context};

    fn tool() -> SpawnTool {
        SpawnTool::new(SpawnConfig::default(), WeakBus::default(), Arc::default())
    }

    #[tokio::test]
    async fn a_sub_agent_that_cannot_start_says_why() {
        let mut fixture = ToolFixture::new(&ToolsConfig::default());
        fixture.executor.register(Arc::new(tool())).unwrap();
        for (arguments, expected) in [
            (json!({"task": " "}), "task is empty"),
            (json!({"task": "x".repeat(20_001)}), "longer than 20000 characters"),
            (json!({"command": "sleep 9"}), "exec with background = true"),
            (json!({"task": "x", "tools": ["no_such"]}), "no tool \"no_such\" to give; yours are read_file,"),
            (
                json!({"task": "x", "agent": "nobody"}),
                "Nothing was started: Agent 'nobody' not found. Agents: assistant",
            ),
            (json!({"task": "x"}), "the gateway does not run"),
        ] {
            let call = ToolCall { id: "c".to_owned(), name: "spawn".to_owned(), arguments: arguments.to_string() };
            let rendered = fixture.executor.run(&call, &context()).await.result.render();
            assert!(rendered.contains(expected), "{rendered}");
        }
        let late = ToolContext { origin: Arc::new(TurnOrigin::parse(r#"{"follow_ups":10}"#)), ..context() };
        for (arguments, expected) in [
            (json!({"task": "x"}), "without a message from a person"),
            (json!({"task": "x", "wait": true}), "the gateway does not run"),
        ] {
            let call = ToolCall { id: "c".to_owned(), name: "spawn".to_owned(), arguments: arguments.to_string() };
            let rendered = fixture.executor.run(&call, &late).await.result.render();
            assert!(rendered.contains(expected), "{rendered}");
        }
    }

    #[test]
    fn the_schema_is_short_as_each_request_holds_it() {
        let spec = tool().spec().clone();
        let bytes = spec.parameters.to_string().len() + spec.description.len();
        assert!(bytes < 700, "{bytes} bytes: {}", spec.parameters);
    }

    #[test]
    fn labels_are_one_short_line() {
        for (text, expected) in [
            (" two\n words ", "two words"),
            ("count the files of the workspace and say how many", "count the files of the workspace and sa…"),
        ] {
            assert_eq!(label_of(text), expected);
        }
    }
}
