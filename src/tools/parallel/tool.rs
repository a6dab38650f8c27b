//! The tool `parallel`, which runs several calls of other tools as one call.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::fill::{fill, placeholder_ids};
use super::plan::{CallPlan, PlanNode};
use super::report::{ReportSection, join_sections, text_limit};
use super::run::{NodeOutcome, NodeRunner, OnError, run_plan};
use crate::chat::{ToolCall, without_notes};
use crate::text::without_line_numbers;
use crate::tools::argument_aliases::argument_name;
use crate::tools::arguments::parse_arguments;
use crate::tools::names::aliases_of;
use crate::tools::output_limits::note_cut;
use crate::tools::truncation::TextExtent;
use crate::tools::{
    CallRunner, NestedCall, OutputLimit, PlannedCallReport, PlannedCallState, ReplayPolicy, Tool, ToolContext,
    ToolDefinition, ToolOutcome, ToolResult, truncate_middle,
};

/// The tool whose results contain line numbers.
const READ_FILE: &str = "read_file";
/// The tool's name.
const NAME: &str = "parallel";
/// How long a stopped plan may take to end.
const END_MARGIN: Duration = Duration::from_secs(10);
/// The size limit of the line before the sections that names the failed calls.
const FAILURE_LINE: OutputLimit = OutputLimit { chars: 400, lines: 2 };
/// The maximum length of the report, in characters.
const MAX_CHARS: usize = 20_000;
const MAX_LINES: usize = 1_000;
/// The maximum number of failed calls that the first line names.
const MAX_NAMED: usize = 5;

#[derive(Deserialize, JsonSchema)]
struct ParallelArgs {
    calls: Vec<PlannedCall>,
    /// When a call fails: go_on (default), or stop_others.
    on_error: Option<OnError>,
}

#[derive(Deserialize, JsonSchema)]
struct PlannedCall {
    /// Default: its number.
    id: Option<String>,
    tool: String,
    /// {{ID}} in a text: the result of a call in needs.
    arguments: Option<Map<String, Value>>,
    /// Ids of calls that must have succeeded before.
    needs: Option<Vec<String>>,
}

/// The tool `parallel`. It runs a plan of calls through the executor that runs the tool itself, with all checks and limits. For
/// the journal the plan is one call, treated like the most cautious tool in it.
pub struct ParallelTool {
    definition: ToolDefinition,
    limit: Duration,
}

/// Returns true if a call with this name is a plan of other calls.
pub fn is_plan(name: &str) -> bool {
    std::iter::once(&NAME).chain(aliases_of(NAME)).any(|known| known.eq_ignore_ascii_case(name.trim()))
}

/// A checked plan, with the calls of its nodes.
struct CheckedPlan {
    plan: CallPlan,
    calls: Vec<PlannedCall>,
    on_error: OnError,
}

/// The runner of a plan's calls.
struct PlanRunner<'a> {
    planned: &'a CheckedPlan,
    context: &'a ToolContext,
    runner: &'a dyn CallRunner,
}

impl ParallelTool {
    /// Creates the tool. After `limit` the plan is stopped and reports its progress, in at most `max_output` characters.
    pub fn new(limit: Duration, max_output: u32) -> Self {
        let description = "Run several tool calls as one plan, at the same time unless one needs another.";
        let max_output = usize::try_from(max_output).unwrap_or(usize::MAX);
        let definition = ToolDefinition {
            output_limit: OutputLimit { chars: MAX_CHARS.min(max_output), lines: MAX_LINES },
            timeout: Some(limit.saturating_add(END_MARGIN)),
            // The tool has no effect of its own, so the calls of the plan decide how a restart treats it. It always runs alone,
            // because it runs as many calls at once as are allowed.
            ..ToolDefinition::changing::<ParallelArgs>(NAME, description, ReplayPolicy::Idempotent)
        };
        Self { definition, limit }
    }

