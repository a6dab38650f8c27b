//! `parallel`: several calls of other tools as one call.

use std::convert::Infallible;
use std::time::Duration;

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::fill::{fill, mentioned};
use super::report::{Section, joined, share};
use super::{NodeEnd, OnError, Plan, PlanNode, RunNode, run_plan};
use crate::chat::without_notes;
use crate::chat::{ToolCall, ToolSpec};
use crate::tools::arguments::{argument_name, parse_arguments};
use crate::tools::executor::{PRIVATE_KEY, SPILL_KEY};
use crate::tools::{Executor, Extent, OutputLimit, Replay, Tool, ToolContext, ToolOutcome, ToolResult, cut, tool_spec};

/// Its name, and the others that models know it by.
const NAMES: [&str; 4] = ["parallel", "multi_tool_use.parallel", "multi_tool_use", "batch"];
/// What a plan is given to end in order when its time is up.
const SLACK: Duration = Duration::from_secs(10);
/// What stands before the sections when something failed.
const HEAD: OutputLimit = OutputLimit { chars: 400, lines: 2 };
/// Failed calls that the first line names.
const NAMED: usize = 5;

#[derive(Deserialize, JsonSchema)]
struct Args {
    calls: Vec<Call>,
    /// When a call fails: go_on (default), or stop_others.
    on_error: Option<OnError>,
}

#[derive(Deserialize, JsonSchema)]
struct Call {
    /// Default: its number.
    id: Option<String>,
    tool: String,
    /// {{ID}} in a text: the result of a call in needs.
    arguments: Option<Map<String, Value>>,
    /// Ids of calls that must have succeeded before.
    needs: Option<Vec<String>>,
}

/// Runs a plan of calls through the executor that runs this tool, with all its checks and bounds. To the journal it is
/// one call, as careful as the most careful tool in it.
pub struct ParallelTool {
    spec: ToolSpec,
    limit: Duration,
}

/// Whether a call of this name is a plan of others.
pub fn is_plan(name: &str) -> bool {
    NAMES.iter().any(|known| known.eq_ignore_ascii_case(name.trim()))
}

/// A plan that was checked, and the calls of its nodes.
struct Planned {
    plan: Plan,
    calls: Vec<Call>,
    on_error: OnError,
}

/// Runs the calls of a plan.
struct Members<'a> {
    planned: &'a Planned,
    context: &'a ToolContext,
    tools: &'a Executor,
}

impl ParallelTool {
    /// After `limit` the plan is stopped and says how far it came.
    pub fn new(limit: Duration) -> Self {
        let description = "Run several tool calls as one plan, at the same time unless one needs another.";
        Self { spec: tool_spec::<Args>(NAMES[0], description), limit }
    }

    async fn report(&self, members: &Members<'_>, ends: Vec<NodeEnd<ToolOutcome>>) -> ToolOutcome {
        let plan = &members.planned.plan;
        let mut sections: Vec<Section> = (0..).zip(&ends).map(|(node, end)| members.section(node, end)).collect();
        let limit = self.output_limit();
        let room = OutputLimit { chars: limit.chars - HEAD.chars, lines: limit.lines - HEAD.lines };
        let share = share(&sections, room);
        for (node, section) in sections.iter_mut().enumerate() {
            if Extent::of(&section.text).fits(share) {
                continue;
            }
            let metadata = match &ends[node] {
                NodeEnd::Done(outcome) | NodeEnd::Failed(outcome) => Some(&outcome.result.metadata),
                _ => None,
            };
            let whole = match metadata.and_then(|metadata| metadata.get(SPILL_KEY)).and_then(Value::as_str) {
                Some(path) => Some(path.to_owned()),
                None if metadata.is_some_and(|metadata| metadata.contains_key(PRIVATE_KEY)) => None,
                None => {
                    members.tools.keep(section.text.clone(), &members.context_of(node, &members.context.cancel)).await
                }
            };
            section.text = cut(&section.text, share, whole.as_deref());
        }
        let without: Vec<&str> = (0..)
            .zip(&ends)
            .filter(|(_, end)| !matches!(end, NodeEnd::Done(_)))
            .map(|(node, _): (usize, _)| plan.ids()[node].as_str())
            .collect();
        let mut result = match without.as_slice() {
            [] => ToolResult::ok(""),
            some => {
                let more = if some.len() > NAMED { ", …" } else { "" };
                let named = some[..some.len().min(NAMED)].join(", ");
                ToolResult::failed(format!("{} of {} calls did not succeed: {named}{more}", some.len(), ends.len()))
            }
        };
        result.content = joined(&sections);
        result
            .metadata
            .insert("calls".to_owned(), (0..).zip(&ends).map(|(node, end)| members.facts(node, end)).collect());
        let effects = ends.into_iter().flat_map(|end| match end {
            NodeEnd::Done(outcome) | NodeEnd::Failed(outcome) => outcome.effects,
            _ => Vec::new(),
        });
        ToolOutcome { result, effects: effects.collect() }
    }
}