    async fn report(&self, plan_runner: &PlanRunner<'_>, ends: Vec<NodeOutcome<ToolOutcome>>) -> ToolOutcome {
        let plan = &plan_runner.planned.plan;
        let each = || ends.iter().enumerate();
        let mut sections: Vec<ReportSection> = each().map(|(node, end)| plan_runner.section(node, end)).collect();
        let limit = self.definition.output_limit;
        let room = OutputLimit {
            chars: limit.chars.saturating_sub(FAILURE_LINE.chars),
            lines: limit.lines.saturating_sub(FAILURE_LINE.lines),
        };
        let text_limit = text_limit(&sections, room);
        let original = TextExtent::of(&join_sections(&sections)).chars;
        for (node, section) in sections.iter_mut().enumerate() {
            if TextExtent::of(&section.text).fits(text_limit) {
                continue;
            }
            let stored = match ends[node].result() {
                Some(ToolResult { spill: Some(stored), .. }) => Some(stored.clone()),
                Some(ToolResult { is_private: true, .. }) => None,
                result => {
                    let mut context = plan_runner.context_of(node, &plan_runner.context.cancel);
                    // The name of the file marks foreign content, so that a later turn that reads the file is tainted as well.
                    add_taint(&mut context, result);
                    plan_runner.runner.spill(section.text.clone(), &context).await
                }
            };
            section.text =
                truncate_middle(&section.text, text_limit, stored.map(|stored| stored.to_string()).as_deref());
        }
        let not_done = plan.ids.iter().zip(&ends).filter(|(_, end)| !matches!(end, NodeOutcome::Done(_)));
        let without: Vec<&str> = not_done.map(|(id, _)| id.as_str()).collect();
        let mut result = match without.as_slice() {
            [] => ToolResult::ok(""),
            some => {
                let more = if some.len() > MAX_NAMED { ", …" } else { "" };
                let named = some[..some.len().min(MAX_NAMED)].join(", ");
                ToolResult::failed(format!("{} of {} calls did not succeed: {named}{more}", some.len(), ends.len()))
            }
        };
        result.content = join_sections(&sections);
        if result.content.chars().count() < original {
            note_cut(&mut result.metadata, original);
        }
        result.planned_calls = each().map(|(node, end)| plan_runner.call_report(node, end)).collect();
        for part in ends.iter().filter_map(NodeOutcome::result) {
            result.is_private |= part.is_private;
            result.allow_lists.extend_from_slice(&part.allow_lists);
            result.found_tools.extend(part.found_tools.iter().cloned());
            result.images.extend_from_slice(&part.images);
            result.model_use.extend_from_slice(&part.model_use);
            result.taint.extend(part.taint.iter().cloned());
        }
        let effects = ends.into_iter().flat_map(|end| match end {
            NodeOutcome::Done(outcome) | NodeOutcome::Failed(outcome) => outcome.effects,
            _ => Vec::new(),
        });
        ToolOutcome { result, effects: effects.collect() }
    }
}

#[async_trait]
impl Tool for ParallelTool {
    fn definition(&self) -> &ToolDefinition {
        &self.definition
    }

    /// Always true: the tool has no effect of its own, and each call is checked when it runs.
    fn allows_untrusted(&self, _: &Value, _: &ToolContext) -> bool {
        true
    }

    fn nested_calls(&self, arguments: &Value) -> Vec<NestedCall> {
        let Some(Value::Array(calls)) = arguments.get("calls") else {
            // Unreadable arguments may contain any calls, so an unknown tool stands for them.
            return vec![NestedCall::default()];
        };
        let text = |call: &Value, key: &str| call.get(key).and_then(Value::as_str).map(str::to_owned);
        let ids: Vec<_> = (1..).zip(calls).map(|(number, call)| node_id(number, text(call, "id"))).collect();
        let nested = |call: &Value| NestedCall {
            tool: text(call, "tool").unwrap_or_default(),
            arguments: call["arguments"].clone(),
            takes_results: taken_results(&ids, &call["arguments"]).next().is_some(),
        };
        calls.iter().map(nested).collect()
    }

    /// Always false: the tool has no effect of its own. The executor checks the calls of the plan.
    fn is_restricted(&self, _: &Value, _: &ToolContext) -> bool {
        false
    }

    fn validate(&self, arguments: &Value, _: &ToolContext) -> Result<(), String> {
        CheckedPlan::of(arguments.clone()).map(drop)
    }

    async fn call(&self, _: Value, _: &ToolContext) -> ToolOutcome {
        ToolResult::failed("Nothing was run: this tool works among other tools alone").into()
    }

    async fn call_with_runner(&self, arguments: Value, context: &ToolContext, runner: &dyn CallRunner) -> ToolOutcome {
        let planned = match CheckedPlan::of(arguments)
            .and_then(|planned| planned.check_calls(runner, context).map(|()| planned))
        {
            Ok(planned) => planned,
            Err(error) => return ToolResult::failed(error).into(),
        };
        let plan_runner = PlanRunner { planned: &planned, context, runner };
        let stop = context.cancel.child_token();
        let time_is_up = async {
            sleep(self.limit).await;
            stop.cancel();
            std::future::pending::<Infallible>().await
        };
        let at_once = runner.parallelism();
        let ends = tokio::select! {
            ends = run_plan(&planned.plan, &plan_runner, at_once, planned.on_error, &stop) => ends,
            never = time_is_up => match never {},
        };
        if ends.iter().any(|end| matches!(end, NodeOutcome::Waits(_))) {
            return pending_outcome(ends);
        }
        self.report(&plan_runner, ends).await
    }
}

/// Adds the foreign content in results to the taint of a call.
fn add_taint<'r>(context: &mut ToolContext, results: impl IntoIterator<Item = &'r ToolResult>) {
    Arc::make_mut(&mut context.taint).extend(results.into_iter().flat_map(|result| result.taint.iter().cloned()));
}

/// Returns the outcome of a plan with waiting calls: the effects of the waiting calls and of those that have ended.
fn pending_outcome(ends: Vec<NodeOutcome<ToolOutcome>>) -> ToolOutcome {
    let effects = ends.into_iter().flat_map(|end| match end {
        NodeOutcome::Done(outcome) | NodeOutcome::Waits(outcome) => outcome.effects,
        _ => Vec::new(),
    });
    ToolOutcome { result: ToolResult::ok(""), effects: effects.collect() }
}

/// Returns the ids, among those of the plan, of the calls whose results `value` takes in.
fn taken_results<'v>(ids: &[String], value: &'v Value) -> impl Iterator<Item = &'v str> {
    placeholder_ids(value).into_iter().filter(|id| ids.iter().any(|known| known == id))
}

/// Returns the id of a call: its own, or its number in the plan.
fn node_id(number: usize, id: Option<String>) -> String {
    id.unwrap_or_else(|| number.to_string())
}

impl CheckedPlan {
    /// Parses and checks a plan, without looking up the tools.
    fn of(arguments: Value) -> Result<Self, String> {
        let args: ParallelArgs = serde_json::from_value(arguments).map_err(|error| error.to_string())?;
        let node = |(number, call): (usize, &PlannedCall)| PlanNode {
            id: node_id(number, call.id.clone()),
            needs: call.needs.clone().unwrap_or_default(),
        };
        let nodes: Vec<_> = (1..).zip(&args.calls).map(node).collect();
        let plan = CallPlan::new(&nodes).map_err(|error| format!("Nothing was run: {error}"))?;
        for (node, call) in nodes.iter().zip(&args.calls) {
            let mut taken =
                call.arguments.iter().flat_map(Map::values).flat_map(|value| taken_results(&plan.ids, value));
            if let Some(id) = taken.find(|id| !node.needs.iter().any(|need| need == id)) {
                return Err(format!(
                    "Nothing was run: {:?} takes in the result of {id:?} and must name it in needs",
                    node.id
                ));
            }
        }
        Ok(Self { plan, calls: args.calls, on_error: args.on_error.unwrap_or_default() })
    }

    /// Returns true if another call uses the result of this one.
    fn is_read(&self, node: usize) -> bool {
        let arguments = self.calls.iter().flat_map(|call| &call.arguments).flat_map(Map::values);
        arguments.flat_map(placeholder_ids).any(|id| id == self.plan.ids[node])
    }