#[async_trait]
impl Tool for ParallelTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn aliases(&self) -> &'static [&'static str] {
        &NAMES[1..]
    }

    /// Of itself it does nothing; its members count. It runs alone whatever they are: it runs as many calls at once as
    /// may run.
    fn replay(&self) -> Replay {
        Replay::Idempotent
    }

    /// Of itself it does nothing; each of its calls is judged when it runs.
    fn serves_strangers(&self, _: &Value, _: &ToolContext) -> bool {
        true
    }

    fn output_limit(&self) -> OutputLimit {
        OutputLimit { chars: 20_000, lines: 1_000 }
    }

    fn timeout(&self) -> Option<Duration> {
        Some(self.limit.saturating_add(SLACK))
    }

    fn members(&self, arguments: &Value) -> Vec<String> {
        let name = |call: &Value| call.get("tool").and_then(Value::as_str).unwrap_or_default().to_owned();
        match arguments.get("calls") {
            Some(Value::Array(calls)) => calls.iter().map(name).collect(),
            // What cannot be read may be anything.
            _ => vec![String::new()],
        }
    }

    fn check(&self, arguments: &Value, _: &ToolContext) -> Result<(), String> {
        Planned::of(arguments.clone()).map(drop)
    }

    async fn call(&self, _: Value, _: &ToolContext) -> ToolOutcome {
        ToolResult::failed("Nothing was run: this tool works among other tools alone").into()
    }

    async fn call_among(&self, arguments: Value, context: &ToolContext, tools: &Executor) -> ToolOutcome {
        let planned = match Planned::of(arguments).and_then(|planned| planned.fits(tools, context).map(|()| planned)) {
            Ok(planned) => planned,
            Err(error) => return ToolResult::failed(error).into(),
        };
        let members = Members { planned: &planned, context, tools };
        let stop = context.cancel.child_token();
        let time_is_up = async {
            sleep(self.limit).await;
            stop.cancel();
            std::future::pending::<Infallible>().await
        };
        let at_once = tools.limits().at_once;
        let ends = tokio::select! {
            ends = run_plan(&planned.plan, &members, at_once, planned.on_error, &stop) => ends,
            never = time_is_up => match never {},
        };
        if ends.iter().any(|end| matches!(end, NodeEnd::Waits(_))) {
            return not_yet(ends);
        }
        self.report(&members, ends).await
    }
}

/// The outcome of a plan of which some calls wait: what they, and those that have ended, do inside daoyou.
fn not_yet(ends: Vec<NodeEnd<ToolOutcome>>) -> ToolOutcome {
    let effects = ends.into_iter().flat_map(|end| match end {
        NodeEnd::Done(outcome) | NodeEnd::Waits(outcome) => outcome.effects,
        _ => Vec::new(),
    });
    ToolOutcome { result: ToolResult::ok(""), effects: effects.collect() }
}

impl Planned {
    /// Reads and checks a plan, without looking at the tools.
    fn of(arguments: Value) -> Result<Self, String> {
        let args: Args = serde_json::from_value(arguments).map_err(|error| error.to_string())?;
        let node = |(number, call): (usize, &Call)| PlanNode {
            id: call.id.clone().unwrap_or_else(|| number.to_string()),
            needs: call.needs.clone().unwrap_or_default(),
        };
        let nodes: Vec<_> = (1..).zip(&args.calls).map(node).collect();
        let plan = Plan::new(&nodes).map_err(|error| format!("Nothing was run: {error}"))?;
        for (node, call) in nodes.iter().zip(&args.calls) {
            let places = call.arguments.iter().flat_map(Map::values).flat_map(mentioned);
            let mut known = places.filter(|id| plan.ids().iter().any(|known| known == id));
            if let Some(id) = known.find(|id| !node.needs.iter().any(|need| need == id)) {
                return Err(format!(
                    "Nothing was run: {:?} takes in the result of {id:?} and must name it in needs",
                    node.id
                ));
            }
        }
        Ok(Self { plan, calls: args.calls, on_error: args.on_error.unwrap_or_default() })
    }

    /// Whether the tools are there and take what the plan gives them.
    fn fits(&self, tools: &Executor, context: &ToolContext) -> Result<(), String> {
        for (call, id) in self.calls.iter().zip(self.plan.ids()) {
            let wrong = |what: String| Err(format!("Nothing was run: {id:?}: {what}"));
            let Some(tool) = tools.registry().get(&call.tool) else {
                return wrong(tools.unknown(&call.tool));
            };
            if tool.spec().name == NAMES[0] {
                return wrong("a plan cannot stand in a plan; put its calls into this one".to_owned());
            }
            for (argument, value) in call.arguments.iter().flatten() {
                let is_sealed = tool.sealed_arguments().contains(&argument_name(tool.spec(), argument));
                if is_sealed && mentioned(value).into_iter().any(|id| self.plan.ids().iter().any(|known| known == id)) {
                    return wrong(format!(
                        "no result can be put into {argument} of {}: read the result first, then make that call",
                        tool.spec().name
                    ));
                }
            }
        }
        self.may_wait(tools, context)
    }