    /// Checks that the tools exist, and that they accept placeholders where the plan has them.
    fn check_calls(&self, runner: &dyn CallRunner, context: &ToolContext) -> Result<(), String> {
        for (call, id) in self.calls.iter().zip(&self.plan.ids) {
            let wrong = |what: String| Err(format!("Nothing was run: {id:?}: {what}"));
            let Some(tool) = runner.tool(&call.tool) else {
                return wrong(runner.unknown_tool_error(&call.tool));
            };
            if tool.spec().name == NAME {
                return wrong("a plan cannot stand in a plan; put its calls into this one".to_owned());
            }
            for (argument, value) in call.arguments.iter().flatten() {
                let is_literal = tool.definition().literal_arguments.contains(&argument_name(tool.spec(), argument));
                if is_literal && taken_results(&self.plan.ids, value).next().is_some() {
                    return wrong(format!(
                        "no result can be put into {argument} of {}: read the result first, then make that call",
                        tool.spec().name
                    ));
                }
            }
        }
        self.check_repeatable(runner, context)
    }

    /// Checks that a plan with waiting calls may run again, as it does whenever one of them ends. No call of the plan may do harm
    /// in a second run, which may come days later. A call that needs all waiting calls runs only after the last of them.
    fn check_repeatable(&self, runner: &dyn CallRunner, context: &ToolContext) -> Result<(), String> {
        let tool_of = |call: &PlannedCall| runner.tool(&call.tool);
        let waits = |call: &PlannedCall| {
            let Some(tool) = tool_of(call) else { return false };
            let arguments = Value::Object(call.arguments.clone().unwrap_or_default()).to_string();
            tool.may_wait(&parse_arguments(tool.spec(), &arguments).unwrap_or_default(), context)
        };
        let waiting: BTreeSet<usize> = (0..self.calls.len()).filter(|node| waits(&self.calls[*node])).collect();
        let Some(first) = waiting.first() else { return Ok(()) };
        let name = self.calls[*first].tool.trim();
        if self.on_error == OnError::StopOthers {
            return Err(format!(
                "Nothing was run: a plan that waits for {name} goes on after errors; leave on_error out"
            ));
        }
        let needs = self.plan.all_needs();
        for (node, call) in self.calls.iter().enumerate() {
            let remedy = match tool_of(call).map(|tool| tool.definition().replay) {
                Some(ReplayPolicy::Idempotent) => continue,
                Some(ReplayPolicy::Overwrites) if needs[node].is_superset(&waiting) => continue,
                Some(ReplayPolicy::Overwrites) => ", or let it need all of them",
                _ => "",
            };
            return Err(format!(
                "Nothing was run: this plan waits for {name} and is run again when that ends, which {} ({:?}) does not bear; put the calls of {name} into a plan of their own{remedy}",
                call.tool.trim(),
                self.plan.ids[node]
            ));
        }
        Ok(())
    }
}

impl NodeOutcome<ToolOutcome> {
    /// Returns the result of a call that has ended.
    fn result(&self) -> Option<&ToolResult> {
        match self {
            Self::Done(outcome) | Self::Failed(outcome) => Some(&outcome.result),
            _ => None,
        }
    }
}