    /// A plan with calls that wait is run again whenever one of them ends: so nothing in it may do harm a second time.
    fn may_wait(&self, tools: &Executor, context: &ToolContext) -> Result<(), String> {
        let tool_of = |call: &Call| tools.registry().get(&call.tool);
        let waits = |call: &&Call| {
            let Some(tool) = tool_of(call) else { return false };
            let arguments = Value::Object(call.arguments.clone().unwrap_or_default()).to_string();
            tool.waits(&parse_arguments(tool.spec(), &arguments).unwrap_or_default(), context)
        };
        let Some(waiting) = self.calls.iter().find(waits) else { return Ok(()) };
        let name = waiting.tool.trim();
        if self.on_error == OnError::StopOthers {
            return Err(format!(
                "Nothing was run: a plan that waits for {name} goes on after errors; leave on_error out"
            ));
        }
        let once = |(call, _): &(&Call, &String)| tool_of(call).is_none_or(|tool| tool.replay() != Replay::Idempotent);
        match self.calls.iter().zip(self.plan.ids()).find(once) {
            None => Ok(()),
            Some((call, id)) => Err(format!(
                "Nothing was run: this plan waits for {name} and is run again when that ends, which {} ({id:?}) does not bear; put                  the calls of {name} into a plan of their own",
                call.tool.trim()
            )),
        }
    }
}

impl Members<'_> {
    /// The context of one node's call: its own id, so that each keeps its long output in a file of its own.
    fn context_of(&self, node: usize, cancel: &CancellationToken) -> ToolContext {
        let call_id = format!("{}_{}", node + 1, self.context.call_id);
        ToolContext { call_id, cancel: cancel.clone(), ..self.context.clone() }
    }

    fn section(&self, node: usize, end: &NodeEnd<ToolOutcome>) -> Section {
        let (id, tool) = (&self.planned.plan.ids()[node], &self.planned.calls[node].tool);
        // A model wrote the name; it was found, so it is short and plain but for spaces around it.
        let tool = tool.trim();
        let section = |state: &str, outcome: &ToolOutcome| {
            let text = outcome.result.render();
            // Said for each call it would drown the results.
            let text = without_notes(&text).to_owned();
            Section { head: format!("[{id}] {tool}: {state}"), text }
        };
        match end {
            NodeEnd::Done(outcome) => section("done", outcome),
            NodeEnd::Waits(outcome) => section("not done yet", outcome),
            NodeEnd::Failed(outcome) => section("failed", outcome),
            NodeEnd::Skipped { need } => {
                let need = &self.planned.plan.ids()[*need];
                let head = format!("[{id}] {tool}: skipped: a step that it needs failed ({need})");
                Section { head, text: String::new() }
            }
            NodeEnd::NotRun => {
                let head = format!("[{id}] {tool}: not run: the plan had been stopped");
                Section { head, text: String::new() }
            }
        }
    }

    /// For the journal, and for who reads it.
    fn facts(&self, node: usize, end: &NodeEnd<ToolOutcome>) -> Value {
        let (id, tool) = (&self.planned.plan.ids()[node], self.planned.calls[node].tool.trim());
        let (state, result) = match end {
            NodeEnd::Done(outcome) => ("done", Some(&outcome.result)),
            NodeEnd::Waits(outcome) => ("waits", Some(&outcome.result)),
            NodeEnd::Failed(outcome) => ("failed", Some(&outcome.result)),
            NodeEnd::Skipped { .. } => ("skipped", None),
            NodeEnd::NotRun => ("not_run", None),
        };
        match result {
            Some(result) => json!({ "id": id, "tool": tool, "state": state, "duration_ms": result.duration_ms }),
            None => json!({ "id": id, "tool": tool, "state": state }),
        }
    }
}

#[async_trait]
impl RunNode for Members<'_> {
    type Output = ToolOutcome;

    async fn run(
        &self,
        node: usize,
        ends: &[NodeEnd<ToolOutcome>],
        cancel: &CancellationToken,
    ) -> NodeEnd<ToolOutcome> {
        let (plan, call) = (&self.planned.plan, &self.planned.calls[node]);
        let context = self.context_of(node, cancel);
        let result_of = |id: &str| {
            let need = plan.needs(node).iter().find(|need| plan.ids()[**need] == id)?;
            match &ends[*need] {
                NodeEnd::Done(outcome) => Some(outcome.result.content.as_str()),
                _ => None,
            }
        };
        let none = Map::new();
        let arguments = fill(call.arguments.as_ref().unwrap_or(&none), &result_of);
        let arguments = match arguments {
            Ok(arguments) => arguments,
            Err(error) => return NodeEnd::Failed(ToolResult::failed(error).into()),
        };
        let arguments = Value::Object(arguments).to_string();
        let call = ToolCall { id: context.call_id.clone(), name: call.tool.clone(), arguments };
        let outcome = self.tools.run(&call, &context).await;
        if !outcome.awaited().is_empty() {
            return NodeEnd::Waits(outcome);
        }
        let ToolResult { success, duration_ms: ms, .. } = outcome.result;
        tracing::info!(turn = %context.turn, session = %context.session, tool = call.name, success, ms, "a plan's tool ran");
        if outcome.result.success { NodeEnd::Done(outcome) } else { NodeEnd::Failed(outcome) }
    }
}