impl PlanRunner<'_> {
    /// Returns the context for a node's call. The call has its own id, so that each long output gets its own spill file.
    fn context_of(&self, node: usize, cancel: &CancellationToken) -> ToolContext {
        let call_id = format!("{}_{}", node + 1, self.context.call_id);
        // Nothing may be left out of a result that other calls of the plan use.
        let question = if self.planned.is_read(node) { Arc::default() } else { Arc::clone(&self.context.question) };
        ToolContext { call_id, cancel: cancel.clone(), question, ..self.context.clone() }
    }

    fn section(&self, node: usize, end: &NodeOutcome<ToolOutcome>) -> ReportSection {
        let ids = &self.planned.plan.ids;
        let (state, ran) = match end {
            NodeOutcome::Done(outcome) => ("done".to_owned(), Some(outcome)),
            NodeOutcome::Waits(outcome) => ("not done yet".to_owned(), Some(outcome)),
            NodeOutcome::Failed(outcome) => ("failed".to_owned(), Some(outcome)),
            NodeOutcome::Skipped { need } => (format!("skipped: a step that it needs failed ({})", ids[*need]), None),
            NodeOutcome::NotRun => ("not run: the plan had been stopped".to_owned(), None),
        };
        // The model wrote the name. The name was found in the registry, so it is short and plain, except for spaces around it.
        let head = format!("[{}] {}: {state}", ids[node], self.planned.calls[node].tool.trim());
        // Repeated for each call, the notes would make the results hard to find.
        let text = ran.map(|outcome| without_notes(&outcome.result.render()).to_owned()).unwrap_or_default();
        ReportSection { head, text }
    }

    /// Returns the report of a node for the journal.
    fn call_report(&self, node: usize, end: &NodeOutcome<ToolOutcome>) -> PlannedCallReport {
        let (state, ran) = match end {
            NodeOutcome::Done(outcome) => (PlannedCallState::Done, Some(outcome)),
            NodeOutcome::Waits(outcome) => (PlannedCallState::Waits, Some(outcome)),
            NodeOutcome::Failed(outcome) => (PlannedCallState::Failed, Some(outcome)),
            NodeOutcome::Skipped { .. } => (PlannedCallState::Skipped, None),
            NodeOutcome::NotRun => (PlannedCallState::NotRun, None),
        };
        PlannedCallReport {
            id: self.planned.plan.ids[node].clone(),
            tool: self.planned.calls[node].tool.trim().to_owned(),
            state,
            duration_ms: ran.map(|outcome| outcome.result.duration_ms),
        }
    }

    /// Returns the text that another call gets from a result. Line numbers of a file's page are removed.
    fn insertion<'r>(&self, node: usize, result: &'r str) -> Cow<'r, str> {
        let tool = self.runner.tool(&self.planned.calls[node].tool);
        if tool.is_some_and(|tool| tool.spec().name == READ_FILE) {
            without_line_numbers(result)
        } else {
            result.into()
        }
    }
}

#[async_trait]
impl NodeRunner for PlanRunner<'_> {
    type Output = ToolOutcome;

    async fn run(
        &self,
        node: usize,
        ends: &[NodeOutcome<ToolOutcome>],
        cancel: &CancellationToken,
    ) -> NodeOutcome<ToolOutcome> {
        let (plan, call) = (&self.planned.plan, &self.planned.calls[node]);
        let mut context = self.context_of(node, cancel);
        // A skill that an earlier call of the plan has loaded also limits the later calls, and foreign content that an earlier call
        // has read taints them: a sub-agent or a background command inherits the taint of the call that starts it.
        let loaded = ends.iter().filter_map(NodeOutcome::result).flat_map(|result| &result.allow_lists);
        context.allow_lists = context.allow_lists.iter().chain(loaded).cloned().collect();
        add_taint(&mut context, ends.iter().filter_map(NodeOutcome::result));
        let result_of = |id: &str| {
            let need = plan.needs[node].iter().find(|need| plan.ids[**need] == id)?;
            match &ends[*need] {
                NodeOutcome::Done(outcome) => Some(self.insertion(*need, &outcome.result.content)),
                _ => None,
            }
        };
        let none = Map::new();
        let arguments = fill(call.arguments.as_ref().unwrap_or(&none), &result_of);
        let arguments = match arguments {
            Ok(arguments) => arguments,
            Err(error) => return NodeOutcome::Failed(ToolResult::failed(error).into()),
        };
        let arguments = Value::Object(arguments).to_string();
        let call = ToolCall { id: context.call_id.clone(), name: call.tool.clone(), arguments };
        let outcome = self.runner.run(&call, &context).await;
        if outcome.is_pending() {
            return NodeOutcome::Waits(outcome);
        }
        let ToolResult { success, duration_ms: ms, .. } = outcome.result;
        tracing::info!(turn = %context.turn, session = %context.session, tool = call.name, success, ms, "a plan's tool ran");
        if outcome.result.success { NodeOutcome::Done(outcome) } else { NodeOutcome::Failed(outcome) }
    }
}
